//! Against an upstream at the other end of a pipe, and beside Pingora's own client: what that one cannot
//! read is not read here either, and what both read is the same.

use http::HeaderMap;
use pingora::http::RequestHeader;
use pingora::protocols::http::v1::client::HttpSession;
use proptest::prelude::*;
use tokio::io::DuplexStream;

use super::*;
use crate::balance::sample;

const REQUEST: &[u8] = b"POST / HTTP/1.1\r\nhost: u\r\ncontent-length: 0\r\n\r\n";

/// A call to an upstream all of whose fields are passed on.
fn call(stream: DuplexStream) -> Box<UpstreamCall> {
    let mut upstream = sample::upstream();
    upstream.pass_response_headers = vec!["*".to_owned()];
    call_to(upstream, stream)
}

fn call_to(upstream: Upstream, stream: DuplexStream) -> Box<UpstreamCall> {
    let connection = UpstreamConnection::over(Box::new(stream), ([127, 0, 0, 1], 1).into());
    Box::new(UpstreamCall::new(connection, Arc::new(upstream)))
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(work)
}

/// An answer that was read to its end.
#[derive(Debug, PartialEq)]
struct ReadAnswer {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
    /// The connection can take another request.
    is_kept: bool,
}

/// Answers with `pieces`, one after the other, and closes its side.
async fn answer(mut upstream: DuplexStream, pieces: Vec<Vec<u8>>) {
    let mut request = vec![0; REQUEST.len()];
    upstream.read_exact(&mut request).await.expect("the request");
    for piece in pieces {
        // Whoever has seen enough reads no further.
        if upstream.write_all(&piece).await.is_err() {
            return;
        }
        tokio::task::yield_now().await;
    }
}

fn read_here(pieces: Vec<Vec<u8>>) -> Result<ReadAnswer> {
    run(async {
        let (own, other) = tokio::io::duplex(1 << 20);
        let mut call = call(own);
        let answering = tokio::spawn(answer(other, pieces));
        call.send(REQUEST.into(), &Bytes::new().into()).await?;
        let head = call.head().await?;
        let mut body = Vec::new();
        while let Some(piece) = call.chunk().await? {
            assert!(!piece.is_empty());
            body.extend_from_slice(&piece);
        }
        assert!(call.is_done());
        answering.await.expect("answered");
        let status = head.status.as_u16();
        let headers = head.headers.into();
        Ok(ReadAnswer { status, headers, body, is_kept: call.into_kept().is_some() })
    })
}

fn read_by_pingora(pieces: Vec<Vec<u8>>) -> Result<ReadAnswer> {
    run(async {
        let (own, other) = tokio::io::duplex(1 << 20);
        let answering = tokio::spawn(answer(other, pieces));
        let mut session = HttpSession::new(Box::new(own));
        let mut request = RequestHeader::build("POST", b"/", None)?;
        request.insert_header("host", "u")?;
        request.insert_header("content-length", "0")?;
        session.write_request_header(Box::new(request)).await?;
        session.finish_body().await?;
        let head = loop {
            session.read_response().await?;
            let head = session.resp_header().expect("it was read");
            if !head.status.is_informational() || head.status.as_u16() == 101 {
                break head.clone();
            }
        };
        let mut body = Vec::new();
        while let Some(piece) = session.read_body_bytes().await? {
            body.extend_from_slice(&piece);
        }
        answering.await.expect("answered");
        session.respect_keepalive();
        let (status, mut headers) = (head.status.as_u16(), head.headers.clone());
        // What is said between two neighbours.
        headers.remove("connection");
        headers.remove("keep-alive");
        Ok(ReadAnswer { status, headers, body, is_kept: session.reuse().await.is_some() })
    })
}

fn framing_line() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "content-length: 5\r\n",
        "Content-Length: 5\r\n",
        "content-length: 5, 5\r\n",
        "content-length: 6\r\n",
        "content-length: +5\r\n",
        "content-length: \r\n",
        "content-length: 99999999999999999999\r\n",
        "content-length: 0\r\n",
        "transfer-encoding: chunked\r\n",
        "Transfer-Encoding: Chunked\r\n",
        "transfer-encoding: gzip, chunked\r\n",
        "transfer-encoding: chunked, gzip\r\n",
        "transfer-encoding: identity\r\n",
        "connection: close\r\n",
        "connection: keep-alive\r\n",
        "connection: upgrade, close\r\n",
        "keep-alive: timeout=5, max=100\r\n",
        "x-one: 1\r\n",
        "x-one : 1\r\n",
        "x-folded: a\r\n b\r\n",
        "x-empty:\r\n",
        "x-bytes: \u{e9}\r\n",
        "no colon\r\n",
        "x-bare: 1\n",
    ])
}

fn any_answer() -> impl Strategy<Value = Vec<u8>> {
    let status = prop::sample::select(vec![
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.0 200 OK\r\n",
        "HTTP/1.1 204 No Content\r\n",
        "HTTP/1.1 304 Not Modified\r\n",
        "HTTP/1.1 500\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n",
        "HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 429 Busy\r\n",
        "HTTP/2 200\r\n",
        "HTTP/1.1 20 OK\r\n",
        "\r\nHTTP/1.1 200 OK\r\n",
    ]);
    let body = prop::sample::select(vec![
        "",
        "hello",
        "hello!",
        "hello and more",
        "5\r\nhello\r\n0\r\n\r\n",
        "2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
        "5;name=value\r\nhello\r\n0\r\nx-trailer: 1\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n0\r\n\r\nmore",
        "5\r\nhello\r\n",
        "5\r\nhelloX\r\n0\r\n\r\n",
        "g\r\nhello\r\n0\r\n\r\n",
        "5\nhello\n0\n\n",
        "ffffffffffffffffff\r\nhello\r\n0\r\n\r\n",
    ]);
    (status, prop::collection::vec(framing_line(), 0..4), body)
        .prop_map(|(status, lines, body)| [status, &lines.concat(), "\r\n", body].concat().into())
}

/// An answer, perhaps with some bytes that are others, in pieces.
fn pieces() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..2);
    (any_answer(), changes, 1..40_usize).prop_map(|(mut answer, changes, length)| {
        for (index, byte) in changes {
            let at = index.index(answer.len());
            answer[at] = byte;
        }
        answer.chunks(length).map(<[u8]>::to_vec).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn what_is_read_here_pingora_reads_as_the_same(pieces in pieces()) {
        let text = pieces.concat().escape_ascii().to_string();
        let Ok(here) = read_here(pieces.clone()) else { return Ok(()) };
        let there = read_by_pingora(pieces).map_err(|error| {
            TestCaseError::fail(format!("only here: {text}: {error}"))
        })?;
        prop_assert!(there.is_kept || !here.is_kept, "kept only here: {text}");
        prop_assert_eq!(ReadAnswer { is_kept: here.is_kept, ..there }, here, "{}", text);
    }
}

fn pieces_of(answer: &str, length: usize) -> Vec<Vec<u8>> {
    answer.as_bytes().chunks(length).map(<[u8]>::to_vec).collect()
}

#[test]
fn sound_answers_are_read_however_they_are_cut() {
    for (answer, body, is_kept) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", "hello", true),
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello", "hello", false),
        ("HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\nhello", "hello", false),
        (
            "HTTP/1.0 200 OK\r\ncontent-length: 5\r\nconnection: Keep-Alive\r\n\r\nhello",
            "hello",
            true,
        ),
        ("HTTP/1.1 200 OK\r\n\r\nhello", "hello", false),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\na: b\r\n\r\n",
            "hello",
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            "hello",
            false,
        ),
        ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", "ok", true),
        ("HTTP/1.1 204 No Content\r\n\r\n", "", true),
    ] {
        for length in [1, 2, 3, 7, answer.len()] {
            let read = read_here(pieces_of(answer, length)).expect(answer);
            assert_eq!(
                (read.body.as_slice(), read.is_kept),
                (body.as_bytes(), is_kept),
                "{answer}"
            );
            let there = read_by_pingora(pieces_of(answer, length)).expect(answer);
            assert_eq!(read, ReadAnswer { is_kept, ..there }, "{answer}");
        }
    }
}

/// Providers send 30 fields, and most are nobody's here; what is said of a failure can tell why.
#[test]
fn of_a_success_only_fields_that_are_of_use_are_kept() {
    let fields = "Content-Length: 0\r\nX-One: 1\r\nSet-Cookie: a=b\r\nOpenAI-Model: m\r\n\
                  Connection: keep-alive\r\nX-Two: 2\r\n\r\n";
    for (status, kept) in [
        ("200 OK", &["content-length", "openai-model", "x-one"][..]),
        ("500 No", &["content-length", "openai-model", "set-cookie", "x-one", "x-two"]),
    ] {
        let mut upstream = sample::upstream();
        upstream.pass_response_headers = vec!["x-one".to_owned()];
        let names = run(async {
            let (own, other) = tokio::io::duplex(1 << 20);
            let mut call = call_to(upstream, own);
            let answered = format!("HTTP/1.1 {status}\r\n{fields}");
            tokio::spawn(answer(other, vec![answered.into_bytes()]));
            call.send(REQUEST.into(), &Bytes::new().into()).await.expect("sent");
            let head = call.head().await.expect("a head");
            let mut names: Vec<_> = head.headers.iter().map(|(name, _)| name.to_string()).collect();
            names.sort_unstable();
            names
        });
        assert_eq!(names, kept, "{status}");
    }
}

#[test]
fn what_is_there_at_once_is_given_and_nothing_is_looked_for_behind_a_read_that_took_all() {
    run(async {
        let (own, mut other) = tokio::io::duplex(1 << 20);
        let mut call = call(own);
        call.send(REQUEST.into(), &Bytes::new().into()).await.expect("sent");
        let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n";
        other.write_all(head).await.expect("it is listened to");
        call.head().await.expect("a head");
        assert_eq!(call.look(true, |_, _| true).await.expect("a piece"), "a");
        assert_eq!(call.chunk_now(), Some(Some("a".into())), "what was looked at");
        assert_eq!(call.chunk_now(), Some(Some("b".into())), "what was read with it");
        other.write_all(b"1\r\nc\r\n0\r\n\r\n").await.expect("it is listened to");
        assert_eq!(call.chunk_now(), None, "what came behind the read");
        assert_eq!(call.chunk().await.expect("a piece"), Some("c".into()));
        assert_eq!(call.chunk_now(), Some(None), "the end was read with it");
    });
}

#[test]
fn what_is_encrypted_is_looked_for_behind_each_record() {
    run(async {
        let (own, mut other) = tokio::io::duplex(1 << 20);
        let mut call = call_to(sample::upstream_over_tls(), own);
        call.send(REQUEST.into(), &Bytes::new().into()).await.expect("sent");
        let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n";
        other.write_all(head).await.expect("it is listened to");
        call.head().await.expect("a head");
        assert_eq!(call.chunk().await.expect("a piece"), Some("a".into()));
        other.write_all(b"1\r\nb\r\n").await.expect("it is listened to");
        assert_eq!(call.chunk_now(), Some(Some("b".into())));
    });
}

#[test]
fn bytes_behind_an_answer_end_its_connection() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello, and more";
    let read = read_here(vec![answer.into()]).expect("an answer");
    assert_eq!((&read.body[..], read.is_kept), (&b"hello"[..], false));
}

#[test]
fn what_can_be_read_in_two_ways_or_breaks_off_is_no_answer() {
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
        "HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\nhello\n0\n\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhell",
        "HTTP/1.1 200 OK\r\nx: y",
        "SSH-2.0-OpenSSH\r\n\r\n",
        "",
    ] {
        assert!(read_here(pieces_of(answer, 4)).is_err(), "{answer}");
    }
    let endless = ["HTTP/1.1 200 OK\r\n", &"x: y\r\n".repeat(30_000)].concat();
    assert!(read_here(pieces_of(&endless, 8_000)).is_err(), "a head without an end");
}

/// Takes `taken` bytes of a request, says `said`, and takes no more of it.
async fn say_early(upstream: &mut DuplexStream, taken: usize, answered: &str) {
    let mut begun = vec![0; taken];
    upstream.read_exact(&mut begun).await.expect("the beginning");
    upstream.write_all(answered.as_bytes()).await.expect("answered");
}

#[test]
fn the_answer_of_an_upstream_that_stops_reading_arrives() {
    const REFUSED: &str = "HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno";
    run(async {
        let (own, mut other) = tokio::io::duplex(4 * 1024);
        let mut call = call(own);
        let refusing = say_early(&mut other, 20_000, REFUSED);
        let body = EditedBody::from(Bytes::from(vec![b'b'; 1 << 20]));
        let (sent, ()) = tokio::join!(call.send(REQUEST.into(), &body), refusing);
        sent.expect("heard while it was being sent");
        assert_eq!(call.head().await.expect("a head").status.as_u16(), 413);
        assert_eq!(call.chunk().await.expect("a body").as_deref(), Some(&b"no"[..]));
        assert!(call.has_not_begun(), "it has not got all of it");
        assert!(call.into_kept().is_none(), "nor is the connection in order");
    });
}

#[test]
fn a_request_goes_on_behind_what_is_only_informational() {
    run(async {
        let (own, mut other) = tokio::io::duplex(4 * 1024);
        let mut call = call(own);
        let body = EditedBody::from(Bytes::from(vec![b'b'; 1 << 20]));
        let all = REQUEST.len() + body.len();
        let upstream = async {
            say_early(&mut other, 20_000, "HTTP/1.1 100 Continue\r\n\r\n").await;
            say_early(&mut other, all - 20_000, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                .await;
        };
        let (sent, ()) = tokio::join!(call.send(REQUEST.into(), &body), upstream);
        sent.expect("sent");
        assert_eq!(call.head().await.expect("a head").status.as_u16(), 200);
        assert!(call.into_kept().is_some());
    });
}

#[test]
fn what_is_sent_is_the_head_and_the_body_behind_it() {
    for length in [0, 1, 1_000, JOINED_BYTES_MAX, JOINED_BYTES_MAX + 1, 300_000] {
        run(async {
            let (own, mut other) = tokio::io::duplex(64 * 1024);
            let mut call = call(own);
            let body: Bytes = (0..length).map(|index| index.to_le_bytes()[0]).collect();
            let pieces = body.chunks(length / 3 + 1).map(Bytes::copy_from_slice).collect();
            for body_sent in [EditedBody::from(body.clone()), EditedBody::Pieces(pieces)] {
                let mut got = vec![0; REQUEST.len() + length];
                let (sent, read) =
                    tokio::join!(call.send(REQUEST.into(), &body_sent), other.read_exact(&mut got));
                sent.expect("sent");
                read.expect("all of it");
                assert_eq!(got.split_at(REQUEST.len()), (REQUEST, &body[..]));
            }
        });
    }
}
