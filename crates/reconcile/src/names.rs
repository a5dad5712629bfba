//! Models and credentials by names that both sides know.

use std::collections::{BTreeMap, BTreeSet};

use crate::day::Day;
use crate::own::OwnLine;
use crate::report::StatementKey;
use crate::statement::BilledKey;

/// The name of lines of a provider that are of no credential, such as those of its own web pages.
const NO_CREDENTIAL: &str = "(none)";

/// The names of our side, and which of them a provider's names stand for.
#[derive(Debug)]
pub(crate) struct SharedNames<'a> {
    models: BTreeSet<&'a str>,
    credentials: BTreeSet<&'a str>,
    /// The provider's ids, each with our name.
    mapping: &'a BTreeMap<String, String>,
}

/// Dimensions of the comparison besides the day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupBy {
    pub(crate) by_model: bool,
    pub(crate) by_credential: bool,
}

/// A line's key, and whether we have never used its model or its credential.
#[derive(Debug)]
pub(crate) struct ResolvedKey {
    pub(crate) key: StatementKey,
    pub(crate) is_foreign: bool,
}

impl<'a> SharedNames<'a> {
    pub(crate) fn new(own: &'a [OwnLine], mapping: &'a BTreeMap<String, String>) -> Self {
        Self {
            models: own.iter().map(|line| line.model.as_str()).collect(),
            credentials: own.iter().map(OwnLine::credential_name).collect(),
            mapping,
        }
    }

    /// Granularity of lines with these keys: by model if any has one, by credential if any id maps to
    /// one of ours.
    pub(crate) fn grain<'k>(&self, keys: impl Iterator<Item = &'k BilledKey>) -> GroupBy {
        let mut grain = GroupBy { by_model: false, by_credential: false };
        for key in keys {
            grain.by_model |= !key.models.is_empty();
            // Without any shared name, every credential would be a difference; they are added up instead.
            grain.by_credential |= key.ids.iter().any(|id| self.own_credential(id).is_some());
        }
        grain
    }

    /// The key of a line of the provider; `None` for one without a model where others have one.
    pub(crate) fn resolve(&self, key: &BilledKey, grain: GroupBy) -> Option<ResolvedKey> {
        if grain.by_model && key.models.is_empty() {
            return None;
        }
        let model = self.shared_model(&key.models, grain);
        let is_ours = |name: &String| self.models.contains(name.as_str());
        let mut is_foreign = model.as_ref().is_some_and(|name| !is_ours(name));
        let credential = grain.by_credential.then(|| {
            let own = key.ids.iter().find_map(|id| self.own_credential(id));
            is_foreign |= own.is_none_or(|own| !self.credentials.contains(own));
            own.or(key.ids.first().map(String::as_str)).unwrap_or(NO_CREDENTIAL).to_owned()
        });
        Some(ResolvedKey { key: StatementKey { day: key.day, model, credential }, is_foreign })
    }

    /// The name by which a model of the provider is compared, by all of its names: ours if we have one.
    pub(crate) fn shared_model(&self, models: &[String], grain: GroupBy) -> Option<String> {
        let first = models.first().filter(|_| grain.by_model)?;
        let own = models.iter().find_map(|name| self.own_model(name));
        Some(own.unwrap_or(first).to_owned())
    }

    /// The key of one of our lines on the day on which it was settled.
    pub(crate) fn own_key(&self, line: &OwnLine, grain: GroupBy) -> StatementKey {
        let model = || self.own_model(&line.model).unwrap_or(&line.model).to_owned();
        StatementKey {
            day: line.day,
            model: grain.by_model.then(model),
            credential: grain.by_credential.then(|| line.credential_name().to_owned()),
        }
    }

    /// Our name of a model. With `gpt-5` among ours, `gpt-5-2026-01-01` maps to it on both sides, since
    /// the version behind an undated name is unknown.
    fn own_model<'n>(&'n self, name: &'n str) -> Option<&'n str> {
        // Only if the undated name is ours: two dated versions must stay apart otherwise.
        let undated = undated(name).filter(|undated| self.models.contains(undated));
        undated.or_else(|| self.models.contains(name).then_some(name))
    }

    fn own_credential<'n>(&'n self, id: &'n str) -> Option<&'n str> {
        let named = self.mapping.get(id).map(String::as_str);
        named.or_else(|| self.credentials.contains(id).then_some(id))
    }
}

/// A name without the date at its end: `-2026-01-31` or `-20260131`.
fn undated(name: &str) -> Option<&str> {
    let (long, short) = ("-2026-01-31".len(), "-20260131".len());
    let split = |length: usize| name.split_at_checked(name.len().checked_sub(length)?);
    if let Some((undated, date)) = split(long)
        && date.strip_prefix('-').and_then(Day::parse).is_some()
    {
        return Some(undated);
    }
    let (undated, date) = split(short)?;
    let digits = date.strip_prefix('-')?;
    let (year, rest) = digits.split_at_checked(4)?;
    let (month, day) = rest.split_at_checked(2)?;
    Day::parse(&format!("{year}-{month}-{day}")).map(|_| undated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_cut_off_names() {
        for (name, expected) in [
            ("gpt-5-2026-01-01", Some("gpt-5")),
            ("claude-sonnet-4-5-20250929", Some("claude-sonnet-4-5")),
            ("gpt-5", None),
            ("gpt-4-0613", None),
            ("m-2026-13-01", None),
            ("m-20261301", None),
            ("2026-01-01", None),
            ("ü-2026-01-01", Some("ü")),
        ] {
            assert_eq!(undated(name), expected, "{name}");
        }
    }
}
