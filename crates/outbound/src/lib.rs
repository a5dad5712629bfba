//! How the process makes HTTP calls of its own: one request, one answer, and why there is none.
//!
//! The gateway calls upstreams with it where it puts an answer together, the ledger its archive in an
//! object store. What is relayed as it comes goes through Pingora instead.

mod coding;
mod form;
mod roots;

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http::{HeaderMap, Method};
use reqwest::redirect::Policy;
use reqwest::{Body, Client, ClientBuilder, RequestBuilder};
use url::Url;

pub use coding::{CodingError, ContentCoding, Decoder};
pub use form::{FormAnswer, FormClient};

/// How long an unused connection is kept: as long as `timeouts.idle` keeps those of relayed requests by
/// default.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// The time for the TCP and TLS handshakes with a machine that no `timeouts` are about.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

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

impl From<CodingError> for OutboundError {
    fn from(error: CodingError) -> Self {
        match error {
            CodingError::Corrupt | CodingError::Truncated => Self::Broken(error.to_string()),
            CodingError::Bomb => Self::TooLarge,
        }
    }
}

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

/// What every client of the gateway's own calls has in common: HTTP/1.1, no proxy, no redirects, and
/// servers that the machine's root certificates vouch for. Those are read for the first server that
/// shows a certificate, and once for all clients: a process that calls nobody over TLS does without them.
///
/// # Errors
/// When TLS cannot be spoken at all.
pub fn client() -> Result<ClientBuilder, rustls::Error> {
    let client = Client::builder()
        .tls_backend_preconfigured(roots::client_config()?)
        .http1_only()
        .no_proxy()
        .redirect(Policy::none())
        .referer(false)
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_idle_timeout(KEEPALIVE);
    Ok(client)
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

/// The pieces of a body, one after the other.
pub type Pieces = Box<dyn Iterator<Item = io::Result<Bytes>> + Send>;

/// Sends a request to an object store that the operator has configured, and waits for the head of its
/// answer, for at most `time`; a piece of the answer may take `silence`. The URL has the signature in it; a
/// body has the length that `headers` state. Each request has a connection of its own, which ends with the
/// runtime of the thread that asks.
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
    let client = client().map_err(|error| OutboundError::Unreachable(error.to_string()))?;
    let client = client.pool_max_idle_per_host(0).build()?;
    let mut call = client.request(method, url).headers(headers);
    if let Some(pieces) = body {
        call = call.body(Body::wrap_stream(futures_util::stream::iter(pieces)));
    }
    OutboundResponse::to(call, time, silence).await
}

/// An answer whose body is still to come.
#[derive(Debug)]
pub struct OutboundResponse {
    response: reqwest::Response,
    read_timeout: Duration,
    /// What decodes its body, where that is compressed although nobody asked for it.
    decoder: Option<Box<Decoder>>,
}

impl OutboundResponse {
    /// Sends a request, and waits for the head of its answer for at most `time`. Each piece of its body
    /// may take `read_timeout`.
    ///
    /// # Errors
    /// See [`OutboundError`].
    pub async fn to(
        call: RequestBuilder,
        time: Duration,
        read_timeout: Duration,
    ) -> Result<Self, OutboundError> {
        let mut response = within(time, call.send()).await?;
        let coding =
            ContentCoding::from_fields(response.headers().get_all(CONTENT_ENCODING).iter());
        let decoder = match coding {
            ContentCoding::Known(decoder) => Some(decoder),
            ContentCoding::Identity => None,
            // Whoever reads it cannot, and says so.
            ContentCoding::Unknown => return Ok(Self { response, read_timeout, decoder: None }),
        };
        let headers = response.headers_mut();
        headers.remove(CONTENT_ENCODING);
        if decoder.is_some() {
            headers.remove(CONTENT_LENGTH);
        }
        Ok(Self { response, read_timeout, decoder })
    }

    /// The HTTP status of the answer.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// The headers of the answer; of one that is decoded, without its coding and length.
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

    /// The next piece of its body, decoded; `None` at the end.
    ///
    /// # Errors
    /// When it breaks off or cannot be decoded, or the next piece is not there in time.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, OutboundError> {
        let Some(decoder) = &mut self.decoder else {
            return within(self.read_timeout, self.response.chunk()).await;
        };
        loop {
            if let Some(piece) = decoder.next_piece()? {
                return Ok(Some(piece));
            }
            match within(self.read_timeout, self.response.chunk()).await? {
                Some(coded) => decoder.feed(coded),
                None => return decoder.finish().map(|()| None).map_err(OutboundError::from),
            }
        }
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
