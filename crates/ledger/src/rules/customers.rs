//! State and rules of an account's customer, apart from money and keys: login, ended sessions,
//! prices, and calls in doubt.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::records::login::{Login, SessionId};
use crate::records::price::AccountPrices;
use crate::records::record::Record;
use crate::rules::account::Account;
use tollgate_options::holds::HoldOverrides;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::HoldId;

/// State of an account's customer, apart from money and keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct CustomerState {
    pub(crate) login: Option<Arc<Login>>,
    /// Sessions that were logged out, and when they would have ended.
    pub(crate) ended: HashMap<SessionId, UnixMs>,
    /// Price rules; `None` if they were never set.
    pub(crate) prices: Option<Arc<AccountPrices>>,
    /// Hold rules of the account that replace the configured ones; `None` without any.
    pub(crate) holds: Option<Arc<HoldOverrides>>,
    /// Holds that a crash had left open and that nobody has looked into.
    pub(crate) doubts: BTreeSet<HoldId>,
}

impl CustomerState {
    /// The part of the state that the rules need.
    pub(crate) fn excerpt(&self) -> Self {
        let (login, doubts) = (self.login.clone(), self.doubts.clone());
        Self { login, ended: HashMap::new(), prices: None, holds: None, doubts }
    }

    /// Sets hold rules; empty rules count as none.
    pub(crate) fn restore_holds(&mut self, holds: &Arc<HoldOverrides>) {
        self.holds = (!holds.is_empty()).then(|| Arc::clone(holds));
    }

    /// Checks a record against the rules of customers.
    pub(crate) fn check(&self, record: &Record) -> Result<(), &'static str> {
        match record {
            Record::DoubtResolved { hold, .. } if !self.doubts.contains(hold) => {
                Err("the hold is not in doubt")
            }
            Record::LoginSet(login)
                if self.login.as_ref().is_some_and(|before| before.since > login.since) =>
            {
                Err("a login cannot become older")
            }
            _ => Ok(()),
        }
    }

    /// Applies a record that concerns the customer of `account`.
    pub(crate) fn apply(&mut self, record: &Record, account: &mut Account) {
        match record {
            Record::AccountRenamed { name, .. } => account.name.clone_from(name),
            Record::AccountSuspended { suspended, .. } => account.suspended = *suspended,
            Record::LoginSet(login) => self.login = Some(Arc::clone(login)),
            Record::AccountPriced { prices, .. } => self.prices = Some(Arc::clone(prices)),
            Record::AccountHolds { holds, .. } => self.restore_holds(holds),
            Record::SessionEnded { session, until, at, .. } => {
                // By the record's time, not the clock's: a replay must forget the same sessions.
                self.ended.retain(|_, until| *until > *at);
                self.ended.insert(*session, *until);
            }
            Record::Recovered { hold, .. } => {
                self.doubts.insert(*hold);
            }
            Record::DoubtResolved { hold, .. } => {
                self.doubts.remove(hold);
            }
            _ => {}
        }
    }
}
