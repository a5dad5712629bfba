//! Accounts and what operators do with their money.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use super::AdminState;
use super::error::{Answer, ApiError};
use super::limits::{RatesBody, RatesView};
use super::request::{Body, Page, Params};
use crate::ledger::{Account, AccountId, HoldId};
use crate::money::Nanousd;

/// The longest name and the longest id of a caller's own, in bytes.
const TEXT_BYTES_MAX: usize = 256;

/// An account as it is shown.
#[derive(Serialize)]
pub(super) struct AccountView {
    id: AccountId,
    name: String,
    created_at: String,
    balance: BalanceView,
    limits: RatesView,
}

#[derive(Serialize)]
struct BalanceView {
    granted: Nanousd,
    available: Nanousd,
    held: Nanousd,
    spent: Nanousd,
}

impl AccountView {
    fn of(state: &AdminState, account: Account) -> Self {
        let balance = account.balance;
        Self {
            id: account.id,
            name: account.name,
            created_at: account.created_at.to_rfc3339(),
            balance: BalanceView {
                granted: balance.granted,
                available: balance.available,
                held: balance.held,
                spent: balance.spent,
            },
            limits: state.ledger.account_rates(account.id).into(),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewAccount {
    name: String,
}

/// `POST /admin/v1/accounts`
pub(super) async fn create(
    State(state): State<AdminState>,
    Body(new): Body<NewAccount>,
) -> Answer<(StatusCode, Json<AccountView>)> {
    checked("name", &new.name)?;
    let account = state.ledger.create_account(&new.name).await?;
    Ok((StatusCode::CREATED, Json(AccountView::of(&state, account))))
}

/// `GET /admin/v1/accounts`, oldest first.
pub(super) async fn list(
    State(state): State<AdminState>,
    Params(page): Params<Page<AccountId>>,
) -> Answer<Json<Value>> {
    let accounts = state.ledger.accounts();
    Ok(Json(page.list(
        accounts,
        |account| account.id,
        |account| AccountView::of(&state, account),
    )?))
}

/// `GET /admin/v1/accounts/{account}`
pub(super) async fn show(
    State(state): State<AdminState>,
    Path(account): Path<String>,
) -> Answer<Json<AccountView>> {
    let id = find(&state, &account)?.id;
    let account = state.ledger.durable_account(id).await?;
    Ok(Json(AccountView::of(&state, account.ok_or_else(unknown_account)?)))
}

/// What to change: a field that is left out stays as it is.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AccountPatch {
    #[serde(default)]
    limits: Option<RatesBody>,
}

/// `PATCH /admin/v1/accounts/{account}`
pub(super) async fn update(
    State(state): State<AdminState>,
    Path(account): Path<String>,
    Body(patch): Body<AccountPatch>,
) -> Answer<Json<AccountView>> {
    let account = find(&state, &account)?;
    if let Some(limits) = patch.limits {
        state.ledger.limit_account(account.id, limits.into()).await?;
    }
    let account = state.ledger.durable_account(account.id).await?;
    Ok(Json(AccountView::of(&state, account.ok_or_else(unknown_account)?)))
}

/// The account that a path names.
pub(super) fn find(state: &AdminState, id: &str) -> Answer<Account> {
    let account = id.parse().ok().and_then(|id| state.ledger.account(id));
    account.ok_or_else(unknown_account)
}

fn unknown_account() -> ApiError {
    ApiError::not_found("There is no such account.")
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewGrant {
    amount: Amount,
    id: String,
}

/// `POST /admin/v1/accounts/{account}/grants`: 201 the first time, 200 with the same body after.
pub(super) async fn grant(
    State(state): State<AdminState>,
    Path(account): Path<String>,
    Body(new): Body<NewGrant>,
) -> Answer<(StatusCode, Json<Value>)> {
    checked("id", &new.id)?;
    let account = find(&state, &account)?.id;
    let granted = state.ledger.grant(account, &new.id, new.amount.0).await?;
    let body =
        json!({"id": new.id, "account_id": account, "amount": new.amount.0, "seq": granted.seq});
    Ok((first_or_repeated(granted.repeated), Json(body)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewRefund {
    hold: HoldId,
    amount: Amount,
    id: String,
}

/// `POST /admin/v1/accounts/{account}/refunds`: 201 the first time, 200 with the same body after.
pub(super) async fn refund(
    State(state): State<AdminState>,
    Path(account): Path<String>,
    Body(new): Body<NewRefund>,
) -> Answer<(StatusCode, Json<Value>)> {
    checked("id", &new.id)?;
    let account = find(&state, &account)?.id;
    let granted = state.ledger.refund(account, &new.id, new.hold, new.amount.0).await?;
    let body = json!({
        "id": new.id,
        "account_id": account,
        "hold": new.hold,
        "amount": new.amount.0,
        "seq": granted.seq,
    });
    Ok((first_or_repeated(granted.repeated), Json(body)))
}

fn first_or_repeated(repeated: bool) -> StatusCode {
    if repeated { StatusCode::OK } else { StatusCode::CREATED }
}

/// Checks a caller's name or id: something to read, within reason, and nothing that could break a
/// line of a log.
pub(super) fn checked(param: &'static str, text: &str) -> Answer<()> {
    if (1..=TEXT_BYTES_MAX).contains(&text.len()) && !text.contains(char::is_control) {
        return Ok(());
    }
    let message = format!("`{param}` has 1 to {TEXT_BYTES_MAX} bytes and no control characters.");
    Err(ApiError::invalid(param, message))
}

/// An amount of dollars above zero: a decimal string, or a JSON integer. A JSON number with a
/// fraction is refused: many programs round it on its way.
pub(super) struct Amount(pub(super) Nanousd);

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;

        struct Dollars;

        impl serde::de::Visitor<'_> for Dollars {
            type Value = Amount;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("US dollars above zero as a decimal string such as \"10.00\"")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Amount, E> {
                let amount: Nanousd = text.parse().map_err(E::custom)?;
                if amount.is_zero() {
                    return Err(E::invalid_value(serde::de::Unexpected::Str(text), &self));
                }
                Ok(Amount(amount))
            }

            fn visit_u64<E: Error>(self, dollars: u64) -> Result<Amount, E> {
                self.visit_str(&dollars.to_string())
            }
        }

        deserializer.deserialize_any(Dollars)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_exact_or_refused() {
        for (json, nanousd) in
            [(r#""10.00""#, 10_000_000_000), ("3", 3_000_000_000), (r#""0.000000001""#, 1)]
        {
            let amount: Amount = serde_json::from_str(json).expect(json);
            assert_eq!(amount.0.get(), nanousd, "{json} in nano-dollars");
        }
        for json in [
            "10.0",
            "1e1",
            "0",
            r#""0.00""#,
            "-1",
            r#""-1""#,
            r#""1e3""#,
            "null",
            "99999999999",
            r#""""#,
        ] {
            assert!(serde_json::from_str::<Amount>(json).is_err(), "{json} was accepted");
        }
    }
}
