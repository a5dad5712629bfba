//! The form of a key: what was typed, what is wrong with it, and what it means.

use std::num::NonZeroU32;

use crate::clock::UnixMs;
use crate::config::snapshot::Snapshot;
use crate::console::fields::{Fields, Wrong, check_name};
use crate::ledger::{Key, KeyLimits, KeyLimitsPatch, KeyPatch, NewKey, RatesPatch};
use crate::limits::Rates;
use crate::money::Nanousd;
use crate::web::show;

/// The longest name of a key, in characters.
const NAME_CHARS_MAX: usize = 60;
/// The most models that a key can be limited to, and the longest name of one: the ledger's limits.
const MODELS_MAX: usize = 100;
const MODEL_CHARS_MAX: usize = 128;
/// Models that can be ticked. A configuration with more is written in the field below.
const TICKED_MAX: usize = 300;
const DAY_MS: u64 = 24 * 3_600_000;

/// The models that can be ticked.
pub(super) struct Known(pub(super) Vec<String>);

impl Known {
    /// Those of a configuration, in its order.
    pub(super) fn of(config: &Snapshot) -> Self {
        Self(config.models.iter().take(TICKED_MAX).map(|model| model.id.to_string()).collect())
    }
}

/// What was typed, as it is shown again when something is wrong with it.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyForm {
    pub(super) name: String,
    /// Whether only the models that are chosen may be called.
    pub(super) some_models: bool,
    pub(super) ticked: Vec<String>,
    /// Further names, between blanks.
    pub(super) others: String,
    /// A day, or nothing.
    pub(super) ends: String,
    pub(super) requests: String,
    pub(super) tokens: String,
    pub(super) at_once: String,
    pub(super) per_day: String,
    pub(super) per_month: String,
    pub(super) wrong: Wrong,
}

impl KeyForm {
    /// What was sent.
    pub(super) fn of(fields: &Fields) -> Self {
        let text = |name| fields.text(name).to_owned();
        Self {
            name: text("name"),
            some_models: fields.text("models") == "some",
            ticked: fields.all("model").map(str::to_owned).collect(),
            others: text("others"),
            ends: text("ends"),
            requests: text("requests"),
            tokens: text("tokens"),
            at_once: text("at_once"),
            per_day: text("per_day"),
            per_month: text("per_month"),
            wrong: Wrong::default(),
        }
    }

    /// What a key is now.
    pub(super) fn filled(key: &Key, limits: &KeyLimits) -> Self {
        let number = |number: Option<NonZeroU32>| number.map_or(String::new(), |n| n.to_string());
        let money = |money: Option<Nanousd>| money.map_or(String::new(), |m| m.to_string());
        Self {
            name: key.name.clone(),
            some_models: key.models.is_some(),
            ticked: key.models.clone().unwrap_or_default(),
            others: String::new(),
            ends: key.expires_at.map_or(String::new(), last_day),
            requests: number(limits.rates.requests_per_minute),
            tokens: number(limits.rates.tokens_per_minute),
            at_once: number(limits.rates.concurrent_requests),
            per_day: money(limits.spend_per_day),
            per_month: money(limits.spend_per_month),
            wrong: Wrong::default(),
        }
    }

    /// Whether a model is ticked.
    pub(super) fn is_ticked(&self, model: &str) -> bool {
        self.ticked.iter().any(|ticked| ticked == model)
    }

    /// What is chosen and cannot be ticked, and what was written there.
    pub(super) fn unlisted(&self, known: &Known) -> String {
        let unlisted = self.ticked.iter().filter(|model| !known.0.contains(model));
        let words = unlisted.map(String::as_str).chain(self.others.split_whitespace());
        words.collect::<Vec<_>>().join(" ")
    }

    /// What it means for a new key, or for one that is as `before`.
    ///
    /// # Errors
    /// Something is wrong, which is noted.
    pub(super) fn read(&mut self, before: Option<&Key>, now: UnixMs) -> Result<NewKey, ()> {
        let mut wrong = Wrong::default();
        check_name(&mut wrong, "name", &self.name, NAME_CHARS_MAX);
        // Whoever gives a key all models again leaves those ticked that it had.
        let had_some = before.is_some_and(|key| key.models.is_some());
        if !self.some_models && !had_some && !self.ticked.is_empty() {
            wrong.note("models", "Models are ticked, and all are allowed. Choose one of the two.");
        }
        let new = NewKey {
            name: self.name.clone(),
            models: self.models(&mut wrong),
            expires_at: self.end(&mut wrong, before.and_then(|key| key.expires_at), now),
            limits: KeyLimits {
                rates: Rates {
                    requests_per_minute: number(&mut wrong, "requests", &self.requests),
                    tokens_per_minute: number(&mut wrong, "tokens", &self.tokens),
                    concurrent_requests: number(&mut wrong, "at_once", &self.at_once),
                },
                spend_per_day: money(&mut wrong, "per_day", &self.per_day),
                spend_per_month: money(&mut wrong, "per_month", &self.per_month),
            },
        };
        let is_wrong = wrong.is_any();
        self.wrong = wrong;
        if is_wrong { Err(()) } else { Ok(new) }
    }

    fn models(&self, wrong: &mut Wrong) -> Option<Vec<String>> {
        if !self.some_models {
            return None;
        }
        let written = self.others.split_whitespace().map(str::to_owned);
        let mut models: Vec<String> = self.ticked.iter().cloned().chain(written).collect();
        models.sort();
        models.dedup();
        if models.is_empty() {
            wrong.note("models", "Choose one at least, or allow all.");
        } else if models.len() > MODELS_MAX {
            wrong.note("models", format!("At most {MODELS_MAX}; allow all instead."));
        } else if models.iter().any(|model| {
            model.chars().count() > MODEL_CHARS_MAX || model.chars().any(char::is_control)
        }) {
            wrong.note("models", format!("A name has at most {MODEL_CHARS_MAX} characters."));
        }
        Some(models)
    }

    fn end(&self, wrong: &mut Wrong, ends_at: Option<UnixMs>, now: UnixMs) -> Option<UnixMs> {
        if self.ends.is_empty() {
            return None;
        }
        if let Some(ends_at) = ends_at.filter(|ends_at| last_day(*ends_at) == self.ends) {
            return Some(ends_at);
        }
        let day = UnixMs::parse_rfc3339(&format!("{}T00:00:00Z", self.ends));
        match day.map(|day| UnixMs(day.0.saturating_add(DAY_MS))) {
            None => wrong.note("ends", "A day such as 2027-01-31."),
            Some(end) if end <= now => wrong.note("ends", "This day is over."),
            end => return end,
        }
        None
    }
}

/// The last day on which a key works.
fn last_day(ends_at: UnixMs) -> String {
    show::day(&UnixMs(ends_at.0.saturating_sub(1)))
}

fn number(wrong: &mut Wrong, field: &'static str, text: &str) -> Option<NonZeroU32> {
    if text.is_empty() {
        return None;
    }
    let number = text.parse().ok();
    if number.is_none() {
        wrong.note(field, "A whole number above zero, or nothing.");
    }
    number
}

fn money(wrong: &mut Wrong, field: &'static str, text: &str) -> Option<Nanousd> {
    if text.is_empty() {
        return None;
    }
    let amount = text.parse().ok().filter(|amount: &Nanousd| *amount > Nanousd::ZERO);
    if amount.is_none() {
        wrong.note(field, "Dollars above zero such as 5 or 2.50, or nothing.");
    }
    amount
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
    use super::*;
    use crate::ledger::{AccountId, KeyId};
    use crate::secret::KeyHash;

    /// 2026-01-31 12:00 UTC.
    const NOW: UnixMs = UnixMs(1_769_860_800_000);

    fn form() -> KeyForm {
        KeyForm { name: "a key".to_owned(), ..KeyForm::default() }
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
        let mut typed = KeyForm { ticked: vec!["b".to_owned()], ..form() };
        assert!(typed.read(None, NOW).is_err() && !typed.wrong.with("models").is_empty());
        assert!(typed.read(Some(&key(None, None)), NOW).is_err());
        let had = key(None, Some(vec!["b".to_owned()]));
        assert_eq!(typed.read(Some(&had), NOW).expect("in order").models, None, "all again");
    }

    #[test]
    fn nothing_but_a_name_is_a_key_for_everything() {
        let new = form().read(None, NOW).expect("in order");
        assert_eq!(new, NewKey { name: "a key".to_owned(), ..NewKey::default() });
    }

    #[test]
    fn what_is_typed_is_what_the_key_gets() {
        let mut typed = KeyForm {
            some_models: true,
            ticked: vec!["b".to_owned()],
            others: " a  b ".to_owned(),
            ends: "2026-01-31".to_owned(),
            requests: "60".to_owned(),
            per_day: "2.50".to_owned(),
            ..form()
        };
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
        for (field, form) in [
            ("name", KeyForm { name: "n".repeat(61), ..form() }),
            ("models", KeyForm { some_models: true, ..form() }),
            (
                "models",
                KeyForm {
                    some_models: true,
                    others: "m".to_owned(),
                    ticked: (0..101).map(|n| n.to_string()).collect(),
                    ..form()
                },
            ),
            ("models", KeyForm { some_models: true, others: "m".repeat(129), ..form() }),
            ("ends", KeyForm { ends: "2026-01-30".to_owned(), ..form() }),
            ("ends", KeyForm { ends: "tomorrow".to_owned(), ..form() }),
            ("requests", KeyForm { requests: "0".to_owned(), ..form() }),
            ("tokens", KeyForm { tokens: "-5".to_owned(), ..form() }),
            ("at_once", KeyForm { at_once: "99999999999".to_owned(), ..form() }),
            ("per_day", KeyForm { per_day: "0".to_owned(), ..form() }),
            ("per_month", KeyForm { per_month: "$5".to_owned(), ..form() }),
        ] {
            let mut form = form;
            assert!(form.read(None, NOW).is_err(), "{field} is in order: {form:?}");
            assert!(!form.wrong.with(field).is_empty(), "{field}: {:?}", form.wrong);
        }
    }
}
