//! Top-level fields of a request.

use super::PolicyReader;
use super::allowlist::Field;
use super::names::{not_lower_case, not_offered, shown};
use crate::json::Value;
use crate::json_cursor::Cursor;
use tollgate_money::price::{CacheWrites, Unit};
use tollgate_types::error::GatewayError;

impl PolicyReader<'_> {
    pub(super) fn field(&mut self, name: &str, value: &Value<'_>) {
        let entry = self.allowlist.fields.iter().find(|(entry, _)| *entry == name);
        let Some((name, field)) = entry else { return self.unlisted_field(name, value) };
        self.param = name;
        match field {
            Field::Plain => {}
            Field::Reference if value.is_null() => {}
            Field::Reference => {
                self.is_bounded = false;
                if *name == "prompt" {
                    self.note_kept(name.as_bytes(), value.text());
                }
                // What is kept there may have marks of its own.
                self.cache_writes = CacheWrites::Any;
            }
            Field::Settings(settings) => self.settings(name, value, settings),
            Field::Words(words) => self.words(name, value, words),
            Field::Modalities => self.modalities(name, value),
            Field::Thinking if self.priced.thinking || value.is_null() => {}
            Field::Runs(..) | Field::Sounds if matches!(value.text(), b"null" | b"false") => {}
            Field::Runs(unit, most) if self.priced.has_unit(*unit) => {
                self.searches(*unit, value, *most);
            }
            Field::Sounds if self.priced.has_unit(Unit::AudioOutputTokens) => {
                self.note_kept(name.as_bytes(), value.text());
            }
            Field::Thinking | Field::Runs(..) | Field::Sounds => self.passed_field(name, value),
            Field::ContextManagement => self.is_compacted |= !only_clears(value.text()),
            Field::Items(table) => self.within(value, |reader, cursor| reader.items(cursor, table)),
            Field::Tools => self.within(value, Self::all_tools),
            Field::Omitted(needed) if !self.pass.has_field(name) && is_wish(value, *needed) => {
                self.left_out_fields.push(name);
            }
            Field::Omitted(_) => self.passed_field(name, value),
        }
    }

    /// Notes an unreadable value as unbounded.
    fn within(
        &mut self,
        value: &Value<'_>,
        read: impl FnOnce(&mut Self, &mut Cursor<'_>) -> Option<()>,
    ) {
        let is_read = read(self, &mut Cursor::of_member(self.body, value)).is_some();
        self.is_bounded &= is_read;
    }

    fn unlisted_field(&mut self, name: &str, value: &Value<'_>) {
        let shown = shown(name);
        if !name.is_ascii() {
            // Some parsers fold letters: the Kelvin sign to `k`, the long s to `s`.
            let message = format!("`{shown}` is not a field; field names are ASCII");
            return self.refuse(GatewayError::invalid(shown, message));
        }
        if self.allowlist.fields.iter().any(|(listed, _)| listed.eq_ignore_ascii_case(name)) {
            return self.refuse(not_lower_case(&shown));
        }
        self.passed_field(name, value);
    }

    /// A field that only the operator's word lets through.
    fn passed_field(&mut self, name: &str, value: &Value<'_>) {
        self.note_kept(name.as_bytes(), value.text());
        if self.pass.has_field(name) {
            self.has_passed = true;
            self.is_bounded &= value.is_null();
            return;
        }
        let shown = shown(name);
        let error = not_offered("", &format!("`{shown}`"), "pass_fields");
        self.refuse(GatewayError { param: Some(shown.into()), ..error });
    }

    fn words(&mut self, name: &'static str, value: &Value<'_>, words: &[&str]) {
        let is_word =
            |value: &Value<'_>| value.as_str().is_some_and(|word| words.contains(&&*word));
        // What is priced is one word: of a list nobody knows which one counts.
        let priced_as = priced_as(name);
        let is_priced =
            || value.as_str().is_some_and(|word| self.priced.has_word(priced_as, &word));
        let are_words = || value.elements().is_some_and(|mut all| all.all(|one| is_word(&one)));
        if value.is_null() || is_word(value) || is_priced() || are_words() {
            return;
        }
        if self.pass.has_field(name) {
            self.has_passed = true;
            return;
        }
        // A word can have several prices, such as one for long prompts: it is named once.
        let mut takes = words.to_vec();
        for (_, word) in self.priced.words.iter().filter(|(field, _)| *field == priced_as) {
            if !takes.contains(word) {
                takes.push(word);
            }
        }
        let message = format!(
            "`{name}` must be {}: what else costs is not known. An operator can give it a price for \
             this model with `prices_when`, or allow it with `pass_fields`, in models.yaml.",
            takes.join(" or ")
        );
        self.refuse(GatewayError::invalid(name, message));
    }

    /// Reads a word, or a list of them.
    fn modalities(&mut self, name: &'static str, value: &Value<'_>) {
        let priced = self.priced;
        let has_price = |word: &str| match word {
            "text" => true,
            "audio" => priced.has_unit(Unit::AudioOutputTokens),
            "image" => priced.has_unit(Unit::ImageOutputTokens),
            _ => false,
        };
        let is_priced = |one: Value<'_>| one.as_str().is_some_and(|word| has_price(&word));
        if value.elements().is_some_and(|mut all| all.all(is_priced)) {
            return;
        }
        self.words(name, value, &["text"]);
    }
}

/// True for a field that can be left out: any, or an object whose `key` is `word`.
fn is_wish(value: &Value<'_>, needed: Option<(&str, &str)>) -> bool {
    let Some((key, word)) = needed.filter(|_| !value.is_null()) else { return true };
    let object = value.as_object().ok();
    let found = object.as_ref().and_then(|object| object.get(key));
    found.is_some_and(|found| found.as_str().as_deref() == Some(word))
}

/// The name of a field where prices depend on it. Google's has two spellings.
fn priced_as(name: &'static str) -> &'static str {
    if name == "serviceTier" { "service_tier" } else { name }
}

/// True if the management of a long context only removes parts of it.
fn only_clears(text: &[u8]) -> bool {
    let mut clears = true;
    let mut edit = |edit: &mut Cursor<'_>| {
        let mut kinds = 0;
        edit.object(|key, value| {
            let value = value.raw()?;
            if key == b"type" {
                kinds += 1;
                clears &= value.starts_with(b"\"clear_");
            }
            Some(())
        })?;
        clears &= kinds == 1;
        Some(())
    };
    let mut edits = |key: &[u8], value: &mut Cursor<'_>| match (key, value.next_byte()?) {
        (b"edits", b'[') => value.array(&mut edit),
        _ => None,
    };
    let is_read = Cursor::new(text).object(&mut edits).is_some();
    text == b"null" || (text.starts_with(b"{") && is_read && clears)
}
