//! Members of a field that is an object, and which of their values change a price.

use super::PolicyReader;
use super::names::{not_offered, shown};
use crate::json::Value;
use tollgate_money::price::{CacheWrites, Unit};
use tollgate_types::error::GatewayError;

/// The members of an object, by name.
pub(in super::super) type SettingTable = &'static [(&'static str, Setting)];

/// Permitted values of a member.
pub(in super::super) enum Setting {
    /// Any value: none changes a price.
    Plain,
    /// One of these words or booleans; the cost of others is unknown.
    Words(&'static [&'static str]),
    /// Lifetime of the provider's prompt cache writes.
    Lifetime(&'static [Lifetime]),
}

/// A lifetime of a prompt cache.
pub(in super::super) struct Lifetime {
    /// Name as it stands in requests.
    pub(in super::super) word: &'static str,
    /// The unit that needs a price before it may be asked for; `None` for the usual lifetime.
    pub(in super::super) unit: Option<Unit>,
}

/// OpenAI's options of the prompt cache: API reference, "Create a response", `prompt_cache_options`.
/// `comparison_response_id` is left out, since it names what another customer may have made, and
/// `prewarm`, since an answer without output may come without a usage.
pub(super) const CACHE_OPTIONS: SettingTable = &[
    ("mode", Setting::Plain),
    ("ttl", Setting::Lifetime(OPENAI_LIFETIMES)),
    ("prewarm", Setting::Words(&["false"])),
];

/// OpenAI's mark at the end of what is to be written to the prompt cache.
pub(super) const CACHE_BREAKPOINT: SettingTable =
    &[("mode", Setting::Plain), ("ttl", Setting::Lifetime(OPENAI_LIFETIMES))];

const OPENAI_LIFETIMES: &[Lifetime] = &[
    Lifetime { word: "30m", unit: None },
    Lifetime { word: "12h", unit: Some(Unit::CacheWrite12hTokens) },
];

impl PolicyReader<'_> {
    /// Reads the members of the object behind `name`, which stands in the field that is read or is it.
    /// A refusal of a value counts wherever the object stands.
    pub(super) fn settings(&mut self, name: &str, value: &Value<'_>, settings: SettingTable) {
        if value.is_null() {
            return;
        }
        let Ok(object) = value.as_object() else {
            let message = format!("`{name}` must be an object");
            return self.refuse_setting(GatewayError::invalid(self.param, message));
        };
        for (key, value) in object.members() {
            self.setting(name, key, &value, settings);
        }
    }

    fn setting(&mut self, name: &str, key: &str, value: &Value<'_>, settings: SettingTable) {
        let entry = settings.iter().find(|(entry, _)| *entry == key);
        let is_fine = match entry {
            _ if value.is_null() => true,
            None => false,
            Some((_, Setting::Plain)) => true,
            Some((_, Setting::Words(words))) => words.iter().any(|word| is_word(value, word)),
            Some((_, Setting::Lifetime(lifetimes))) => {
                return self.lifetime(name, key, value, lifetimes);
            }
        };
        if !is_fine && !self.passes_setting(name, key) {
            let what = match entry {
                None => format!("`{name}.{}`", shown(key)),
                Some(_) => format!("such a `{name}.{key}`"),
            };
            self.refuse_setting(not_offered(self.param, &what, "pass_fields"));
        }
    }

    fn lifetime(&mut self, name: &str, key: &str, value: &Value<'_>, lifetimes: &[Lifetime]) {
        let requested = lifetimes.iter().find(|lifetime| is_word(value, lifetime.word));
        match requested.map(|lifetime| lifetime.unit) {
            Some(None) => {}
            Some(Some(unit)) if self.priced.has_unit(unit) => {
                self.cache_writes = CacheWrites::Any;
                self.written_as = Some(unit);
            }
            _ if self.passes_setting(name, key) => {}
            Some(Some(unit)) => {
                let word = value.as_str().unwrap_or_default();
                let message = format!(
                    "`{name}.{key}` of {word} is not offered here: it has no price. An operator \
                     can give it one for this model with `{}` in models.yaml.",
                    unit.info().price
                );
                self.refuse_setting(GatewayError::invalid(self.param, message));
            }
            None => {
                let allowed = |lifetime: &&Lifetime| {
                    lifetime.unit.is_none_or(|unit| self.priced.has_unit(unit))
                };
                let words: Vec<&str> =
                    lifetimes.iter().filter(allowed).map(|lifetime| lifetime.word).collect();
                let words = words.join(" or ");
                let message =
                    format!("`{name}.{key}` must be {words}: what else costs is not known");
                self.refuse_setting(GatewayError::invalid(self.param, message));
            }
        }
    }

    /// True if the operator permits the member, by its own name or its object's.
    fn passes_setting(&mut self, name: &str, key: &str) -> bool {
        let passes = self.pass.has_field(name) || self.pass.has_field(&format!("{name}.{key}"));
        self.has_passed |= passes;
        passes
    }

    #[cold]
    fn refuse_setting(&mut self, error: GatewayError) {
        self.setting_refusal.get_or_insert_with(|| Box::new(error));
    }
}

/// True if a value is this word, or this boolean.
fn is_word(value: &Value<'_>, word: &str) -> bool {
    value.as_str().as_deref() == Some(word) || value.text() == word.as_bytes()
}
