//! HTTP/2 frames by hand.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::harness::connect;

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
    GoAway,
    /// Nothing within 5 s.
    Nothing,
}

/// A request, and how it may end.
pub(crate) type Row = (&'static str, Vec<u8>, &'static [End]);

type Field = (&'static str, &'static str);

/// Marks a pseudo-header as missing.
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
        ("name in upper case", with(&[("X-Up", "1")]), &[End::GoAway]),
        ("line end in a value", with(&[("x", "a\r\nb: c")]), &[End::GoAway]),
        ("NUL in a value", with(&[("x", "a\0b")]), &[End::GoAway]),
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
        ("fields of 1 MiB", with(&[("x", wide); 70]), &[End::GoAway, End::Refused]),
        ("CONTINUATION flood", continuation_flood(&fields(&[])), &[End::GoAway]),
        ("rapid reset", rapid_reset(&fields(&[])), &[End::GoAway]),
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

/// A header block in as many frames as it needs; `end` is END_STREAM where no body follows.
fn headers(stream: u32, block: &[u8], end: u8) -> Vec<u8> {
    let mut frames = Vec::new();
    let pieces: Vec<_> = block.chunks(16_000).collect();
    for (index, piece) in pieces.iter().enumerate() {
        let (kind, end) = if index == 0 { (HEADERS, end) } else { (CONTINUATION, 0) };
        let flags = if index + 1 == pieces.len() { END_HEADERS | end } else { end };
        frames.extend(frame(kind, flags, stream, piece));
    }
    frames
}

/// A request on stream 1 with this header block and body.
fn request(block: &[u8], body: &[u8]) -> Vec<u8> {
    let mut frames = headers(1, block, 0);
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

/// The beginning of a connection on which `count` requests are made at once and nothing is granted:
/// their answers find a window of 0, and the body that `length` tells of never comes.
pub(crate) fn withheld(
    (method, path): (&'static str, &'static str),
    length: Option<&'static str>,
    count: u32,
) -> Vec<u8> {
    const INITIAL_WINDOW_SIZE: [u8; 2] = [0, 4];
    let no_window = [INITIAL_WINDOW_SIZE.as_slice(), &[0; 4]].concat();
    let mut fields = vec![
        (":method", method),
        (":scheme", "http"),
        (":path", path),
        (":authority", "gateway"),
        ("content-type", "application/x-www-form-urlencoded"),
    ];
    fields.extend(length.map(|length| ("content-length", length)));
    let (block, end) = (block(&fields), if length.is_some() { 0 } else { END_STREAM });
    let mut frames = [PREFACE, &frame(SETTINGS, 0, 0, &no_window)].concat();
    for stream in (1..2 * count).step_by(2) {
        frames.extend(frame(HEADERS, END_HEADERS | end, stream, &block));
    }
    frames
}

/// The request of every stream of a connection.
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    /// A key, if it has one to show.
    pub(crate) key: Option<&'a str>,
    /// More fields, such as a length that nothing follows.
    pub(crate) fields: &'a [(&'a str, &'a str)],
    /// True if a body is promised.
    pub(crate) has_body: bool,
}

/// The whole beginning of a connection that grants no window at all, with `count` such requests.
pub(crate) fn without_windows(request: &Request<'_>, count: u32) -> Vec<u8> {
    const INITIAL_WINDOW_SIZE: [u8; 6] = [0, 4, 0, 0, 0, 0];
    let bearer = request.key.map(|key| format!("Bearer {key}"));
    let mut fields = vec![
        (":method", request.method),
        (":scheme", "http"),
        (":path", request.path),
        (":authority", "gateway"),
    ];
    fields.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
    fields.extend(request.fields);
    let end = if request.has_body { 0 } else { END_STREAM };
    let mut frames = PREFACE.to_vec();
    frames.extend(frame(SETTINGS, 0, 0, &INITIAL_WINDOW_SIZE));
    for stream in (1..2 * count).step_by(2) {
        frames.extend(headers(stream, &block(&fields), end));
    }
    frames
}

/// How the streams of a connection ended so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ends {
    /// Those that have an answer's head.
    pub(crate) answered: u32,
    /// Those that were refused before anything was done (`REFUSED_STREAM`).
    pub(crate) refused: u32,
    /// Those that were reset for another reason.
    pub(crate) reset: u32,
    /// The connection is gone.
    pub(crate) is_closed: bool,
}

impl Ends {
    /// Reads what comes until nothing has come for as long as reads wait.
    pub(crate) fn read(&mut self, stream: &mut impl Read) {
        const REFUSED_STREAM: [u8; 4] = [0, 0, 0, 7];
        let mut head = [0; 1];
        loop {
            // A frame comes as a whole, or not at all.
            match stream.read(&mut head) {
                Ok(1) => {}
                Ok(_) => return self.is_closed = true,
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                    return self.is_closed = true;
                }
                Err(_) => return,
            }
            match read_frame(&mut head.as_slice().chain(&mut *stream)) {
                Some((HEADERS, _)) => self.answered += 1,
                Some((RST_STREAM, code)) if code == REFUSED_STREAM => self.refused += 1,
                Some((RST_STREAM, _)) => self.reset += 1,
                Some(_) => {}
                None => return self.is_closed = true,
            }
        }
    }
}

/// The beginning of a connection, and frames by the number that ask for nothing: PING and SETTINGS.
pub(crate) fn idle_frames(count: usize) -> [Vec<u8>; 3] {
    const PING: u8 = 6;
    let begin = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
    let pings = frame(PING, 0, 0, &[7; 8]).repeat(count);
    [begin, pings, frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 9]).repeat(count)]
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
            Some((GOAWAY, _)) | None => return End::GoAway,
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
