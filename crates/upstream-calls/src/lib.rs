//! HTTP calls that the gateway makes itself: questions about tasks, announcements, and results that an
//! upstream leaves at a URL. What a customer's request asks of upstreams goes through the proxy itself.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, DATE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method};
use tollgate_options::network::{ClientTls, Destination, ProxyRules};
use tollgate_outbound::{
    AllowedAddresses, AnswerTimes, CONNECT_TIMEOUT, Clients, Dialer, FormClient, OutboundBody,
    ProxyChoice, Reach,
};
pub use tollgate_outbound::{OutboundError, OutboundResponse};
use url::Url;

use tollgate_config::snapshot::{Credential, CredentialKind, Upstream, WebhookHost};
use tollgate_credentials::{Credentials, Token, Unavailable, UnsignedRequest};
use tollgate_protocols::public_url;
use tollgate_telemetry::metrics::Metrics;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::AccountId;

/// The longest silence of such a machine.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// The clients for such calls, and what upstreams are shown that the gateway signs in to. Cheap to clone.
#[derive(Clone)]
pub struct Outbound {
    clients: Clients,
    metrics: Arc<Metrics>,
    /// Tokens issued for the operator's credentials, for these calls and for those that are relayed.
    pub credentials: Arc<Credentials>,
}

impl fmt::Debug for Outbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbound").field("clients", &self.clients).finish_non_exhaustive()
    }
}

/// Authentication of a request to an upstream.
#[derive(Clone, Debug, Default)]
pub struct SignedIn {
    /// Headers that carry the credential.
    pub headers: Vec<(&'static str, String)>,
    /// The token in them, if there is one.
    pub token: Option<Token>,
}

impl Outbound {
    /// Clients without any connection yet, which connect with `dialer`; `metrics` counts the calls to those
    /// that issue tokens.
    #[must_use]
    pub fn new(metrics: &Arc<Metrics>, dialer: Arc<Dialer>) -> Self {
        let (clients, counts) = (Clients::new(dialer), Arc::clone(metrics));
        let observer =
            move |upstream: &str, outcome| counts.credential_refreshed(upstream, outcome);
        let client = FormClient::new(clients.clone());
        let credentials = Arc::new(Credentials::new(client, Arc::new(observer)));
        Self { clients, metrics: Arc::clone(metrics), credentials }
    }

    /// An answer of anybody but an upstream. Where it could not be asked for want of a resource of this
    /// machine, that is counted.
    fn counted(
        &self,
        sent: Result<OutboundResponse, OutboundError>,
    ) -> Result<OutboundResponse, OutboundError> {
        if let Err(error) = &sent
            && let Some(resource) = error.exhausted()
        {
            self.metrics.resource_exhausted(resource, error);
        }
        sent
    }

    /// An answer of an upstream, or why there is none, which is noted where nothing was sent.
    fn noted(
        &self,
        upstream: &Upstream,
        sent: Result<OutboundResponse, OutboundError>,
    ) -> Result<OutboundResponse, OutboundError> {
        if let Err(OutboundError::Unreachable(error)) = &sent {
            self.metrics.connect_failed(&upstream.name, error);
        }
        sent
    }

    /// Requests a resource of an upstream, and waits for the head of the answer.
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

    /// Authenticate a request without a body with one of the upstream's credentials, on behalf of an account.
    /// A token may have to be fetched.
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
        let mut headers = unencoded();
        for (name, value) in &credential {
            headers.append(*name, sendable(value)?);
        }
        for own in upstream.headers.iter() {
            headers.append(&own.name, sendable(own.value.expose())?);
        }
        let timeouts = &upstream.timeouts;
        let time = timeouts.connect + timeouts.read.min(READ_TIMEOUT);
        let (client, times) =
            (self.clients.get(&reach(upstream)), AnswerTimes { head: time, piece: timeouts.read });
        let sent = client.send(method, &url, headers, OutboundBody::EMPTY, times).await;
        self.noted(upstream, sent)
    }

    /// Sends an announcement to a URL of a customer's: on the public internet, or to one of
    /// `hosts`. Waits for the head of the answer, for at most `timeout`. A proxy that `proxies` names is
    /// asked for an address that was checked here, unless the host is one of `hosts`.
    ///
    /// # Errors
    /// See [`OutboundError`].
    pub async fn announce(
        &self,
        url: &str,
        hosts: &[WebhookHost],
        proxies: &Arc<ProxyRules>,
        timeout: Duration,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<OutboundResponse, OutboundError> {
        let is_public = may_announce(url, hosts).map_err(OutboundError::Forbidden)?;
        // A name that was public may lead inside by now: each connection checks its address again.
        let allowed = if is_public { PUBLIC } else { AllowedAddresses::All };
        let proxy = ProxyChoice::ByRules(Arc::clone(proxies));
        let client = self.clients.get(&Reach { proxy, allowed, ..direct() });
        let body = OutboundBody::Whole(body);
        let times = AnswerTimes { head: timeout, piece: timeout };
        self.counted(client.send(Method::POST, url, headers, body, times).await)
    }

    /// Begins to fetch what an upstream has left at a URL: on the public internet, or at the
    /// upstream's own address, which the operator has configured. It is reached through the upstream's
    /// proxy, which is asked for an address that was checked here where the URL is not the upstream's own.
    ///
    /// # Errors
    /// See [`OutboundError`].
    pub async fn fetch(
        &self,
        url: &str,
        upstream: &Upstream,
    ) -> Result<OutboundResponse, OutboundError> {
        let own = reach(upstream);
        // The URL comes from an upstream's answer. Only at the configured address may it lead inside.
        let reach = if is_at(url, upstream) {
            own
        } else {
            let parsed = public_url::parse(url);
            parsed.map_err(|error| OutboundError::Forbidden(error.to_string()))?;
            Reach { proxy: own.proxy, allowed: PUBLIC, ..direct() }
        };
        let times = AnswerTimes { head: CONNECT_TIMEOUT + READ_TIMEOUT, piece: READ_TIMEOUT };
        let client = self.clients.get(&reach);
        self.counted(client.send(Method::GET, url, unencoded(), OutboundBody::EMPTY, times).await)
    }
}

/// Addresses to which customers' URLs may lead. Every connection checks it, so that a name whose address
/// changes is checked each time.
const PUBLIC: AllowedAddresses = AllowedAddresses::Checked(public_url::is_public);

/// Route to an upstream.
fn reach(upstream: &Upstream) -> Reach {
    let to = &upstream.destination;
    Reach {
        proxy: ProxyChoice::Fixed(to.proxy.clone()),
        tls: to.tls.clone().unwrap_or_default(),
        allowed: AllowedAddresses::All,
        connect_timeout: upstream.timeouts.connect,
    }
}

/// Route to a host without configuration.
fn direct() -> Reach {
    Reach {
        proxy: ProxyChoice::Fixed(None),
        tls: ClientTls::default(),
        allowed: AllowedAddresses::All,
        connect_timeout: CONNECT_TIMEOUT,
    }
}

/// A text as the value of a header.
fn sendable(text: &str) -> Result<HeaderValue, OutboundError> {
    let unsendable = |_| OutboundError::Forbidden("a header cannot be sent".to_owned());
    HeaderValue::from_str(text).map_err(unsendable)
}

/// Headers that ask for an answer as it is.
fn unencoded() -> HeaderMap {
    HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static("identity"))])
}

/// Time after which a server wants to be retried: in milliseconds where given, else in seconds or as a date
/// (RFC 9110, section 10.2.3).
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let number = |name: &str| text(name)?.parse::<f64>().ok();
    let seconds = number("retry-after-ms").map(|ms| ms / 1000.0);
    // Milliseconds first, as in the SDKs of OpenAI and Anthropic.
    if let Some(seconds) = seconds.or_else(|| number(RETRY_AFTER.as_str())) {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = |name: &str| httpdate::parse_http_date(text(name)?).ok();
    let until = date(RETRY_AFTER.as_str())?.duration_since(UNIX_EPOCH).ok()?;
    // By the clock of whoever says so, which may be off from this one's.
    let by_their_clock = date(DATE.as_str()).and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let now = by_their_clock.unwrap_or_else(|| Duration::from_millis(UnixMs::now().0));
    Some(until.saturating_sub(now))
}

fn origin(upstream: &Upstream) -> String {
    let scheme = if upstream.is_tls() { "https" } else { "http" };
    let Destination { host, port, .. } = &*upstream.destination;
    // An IPv6 address stands in brackets in a URL (RFC 3986, section 3.2.2).
    let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
    format!("{scheme}://{host}:{port}")
}

/// Destination of webhooks: `true` for a public address, `false` for one of `hosts`, which the operator has
/// listed.
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

/// True if a URL has the upstream's scheme, host and port.
fn is_at(url: &str, upstream: &Upstream) -> bool {
    Url::parse(url).is_ok_and(|url| {
        let scheme = if upstream.is_tls() { "https" } else { "http" };
        let host = url.host_str().map(|host| host.trim_matches(['[', ']']));
        url.scheme() == scheme
            && host == Some(upstream.destination.host.as_str())
            && url.port_or_known_default() == Some(upstream.destination.port)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_to_come_again_is_said_in_milliseconds_seconds_or_as_a_date() {
        let date = |after: u64| {
            let at = UNIX_EPOCH + Duration::from_secs(UnixMs::now().seconds() + after);
            httpdate::fmt_http_date(at)
        };
        let read = |fields: &[(&'static str, &str)]| {
            let fields = fields.iter().map(|(name, value)| {
                let value = HeaderValue::from_str(value).expect("a value");
                (http::HeaderName::from_static(name), value)
            });
            retry_after(&HeaderMap::from_iter(fields))
        };
        assert_eq!(read(&[("retry-after", "7")]), Some(Duration::from_secs(7)));
        assert_eq!(read(&[("retry-after", "1.5")]), Some(Duration::from_millis(1500)));
        let both = [("retry-after", "7"), ("retry-after-ms", "250")];
        assert_eq!(read(&both), Some(Duration::from_millis(250)));
        let by_own_clock = read(&[("retry-after", &date(30))]).expect("a date");
        assert!((28..=30).contains(&by_own_clock.as_secs()), "{by_own_clock:?}");
        let theirs = [
            ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("retry-after", "Sun, 06 Nov 1994 08:49:59 GMT"),
        ];
        assert_eq!(read(&theirs), Some(Duration::from_secs(22)), "by the clock of who says so");
        // The two obsolete forms, which recipients must take (RFC 9110, section 5.6.7).
        for old in ["Sunday, 06-Nov-94 08:49:59 GMT", "Sun Nov  6 08:49:59 1994"] {
            assert_eq!(read(&[theirs[0], ("retry-after", old)]), Some(Duration::from_secs(22)));
        }
        assert_eq!(read(&[("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")]), Some(Duration::ZERO));
        for odd in ["soon", "-1", "", "NaN"] {
            assert_eq!(read(&[("retry-after", odd)]), None, "{odd}");
        }
    }
}
