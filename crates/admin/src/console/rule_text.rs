//! Price rules as lines of a form: `gpt-5* factor=0.9 until=2027-01-01T00:00:00Z`.

use std::collections::BTreeSet;

use super::form::{FormRejection, FormResult};
use crate::error::ApiError;
use crate::prices::RuleBody;
use crate::value::Time;
use tollgate_ledger::LedgerError;
use tollgate_money::price::PriceRule;
use tollgate_types::clock::UnixMs;
use tollgate_web_kit::Form;

/// The rules, a line each.
pub(super) fn write(rules: &[PriceRule]) -> String {
    rules.iter().map(|rule| line(RuleBody::from(rule))).collect::<Vec<_>>().join("\n")
}

fn line(rule: RuleBody) -> String {
    let mut words = vec![rule.models];
    words.extend(rule.factor.map(|factor| format!("factor={factor}")));
    let prices = rule.prices.into_iter().flatten();
    words.extend(prices.map(|(name, dollars)| format!("{name}={dollars}")));
    for (name, time) in [("from", rule.from), ("until", rule.until)] {
        words.extend(time.map(|time| format!("{name}={}", time.0.to_rfc3339())));
    }
    words.join(" ")
}

/// The rules that were typed, a line each.
///
/// # Errors
/// Which line is no rule, and why.
pub(super) fn read(text: &str) -> Result<Vec<PriceRule>, String> {
    let lines = (1_usize..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    lines.map(|(at, line)| rule(line).map_err(|why| format!("Line {at}: {why}"))).collect()
}

fn rule(line: &str) -> Result<PriceRule, String> {
    let mut words = line.split_whitespace();
    let models = words.next().unwrap_or_default().to_owned();
    let mut rule = RuleBody { models, factor: None, prices: None, from: None, until: None };
    let mut names = BTreeSet::new();
    for word in words {
        let Some((name, value)) = word.split_once('=') else {
            return Err(format!("`{word}` is no name and value such as `factor=0.9`."));
        };
        // Two values of one name are a typing error that decides about money.
        if !names.insert(name) {
            return Err(format!("`{name}` is there twice."));
        }
        match name {
            "factor" => rule.factor = Some(value.to_owned()),
            "from" => rule.from = Some(time(value)?),
            "until" => rule.until = Some(time(value)?),
            price => {
                let prices = rule.prices.get_or_insert_default();
                prices.insert(price.to_owned(), value.to_owned());
            }
        }
    }
    // The API's reader: the line is the same rule in another spelling, and gets the same checks.
    rule.read(0).map_err(|error| error.message().to_owned())
}

/// The rules that a form shows and would replace, as its hidden field has them.
///
/// # Errors
/// When the form was not whole.
pub(super) fn replaced(form: &Form) -> FormResult<Vec<PriceRule>> {
    read(form.text("was")).map_err(|_| ApiError::malformed("The form was not whole.").into())
}

/// Parses the rules of the form.
///
/// # Errors
/// Which line is no rule, beside their field.
pub(super) fn typed(form: &Form) -> FormResult<Vec<PriceRule>> {
    read(form.text("rules")).map_err(|why| FormRejection::at("rules", why))
}

/// The ledger's refusal of prices, as an error of the form. A newer version of the rules is shown beside it.
pub(super) fn refuse(error: LedgerError) -> FormRejection {
    match error {
        LedgerError::Changed => {
            let text = "They were changed meanwhile, by somebody else or on another page. Open this \
                        page again to see what they are.";
            FormRejection::at("rules", text)
        }
        error => error.into(),
    }
}

/// A time, or a day of UTC for its beginning.
fn time(text: &str) -> Result<Time, String> {
    let midnight = if text.len() == "2027-01-31".len() { "T00:00:00Z" } else { "" };
    let time = UnixMs::parse_rfc3339(&format!("{text}{midnight}"));
    let wrong = || format!("`{text}` is no day such as 2027-01-31 and no time of RFC 3339.");
    time.map(Time).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let typed = "gpt-5* factor=0.9 from=2027-01-31\n\n  * input_per_1m_tokens=2.50 per_image=0.04 \
                     until=2027-12-31T12:00:00Z";
        let rules = read(typed).expect("rules");
        assert_eq!(
            write(&rules),
            "gpt-5* factor=0.9 from=2027-01-31T00:00:00Z\n\
             * input_per_1m_tokens=2.50 per_image=0.04 until=2027-12-31T12:00:00Z"
        );
        assert_eq!(read(&write(&rules)), Ok(rules));
        assert_eq!(read(" \n"), Ok(Vec::new()));
    }

    #[test]
    fn what_is_no_rule_is_said_with_its_line() {
        for (typed, says) in [
            ("* factor=1\ngpt-5 0.9", "Line 2: `0.9` is no name"),
            ("*", "either a `factor` or `prices`"),
            ("* factor=1 factor=2", "`factor` is there twice"),
            ("* factor=1 input_per_1m_tokens=1", "either a `factor` or `prices`"),
            ("* factor=1001", "from 0 to 1000"),
            ("* input_per_token=1", "`input_per_token` is no price"),
            ("* input_per_1m_tokens=-1", "dollars as a decimal"),
            ("g*t factor=1", "`models` is a model's name"),
            ("* factor=1 from=tomorrow", "`tomorrow` is no day"),
            ("* factor=1 from=2027-02-01 until=2027-01-01", "`until` is not after `from`"),
        ] {
            let wrong = read(typed).expect_err(typed);
            assert!(wrong.starts_with("Line ") && wrong.contains(says), "{typed}: {wrong}");
        }
    }
}
