//! State of the operator: codes and price groups, ended sessions of operators, and the position in
//! the fleet's directory. Part of the rules, like `core`: no I/O, no clock.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::records::code::{Code, CodeKind, CodeRefusal, IssuedCode};
use crate::records::login::SessionId;
use crate::records::price::PriceGroup;
use crate::records::record::Record;
use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, CodeId, Seq};
use tollgate_types::secret::KeyHash;

/// State of the operator: codes, price groups and ended sessions.
#[derive(Debug, Default)]
pub(crate) struct OperatorState {
    /// Position in the fleet's directory; zero in a single node.
    pub(crate) followed: Seq,
    pub(crate) codes: HashMap<CodeId, CodeState>,
    by_hash: HashMap<KeyHash, CodeId>,
    /// Sessions of operators that were logged out, and when they would have ended.
    pub(crate) ended: HashMap<SessionId, UnixMs>,
    /// Price rules that accounts share, by the names of the groups.
    pub(crate) groups: BTreeMap<String, Arc<PriceGroup>>,
}

/// Current state of a code.
#[derive(Clone, Debug)]
pub(crate) struct CodeState {
    pub(crate) code: Arc<Code>,
    pub(crate) revoked_at: Option<UnixMs>,
    pub(crate) uses: HashMap<AccountId, UnixMs>,
}

impl CodeState {
    /// Checks that `account` may use the code; `None` for an account yet to be opened.
    fn check(&self, account: Option<AccountId>, at: UnixMs) -> Result<(), CodeRefusal> {
        if self.revoked_at.is_some() {
            return Err(CodeRefusal::Revoked);
        }
        if account.is_some_and(|account| self.uses.contains_key(&account)) {
            return Err(CodeRefusal::UsedBefore);
        }
        if self.code.expires_at.is_some_and(|expires_at| expires_at <= at) {
            return Err(CodeRefusal::Expired);
        }
        if self.uses.len() as u64 >= u64::from(self.code.uses_max) {
            return Err(CodeRefusal::UsedUp);
        }
        Ok(())
    }

    pub(crate) fn issued(&self) -> IssuedCode {
        IssuedCode {
            code: Arc::clone(&self.code),
            used: self.uses.len(),
            revoked_at: self.revoked_at,
        }
    }
}

impl OperatorState {
    /// Applies a record of the operator.
    ///
    /// # Errors
    /// The rule that it breaks; nothing has changed then.
    pub(crate) fn apply(&mut self, record: &Record) -> Result<(), &'static str> {
        const UNKNOWN: &str = "there is no such code";
        match record {
            Record::Acted(_) | Record::Checkpointed(_) => Ok(()),
            Record::Followed { seq, .. } if *seq <= self.followed => {
                Err("the directory was followed further before")
            }
            Record::Followed { seq, .. } => {
                self.followed = *seq;
                Ok(())
            }
            Record::SessionEnded { session, until, at, .. } => {
                self.ended.retain(|_, until| *until > *at);
                self.ended.insert(*session, *until);
                Ok(())
            }
            Record::GroupPriced(group) => {
                self.groups.insert(group.name.clone(), Arc::clone(group));
                Ok(())
            }
            Record::CodeCreated(code) => {
                if self.codes.contains_key(&code.id) || self.by_hash.contains_key(&code.hash) {
                    return Err("the code exists already");
                }
                if code.amount.is_some_and(|amount| amount <= Nanousd::ZERO) {
                    return Err("the amount is out of range");
                }
                self.restore(Arc::clone(code), None);
                Ok(())
            }
            Record::CodeRevoked { code, at } => {
                let state = self.codes.get_mut(code).ok_or(UNKNOWN)?;
                state.revoked_at.get_or_insert(*at);
                Ok(())
            }
            Record::CodeUsed { code, by, at } => {
                let state = self.codes.get_mut(code).ok_or(UNKNOWN)?;
                state.check(Some(*by), *at).map_err(|_| "the code could not be used")?;
                state.uses.insert(*by, *at);
                Ok(())
            }
            _ => Err("the operator has no money, no keys and no tasks"),
        }
    }

    /// Part of the state that these records touch.
    pub(crate) fn excerpt(&self, records: &[Record]) -> Self {
        let mut excerpt = Self { followed: self.followed, ..Self::default() };
        for record in records {
            let (Record::CodeRevoked { code, .. } | Record::CodeUsed { code, .. }) = record else {
                continue;
            };
            if let Some(state) = self.codes.get(code) {
                excerpt.codes.insert(*code, state.clone());
            }
        }
        excerpt
    }

    pub(crate) fn restore(&mut self, code: Arc<Code>, revoked_at: Option<UnixMs>) {
        self.by_hash.insert(code.hash, code.id);
        self.codes.insert(code.id, CodeState { code, revoked_at, uses: HashMap::new() });
    }

    /// The code that was presented, if it is good for this and `account` may use it.
    pub(crate) fn usable(
        &self,
        presented: &str,
        kind: CodeKind,
        (account, at): (Option<AccountId>, UnixMs),
    ) -> Result<Arc<Code>, CodeRefusal> {
        let typed = presented.trim().to_ascii_lowercase();
        let id = self.by_hash.get(&KeyHash::of(typed.as_bytes())).ok_or(CodeRefusal::Unknown)?;
        let state = self.codes.get(id).ok_or(CodeRefusal::Unknown)?;
        if state.code.kind != kind {
            return Err(CodeRefusal::Unknown);
        }
        state.check(account, at)?;
        Ok(Arc::clone(&state.code))
    }
}
