//! Changes to customers in a window of the journal: logins, codes, audit records and the like.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::collections::HashMap;
use std::sync::Arc;

use crate::records::act::Act;
use crate::records::code::Code;
use crate::records::login::{Login, SessionId};
use crate::records::price::{AccountPrices, PriceGroup, PriceNote};
use crate::records::record::Record;
use crate::records::task::{DeliveryAttempt, TaskPhase};
use crate::rules::account::Account;
use tollgate_options::holds::HoldOverrides;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, CodeId, HoldId, Seq, TaskId};

/// Changes of one window to customers and to the operator.
#[derive(Default)]
pub(crate) struct CustomerChanges {
    renamed: HashMap<AccountId, String>,
    suspended: HashMap<AccountId, bool>,
    pub(crate) logins: HashMap<AccountId, Arc<Login>>,
    pub(crate) ended: Vec<(AccountId, SessionId, UnixMs)>,
    pub(crate) prices: HashMap<AccountId, Arc<AccountPrices>>,
    pub(crate) groups: HashMap<String, Arc<PriceGroup>>,
    pub(crate) holds: HashMap<AccountId, Arc<HoldOverrides>>,
    /// Prices that were charged for the first time.
    pub(crate) noted: Vec<Arc<PriceNote>>,
    pub(crate) codes: Vec<Arc<Code>>,
    pub(crate) revoked: HashMap<CodeId, UnixMs>,
    pub(crate) uses: Vec<(CodeId, AccountId, UnixMs)>,
    pub(crate) acts: Vec<(Seq, Arc<Act>)>,
    /// Holds in doubt that were resolved.
    pub(crate) resolved: Vec<HoldId>,
    /// The last try of each task's announcement.
    pub(crate) tried: HashMap<TaskId, Arc<DeliveryAttempt>>,
    /// Position in the fleet's directory.
    pub(crate) followed: Option<Seq>,
    /// Tasks that were submitted meanwhile.
    pub(crate) begun: HashMap<TaskId, (AccountId, UnixMs)>,
}

impl CustomerChanges {
    /// Adds a record, if it concerns customers or the operator.
    pub(super) fn add(&mut self, seq: Seq, record: &Record) {
        let account = record.account();
        match record.inner() {
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
            Record::AccountPriced { prices, .. } => {
                self.prices.insert(account, Arc::clone(prices));
            }
            Record::AccountHolds { holds, .. } => {
                self.holds.insert(account, Arc::clone(holds));
            }
            Record::GroupPriced(group) => {
                self.groups.insert(group.name.clone(), Arc::clone(group));
            }
            Record::PriceNoted(note) => self.noted.push(Arc::clone(note)),
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
            Record::Task(task) if task.stage == TaskPhase::Submitting => {
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

    /// Applies the window's rename and suspension, if any, to `account`.
    pub(crate) fn change(&self, account: &mut Account) {
        if let Some(name) = self.renamed.get(&account.id) {
            account.name.clone_from(name);
        }
        account.suspended = self.suspended.get(&account.id).copied().unwrap_or(account.suspended);
    }
}
