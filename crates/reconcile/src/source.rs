//! Providers' exports, each format in a file of its own.

mod anthropic;
mod generic_csv;
mod openai;
mod openrouter;

use std::collections::HashSet;
use std::fmt;

use crate::json::{JsonFields, JsonPlace};
use crate::statement::{BilledStatement, Provider, StatementError};

/// The largest file that is read, in bytes: a month by the hour, model and key has some 30 MiB.
pub const STATEMENT_BYTES_MAX: usize = 256 << 20;

/// A usage or cost export downloaded from a provider.
#[derive(Clone, Copy, Debug)]
pub struct StatementFile<'a> {
    /// Its name, for errors.
    pub name: &'a str,
    /// Content of the exported file.
    pub bytes: &'a [u8],
}

/// Parse a provider's files as one statement. A JSON file is a page of the provider's API, or a list of
/// pages. Lines that cannot be compared are kept as such.
///
/// # Errors
/// When a file is no such export; with the place in it.
pub fn read(
    provider: Provider,
    files: &[StatementFile<'_>],
) -> Result<BilledStatement, StatementError> {
    let mut statement = BilledStatement::default();
    let mut pages = Pages::default();
    for file in files {
        let text = text(file)?;
        if provider == Provider::Csv {
            generic_csv::read(text, file.name, &mut pages, &mut statement)?;
            continue;
        }
        let document = JsonPlace::parse(text, file.name)?;
        let list = if document.is_list() { document.items()? } else { vec![document] };
        for page in list {
            pages.read(provider, &page, &mut statement)?;
        }
    }
    if provider != Provider::Csv && !pages.has_last {
        let note = "no page is the last (`has_more` is true): the statement may lack days";
        statement.notes.insert(note.to_owned());
    }
    if matches!(provider, Provider::Csv | Provider::OpenRouter) {
        statement.fill_days();
    }
    if statement.is_empty() {
        let name = files.first().map_or("the statement", |file| file.name);
        return Err(StatementError::new(name, "says nothing of any day that could be compared"));
    }
    Ok(statement)
}

fn text<'a>(file: &StatementFile<'a>) -> Result<&'a str, StatementError> {
    let refuse = |why: String| StatementError::new(file.name, why);
    if file.bytes.len() > STATEMENT_BYTES_MAX {
        return Err(refuse(format!("is longer than {STATEMENT_BYTES_MAX} bytes")));
    }
    let text = std::str::from_utf8(file.bytes);
    let text = text.map_err(|error| {
        refuse(format!("is not UTF-8 text behind byte {}", error.valid_up_to()))
    })?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// State of the pages read so far.
#[derive(Default)]
struct Pages {
    has_last: bool,
    /// Identities of the lines so far, without their counts.
    lines: HashSet<String>,
    /// Content of the pages so far. A page without results continues the one before it.
    content: PageContent,
}

/// Content of the lines of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PageContent {
    has_quantities: bool,
    has_amounts: bool,
}

impl Pages {
    fn read(
        &mut self,
        provider: Provider,
        page: &JsonPlace<'_>,
        statement: &mut BilledStatement,
    ) -> Result<(), StatementError> {
        let mut fields = page.fields()?;
        self.has_last |= fields.take("has_more").is_none_or(|more| !more.is_true());
        let (calls, quantities) = (statement.calls.len(), statement.quantities.len());
        let amounts = statement.amounts.len().saturating_add(statement.fees.len());
        let mut days = Vec::new();
        for item in fields.require("data")?.items()? {
            match provider {
                Provider::OpenAi => days.push(openai::read_bucket(&item, self, statement)?),
                Provider::Anthropic => days.push(anthropic::read_bucket(&item, self, statement)?),
                Provider::OpenRouter => openrouter::read_item(&item, self, statement)?,
                Provider::Csv => {}
            }
        }
        let content = PageContent {
            has_quantities: statement.calls.len() > calls
                || statement.quantities.len() > quantities,
            has_amounts: statement.amounts.len().saturating_add(statement.fees.len()) > amounts,
        };
        if content != PageContent::default() {
            self.content = content;
        }
        // A bucket without results says that nothing was used, or nothing billed, on its day.
        if self.content.has_quantities {
            statement.quantity_days.extend(&days);
        }
        if self.content.has_amounts {
            statement.amount_days.extend(&days);
        }
        Ok(())
    }

    /// Refuses a line about what another was before, from the same moment: a page that is given twice
    /// doubles a bill, also where it was fetched again and counts more by then.
    fn refuse_again(&mut self, start: &str, line: &JsonPlace<'_>) -> Result<(), StatementError> {
        let fields = line.fields()?;
        if self.is_new((start, fields.subject())) {
            Ok(())
        } else {
            Err(line.refuse("is there twice: the same page was given two times"))
        }
    }

    /// True if no line had this identity yet.
    fn is_new(&mut self, subject: impl fmt::Debug) -> bool {
        self.lines.insert(format!("{subject:?}"))
    }
}

/// Record unknown fields with a non-zero count as not comparable.
fn list_unknown(fields: &JsonFields<'_>, statement: &mut BilledStatement) {
    for name in fields.counted_rest() {
        statement.add_unused(format!("the field {name}"), crate::Femtousd::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CredentialNames, as_json, as_text, reconcile};

    const FIXTURES: [(Provider, &str); 6] = [
        (Provider::OpenAi, include_str!("../fixtures/openai_usage.json")),
        (Provider::OpenAi, include_str!("../fixtures/openai_costs.json")),
        (Provider::Anthropic, include_str!("../fixtures/anthropic_usage.json")),
        (Provider::Anthropic, include_str!("../fixtures/anthropic_cost.json")),
        (Provider::OpenRouter, include_str!("../fixtures/openrouter_activity.json")),
        (Provider::Csv, include_str!("../fixtures/invoice.csv")),
    ];

    #[test]
    fn garbled_files_are_read_or_refused() {
        let mut read_count = 0;
        for seed in 0..3000 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let (provider, text) = FIXTURES[rng.usize(..FIXTURES.len())];
            let mut bytes = text.as_bytes().to_vec();
            for _ in 0..rng.usize(1..4) {
                let at = rng.usize(..bytes.len());
                match rng.u8(..4) {
                    0 => bytes[at] = rng.u8(..),
                    1 => bytes[at] = b"0123456789-.e\",{}[]"[rng.usize(..19)],
                    2 => bytes.truncate(at.max(1)),
                    _ => {
                        let piece = bytes[at..(at + 20).min(bytes.len())].to_vec();
                        bytes.splice(at..at, piece);
                    }
                }
            }
            match read(provider, &[StatementFile { name: "f", bytes: &bytes }]) {
                Ok(statement) => {
                    let report = reconcile(&[], &statement, &CredentialNames::new());
                    assert!(!as_text(&report).is_empty() && as_json(&report).is_object());
                    read_count += 1;
                }
                Err(error) => {
                    let error = error.to_string();
                    assert!(error.starts_with('f'), "seed {seed}: {error} has no place");
                }
            }
        }
        assert!(read_count > 100, "only {read_count} files of 3000 could be read");
    }

    #[test]
    fn a_page_that_was_fetched_again_is_refused() {
        for (index, from, to) in [
            (0, "\"output_tokens\": 1000", "\"output_tokens\": 1010"),
            (1, "0.5617712500000000", "0.6"),
            (2, "\"output_tokens\": 500", "\"output_tokens\": 501"),
            (3, "\"123.78912\"", "\"124\""),
            (4, "\"requests\": 5", "\"requests\": 6"),
            (5, "340,0.0034", "341,0.0035"),
        ] {
            let (provider, text) = FIXTURES[index];
            let later = text.replacen(from, to, 1);
            assert_ne!(later, text, "{from}");
            let tight: String = text.lines().map(|line| format!("{}\n", line.trim())).collect();
            for again in [text, &later, &tight] {
                let files =
                    [text, again].map(|text| StatementFile { name: "f", bytes: text.as_bytes() });
                let error = read(provider, &files).expect_err("twice").to_string();
                assert!(error.contains(" is there twice"), "{provider:?}: {error}");
            }
        }
        let page = |start: u64, key: &str, tokens: u32| {
            format!(
                "{{\"data\": [{{\"start_time\": {start}, \"end_time\": {}, \"results\": \
                 [{{\"object\": \"organization.usage.embeddings.result\", \"model\": \"m\", \
                 \"api_key_id\": \"{key}\", \"input_tokens\": {tokens}}}]}}]}}",
                start + 3600
            )
        };
        let hour = 1_767_225_600;
        let read_with = |other: &str| {
            let text = format!("[{}, {other}]", page(hour, "key_1", 9));
            read(Provider::OpenAi, &[StatementFile { name: "f", bytes: text.as_bytes() }])
        };
        assert!(read_with(&page(hour, "key_1", 10)).is_err(), "the hour again");
        assert!(read_with(&page(hour, "key_2", 9)).is_ok(), "another key");
        assert!(read_with(&page(hour + 3600, "key_1", 9)).is_ok(), "another hour");
    }

    #[test]
    fn pages_and_lists_are_recognized_and_an_unfinished_list_is_noted() {
        let text = FIXTURES[0].1;
        let read = |text: &str| {
            read(Provider::OpenAi, &[StatementFile { name: "f", bytes: text.as_bytes() }])
        };
        let page = read(text).expect("a page");
        assert_eq!(read(&format!("[{text}]")).expect("a list of one page"), page);
        assert!(page.notes.is_empty(), "{:?}", page.notes);
        let more = text.replace("\"has_more\": false", "\"has_more\": true");
        assert_eq!(read(&more).expect("a page").notes.len(), 1, "another page is missing");
        for wrong in ["[]", "{}", "[1]", "null", "{\"data\": 1}", "{\"data\": []}", "\u{feff}"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
