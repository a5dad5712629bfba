//! Codes that operators hand out, for credit or for sign-up. They belong to the operator and are in the
//! operator's shard.
//!
//! A use of a code touches two accounts. Its two records, the counted use and the credit, are one group and
//! so reach the disk together.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use crate::records::code::Code;
use crate::records::code::CodeKind;
use crate::records::code::CodeRefusal;
use crate::records::code::IssuedCode;
use crate::rules::key_rules;
use crate::rules::text::check_note;
use crate::rules::text::parsed;
use std::sync::Arc;

use crate::memory::Ledger;
use crate::memory::act::{ActorScope, WriteOutcome};
use crate::memory::write::{AuditRecordBuilder, IdempotentOutcome, LockedShards, WriteDecision};
use crate::records::error::LedgerError;
use crate::records::record::Record;
use crate::rules::core::Decision;
use crate::rules::operator::CodeState;
use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, CodeId};
use tollgate_types::secret::{KeyHash, Secret};

/// The most codes that there can be, revoked and used ones included: they are held in memory, some
/// 300 bytes each and 30 for each use.
const CODES_MAX: usize = 100_000;

/// Parameters of a new code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCode {
    /// Purpose of the code.
    pub kind: CodeKind,
    /// Amount granted by each use. Required for a code for credit.
    pub amount: Option<Nanousd>,
    /// Maximum number of uses; each account counts once.
    pub uses_max: u32,
    /// Expiry; `None` for never.
    pub expires_at: Option<UnixMs>,
    /// Operator's note; may be empty.
    pub note: String,
}

impl Ledger {
    /// All codes, oldest first.
    #[must_use]
    pub fn codes(&self) -> Vec<IssuedCode> {
        let core = self.shard(AccountId::OPERATOR).lock();
        let mut codes: Vec<_> = core.operator.codes.values().map(CodeState::issued).collect();
        drop(core);
        codes.sort_by_key(|issued| (issued.code.created_at, issued.code.id));
        codes
    }

    /// The code of this id.
    #[must_use]
    pub fn code(&self, id: CodeId) -> Option<IssuedCode> {
        self.shard(AccountId::OPERATOR).lock().operator.codes.get(&id).map(CodeState::issued)
    }

    /// Offer of an invite that is valid now, for the sign-up page.
    ///
    /// # Errors
    /// [`LedgerError::Code`].
    pub fn check_invite(&self, presented: &str) -> Result<Arc<Code>, LedgerError> {
        let core = self.shard(AccountId::OPERATOR).lock();
        let found = core.operator.usable(presented, CodeKind::Invite, (None, UnixMs::now()));
        found.map_err(LedgerError::Code)
    }
}

impl ActorScope<'_> {
    /// Makes a code. It is shown this once, and not at all to a caller that repeats itself; only its
    /// hash is kept.
    ///
    /// # Errors
    /// [`LedgerError::Invalid`], [`LedgerError::OtherRequest`] and [`LedgerError::Stopped`].
    pub async fn create_code(
        &self,
        new: NewCode,
    ) -> Result<WriteOutcome<(Option<Secret>, IssuedCode)>, LedgerError> {
        check_code(&new)?;
        let (secret, at) = (Secret::new_code(), UnixMs::now());
        let code = Arc::new(Code {
            id: CodeId::random(),
            hash: KeyHash::of(secret.expose().as_bytes()),
            kind: new.kind,
            amount: new.amount,
            uses_max: new.uses_max,
            expires_at: new.expires_at,
            note: new.note,
            created_at: at,
        });
        let once = self.write("code.create", AccountId::OPERATOR, |locked, audit| {
            if locked.operator().codes.len() >= CODES_MAX {
                return Err(LedgerError::Invalid("there are too many codes"));
            }
            let created = Record::CodeCreated(Arc::clone(&code));
            Ok((code.id, vec![created, audit.act(AccountId::OPERATOR, code.id)]))
        });
        let (id, repeated) = match once.await? {
            IdempotentOutcome::Applied(id, _) => (id, false),
            IdempotentOutcome::Replayed { subject, .. } => (parsed(&subject)?, true),
        };
        let issued = self.ledger.code(id).ok_or(LedgerError::UnknownCode(id))?;
        Ok(WriteOutcome { value: ((!repeated).then_some(secret), issued), repeated })
    }

    /// Revokes a code for further use. Credit that it already gave stays.
    ///
    /// # Errors
    /// [`LedgerError::UnknownCode`], [`LedgerError::OtherRequest`] and [`LedgerError::Stopped`].
    pub async fn revoke_code(&self, id: CodeId) -> Result<WriteOutcome<IssuedCode>, LedgerError> {
        let once = self.write("code.revoke", AccountId::OPERATOR, |locked, audit| {
            if !locked.operator().codes.contains_key(&id) {
                return Err(LedgerError::UnknownCode(id));
            }
            let revoked = Record::CodeRevoked { code: id, at: UnixMs::now() };
            Ok(((), vec![revoked, audit.act(AccountId::OPERATOR, id)]))
        });
        let (_, repeated) = once.await?.place();
        let value = self.ledger.code(id).ok_or(LedgerError::UnknownCode(id))?;
        Ok(WriteOutcome { value, repeated })
    }

    /// Redeems a code for an account, at most once per account. Returns the amount.
    ///
    /// # Errors
    /// [`LedgerError::Code`], [`LedgerError::UnknownAccount`], [`LedgerError::Invalid`] where the
    /// amount does not fit the account, [`LedgerError::OtherRequest`] and [`LedgerError::Stopped`].
    pub async fn redeem(
        &self,
        account: AccountId,
        presented: &str,
    ) -> Result<WriteOutcome<Nanousd>, LedgerError> {
        let decide = |locked: &LockedShards<'_>, audit: &AuditRecordBuilder<'_>| {
            redeeming(locked, audit, account, presented)
        };
        let once = self.write("code.redeem", account, decide).await?;
        let (_, repeated) = once.place();
        let amount = match once {
            IdempotentOutcome::Applied(amount, _) => amount,
            IdempotentOutcome::Replayed { subject, .. } => {
                let id: CodeId = parsed(&subject)?;
                let issued = self.ledger.code(id).ok_or(LedgerError::UnknownCode(id))?;
                issued.code.amount.unwrap_or(Nanousd::ZERO)
            }
        };
        Ok(WriteOutcome { value: amount, repeated })
    }
}

/// Decides the redemption of a code for credit.
fn redeeming(
    locked: &LockedShards<'_>,
    audit: &AuditRecordBuilder<'_>,
    account: AccountId,
    presented: &str,
) -> WriteDecision<Nanousd> {
    locked.state(account)?;
    let at = UnixMs::now();
    let code = locked.operator().usable(presented, CodeKind::Credit, (Some(account), at));
    let code = code.map_err(LedgerError::Code)?;
    let amount = code.amount.unwrap_or(Nanousd::ZERO);
    let core = locked.core(account);
    let grant = match core.decide_grant(account, &code.id.to_string(), amount, at)? {
        Decision::New(grant) => grant,
        // Its use would stand with it.
        Decision::Repeated(_) => return Err(LedgerError::Code(CodeRefusal::UsedBefore)),
    };
    let used = Record::CodeUsed { code: code.id, by: account, at };
    Ok((amount, vec![used, grant, audit.act(account, code.id)]))
}

fn check_code(new: &NewCode) -> Result<(), LedgerError> {
    if new.amount.is_some_and(|amount| amount <= Nanousd::ZERO) {
        return Err(LedgerError::Invalid("the amount of a code must be above zero"));
    }
    if new.kind == CodeKind::Credit && new.amount.is_none() {
        return Err(LedgerError::Invalid("a code for credit needs an amount"));
    }
    if !(1..=key_rules::CODE_USES_MAX).contains(&new.uses_max) {
        return Err(LedgerError::Invalid("a code can be used 1 to 100,000 times"));
    }
    check_note(&new.note)
}
