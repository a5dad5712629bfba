//! `tollgate requests`: list finished requests.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::Value;

use super::admin_call::{AdminRequest, encoded};
use super::exit::CODES;
use super::output::{OutputOptions, PageOptions, with_query};
use super::sheets::{REQUEST, REQUESTS};
use super::terminal::{self, errln};

/// Longest event, in bytes; a request's record has some hundred.
const EVENT_BYTES_MAX: usize = 1 << 20;
/// Longest silence of the event stream: the gateway sends a comment every 15 s.
const SILENCE: Duration = Duration::from_secs(60);

/// List finished requests, or follow them as they end.
#[derive(Debug, Subcommand)]
pub(super) enum RequestsCommand {
    /// List requests, newest first.
    #[command(after_help = format!("\
Examples:
  tollgate requests list
  tollgate requests list --account acct_3f1c0a5b7d9e2468 --errors
  tollgate requests list --model gpt-4o-mini --status 429 --all --json | jq -c '.data[]'

{CODES}"))]
    List(ListRequests),
    /// Show requests as they end, until Ctrl-C.
    #[command(after_help = format!("\
Examples:
  tollgate requests tail
  tollgate requests tail --account acct_3f1c0a5b7d9e2468 --json | jq .cost

{CODES}"))]
    Tail(TailRequests),
    /// Show a request by its id.
    #[command(after_help = format!("\
Examples:
  tollgate requests show req_019c1402a1f0d3b2c4a5000000000007

{CODES}"))]
    Show {
        /// Request id: `x-request-id` of the response.
        request: String,
        #[command(flatten)]
        output: OutputOptions,
    },
}

#[derive(Args, Debug)]
pub(super) struct ListRequests {
    /// Only requests of this account; `none` for requests without a valid key.
    #[arg(long, value_name = "ACCOUNT")]
    account: Option<String>,
    /// Only requests of this key, by its id.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Only requests for this model.
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Only requests with this status, such as `429`, or class, such as `5xx`.
    #[arg(long, value_name = "STATUS")]
    status: Option<String>,
    /// Only requests that ended in an error.
    #[arg(long)]
    errors: bool,
    #[command(flatten)]
    pages: PageOptions,
    #[command(flatten)]
    output: OutputOptions,
}

#[derive(Args, Debug)]
pub(super) struct TailRequests {
    /// Only requests of this account; `none` for requests without a valid key.
    #[arg(long, value_name = "ACCOUNT")]
    account: Option<String>,
    #[command(flatten)]
    output: OutputOptions,
}

impl RequestsCommand {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::List(list) => list.run(),
            Self::Tail(tail) => tail.run(),
            Self::Show { request, output } => output.show(
                &AdminRequest::get(format!("/admin/v1/requests/{}", encoded(&request))),
                &REQUEST,
            ),
        }
    }
}

impl ListRequests {
    fn run(&self) -> anyhow::Result<ExitCode> {
        let query = [
            ("account", self.account.as_deref()),
            ("key", self.key.as_deref()),
            ("model", self.model.as_deref()),
            ("status", self.status.as_deref()),
            ("errors", self.errors.then_some("true")),
        ];
        self.output.list("/admin/v1/requests", &query, &self.pages, &REQUESTS)
    }
}

impl TailRequests {
    fn run(&self) -> anyhow::Result<ExitCode> {
        let query = [("account", self.account.as_deref())];
        let ask = AdminRequest::get(with_query("/admin/v1/requests/tail", &query));
        let mut shown = TailProgress { output: &self.output, widths: None };
        let mut unread = Vec::new();
        self.output.operator.stream(&ask, SILENCE, &mut |piece| {
            unread.extend_from_slice(piece);
            // Chunks end anywhere; an event ends with an empty line.
            while let Some(end) = unread.windows(2).position(|pair| pair == b"\n\n") {
                let event: Vec<u8> = unread.drain(..end + 2).collect();
                // Lossy only after the event is whole: a chunk may end within a character.
                shown.event(&String::from_utf8_lossy(&event))?;
            }
            if unread.len() > EVENT_BYTES_MAX {
                return Err(std::io::Error::other("the gateway sends an event without an end"));
            }
            Ok(())
        })?;
        errln!("the gateway ended the tail");
        Ok(ExitCode::SUCCESS)
    }
}

/// Output state of a tail.
struct TailProgress<'a> {
    output: &'a OutputOptions,
    /// Current column widths; `None` before the titles.
    widths: Option<Vec<usize>>,
}

impl TailProgress<'_> {
    fn event(&mut self, event: &str) -> std::io::Result<()> {
        let field = |name| event.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        // Whoever has nothing to say sends comments.
        let (Some(name), Some(data)) = (field("event:"), field("data:")) else { return Ok(()) };
        let document: Value = serde_json::from_str(data).unwrap_or_default();
        if name == "missed" {
            errln!("{} requests were too fast to be shown", document["records"]);
            return Ok(());
        }
        let mut out = terminal::out();
        if self.output.json {
            writeln!(out, "{data}")?;
        } else if self.output.quiet {
            for value in REQUEST.main_values(&document) {
                writeln!(out, "{value}")?;
            }
        } else {
            let cells = REQUESTS.cells(&document);
            let widths = match &mut self.widths {
                Some(widths) => widths,
                none => {
                    let titles = REQUESTS.titles();
                    let wider = |(title, cell): (&String, &String)| {
                        title.chars().count().max(cell.chars().count())
                    };
                    let widths = none.insert(titles.iter().zip(&cells).map(wider).collect());
                    writeln!(out, "{}", REQUESTS.line(&titles, widths))?;
                    widths
                }
            };
            writeln!(out, "{}", REQUESTS.line(&cells, widths))?;
        }
        out.flush()
    }
}
