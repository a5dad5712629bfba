//! Rows of customers and the operator: logins, ended sessions, codes and audit records.

use std::sync::Arc;

use super::{Batch, IN_DOUBT, RowSource, Store, StoreError, key, put, value};
use crate::projection::window::CustomerChanges;
use crate::records::act::{Act, IDS_KEPT};
use crate::records::code::Code;
use crate::records::holds::HoldsRow;
use crate::records::login::{Login, SessionId};
use crate::records::record::JournaledRecord;
use crate::rules::core::Core;
use crate::rules::shards::shard_index;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, CodeId, Seq};

const LOGIN: u8 = b'L';
const SESSION: u8 = b'S';
/// Hold rules of accounts.
const HOLDS: u8 = b'K';
const CODE: u8 = b'C';
const CODE_REVOKED: u8 = b'R';
const CODE_USE: u8 = b'U';
/// Row of the position in the fleet's directory.
const FOLLOWED: u8 = b'F';
/// All acts by their place.
pub(super) const ACT: u8 = b'A';
/// The places of an account's acts.
pub(super) const ACT_OF: u8 = b'B';
/// The places of acts that carry an id, by when they were done.
pub(super) const ACT_ID: u8 = b'I';

/// Loads the state of customers and of the operator.
pub(super) fn load_people(rows: &dyn RowSource, cores: &mut [Core]) -> Result<(), StoreError> {
    let unknown = || StoreError::new("a row belongs to no account".to_owned());
    for row in rows.with_prefix(&[LOGIN]) {
        let login: Arc<Login> = postcard::from_bytes(&row?.1)?;
        let core = &mut cores[shard_index(login.account)];
        let state = core.state_mut(login.account).ok_or_else(unknown)?;
        state.customers.login = Some(login);
    }
    for row in rows.with_prefix(&[SESSION]) {
        let (account, session, until): (AccountId, SessionId, UnixMs) =
            postcard::from_bytes(&row?.1)?;
        let core = &mut cores[shard_index(account)];
        // The operator has no row of an account: its sessions live in the shard that has its state.
        if account == AccountId::OPERATOR {
            core.operator.ended.insert(session, until);
            continue;
        }
        let state = core.state_mut(account).ok_or_else(unknown)?;
        state.customers.ended.insert(session, until);
    }
    for row in rows.with_prefix(&[IN_DOUBT]) {
        let journaled: JournaledRecord = postcard::from_bytes(&row?.1)?;
        let account = journaled.record.account();
        let state = cores[shard_index(account)].state_mut(account).ok_or_else(unknown)?;
        state.customers.doubts.extend(journaled.record.open_hold());
    }
    let operator = &mut cores[shard_index(AccountId::OPERATOR)].operator;
    for row in rows.with_prefix(&[CODE]) {
        let code: Arc<Code> = postcard::from_bytes(&row?.1)?;
        let revoked_at = value(rows, &key(CODE_REVOKED, &[&code.id.number().to_be_bytes()]))?;
        operator.restore(code, revoked_at);
    }
    for row in rows.with_prefix(&[CODE_USE]) {
        let (code, by, at): (CodeId, AccountId, UnixMs) = postcard::from_bytes(&row?.1)?;
        let state = operator.codes.get_mut(&code);
        state.ok_or_else(|| StoreError::new("a use of no code".to_owned()))?.uses.insert(by, at);
    }
    for row in rows.with_prefix(&[HOLDS]) {
        let HoldsRow { account, holds } = postcard::from_bytes(&row?.1)?;
        let state = cores[shard_index(account)].state_mut(account).ok_or_else(unknown)?;
        state.customers.restore_holds(&holds);
    }
    super::prices::load_prices(rows, cores)?;
    let operator = &mut cores[shard_index(AccountId::OPERATOR)].operator;
    operator.followed = value(rows, &[FOLLOWED])?.unwrap_or(0);
    Ok(())
}

/// Gives every act among `rows` to `take`, oldest first.
pub(crate) fn each_act(
    rows: &dyn RowSource,
    mut take: impl FnMut(Seq, Act),
) -> Result<(), StoreError> {
    for row in rows.with_prefix(&[ACT]) {
        let (seq, act) = postcard::from_bytes(&row?.1)?;
        take(seq, act);
    }
    Ok(())
}

impl Store {
    /// The acts whose ids are still remembered, oldest first.
    pub(crate) fn acts_with_ids(&self, now: UnixMs) -> Result<Vec<(Seq, Arc<Act>)>, StoreError> {
        let kept_ms = u64::try_from(IDS_KEPT.as_millis()).unwrap_or(u64::MAX);
        let begin = key(ACT_ID, &[&now.0.saturating_sub(kept_ms).to_be_bytes()]);
        let mut found = Vec::new();
        for row in self.db.range(begin..vec![ACT_ID + 1]) {
            let seq: Seq = postcard::from_bytes(&row?.1)?;
            found.extend(self.act(seq)?.map(|act| (seq, act)));
        }
        Ok(found)
    }

    /// At most `limit` audit records before `before`, newest first, of one account or all.
    pub(crate) fn acts(
        &self,
        account: Option<AccountId>,
        before: Seq,
        limit: usize,
    ) -> Result<Vec<(Seq, Act)>, StoreError> {
        let before = before.to_be_bytes();
        let mut found = Vec::new();
        match account {
            None => {
                let rows = self.db.range(key(ACT, &[])..key(ACT, &[&before]));
                for row in rows.rev().take(limit) {
                    found.push(postcard::from_bytes(&row?.1)?);
                }
            }
            Some(account) => {
                let account = account.number().to_be_bytes();
                let rows = key(ACT_OF, &[&account])..key(ACT_OF, &[&account, &before]);
                for row in self.db.range(rows).rev().take(limit) {
                    let seq: Seq = postcard::from_bytes(&row?.1)?;
                    found.extend(self.value(&key(ACT, &[&seq.to_be_bytes()]))?);
                }
            }
        }
        Ok(found)
    }

    fn act(&self, seq: Seq) -> Result<Option<Arc<Act>>, StoreError> {
        let row: Option<(Seq, Arc<Act>)> = self.value(&key(ACT, &[&seq.to_be_bytes()]))?;
        Ok(row.map(|(_, act)| act))
    }

    /// Gives every act to `take`, oldest first.
    pub(crate) fn each_act(&self, mut take: impl FnMut(Seq, &Act)) -> Result<(), StoreError> {
        each_act(&self.db, |seq, act| take(seq, &act))
    }

    /// Removes sessions that would have ended by now.
    pub(crate) fn forget_sessions(&self, now: UnixMs) -> Result<(), StoreError> {
        let mut batch = Batch::default();
        for row in self.db.scan_prefix([SESSION]) {
            let (key, value) = row?;
            let (_, _, until): (AccountId, SessionId, UnixMs) = postcard::from_bytes(&value)?;
            if until <= now {
                batch.remove(key);
            }
        }
        self.write(batch)
    }
}

/// Writes a window's changes to customers and to the operator.
pub(super) fn put_people(batch: &mut Batch, changes: &CustomerChanges) -> Result<(), StoreError> {
    for (account, login) in &changes.logins {
        put(batch, key(LOGIN, &[&account.number().to_be_bytes()]), login)?;
    }
    for row @ (account, session, _) in &changes.ended {
        put(batch, key(SESSION, &[&account.number().to_be_bytes(), session]), row)?;
    }
    for (account, holds) in &changes.holds {
        let row = HoldsRow { account: *account, holds: Arc::clone(holds) };
        put(batch, key(HOLDS, &[&account.number().to_be_bytes()]), &row)?;
    }
    super::prices::put_prices(batch, changes)?;
    for code in &changes.codes {
        put(batch, key(CODE, &[&code.id.number().to_be_bytes()]), code)?;
    }
    for (code, at) in &changes.revoked {
        put(batch, key(CODE_REVOKED, &[&code.number().to_be_bytes()]), at)?;
    }
    for row @ (code, by, _) in &changes.uses {
        let (code, by) = (code.number().to_be_bytes(), by.number().to_be_bytes());
        put(batch, key(CODE_USE, &[&code, &by]), row)?;
    }
    for row @ (seq, act) in &changes.acts {
        let place = seq.to_be_bytes();
        put(batch, key(ACT, &[&place]), row)?;
        put(batch, key(ACT_OF, &[&act.account.number().to_be_bytes(), &place]), seq)?;
        // Only writes with a key are ever looked up by time, and most have none.
        if act.id.is_some() {
            put(batch, key(ACT_ID, &[&act.at.0.to_be_bytes(), &place]), seq)?;
        }
    }
    if let Some(seq) = changes.followed {
        put(batch, vec![FOLLOWED], &seq)?;
    }
    // After the rows of new doubts, which `apply` puts before this: a doubt of the same window may be
    // resolved by now.
    for hold in &changes.resolved {
        batch.remove(key(IN_DOUBT, &[&hold.number().to_be_bytes()]));
    }
    super::tasks::put_listed(batch, changes)
}
