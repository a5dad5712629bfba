//! HTTP calls that the gateway makes itself: answers that it puts together, and results that an
//! upstream leaves at a URL. What is relayed as it comes goes through Pingora instead.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use reqwest::{Body, Client, ClientBuilder};
use url::Url;

use crate::config::snapshot::{Upstream, WebhookHost};
use crate::public_url;

/// How long an unused connection is kept: as for relayed requests.
const KEEPALIVE: Duration = Duration::from_secs(50);
/// The time for the TCP and TLS handshakes with a machine that no `timeouts` are about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest silence of such a machine.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Why a call has no answer.
#[derive(Debug)]
pub enum OutboundError {
    /// Nothing was sent: it can be tried elsewhere.
    Unreachable(String),
    /// There was no answer in time. The other side may be at work.
    TimedOut,
    /// The connection broke. The other side may be at work.
    Broken(String),
    /// The answer is larger than allowed.
    TooLarge,
    /// The URL leads where strangers must not lead the gateway.
    Forbidden(String),
}

impl std::fmt::Display for OutboundError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreachable(cause) => write!(f, "it could not be reached: {cause}"),
            Self::TimedOut => f.write_str("it did not answer in time"),
            Self::Broken(cause) => write!(f, "the connection broke: {cause}"),
            Self::TooLarge => f.write_str("the answer is too large"),
            Self::Forbidden(cause) => write!(f, "the URL is refused: {cause}"),
        }
    }
}

impl std::error::Error for OutboundError {}

impl From<reqwest::Error> for OutboundError {
    fn from(error: reqwest::Error) -> Self {
        let (connect, timeout) = (error.is_connect(), error.is_timeout());
        // The URL can have a signature in it.
        let error = error.without_url();
        let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
        let told = format!("{error}{}", source.unwrap_or_default());
        match (connect, timeout) {
            (true, _) => Self::Unreachable(told),
            (false, true) => Self::TimedOut,
            (false, false) => Self::Broken(told),
        }
    }
}

/// The clients for such calls. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Outbound {
    /// For addresses that the operator has configured.
    configured: Client,
    /// For URLs that come from outside: they lead to public addresses only.
    public: Client,
}

impl Outbound {
    /// Clients without any connection yet.
    ///
    /// # Errors
    /// When the machine's root certificates cannot be read.
    pub fn new() -> Result<Self, reqwest::Error> {
        // Another part of the process may have chosen before: any choice will do.
        drop(rustls::crypto::ring::default_provider().install_default());
        let configured = client().build()?;
        // Each of a customer's receivers may have a name of its own: connections that are kept for the
        // next one would be as many as they like.
        let public = client().pool_max_idle_per_host(0);
        let public = public.https_only(true).dns_resolver(PublicOnly).build()?;
        Ok(Self { configured, public })
    }

    /// Sends a JSON request to an upstream, and waits for the head of its answer.
    ///
    /// # Errors
    /// See [`OutboundError`].
    pub async fn post(
        &self,
        upstream: &Upstream,
        path: &str,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Result<OutboundResponse, OutboundError> {
        let url = format!("{}{path}", origin(upstream));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let timeouts = &upstream.timeouts;
        let sent = self.configured.post(url).headers(headers).body(body).send();
        let answer = within(timeouts.connect + timeouts.read, sent).await?;
        Ok(OutboundResponse { response: answer, read_timeout: timeouts.read })
    }

    /// Asks an upstream something, and waits for the head of its answer.
    ///
    /// # Errors
    /// See [`OutboundError`].
    pub async fn get(
        &self,
        upstream: &Upstream,
        path: &str,
        credential: Option<(&'static str, String)>,
    ) -> Result<OutboundResponse, OutboundError> {
        let url = format!("{}{path}", origin(upstream));
        let mut call = self.configured.get(url).header(ACCEPT_ENCODING, "identity");
        if let Some((name, value)) = credential {
            call = call.header(name, value);
        }
        let timeouts = &upstream.timeouts;
        let response = within(timeouts.connect + timeouts.read.min(READ_TIMEOUT), call.send());
        Ok(OutboundResponse { response: response.await?, read_timeout: timeouts.read })
    }

    /// Sends an announcement to a URL of a customer's: on the public internet, or to one of
    /// `hosts`. Waits for the head of the answer, for at most `timeout`.
    ///
    /// # Errors
    /// See [`OutboundError`].
    pub async fn announce(
        &self,
        url: &str,
        hosts: &[WebhookHost],
        timeout: Duration,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<OutboundResponse, OutboundError> {
        let client = if may_announce(url, hosts).map_err(OutboundError::Forbidden)? {
            &self.public
        } else {
            &self.configured
        };
        let sent = client.post(url).headers(headers).body(body).send();
        let response = within(timeout, sent).await?;
        Ok(OutboundResponse { response, read_timeout: timeout })
    }

    /// Begins to fetch what an upstream has left at a URL: on the public internet, or at the
    /// upstream's own address, which the operator has configured.
    ///
    /// # Errors
    /// See [`OutboundError`].
    pub async fn fetch(
        &self,
        url: &str,
        upstream: &Upstream,
    ) -> Result<OutboundResponse, OutboundError> {
        let client = if is_at(url, upstream) {
            &self.configured
        } else {
            let parsed = public_url::parse(url);
            parsed.map_err(|error| OutboundError::Forbidden(error.to_string()))?;
            &self.public
        };
        let sent = client.get(url).header(ACCEPT_ENCODING, "identity").send();
        let response = within(CONNECT_TIMEOUT + READ_TIMEOUT, sent).await?;
        Ok(OutboundResponse { response, read_timeout: READ_TIMEOUT })
    }
}

/// When whoever answered wants to be asked again: milliseconds where they are said, else seconds.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    let seconds = number("retry-after-ms").map(|ms| ms / 1000.0);
    let seconds = seconds.or_else(|| number(RETRY_AFTER.as_str()))?;
    Duration::try_from_secs_f64(seconds).ok()
}

fn client() -> ClientBuilder {
    Client::builder()
        .http1_only()
        .no_proxy()
        .redirect(Policy::none())
        .referer(false)
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_idle_timeout(KEEPALIVE)
}

async fn within<T>(
    time: Duration,
    call: impl Future<Output = Result<T, reqwest::Error>>,
) -> Result<T, OutboundError> {
    match tokio::time::timeout(time, call).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(OutboundError::TimedOut),
    }
}

fn origin(upstream: &Upstream) -> String {
    let scheme = if upstream.tls { "https" } else { "http" };
    let host = &upstream.host;
    let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
    format!("{scheme}://{host}:{}", upstream.port)
}

/// The pieces of a body, one after the other.
pub type Pieces = Box<dyn Iterator<Item = io::Result<Bytes>> + Send>;

/// Sends a request to an object store that the operator has configured, and waits for the head of its
/// answer, for at most `time`; a piece of the answer may take `silence`. The URL has the signature in it; a body has the length that `headers`
/// state. Each has a connection of its own, which ends with the runtime of the thread that asks.
///
/// # Errors
/// See [`OutboundError`].
pub async fn ask_store(
    method: Method,
    url: Url,
    headers: HeaderMap,
    body: Option<Pieces>,
    time: Duration,
    silence: Duration,
) -> Result<OutboundResponse, OutboundError> {
    drop(rustls::crypto::ring::default_provider().install_default());
    let client = client().pool_max_idle_per_host(0).build()?;
    let mut call = client.request(method, url).headers(headers);
    if let Some(pieces) = body {
        call = call.body(Body::wrap_stream(futures_util::stream::iter(pieces)));
    }
    let response = within(time, call.send()).await?;
    Ok(OutboundResponse { response, read_timeout: silence })
}

/// Whether announcements may go to a URL: `true` to a public address, `false` to one of `hosts`,
/// which the operator has listed.
///
/// # Errors
/// Why they may not.
pub fn may_announce(url: &str, hosts: &[WebhookHost]) -> Result<bool, String> {
    let parsed = Url::parse(url).ok().filter(|url| {
        let is_plain = url.username().is_empty() && url.password().is_none();
        is_plain && matches!(url.scheme(), "http" | "https")
    });
    let listed: Vec<&WebhookHost> = match &parsed {
        Some(url) => hosts.iter().filter(|host| host.is_host_of(url)).collect(),
        None => Vec::new(),
    };
    if parsed.is_some_and(|url| listed.iter().any(|host| host.has_port_of(&url))) {
        return Ok(false);
    }
    match public_url::parse(url) {
        Ok(_) => Ok(true),
        Err(_) if !listed.is_empty() => {
            Err("its port is not one that whoever runs this gateway allows".to_owned())
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Whether a URL has the upstream's own scheme, host and port.
fn is_at(url: &str, upstream: &Upstream) -> bool {
    Url::parse(url).is_ok_and(|url| {
        let scheme = if upstream.tls { "https" } else { "http" };
        let host = url.host_str().map(|host| host.trim_matches(['[', ']']));
        url.scheme() == scheme
            && host == Some(upstream.host.as_str())
            && url.port_or_known_default() == Some(upstream.port)
    })
}

/// An answer whose body is still to come.
#[derive(Debug)]
pub struct OutboundResponse {
    response: reqwest::Response,
    read_timeout: Duration,
}

impl OutboundResponse {
    /// Its status.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// Its headers.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// The length that it states.
    #[must_use]
    pub fn content_length(&self) -> Option<u64> {
        // reqwest's own figure is about what is still to come.
        self.headers().get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
    }

    /// The next piece of its body; `None` at the end.
    ///
    /// # Errors
    /// When it breaks off, or the next piece is not there in time.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, OutboundError> {
        within(self.read_timeout, self.response.chunk()).await
    }

    /// All of its body, as long as `may_grow` allows each piece by its size.
    ///
    /// # Errors
    /// When the body breaks off, a piece is not there in time, or `may_grow` refuses one.
    pub async fn whole(
        mut self,
        mut may_grow: impl FnMut(usize) -> bool,
    ) -> Result<Bytes, OutboundError> {
        let mut whole = BytesMut::new();
        while let Some(chunk) = self.chunk().await? {
            if !may_grow(chunk.len()) {
                return Err(OutboundError::TooLarge);
            }
            whole.extend_from_slice(&chunk);
        }
        Ok(whole.freeze())
    }

    /// All of its body, if that is at most `bytes_max`.
    ///
    /// # Errors
    /// When the body breaks off, a piece is not there in time, or it is larger than `bytes_max`.
    pub async fn whole_within(self, bytes_max: usize) -> Result<Bytes, OutboundError> {
        let mut length: usize = 0;
        self.whole(|bytes| {
            length = length.saturating_add(bytes);
            length <= bytes_max
        })
        .await
    }
}

/// Looks names up, and drops addresses that are not public. It is asked for every connection, so a
/// name that changes its mind is checked each time.
struct PublicOnly;

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let public: Vec<SocketAddr> =
                found.filter(|address| public_url::is_public(address.ip())).collect();
            if public.is_empty() {
                return Err(io::Error::other("no public address").into());
            }
            let addresses: Addrs = Box::new(public.into_iter());
            Ok(addresses)
        })
    }
}
