//! Form fields of a customer's hold rules.

use std::time::Duration;

use tollgate_ledger::{AccountId, HoldsPatch, Ledger};
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
            // An empty field means the rule for all, so an empty list needs a word.
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

/// The rules as the operator's form has them.
///
/// # Errors
/// The first field with an invalid value.
pub(super) fn patch(form: &Form) -> Result<HoldsPatch, FieldError> {
    let wait: Option<u64> = form.parsed("wait_ms", "Whole milliseconds, 600000 at most.")?;
    Ok(HoldsPatch {
        means: Some(means(form)?),
        output_floor: Some(form.parsed("output_floor", "A whole number of tokens.")?),
        slice: Some(form.parsed("slice", "A whole number of tokens.")?),
        wait: Some(wait.map(Duration::from_millis)),
    })
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
