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
use super::request::{
    Body, ListView, PAGE_DEFAULT, PAGE_MAX, Params, PathNames, WrittenOnce, check_limit,
    unknown_cursor,
};
use super::search;
use super::value::{ObjectBody, PositiveAmount, Time};
use tollgate_ledger::key_rules::{self, NAME_BYTES_MAX, TextError};
use tollgate_ledger::{
    self as ledger, Account, AccountId, Balance, HoldId, Ledger, LedgerError, ListOrder,
    RatesPatch, Seq,
};
use tollgate_money::money::Nanousd;
use tollgate_web_kit::cut_page;

/// The characters that [`check_text`] takes.
pub(super) const TEXT_PATTERN: &str = "^[^\\u0000-\\u001f\\u007f-\\u009f]+$";

/// An account with its balance, limits and login.
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
    /// Hold rules of the account, instead of the configured ones.
    holds: HoldsView,
}

/// `granted` and `credit_limit` together equal the sum of `available`, `held` and `spent`. In a fleet, the
/// figures are what the nodes have reported, usually within one second.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Balance")]
pub(super) struct BalanceView {
    /// Sum of all credit ever added, without the credit line.
    pub(super) granted: Nanousd,
    /// Money that can be spent now, the unused part of the credit line included. In a fleet it includes what
    /// is leased to nodes, with their holds for calls in flight.
    pub(super) available: Nanousd,
    /// Money held for calls in flight; in a fleet for open tasks, and the leases of silent nodes.
    pub(super) held: Nanousd,
    /// Paid cost of settled calls, less refunds.
    pub(super) spent: Nanousd,
    /// Debt: cost of settled calls beyond the balance; not part of the sum. Money that becomes available pays
    /// it first, and new requests are refused until then.
    pub(super) debt: Nanousd,
    /// The credit line: money that the operator lends, spent after the account's own money; zero for none.
    pub(super) credit_limit: Nanousd,
    /// Spent part of the credit line. A grant repays it first.
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
    /// The account with figures from the whole fleet.
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

/// Query of the list of accounts.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AccountsQuery {
    /// Maximum number of items; default 100.
    #[schemars(range(min = 1, max = PAGE_MAX))]
    limit: Option<usize>,
    /// `next_after` of the previous page.
    after: Option<AccountId>,
    /// Prefix of the account's id or name; the letter case of names is ignored.
    query: Option<String>,
}

/// `GET /admin/v1/accounts`, oldest first.
pub(super) async fn list(
    State(state): State<AdminState>,
    Params(AccountsQuery { limit, after, query }): Params<AccountsQuery>,
) -> ApiResult<Json<ListView<AccountView, AccountId>>> {
    let limit = check_limit(limit.unwrap_or(PAGE_DEFAULT))?;
    let query = query.map(|query| query.to_lowercase());
    let after = match after {
        None => None,
        Some(id) => {
            let account = state.ledger.account(id);
            // A cursor of one query is no place in the list of another.
            let account = account.filter(|it| query.as_deref().is_none_or(|q| begins(it, q)));
            Some(account.ok_or_else(unknown_cursor)?)
        }
    };
    // One more than is shown tells whether there is a next page.
    let (order, count) = (ListOrder::OldestFirst, limit + 1);
    let mut accounts = match query {
        None => state.ledger.list_accounts(order, after.as_ref(), count, |_| true),
        Some(query) => {
            let fits = move |_: &Ledger, account: &Account| begins(account, &query);
            search::accounts(&state.ledger, order, after, count, fits).await
        }
    };
    let next_after = cut_page(&mut accounts, limit, |account| account.id);
    // Figures of the page only: in a fleet they cost a query of the database.
    let accounts = state.ledger.with_figures(accounts).await?;
    let shown = accounts.into_iter().map(|account| AccountView::new(&state, account));
    Ok(Json(ListView::new(shown.collect(), next_after)))
}

/// True if the account's name, in lower case, or its id begins with `query`.
fn begins(account: &Account, query: &str) -> bool {
    account.name.to_lowercase().starts_with(query) || account.id.to_string().starts_with(query)
}

/// `GET /admin/v1/accounts/{account}`
pub(super) async fn show(
    State(state): State<AdminState>,
    PathNames(account): PathNames<String>,
) -> ApiResult<Json<AccountView>> {
    let id = find(&state, &account)?.id;
    // The balance on disk: what a crash could still undo is told to nobody.
    let account = state.ledger.durable_account(id).await?;
    Ok(Json(AccountView::new(&state, account.ok_or_else(unknown_account)?)))
}

/// Changes to an account. Omitted fields keep their values.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "AccountPatch")]
pub(super) struct AccountPatchBody {
    #[serde(default)]
    #[schemars(extend("minLength" = 1, "maxLength" = NAME_BYTES_MAX, "pattern" = TEXT_PATTERN))]
    name: Option<String>,
    /// True to refuse all keys of the account. Calls in flight continue.
    #[serde(default)]
    suspended: Option<bool>,
    #[serde(default)]
    limits: Option<ObjectBody<RatesBody>>,
    /// The new credit line; `null` or zero for none. A lower line withdraws available money; the part already
    /// spent becomes debt. 409 while calls in flight hold the money.
    #[serde(default, deserialize_with = "present")]
    credit_limit: Option<Option<CreditLimit>>,
    /// New hold rules for the account.
    #[serde(default)]
    holds: Option<ObjectBody<HoldsBody>>,
}

/// `PATCH /admin/v1/accounts/{account}`
pub(super) async fn update(
    State(state): State<AdminState>,
    PathNames(account): PathNames<String>,
    caller: Caller,
    Body(patch): Body<AccountPatchBody>,
) -> ApiResult<Json<AccountView>> {
    if let Some(name) = &patch.name {
        check_text("name", name)?;
    }
    let account = find(&state, &account)?;
    let AccountPatchBody { name, suspended, limits, credit_limit, holds } = patch;
    // All fields go into one ledger write: a refused credit line must not leave a changed name behind.
    let rates: RatesPatch = limits.map(|ObjectBody(limits)| limits.into()).unwrap_or_default();
    let credit_limit = credit_limit.map(|limit| limit.map_or(Nanousd::ZERO, |limit| limit.0));
    let holds = holds.map(|ObjectBody(holds)| holds.into()).unwrap_or_default();
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
    ApiError::not_found("The account does not exist.")
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewGrant {
    amount: PositiveAmount,
    /// Id chosen by the caller, such as an invoice number. The same id is granted once.
    #[schemars(extend("minLength" = 1, "maxLength" = NAME_BYTES_MAX, "pattern" = TEXT_PATTERN))]
    id: String,
}

/// A grant that is in the journal.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Grant")]
pub(super) struct GrantView {
    id: String,
    account_id: AccountId,
    amount: Nanousd,
    /// Position in the journal.
    seq: Seq,
}

/// `POST /admin/v1/accounts/{account}/grants`: 201 the first time, 200 with the same body after.
pub(super) async fn grant(
    State(state): State<AdminState>,
    PathNames(account): PathNames<String>,
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
    amount: PositiveAmount,
    /// Id chosen by the caller. The same id is refunded once.
    #[schemars(extend("minLength" = 1, "maxLength" = NAME_BYTES_MAX, "pattern" = TEXT_PATTERN))]
    id: String,
}

/// A refund that is in the journal.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Refund")]
pub(super) struct RefundView {
    id: String,
    account_id: AccountId,
    hold: HoldId,
    amount: Nanousd,
    /// Position in the journal.
    seq: Seq,
}

/// `POST /admin/v1/accounts/{account}/refunds`: 201 the first time, 200 with the same body after.
pub(super) async fn refund(
    State(state): State<AdminState>,
    PathNames(account): PathNames<String>,
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
    amount: PositiveAmount,
    /// Reason for writing the debt off, shown in the customer's statement.
    #[schemars(extend("minLength" = 1, "maxLength" = NAME_BYTES_MAX, "pattern" = TEXT_PATTERN))]
    note: String,
    /// Id chosen by the caller. The same id is written off once.
    #[schemars(extend("minLength" = 1, "maxLength" = NAME_BYTES_MAX, "pattern" = TEXT_PATTERN))]
    id: String,
}

/// A write-off of a debt, wholly or in part.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "WriteOff")]
pub(super) struct WriteOffView {
    id: String,
    account_id: AccountId,
    amount: Nanousd,
    note: String,
    /// Position in the journal.
    seq: Seq,
}

/// `POST /admin/v1/accounts/{account}/write-offs`: 201 the first time, 200 with the same body after.
pub(super) async fn write_off(
    State(state): State<AdminState>,
    PathNames(account): PathNames<String>,
    caller: Caller,
    Body(new): Body<NewWriteOff>,
) -> ApiResult<WrittenOnce<WriteOffView>> {
    check_text("id", &new.id)?;
    check_text("note", &new.note)?;
    let account = find(&state, &account)?.id;
    let NewWriteOff { amount: PositiveAmount(amount), note, id } = new;
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
