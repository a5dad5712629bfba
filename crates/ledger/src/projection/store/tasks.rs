//! Rows of tasks, and what finds them: by their state, by their upstream's id, by their age.

use std::sync::Arc;

use super::{Batch, MemoryRows, RowSource, Store, StoreError, key, put, value};
use crate::projection::window::CustomerChanges;
use crate::records::task::{DeliveryAttempt, EndedTask, Task, TaskPhase};
use crate::rules::core::Core;
use crate::rules::shards::shard_index;
use crate::rules::submit::{SubmitMemo, submit_of};
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, TaskId};

const TASK_DONE: u8 = b'f';
const TASK_NATIVE: u8 = b'n';
const TASK_OPEN: u8 = b'o';
const SUBMIT: u8 = b's';
pub(super) const TASK: u8 = b't';
/// All tasks by when they were submitted.
const TASK_AT: u8 = b'T';
/// Index of tasks by account.
const TASK_OF: u8 = b'O';
/// The last tries to announce tasks' ends.
const TRIED: u8 = b'w';
/// Parts of documents that are too large for the row of their task, which has an empty one then.
pub(super) const DOCUMENT_PART: u8 = b'J';
/// Key prefixes of the task indexes.
pub(super) const LISTED: [u8; 5] = [TASK_DONE, TASK_NATIVE, TASK_AT, TASK_OF, TRIED];

/// The largest part of a document in one row: rows of sled have a bound.
const PART_BYTES: usize = 16 << 10;

/// Rows that one page looks at: where few tasks are wanted, a page comes with fewer of them, and the
/// next goes on behind it.
const LOOKED_AT_MAX: usize = 5_000;

/// Loads the tasks for which something remains to be done, and the submits.
pub(super) fn load_tasks(rows: &dyn RowSource, cores: &mut [Core]) -> Result<(), StoreError> {
    let unknown = || StoreError::new("a row belongs to no account".to_owned());
    for row in rows.with_prefix(&[TASK_OPEN]) {
        let id: TaskId = postcard::from_bytes(&row?.1)?;
        let task = whole_task(rows, id)?.ok_or_else(unknown)?;
        cores[shard_index(task.intent.account)].restore_task(Arc::new(task));
    }
    for row in rows.with_prefix(&[SUBMIT]) {
        let (account, name, submit): (AccountId, [u8; 32], SubmitMemo) =
            postcard::from_bytes(&row?.1)?;
        let state = cores[shard_index(account)].state_mut(account).ok_or_else(unknown)?;
        state.submits.insert(name, submit);
    }
    Ok(())
}

/// A task with its complete document.
fn whole_task(rows: &dyn RowSource, id: TaskId) -> Result<Option<Task>, StoreError> {
    let mut task: Option<Task> = value(rows, &task_key(id))?;
    if let Some(TaskPhase::Ended(ended)) = task.as_mut().map(|task| &mut task.stage)
        && ended.document.is_empty()
    {
        let mut whole = Vec::new();
        for row in rows.with_prefix(&parts_key(id)) {
            whole.extend_from_slice(&row?.1);
        }
        let unreadable = |_| StoreError::new("the document of a task cannot be read");
        ended.document = String::from_utf8(whole).map_err(unreadable)?;
    }
    Ok(task)
}

impl Store {
    /// Adds the rows of the tasks of which something remains to be done, as `rows` name them.
    pub(super) fn add_open_tasks(&self, rows: &mut MemoryRows) -> Result<(), StoreError> {
        let open: Vec<TaskId> = rows
            .with_prefix(&[TASK_OPEN])
            .map(|row| Ok(postcard::from_bytes(&row?.1)?))
            .collect::<Result<_, StoreError>>()?;
        for id in open {
            let key = task_key(id);
            if let Some(task) = self.db.get(&key)? {
                rows.take(key, task.to_vec());
            }
            for row in self.db.scan_prefix(parts_key(id)) {
                let (key, part) = row?;
                rows.take(key.to_vec(), part.to_vec());
            }
        }
        Ok(())
    }

    /// The task of this id, or the account's of this upstream's id.
    pub(crate) fn task(
        &self,
        account: AccountId,
        id: Option<TaskId>,
        native: &str,
    ) -> Result<Option<Task>, StoreError> {
        let id = match id {
            Some(id) => Some(id),
            None => self.value(&native_key(account, native))?,
        };
        id.map_or(Ok(None), |id| whole_task(&self.db, id))
    }

    /// Removes tasks that ended before `before`, the oldest first, and the submits that nobody can
    /// repeat any more. The journal still has them; a sled ledger that is rebuilt from it forgets them
    /// again.
    pub(crate) fn forget_tasks(&self, before: UnixMs, limit: usize) -> Result<usize, StoreError> {
        let mut batch = Batch::default();
        let mut forgotten = 0;
        let until = key(TASK_DONE, &[&before.0.to_be_bytes()]);
        for row in self.db.range(key(TASK_DONE, &[])..until).take(limit) {
            let (done_key, id) = row?;
            let id: TaskId = postcard::from_bytes(&id)?;
            let task: Option<Task> = self.value(&task_key(id))?;
            if let Some(task) = task {
                let (account, at) = (task.intent.account, task.intent.at);
                if let Some(native) = task.upstream_id() {
                    batch.remove(native_key(account, native));
                }
                if let Some((name, _)) = submit_of(&task) {
                    batch.remove(submit_key(account, &name));
                }
                batch.remove(listed_key(None, at, id));
                batch.remove(listed_key(Some(account), at, id));
                batch.remove(tried_key(id));
            }
            for row in self.db.scan_prefix(parts_key(id)) {
                batch.remove(row?.0);
            }
            batch.remove(task_key(id));
            batch.remove(done_key);
            forgotten += 1;
        }
        self.write(batch)?;
        Ok(forgotten)
    }

    /// At most `limit` tasks that satisfy `is_match`, newest first, of one account or all, after `after`; and
    /// the task after which to continue if there may be more. `None` if `after` does not exist.
    pub(crate) fn tasks(
        &self,
        account: Option<AccountId>,
        after: Option<TaskId>,
        limit: usize,
        is_match: impl Fn(&Task) -> bool,
    ) -> Result<Option<ListedTasks>, StoreError> {
        let end = match after {
            None => listed_end(account),
            Some(id) => match self.value::<Task>(&task_key(id))? {
                Some(task) => listed_key(account, task.intent.at, id),
                None => return Ok(None),
            },
        };
        let (mut found, mut looked_at) = (Vec::new(), 0_usize);
        let begin = listed_begin(account);
        for row in self.db.range(begin..end).rev() {
            let id: TaskId = postcard::from_bytes(&row?.1)?;
            looked_at = looked_at.saturating_add(1);
            let task = whole_task(&self.db, id)?;
            if let Some(task) = task.filter(&is_match) {
                found.push((task, self.value(&tried_key(id))?));
            }
            if found.len() >= limit || looked_at >= LOOKED_AT_MAX {
                return Ok(Some(ListedTasks { tasks: found, next_after: Some(id) }));
            }
        }
        Ok(Some(ListedTasks { tasks: found, next_after: None }))
    }

    /// The last try to announce a task's end.
    pub(crate) fn tried(&self, id: TaskId) -> Result<Option<DeliveryAttempt>, StoreError> {
        self.value(&tried_key(id))
    }
}

/// A page of tasks.
#[derive(Debug)]
pub(crate) struct ListedTasks {
    pub(crate) tasks: Vec<(Task, Option<DeliveryAttempt>)>,
    pub(crate) next_after: Option<TaskId>,
}

/// Index rows of tasks by age, and the last webhook attempts.
pub(super) fn put_listed(batch: &mut Batch, changes: &CustomerChanges) -> Result<(), StoreError> {
    for (id, (account, at)) in &changes.begun {
        put(batch, listed_key(None, *at, *id), id)?;
        put(batch, listed_key(Some(*account), *at, *id), id)?;
    }
    for (id, tried) in &changes.tried {
        put(batch, tried_key(*id), tried)?;
    }
    Ok(())
}

fn listed_begin(account: Option<AccountId>) -> Vec<u8> {
    match account {
        None => key(TASK_AT, &[]),
        Some(account) => key(TASK_OF, &[&account.number().to_be_bytes()]),
    }
}

/// Behind the last key: no task was submitted at the end of time.
fn listed_end(account: Option<AccountId>) -> Vec<u8> {
    listed_key(account, UnixMs(u64::MAX), TaskId::from_number(u128::MAX))
}

fn listed_key(account: Option<AccountId>, at: UnixMs, id: TaskId) -> Vec<u8> {
    let mut key = listed_begin(account);
    key.extend_from_slice(&at.0.to_be_bytes());
    key.extend_from_slice(&id.number().to_be_bytes());
    key
}

fn tried_key(id: TaskId) -> Vec<u8> {
    key(TRIED, &[&id.number().to_be_bytes()])
}

/// A task, what finds it, and whether something remains to be done for it.
pub(super) fn put_task(batch: &mut Batch, task: &Task) -> Result<(), StoreError> {
    let (id, account) = (task.id(), task.intent.account);
    put_whole(batch, task)?;
    let open_key = key(TASK_OPEN, &[&id.number().to_be_bytes()]);
    if task.is_done() {
        batch.remove(open_key);
    } else {
        put(batch, open_key, &id)?;
    }
    if let Some(native) = task.upstream_id() {
        put(batch, native_key(account, native), &id)?;
    }
    if let Some(ended) = task.ended() {
        let number = id.number().to_be_bytes();
        put(batch, key(TASK_DONE, &[&ended.at.0.to_be_bytes(), &number]), &id)?;
    }
    match submit_of(task) {
        Some((name, Some(submit))) => {
            put(batch, submit_key(account, &name), &(account, name, submit))?;
        }
        Some((name, None)) => batch.remove(submit_key(account, &name)),
        None => {}
    }
    Ok(())
}

/// The row of a task, and those of its document's parts where one row is too small for it.
fn put_whole(batch: &mut Batch, task: &Task) -> Result<(), StoreError> {
    let id = task.id();
    let Some(ended) = task.ended().filter(|ended| ended.document.len() > PART_BYTES) else {
        return put(batch, task_key(id), task);
    };
    for (part, number) in ended.document.as_bytes().chunks(PART_BYTES).zip(0_u16..) {
        let mut key = parts_key(id);
        key.extend_from_slice(&number.to_be_bytes());
        batch.insert(key, part);
    }
    let without = EndedTask { document: String::new(), ..ended.clone() };
    put(batch, task_key(id), &Task { stage: TaskPhase::Ended(without), ..task.clone() })
}

fn parts_key(id: TaskId) -> Vec<u8> {
    key(DOCUMENT_PART, &[&id.number().to_be_bytes()])
}

fn task_key(id: TaskId) -> Vec<u8> {
    key(TASK, &[&id.number().to_be_bytes()])
}

fn native_key(account: AccountId, native: &str) -> Vec<u8> {
    key(TASK_NATIVE, &[&account.number().to_be_bytes(), native.as_bytes()])
}

fn submit_key(account: AccountId, name: &[u8; 32]) -> Vec<u8> {
    key(SUBMIT, &[&account.number().to_be_bytes(), name])
}
