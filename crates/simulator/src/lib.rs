//! Simulated upstreams: a server that answers like a provider, or fails like one, for the demo, the
//! tests and the benchmarks.
//!
//! It speaks OpenAI's, Anthropic's, Google's, Amazon Bedrock's and DashScope's protocols over HTTP/1.1 and HTTP/2 without TLS.
//! Paths are matched by their end, under any prefix; all are rows of one table, `route.rs`.
//!
//! | Path | What answers |
//! |---|---|
//! | `…/chat/completions`, `…/responses`, `…/models`, `…/models/{id}` | OpenAI |
//! | `…/responses/compact`, `…/responses/input_tokens`; `…/responses/{id}` (`GET`, `DELETE`), `…/{id}/input_items`, `…/{id}/cancel` | OpenAI; the last thousand responses are kept, each for the key that made it, unless it said `store: false` |
//! | `…/embeddings` | OpenAI; models `voyage-…`: Voyage, a thousand inputs; under `/compatible-mode/`: DashScope, ten inputs and numbers only; under `/v1beta/openai/`: Gemini, a hundred texts and numbers only, no usage |
//! | `…/rerank` | Jina, with tokens; under `/v2/`: Cohere, with search units; models `rerank-2…`: Voyage, with tokens and its own field names |
//! | `…/moderations` | OpenAI, without a usage unless one is set; texts with the word `attack` are flagged |
//! | `…/images/generations`, `…/images/edits` (multipart) | OpenAI, gpt-image and dall-e; models `grok…`: xAI; under `/api/v3/`: Ark |
//! | `…/audio/speech` | OpenAI; a sine where the format is `wav` or `pcm` |
//! | `…/audio/transcriptions`, `…/audio/translations` (multipart) | OpenAI; models `gpt-4o…`: usage in tokens, ten of audio for a second; others: in seconds, which are those of a WAV file, and one of any other |
//! | `…/messages`, `…/messages/count_tokens` | Anthropic |
//! | `…/model/{id}/converse`, `…/model/{id}/converse-stream` | Amazon Bedrock; the stream in Amazon's binary frames |
//! | `…/models/{model}:generateContent`, `:streamGenerateContent`, `:countTokens` | Gemini; thoughts where `includeThoughts` asks for them; models `gemini-3…` give calls ids and want their signatures back |
//! | `…/multimodal-generation/generation` | DashScope: an image for `input.messages`, speech for `input.text` |
//! | `…/video-generation/video-synthesis` and `…/tasks/{id}` | DashScope: a video, which is a task |
//! | `…/contents/generations/tasks` (`POST`, `GET`) and below it `/{id}` (`GET`, `DELETE`) | Ark: a video; `callback_url`, without TLS, is told of each state, three times at most |
//! | `…/videos/generations` and `…/videos/{id}` | xAI: a video |
//! | `…/sim/results/{name}` | a file that an answer points at; its URL has the path settings of the request |
//!
//! `GET /sim/requests` shows the last 1,024 requests, `GET /sim/tasks` the last 100,000 tasks. Each answer carries the SHA-256 and the length
//! of the request's body as it arrived, in `x-sim-body-sha256` and `x-sim-body-bytes`.
//!
//! # Settings
//!
//! What it does is a [`Behaviour`], which can be set for the server ([`SimOptions`],
//! [`Sim::set_behaviour`], `tollgate sim NAME=VALUE…`), changed for one base URL by a path segment
//! `sim:NAME=VALUE;NAME=VALUE` (as in `http://127.0.0.1:9000/sim:fault=status=503/v1`), and changed
//! for one request by headers `x-sim-NAME: VALUE`. The later one in this list wins.
//!
//! | Name | Value | Default |
//! |---|---|---|
//! | `delay-ms` | milliseconds from the request's last byte to the answer's first | 0 |
//! | `chunks` | pieces of content in an answer, each a chunk when streamed | 8 |
//! | `interval-ms` | milliseconds between two chunks | 0 |
//! | `words` | words in a chunk; a word counts as a token | 2 |
//! | `max-tokens` | `honour` or `ignore` the request's `max_tokens` | `honour` |
//! | `provider` | whose chat completions are answered, with their peculiarities: `openai`, `deepseek`, `moonshot`, `zhipu`, `minimax`, `mistral`, `groq`, `together`, `fireworks`, `openrouter`, `siliconflow`, `vllm`, `sglang`, `ollama` or `llamacpp`; all but the first think before they answer ([`ChatProvider`]) | `openai` |
//! | `usage` | reported tokens: `prompt=12,completion=34,cached=4,reasoning=3`, each optional; DashScope's characters are `prompt`, its images and billed seconds, and xAI's ticks of cost, `completion` | counted |
//! | `dimensions` | size of vectors, when the request does not say | 256 |
//! | `base64` | `on` or `off`: whether embeddings come in base64 when asked | `on` |
//! | `image-bytes` | characters of base64 in each image, 0 for a picture of one pixel | 0 |
//! | `usage-dialect` | `counted` or `output`: DashScope's image usage as `image_count, width, height`, or as `output_image_count` and so on | `counted` |
//! | `task-pending-ms` | milliseconds for which a task waits | 50 |
//! | `task-running-ms` | milliseconds for which it is worked on after that | 100 |
//! | `task-end` | `succeeded`, `failed`, `expired`, `cancelled` or `moderated`: its end, in the words of its protocol | `succeeded` |
//! | `task-query-fault` | `status=N`, `hang`, `reset` or `garbage`: what comes instead of an answer to a query of one task; `none` takes it away | `none` |
//! | `count-delay-ms` | milliseconds from the last byte of a request to count tokens to its answer | those of `delay-ms` |
//! | `count-fault` | `status=N`, `hang`, `reset` or `garbage`: what comes instead of a count; `none` takes it away | `none` |
//! | `count-percent` | a count as a part of the true one: a counter that lies | 100 |
//! | `key` | the bearer token that requests must carry, else 401 | none asked |
//! | `retry-after` | `retry-after` of error answers | none |
//! | `error-code` | `error.code` of error answers, and the code of tasks that fail | by status |
//! | `blind` | `on` or `off`: answer by path alone, without reading, hashing or recording the body; for images and whole answers of language models | `off` |
//! | `strict` | `on` or `off`: requests to language models are refused that the real provider's validator refuses, in its words; [`strict`] has the rules and their sources | `off` |
//! | `fault` | faults, separated by commas; repeated ones add up | none |
//!
//! # Faults
//!
//! | Fault | What happens |
//! |---|---|
//! | `none` | takes all faults set before away |
//! | `status=N` | status N, 400 to 599, with an error body |
//! | `error-in-200` | status 200 with the error body of a 500 |
//! | `reset`, `reset-after-body` | TCP RST once the head is read, or the whole request (over HTTP/2: of the stream) |
//! | `hang` | the request is read and never answered |
//! | `garbage` | 200 with bytes that are neither JSON nor events |
//! | `cut-after=N` | after N chunks the connection closes, the body unfinished |
//! | `eof-after=N` | after N chunks the body ends as if whole, without usage and `[DONE]` |
//! | `hang-after=N` | after N chunks nothing more comes |
//! | `error-after=N` | after N chunks an error event comes, and the body ends |
//! | `usage-missing` | usage is never reported |
//! | `usage-string` | usage is a string that holds JSON; DashScope's tasks only |
//! | `usage-negative`, `usage-huge` | usage is below zero, or the most that 64 bits hold |
//! | `usage-twice`, `usage-early`, `usage-late` | one more, tenfold usage after the honest one, in the middle of the content, or after `[DONE]` |
//! | `done-missing`, `done-twice` | no `[DONE]`, or two |
//! | `crlf`, `cr` | the lines of a stream end in `\r\n`, or `\r` |
//! | `checksum` | the checksum of the second piece of content is wrong; Bedrock's streams only |
//! | `comments` | comments stand between events and inside them |
//! | `split` | each event comes in several writes, cut at awkward places |
//! | `utf8-split` | the words are not ASCII, and their characters are cut |
//! | `trickle` | one byte for each write |
//! | `giant=N` | one piece of content has N bytes |
//! | `leak` | the headers carry a cookie and what looks like the operator's credentials |
//! | `submit-hang`, `submit-reset` | a task is taken in and worked on, but its submit is never answered, or gets TCP RST |
//! | `task-lost` | tasks are not known to queries, though they were taken in |
//!
//! What becomes of a task is decided by the settings of its submit: `task-…`, `usage…`, `error-code`,
//! `task-lost`. A query has the faults of its own request, `task-lost` and `task-query-fault` among
//! them. A submit that is answered with `garbage`, or whose answer breaks off, was taken in; one that
//! is refused, reset or left hanging by the faults for all requests was not. An end for which a
//! protocol has no word is the nearest that it has: DashScope does not know an expired task any more
//! and has no moderated one, which failed; Ark's moderated one failed; xAI's cancelled one failed, and
//! its moderated one is done, without a URL, and costs as much.
//!
//! Unstreamed answers break off in their middle, whatever N is. Speech and results break off between
//! chunks, and know no `error-after`; the answer that points at DashScope's speech comes whole, so that
//! it is the speech that breaks off. `error-after`, `usage-twice`, `usage-early`, `usage-late`,
//! `done-…`, `crlf`, `cr` and `comments` are for streams only.

mod answer;
mod anthropic;
mod ark;
mod received_request;
mod audio;
mod bedrock;
mod behaviour;
mod blind;
mod connection;
mod conversation;
mod dashscope;
mod error;
mod event_frames;
mod gemini;
mod image;
mod in_flight;
mod openai;
mod prompt;
mod provider;
mod recorded;
mod reply;
mod results;
mod route;
mod sample;
mod script;
mod server;
mod state;
pub mod strict;
mod tasks;
mod usage;
mod xai;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;

use tokio::sync::watch;

pub use behaviour::{
    BadSetting, Behaviour, Break, BreakPoint, CountSettings, DoneMarker, Faults, LineEnd,
    SimulatedRefusal, TaskEnd, TaskSettings, UsageDialect, UsageFigures, UsageForm, WithheldAnswer,
    Writes,
};
pub use conversation::{
    DeclaredTool, ModelDialect, ModelRequest, ModelScript, ModelTurn, PastCall, ScriptedToolCall,
    TurnUsage,
};
pub use provider::ChatProvider;
pub use recorded::RecordedRequest;
pub use tasks::{SimTask, SimulatedTaskState, TaskProtocol};

use state::SimulatorState;

/// Start options of a simulated upstream.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// Listening address. Port 0 takes any free port, which is the default, on 127.0.0.1.
    pub listen: SocketAddr,
    /// Default behaviour, which paths and request headers override.
    pub behaviour: Behaviour,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), behaviour: Behaviour::default() }
    }
}

/// A running simulated upstream. Dropping it ends it: open answers get half a second to finish.
///
/// It runs on a thread of its own, so it can be used from synchronous and asynchronous code alike.
#[derive(Debug)]
pub struct Sim {
    addr: SocketAddr,
    server: Arc<SimulatorState>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Sim {
    /// Starts to listen; when this returns, connections are taken.
    ///
    /// # Errors
    /// The address cannot be listened on, or no thread can be started.
    pub fn start(options: SimOptions) -> io::Result<Self> {
        let server = Arc::new(SimulatorState::new(options.behaviour));
        let (stop, stopped) = watch::channel(false);
        let (bound, binding) = mpsc::sync_channel(1);
        let on_thread = Arc::clone(&server);
        let thread = std::thread::Builder::new().name("sim".to_owned()).spawn(move || {
            server::run(&on_thread, options.listen, stopped, |result| drop(bound.send(result)));
        })?;
        let addr =
            binding.recv().map_err(|_| io::Error::other("the simulator's thread ended"))??;
        Ok(Self { addr, server, stop, thread: Some(thread) })
    }

    /// The address and port where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Its address as a base URL for an OpenAI client, `http://127.0.0.1:9000/v1`.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.addr)
    }

    /// The last requests, at most 1,024, oldest first.
    #[must_use]
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.server.recorder.all()
    }

    /// Requests received completely since the start.
    #[must_use]
    pub fn requests_total(&self) -> u64 {
        self.server.recorder.received()
    }

    /// Requests being read or answered now.
    #[must_use]
    pub fn requests_in_flight(&self) -> usize {
        self.server.in_flight()
    }

    /// Latest tasks, at most 100,000, oldest first, including ones that queries cannot see.
    #[must_use]
    pub fn tasks(&self) -> Vec<SimTask> {
        self.server.tasks.all()
    }

    /// Tasks accepted since the start.
    #[must_use]
    pub fn tasks_total(&self) -> u64 {
        self.server.tasks.submitted()
    }

    /// Changes what it does with requests that arrive from now on.
    pub fn set_behaviour(&self, behaviour: Behaviour) {
        self.server.behaviour.store(Arc::new(behaviour));
    }

    /// Install a script that answers model requests from now on.
    pub fn set_script(&self, script: ModelScript) {
        self.server.script.store(Some(Arc::new(script)));
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed when it happened; there is nothing to add here.
            drop(thread.join());
        }
    }
}
