//! Accounts and what operators do with their money.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::AdminState;
use super::caller::Caller;
use super::credit::{CreditLimit, HoldsBody, HoldsView};
use super::error::{ApiError, ApiResult};
use super::limits::{RatesBody, RatesView, present};
use super::request::{Body, ListView, PAGE_MAX, PageQuery, Params, Path, WrittenOnce};
use super::value::{Amount, Object, Time};
use tollgate_ledger::key_rules::{self, NAME_BYTES_MAX, TextError};
use tollgate_ledger::{
    self as ledger, Account, AccountId, Balance, HoldId, LedgerError, RatesPatch, Seq,
};
use tollgate_money::money::Nanousd;

/// The characters that [`check_text`] takes.
pub(super) const TEXT_PATTERN: &str = "^[^\\u0000-\\u001f\\u007f-\\u009f]+$";

/// An account as it is shown.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Account")]
pub(super) struct AccountView {
    id: AccountId,
    name: String,
    created_at: Time,
    /// True while the keys of the account are refused.
    suspended: bool,
    /// Email address of the customer's login; `null` without a login.
    email: Option<String>,
    balance: BalanceView,
    limits: RatesView,
    /// Hold rules in the place of those for all.
    holds: HoldsView,
}

/// `granted` and `credit_limit` together are the sum of `available`, `held` and `spent`. In a fleet it is what the nodes have reported: within a
/// second, unless one is cut off.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Balance")]
pub(super) struct BalanceView {
    /// Everything ever paid in, without what is lent.
    pub(super) granted: Nanousd,
    /// Money that can be spent now, the unused part of the credit line included. In a fleet it includes what
    /// is leased to nodes, with their holds for calls in flight.
    pub(super) available: Nanousd,
    /// Money held for calls in flight; in a fleet for open tasks, and the leases of silent nodes.
    pub(super) held: Nanousd,
    /// Cost of settled calls, less refunds, as far as it was paid.
    pub(super) spent: Nanousd,
    /// Cost of settled calls beyond the balance; no part of the sum. Money that becomes available pays it
    /// first, and new requests are refused until then.
    pub(super) debt: Nanousd,
    /// The credit line: money that the operator lends, spent after what was paid in; zero for none.
    pub(super) credit_limit: Nanousd,
    /// The part of the credit line that has been spent. A grant restores it first.
    pub(super) credit_used: Nanousd,
}

impl From<Balance> for BalanceView {
    fn from(balance: Balance) -> Self {
        let Balance { available, held, spent, debt, credit, .. } = balance;
        let (granted, credit_used) = (balance.paid_in(), balance.credit_used());
        Self { granted, available, held, spent, debt, credit_limit: credit, credit_used }
    }
}

impl AccountView {
    /// With the figures that the whole fleet has of it.
    async fn now(state: &AdminState, account: Account) -> ApiResult<Self> {
        // A write returns this node's figures only; in a fleet the balance is what all nodes have reported.
        let shown = state.ledger.with_figures(vec![account]).await?;
        let account = shown.into_iter().next().ok_or_else(unknown_account)?;
        Ok(Self::new(state, account))
    }

    fn new(state: &AdminState, account: Account) -> Self {
        Self {
            id: account.id,
            name: account.name,
            created_at: account.created_at.into(),
            suspended: account.suspended,
            email: state.ledger.login(account.id).map(|login| login.email.clone()),
            balance: account.balance.into(),
            limits: state.ledger.account_rates(account.id).into(),
            holds: (&*state.ledger.hold_overrides(account.id).unwrap_or_default()).into(),
        }
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewAccount {
    /// Name that the operator gives the account.
    #[schemars(extend("minLength" = 1, "maxLength" = NAME_BYTES_MAX, "pattern" = TEXT_PATTERN))]
    name: String,
}

/// `POST /admin/v1/accounts`
pub(super) async fn create(
    State(state): State<AdminState>,
    caller: Caller,
    Body(new): Body<NewAccount>,
) -> ApiResult<WrittenOnce<AccountView>> {
    check_text("name", &new.name)?;
    let written = caller.by(&state).create_account(&new.name).await?;
    let body = AccountView::now(&state, written.value).await?;
    Ok(WrittenOnce { repeated: written.repeated, body })
}

/// The accounts that are asked for.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AccountsQuery {
    /// The most items of the answer; 100 when it is left out.
    #[schemars(range(min = 1, max = PAGE_MAX))]
    limit: Option<usize>,
    /// The last item of the page before: its `next_after`.
    after: Option<AccountId>,
    /// Only accounts whose id begins with this, or whose name does, in capitals or not.
    query: Option<String>,
}

/// `GET /admin/v1/accounts`, oldest first.
pub(super) async fn list(
    State(state): State<AdminState>,
    Params(AccountsQuery { limit, after, query }): Params<AccountsQuery>,
) -> ApiResult<Json<ListView<AccountView, AccountId>>> {
    let mut accounts = state.ledger.accounts();
    if let Some(query) = query.map(|query| query.to_lowercase()) {
        // Filter before the page is cut: a cursor of one query is no place in the list of another.
        accounts.retain(|account| {
            account.name.to_lowercase().starts_with(&query)
                || account.id.to_string().starts_with(&query)
        });
    }
    let page =
        PageQuery { limit, after }.list(accounts, |account| account.id, |account| account)?;
    let (accounts, next_after) = page.parts();
    // Figures of the page only: in a fleet they cost a query of the database.
    let accounts = state.ledger.with_figures(accounts).await?;
    let shown = accounts.into_iter().map(|account| AccountView::new(&state, account));
    Ok(Json(ListView::new(shown.collect(), next_after)))
}

/// `GET /admin/v1/accounts/{account}`
pub(super) async fn show(
    State(state): State<AdminState>,
    Path(account): Path<String>,
) -> ApiResult<Json<AccountView>> {
    let id = find(&state, &account)?.id;
    // The balance on disk: what a crash could still undo is told to nobody.
    let account = state.ledger.durable_account(id).await?;
    Ok(Json(AccountView::new(&state, account.ok_or_else(unknown_account)?)))
}

/// Changes to an account: a field that is left out stays as it is.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AccountPatch {
    #[serde(default)]
    #[schemars(extend("minLength" = 1, "maxLength" = NAME_BYTES_MAX, "pattern" = TEXT_PATTERN))]
    name: Option<String>,
    /// True to refuse the keys of the account from now on. Calls in flight go on.
    #[serde(default)]
    suspended: Option<bool>,
    #[serde(default)]
    limits: Option<Object<RatesBody>>,
    /// Another credit line; `null` or zero for none. A lower one takes back what is available of it, and
    /// what was spent of the rest is owed; 409 while calls in flight hold it.
    #[serde(default, deserialize_with = "present")]
    credit_limit: Option<Option<CreditLimit>>,
    /// Other rules by which its requests are held.
    #[serde(default)]
    holds: Option<Object<HoldsBody>>,
}

/// `PATCH /admin/v1/accounts/{account}`
pub(super) async fn update(
    State(state): State<AdminState>,
    Path(account): Path<String>,
    caller: Caller,
    Body(patch): Body<AccountPatch>,
) -> ApiResult<Json<AccountView>> {
    if let Some(name) = &patch.name {
        check_text("name", name)?;
    }
    let account = find(&state, &account)?;
    let AccountPatch { name, suspended, limits, credit_limit, holds } = patch;
    // All fields go into one ledger write: a refused credit line must not leave a changed name behind.
    let rates: RatesPatch = limits.map(|Object(limits)| limits.into()).unwrap_or_default();
    let credit_limit = credit_limit.map(|limit| limit.map_or(Nanousd::ZERO, |limit| limit.0));
    let holds = holds.map(|Object(holds)| holds.into()).unwrap_or_default();
    let patch = ledger::AccountPatch { name, suspended, rates, credit_limit, holds };
    let written = caller.by(&state).update_account(account.id, patch).await?;
    Ok(Json(AccountView::now(&state, written.value).await?))
}

/// The account that a path names.
pub(super) fn find(state: &AdminState, id: &str) -> ApiResult<Account> {
    let account = id.parse().ok().and_then(|id| state.ledger.account(id));
    account.ok_or_else(unknown_account)
}

fn unknown_account() -> ApiError {
    ApiError::not_found("There is no such account.")
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewGrant {
    amount: Amount,
    /// The caller's own id, such as an invoice number: the same id is granted once.
    #[schemars(extend("minLength" = 1, "maxLength" = NAME_BYTES_MAX, "pattern" = TEXT_PATTERN))]
    id: String,
}

/// A grant that was made.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Grant")]
pub(super) struct GrantView {
    id: String,
    account_id: AccountId,
    amount: Nanousd,
    /// Its place in the journal.
    seq: Seq,
}

/// `POST /admin/v1/accounts/{account}/grants`: 201 the first time, 200 with the same body after.
pub(super) async fn grant(
    State(state): State<AdminState>,
    Path(account): Path<String>,
    caller: Caller,
    Body(new): Body<NewGrant>,
) -> ApiResult<WrittenOnce<GrantView>> {
    check_text("id", &new.id)?;
    let account = find(&state, &account)?.id;
    let amount = new.amount.0;
    let granted = caller.by(&state).grant(account, &new.id, amount).await?;
    let body = GrantView { id: new.id, account_id: account, amount, seq: granted.seq };
    Ok(WrittenOnce { repeated: granted.repeated, body })
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewRefund {
    /// The settled hold, from the account's entries.
    hold: HoldId,
    amount: Amount,
    /// The caller's own id: the same id is refunded once.
    #[schemars(extend("minLength" = 1, "maxLength" = NAME_BYTES_MAX, "pattern" = TEXT_PATTERN))]
    id: String,
}

/// A refund that was made.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Refund")]
pub(super) struct RefundView {
    id: String,
    account_id: AccountId,
    hold: HoldId,
    amount: Nanousd,
    /// Its place in the journal.
    seq: Seq,
}

/// `POST /admin/v1/accounts/{account}/refunds`: 201 the first time, 200 with the same body after.
pub(super) async fn refund(
    State(state): State<AdminState>,
    Path(account): Path<String>,
    caller: Caller,
    Body(new): Body<NewRefund>,
) -> ApiResult<WrittenOnce<RefundView>> {
    check_text("id", &new.id)?;
    let account = find(&state, &account)?.id;
    let (hold, amount) = (new.hold, new.amount.0);
    let granted = caller.by(&state).refund(account, &new.id, hold, amount).await?;
    let body = RefundView { id: new.id, account_id: account, hold, amount, seq: granted.seq };
    Ok(WrittenOnce { repeated: granted.repeated, body })
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewWriteOff {
    amount: Amount,
    /// Reason for writing the debt off, shown in the customer's statement.
    #[schemars(extend("minLength" = 1, "maxLength" = NAME_BYTES_MAX, "pattern" = TEXT_PATTERN))]
    note: String,
    /// The caller's own id: the same id is written off once.
    #[schemars(extend("minLength" = 1, "maxLength" = NAME_BYTES_MAX, "pattern" = TEXT_PATTERN))]
    id: String,
}

/// A debt that was given up, wholly or in part.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "WriteOff")]
pub(super) struct WriteOffView {
    id: String,
    account_id: AccountId,
    amount: Nanousd,
    note: String,
    /// Its place in the journal.
    seq: Seq,
}

/// `POST /admin/v1/accounts/{account}/write-offs`: 201 the first time, 200 with the same body after.
pub(super) async fn write_off(
    State(state): State<AdminState>,
    Path(account): Path<String>,
    caller: Caller,
    Body(new): Body<NewWriteOff>,
) -> ApiResult<WrittenOnce<WriteOffView>> {
    check_text("id", &new.id)?;
    check_text("note", &new.note)?;
    let account = find(&state, &account)?.id;
    let NewWriteOff { amount: Amount(amount), note, id } = new;
    let given_up = caller.by(&state).write_off(account, &id, amount, &note).await?;
    let body = WriteOffView { id, account_id: account, amount, note, seq: given_up.seq };
    Ok(WrittenOnce { repeated: given_up.repeated, body })
}

/// Checks a caller's name or id: something to read, within reason, and nothing that could break a
/// line of a log.
///
/// # Errors
/// What is wrong with it. JSON Schema counts characters, and the ledger bytes: of a text that only has
/// too many bytes, the ledger's own error is answered.
pub(super) fn check_text(param: &'static str, text: &str) -> ApiResult<()> {
    let Err(error) = key_rules::check_name(text) else { return Ok(()) };
    if error == TextError::TooLong && text.chars().count() <= NAME_BYTES_MAX {
        return Err(LedgerError::from(error).into());
    }
    let message =
        format!("`{param}` has 1 to {NAME_BYTES_MAX} characters and no control characters.");
    Err(ApiError::invalid(param, message))
}
