//! What operators type: the fields of the two files, with their defaults. Doc comments here are the
//! descriptions in the JSON Schema.

use std::marker::PhantomData;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use schemars::JsonSchema;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

use super::rate::{PerMillion, PerUnit};
use super::scalar::{
    Address, AudioFormatName, DialectName, ImageFormatName, ImageSize, OperationName, Period,
    QualityName, ResolutionName, ResponseFormatName, SecretText, Size,
};
use super::url::BaseUrl;

/// A mapping from names to values that keeps the order of the file.
#[derive(Debug)]
pub(super) struct Entries<T>(pub(super) Vec<(String, T)>);

impl<T> Default for Entries<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Entries<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Collect<T> {
            type Value = Entries<T>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a mapping")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(Collect(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for Entries<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("EntriesOf{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        std::collections::BTreeMap::<String, T>::json_schema(generator)
    }
}

/// Listeners, upstreams, routes, limits and the store of a Tollgate gateway.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Routes {
    /// Where customers connect. Default: `0.0.0.0:8080` with `h2c: true`. Takes effect at a restart.
    #[serde(default = "default_listeners")]
    pub(super) listeners: Vec<Listener>,
    /// The operator's API, probes and metrics. Takes effect at a restart.
    #[serde(default)]
    pub(super) admin: Admin,
    /// Where the ledger is kept. Takes effect at a restart.
    #[serde(default)]
    pub(super) store: Store,
    /// How the gateway stops. Takes effect at a restart.
    #[serde(default)]
    pub(super) shutdown: Shutdown,
    /// Bounds on what is taken in from customers.
    #[serde(default)]
    pub(super) limits: Limits,
    /// How tasks, such as video, are followed.
    #[serde(default)]
    pub(super) tasks: Tasks,
    /// The providers' APIs, by a name of your own.
    pub(super) upstreams: Entries<Upstream>,
    /// Which path does what. Default: every operation that this build serves, at OpenAI's path.
    #[serde(default)]
    pub(super) routes: Option<Vec<Route>>,
}

fn default_listeners() -> Vec<Listener> {
    let address = Address(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 8080)));
    vec![Listener { address, h2c: true }]
}

/// One address where customers connect.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Listener {
    /// The IP address and port to listen on, such as `0.0.0.0:8080`. Port 0 takes any free port.
    pub(super) address: Address,
    /// Whether HTTP/2 without TLS is spoken there, beside HTTP/1.1. Default: `true`.
    #[serde(default = "yes")]
    pub(super) h2c: bool,
}

fn yes() -> bool {
    true
}

/// The operator's API, probes and metrics.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Admin {
    /// The IP address and port to listen on. Default: `127.0.0.1:9090`.
    pub(super) address: Address,
    /// The bearer token of the admin API. Default: one is made at the first start and kept in
    /// `admin-token` in the data directory.
    pub(super) token: Option<SecretText>,
}

impl Default for Admin {
    fn default() -> Self {
        Self { address: Address(SocketAddr::from((Ipv4Addr::LOCALHOST, 9090))), token: None }
    }
}

/// Where the ledger is kept.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Store {
    /// The directory of the ledger, for one process at a time. Default: `data`.
    pub(super) data_dir: String,
    /// What becomes of calls that a crash left open. Default: `void`.
    pub(super) recovery: Recovery,
}

impl Default for Store {
    fn default() -> Self {
        Self { data_dir: "data".to_owned(), recovery: Recovery::Void }
    }
}

/// What becomes of calls that a crash left open.
#[derive(Clone, Copy, Debug, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(title = "a way of recovery", inline)]
pub(super) enum Recovery {
    /// The customer pays nothing.
    Void,
    /// The customer pays the least that the call must have cost: its estimated input.
    Floor,
}

/// How the gateway stops.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Shutdown {
    /// The time that requests in flight get after SIGTERM. Default: `30s`.
    pub(super) grace: Period,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self { grace: Period(Duration::from_secs(30)) }
    }
}

/// Bounds on what is taken in from customers.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Limits {
    /// The largest request body. Default: `64MiB`.
    pub(super) body_max: Size,
    /// All request bodies held in memory at one time. Default: `512MiB`.
    pub(super) body_memory_max: Size,
    /// The time within which a whole request body must arrive. Default: `60s`.
    pub(super) body_timeout: Period,
    /// The time within which a customer who is sending must send something. Default: `60s`.
    pub(super) read_timeout: Period,
    /// The time within which a customer who is receiving must take something. Default: `60s`.
    pub(super) write_timeout: Period,
}

impl Default for Limits {
    fn default() -> Self {
        let minute = Period(Duration::from_secs(60));
        Self {
            body_max: Size(64 << 20),
            body_memory_max: Size(512 << 20),
            body_timeout: minute,
            read_timeout: minute,
            write_timeout: minute,
        }
    }
}

/// How tasks, such as video, are followed.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Tasks {
    /// How soon an upstream is asked again about a young task. Default: `5s`.
    pub(super) poll_min: Period,
    /// How soon an upstream is asked again about an old task. Default: `30s`.
    pub(super) poll_max: Period,
    /// The customers who may wait for the end of a task at one time. Default: 256.
    #[schemars(range(min = 1, max = 100_000))]
    pub(super) waiting_max: u32,
    /// How long the same submit with the same key, without an `Idempotency-Key`, is taken for a
    /// repetition, which gets the first answer again. Default: it is not.
    pub(super) repeat_window: Option<Period>,
    /// Hosts that webhooks may be sent to although they are not on the public internet, over `http`
    /// as well. Default: none.
    pub(super) webhook_hosts: Vec<String>,
}

impl Default for Tasks {
    fn default() -> Self {
        let seconds = |count| Period(Duration::from_secs(count));
        Self {
            poll_min: seconds(5),
            poll_max: seconds(30),
            waiting_max: 256,
            repeat_window: None,
            webhook_hosts: Vec::new(),
        }
    }
}

/// A provider's API.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Upstream {
    /// The protocol that it speaks.
    pub(super) protocol: DialectName,
    /// Where its API begins, such as `https://api.openai.com/v1`. For the protocols `openai` and
    /// `voyage` this ends with the version; the others add their own paths in full.
    pub(super) base_url: BaseUrl,
    /// Your key at the provider. Leave it out for a server that asks for none.
    #[serde(default)]
    pub(super) credential: Option<SecretText>,
    /// Switches the upstream off, with a warning, when a variable or file that it names is missing.
    /// Default: `false`, which makes that an error.
    #[serde(default)]
    #[expect(
        dead_code,
        reason = "it is looked at before the values are complete enough to be read"
    )]
    pub(super) optional: bool,
    /// How long to wait for it.
    #[serde(default)]
    pub(super) timeouts: Timeouts,
}

/// How long to wait for an upstream.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Timeouts {
    /// For the TCP and TLS handshakes. Default: `5s`.
    pub(super) connect: Period,
    /// The longest silence, before a response begins and between two pieces of it. Default: `300s`.
    pub(super) read: Period,
    /// Until a piece of a request is taken. Default: `30s`.
    pub(super) write: Period,
}

impl Default for Timeouts {
    fn default() -> Self {
        let seconds = |count| Period(Duration::from_secs(count));
        Self { connect: seconds(5), read: seconds(300), write: seconds(30) }
    }
}

/// A path and what it does.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Route {
    /// The exact path, such as `/v1/chat/completions`.
    pub(super) path: String,
    /// What it does.
    pub(super) operation: OperationName,
    /// The largest request body here. Default: `body_max` of `limits`.
    #[serde(default)]
    pub(super) body_max: Option<Size>,
}

/// The models of a Tollgate gateway: where they are served and what they cost.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Models {
    /// The models, by the id that customers use, in the order in which they are listed.
    pub(super) models: Entries<Model>,
}

/// A model.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Model {
    /// What it can be asked to do.
    pub(super) operations: Vec<OperationName>,
    /// Where it is served.
    pub(super) targets: Vec<Target>,
    /// What it costs, in US dollars.
    #[serde(default)]
    pub(super) prices: Prices,
    /// Prices that depend on the request. The first whose conditions all hold replaces what it names.
    #[serde(default)]
    pub(super) prices_when: Vec<PricesWhen>,
    /// What one request can use at most.
    #[serde(default)]
    pub(super) limits: ModelLimits,
    /// `owned_by` in model lists. Default: the first target's upstream.
    #[serde(default)]
    pub(super) owned_by: Option<String>,
    /// Says that the model costs nothing. Default: `false`, and then a missing price is an error.
    #[serde(default)]
    pub(super) free: bool,
}

/// One place where a model is served.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Target {
    /// The name of an upstream in routes.yaml.
    pub(super) upstream: String,
    /// The upstream's name for the model. Default: the model's id.
    #[serde(default)]
    pub(super) model: Option<String>,
    /// Lower is tried first. Default: 0.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1000))]
    pub(super) priority: u32,
    /// The share among targets of the same priority. Default: 1.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1000))]
    pub(super) weight: u32,
}

fn one() -> u32 {
    1
}

/// What a model costs, in US dollars. At most nine decimals for a million, fifteen for one.
#[derive(Clone, Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Prices {
    /// A million input tokens.
    pub(super) input_per_1m_tokens: Option<PerMillion>,
    /// A million input tokens read from a prompt cache. Default: the input price.
    pub(super) cached_input_per_1m_tokens: Option<PerMillion>,
    /// A million input tokens written to a prompt cache. Default: the input price.
    pub(super) cache_write_per_1m_tokens: Option<PerMillion>,
    /// A million input tokens written to a prompt cache for an hour. Default: the price of a cache
    /// write.
    pub(super) cache_write_1h_per_1m_tokens: Option<PerMillion>,
    /// A million output tokens, reasoning included.
    pub(super) output_per_1m_tokens: Option<PerMillion>,
    /// One image.
    pub(super) per_image: Option<PerUnit>,
    /// One second of video.
    pub(super) per_second: Option<PerUnit>,
    /// A million characters of speech.
    pub(super) per_1m_characters: Option<PerMillion>,
}

/// Prices for requests that fit some conditions.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PricesWhen {
    /// Conditions, all of which must hold.
    pub(super) when: When,
    /// The prices that differ.
    pub(super) prices: Prices,
}

/// Conditions on a request, all of which must hold.
#[derive(Debug, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct When {
    /// The resolution of a video, such as `720p`.
    #[serde(default)]
    pub(super) resolution: Option<ResolutionName>,
    /// The size of an image, width by height, such as `1024x1024`.
    #[serde(default)]
    pub(super) size: Option<ImageSize>,
    /// The quality of an image.
    #[serde(default)]
    pub(super) quality: Option<QualityName>,
    /// Whether a video is made with sound.
    #[serde(default)]
    pub(super) audio: Option<bool>,
    /// Whether a video is a draft.
    #[serde(default)]
    pub(super) draft: Option<bool>,
    /// Whether a video is among the inputs.
    #[serde(default)]
    pub(super) video_input: Option<bool>,
}

/// What one request to a model can use at most, and ask for.
#[derive(Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ModelLimits {
    /// The context window: the tokens of input that the model takes. Needed for chat.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub(super) context_tokens_max: Option<u64>,
    /// The tokens that the model can put out in one answer, reasoning included; for image models, the
    /// tokens of one image. Needed for chat, and for images that are billed by tokens.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub(super) output_tokens_max: Option<u64>,
    /// The vector sizes that an embedding model can give. Default: any is passed on.
    #[schemars(inner(range(min = 1, max = 65_536)))]
    pub(super) dimensions: Vec<u32>,
    /// The inputs that an embedding model takes in one call: longer arrays are split. Default: they
    /// are not.
    #[schemars(range(min = 1, max = 10_000))]
    pub(super) batch_inputs_max: Option<u32>,
    /// Whether an embedding model takes token ids in the place of text. Default: `true`.
    pub(super) token_ids: Option<bool>,
    /// The images that one request can make. Default: 10.
    #[schemars(range(min = 1, max = 100))]
    pub(super) images_max: Option<u32>,
    /// The images that one request must refer to. Default: 0, and 1 for edits.
    #[schemars(range(min = 1, max = 100))]
    pub(super) reference_images_min: Option<u32>,
    /// The images that one request can refer to. Default: 16.
    #[schemars(range(min = 0, max = 100))]
    pub(super) reference_images_max: Option<u32>,
    /// The sizes of image that can be asked for, width by height. Default: any that `side_max` and its
    /// neighbours allow.
    pub(super) sizes: Vec<ImageSize>,
    /// The longest side of an image of a size that is not listed, in pixels.
    #[schemars(range(min = 1, max = 65_535))]
    pub(super) side_max: Option<u16>,
    /// What the sides of such an image are multiples of, in pixels.
    #[schemars(range(min = 1, max = 1024))]
    pub(super) side_multiple: Option<u16>,
    /// How many times as long as the short side the long side of such an image can be.
    #[schemars(range(min = 1, max = 100))]
    pub(super) aspect_ratio_max: Option<u16>,
    /// The qualities of image that can be asked for. Default: any.
    pub(super) qualities: Option<Vec<QualityName>>,
    /// The formats of image file that can be asked for. Default: any.
    pub(super) output_formats: Option<Vec<ImageFormatName>>,
    /// How images can be answered. With one way alone, upstreams are not told. Default: any.
    pub(super) response_formats: Option<Vec<ResponseFormatName>>,
    /// Whether edits can be limited by a mask. Default: `true`.
    pub(super) mask: Option<bool>,
    /// Whether images can be streamed. Default: `false`.
    pub(super) stream: Option<bool>,
    /// The resolutions of video that can be asked for.
    pub(super) resolutions: Vec<ResolutionName>,
    /// The shortest video, in seconds.
    #[schemars(range(min = 1, max = 3600))]
    pub(super) seconds_min: Option<u32>,
    /// The longest video, in seconds.
    #[schemars(range(min = 1, max = 3600))]
    pub(super) seconds_max: Option<u32>,
    /// The characters that one request can have spoken. Default: 4096.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) characters_max: Option<u32>,
    /// The formats of audio that can be asked for, of upstreams that make `wav` alone. With one format
    /// alone, what is asked for does not matter. Default: any.
    pub(super) audio_formats: Option<Vec<AudioFormatName>>,
    /// Whether the model can be told how to speak. Default: `true`.
    pub(super) instructions: Option<bool>,
}
