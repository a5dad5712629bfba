//! Customers who call all the time, and what became of each call.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// Longer than a call takes at a node that stands still for a while.
const TIMEOUT: Duration = Duration::from_secs(20);
/// How many bytes of an answer are kept to be shown: an error's code and message.
const REPLY_BYTES_MAX: usize = 400;

/// A call and what became of it.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// Index of the called address.
    pub(crate) node: usize,
    /// Index of the key.
    pub(crate) key: usize,
    /// When it was sent.
    pub(crate) at: Instant,
    /// When the answer was there.
    pub(crate) until: Instant,
    /// The status; 0 when there was no answer, or only a part of one.
    pub(crate) status: u16,
    /// The id that the gateway gave it.
    pub(crate) request: Option<String>,
    /// When it is to come again, as the answer says.
    pub(crate) retry_after: Option<String>,
    /// The code of an error.
    pub(crate) code: String,
    /// How the answer begins that is no 200, or why there is none.
    pub(crate) reply: String,
}

/// How customers call.
#[derive(Clone)]
pub(crate) struct Calling {
    /// Whom; one after the other.
    pub(crate) to: Vec<SocketAddr>,
    /// With whose keys; one after the other.
    pub(crate) keys: Vec<String>,
    /// How many at the same time.
    pub(crate) callers: usize,
    /// How long each waits before the next call.
    pub(crate) pause: Duration,
    /// Request body.
    pub(crate) body: String,
}

/// Customers at work.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    calls: Arc<Mutex<Vec<Call>>>,
    callers: Vec<JoinHandle<()>>,
    runtime: Runtime,
}

impl Load {
    /// Begins.
    pub(crate) fn start(calling: &Calling) -> Self {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().expect("a runtime");
        let stop = Arc::new(AtomicBool::new(false));
        let calls: Arc<Mutex<Vec<Call>>> = Arc::default();
        let http = super::http_builder().timeout(TIMEOUT).build().expect("a client");
        let callers = (0..calling.callers).map(|caller| {
            let (calling, http) = (calling.clone(), http.clone());
            let (stop, calls) = (Arc::clone(&stop), Arc::clone(&calls));
            runtime.spawn(async move {
                let mut turn = caller;
                while !stop.load(Ordering::Relaxed) {
                    let call = call(&http, &calling, turn).await;
                    calls.lock().push(call);
                    turn += calling.callers;
                    tokio::time::sleep(calling.pause).await;
                }
            })
        });
        let callers = callers.collect();
        Self { stop, calls, callers, runtime }
    }

    /// Calls that have ended by now.
    pub(crate) fn so_far(&self) -> Vec<Call> {
        self.calls.lock().clone()
    }

    /// Ends when the last answers are there.
    pub(crate) fn stop(self) -> Vec<Call> {
        self.stop.store(true, Ordering::Relaxed);
        for caller in self.callers {
            self.runtime.block_on(caller).expect("no panic");
        }
        std::mem::take(&mut *self.calls.lock())
    }
}

/// So many calls at once, and what became of them.
pub(crate) fn all_at_once(calling: &Calling, calls: usize) -> Vec<Call> {
    let runtime = Runtime::new().expect("a runtime");
    let http = super::http_builder().timeout(TIMEOUT).build().expect("a client");
    runtime.block_on(async {
        futures_util::future::join_all((0..calls).map(|turn| call(&http, calling, turn))).await
    })
}

async fn call(http: &reqwest::Client, calling: &Calling, turn: usize) -> Call {
    let (node, key) = (turn % calling.to.len(), turn / calling.to.len() % calling.keys.len());
    let at = Instant::now();
    let request = http
        .post(format!("http://{}/v1/chat/completions", calling.to[node]))
        .bearer_auth(&calling.keys[key])
        .header("content-type", "application/json")
        .body(calling.body.clone());
    let (code, reply) = Default::default();
    let (request_id, retry_after) = (None, None);
    let mut call =
        Call { node, key, at, until: at, status: 0, request: request_id, retry_after, code, reply };
    if let Err(error) = hear(request, &mut call).await {
        call.reply = format!("{error:?}");
    }
    call.until = Instant::now();
    call
}

async fn hear(request: reqwest::RequestBuilder, call: &mut Call) -> reqwest::Result<()> {
    let answer = request.send().await?;
    let status = answer.status().as_u16();
    let text = |name: &str| {
        let value = answer.headers().get(name).and_then(|value| value.to_str().ok());
        value.map(str::to_owned)
    };
    (call.request, call.retry_after) = (text("x-request-id"), text("retry-after"));
    let body = answer.bytes().await?;
    call.status = status;
    if status != 200 {
        call.reply = String::from_utf8_lossy(&body[..body.len().min(REPLY_BYTES_MAX)]).into_owned();
    }
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    call.code = body["error"]["code"].as_str().unwrap_or_default().to_owned();
    Ok(())
}
