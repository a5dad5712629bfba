//! Outbound connections and HTTP calls: every address of a name, forward proxies, TLS, and the reason for a
//! failure.
//!
//! The gateway calls upstreams with it where it puts an answer together, the ledger its archive in an
//! object store. What is relayed as it comes goes over the same connections, without this client.

mod client;
mod coding;
mod dial;
mod form;
mod local;
mod roots;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http::{HeaderMap, Method};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tollgate_options::network::{ClientTls, Proxy};
use url::Url;

pub use client::{AnswerTimes, Clients, HttpClient, OutboundBody, ProxyChoice, Reach};
pub use coding::{CodingError, ContentCoding, Decoder};
pub use dial::{
    AllowedAddresses, DialError, DialFault, DialedConnection, Dialer, Resolve, ResolvedName,
    certificate_refusal, read_roots,
};
pub use form::{FormAnswer, FormClient, FormLimits};
pub use local::LocalResource;

/// The time for which an unused connection is kept: the default of `timeouts.idle` for relayed requests.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// The time for the TCP and TLS handshakes with a machine that no `timeouts` are about.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The reason for a call without a response.
#[derive(Debug)]
pub enum OutboundError {
    /// Nothing was sent: it can be tried elsewhere.
    Unreachable(DialError),
    /// Timeout without an answer. The server may be processing the request.
    TimedOut,
    /// The connection broke. The other side may be at work.
    Broken(String),
    /// The answer is larger than allowed.
    TooLarge,
    /// The URL leads where strangers must not lead the gateway.
    Forbidden(String),
}

impl OutboundError {
    /// The resource of this machine that is exhausted. The other side is not at fault then, and nothing was
    /// sent.
    #[must_use]
    pub fn exhausted(&self) -> Option<LocalResource> {
        match self {
            Self::Unreachable(error) => error.exhausted(),
            Self::TimedOut | Self::Broken(_) | Self::TooLarge | Self::Forbidden(_) => None,
        }
    }
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

async fn within<T>(
    time: Duration,
    call: impl Future<Output = Result<T, hyper::Error>>,
) -> Result<T, OutboundError> {
    match tokio::time::timeout(time, call).await {
        Ok(done) => done.map_err(|error| OutboundError::Broken(with_causes(&error))),
        Err(_) => Err(OutboundError::TimedOut),
    }
}

/// An error with its causes.
fn with_causes(error: &dyn std::error::Error) -> String {
    let source = error.source().map(|source| format!(": {source}"));
    format!("{error}{}", source.unwrap_or_default())
}

/// Pieces of a body, in order.
pub type BodyPieces = Box<dyn Iterator<Item = io::Result<Bytes>> + Send>;

/// Sends a request to an object store of the operator, and waits for the head of its response. The URL
/// contains the signature; a body has the length that `headers` state. Each request has a connection of its
/// own, which ends with the runtime of the calling thread.
///
/// # Errors
/// See [`OutboundError`].
pub async fn ask_store(
    store: StoreRequest,
    body: Option<BodyPieces>,
    times: AnswerTimes,
) -> Result<OutboundResponse, OutboundError> {
    let StoreRequest { method, url, headers, proxy } = store;
    let reach = Reach {
        proxy: ProxyChoice::Fixed(proxy),
        tls: ClientTls::default(),
        allowed: AllowedAddresses::All,
        connect_timeout: CONNECT_TIMEOUT,
    };
    let client = HttpClient::new(Arc::default(), reach);
    let body = body.map_or(OutboundBody::EMPTY, OutboundBody::Pieces);
    client.send(method, url.as_str(), headers, body, times).await
}

/// A request to an object store, without its body.
#[derive(Clone, Debug)]
pub struct StoreRequest {
    /// `PUT` or `GET`.
    pub method: Method,
    /// The object, with the signature.
    pub url: Url,
    /// Headers to sign.
    pub headers: HeaderMap,
    /// The forward proxy in front of the store.
    pub proxy: Option<Arc<Proxy>>,
}

/// An answer whose body is still to come.
#[derive(Debug)]
pub struct OutboundResponse {
    response: http::Response<Incoming>,
    read_timeout: Duration,
    /// The decoder of a body that was compressed without being requested so.
    decoder: Option<Box<Decoder>>,
}

impl OutboundResponse {
    /// A response whose head has arrived. Each piece of its body may take `read_timeout`.
    fn new(mut response: http::Response<Incoming>, read_timeout: Duration) -> Self {
        let coding =
            ContentCoding::from_fields(response.headers().get_all(CONTENT_ENCODING).iter());
        let decoder = match coding {
            ContentCoding::Known(decoder) => Some(decoder),
            ContentCoding::Identity => None,
            // Whoever reads it cannot, and says so.
            ContentCoding::Unknown => return Self { response, read_timeout, decoder: None },
        };
        let headers = response.headers_mut();
        headers.remove(CONTENT_ENCODING);
        // It is the length of the coded body.
        if decoder.is_some() {
            headers.remove(CONTENT_LENGTH);
        }
        Self { response, read_timeout, decoder }
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

    /// Length declared in the head.
    #[must_use]
    pub fn content_length(&self) -> Option<u64> {
        self.headers().get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
    }

    /// The next piece of its body, decoded; `None` at the end.
    ///
    /// # Errors
    /// When it breaks off or cannot be decoded, or the next piece is not there in time.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, OutboundError> {
        loop {
            if let Some(decoder) = &mut self.decoder
                && let Some(piece) = decoder.next_piece()?
            {
                return Ok(Some(piece));
            }
            let coded = self.coded_chunk().await?;
            match (&mut self.decoder, coded) {
                (None, piece) => return Ok(piece),
                (Some(decoder), Some(coded)) => decoder.feed(coded),
                (Some(decoder), None) => {
                    return decoder.finish().map(|()| None).map_err(OutboundError::from);
                }
            }
        }
    }

    /// The next piece of the body, still coded.
    async fn coded_chunk(&mut self) -> Result<Option<Bytes>, OutboundError> {
        loop {
            let frame = within(self.read_timeout, async {
                self.response.body_mut().frame().await.transpose()
            });
            match frame.await?.map(hyper::body::Frame::into_data) {
                None => return Ok(None),
                Some(Ok(data)) => return Ok(Some(data)),
                // Trailers.
                Some(Err(_)) => {}
            }
        }
    }

    /// Reads the whole body, as long as `may_grow` permits the size of each piece.
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

    /// Reads the whole body, if it has at most `bytes_max`.
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
