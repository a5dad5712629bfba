//! Held against Pingora's own session: the same bytes over both, through the same hooks.

use std::os::fd::AsRawFd as _;

use async_trait::async_trait;
use bytes::BytesMut;
use http::HeaderValue;
use pingora::apps::HttpServerApp as _;
use pingora::http::ResponseHeader;
use pingora::protocols::http::ServerSession;
use pingora::protocols::{GetSocketDigest as _, SocketDigest};
use pingora::server::configuration::ServerConf;
use pingora::upstreams::peer::HttpPeer;
use pingora_proxy::{FailToProxy, ProxyHttp, http_proxy};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, DuplexStream};
use tokio::sync::watch;

use super::*;
use crate::gateway::listen::connection_table::ConnectionState;
use crate::gateway::listen::driver;

/// Answers with what it was asked, in the way in which it was asked to.
#[derive(Clone)]
struct Echo;

#[async_trait]
impl ProxyHttp for Echo {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn request_filter(&self, session: &mut Session, _context: &mut ()) -> Result<bool> {
        let head = session.req_header();
        let mut answer = format!("{} {} {:?} ", head.method, head.uri, head.version).into_bytes();
        for (name, value) in &head.headers {
            answer.extend_from_slice(name.as_str().as_bytes());
            answer.extend_from_slice(value.as_bytes());
        }
        let kind = head.headers.get("x-answer").map(|value| value.as_bytes().to_vec());
        match kind.as_deref() {
            Some(b"late") => wait(session).await,
            Some(b"torn" | b"left" | b"broken") => {
                return break_off(session, &kind.unwrap_or_default()).await;
            }
            _ => {}
        }
        if kind.as_deref() == Some(b"gathered") {
            gather_body(session);
        }
        if kind.as_deref() != Some(b"early") {
            let (head_bytes, mut pieces) = (answer.len(), 0);
            while let Some(piece) = session.read_request_body().await? {
                pieces += usize::from(!piece.is_empty());
                answer.extend_from_slice(&piece);
                let read = session.as_downstream().body_bytes_read();
                assert!(read >= answer.len() - head_bytes, "all that is there is counted");
            }
            assert!(pieces <= 1 || kind.as_deref() != Some(b"gathered"), "{pieces} pieces");
        }
        let mut header = ResponseHeader::build(200, None)?;
        let length = match kind.as_deref() {
            Some(b"chunks") => None,
            Some(b"short") => Some(answer.len() + 1),
            Some(b"long") => Some(answer.len() - 1),
            _ => Some(answer.len()),
        };
        match length {
            Some(length) => header.insert_header("content-length", length)?,
            None => header.insert_header("transfer-encoding", "chunked")?,
        }
        session.write_response_header(Box::new(header), false).await?;
        let rest = answer.split_off(answer.len() / 2);
        session.write_response_body(Some(answer.into()), false).await?;
        session.write_response_body(Some(rest.into()), true).await?;
        Ok(true)
    }

    async fn fail_to_proxy(&self, _: &mut Session, _: &Error, _context: &mut ()) -> FailToProxy {
        FailToProxy { error_code: 0, can_reuse_downstream: false }
    }

    async fn upstream_peer(&self, _: &mut Session, _context: &mut ()) -> Result<Box<HttpPeer>> {
        unreachable!("request_filter answers")
    }

    fn suppress_error_log(&self, _: &Session, _context: &(), _: &Error) -> bool {
        true
    }
}

/// Waits as a request does whose upstream works.
async fn wait(session: &mut Session) {
    let idle = session.as_downstream_mut().read_body_or_idle(true);
    let _is_left = tokio::time::timeout(Duration::from_millis(50), idle).await;
}

/// Begins an answer that has no end.
async fn break_off(session: &mut Session, how: &[u8]) -> Result<bool> {
    let mut header = ResponseHeader::build(200, None)?;
    if how == b"broken" {
        header.insert_header("content-length", 5)?;
        session.write_response_header(Box::new(header), false).await?;
        return Error::e_explain(ErrorType::ReadError, "the upstream");
    }
    header.insert_header("transfer-encoding", "chunked")?;
    session.write_response_header(Box::new(header), false).await?;
    if how == b"left" {
        session.write_response_body(Some("begun".into()), false).await?;
        wait(session).await;
        return Ok(true);
    }
    session.set_write_timeout(Some(Duration::from_millis(20)));
    let long = Bytes::from(vec![b'x'; 1 << 16]);
    assert!(session.write_response_body(Some(long), false).await.is_err(), "nobody takes it");
    let next = session.write_response_body(Some("event".into()), true).await;
    assert!(next.is_err(), "it would stand in the chunk before");
    Ok(true)
}

/// Send `request` in pieces of `step` bytes; returns the answer and whether the connection is kept.
async fn ctx<F>(
    request: &[u8],
    piece_bytes: usize,
    serve: impl FnOnce(DuplexStream) -> F,
) -> (String, bool)
where
    F: Future<Output = bool>,
{
    let (ours, mut theirs) = tokio::io::duplex(1 << 20);
    let client = async move {
        for piece in request.chunks(piece_bytes.max(1)) {
            if theirs.write_all(piece).await.is_err() {
                // It was answered before it was whole.
                break;
            }
            tokio::task::yield_now().await;
        }
        // Whoever waits for more reads the end of the connection.
        let _is_shut = theirs.shutdown().await;
        let mut answer = Vec::new();
        theirs.read_to_end(&mut answer).await.expect("an answer");
        String::from_utf8_lossy(&answer).into_owned()
    };
    let (kept, answer) = tokio::join!(serve(ours), client);
    (without_date(&answer), kept)
}

fn without_date(answer: &str) -> String {
    let lines = answer.split_inclusive("\r\n").filter(|line| !line.starts_with("Date: "));
    lines.collect()
}

async fn over_pingoras(request: &[u8], piece_bytes: usize) -> (String, bool) {
    let proxy = Arc::new(http_proxy(&Arc::new(ServerConf::default()), Echo));
    let (_stop, stopped) = watch::channel(false);
    ctx(request, piece_bytes, |stream| async move {
        let mut session = ServerSession::new_http1(Box::new(stream));
        session.set_keepalive(Some(600));
        session.set_keepalive_reuses_remaining(Some(100));
        proxy.process_new_http(session, &stopped).await.is_some()
    })
    .await
}

async fn over_ours(request: &[u8], piece_bytes: usize) -> (String, bool) {
    ctx(request, piece_bytes, serve_ours).await
}

/// The origin of requests over a connection that nobody has shown a key on.
fn nobodys() -> Origin {
    Origin::new(Arc::new(ConnectionState::new(None, None)))
}

/// Serves one request; gives whether its connection is kept.
async fn serve_ours(stream: DuplexStream) -> bool {
    let mut wire = ClientConnection::new(Box::new(stream), nobodys());
    let mut bytes = BytesMut::new();
    let end = loop {
        if let Some(end) = memchr::memmem::find(&bytes, b"\r\n\r\n") {
            break end + 4;
        }
        if wire.stream.read_buf(&mut bytes).await.expect("bytes") == 0 {
            return false;
        }
    };
    let Ok(head) = CheckedHead::read(bytes, end, 8) else { return false };
    let returned = KeepAliveSlot::default();
    let own = Http1Session::new(head, wire, Arc::clone(&returned));
    driver::serve(&Echo, &mut driver::session(), Box::new(own)).await;
    let kept = returned.lock().take();
    kept.is_some()
}

/// A request that was not waited for.
const BEHIND: &[u8] = b"GET / HTTP/1.1\r\n\r\n";

struct RawRequest(Vec<u8>);

impl std::fmt::Debug for RawRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

/// A sound request, whatever its body is framed by.
fn requests() -> impl Strategy<Value = RawRequest> {
    let version = prop_oneof![Just("1.1"), Just("1.1"), Just("1.0")];
    let connection = prop_oneof![
        Just(""),
        Just("Connection: close\r\n"),
        Just("Connection: Keep-Alive\r\n"),
        Just("CONNECTION: x, close\r\n"),
    ];
    let answer = proptest::sample::select(vec!["", "early", "chunks", "short", "long"]);
    let method = prop_oneof![Just("POST"), Just("POST"), Just("HEAD"), Just("QUERY")];
    let target = prop_oneof![Just("/v1/x?a=%20&b[]=c"), Just("http://a:80/v1"), Just("*")];
    let body = proptest::collection::vec(any::<u8>(), 0..2_000);
    let parts = proptest::collection::vec(1_usize..200, 0..12);
    let behind = prop_oneof![Just(b"".as_slice()), Just(b"".as_slice()), Just(BEHIND)];
    (version, connection, answer, method, target, body, parts, behind).prop_map(
        |(version, connection, answer, method, target, body, parts, behind)| {
            let mut request = format!(
                "{method} {target} HTTP/{version}\r\nHost: a:80\r\n{connection}X-Answer: {answer}\r\n"
            )
            .into_bytes();
            if parts.is_empty() || version == "1.0" {
                request.extend_from_slice(
                    format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes(),
                );
                request.extend_from_slice(&body);
            } else {
                request.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
                let mut rest = body.as_slice();
                for part in parts.iter() {
                    let (chunk, after) = rest.split_at((*part).min(rest.len()));
                    rest = after;
                    if !chunk.is_empty() {
                        request.extend_from_slice(format!("{:X};e=1\r\n", chunk.len()).as_bytes());
                        request.extend_from_slice(chunk);
                        request.extend_from_slice(b"\r\n");
                    }
                }
                request.extend_from_slice(b"0\r\nX-Trailer: y\r\n\r\n");
            }
            request.extend_from_slice(behind);
            RawRequest(request)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Whoever asks cannot tell whose session it is, but for what the house does better: an answer in
    /// chunks for a client that knows none.
    #[test]
    fn a_request_is_read_and_answered_as_by_pingora(request in requests(), piece in 1_usize..3_000) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let RawRequest(request) = request;
        let mut ours = runtime.block_on(over_ours(&request, piece));
        let pingoras = runtime.block_on(over_pingoras(&request, piece));
        // A request behind the first one is noticed by who happens to read it with that.
        ours.1 &= pingoras.1 || !request.ends_with(BEHIND);
        let is_old_with_chunks = pingoras.0.to_lowercase().contains("transfer-encoding: chunked")
            && request.windows(8).any(|at| at == b"HTTP/1.0");
        if !is_old_with_chunks {
            prop_assert_eq!(ours, pingoras);
        }
    }
}

#[tokio::test]
async fn a_client_that_knows_no_chunks_gets_none() {
    let request = b"POST / HTTP/1.0\r\nConnection: keep-alive\r\nX-Answer: chunks\r\n\r\n";
    let (answer, kept) = over_ours(request, 1_000).await;
    assert!(answer.contains("Connection: close\r\n\r\nPOST / HTTP/1.0 "), "{answer}");
    assert!(!answer.contains("Transfer-Encoding") && !kept, "{answer}");
}

/// A request with a body of this many bytes that is gathered.
fn gathered_request(body_bytes: usize) -> (Vec<u8>, Vec<u8>) {
    let body: Vec<u8> = (b'a'..=b'z').cycle().take(body_bytes).collect();
    let head = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nX-Answer: gathered\r\nContent-Length: {body_bytes}\r\n\r\n"
    );
    ([head.as_bytes(), &body].concat(), body)
}

#[tokio::test]
async fn a_long_body_comes_in_one_piece_and_ends_where_it_says() {
    for body_bytes in [65_537, 131_072, 262_145, 300_000, 900_000] {
        for piece_bytes in [1_000, 70_000, 1 << 20] {
            let (mut request, body) = gathered_request(body_bytes);
            let (answer, kept) = over_ours(&request, piece_bytes).await;
            let what = format!("{body_bytes} bytes by {piece_bytes}");
            assert!(answer.as_bytes().ends_with(&body) && kept, "{what}");
            request.extend_from_slice(BEHIND);
            let (behind, _) = over_ours(&request, piece_bytes).await;
            assert_eq!(
                answer.replace("keep-alive", ""),
                behind.replace("keep-alive", ""),
                "{what}"
            );
        }
    }
}

#[tokio::test]
async fn a_long_body_that_breaks_off_is_no_body() {
    let (request, _) = gathered_request(300_000);
    for sent in [100, 70_000, request.len() - 1] {
        let (answer, kept) = over_ours(&request[..sent], 10_000).await;
        assert!(answer.is_empty() && !kept, "{sent}: {} bytes", answer.len());
    }
}

/// A request whose answer is `answer`, as [`Echo`] makes it.
fn request_for(answer: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\nX-Answer: {answer}\r\nContent-Length: 0\r\n\r\n")
}

#[tokio::test]
async fn what_comes_while_an_answer_is_waited_for_closes_the_connection_behind_it() {
    let (ours, mut theirs) = tokio::io::duplex(1 << 16);
    let serving = tokio::spawn(serve_ours(ours));
    theirs.write_all(request_for("late").as_bytes()).await.expect("room");
    tokio::time::sleep(Duration::from_millis(10)).await;
    theirs.write_all(b"\r\nGET /behind HTTP/1.1\r\n\r\n").await.expect("room");
    let mut answer = String::new();
    theirs.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.ends_with("x-answerlatecontent-length0"), "{answer}");
    assert!(!serving.await.expect("served"), "nothing of it is taken for a request");
}

#[tokio::test]
async fn an_answer_that_was_not_taken_gets_no_end() {
    let (ours, mut theirs) = tokio::io::duplex(1024);
    theirs.write_all(request_for("torn").as_bytes()).await.expect("room");
    assert!(!serve_ours(ours).await, "its customer is in the middle of a chunk");
    let mut answer = Vec::new();
    theirs.read_to_end(&mut answer).await.expect("what there was room for");
    assert!(answer.ends_with(b"xxx"), "{}", answer.escape_ascii());
}

#[tokio::test]
async fn an_answer_that_its_customer_has_left_gets_no_end() {
    let (answer, kept) = over_ours(request_for("left").as_bytes(), 1_000).await;
    assert!(answer.ends_with("\r\n\r\n5\r\nbegun\r\n"), "{answer}");
    assert!(!kept);
}

#[tokio::test]
async fn the_head_of_an_answer_that_breaks_off_is_sent() {
    let (answer, kept) = over_ours(request_for("broken").as_bytes(), 1_000).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
    assert!(!kept);
}

/// A stream may take hours. The values of its head are slices of what its upstream's was read into.
#[tokio::test]
async fn a_head_that_was_written_keeps_nothing_but_its_status() {
    let request = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    let head = CheckedHead::read(request.as_slice().into(), request.len(), 1).expect("sound");
    let wire = ClientConnection::new(Box::new(std::io::Cursor::new(Vec::new())), nobodys());
    let mut session = Http1Session::new(head, wire, KeepAliveSlot::default());
    let read = Bytes::from(vec![b'a'; 8192]);
    let value = HeaderValue::from_maybe_shared(read.slice(..8)).expect("a value");
    let mut header = ResponseHeader::build(200, None).expect("a head");
    header.insert_header("x-a", value).expect("a field");
    header.insert_header("transfer-encoding", "chunked").expect("a field");
    session.write_response_header(Box::new(header), false).await.expect("written");
    assert!(read.is_unique(), "what was read is kept for as long as the answer");
    assert_eq!(session.response_written().map(|header| header.status.as_u16()), Some(200));
}

/// Whoever is sent away while a request goes on stands in its line of the log.
#[tokio::test]
async fn addresses_of_a_closed_connection_are_still_available() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let address = listener.local_addr().expect("an address");
    let mut theirs = tokio::net::TcpStream::connect(address).await.expect("connected");
    let (ours, peer) = listener.accept().await.expect("accepted");
    let digest = SocketDigest::from_raw_fd(ours.as_raw_fd());
    let mut stream = pingora::protocols::l4::stream::Stream::from(ours);
    stream.set_socket_digest(digest);
    let request = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    let head = CheckedHead::read(request.as_slice().into(), request.len(), 1).expect("sound");
    let wire = ClientConnection::new(Box::new(stream), nobodys());
    let mut session = Http1Session::new(head, wire, KeepAliveSlot::default());
    for _ in 0..2 {
        session.shutdown(0, "").await;
    }
    assert_eq!(theirs.read(&mut [0; 1]).await.expect("the end"), 0, "it is closed");
    let inet = |address: Option<&PeerAddr>| address.and_then(PeerAddr::as_inet).copied();
    assert_eq!(inet(session.client_addr()), Some(peer));
    assert_eq!(inet(session.server_addr()), Some(address));
    session.finish().await.expect("nothing is left to do");
}
