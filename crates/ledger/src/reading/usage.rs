//! Usage: by an account's keys and models, and of all accounts, in hours and days. In a fleet the
//! shared database has the usage of all nodes.

use crate::projection::grain::Grain;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crate::memory::Ledger;
use crate::projection::window::{UsageCell, UsageTotal};
use crate::records::error::LedgerError;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, KeyId};

/// Usage of one account, key and model within one hour or day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageRow {
    /// The beginning of the hour or day, in UTC.
    pub begin: UnixMs,
    /// API key of the calls.
    pub key: KeyId,
    /// The public id of the model.
    pub model: Arc<str>,
    /// Usage and charges, summed up.
    pub total: UsageTotal,
}

/// Usage of one model by everybody within one hour or day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageOfAll {
    /// The beginning of the hour or day, in UTC.
    pub begin: UnixMs,
    /// The public id of the model.
    pub model: Arc<str>,
    /// Usage and charges, summed up.
    pub total: UsageTotal,
}

impl Ledger {
    /// The usage of an account in all hours that `range` touches, by hour, key and model.
    ///
    /// # Errors
    /// [`LedgerError::UnknownAccount`], [`LedgerError::Store`] and [`LedgerError::Stopped`]; in a fleet
    /// [`LedgerError::Unavailable`].
    pub async fn usage(
        &self,
        account: AccountId,
        range: Range<UnixMs>,
    ) -> Result<Vec<UsageRow>, LedgerError> {
        self.account(account).ok_or(LedgerError::UnknownAccount(account))?;
        let hours = Grain::Hour.touched(&range);
        let found = self.books.usage(self, account, Grain::Hour, hours).await?;
        Ok(rows(Grain::Hour, found))
    }

    /// The usage of an account in all hours or days that `range` touches, by that, key and model, as of
    /// a few seconds ago: it makes the ledger do nothing, so customers may ask often. A year by the day
    /// is one row for each day, key and model.
    ///
    /// # Errors
    /// [`LedgerError::UnknownAccount`], [`LedgerError::Store`] and [`LedgerError::Unavailable`].
    pub async fn usage_lately(
        &self,
        account: AccountId,
        grain: Grain,
        range: Range<UnixMs>,
    ) -> Result<Vec<UsageRow>, LedgerError> {
        self.account(account).ok_or(LedgerError::UnknownAccount(account))?;
        let times = grain.touched(&range);
        let found = self.books.usage_lately(self, account, grain, times).await?;
        Ok(rows(grain, found))
    }

    /// The usage of all accounts together in all hours or days that `range` touches, by that and
    /// model, as of a few seconds ago.
    ///
    /// # Errors
    /// [`LedgerError::Store`] and [`LedgerError::Unavailable`].
    pub async fn usage_of_all(
        &self,
        grain: Grain,
        range: Range<UnixMs>,
    ) -> Result<Vec<UsageOfAll>, LedgerError> {
        let times = grain.touched(&range);
        let found = self.books.usage_of_all(self, grain, times).await?;
        let row = |(time, model, total)| UsageOfAll { begin: grain.begin(time), model, total };
        Ok(found.into_iter().map(row).collect())
    }

    /// Time of each key's last charge (zero charges included), a few seconds old at most. Unused
    /// keys are absent.
    ///
    /// # Errors
    /// [`LedgerError::UnknownAccount`], [`LedgerError::Store`] and [`LedgerError::Unavailable`].
    pub async fn keys_last_used(
        &self,
        account: AccountId,
    ) -> Result<HashMap<KeyId, UnixMs>, LedgerError> {
        self.account(account).ok_or(LedgerError::UnknownAccount(account))?;
        self.books.keys_last_used(self, account).await
    }
}

fn rows(grain: Grain, found: Vec<(UsageCell, UsageTotal)>) -> Vec<UsageRow> {
    let row = |(cell, total): (UsageCell, UsageTotal)| UsageRow {
        begin: grain.begin(cell.time),
        key: cell.key,
        model: cell.model,
        total,
    };
    found.into_iter().map(row).collect()
}
