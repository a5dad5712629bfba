//! HTTP calls that the gateway makes itself: questions about tasks, announcements, and results that an
//! upstream leaves at a URL. What a customer's request asks of upstreams goes through `crate::gateway`.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, RETRY_AFTER};
use http::{HeaderMap, Method};
use reqwest::Client;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tollgate_outbound::{CONNECT_TIMEOUT, FormClient, client};
pub use tollgate_outbound::{OutboundError, OutboundResponse};
use url::Url;

use crate::config::snapshot::{Credential, CredentialKind, Upstream, WebhookHost};
use crate::credentials::{Credentials, Token, Unavailable, UnsignedRequest};
use crate::ids::AccountId;
use crate::metrics::Metrics;
use crate::public_url;

/// The longest silence of such a machine.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// The clients for such calls, and what upstreams are shown that the gateway signs in to. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Outbound {
    /// For addresses that the operator has configured.
    configured: Client,
    /// For URLs that come from outside: they lead to public addresses only.
    public: Client,
    /// What was issued for the operator's credentials, for these calls and for those that are relayed.
    pub credentials: Arc<Credentials>,
}

/// What shows an upstream who asks.
#[derive(Clone, Debug, Default)]
pub struct SignedIn {
    /// The headers that are sent for it.
    pub headers: Vec<(&'static str, String)>,
    /// The token in them, if there is one.
    pub token: Option<Token>,
}

impl Outbound {
    /// Clients without any connection yet; `metrics` counts the calls to those that issue tokens.
    ///
    /// # Errors
    /// When TLS cannot be spoken at all.
    pub fn new(metrics: &Arc<Metrics>) -> anyhow::Result<Self> {
        let configured = client()?.build()?;
        // Each of a customer's receivers may have a name of its own: connections that are kept for the
        // next one would be as many as they like.
        let public = client()?.pool_max_idle_per_host(0);
        let public = public.https_only(true).dns_resolver(PublicOnly).build()?;
        let metrics = Arc::clone(metrics);
        let observer =
            move |upstream: &str, outcome| metrics.credential_refreshed(upstream, outcome);
        let credentials = Arc::new(Credentials::new(FormClient::new()?, Arc::new(observer)));
        Ok(Self { configured, public, credentials })
    }

    /// Asks an upstream something, and waits for the head of its answer.
    ///
    /// # Errors
    /// See [`OutboundError`].
    pub async fn get(
        &self,
        upstream: &Upstream,
        path: &str,
        credential: Vec<(&'static str, String)>,
    ) -> Result<OutboundResponse, OutboundError> {
        self.ask(Method::GET, upstream, path, credential).await
    }

    /// What shows an upstream who asks, in a request without a body: with one of its credentials, for an
    /// account's sake. It may have to be fetched.
    ///
    /// # Errors
    /// The gateway signs in to the upstream, and cannot now.
    pub async fn show(
        &self,
        upstream: &Upstream,
        credential: Option<&Credential>,
        account: AccountId,
        method: &Method,
        path: &str,
    ) -> Result<SignedIn, Unavailable> {
        let auth = match credential.map(|credential| &credential.kind) {
            None => return Ok(SignedIn::default()),
            Some(CredentialKind::Key(key)) => {
                let headers = vec![upstream.key_header(key.expose())];
                return Ok(SignedIn { headers, token: None });
            }
            Some(CredentialKind::Auth(auth)) => auth,
        };
        let token = self.credentials.token(auth, account).await?;
        let (method, authority) = (method.as_str(), upstream.authority.as_str());
        let signed = token.headers(&UnsignedRequest { method, authority, path, body: &[] });
        let mut headers = signed.more;
        headers.push(("authorization", signed.authorization));
        Ok(SignedIn { headers, token: Some(token) })
    }

    /// Sends an upstream a request without a body, and waits for the head of its answer.
    ///
    /// # Errors
    /// See [`OutboundError`].
    pub async fn ask(
        &self,
        method: Method,
        upstream: &Upstream,
        path: &str,
        credential: Vec<(&'static str, String)>,
    ) -> Result<OutboundResponse, OutboundError> {
        let url = format!("{}{path}", origin(upstream));
        let mut call = self.configured.request(method, url).header(ACCEPT_ENCODING, "identity");
        for (name, value) in credential {
            call = call.header(name, value);
        }
        for own in upstream.headers.iter() {
            call = call.header(&own.name, own.value.expose());
        }
        let timeouts = &upstream.timeouts;
        let time = timeouts.connect + timeouts.read.min(READ_TIMEOUT);
        OutboundResponse::to(call, time, timeouts.read).await
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
        let call = client.post(url).headers(headers).body(body);
        OutboundResponse::to(call, timeout, timeout).await
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
        let call = client.get(url).header(ACCEPT_ENCODING, "identity");
        OutboundResponse::to(call, CONNECT_TIMEOUT + READ_TIMEOUT, READ_TIMEOUT).await
    }

    /// Begins to fetch what is at a URL that the operator has named.
    ///
    /// # Errors
    /// See [`OutboundError`].
    pub async fn fetch_named(&self, url: &str) -> Result<OutboundResponse, OutboundError> {
        let call = self.configured.get(url).header(ACCEPT_ENCODING, "identity");
        OutboundResponse::to(call, CONNECT_TIMEOUT + READ_TIMEOUT, READ_TIMEOUT).await
    }
}

/// When whoever answered wants to be asked again: milliseconds where they are said, else seconds.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    let seconds = number("retry-after-ms").map(|ms| ms / 1000.0);
    let seconds = seconds.or_else(|| number(RETRY_AFTER.as_str()))?;
    Duration::try_from_secs_f64(seconds).ok()
}

fn origin(upstream: &Upstream) -> String {
    let scheme = if upstream.tls { "https" } else { "http" };
    let host = &upstream.host;
    let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
    format!("{scheme}://{host}:{}", upstream.port)
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
