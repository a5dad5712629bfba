//! `tollgate requests`: what requests came to.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::Value;

use super::admin_call::{AdminRequest, encoded};
use super::asked::{OutputOptions, Pages, with_query};
use super::exit::CODES;
use super::sheets::{REQUEST, REQUESTS};
use super::terminal::{self, errln};

/// The longest event that is read, in bytes; a request's record has some hundred.
const EVENT_BYTES_MAX: usize = 1 << 20;
/// The gateway says every 15 s that it is there.
const SILENCE: Duration = Duration::from_secs(60);

/// What requests came to.
#[derive(Args, Debug)]
pub(super) struct RequestsArgs {
    #[command(subcommand)]
    command: RequestsCommand,
}

#[derive(Subcommand, Debug)]
enum RequestsCommand {
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
    Tail(Tail),
    /// Show one request.
    #[command(after_help = format!("\
Examples:
  tollgate requests show req_019c1402a1f0d3b2c4a5000000000007

{CODES}"))]
    Show(ShowRequest),
}

#[derive(Args, Debug)]
struct ListRequests {
    /// Those of one account; `none` for those whose key was not recognised.
    #[arg(long, value_name = "ACCOUNT")]
    account: Option<String>,
    /// Those of one key, by its id.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Those for one model.
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Those answered with one status, such as `429`, or one class, such as `5xx`.
    #[arg(long, value_name = "STATUS")]
    status: Option<String>,
    /// Those that failed.
    #[arg(long)]
    errors: bool,
    #[command(flatten)]
    pages: Pages,
    #[command(flatten)]
    asked: OutputOptions,
}

#[derive(Args, Debug)]
struct Tail {
    /// Those of one account; `none` for those whose key was not recognised.
    #[arg(long, value_name = "ACCOUNT")]
    account: Option<String>,
    #[command(flatten)]
    asked: OutputOptions,
}

#[derive(Args, Debug)]
struct ShowRequest {
    /// The request's id: `x-request-id` of its answer.
    request: String,
    #[command(flatten)]
    asked: OutputOptions,
}

impl RequestsArgs {
    /// Runs the command and says with what to exit.
    ///
    /// # Errors
    /// What the gateway says, or that it says nothing.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            RequestsCommand::List(list) => list.run(),
            RequestsCommand::Tail(tail) => tail.run(),
            RequestsCommand::Show(ShowRequest { request, asked }) => asked.show(
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
        self.asked.list("/admin/v1/requests", &query, &self.pages, &REQUESTS)
    }
}

impl Tail {
    fn run(&self) -> anyhow::Result<ExitCode> {
        let query = [("account", self.account.as_deref())];
        let ask = AdminRequest::get(with_query("/admin/v1/requests/tail", &query));
        let mut shown = TailProgress { asked: &self.asked, widths: None };
        let mut unread = Vec::new();
        self.asked.operator.stream(&ask, SILENCE, &mut |piece| {
            unread.extend_from_slice(piece);
            while let Some(end) = unread.windows(2).position(|pair| pair == b"\n\n") {
                let event: Vec<u8> = unread.drain(..end + 2).collect();
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

/// What of a tail was shown.
struct TailProgress<'a> {
    asked: &'a OutputOptions,
    /// How wide each column is by now; `None` before the titles.
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
        if self.asked.json {
            writeln!(out, "{data}")?;
        } else if self.asked.quiet {
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
