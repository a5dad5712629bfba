//! Changes to accounts: names, suspension, limits, credit lines and hold rules.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::time::{Duration, Instant};

use crate::customers::holds::HoldsPatch;
use crate::customers::limit::RatesPatch;
use crate::memory::Ledger;
use crate::memory::act::{ActorScope, WriteOutcome};
use crate::records::error::LedgerError;
use crate::records::record::Record;
use crate::rules::account::Account;
use crate::rules::text::check_text;
use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::AccountId;
use tollgate_types::limit::Rates;

/// The time that nodes of a fleet get to return unused money when a credit line is lowered: each hears
/// of a recall within a second.
const RECALLED_WITHIN: Duration = Duration::from_secs(3);
/// The wait between two tries meanwhile.
const RECALLED_POLL: Duration = Duration::from_millis(250);

/// A change to an account; `None` leaves a field as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountPatch {
    /// New display name of the account.
    pub name: Option<String>,
    /// True to suspend the account, false to resume it.
    pub suspended: Option<bool>,
    /// Rate limits that all its keys share.
    pub rates: RatesPatch,
    /// Another credit line; zero for none.
    pub credit_limit: Option<Nanousd>,
    /// New hold rules for the account.
    pub holds: HoldsPatch,
}

impl Ledger {
    /// Changes what all keys of an account together may use, for requests that come from now on.
    ///
    /// # Errors
    /// [`LedgerError::UnknownAccount`] and [`LedgerError::Stopped`].
    pub async fn limit_account(
        &self,
        account: AccountId,
        patch: RatesPatch,
    ) -> Result<Rates, LedgerError> {
        let patch = AccountPatch { rates: patch, ..AccountPatch::default() };
        self.by_gateway().update_account(account, patch).await?;
        Ok(self.account_rates(account))
    }
}

impl ActorScope<'_> {
    /// Changes an account: all of it together. The keys of a suspended account are refused from now
    /// on; calls in flight end as they began. A lower credit line takes back what is available of it;
    /// what was spent of the rest is owed.
    ///
    /// # Errors
    /// [`LedgerError::UnknownAccount`], [`LedgerError::Invalid`], [`LedgerError::CreditInFlight`],
    /// [`LedgerError::OtherRequest`], [`LedgerError::Unavailable`] and [`LedgerError::Stopped`].
    pub async fn update_account(
        &self,
        account: AccountId,
        patch: AccountPatch,
    ) -> Result<WriteOutcome<Account>, LedgerError> {
        patch.name.as_deref().map_or(Ok(()), check_text)?;
        patch.holds.check()?;
        let begun = Instant::now();
        let repeated = loop {
            match self.patch_account(account, &patch).await {
                // Nodes of a fleet give back what no call of theirs holds after a recall.
                Err(LedgerError::CreditInFlight(_))
                    if self.ledger.write_log().is_some() && begun.elapsed() < RECALLED_WITHIN =>
                {
                    tokio::time::sleep(RECALLED_POLL).await;
                }
                written => break written?,
            }
        };
        let value = self.ledger.account(account).ok_or(LedgerError::UnknownAccount(account))?;
        Ok(WriteOutcome { value, repeated })
    }

    /// Changes an account. Returns true if the same request was made before.
    async fn patch_account(
        &self,
        account: AccountId,
        patch: &AccountPatch,
    ) -> Result<bool, LedgerError> {
        let what = match patch.suspended {
            Some(true) => "account.suspend",
            Some(false) => "account.resume",
            None => "account.update",
        };
        let once = self.write(what, account, |locked, audit| {
            locked.state(account)?;
            let at = UnixMs::now();
            let rates = self.ledger.rates_with(account, &patch.rates);
            let holds = self.ledger.holds_with(account, &patch.holds);
            let core = locked.core(account);
            // Decided under the locks that the commit holds: the money that it takes back cannot be
            // reserved in between.
            let line = patch.credit_limit.map(|limit| core.decide_credit(account, limit, at));
            let (name, suspended) = (patch.name.clone(), patch.suspended);
            let records = [
                name.map(|name| Record::AccountRenamed { account, name, at }),
                suspended.map(|suspended| Record::AccountSuspended { account, suspended, at }),
                rates.map(|rates| Record::AccountLimited { account, rates, at }),
                holds.map(|holds| Record::AccountHolds { account, holds, at }),
                line.transpose()?.flatten(),
                Some(audit.act(account, account)),
            ];
            Ok(((), records.into_iter().flatten().collect()))
        });
        Ok(once.await?.place().1)
    }
}
