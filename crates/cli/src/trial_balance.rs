//! `tollgate ledger trial-balance`: the books by double entry.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::admin_call::{AdminRequest, VERIFY_TIMEOUT};
use super::archive;
use super::operator::JsonDocument;
use super::output::OutputOptions;
use super::sheets::BOOKS;
use super::terminal;
use tollgate_ledger::{BooksReport, verify};
use tollgate_types::printable::escaped;

/// Arguments of `tollgate ledger trial-balance`.
#[derive(Args, Debug)]
pub(super) struct TrialBalanceArgs {
    /// Data directory of a stopped gateway. Default: use the running gateway.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    #[command(flatten)]
    output: OutputOptions,
}

impl TrialBalanceArgs {
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        let document = match &self.data {
            Some(data) => self.read(data)?,
            None => {
                let path = "/admin/v1/ledger/trial-balance";
                self.output.operator.ask(&AdminRequest::post(path).within(VERIFY_TIMEOUT))?
            }
        };
        self.output.print(&document, &BOOKS)?;
        if !self.output.json && !self.output.quiet {
            summarize(&document.value)?;
        }
        let is_sound = document.value["ok"] == true;
        Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Trial balance of a data directory, in the form of the running gateway's response.
    fn read(&self, data: &Path) -> anyhow::Result<JsonDocument> {
        archive::connect(data, &self.output.operator.files)?;
        // The same type as the gateway answers with, so that scripts see no difference.
        let report = BooksReport::from(verify(data)?);
        let (text, value) = (serde_json::to_vec(&report)?.into(), serde_json::to_value(&report)?);
        Ok(JsonDocument { text, value })
    }
}

/// Print the summary below the table.
fn summarize(document: &Value) -> std::io::Result<()> {
    let mut out = terminal::out();
    let text = |name: &str| document[name].as_str().unwrap_or_default().to_owned();
    writeln!(out, "\ntotal debit {}, total credit {}", text("debit"), text("credit"))?;
    for violation in document["violations"].as_array().into_iter().flatten() {
        writeln!(out, "violation: {}", escaped(violation.as_str().unwrap_or_default()))?;
    }
    let sum = if document["adds_up"] == true { "adds up to zero" } else { "does NOT add up" };
    let end = if document["ok"] == true { "agrees" } else { "does NOT agree" };
    writeln!(out, "it {sum}, and {end} with the balances of the ledger")
}
