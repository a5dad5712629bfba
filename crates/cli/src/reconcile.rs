//! `tollgate reconcile`: reconcile a provider's invoice with the ledger.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};

use super::exit;
use super::operator::AdminOptions;
use super::records::RecordSource;
use super::terminal;
use tollgate_ledger::ExportFormat;
use tollgate_reconcile::{
    self as reconcile, JournalReading, OwnLine, Provider, STATEMENT_BYTES_MAX, StatementFile,
    select_upstreams,
};

/// Exit code for differences, as of `diff`.
const DIFFERENT: u8 = 1;
/// Exit code for errors, as of `diff`.
const TROUBLE: u8 = 2;
/// Longest record of an export, in bytes; typical ones have some hundreds.
const RECORD_BYTES_MAX: usize = 16 << 20;

/// Reconcile a provider's invoice with the ledger, and explain the differences.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tollgate reconcile --provider openai --from usage.json --from costs.json --upstream openai
  tollgate reconcile --provider anthropic --from usage.json --credential apikey_01=main
  tollgate reconcile --provider csv --from invoice.csv --journal ledger.jsonl --json

Exit codes: 0 equal, 1 different, 2 error.")]
pub(super) struct Reconcile {
    /// Provider or format of the statement.
    #[arg(long, value_enum)]
    provider: ProviderName,
    /// Export of the provider, or `-` for standard input. May be repeated, for example for usage and
    /// costs; a JSON file is a page of its API, or a list of pages.
    #[arg(long, required = true, value_name = "FILE")]
    from: Vec<String>,
    /// Upstream that uses the provider's account. May be repeated. Default: the only one with costs in
    /// the journal.
    #[arg(long, value_name = "NAME")]
    upstream: Vec<String>,
    /// Mapping from the provider's id of an API key, project or workspace to our credential's name, or
    /// to the name of an upstream with one credential. May be repeated. Default: credentials are added
    /// up.
    #[arg(long, value_name = "ID=NAME", value_parser = credential)]
    credential: Vec<(String, String)>,
    /// Export of `tollgate ledger export` in JSON lines. May be repeated, for example for the nodes of a
    /// fleet. Default: use the running gateway.
    #[arg(long, value_name = "FILE")]
    journal: Vec<PathBuf>,
    /// Data directory of a stopped gateway. Default: use the running gateway.
    #[arg(long, value_name = "DIR", conflicts_with = "journal")]
    data: Option<PathBuf>,
    /// Print the report as one JSON document.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    operator: AdminOptions,
}

/// Provider or format of a statement.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum ProviderName {
    /// Usage and costs from OpenAI's organization API.
    #[value(name = "openai")]
    OpenAi,
    /// Usage and cost reports from Anthropic's admin API.
    Anthropic,
    /// Activity export of an OpenRouter account.
    #[value(name = "openrouter")]
    OpenRouter,
    /// A CSV file with the columns day, model, credential, unit, quantity and amount.
    Csv,
}

fn credential(text: &str) -> Result<(String, String), &'static str> {
    match text.split_once('=') {
        Some((id, name)) if !id.is_empty() && !name.is_empty() => {
            Ok((id.to_owned(), name.to_owned()))
        }
        _ => Err("expected the provider's id and our name, such as key_abc=main"),
    }
}

impl Reconcile {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        Ok(self.compare().unwrap_or_else(|error| {
            // With the code that `diff` has for trouble: 1 means differences.
            exit::say(&error);
            ExitCode::from(TROUBLE)
        }))
    }

    fn compare(self) -> anyhow::Result<ExitCode> {
        let mut credentials = reconcile::CredentialNames::new();
        for (id, name) in &self.credential {
            if credentials.insert(id.clone(), name.clone()).is_some() {
                // The later one would win silently, and costs move between credentials.
                bail!("--credential says twice what {id} is");
            }
        }
        let provider = match self.provider {
            ProviderName::OpenAi => Provider::OpenAi,
            ProviderName::Anthropic => Provider::Anthropic,
            ProviderName::OpenRouter => Provider::OpenRouter,
            ProviderName::Csv => Provider::Csv,
        };
        let contents: Vec<Vec<u8>> =
            self.from.iter().map(|from| statement_bytes(from)).collect::<anyhow::Result<_>>()?;
        let named = self.from.iter().zip(&contents);
        let files: Vec<_> = named.map(|(name, bytes)| StatementFile { name, bytes }).collect();
        let statement = reconcile::read(provider, &files).context("cannot use the statement")?;
        // The statement is read first: reading the journal takes longer, and a wrong file is found at once.
        let own = select_upstreams(self.own_lines()?, &self.upstream)?;
        let report = reconcile::reconcile(&own, &statement, &credentials);
        let mut out = terminal::out();
        if self.json {
            writeln!(out, "{}", reconcile::as_json(&report))?;
        } else {
            out.write_all(reconcile::as_text(&report).as_bytes())?;
        }
        Ok(if report.is_different() { ExitCode::from(DIFFERENT) } else { ExitCode::SUCCESS })
    }

    /// Costs of calls in the journal.
    fn own_lines(&self) -> anyhow::Result<Vec<OwnLine>> {
        let mut reading = JournalReading::default();
        for journal in &self.journal {
            let mut lines = RecordLines::new(&mut reading);
            let read = File::open(journal).and_then(|mut file| io::copy(&mut file, &mut lines));
            let read = read.and_then(|_| lines.finish());
            read.with_context(|| format!("cannot read {}", journal.display()))?;
        }
        if self.journal.is_empty() {
            let mut lines = RecordLines::new(&mut reading);
            let source = RecordSource {
                data: self.data.as_deref(),
                format: ExportFormat::Jsonl,
                account: None,
                from_seq: None,
                operator: &self.operator,
            };
            source.write(&mut lines)?;
            lines.finish()?;
        }
        Ok(reading.finish())
    }
}

/// Content of a provider's file, up to one byte above the limit, which the parser then reports.
fn statement_bytes(from: &str) -> anyhow::Result<Vec<u8>> {
    let bytes_max = u64::try_from(STATEMENT_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Vec::new();
    let read = match from {
        "-" => io::stdin().lock().take(bytes_max).read_to_end(&mut bytes),
        file => File::open(file).and_then(|file| file.take(bytes_max).read_to_end(&mut bytes)),
    };
    read.with_context(|| format!("cannot read {from}"))?;
    Ok(bytes)
}

/// Parser of records that arrive in chunks, line by line.
struct RecordLines<'a> {
    reading: &'a mut JournalReading,
    /// Incomplete last line of the chunk before.
    begun: Vec<u8>,
}

impl<'a> RecordLines<'a> {
    const fn new(reading: &'a mut JournalReading) -> Self {
        reading.begin_file();
        Self { reading, begun: Vec::new() }
    }

    fn read_begun(&mut self) -> io::Result<()> {
        let line = std::str::from_utf8(&self.begun).map_err(io::Error::other)?;
        self.reading.read(line).map_err(io::Error::other)?;
        self.begun.clear();
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        if self.begun.is_empty() { Ok(()) } else { self.read_begun() }
    }
}

impl Write for RecordLines<'_> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            let line = part.strip_suffix(b"\n");
            self.begun.extend_from_slice(line.unwrap_or(part));
            // Checked for each part: a file without line breaks must not fill the memory.
            if self.begun.len() > RECORD_BYTES_MAX {
                return Err(io::Error::other("a record of the journal is too long"));
            }
            if line.is_some() {
                self.read_begun()?;
            }
        }
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
