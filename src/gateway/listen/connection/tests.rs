//! Over real sockets, with an application that answers by itself.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream as Client};
use std::sync::atomic::{AtomicUsize, Ordering};

use pingora::upstreams::peer::HttpPeer;
use pingora_proxy::Session;
use proptest::prelude::*;
use tokio::sync::watch;

use super::*;
use crate::gateway::wire::framing;

/// Answers every request with its path and the bytes of its body.
#[derive(Clone)]
struct Echo;

#[async_trait]
impl ProxyHttp for Echo {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn request_filter(&self, session: &mut Session, (): &mut ()) -> pingora::Result<bool> {
        let mut answer = session.req_header().uri.path().to_owned().into_bytes();
        while let Some(chunk) = session.read_request_body().await? {
            answer.extend_from_slice(&chunk);
        }
        let mut header = pingora::http::ResponseHeader::build(200, None)?;
        header.insert_header("content-length", answer.len())?;
        session.write_response_header(Box::new(header), false).await?;
        session.write_response_body(Some(answer.into()), true).await?;
        Ok(true)
    }

    async fn upstream_peer(&self, _: &mut Session, (): &mut ()) -> pingora::Result<Box<HttpPeer>> {
        unreachable!("request_filter answers")
    }
}

struct Running {
    address: SocketAddr,
    open: Arc<AtomicUsize>,
    shutdown: watch::Sender<bool>,
    _runtime: tokio::runtime::Runtime,
}

fn refuse(error: &GatewayError) -> Bytes {
    format!("HTTP/1.1 999 {:?}\r\nconnection: close\r\n\r\n", error.kind).into()
}

fn run() -> Running {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.set_nonblocking(true).expect("a non-blocking listener");
    let address = listener.local_addr().expect("an address");
    let (shutdown, watched) = watch::channel(false);
    let open = Arc::new(AtomicUsize::new(0));
    let conf = Arc::new(ServerConf::default());
    let bounds = Arc::new(ConnectionTable::without_bounds(Arc::clone(&open)));
    let app = Arc::new(Connections::new(&conf, Echo, Transport::PLAIN, true, refuse, bounds));
    runtime.spawn(async move {
        let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
        while let Ok((stream, _)) = listener.accept().await {
            let (app, watched) = (Arc::clone(&app), watched.clone());
            tokio::spawn(async move {
                app.process_new(Box::new(TcpStream::from(stream)), &watched).await;
            });
        }
    });
    Running { address, open, shutdown, _runtime: runtime }
}

fn connect(running: &Running) -> Client {
    let client = Client::connect(running.address).expect("a connection");
    client.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
    client
}

/// Sends `request` and reads until the other end closes or `until` has come.
fn ask(client: &mut Client, request: &[u8], until: &str) -> String {
    client.write_all(request).expect("the request leaves");
    let (mut answer, mut chunk) = (String::new(), [0; 4096]);
    while !answer.contains(until) {
        match client.read(&mut chunk) {
            Ok(count) if count > 0 => {
                answer.push_str(&String::from_utf8_lossy(&chunk[..count]));
            }
            _ => break,
        }
    }
    answer
}

const NEVER: &str = "\u{0}";

#[test]
fn requests_follow_each_other_on_a_connection() {
    let running = run();
    let mut client = connect(&running);
    for round in 0..3 {
        let request = format!("POST /{round} HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
        let answer = ask(&mut client, request.as_bytes(), "body");
        assert!(answer.contains(&format!("/{round}body")), "round {round}: {answer}");
    }
    let chunked = b"POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbo";
    client.write_all(chunked).expect("half of a request leaves");
    let answer = ask(&mut client, b"dy\r\n0\r\n\r\n", "body");
    assert!(answer.contains("/cbody"), "a body that comes in pieces: {answer}");
}

#[test]
fn a_head_may_come_byte_by_byte() {
    let running = run();
    let mut client = connect(&running);
    client.set_nodelay(true).expect("no delay");
    for byte in b"GET /slow HTTP/1.1\r\nHost: a\r\n\r" {
        client.write_all(&[*byte]).expect("a byte leaves");
        std::thread::sleep(Duration::from_millis(1));
    }
    let answer = ask(&mut client, b"\n", "/slow");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let answer = ask(&mut connect(&running), b"GET / HTTP/1.0\r\n\r\n", NEVER);
    assert!(answer.starts_with("HTTP/1.1 200"), "shorter than HTTP/2's preface: {answer}");
}

#[test]
fn unsound_heads_are_refused_at_once() {
    let running = run();
    let long = [b"GET / HTTP/1.1\r\nX: ".as_slice(), &[b'y'; 2 * HEAD_BYTES_MAX]].concat();
    let many = ["GET / HTTP/1.1\r\n", &"X: y\r\n".repeat(300), "\r\n"].concat();
    let cases: [(&[u8], &str); 6] = [
        (b"GET / HTTP/1.1\nHost: a\n\n", "999 BadFraming"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: \n", "999 BadFraming"),
        (b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "999 BadFraming"),
        (b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", "999 BadFraming"),
        (&long, "999 HeaderTooLarge"),
        (many.as_bytes(), "999 HeaderTooLarge"),
    ];
    for (request, refusal) in cases {
        let answer = ask(&mut connect(&running), request, NEVER);
        assert!(answer.contains(refusal), "expected {refusal}, read {answer:?}");
    }
}

/// A chunk's line that two parsers end at different places: whatever comes with the head, or behind it,
/// ends the connection, and nothing behind it is taken for a request.
#[test]
fn chunks_with_two_readings_end_the_connection() {
    let running = run();
    let head = "POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for chunk in ["5;a\nb\r\nhello\r\n0\r\n\r\n", "5 \r\nhello\r\n0\r\n\r\n", "5\t;a\r\n", "5\n"] {
        let smuggled = format!("{chunk}GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n");
        let answer = ask(&mut connect(&running), format!("{head}{smuggled}").as_bytes(), NEVER);
        assert!(answer.starts_with("HTTP/1.1 999 BadFraming"), "{chunk:?}: {answer}");
        assert!(!answer.contains("smuggled"), "{chunk:?}: {answer}");
        let mut client = connect(&running);
        client.write_all(head.as_bytes()).expect("the head leaves");
        std::thread::sleep(Duration::from_millis(20));
        let answer = ask(&mut client, smuggled.as_bytes(), NEVER);
        assert!(!answer.contains("200 OK"), "{chunk:?} behind the head: {answer}");
    }
}

#[test]
fn http2_is_handed_over_whole() {
    let running = run();
    let mut client = connect(&running);
    client.set_nodelay(true).expect("no delay");
    for byte in HTTP2_PREFACE {
        client.write_all(&[*byte]).expect("a byte leaves");
    }
    client.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).expect("an empty SETTINGS frame leaves");
    let mut frame = [0; 9];
    client.read_exact(&mut frame).expect("a frame comes back");
    assert_eq!(frame[3], 4, "the server's SETTINGS");
}

#[test]
fn shutting_down_closes_what_is_idle() {
    let running = run();
    let (mut used, mut fresh) = (connect(&running), connect(&running));
    ask(&mut used, b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n", "/a");
    let deadline = std::time::Instant::now() + Duration::from_secs(5);
    while running.open.load(Ordering::Relaxed) < 2 && std::time::Instant::now() < deadline {
        std::thread::yield_now();
    }
    assert_eq!(running.open.load(Ordering::Relaxed), 2, "both connections count");
    running.shutdown.send(true).expect("somebody listens");
    for client in [&mut used, &mut fresh] {
        assert_eq!(client.read(&mut [0]).expect("a clean close"), 0, "an idle one is closed");
    }
    while running.open.load(Ordering::Relaxed) > 0 && std::time::Instant::now() < deadline {
        std::thread::yield_now();
    }
    assert_eq!(running.open.load(Ordering::Relaxed), 0, "none is left");
}

/// A sound head with a few bytes, lines or words put in, taken out or doubled.
fn mangled_heads() -> impl Strategy<Value = Vec<u8>> {
    let sound = proptest::sample::select(vec![
        "POST /v1/x?a=b HTTP/1.1\r\nHost: a:80\r\nX-Name: some value\r\nContent-Length: 5\r\n\
         Connection: keep-alive\r\nAccept: */*\r\n\r\n",
        "POST http://a:80/v1/x?a=b HTTP/1.1\r\nTransfer-Encoding: chunked\r\nHost: a:80\r\n\r\n",
        "GET / HTTP/1.0\r\nAccept: */*\r\n\r\n",
    ]);
    let put = prop_oneof![
        any::<u8>().prop_map(|byte| vec![byte]),
        proptest::sample::select(vec![
            "\r\n",
            "\n",
            "\r",
            " ",
            "\t",
            ":",
            ",",
            "\0",
            "/",
            "//",
            "%",
            "#",
            "?",
            "\\",
            "@",
            "[",
            "*",
            "http://a:80",
            "HTTP/1.0",
            "Transfer-Encoding: chunked\r\n",
            "Content-Length: 5\r\n",
            "Host: b\r\n",
            "Expect: 100-continue\r\n",
            "Upgrade: h2c\r\n",
            "Connection: upgrade\r\n",
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
    ];
    let edit = (any::<proptest::sample::Index>(), 0_usize..6, put);
    (sound, proptest::collection::vec(edit, 0..4)).prop_map(|(sound, edits)| {
        let mut head = sound.as_bytes().to_vec();
        for (index, taken_out, put_in) in edits {
            let at = index.index(head.len());
            head.splice(at..(at + taken_out).min(head.len()), put_in);
        }
        head
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    /// The check is the stricter of the two: no customer ever reads Pingora's empty 400.
    #[test]
    fn pingora_takes_every_head_that_is_sound(bytes in mangled_heads()) {
        let mut lines = LineScan::default();
        let Some(head) = lines.head_of(&bytes) else { return Ok(()) };
        if framing::check_head(head).is_err() {
            return Ok(());
        }
        let (ours, _theirs) = tokio::io::duplex(1);
        let mut session = ServerSession::new_http1(Box::new(ours));
        session.set_pipelined_prefix(BytesMut::from(bytes.as_slice()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let read = runtime.block_on(session.read_request());
        prop_assert!(matches!(read, Ok(true)), "{} was taken, then {read:?}", bytes.escape_ascii());
        prop_assert_eq!(&session.to_h1_raw()[..], head, "Pingora repaired or cut the head");
    }
}
