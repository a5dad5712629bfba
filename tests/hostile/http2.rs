//! HTTP/2 frames by hand.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::harness::connect;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// `:status: 200` of HPACK's static table: the first byte of a good answer.
const STATUS_200: u8 = 0x88;

/// How a request over HTTP/2 ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// A response with status 200.
    Answered,
    /// Another response.
    Refused,
    /// The stream was reset.
    Reset,
    /// The connection was given up.
    GoneAway,
    /// Nothing within 5 s.
    Nothing,
}

/// A request, and how it may end.
pub(crate) type Row = (&'static str, Vec<u8>, &'static [End]);

type Field = (&'static str, &'static str);

/// What takes a pseudo-header out.
const ABSENT: &str = "absent";

/// A chat request with this key and body.
pub(crate) fn good(key: &str, body: &str) -> Vec<u8> {
    with(key, body, &[])
}

/// Hostile variants of that request.
pub(crate) fn rows(key: &str, body: &str) -> Vec<Row> {
    let with = |more: &[Field]| with(key, body, more);
    let fields = |more: &[Field]| fields(key, more);
    let wide: &'static str = "y".repeat(15_000).leak();
    vec![
        ("connection", with(&[("connection", "keep-alive")]), &[End::Reset]),
        ("transfer-encoding", with(&[("transfer-encoding", "chunked")]), &[End::Reset]),
        ("upgrade", with(&[("upgrade", "websocket")]), &[End::Reset]),
        ("te", with(&[("te", "gzip")]), &[End::Reset]),
        ("no authority", with(&[(":authority", ABSENT)]), &[End::Refused]),
        ("host is not the authority", with(&[("host", "other")]), &[End::Refused]),
        ("two hosts", with(&[("host", "gateway"), ("host", "gateway")]), &[End::Refused]),
        ("user in the authority", with(&[(":authority", "a@gateway")]), &[End::Refused]),
        ("length too long", with(&[("content-length", "9999")]), &[End::Reset]),
        ("length too short", with(&[("content-length", "1")]), &[End::Reset]),
        (
            "two lengths",
            with(&[("content-length", "1"), ("content-length", "9999")]),
            &[End::Reset],
        ),
        ("length with a plus", with(&[("content-length", "+57")]), &[End::Reset]),
        ("10 GB declared", with(&[("content-length", "10000000000")]), &[End::Refused, End::Reset]),
        ("name in upper case", with(&[("X-Up", "1")]), &[End::GoneAway]),
        ("line end in a value", with(&[("x", "a\r\nb: c")]), &[End::GoneAway]),
        ("NUL in a value", with(&[("x", "a\0b")]), &[End::GoneAway]),
        (
            "line end in the path",
            with(&[(":path", "/v1/chat/completions HTTP/1.1\r\nX: y")]),
            &[End::Reset],
        ),
        ("space in the path", with(&[(":path", "/v1/chat completions")]), &[End::Reset]),
        ("no path", with(&[(":path", ABSENT)]), &[End::Reset]),
        ("CONNECT", with(&[(":method", "CONNECT")]), &[End::Reset, End::Refused]),
        ("TRACE", with(&[(":method", "TRACE")]), &[End::Refused]),
        ("gzip", with(&[("content-encoding", "gzip")]), &[End::Refused]),
        ("300 fields", with(&[("x", "y"); 300]), &[End::Refused]),
        ("fields of 1 MiB", with(&[("x", wide); 70]), &[End::GoneAway, End::Refused]),
        ("CONTINUATION flood", continuation_flood(&fields(&[])), &[End::GoneAway]),
        ("rapid reset", rapid_reset(&fields(&[])), &[End::GoneAway]),
    ]
}

fn with(key: &str, body: &str, more: &[Field]) -> Vec<u8> {
    request(&fields(key, more), body.as_bytes())
}

/// The header block of a chat request. A pseudo-header in `more` replaces the usual one.
fn fields(key: &str, more: &[Field]) -> Vec<u8> {
    let bearer = format!("Bearer {key}");
    let usual = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/v1/chat/completions"),
        (":authority", "gateway"),
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
    ];
    let is_pseudo = |field: &(&str, &str)| field.0.starts_with(':');
    let replaced = usual.into_iter().map(|field| {
        more.iter()
            .find(|other| is_pseudo(other) && other.0 == field.0)
            .map_or(field, |other| *other)
    });
    let mut fields: Vec<_> = replaced.filter(|(_, value)| *value != ABSENT).collect();
    fields.extend(more.iter().filter(|field| !is_pseudo(field)));
    block(&fields)
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a frame").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A header block in HPACK, every field as a literal.
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            integer(&mut block, text.len());
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// An HPACK integer with a prefix of 7 bits (RFC 7541, section 5.1).
fn integer(block: &mut Vec<u8>, value: usize) {
    let byte = |value: usize| u8::try_from(value).expect("a byte");
    if value < 127 {
        return block.push(byte(value));
    }
    block.push(127);
    let mut rest = value - 127;
    while rest >= 128 {
        block.push(byte(rest % 128 + 128));
        rest /= 128;
    }
    block.push(byte(rest));
}

/// A request on stream 1 with this header block and body.
fn request(block: &[u8], body: &[u8]) -> Vec<u8> {
    let mut frames = Vec::new();
    let pieces: Vec<_> = block.chunks(16_000).collect();
    for (index, piece) in pieces.iter().enumerate() {
        let kind = if index == 0 { HEADERS } else { CONTINUATION };
        let flags = if index + 1 == pieces.len() { END_HEADERS } else { 0 };
        frames.extend(frame(kind, flags, 1, piece));
    }
    frames.extend(frame(DATA, END_STREAM, 1, body));
    frames
}

/// The whole beginning of a connection that grants every window, with `count` requests.
pub(crate) fn greedy(key: &str, body: &str, count: u32) -> Vec<u8> {
    const WINDOW_UPDATE: u8 = 8;
    const INITIAL_WINDOW_SIZE: [u8; 2] = [0, 4];
    const WINDOW_MAX: [u8; 4] = [0x7f, 0xff, 0xff, 0xff];
    let settings = [INITIAL_WINDOW_SIZE.as_slice(), &WINDOW_MAX].concat();
    // The connection's window has 65535 bytes to begin with.
    let more = (0x7fff_ffff_u32 - 65_535).to_be_bytes();
    let mut frames = PREFACE.to_vec();
    frames.extend(frame(SETTINGS, 0, 0, &settings));
    frames.extend(frame(WINDOW_UPDATE, 0, 0, &more));
    for stream in (1..2 * count).step_by(2) {
        frames.extend(frame(HEADERS, END_HEADERS, stream, &fields(key, &[])));
        frames.extend(frame(DATA, END_STREAM, stream, body.as_bytes()));
    }
    frames
}

/// HEADERS that never end, followed by as many CONTINUATIONs as are taken.
fn continuation_flood(block: &[u8]) -> Vec<u8> {
    let mut frames = frame(HEADERS, 0, 1, block);
    for _ in 0..20_000 {
        frames.extend(frame(CONTINUATION, 0, 1, &[]));
    }
    frames
}

/// A connection full of them.
pub(crate) fn flood(key: &str) -> Vec<u8> {
    rapid_reset(&fields(key, &[]))
}

/// Streams that are opened and reset at once (CVE-2023-44487).
fn rapid_reset(block: &[u8]) -> Vec<u8> {
    const CANCEL: [u8; 4] = [0, 0, 0, 8];
    let mut frames = Vec::new();
    for stream in (1..20_001).step_by(2) {
        frames.extend(frame(HEADERS, END_HEADERS, stream, block));
        frames.extend(frame(RST_STREAM, 0, stream, &CANCEL));
    }
    frames
}

/// Opens a connection, sends `frames`, and waits for what becomes of them.
pub(crate) fn ask(address: SocketAddr, frames: &[u8]) -> End {
    ask_over(&mut connect(address), frames)
}

/// The same over a connection that is open already.
pub(crate) fn ask_over(stream: &mut (impl Read + Write), frames: &[u8]) -> End {
    let hello = [PREFACE, &frame(SETTINGS, 0, 0, &[]), frames].concat();
    // The gateway may give the connection up before all is sent.
    let _sent = stream.write_all(&hello).and_then(|()| stream.flush());
    let deadline = Instant::now() + Duration::from_secs(5);
    while Instant::now() < deadline {
        match read_frame(stream) {
            Some((HEADERS, payload)) if payload.first() == Some(&STATUS_200) => {
                return End::Answered;
            }
            Some((HEADERS, _)) => return End::Refused,
            Some((RST_STREAM, _)) => return End::Reset,
            Some((GOAWAY, _)) | None => return End::GoneAway,
            Some(_) => {}
        }
    }
    End::Nothing
}

fn read_frame(stream: &mut impl Read) -> Option<(u8, Vec<u8>)> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).ok()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; usize::try_from(length).expect("a length")];
    stream.read_exact(&mut payload).ok()?;
    Some((head[3], payload))
}
