//! The form of a key: what was typed, what is wrong with it, and what it means.

use crate::fields::check_short_name;
use tollgate_config::snapshot::Snapshot;
use tollgate_ledger::key_rules::{
    KEY_MODEL_BYTES_MAX, KEY_MODELS_MAX, KeyModelsError, check_key_models,
};
use tollgate_ledger::{Key, KeyLimits, KeyLimitsPatch, KeyPatch, NewKey, RatesPatch};
use tollgate_limits::Rates;
use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;
use tollgate_web_kit::{FieldError, FieldErrors, Form, show};

/// The longest name of a key that a customer gives it, in characters: the list of keys has no room for
/// the longer ones that operators may give.
const NAME_CHARS_MAX: usize = 60;
/// Models that can be ticked. A configuration with more is written in the field below.
const TICKED_MAX: usize = 300;
const DAY_MS: u64 = 24 * 3_600_000;
const COUNT_EXPECTED: &str = "A whole number above zero, or nothing.";
const MONEY_EXPECTED: &str = "Dollars above zero such as 5 or 2.50, or nothing.";

/// The models that can be ticked, in the order of the configuration.
pub(super) struct ListedModels(pub(super) Vec<String>);

impl ListedModels {
    /// The first models of a configuration, as many as a page lists.
    pub(super) fn from_config(config: &Snapshot) -> Self {
        Self(config.models.iter().take(TICKED_MAX).map(|model| model.id.to_string()).collect())
    }
}

/// The fields of a key, as they are shown again when something is wrong with them.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyForm {
    pub(super) typed: Form,
}

impl KeyForm {
    /// The form that a customer has sent.
    pub(super) fn from_sent(form: &Form) -> Self {
        Self { typed: form.clone() }
    }

    /// The form of a key that there is, with what it is now.
    pub(super) fn from_key(key: &Key, limits: &KeyLimits) -> Self {
        let text = |value: Option<String>| value.unwrap_or_default();
        let models = if key.models.is_some() { "some" } else { "all" };
        let rates = limits.rates;
        let mut fields = vec![
            ("name", key.name.clone()),
            ("models", models.to_owned()),
            ("ends", text(key.expires_at.map(last_day))),
            ("requests", text(rates.requests_per_minute.map(|limit| limit.to_string()))),
            ("tokens", text(rates.tokens_per_minute.map(|limit| limit.to_string()))),
            ("at_once", text(rates.concurrent_requests.map(|limit| limit.to_string()))),
            ("per_day", text(limits.spend_per_day.map(|limit| limit.to_string()))),
            ("per_month", text(limits.spend_per_month.map(|limit| limit.to_string()))),
        ];
        fields.extend(key.models.iter().flatten().map(|model| ("model", model.clone())));
        Self { typed: Form::filled(fields) }
    }

    /// True if the key is limited to the chosen models.
    pub(super) fn limits_models(&self) -> bool {
        self.typed.text("models") == "some"
    }

    /// True if the model is ticked.
    pub(super) fn is_ticked(&self, model: &str) -> bool {
        self.typed.texts("model").any(|ticked| ticked == model)
    }

    /// The models that were chosen and are not in the list, between blanks: ticked before, or written
    /// in the field for other names.
    pub(super) fn unlisted(&self, listed: &ListedModels) -> String {
        let is_listed = |model: &&str| listed.0.iter().any(|listed| listed == model);
        let unlisted = self.typed.texts("model").filter(|model| !is_listed(model));
        let words = unlisted.chain(self.typed.text("others").split_whitespace());
        words.collect::<Vec<_>>().join(" ")
    }

    /// Reads a new key, or one that is as `before` and gets other properties.
    ///
    /// # Errors
    /// Something is wrong, which is noted at its field.
    pub(super) fn read(&mut self, before: Option<&Key>, now: UnixMs) -> Result<NewKey, ()> {
        let form = &self.typed;
        let mut errors = FieldErrors::default();
        check_short_name(&mut errors, "name", form.text("name"), NAME_CHARS_MAX);
        // Whoever gives a key all models again leaves those ticked that it had.
        let had_some = before.is_some_and(|key| key.models.is_some());
        if !self.limits_models() && !had_some && form.texts("model").next().is_some() {
            errors.note("models", "Models are ticked, and all are allowed. Choose one of the two.");
        }
        let ends_at = before.and_then(|key| key.expires_at);
        let new = NewKey {
            name: form.text("name").to_owned(),
            models: errors.take(self.models()),
            expires_at: errors.take(self.expires_at(ends_at, now)),
            limits: KeyLimits {
                rates: Rates {
                    requests_per_minute: errors.take(form.parsed("requests", COUNT_EXPECTED)),
                    tokens_per_minute: errors.take(form.parsed("tokens", COUNT_EXPECTED)),
                    concurrent_requests: errors.take(form.parsed("at_once", COUNT_EXPECTED)),
                },
                spend_per_day: errors.take(self.money("per_day")),
                spend_per_month: errors.take(self.money("per_month")),
            },
        };
        // All fields are read first, so that the page shows every error at once.
        let is_wrong = errors.is_any();
        self.typed.errors = errors;
        if is_wrong { Err(()) } else { Ok(new) }
    }

    fn models(&self) -> Result<Option<Vec<String>>, FieldError> {
        if !self.limits_models() {
            return Ok(None);
        }
        let written = self.typed.text("others").split_whitespace();
        let mut models: Vec<String> =
            self.typed.texts("model").chain(written).map(str::to_owned).collect();
        // A model may be ticked and typed as well.
        models.sort();
        models.dedup();
        let text = match check_key_models(Some(&models)) {
            Ok(()) if models.is_empty() => "Choose one at least, or allow all.".to_owned(),
            Ok(()) => return Ok(Some(models)),
            Err(KeyModelsError::TooMany) => {
                format!("At most {KEY_MODELS_MAX}; allow all instead.")
            }
            Err(KeyModelsError::TooLong | KeyModelsError::Name(_)) => {
                format!("A name has at most {KEY_MODEL_BYTES_MAX} characters.")
            }
        };
        Err(FieldError::new("models", text))
    }

    fn expires_at(
        &self,
        before: Option<UnixMs>,
        now: UnixMs,
    ) -> Result<Option<UnixMs>, FieldError> {
        let typed = self.typed.text("ends");
        if typed.is_empty() {
            return Ok(None);
        }
        // The form shows days only: an unchanged day keeps the exact time that the API may have set.
        if let Some(before) = before.filter(|before| last_day(*before) == typed) {
            return Ok(Some(before));
        }
        let day = UnixMs::parse_rfc3339(&format!("{typed}T00:00:00Z"));
        match day.map(|day| UnixMs(day.0.saturating_add(DAY_MS))) {
            None => Err(FieldError::new("ends", "A day such as 2027-01-31.")),
            Some(end) if end <= now => Err(FieldError::new("ends", "This day is over.")),
            end => Ok(end),
        }
    }

    fn money(&self, field: &'static str) -> Result<Option<Nanousd>, FieldError> {
        match self.typed.parsed::<Nanousd>(field, MONEY_EXPECTED)? {
            Some(amount) if amount <= Nanousd::ZERO => Err(FieldError::new(field, MONEY_EXPECTED)),
            amount => Ok(amount),
        }
    }
}

/// The last day on which a key works.
fn last_day(ends_at: UnixMs) -> String {
    // A key that ends at midnight works on the day before.
    show::day(&UnixMs(ends_at.0.saturating_sub(1)))
}

/// The change that makes a key so.
pub(super) fn patch(new: NewKey) -> KeyPatch {
    let NewKey { name, models, expires_at, limits } = new;
    KeyPatch {
        name: Some(name),
        models: Some(models),
        expires_at: Some(expires_at),
        disabled: None,
        limits: KeyLimitsPatch {
            rates: RatesPatch {
                requests_per_minute: Some(limits.rates.requests_per_minute),
                tokens_per_minute: Some(limits.rates.tokens_per_minute),
                concurrent_requests: Some(limits.rates.concurrent_requests),
            },
            spend_per_day: Some(limits.spend_per_day),
            spend_per_month: Some(limits.spend_per_month),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use tollgate_ledger::{AccountId, KeyId};
    use tollgate_types::secret::KeyHash;

    /// Noon of 2026-01-31 in UTC, in Unix milliseconds.
    const NOW: UnixMs = UnixMs(1_769_860_800_000);

    /// The form of a key that is called `a key`, unless `fields` say otherwise.
    fn form(fields: &[(&'static str, &str)]) -> KeyForm {
        let fields = fields.iter().map(|(name, text)| (*name, (*text).to_owned()));
        let name = ("name", "a key".to_owned());
        KeyForm { typed: Form::filled(fields.chain([name])) }
    }

    fn key(expires_at: Option<UnixMs>, models: Option<Vec<String>>) -> Key {
        Key {
            id: KeyId::random(),
            account: AccountId::random(),
            hash: KeyHash::of(b"a key"),
            name: "a key".to_owned(),
            models,
            expires_at,
            disabled: false,
            created_at: NOW,
            updated_at: NOW,
        }
    }

    /// A key must not get more than its owner has ticked because a button beside was not pressed.
    #[test]
    fn models_that_are_ticked_are_not_passed_over() {
        let mut typed = form(&[("model", "b")]);
        assert!(typed.read(None, NOW).is_err() && typed.typed.error("models").is_some());
        assert!(typed.read(Some(&key(None, None)), NOW).is_err());
        let had = key(None, Some(vec!["b".to_owned()]));
        assert_eq!(typed.read(Some(&had), NOW).expect("in order").models, None, "all again");
    }

    #[test]
    fn nothing_but_a_name_is_a_key_for_everything() {
        let new = form(&[]).read(None, NOW).expect("in order");
        assert_eq!(new, NewKey { name: "a key".to_owned(), ..NewKey::default() });
    }

    #[test]
    fn what_is_typed_is_what_the_key_gets() {
        let mut typed = form(&[
            ("models", "some"),
            ("model", "b"),
            ("others", " a  b "),
            ("ends", "2026-01-31"),
            ("requests", "60"),
            ("per_day", "2.50"),
        ]);
        let new = typed.read(None, NOW).expect("in order");
        assert_eq!(new.models, Some(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(new.expires_at.expect("an end").to_rfc3339(), "2026-02-01T00:00:00Z");
        assert_eq!(new.limits.rates.requests_per_minute, NonZeroU32::new(60));
        assert_eq!(new.limits.spend_per_day, Some(Nanousd::new(2_500_000_000)));
        let before = key(Some(UnixMs(NOW.0 + 5)), None);
        let new = typed.read(Some(&before), NOW).expect("in order");
        assert_eq!(new.expires_at, before.expires_at, "the same day keeps the time");
    }

    #[test]
    fn what_cannot_be_is_said_beside_its_field() {
        let mut many: Vec<(&str, String)> = vec![("models", "some".to_owned())];
        many.push(("others", "m".to_owned()));
        many.extend((0..101).map(|n| ("model", n.to_string())));
        let many: Vec<(&str, &str)> =
            many.iter().map(|(name, text)| (*name, text.as_str())).collect();
        let (long_name, long_model) = ("n".repeat(61), "m".repeat(129));
        let long_in_bytes = "é".repeat(65);
        for (field, form) in [
            ("name", form(&[("name", &long_name)])),
            ("models", form(&[("models", "some")])),
            ("models", form(&many)),
            ("models", form(&[("models", "some"), ("others", &long_model)])),
            ("models", form(&[("models", "some"), ("others", &long_in_bytes)])),
            ("ends", form(&[("ends", "2026-01-30")])),
            ("ends", form(&[("ends", "tomorrow")])),
            ("requests", form(&[("requests", "0")])),
            ("tokens", form(&[("tokens", "-5")])),
            ("at_once", form(&[("at_once", "99999999999")])),
            ("per_day", form(&[("per_day", "0")])),
            ("per_month", form(&[("per_month", "$5")])),
        ] {
            let mut form = form;
            assert!(form.read(None, NOW).is_err(), "{field} is in order: {form:?}");
            assert!(form.typed.error(field).is_some(), "{field}: {:?}", form.typed.errors);
        }
    }
}
