//! What a stretch of the journal says of people: logins, codes, acts and the like.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::collections::HashMap;
use std::sync::Arc;

use crate::clock::UnixMs;
use crate::ids::{AccountId, CodeId, HoldId, Seq, TaskId};
use crate::ledger::records::act::Act;
use crate::ledger::records::code::Code;
use crate::ledger::records::login::{Login, SessionId};
use crate::ledger::records::record::Record;
use crate::ledger::records::task::{Stage, Tried};
use crate::ledger::rules::account::Account;

/// Everything about people that one window changes.
#[derive(Default)]
pub(in crate::ledger) struct PeopleChanges {
    renamed: HashMap<AccountId, String>,
    suspended: HashMap<AccountId, bool>,
    pub(in crate::ledger) logins: HashMap<AccountId, Arc<Login>>,
    pub(in crate::ledger) ended: Vec<(AccountId, SessionId, UnixMs)>,
    pub(in crate::ledger) codes: Vec<Arc<Code>>,
    pub(in crate::ledger) revoked: HashMap<CodeId, UnixMs>,
    pub(in crate::ledger) uses: Vec<(CodeId, AccountId, UnixMs)>,
    pub(in crate::ledger) acts: Vec<(Seq, Arc<Act>)>,
    /// Holds that are in doubt no more.
    pub(in crate::ledger) resolved: Vec<HoldId>,
    /// The last try of each task's announcement.
    pub(in crate::ledger) tried: HashMap<TaskId, Arc<Tried>>,
    /// How far the fleet's directory was followed.
    pub(in crate::ledger) followed: Option<Seq>,
    /// Tasks that were submitted.
    pub(in crate::ledger) begun: HashMap<TaskId, (AccountId, UnixMs)>,
}

impl PeopleChanges {
    /// Takes a record, if it is about people.
    pub(super) fn add(&mut self, seq: Seq, record: &Record) {
        let account = record.account();
        match record.said() {
            Record::AccountRenamed { name, .. } => {
                self.renamed.insert(account, name.clone());
            }
            Record::AccountSuspended { suspended, .. } => {
                self.suspended.insert(account, *suspended);
            }
            Record::LoginSet(login) => {
                self.logins.insert(account, Arc::clone(login));
            }
            Record::SessionEnded { session, until, .. } => {
                self.ended.push((account, *session, *until));
            }
            Record::CodeCreated(code) => self.codes.push(Arc::clone(code)),
            Record::CodeRevoked { code, at } => {
                self.revoked.entry(*code).or_insert(*at);
            }
            Record::CodeUsed { code, by, at } => self.uses.push((*code, *by, *at)),
            Record::Followed { seq, .. } => self.followed = Some(*seq),
            Record::Acted(act) => self.acts.push((seq, Arc::clone(act))),
            Record::DoubtResolved { hold, .. } => self.resolved.push(*hold),
            Record::Announced { task, tried, .. } => {
                self.tried.insert(*task, Arc::clone(tried));
            }
            Record::Task(task) if task.stage == Stage::Submitting => {
                self.begun.insert(task.id(), (account, task.intent.at));
            }
            _ => {}
        }
    }

    /// About how many rows of the store it changes: three for each act, which stands beside each of
    /// the others.
    pub(super) fn rows(&self) -> usize {
        self.acts.len().saturating_mul(3)
    }

    /// Changes an account as this window does.
    pub(in crate::ledger) fn change(&self, account: &mut Account) {
        if let Some(name) = self.renamed.get(&account.id) {
            account.name.clone_from(name);
        }
        account.suspended = self.suspended.get(&account.id).copied().unwrap_or(account.suspended);
    }
}
