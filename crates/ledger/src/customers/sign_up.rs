//! Sign-up of customers: account, login, invite and initial credit in one group, all or nothing.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::fmt;
use std::sync::Arc;

use crate::customers::login::{check_password, normal_email};
use crate::memory::act::ActorScope;
use crate::memory::write::{AuditRecordBuilder, LockedShards, WriteDecision};
use crate::records::code::CodeKind;
use crate::records::error::LedgerError;
use crate::records::login::Login;
use crate::records::record::Record;
use crate::rules::account::Account;
use crate::rules::text::check_text;
use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::AccountId;

/// The id of the grant that an account begins with.
const TRIAL: &str = "trial";

/// Parameters of a sign-up.
#[derive(Clone, PartialEq, Eq)]
pub struct SignUp {
    /// Display name of the account.
    pub name: String,
    /// The address to log in with.
    pub email: String,
    /// The PHC string of the password's Argon2id hash.
    pub password: String,
    /// An invite, where one is needed or was given.
    pub invite: Option<String>,
    /// Initial credit in addition to the invite's amount; above zero.
    pub trial: Option<Nanousd>,
}

impl fmt::Debug for SignUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SignUp({:?}, {:?})", self.name, self.email)
    }
}

impl ActorScope<'_> {
    /// Opens an account with a login, uses the invite and gives its amount and that of the trial: all
    /// of it, or nothing.
    /// A repetition is refused, by its invite or by its address.
    ///
    /// # Errors
    /// [`LedgerError::EmailTaken`], [`LedgerError::Code`], [`LedgerError::Invalid`] and
    /// [`LedgerError::Stopped`].
    pub async fn sign_up(&self, new: &SignUp) -> Result<Account, LedgerError> {
        check_text(&new.name)?;
        check_password(&new.password)?;
        let email = normal_email(&new.email)?;
        let account = AccountId::random();
        self.write("account.sign_up", account, |locked, audit| {
            let decided = signing_up(locked, audit, (account, &email), new)?;
            // Checked last: only a valid sign-up may learn that an address is taken. Every write of an
            // address holds the lock of the operator's shard, so the check cannot be stale.
            if self.ledger.emails.lock().contains_key(&email) {
                return Err(LedgerError::EmailTaken);
            }
            Ok(decided)
        })
        .await?;
        self.ledger.account(account).ok_or(LedgerError::UnknownAccount(account))
    }
}

/// Records that open an account with a login.
fn signing_up(
    locked: &LockedShards<'_>,
    audit: &AuditRecordBuilder<'_>,
    (account, email): (AccountId, &str),
    new: &SignUp,
) -> WriteDecision<()> {
    let at = UnixMs::now();
    let login = Arc::new(Login {
        account,
        email: email.to_owned(),
        password: new.password.clone(),
        since: at,
    });
    let created = Record::AccountCreated { account, name: new.name.clone(), at };
    let mut records = vec![created, Record::LoginSet(login)];
    if let Some(typed) = &new.invite {
        let found = locked.operator().usable(typed, CodeKind::Invite, (None, at));
        let code = found.map_err(LedgerError::Code)?;
        records.push(Record::CodeUsed { code: code.id, by: account, at });
        let id = code.id.to_string();
        records.extend(code.amount.map(|amount| Record::Granted { account, id, amount, at }));
    }
    let id = TRIAL.to_owned();
    records.extend(new.trial.map(|amount| Record::Granted { account, id, amount, at }));
    records.push(audit.act(account, account));
    Ok(((), records))
}
