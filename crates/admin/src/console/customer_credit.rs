//! The credit line of a customer, and the rules by which its requests are held.

use std::time::Duration;

use axum::response::Response;

use super::access::{LoggedInOperator, Visit};
use super::customer::finish;
use super::form::{self, FormResult};
use tollgate_ledger::{AccountId, AccountPatch, HoldsPatch, Ledger};
use tollgate_options::holds::Means;
use tollgate_web_kit::{FieldError, Form};

/// The word of an operator for no means at all.
const NO_MEANS: &str = "none";

/// Hold rules as they stand in their fields.
pub(super) struct TypedHolds {
    pub(super) means: String,
    pub(super) output_floor: String,
    pub(super) slice: String,
    pub(super) wait_ms: String,
}

impl TypedHolds {
    pub(super) fn new(ledger: &Ledger, account: AccountId) -> Self {
        let holds = ledger.hold_overrides(account).unwrap_or_default();
        let text = |figure: Option<u128>| figure.map(|figure| figure.to_string());
        let means = holds.means.as_ref().map(|means| match means.as_slice() {
            [] => NO_MEANS.to_owned(),
            means => means.iter().map(|one| one.as_str()).collect::<Vec<_>>().join(", "),
        });
        Self {
            means: means.unwrap_or_default(),
            output_floor: text(holds.output_floor.map(u128::from)).unwrap_or_default(),
            slice: text(holds.slice.map(u128::from)).unwrap_or_default(),
            wait_ms: text(holds.wait.map(|wait| wait.as_millis())).unwrap_or_default(),
        }
    }
}

/// `POST /operator/customers/{account}/credit`
pub(super) async fn set_line(Visit { operator, account }: Visit, form: Form) -> Response {
    let result = submit_line(&operator, account.id, &form).await;
    finish(&operator, account, form, result, "credit-set").await
}

async fn submit_line(
    operator: &LoggedInOperator,
    account: AccountId,
    form: &Form,
) -> FormResult<()> {
    let credit_limit = Some(form.amount("credit_limit")?.unwrap_or_default());
    let patch = AccountPatch { credit_limit, ..AccountPatch::default() };
    let set = operator.by(form)?.update_account(account, patch).await;
    set.map_err(|error| form::refuse_amount("credit_limit", error))?;
    Ok(())
}

/// `POST /operator/customers/{account}/holds`
pub(super) async fn set_holds(Visit { operator, account }: Visit, form: Form) -> Response {
    let result = submit_holds(&operator, account.id, &form).await;
    finish(&operator, account, form, result, "holds-set").await
}

async fn submit_holds(
    operator: &LoggedInOperator,
    account: AccountId,
    form: &Form,
) -> FormResult<()> {
    let wait: Option<u64> = form.parsed("wait_ms", "Whole milliseconds, 600000 at most.")?;
    let holds = HoldsPatch {
        means: Some(means(form)?),
        output_floor: Some(form.parsed("output_floor", "A whole number of tokens.")?),
        slice: Some(form.parsed("slice", "A whole number of tokens.")?),
        wait: Some(wait.map(Duration::from_millis)),
    };
    let patch = AccountPatch { holds, ..AccountPatch::default() };
    operator.by(form)?.update_account(account, patch).await?;
    Ok(())
}

fn means(form: &Form) -> Result<Option<Vec<Means>>, FieldError> {
    const WRONG: &str = "Words such as credit, count, clamp and rolling, with commas between them.";
    match form.text("means") {
        "" => Ok(None),
        NO_MEANS => Ok(Some(Vec::new())),
        words => {
            let means = words.split(',').map(|word| Means::of(word.trim())).collect();
            let means: Option<Vec<_>> = means;
            means.map(Some).ok_or_else(|| FieldError::new("means", WRONG))
        }
    }
}
