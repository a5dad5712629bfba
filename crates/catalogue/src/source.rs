//! Price lists, each format in a file of its own.

mod litellm;
mod models_dev;
mod openrouter;

#[cfg(test)]
mod round_trip;

use thiserror::Error;

use crate::listing::{Catalogue, EntryReading, ListFormat, Listing};
use crate::tree::Tree;

/// The largest list that is read, in bytes: that of LiteLLM has 3 MiB, with some 4,500 models.
pub const LIST_BYTES_MAX: usize = 64 << 20;

/// Reason why a list cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SourceError {
    /// Larger than any known list.
    #[error("it is longer than {LIST_BYTES_MAX} bytes")]
    TooLong,
    /// The list is not UTF-8 text.
    #[error("it is not UTF-8 text")]
    NotText,
    /// Not JSON, with the parser's error.
    #[error("it is not JSON: {0}")]
    NotJson(String),
    /// JSON, but not a price list.
    #[error("it is none of the lists that are known: models.dev's, LiteLLM's, OpenRouter's")]
    Unrecognised,
}

/// Parse a price list, detecting its format from its content.
///
/// # Errors
/// When it is none. An entry that cannot be read is a [`Listing`] that says so.
pub fn read(bytes: &[u8]) -> Result<Catalogue, SourceError> {
    if bytes.len() > LIST_BYTES_MAX {
        return Err(SourceError::TooLong);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| SourceError::NotText)?;
    // Files saved on Windows begin with a byte order mark, which JSON does not allow.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let tree = Tree::parse(text).map_err(SourceError::NotJson)?;
    let format = format(&tree).ok_or(SourceError::Unrecognised)?;
    let mut listings = match format {
        ListFormat::ModelsDev => models_dev::listings(&tree),
        ListFormat::LiteLlm => litellm::listings(&tree),
        ListFormat::OpenRouter => openrouter::listings(&tree),
    };
    refuse_repeated(&mut listings);
    Ok(Catalogue { format, listings })
}

fn format(tree: &Tree<'_>) -> Option<ListFormat> {
    let has_prices = |item: &Tree<'_>| item.get("id").is_some() && item.get("pricing").is_some();
    // By content: an operator may have saved a list under any name.
    if tree.get("data").is_some_and(|data| data.items().iter().any(has_prices)) {
        return Some(ListFormat::OpenRouter);
    }
    let has = |name| tree.fields().iter().any(|(_, entry)| entry.get(name).is_some());
    if tree.fields().iter().any(|(_, entry)| entry.get("models").is_some_and(Tree::is_object)) {
        Some(ListFormat::ModelsDev)
    } else if has("litellm_provider") {
        Some(ListFormat::LiteLlm)
    } else {
        None
    }
}

/// Reject duplicate entries, since either could count.
fn refuse_repeated(listings: &mut [Listing]) {
    let mut seen = std::collections::HashSet::new();
    let key = |listing: &Listing| (listing.provider.clone(), listing.listed_as.clone());
    let repeated: std::collections::HashSet<_> =
        listings.iter().map(key).filter(|key| !seen.insert(key.clone())).collect();
    for listing in listings.iter_mut().filter(|listing| repeated.contains(&key(listing))) {
        listing.rates.clear();
        listing.unsayable.clear();
        // Parsers disagree about which of two equal keys counts.
        listing.malformed = Some("it is there twice".to_owned());
    }
}

/// A reading of an entry, which is refused where it is no object or has a field twice.
fn begin(entry: &Tree<'_>) -> EntryReading {
    let mut reading = EntryReading::default();
    if !entry.is_object() {
        reading.refuse("the entry", "is not an object");
    } else if let Some(field) = entry.twice() {
        reading.refuse(field, "is there twice");
    }
    reading
}

/// A whole number of tokens, if present.
fn tokens(value: Option<&Tree<'_>>) -> Option<u64> {
    crate::figure::tokens(value?.text()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_money::price::Unit;

    /// Billed units that no list has a price for.
    const UNLISTED: [Unit; 1] = [Unit::ToolCalls];

    #[test]
    fn every_unit_has_a_word_in_some_list() {
        for unit in Unit::ALL {
            let is_listed =
                litellm::knows(*unit) || openrouter::knows(*unit) || models_dev::knows(*unit);
            assert_eq!(is_listed, !UNLISTED.contains(unit), "{unit:?}");
        }
    }

    #[test]
    fn formats_are_recognized_by_their_content() {
        for (bytes, format, models) in [
            (&include_bytes!("../fixtures/models_dev.json")[..], ListFormat::ModelsDev, 18),
            (&include_bytes!("../fixtures/litellm.json")[..], ListFormat::LiteLlm, 21),
            (&include_bytes!("../fixtures/openrouter.json")[..], ListFormat::OpenRouter, 17),
        ] {
            let catalogue = read(bytes).expect("a list");
            assert_eq!((catalogue.format, catalogue.listings.len()), (format, models));
        }
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in ["{}", "[]", "{\"data\": []}", "{\"gpt-4o\": {\"price\": 1}}", "1"] {
            assert_eq!(read(text.as_bytes()), Err(SourceError::Unrecognised), "{text}");
        }
        assert!(matches!(read(b"prices: 1"), Err(SourceError::NotJson(_))));
        assert_eq!(read(b"\xff"), Err(SourceError::NotText));
    }

    #[test]
    fn an_entry_that_is_there_twice_counts_for_nothing() {
        let text = r#"{
            "a": {"litellm_provider": "openai", "input_cost_per_token": 1e-6},
            "b": {"litellm_provider": "openai", "input_cost_per_token": 1e-6},
            "a": {"litellm_provider": "openai", "input_cost_per_token": 2e-6}
        }"#;
        let listings = read(text.as_bytes()).expect("a list").listings;
        let read: Vec<_> = listings
            .iter()
            .map(|listing| (listing.model.as_str(), listing.malformed.is_none()))
            .collect();
        assert_eq!(read, [("a", false), ("b", true), ("a", false)]);
    }
}
