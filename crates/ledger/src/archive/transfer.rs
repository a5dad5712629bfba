//! One request to an object store, for threads that wait: it runs on a thread with a runtime of its own,
//! so that it does not matter who waits, and whoever does not wait any longer leaves it behind.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use md5::{Digest as _, Md5};

use super::BUFFER_BYTES;
use tollgate_outbound::{AnswerTimes, OutboundError, OutboundResponse, StoreRequest, ask_store};

/// A transfer that is slower than this, in bytes a second, has failed: it would never end.
const RATE_MIN: u64 = 64 << 10;
/// BodyChunks that wait for a reader.
const QUEUE: usize = 4;
/// Interval of the check for cancellation.
const POLL: Duration = Duration::from_millis(100);
/// Maximum size of an error body read from the store.
const ERROR_BYTES_MAX: usize = 16 << 10;
/// The most that an object has whose length nobody has noted: a seal has 600 bytes.
const SMALL_BYTES_MAX: u64 = 16 << 10;

/// Failure of a transfer.
#[derive(Debug)]
pub(super) struct TransferError {
    pub(super) kind: io::ErrorKind,
    pub(super) says: String,
    /// True if a retry may succeed a moment later.
    pub(super) may_pass: bool,
}

impl TransferError {
    fn new(kind: io::ErrorKind, says: impl Into<String>) -> Self {
        Self { kind, says: says.into(), may_pass: false }
    }

    fn stopped() -> Self {
        Self::new(io::ErrorKind::Other, "the process ends")
    }
}

impl From<OutboundError> for TransferError {
    fn from(error: OutboundError) -> Self {
        let kind = match error {
            OutboundError::TimedOut => io::ErrorKind::TimedOut,
            OutboundError::Unreachable(_) => io::ErrorKind::HostUnreachable,
            _ => io::ErrorKind::ConnectionAborted,
        };
        Self { kind, says: error.to_string(), may_pass: true }
    }
}

impl From<io::Error> for TransferError {
    fn from(error: io::Error) -> Self {
        Self::new(error.kind(), error.to_string())
    }
}

/// Length and checksum of a body.
pub(super) struct Sum {
    pub(super) bytes: u64,
    /// MD5 in base64, as in `Content-MD5`.
    pub(super) md5: String,
}

impl Sum {
    pub(super) fn of(mut input: impl Read, stop: &AtomicBool) -> io::Result<Self> {
        let (mut hasher, mut bytes) = (Md5::new(), 0);
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            if stop.load(Ordering::Relaxed) {
                return Err(io::Error::other("the process ends"));
            }
            let read = input.read(&mut buffer)?;
            if read == 0 {
                return Ok(Self { bytes, md5: STANDARD.encode(hasher.finalize()) });
            }
            hasher.update(buffer.get(..read).unwrap_or_default());
            bytes += read as u64;
        }
    }
}

/// A body as a stream of pieces.
struct BodyChunks {
    input: Box<dyn Read + Send>,
    stop: Arc<AtomicBool>,
}

impl Iterator for BodyChunks {
    type Item = io::Result<Bytes>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.stop.load(Ordering::Relaxed) {
            return Some(Err(io::Error::other("the process ends")));
        }
        let mut piece = vec![0; BUFFER_BYTES];
        match self.input.read(&mut piece) {
            Ok(0) => None,
            Ok(read) => {
                piece.truncate(read);
                Some(Ok(piece.into()))
            }
            Err(error) => Some(Err(error)),
        }
    }
}

/// Timeout of a transfer of `bytes`.
fn time(bytes: u64, silence: Duration) -> Duration {
    silence.saturating_add(Duration::from_secs(bytes / RATE_MIN))
}

/// Sends `body`, which has so many bytes, and waits for a yes.
pub(super) fn put(
    request: StoreRequest,
    body: Box<dyn Read + Send>,
    (bytes, silence): (u64, Duration),
    stop: &Arc<AtomicBool>,
) -> Result<(), TransferError> {
    let pieces = Box::new(BodyChunks { input: body, stop: Arc::clone(stop) });
    let (tell, receiver) = mpsc::sync_channel(1);
    on_a_thread(move |runtime| {
        let sent = runtime.block_on(async {
            // The answer comes after the whole body, so its header may take as long as that at the
            // slowest rate.
            let times = AnswerTimes { head: time(bytes, silence), piece: silence };
            let response = ask_store(request, Some(pieces), times).await?;
            accepted(response).await.map(|_| ())
        });
        // Whoever has asked may not wait any more.
        drop(tell.send(sent));
    })?;
    wait(&receiver, Some(stop))?
}

/// Content of an archived object, received piece by piece.
pub(super) struct ObjectStream {
    receiver: Receiver<Result<Option<Bytes>, TransferError>>,
    stop: Option<Arc<AtomicBool>>,
    piece: Bytes,
    is_over: bool,
}

/// Begins the download of an object of this length or, if unknown, of at most a few kilobytes.
pub(super) fn get(
    request: StoreRequest,
    (bytes, silence): (Option<u64>, Duration),
    stop: Option<Arc<AtomicBool>>,
) -> Result<ObjectStream, TransferError> {
    // Bounded: a reader that is slower than the network would collect the segment in memory.
    let (tell, receiver) = mpsc::sync_channel(QUEUE);
    on_a_thread(move |runtime| {
        if let Err(failed) = runtime.block_on(fetch(request, (bytes, silence), &tell)) {
            drop(tell.send(Err(failed)));
        }
    })?;
    // Nothing is in the first piece: the store has said that it has the object.
    wait(&receiver, stop.as_ref())??;
    Ok(ObjectStream { receiver, stop, piece: Bytes::new(), is_over: false })
}

/// Sends on what comes, as fast as it is taken. Only what the store takes counts in the time.
async fn fetch(
    request: StoreRequest,
    (bytes, silence): (Option<u64>, Duration),
    tell: &SyncSender<Result<Option<Bytes>, TransferError>>,
) -> Result<(), TransferError> {
    let response = ask_store(request, None, AnswerTimes { head: silence, piece: silence }).await?;
    let mut answer = accepted(response).await?;
    let has = answer.content_length();
    // Before anything is read: an object of another length cannot be the segment.
    if let (Some(found), Some(bytes)) = (has, bytes)
        && found != bytes
    {
        return Err(other_length(found, bytes));
    }
    if tell.send(Ok(Some(Bytes::new()))).is_err() {
        return Ok(());
    }
    let (mut waited, mut came) = (Duration::ZERO, 0_u64);
    loop {
        let begun = Instant::now();
        let Some(piece) = answer.chunk().await? else { break };
        waited += begun.elapsed();
        came = came.saturating_add(piece.len() as u64);
        // Silence alone would let a store send a byte a minute for ever.
        if waited > time(came, silence) {
            return Err(OutboundError::TimedOut.into());
        }
        // Without `Content-Length` nothing else bounds what a wrong endpoint sends.
        if came > bytes.unwrap_or(SMALL_BYTES_MAX) {
            return Err(OutboundError::TooLarge.into());
        }
        if tell.send(Ok(Some(piece))).is_err() {
            return Ok(());
        }
    }
    if let Some(bytes) = bytes
        && came != bytes
    {
        return Err(other_length(came, bytes));
    }
    drop(tell.send(Ok(None)));
    Ok(())
}

fn other_length(found: u64, bytes: u64) -> TransferError {
    let says = format!("the object has {found} bytes, and {bytes} were put there");
    TransferError::new(io::ErrorKind::InvalidData, says)
}

impl Read for ObjectStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() && !self.is_over {
            let next = wait(&self.receiver, self.stop.as_ref()).and_then(|receiver| receiver);
            match next.map_err(|failed| io::Error::new(failed.kind, failed.says))? {
                Some(piece) => self.piece = piece,
                None => self.is_over = true,
            }
        }
        let bytes = into.len().min(self.piece.len());
        let taken = self.piece.split_to(bytes);
        if let Some(into) = into.get_mut(..bytes) {
            into.copy_from_slice(&taken);
        }
        Ok(bytes)
    }
}

/// The next thing that the thread of a transfer tells.
fn wait<T>(receiver: &Receiver<T>, stop: Option<&Arc<AtomicBool>>) -> Result<T, TransferError> {
    loop {
        match receiver.recv_timeout(POLL) {
            Ok(receiver) => return Ok(receiver),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(TransferError::new(
                    io::ErrorKind::BrokenPipe,
                    "the transfer was broken off",
                ));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            return Err(TransferError::stopped());
        }
    }
}

fn on_a_thread(
    run: impl FnOnce(&tokio::runtime::Runtime) + Send + 'static,
) -> Result<(), TransferError> {
    // A thread with a runtime of its own: callers block, and some of them run within another runtime, where
    // `block_on` panics.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let named = std::thread::Builder::new().name("archive-transfer".to_owned());
    named.spawn(move || run(&runtime))?;
    Ok(())
}

/// Returns a successful answer; others become an error with the store's message and advice.
async fn accepted(answer: OutboundResponse) -> Result<OutboundResponse, TransferError> {
    let status = answer.status();
    if status == 200 {
        return Ok(answer);
    }
    let body = answer.whole_within(ERROR_BYTES_MAX).await.unwrap_or_default();
    let code = code_of(&body).unwrap_or_default();
    let kind = match (status, code.as_str()) {
        // `NotFound` means that the object is absent, from which callers conclude that it was never put
        // there.
        (404, "NoSuchBucket") | (301..=308, _) => io::ErrorKind::Other,
        (404, _) => io::ErrorKind::NotFound,
        (401 | 403, _) => io::ErrorKind::PermissionDenied,
        (507, _) => io::ErrorKind::QuotaExceeded,
        _ => io::ErrorKind::Other,
    };
    let help = help(status, &code);
    let code = if code.is_empty() { code } else { format!(" {code}") };
    let says = format!("it answers {status}{code}: {help}");
    Err(TransferError { kind, says, may_pass: matches!(status, 429 | 500 | 502..=504) })
}

/// Advice for the operator on an error response.
fn help(status: u16, code: &str) -> &'static str {
    match (status, code) {
        (_, "SignatureDoesNotMatch") => {
            "`secret_key` is not the one of `access_key`, or `region` is wrong"
        }
        (_, "InvalidAccessKeyId") => "it does not know `access_key`",
        (_, "RequestTimeTooSkewed" | "RequestExpired" | "ExpiredToken") => {
            "the clock of this machine is wrong by more than 15 minutes"
        }
        (_, "AuthorizationHeaderMalformed" | "PermanentRedirect") | (301..=308, _) => {
            "the bucket is in another `region`, or at another `endpoint`"
        }
        (401 | 403, _) => "the key may not put and get objects there: s3:PutObject, s3:GetObject",
        (404, "NoSuchBucket") => "there is no such `bucket` at this `endpoint`; make it",
        (404, _) => "it does not have the object",
        (_, "BadDigest" | "InvalidDigest") => "what came was not what was sent; it is tried again",
        (507, _) | (_, "QuotaExceeded" | "EntityTooLarge" | "XMinioStorageFull") => "it is full",
        (429 | 500..=599, _) => "it is tried again",
        _ => "this is no answer of an object store; look at `endpoint`",
    }
}

/// The code of an error: `<Code>NoSuchKey</Code>` in XML of which nothing else is wanted.
fn code_of(body: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(body);
    let (code, _) = text.split_once("<Code>")?.1.split_once("</Code>")?;
    let is_plain = code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (is_plain && !code.is_empty()).then(|| code.to_owned())
}
