//! Requests of operators' commands to a running gateway, and the output of its responses.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::admin_call::{AdminRequest, encoded};
use super::exit::{Failure, REFUSED};
use super::operator::{AdminOptions, JsonDocument};
use super::sheet::Sheet;
use super::terminal::{self, errln};
use tollgate_types::printable::escaped;

/// Gateway and output format.
#[derive(Args, Debug)]
pub(super) struct OutputOptions {
    /// Print the gateway's response unchanged: JSON, one document a line.
    #[arg(long, conflicts_with = "quiet")]
    pub(super) json: bool,
    /// Print only the value that a script needs: the id, or the secret that is shown once.
    #[arg(long, short)]
    pub(super) quiet: bool,
    #[command(flatten)]
    pub(super) operator: AdminOptions,
}

/// Page of a list.
#[derive(Args, Debug)]
pub(super) struct PageOptions {
    /// Number of items: 1 to 500. Default: 100.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=500))]
    limit: Option<u16>,
    /// Continue after this cursor, as printed with the previous page.
    #[arg(long, value_name = "CURSOR")]
    from: Option<String>,
    /// Print all pages of the list.
    #[arg(long)]
    all: bool,
}

/// Idempotency id of a write.
#[derive(Args, Debug)]
pub(super) struct IdempotencyOptions {
    /// Idempotency id, such as an invoice number: repeating the command with the same id changes
    /// nothing. Default: a generated one, which is printed.
    #[arg(long, value_name = "ID")]
    id: Option<String>,
}

/// Page size when all pages are read: the gateway's maximum.
const PAGE_MAX: u16 = 500;

impl IdempotencyOptions {
    /// The id. A generated one is printed before the request, so that a command without an answer can be
    /// repeated.
    pub(super) fn id(&self) -> String {
        if let Some(id) = &self.id {
            return id.clone();
        }
        let id = format!("cli-{:016x}", fastrand::u64(..));
        // On standard error, so that `--quiet` and `--json` stay as scripts expect them.
        errln!("id: {id} (repeat with --id {id} if there is no answer)");
        id
    }
}

impl OutputOptions {
    /// Send a request and print the response.
    ///
    /// # Errors
    /// The gateway's error response, or that it does not answer.
    pub(super) fn show(&self, ask: &AdminRequest, sheet: &Sheet) -> anyhow::Result<ExitCode> {
        self.shown(&self.operator.ask(ask)?, sheet)
    }

    fn shown(&self, document: &JsonDocument, sheet: &Sheet) -> anyhow::Result<ExitCode> {
        self.print(document, sheet)?;
        for warning in document.value["warnings"].as_array().into_iter().flatten() {
            errln!("warning: {}", escaped(warning.as_str().unwrap_or_default()));
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Send a request whose secret is shown once, and print the response. With `--quiet`, a repetition
    /// without a secret is an error.
    ///
    /// # Errors
    /// The gateway's error response, or that it does not answer.
    pub(super) fn show_secret(
        &self,
        ask: &AdminRequest,
        sheet: &Sheet,
    ) -> anyhow::Result<ExitCode> {
        let document = self.operator.ask(ask)?;
        if document.value.pointer(sheet.main).is_some() {
            return self.shown(&document, sheet);
        }
        if !self.quiet {
            self.shown(&document, sheet)?;
        }
        let id = document.value["id"].as_str().unwrap_or_default();
        let message = format!("{id} was made before under this --id; its secret was shown then");
        let help = "if that is lost, take it back and make another".to_owned();
        Err(Failure { code: REFUSED, message, help: Some(help) }.into())
    }

    /// Request the pages of a list, and print each as it comes.
    ///
    /// # Errors
    /// The gateway's error response, or that it does not answer.
    pub(super) fn list(
        &self,
        path: &str,
        query: &[(&str, Option<&str>)],
        pages: &PageOptions,
        sheet: &Sheet,
    ) -> anyhow::Result<ExitCode> {
        let (mut cursor, mut name) = (pages.from.clone(), None);
        loop {
            let limit =
                pages.limit.or(pages.all.then_some(PAGE_MAX)).map(|limit| limit.to_string());
            let mut parameters = query.to_vec();
            parameters.push(("limit", limit.as_deref()));
            parameters.push((name.unwrap_or(cursor_name(path)), cursor.as_deref()));
            // Printed page by page: a long list needs no memory, and `head` ends it early.
            let document = self.operator.ask(&AdminRequest::get(with_query(path, &parameters)))?;
            self.print(&document, sheet)?;
            let Some((found, next)) = next(&document.value) else { return Ok(ExitCode::SUCCESS) };
            if !pages.all {
                if !self.quiet {
                    errln!("there are more: --from {next}, or --all");
                }
                return Ok(ExitCode::SUCCESS);
            }
            // A gateway that gives the same page again would be requested forever.
            anyhow::ensure!(
                cursor.as_ref() != Some(&next),
                "the gateway repeats the page at {next}"
            );
            (cursor, name) = (Some(next), Some(found));
        }
    }

    /// Print a document: unchanged, its main values, or as a table.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub(super) fn print(&self, document: &JsonDocument, sheet: &Sheet) -> anyhow::Result<()> {
        let mut out = terminal::out();
        if self.json {
            // The gateway's bytes: parsing and writing again would change the form of numbers.
            out.write_all(&document.text)?;
            writeln!(out)?;
        } else if self.quiet {
            for value in sheet.main_values(&document.value) {
                writeln!(out, "{value}")?;
            }
        } else {
            writeln!(out, "{}", sheet.table(&document.value))?;
        }
        out.flush()?;
        Ok(())
    }
}

/// Query parameter of the cursor: event lists go from the newest on.
fn cursor_name(path: &str) -> &'static str {
    // Only for the first page; later pages use the parameter that the response named.
    let newest_first = ["/entries", "/requests", "/audit"];
    if newest_first.iter().any(|end| path.ends_with(end)) { "before" } else { "after" }
}

/// Query parameter and cursor of the next page.
fn next(page: &Value) -> Option<(&'static str, String)> {
    let cursor = |name: &'static str, field: &str| match &page[field] {
        Value::String(text) => Some((name, text.clone())),
        Value::Number(number) => Some((name, number.to_string())),
        _ => None,
    };
    cursor("after", "next_after").or_else(|| cursor("before", "next_before"))
}

/// Path with the query parameters that have a value.
pub(super) fn with_query(path: &str, query: &[(&str, Option<&str>)]) -> String {
    let pairs = query.iter().filter_map(|(name, value)| Some((name, (*value)?)));
    let pairs: Vec<_> = pairs.map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    if pairs.is_empty() { path.to_owned() } else { format!("{path}?{}", pairs.join("&")) }
}
