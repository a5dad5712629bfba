//! Log of finished requests for people: customers' lists, operators' live tail. It may lose records; the
//! ledger is authoritative.
//!
//! It may lose the last second in a crash, never makes a request wait, and its disk use is bounded.
//!
//! | File | What it knows |
//! |---|---|
//! | `record` | what is kept of one request, and its bytes |
//! | `queue` | records that wait to be written |
//! | `writer` | the thread that writes them, and removes the oldest |
//! | `heads` | where each account's chain of records begins |
//! | `read` | lists and single records |
//! | `feed` | records as they come |

mod feed;
mod heads;
mod queue;
mod read;
mod record;
mod writer;

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::broadcast;
use tollgate_journal::ring::{RingReader, Segment};

use crate::finished::{FinishedRequest, TaskEnded};
use heads::Heads;
use queue::FrameQueue;
use record::{FrameContent, LAYOUT, NOBODY};
use tollgate_ledger::{AccountId, KeyId, RequestId};
use tollgate_types::clock::UnixMs;
use writer::LogWriter;

pub use feed::{Feed, Live};
pub use read::{LIST_MAX, SCAN_MAX};
pub use record::{RequestRecord, RingPosition};
pub use tollgate_options::request_log::SIZE_MIN;

/// Owner of the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One customer's. Nothing of another one is ever given.
    Account(AccountId),
    /// Requests whose key was not recognised.
    Unauthenticated,
    /// The requests of all accounts, for operators.
    All,
}

/// Filter of the records of a scope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Only records before this position.
    pub before: Option<RingPosition>,
    /// Maximum number of records, at most [`LIST_MAX`].
    pub limit: usize,
    /// Requests of this model only.
    pub model: Option<String>,
    /// Requests of this key only.
    pub key: Option<KeyId>,
    /// Only requests with this status.
    pub status: Option<StatusFilter>,
    /// Only requests that have failed.
    pub errors_only: bool,
}

/// Filter by status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusFilter {
    /// Requests with exactly this status.
    Exactly(u16),
    /// All statuses with this first digit; 0 for requests without an answer.
    Class(u8),
}

impl std::str::FromStr for StatusFilter {
    type Err = &'static str;

    /// Reads `429` or `4xx`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "a status such as `429`, or a class such as `4xx`";
        let (digits, is_class) = text.strip_suffix("xx").map_or((text, false), |it| (it, true));
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        match (digits.len(), is_class, is_number) {
            (1, true, true) => {
                let class = digits.parse().ok().filter(|class| *class <= 5);
                class.map(Self::Class).ok_or(EXPECTED)
            }
            (3, false, true) => digits.parse().map(Self::Exactly).map_err(|_| EXPECTED),
            _ => Err(EXPECTED),
        }
    }
}

/// Page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The records of the page, the newest first.
    pub records: Vec<RequestRecord>,
    /// Cursor of the next page, as [`Query::before`]; `None` at the end. There may be a next page although
    /// this one is not full: one page reads at most [`SCAN_MAX`] records.
    pub next: Option<RingPosition>,
}

/// Reason why nothing was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// There is no record of the scope at [`Query::before`].
    UnknownPosition,
    /// The files could not be read.
    Failed(String),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownPosition => f.write_str("there is no record at this position"),
            Self::Failed(cause) => write!(f, "the request log could not be read: {cause}"),
        }
    }
}

impl std::error::Error for ReadError {}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Records dropped since the start, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DroppedRecords {
    /// Records dropped since they came faster than they could be written.
    pub queue_full: u64,
    /// There were too many requests without a recognised key.
    pub unauthenticated: u64,
    /// The disk refused them.
    pub disk: u64,
}

/// Figures of the log for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogFigures {
    /// Records received since the start.
    pub records: u64,
    /// Records dropped since the start.
    pub dropped: DroppedRecords,
    /// Bytes of its files.
    pub bytes: u64,
}

/// Shared state of the writer and readers.
struct LogState {
    queue: FrameQueue,
    index: Mutex<LogIndex>,
    opened: Condvar,
    live: broadcast::Sender<Arc<RequestRecord>>,
}

/// Positions of the records.
#[derive(Default)]
struct LogIndex {
    /// The files of the log, the oldest first.
    segments: Vec<Segment>,
    heads: Heads,
    is_open: bool,
}

impl LogState {
    fn index(&self) -> MutexGuard<'_, LogIndex> {
        self.index.lock()
    }

    fn change(&self, change: impl FnOnce(&mut LogIndex)) {
        change(&mut self.index.lock());
    }

    /// The files, and the newest record of one account's scope.
    fn look(
        &self,
        scope: Scope,
        deadline: Instant,
    ) -> Result<(Vec<Segment>, Option<RingPosition>), ReadError> {
        let mut index = self.index.lock();
        // The writer's thread opens the files: a list in the first moments of a process waits for it.
        while !index.is_open {
            if self.opened.wait_until(&mut index, deadline).timed_out() {
                return Err(ReadError::Failed("it is still being opened".to_owned()));
            }
        }
        // Under the same lock as the files: a head must lie in the files that are read with it.
        let newest = scope.chain().and_then(|chain| index.heads.get(&chain).copied());
        Ok((index.segments.clone(), newest))
    }

    fn ready(&self) {
        self.index.lock().is_open = true;
        self.opened.notify_all();
    }
}

/// The log of what requests came to. It is either kept in files or off.
pub struct RequestLog {
    shared: Option<Arc<LogState>>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

thread_local! {
    /// Buffer in which a thread encodes its record.
    static FRAME: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl RequestLog {
    /// Opens the log in a directory, which is made if it does not exist, and keeps it within
    /// `size_max` bytes (at least [`SIZE_MIN`]). Returns at once: a thread of its own reads what
    /// there is. One process at a time.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn open(dir: impl Into<PathBuf>, size_max: u64) -> io::Result<Arc<Self>> {
        let shared = Arc::new(LogState {
            queue: FrameQueue::default(),
            index: Mutex::default(),
            opened: Condvar::new(),
            live: broadcast::Sender::new(feed::FEED_RECORDS_MAX),
        });
        let writer = LogWriter::new(Arc::clone(&shared), dir.into(), size_max.max(SIZE_MIN));
        let thread = std::thread::Builder::new().name("request-log".to_owned());
        let writer = thread.spawn(move || writer.run())?;
        Ok(Arc::new(Self { shared: Some(shared), writer: Mutex::new(Some(writer)) }))
    }

    /// A log that keeps nothing.
    #[must_use]
    pub fn off() -> Arc<Self> {
        Arc::new(Self { shared: None, writer: Mutex::default() })
    }

    /// True if the log is enabled.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.shared.is_some()
    }

    /// Keeps a request that is over, if it asked for an operation or failed: pages and documents
    /// that were just read are not worth it. Does not wait.
    pub fn record(&self, finished: &FinishedRequest<'_>) {
        let failed = finished.status >= 400 || !finished.error_code.is_empty();
        if finished.operation.is_some() || failed {
            let ended_at = finished.ended_at;
            self.push(finished.account_id, ended_at, || FrameContent::of_request(finished));
        }
    }

    /// Keeps the end of a task. Does not wait.
    pub fn record_task(&self, ended: &TaskEnded<'_>) {
        self.push(Some(ended.account_id), UnixMs::now(), || FrameContent::of_task(ended));
    }

    fn push<'a>(
        &self,
        account: Option<AccountId>,
        ended_at: UnixMs,
        stored: impl FnOnce() -> FrameContent<'a>,
    ) {
        let Some(shared) = &self.shared else { return };
        let number = account.map_or(NOBODY, AccountId::number);
        // The queue copies the frame, so the buffer serves the next request and none allocates.
        FRAME.with_borrow_mut(|frame| {
            if record::encode(frame, number, ended_at, &stored()).is_ok() {
                shared.queue.push(frame, account.is_none(), ended_at.seconds());
            }
        });
    }

    /// Part of the records of a scope, newest first. Everything that was over before the call is in
    /// it, unless it was dropped.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn list(&self, scope: Scope, query: Query) -> Result<Page, ReadError> {
        let list = move |reader: &mut RingReader, newest| read::list(reader, newest, scope, &query);
        self.read(scope, list).await
    }

    /// The record of a request, if the scope has it. Of a gateway with very many requests an older
    /// one may not be found although the log still has it: the search is bounded.
    ///
    /// # Errors
    /// [`ReadError::Failed`].
    pub async fn find(
        &self,
        scope: Scope,
        id: RequestId,
    ) -> Result<Option<RequestRecord>, ReadError> {
        self.read(scope, move |reader, _| Ok(read::find(reader, scope, id)?)).await
    }

    /// The record of a request at the position where a list had it; `None` if it is not there.
    ///
    /// # Errors
    /// [`ReadError::Failed`].
    pub async fn at(
        &self,
        scope: Scope,
        position: RingPosition,
        id: RequestId,
    ) -> Result<Option<RequestRecord>, ReadError> {
        self.read(scope, move |reader, _| Ok(read::at(reader, scope, position, id)?)).await
    }

    /// The records of a scope from now on, some tenths of a second after they are over. `None` when
    /// the log is off.
    #[must_use]
    pub fn follow(&self, scope: Scope) -> Option<Feed> {
        let shared = self.shared.as_ref()?;
        Some(Feed::new(shared.live.subscribe(), scope))
    }

    /// Number of current followers.
    #[must_use]
    pub fn followers(&self) -> usize {
        self.shared.as_ref().map_or(0, |shared| shared.live.receiver_count())
    }

    /// Figures for the metrics.
    #[must_use]
    pub fn figures(&self) -> LogFigures {
        let Some(shared) = &self.shared else { return LogFigures::default() };
        let (records, dropped) = shared.queue.counts();
        let bytes = shared.index().segments.iter().map(|segment| segment.bytes).sum();
        LogFigures { records, dropped, bytes }
    }

    /// Writes what has gathered and takes nothing more. Blocks for a moment.
    pub fn close(&self) {
        if let Some(shared) = &self.shared {
            shared.queue.close();
        }
        // Taken: `close` runs again when the log is dropped.
        if let Some(writer) = self.writer.lock().take()
            && writer.join().is_err()
        {
            log::error!("the request log's thread panicked");
        }
    }

    /// Reads off the async threads, once everything so far is written.
    async fn read<T: Send + Default + 'static>(
        &self,
        scope: Scope,
        read: impl FnOnce(&mut RingReader, Option<RingPosition>) -> Result<T, ReadError>
        + Send
        + 'static,
    ) -> Result<T, ReadError> {
        let Some(shared) = self.shared.clone() else { return Ok(T::default()) };
        let reading = move || {
            // A page that is read right after a request has that request in it.
            shared.queue.flush(read::WAIT_MAX);
            let (segments, newest) = shared.look(scope, Instant::now() + read::WAIT_MAX)?;
            read(&mut RingReader::new(segments, LAYOUT), newest)
        };
        match tokio::task::spawn_blocking(reading).await {
            Ok(answer) => answer,
            Err(error) => Err(ReadError::Failed(error.to_string())),
        }
    }
}

impl Drop for RequestLog {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for RequestLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RequestLog")
    }
}
