//! The least of an HTTP/1.1 client: bytes in, "complete" out. It does no I/O, so that the blocking
//! and the asynchronous load share it.

use anyhow::{Context as _, bail, ensure};

/// The largest head that is read: far above what any subject sends.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// A response while it arrives.
#[derive(Default)]
pub(crate) struct Response {
    state: State,
    /// The head, or the size line of a chunk, as far as it has come.
    line: Vec<u8>,
    /// The last bytes of the body, to see what crosses the border of two reads.
    tail: Vec<u8>,
    /// The events of the body: its empty lines.
    pub(crate) events: u64,
    /// True if the server closes the connection after this response.
    pub(crate) closes: bool,
}

#[derive(Default)]
enum State {
    #[default]
    Head,
    /// A body of which this much is left.
    Sized(usize),
    ChunkSize,
    /// A chunk of which this much is left.
    Chunk(usize),
    /// The line end after a chunk, or the last line end of all.
    ChunkEnd {
        last: bool,
    },
    Complete,
}

/// Bytes at the end of a body that are kept.
const TAIL_BYTES: usize = 64;

impl Response {
    pub(crate) fn is_complete(&self) -> bool {
        matches!(self.state, State::Complete)
    }

    /// True if the body so far ends with `end`, which must be within its last 64 bytes.
    pub(crate) fn ends_with(&self, end: &[u8]) -> bool {
        self.tail.ends_with(end)
    }

    /// Takes what was read.
    ///
    /// # Errors
    /// It is not HTTP/1.1, or not a 200.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) -> anyhow::Result<()> {
        while !bytes.is_empty() {
            let taken = match self.state {
                State::Head => self.feed_head(bytes)?,
                State::Sized(left) => {
                    let taken = self.feed_body(bytes, left);
                    self.state = State::sized(left - taken);
                    taken
                }
                State::ChunkSize => self.feed_size(bytes)?,
                State::Chunk(left) => {
                    let taken = self.feed_body(bytes, left);
                    let left = left - taken;
                    self.state =
                        if left > 0 { State::Chunk(left) } else { State::ChunkEnd { last: false } };
                    taken
                }
                State::ChunkEnd { last } => {
                    let end = bytes.iter().position(|byte| *byte == b'\n');
                    if end.is_some() {
                        self.state = if last { State::Complete } else { State::ChunkSize };
                    }
                    end.map_or(bytes.len(), |end| end + 1)
                }
                State::Complete => bail!("bytes after the response"),
            };
            bytes = bytes.get(taken..).unwrap_or_default();
        }
        Ok(())
    }

    fn feed_head(&mut self, bytes: &[u8]) -> anyhow::Result<usize> {
        let before = self.line.len();
        self.line.extend_from_slice(bytes);
        let from = before.saturating_sub(3);
        let found = memchr::memmem::find(self.line.get(from..).unwrap_or_default(), b"\r\n\r\n");
        let Some(found) = found else {
            ensure!(self.line.len() <= HEAD_BYTES_MAX, "a head without an end");
            return Ok(bytes.len());
        };
        let end = from + found + 4;
        self.line.truncate(end);
        let head = String::from_utf8_lossy(&self.line).to_ascii_lowercase();
        ensure!(head.starts_with("http/1.1 200 "), "not a 200: {head}");
        let header =
            |name: &str| head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        self.closes = header("connection") == Some("close");
        self.state = match (header("content-length"), header("transfer-encoding")) {
            (Some(length), None) => State::sized(length.trim().parse()?),
            (None, Some("chunked")) => State::ChunkSize,
            _ => bail!("a body without a length: {head}"),
        };
        self.line.clear();
        Ok(end - before)
    }

    fn feed_size(&mut self, bytes: &[u8]) -> anyhow::Result<usize> {
        let Some(end) = memchr::memchr(b'\n', bytes) else {
            ensure!(self.line.len() < HEAD_BYTES_MAX, "a chunk size without an end");
            self.line.extend_from_slice(bytes);
            return Ok(bytes.len());
        };
        self.line.extend_from_slice(bytes.get(..end).unwrap_or_default());
        let line = std::str::from_utf8(&self.line).context("a chunk size")?;
        let size = usize::from_str_radix(line.trim(), 16).with_context(|| format!("{line:?}"))?;
        self.line.clear();
        self.state = if size > 0 { State::Chunk(size) } else { State::ChunkEnd { last: true } };
        Ok(end + 1)
    }

    fn feed_body(&mut self, bytes: &[u8], left: usize) -> usize {
        let body = bytes.get(..left).unwrap_or(bytes);
        // The tail's last byte decides whether a line end at the start makes an empty line.
        if self.tail.ends_with(b"\n") && body.starts_with(b"\n") {
            self.events += 1;
        }
        self.events += memchr::memmem::find_iter(body, b"\n\n").count() as u64;
        let kept = body.get(body.len().saturating_sub(TAIL_BYTES)..).unwrap_or_default();
        self.tail.extend_from_slice(kept);
        let surplus = self.tail.len().saturating_sub(TAIL_BYTES);
        self.tail.drain(..surplus);
        body.len()
    }
}

impl State {
    fn sized(left: usize) -> Self {
        if left > 0 { Self::Sized(left) } else { Self::Complete }
    }
}

/// A POST with a bearer token.
pub(crate) fn post(path: &str, key: &str, content_type: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: application/json\r\n\
         content-type: {content_type}\r\nuser-agent: bench-load\r\n\
         authorization: Bearer {key}\r\ncontent-length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}
