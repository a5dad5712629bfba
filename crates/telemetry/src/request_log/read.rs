//! Lists, newest first, and single records.

use std::io;
use std::time::Duration;

use tollgate_journal::ring::RingReader;

use super::record::{self, FrameContent, FrameHead, LAYOUT, NOBODY, RequestRecord, RingPosition};
use super::{Page, Query, ReadError, Scope, StatusFilter};
use tollgate_ledger::{AccountId, RequestId};

/// Maximum number of records of a list.
pub const LIST_MAX: usize = 500;
/// The most records that one list reads. With filters that fit few, a page ends there and says where
/// to go on: some 20 ms from memory.
pub const SCAN_MAX: usize = 20_000;
/// Maximum number of bytes read to find one request: some 40 ms from memory.
const FIND_BYTES_MAX: u64 = 256 << 20;
/// A request's record stands behind others that had ended before it began, but for this long: a
/// clock may have been set back.
const CLOCK_SLACK_MS: u64 = 5_000;

impl Scope {
    /// Chain with the scope's records; `None` for all records.
    pub(super) fn chain(self) -> Option<u64> {
        match self {
            Self::All => None,
            Self::Unauthenticated => Some(NOBODY),
            Self::Account(account) => Some(account.number()),
        }
    }

    /// True if a record of this account belongs to the scope.
    pub(super) fn has(self, account: Option<AccountId>) -> bool {
        self.chain().is_none_or(|chain| chain == account.map_or(NOBODY, AccountId::number))
    }
}

impl StatusFilter {
    fn fits(self, status: u16) -> bool {
        match self {
            Self::Exactly(expected) => status == expected,
            Self::Class(class) => status / 100 == u16::from(class),
        }
    }
}

impl Query {
    fn fits(&self, stored: &FrameContent<'_>) -> bool {
        self.model.as_ref().is_none_or(|model| stored.names(model))
            && self.key.is_none_or(|key| stored.key == Some(key))
            && self.status.is_none_or(|status| status.fits(stored.status))
            && (!self.errors_only || stored.is_error())
    }
}

/// One page of a scope; `newest` is its newest record if it is one account's.
pub(super) fn list(
    reader: &mut RingReader,
    newest: Option<RingPosition>,
    scope: Scope,
    query: &Query,
) -> Result<Page, ReadError> {
    let limit = query.limit.clamp(1, LIST_MAX);
    let mut page = Page::default();
    let mut next = first(reader, newest, scope, query.before)?;
    let mut scanned = 0;
    while let Some(position) = next {
        // `next` stays set: the caller goes on from the last record that was looked at.
        if page.records.len() == limit || scanned == SCAN_MAX {
            return Ok(page);
        }
        let Some(frame) = reader.frame_at(position)? else { break };
        // A damaged link may lead to a record of another account, which is never shown.
        let Some(head) = record::head(frame).filter(|head| is_of(head, scope)) else { break };
        if let Some(stored) = record::stored(frame).filter(|stored| query.fits(stored)) {
            page.records.push(stored.shown(position, &head));
        }
        scanned += 1;
        page.next = Some(position);
        next = before(reader, scope, position, &head)?;
    }
    page.next = None;
    Ok(page)
}

/// True if a record belongs to the scope, checked again on each record that is read.
fn is_of(head: &FrameHead, scope: Scope) -> bool {
    scope.chain().is_none_or(|chain| chain == head.account)
}

/// Position at which a page begins.
fn first(
    reader: &mut RingReader,
    newest: Option<RingPosition>,
    scope: Scope,
    cursor: Option<RingPosition>,
) -> Result<Option<RingPosition>, ReadError> {
    let Some(cursor) = cursor else {
        let end = reader.segments().last().map_or(0, |last| last.end());
        return Ok(match scope.chain() {
            Some(_) => newest,
            None => reader.before(end)?,
        });
    };
    if reader.is_removed(cursor) {
        return Ok(None);
    }
    let head = reader.frame_at(cursor)?.and_then(record::head);
    let head = head.filter(|head| is_of(head, scope)).ok_or(ReadError::UnknownPosition)?;
    Ok(before(reader, scope, cursor, &head)?)
}

/// The previous record of the scope.
fn before(
    reader: &mut RingReader,
    scope: Scope,
    position: RingPosition,
    head: &FrameHead,
) -> io::Result<Option<RingPosition>> {
    if scope.chain().is_none() {
        return reader.before(position);
    }
    // A damaged link could lead forwards, and round in circles.
    let previous = Some(head.previous).filter(|previous| (1..position).contains(previous));
    Ok(previous.filter(|previous| !reader.is_removed(*previous)))
}

/// The record at a position, if it is of this scope and of this request.
pub(super) fn at(
    reader: &mut RingReader,
    scope: Scope,
    position: RingPosition,
    id: RequestId,
) -> io::Result<Option<RequestRecord>> {
    if reader.is_removed(position) {
        return Ok(None);
    }
    let frame = reader.frame_at(position)?;
    let Some(frame) = frame.filter(|frame| record::has_mark(frame, &record::mark_of(id))) else {
        return Ok(None);
    };
    let head = record::head(frame).filter(|head| is_of(head, scope));
    let stored = record::stored(frame);
    Ok(head.zip(stored).map(|(head, stored)| stored.shown(position, &head)))
}

/// The record of a request, if the scope has it. Ids are ordered by when requests began, records by
/// when they ended.
pub(super) fn find(
    reader: &mut RingReader,
    scope: Scope,
    id: RequestId,
) -> io::Result<Option<RequestRecord>> {
    let began = id.began_at().0.saturating_sub(CLOCK_SLACK_MS);
    let segments = reader.segments().to_vec();
    let mut begins = Vec::new();
    for segment in &segments {
        let first = reader.frame_at(segment.first())?.and_then(record::head);
        begins.push(first.map_or(0, |head| head.ended_at.0));
    }
    // Records are in the order of their ends: the file before the first one that begins later may hold the
    // request.
    let behind = begins.partition_point(|begin| *begin < began);
    let (mark, mut left) = (record::mark_of(id), FIND_BYTES_MAX);
    for segment in segments.iter().skip(behind.saturating_sub(1)) {
        let mut position = segment.first();
        while let Some(frame) = reader.frame_ahead(position)? {
            let length = frame.len() as u64;
            // Only what may be it is worth a checksum.
            if record::has_mark(frame, &mark)
                && LAYOUT.is_whole(frame)
                && let Some(head) = record::head(frame).filter(|head| is_of(head, scope))
                && let Some(stored) = record::stored(frame)
            {
                return Ok(Some(stored.shown(position, &head)));
            }
            position += length;
            left = left.saturating_sub(length);
            if left == 0 {
                return Ok(None);
            }
        }
    }
    Ok(None)
}

/// Time that a list waits for records that are being written, and for the log to be opened.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(2);
