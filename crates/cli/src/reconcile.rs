//! `tollgate reconcile`: what a provider says it billed, held against the journal.

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

/// The exit code when something differs; that of `diff`.
const DIFFERENT: u8 = 1;
/// The exit code when nothing can be said; that of `diff`.
const TROUBLE: u8 = 2;
/// The longest record of a journal, in bytes: those of an export have some hundreds.
const RECORD_BYTES_MAX: usize = 16 << 20;

/// What to hold against each other.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tollgate reconcile --provider openai --from usage.json --from costs.json --upstream openai
  tollgate reconcile --provider anthropic --from usage.json --credential apikey_01=main
  tollgate reconcile --provider csv --from invoice.csv --journal ledger.jsonl --json

Exit codes: 0 the same, 1 something differs, 2 that cannot be said.")]
pub(super) struct Reconcile {
    /// Whose statement it is.
    #[arg(long, value_enum)]
    provider: ProviderName,
    /// A file of the provider, or `-` for standard input. Can be said several times, as for its usage
    /// and its costs; a JSON file is a page of its API, or a list of pages.
    #[arg(long, required = true, value_name = "FILE")]
    from: Vec<String>,
    /// An upstream that the provider's account is behind. Can be said several times. Default: the only
    /// one with costs in the journal.
    #[arg(long, value_name = "NAME")]
    upstream: Vec<String>,
    /// The provider's id of an API key, project or workspace, and the name of our credential that it is;
    /// of an upstream with one credential, the upstream's name. Can be said several times. Without any,
    /// credentials are added up.
    #[arg(long, value_name = "ID=NAME", value_parser = credential)]
    credential: Vec<(String, String)>,
    /// A file that `tollgate ledger export` has written as JSON lines. Can be said several times, as for
    /// the nodes of a fleet. Default: ask the running gateway.
    #[arg(long, value_name = "FILE")]
    journal: Vec<PathBuf>,
    /// The data directory of a gateway that does not run. Default: ask the running gateway.
    #[arg(long, value_name = "DIR", conflicts_with = "journal")]
    data: Option<PathBuf>,
    /// Print the report as one JSON document.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    operator: AdminOptions,
}

/// Whose statement is read.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum ProviderName {
    /// Usage and costs of OpenAI's organization API.
    #[value(name = "openai")]
    OpenAi,
    /// Usage and cost reports of Anthropic's admin API.
    Anthropic,
    /// The activity of an account at OpenRouter.
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
    /// Runs the command and says with what to exit.
    ///
    /// # Errors
    /// None: what went wrong is said, and has the code of `diff`.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        Ok(self.compare().unwrap_or_else(|error| {
            exit::say(&error);
            ExitCode::from(TROUBLE)
        }))
    }

    fn compare(self) -> anyhow::Result<ExitCode> {
        let mut credentials = reconcile::CredentialNames::new();
        for (id, name) in &self.credential {
            if credentials.insert(id.clone(), name.clone()).is_some() {
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

    /// What the journal says that calls cost.
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

/// What a file of the provider holds, up to one byte more than is allowed: who reads it says that it is
/// too long.
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

/// Records that come in pieces, read line by line.
struct RecordLines<'a> {
    reading: &'a mut JournalReading,
    /// The beginning of a line whose end has not come yet.
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
