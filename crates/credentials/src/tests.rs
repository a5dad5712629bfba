//! Tokens that are fetched, kept and renewed, against an endpoint that counts and checks.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tollgate_options::auth::{AssumeRole, Auth, AuthKind, AwsAuth, AwsKeys, EntraAuth};
use tollgate_outbound::{Clients, Dialer, FormClient, LocalResource, Resolve};
use tollgate_types::clock::{UnixMs, uptime};
use tollgate_types::ids::AccountId;
use tollgate_types::secret::Secret;
use url::Url;

use crate::source::ACCOUNTS_MAX;
use crate::{Credentials, RefreshOutcome, Token, UnsignedRequest};

/// An answer: its status line's end, further header lines, and its body.
type ScriptedAnswer = (&'static str, String, String);

/// A token endpoint that counts its calls and plays scripted answers.
struct TokenEndpoint {
    url: Url,
    calls: Arc<AtomicUsize>,
}

impl TokenEndpoint {
    async fn start(
        answer: impl Fn(usize, &str) -> ScriptedAnswer + Send + Sync + 'static,
        delay: Duration,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (calls, answer) = (Arc::new(AtomicUsize::new(0)), Arc::new(answer));
        let counted = Arc::clone(&calls);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("a connection");
                tokio::spawn(serve(stream, Arc::clone(&answer), Arc::clone(&counted), delay));
            }
        });
        let url = Url::parse(&format!("http://{address}/token")).expect("a URL");
        Self { url, calls }
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

async fn serve(
    mut stream: TcpStream,
    answer: Arc<impl Fn(usize, &str) -> ScriptedAnswer>,
    calls: Arc<AtomicUsize>,
    delay: Duration,
) {
    let mut read = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&read).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.to_lowercase();
            let length = length.split("content-length: ").nth(1).expect("a length");
            let length: usize = length.split("\r\n").next().expect("it").parse().expect("digits");
            if body.len() >= length {
                let call = calls.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(delay).await;
                let (status, more, response_body) = answer(call, &text);
                let reply = format!(
                    "HTTP/1.1 {status}\r\n{more}Content-Length: {}\r\nConnection: close\r\n\r\n{response_body}",
                    response_body.len()
                );
                stream.write_all(reply.as_bytes()).await.expect("written");
                return;
            }
        }
        if stream.read_buf(&mut read).await.expect("read") == 0 {
            return;
        }
    }
}

fn good(token: &str, seconds: u64) -> ScriptedAnswer {
    let body = format!("{{\"access_token\":\"{token}\",\"expires_in\":{seconds}}}");
    ("200 OK", String::new(), body)
}

fn entra(url: &Url) -> Arc<Auth> {
    Arc::new(Auth::new(
        "azure",
        "",
        AuthKind::Entra(EntraAuth {
            token_url: url.clone(),
            client_id: "client".to_owned(),
            client_secret: Secret::new("secret-canary".to_owned()),
            scope: "https://cognitiveservices.azure.com/.default".to_owned(),
        }),
    ))
}

/// Credentials, and what was told of the calls.
fn credentials() -> (Arc<Credentials>, Arc<Mutex<Vec<RefreshOutcome>>>) {
    let outcomes: Arc<Mutex<Vec<RefreshOutcome>>> = Arc::default();
    let observed = Arc::clone(&outcomes);
    let observer = Arc::new(move |_: &str, outcome| observed.lock().push(outcome));
    let client = FormClient::new(Clients::new(Arc::default()));
    (Arc::new(Credentials::new(client, observer)), outcomes)
}

fn account(number: u64) -> AccountId {
    AccountId::from_number(number)
}

fn shown(token: &Token) -> String {
    let request = UnsignedRequest { method: "POST", authority: "a", path: "/", body: &[] };
    token.headers(&request).authorization
}

#[tokio::test]
async fn a_hundred_requests_at_one_moment_make_one_call() {
    let answer = |call, request: &str| {
        assert!(request.contains("grant_type=client_credentials&client_id=client&client_secret=secret-canary&scope=https%3A%2F%2Fcognitiveservices.azure.com%2F.default"), "{request}");
        good(&format!("token-{call}"), 3600)
    };
    let endpoint = TokenEndpoint::start(answer, Duration::from_millis(100)).await;
    let (credentials, outcomes) = credentials();
    let auth = entra(&endpoint.url);
    let ask = |number| {
        let (credentials, auth) = (Arc::clone(&credentials), Arc::clone(&auth));
        tokio::spawn(async move { credentials.token(&auth, account(number)).await })
    };
    let tokens: Vec<_> = (0..100).map(ask).collect();
    for token in tokens {
        let token = token.await.expect("joined").expect("a token");
        assert_eq!(shown(&token), "Bearer token-0");
        assert_eq!(token.secrets().collect::<Vec<_>>(), ["token-0"]);
    }
    assert_eq!((endpoint.calls(), outcomes.lock().as_slice()), (1, &[RefreshOutcome::Ok][..]));
    let standing = credentials.standing(&auth).expect("known");
    assert!(standing.left.is_some_and(|left| left > Duration::from_secs(3500)), "{standing:?}");
}

#[tokio::test]
async fn who_leaves_does_not_end_the_call_for_others() {
    let endpoint = TokenEndpoint::start(|_, _| good("t", 3600), Duration::from_millis(200)).await;
    let (credentials, _) = credentials();
    let auth = entra(&endpoint.url);
    let (first, own) = (Arc::clone(&credentials), Arc::clone(&auth));
    let first = tokio::spawn(async move { first.token(&own, account(1)).await.map(drop) });
    tokio::time::sleep(Duration::from_millis(50)).await;
    first.abort();
    assert!(credentials.token(&auth, account(2)).await.is_ok());
    assert_eq!(endpoint.calls(), 1);
}

#[tokio::test]
async fn a_token_is_renewed_while_it_is_used_and_kept_when_that_fails() {
    let answer = |call, _: &str| match call {
        0 => good("first", 4),
        _ => ("503 Service Unavailable", String::new(), String::new()),
    };
    let endpoint = TokenEndpoint::start(answer, Duration::ZERO).await;
    let (credentials, outcomes) = credentials();
    let auth = entra(&endpoint.url);
    let ask = async || credentials.token(&auth, account(1)).await.map(|token| shown(&token));
    let first = Ok("Bearer first".to_owned());
    assert_eq!(ask().await, first);
    let begun = uptime();
    // From three quarters of its life on it is renewed, which fails; until its end it is used.
    tokio::time::sleep(Duration::from_millis(3100)).await;
    assert_eq!(ask().await, first, "none waits for the renewal");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(outcomes.lock().as_slice(), [RefreshOutcome::Ok, RefreshOutcome::Failed]);
    while uptime().saturating_sub(begun) < Duration::from_millis(3500) {
        assert_eq!(ask().await, first, "it is still good");
    }
    assert_eq!(endpoint.calls(), 2, "it is left alone for a while");
    tokio::time::sleep(Duration::from_millis(200)).await;
    let error = ask().await.expect_err("it is over").to_string();
    assert!(error.contains("it answered 503"), "{error}");
}

#[tokio::test]
async fn an_endpoint_that_fails_is_left_alone() {
    let endpoint = TokenEndpoint::start(
        |_, _| {
            let response_body = r#"{"error":"invalid_client","error_description":"AADSTS7000215: secret-canary is wrong"}"#;
            ("401 Unauthorized", String::new(), response_body.to_owned())
        },
        Duration::ZERO,
    )
    .await;
    let (credentials, outcomes) = credentials();
    let auth = entra(&endpoint.url);
    for _ in 0..50 {
        let error = credentials.token(&auth, account(1)).await.map(drop).expect_err("none");
        let text = error.to_string();
        assert!(text.contains("it answered 401") && !text.contains("canary"), "{text}");
    }
    assert_eq!((endpoint.calls(), outcomes.lock().as_slice()), (1, &[RefreshOutcome::Refused][..]));
    assert_eq!(credentials.standing(&auth).expect("known").failures, 1);
}

#[tokio::test]
async fn what_is_no_token_is_not_taken_for_one() {
    for (response_body, outcome) in [
        ("", RefreshOutcome::Unreadable),
        ("<html>", RefreshOutcome::Unreadable),
        (r#"{"access_token":"a\r\nX: y","expires_in":60}"#, RefreshOutcome::Unreadable),
        (r#"{"access_token":"","expires_in":60}"#, RefreshOutcome::Unreadable),
        (r#"{"access_token":"a","expires_in":0}"#, RefreshOutcome::Unreadable),
        (r#"{"access_token":"a","expires_in":-5}"#, RefreshOutcome::Unreadable),
        (r#"{"access_token":"a"}"#, RefreshOutcome::Unreadable),
        (r#"{"access_token":"a","expires_in":"60"}"#, RefreshOutcome::Ok),
        (r#"{"access_token":"a","expires_in":18446744073709551615}"#, RefreshOutcome::Ok),
    ] {
        let endpoint = TokenEndpoint::start(
            move |_, _| ("200 OK", String::new(), response_body.to_owned()),
            Duration::ZERO,
        )
        .await;
        let (credentials, outcomes) = credentials();
        let taken = credentials.token(&entra(&endpoint.url), account(1)).await;
        assert_eq!(taken.is_ok(), outcome == RefreshOutcome::Ok, "{response_body}");
        tokio::task::yield_now().await;
        assert_eq!(outcomes.lock().as_slice(), [outcome], "{response_body}");
    }
    let huge = "x".repeat(1 << 20);
    let endpoint =
        TokenEndpoint::start(move |_, _| ("200 OK", String::new(), huge.clone()), Duration::ZERO)
            .await;
    let (credentials, _) = credentials();
    assert!(credentials.token(&entra(&endpoint.url), account(1)).await.is_err(), "too large");
}

#[tokio::test]
async fn an_endpoint_that_nobody_answers_at_fails_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let url = Url::parse(&format!("http://{address}/")).expect("a URL");
    let (credentials, outcomes) = credentials();
    assert!(credentials.token(&entra(&url), account(1)).await.is_err());
    assert_eq!(outcomes.lock().as_slice(), [RefreshOutcome::Unreachable]);
}

#[tokio::test]
async fn a_refused_token_is_given_up_once() {
    let endpoint =
        TokenEndpoint::start(|call, _| good(&format!("token-{call}"), 3600), Duration::ZERO).await;
    let (credentials, _) = credentials();
    let auth = entra(&endpoint.url);
    let ask = async || credentials.token(&auth, account(1)).await.expect("a token");
    let (first, same) = (ask().await, ask().await);
    assert!(!first.give_up_after(403), "of a bearer's token that says nothing");
    assert!(
        first.give_up_after(401) && same.give_up_after(401),
        "another one will be there for both"
    );
    let second = ask().await;
    assert_eq!(shown(&second), "Bearer token-1");
    assert!(!second.give_up_after(401), "who refuses all of them gets no more calls made");
    assert_eq!(shown(&ask().await), "Bearer token-1");
    assert_eq!(endpoint.calls(), 2);
}

/// A customer may be at fault for a refusal: what is good is not thrown away for nothing.
#[tokio::test]
async fn a_refused_token_is_used_on_while_there_is_no_other() {
    let answer = |call, _: &str| match call {
        0 => good("first", 3600),
        _ => ("503 Service Unavailable", String::new(), String::new()),
    };
    let endpoint = TokenEndpoint::start(answer, Duration::ZERO).await;
    let (credentials, _) = credentials();
    let auth = entra(&endpoint.url);
    let ask = async || credentials.token(&auth, account(1)).await.expect("a token");
    assert!(ask().await.give_up_after(401));
    for _ in 0..5 {
        assert_eq!(shown(&ask().await), "Bearer first");
    }
    assert_eq!(endpoint.calls(), 2);
}

fn role(url: &Url, tag: Option<&str>) -> Arc<Auth> {
    let keys = AwsKeys {
        access_key_id: Secret::new("AKIDEXAMPLE".to_owned()),
        secret_access_key: Secret::new("secret-canary".to_owned()),
        session_token: None,
    };
    let assume_role = AssumeRole {
        role_arn: "arn:aws:iam::123456789012:role/tollgate".to_owned(),
        external_id: Some(Secret::new("external".to_owned())),
        session_name: "tollgate".to_owned(),
        account_tag: tag.map(str::to_owned),
        sts_url: url.clone(),
    };
    let (region, service) = ("us-east-1".to_owned(), "bedrock".to_owned());
    let assume_role = Some(assume_role);
    Arc::new(Auth::new(
        "bedrock",
        "",
        AuthKind::Aws(Box::new(AwsAuth { keys, region, service, assume_role })),
    ))
}

/// The session of a call, that ends in an hour by a clock that is `ahead` of ours.
fn session(call: usize, ahead: i64) -> ScriptedAnswer {
    let now = UnixMs::now().0.saturating_add_signed(ahead * 1000);
    let ends = UnixMs(now + 3_600_000).to_rfc3339();
    let body = format!(
        "<AssumeRoleResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><AssumeRoleResult>\
         <Credentials><AccessKeyId>ASIA{call}</AccessKeyId><SecretAccessKey>s{call}</SecretAccessKey>\
         <SessionToken>session-{call}</SessionToken><Expiration>{ends}</Expiration></Credentials>\
         </AssumeRoleResult></AssumeRoleResponse>"
    );
    let date = httpdate::fmt_http_date(std::time::UNIX_EPOCH + Duration::from_millis(now));
    ("200 OK", format!("Date: {date}\r\n"), body)
}

#[tokio::test]
async fn accounts_have_separate_sessions_if_configured() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let kept = Arc::clone(&seen);
    let answer = move |call, request: &str| {
        kept.lock().push(request.rsplit("\r\n").next().expect("a form").to_owned());
        session(call, 0)
    };
    let endpoint = TokenEndpoint::start(answer, Duration::ZERO).await;
    let (credentials, _) = credentials();
    let tagged = role(&endpoint.url, Some("tollgate-account"));
    for number in [1, 2, 1, 2] {
        let token = credentials.token(&tagged, account(number)).await.expect("a session");
        let headers = token.headers(&UnsignedRequest {
            method: "POST",
            authority: "bedrock-runtime.us-east-1.amazonaws.com",
            path: "/model/m/converse",
            body: &[],
        });
        let session = format!("session-{}", number - 1);
        assert!(headers.more.contains(&("x-amz-security-token", session)), "{headers:?}");
        assert!(headers.authorization.contains(&format!("Credential=ASIA{}/", number - 1)));
    }
    assert_eq!(endpoint.calls(), 2);
    for (form, number) in seen.lock().iter().zip([1, 2]) {
        let account = account(number);
        let tag = format!("Tags.member.1.Key=tollgate-account&Tags.member.1.Value={account}");
        assert!(form.contains(&tag) && form.contains("ExternalId=external"), "{form}");
        assert!(form.contains("DurationSeconds=3600"), "{form}");
    }
    let shared = role(&endpoint.url, None);
    for number in 1..=3 {
        credentials.token(&shared, account(number)).await.expect("a session");
    }
    assert_eq!(endpoint.calls(), 3, "one session for all");
    assert!(!seen.lock()[2].contains("Tags"), "{:?}", seen.lock());
    assert_eq!(credentials.standing(&tagged).expect("known").sessions, 2);
}

#[tokio::test]
async fn sessions_of_accounts_are_bounded() {
    let endpoint = TokenEndpoint::start(|call, _| session(call, 0), Duration::ZERO).await;
    let source = crate::source::TokenSource::new(role(&endpoint.url, Some("t")));
    let first = source.cell(1);
    for number in 2..=ACCOUNTS_MAX as u64 {
        source.cell(number);
    }
    assert!(Arc::ptr_eq(&first, &source.cell(1)), "all have room");
    source.cell(ACCOUNTS_MAX as u64 + 1);
    assert!(Arc::ptr_eq(&first, &source.cell(1)), "it was used after the others");
    let second = source.cell(2);
    assert!(!Arc::ptr_eq(&second, &source.cell(3)), "and is in its place");
}

/// The other side's clock is an hour ahead: it refuses what is signed by ours, says its own time, and is
/// asked once more by that. What it issues is signed with by its clock too, and lasts its hour.
#[tokio::test]
async fn clocks_may_differ() {
    const AHEAD: i64 = 3600;
    let answer = |call, request: &str| {
        let at = request.to_lowercase();
        let at = at.split("x-amz-date: ").nth(1).expect("a time")[..16].to_uppercase();
        let theirs = UnixMs::now().0.saturating_add_signed(AHEAD * 1000);
        let [least, most] =
            [theirs - 60_000, theirs + 60_000].map(|at| crate::sigv4::timestamp(UnixMs(at)));
        if (least..=most).contains(&at) {
            return session(call, AHEAD);
        }
        let (_, date, _) = session(call, AHEAD);
        let response_body = "<ErrorResponse><Error><Code>SignatureDoesNotMatch</Code><Message>Signature not yet current</Message></Error></ErrorResponse>";
        ("403 Forbidden", date, response_body.to_owned())
    };
    let endpoint = TokenEndpoint::start(answer, Duration::ZERO).await;
    let (credentials, outcomes) = credentials();
    let auth = role(&endpoint.url, None);
    let token = credentials.token(&auth, account(1)).await.expect("a session");
    assert_eq!((endpoint.calls(), outcomes.lock().as_slice()), (2, &[RefreshOutcome::Ok][..]));
    let left = credentials.standing(&auth).and_then(|standing| standing.left).expect("it is good");
    let minute = Duration::from_secs(60);
    assert!(left > 58 * minute && left <= 60 * minute, "{left:?}");
    let request = UnsignedRequest { method: "POST", authority: "a", path: "/", body: &[] };
    let headers = token.headers(&request);
    let at = &headers.more.iter().find(|(name, _)| *name == "x-amz-date").expect("a time").1;
    let theirs = UnixMs::now().0.saturating_add_signed(AHEAD * 1000 - 60_000);
    assert!(*at >= crate::sigv4::timestamp(UnixMs(theirs)), "{at} is by its clock");
}

#[tokio::test]
async fn a_slow_endpoint_is_given_up() {
    let endpoint = TokenEndpoint::start(|_, _| good("t", 60), Duration::from_secs(60)).await;
    let (credentials, outcomes) = credentials();
    let auth = entra(&endpoint.url);
    let begun = uptime();
    let error = credentials.token(&auth, account(1)).await.map(drop).expect_err("none");
    let took = uptime().saturating_sub(begun);
    assert!(took < crate::fetch::CALL_TIMEOUT + Duration::from_secs(2), "{took:?}");
    assert!(error.to_string().contains("in time"), "{error}");
    assert_eq!(outcomes.lock().as_slice(), [RefreshOutcome::TimedOut]);
}

/// Looks names up on a machine that has no descriptor left, as long as that is so.
struct WithoutDescriptors(AtomicBool);

impl Resolve for WithoutDescriptors {
    fn resolve<'a>(
        &'a self,
        _: &'a str,
    ) -> Pin<Box<dyn Future<Output = std::io::Result<Vec<std::net::IpAddr>>> + Send + 'a>> {
        const EMFILE: i32 = 24;
        let is_short = self.0.load(Ordering::SeqCst);
        let found = match is_short {
            true => Err(std::io::Error::from_raw_os_error(EMFILE)),
            false => Ok(vec![std::net::Ipv4Addr::LOCALHOST.into()]),
        };
        Box::pin(async move { found })
    }
}

/// Whoever issues tokens is not left alone for a lack of this machine's: the next request has one fetched.
#[tokio::test]
async fn a_lack_of_this_machine_is_no_failure_of_whoever_issues_tokens() {
    let endpoint =
        TokenEndpoint::start(|call, _| good(&format!("token-{call}"), 3600), Duration::ZERO).await;
    let resolver = Arc::new(WithoutDescriptors(true.into()));
    let dialer = Dialer::with_resolver(Arc::clone(&resolver) as _);
    let outcomes: Arc<Mutex<Vec<RefreshOutcome>>> = Arc::default();
    let observed = Arc::clone(&outcomes);
    let observer = Arc::new(move |_: &str, outcome| observed.lock().push(outcome));
    let clients = Clients::new(Arc::new(dialer));
    let credentials = Credentials::new(FormClient::new(clients), observer);
    let port = endpoint.url.port().expect("a port");
    let auth = entra(&Url::parse(&format!("http://issuer.test:{port}/")).expect("a URL"));
    for _ in 0..5 {
        let refused = credentials.token(&auth, account(1)).await.expect_err("no descriptor");
        assert_eq!(refused.exhausted(), Some(LocalResource::Descriptors), "{refused}");
    }
    assert_eq!(credentials.standing(&auth).expect("known").failures, 0);
    let exhausted = RefreshOutcome::Exhausted(LocalResource::Descriptors);
    resolver.0.store(false, Ordering::SeqCst);
    let token = credentials.token(&auth, account(1)).await.expect("at once");
    assert_eq!(shown(&token), "Bearer token-0");
    tokio::task::yield_now().await;
    assert_eq!(outcomes.lock().len(), 6, "no request waited for a pause");
    assert!(outcomes.lock()[..5].iter().all(|outcome| *outcome == exhausted), "{outcomes:?}");
}
