//! `tollgate codes`: codes for credit and for sign-up.

use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use super::admin_call::{AdminRequest, encoded};
use super::exit::CODES as EXIT_CODES;
use super::output::{IdempotencyOptions, OutputOptions, PageOptions};
use super::sheets::{CODE, CODES, NEW_CODE};

/// Manage codes that customers redeem for credit or sign up with.
#[derive(Debug, Subcommand)]
pub(super) enum CodesCommand {
    /// Create a code. It is shown only once.
    #[command(after_help = format!("\
Examples:
  tollgate codes create credit --amount 5.00
  tollgate codes create credit --amount 1.00 --uses 100 --note 'the fair' --quiet > code
  tollgate codes create invite --expires-at 2027-01-31T12:00:00Z

{EXIT_CODES}"))]
    Create(CreateCode),
    /// List all codes, oldest first.
    #[command(after_help = format!("\
Examples:
  tollgate codes list

{EXIT_CODES}"))]
    List {
        #[command(flatten)]
        pages: PageOptions,
        #[command(flatten)]
        output: OutputOptions,
    },
    /// Show a code by its id.
    #[command(after_help = format!("\
Examples:
  tollgate codes show code_3f1c0a5b7d9e2468

{EXIT_CODES}"))]
    Show {
        /// Id of the code, not the code itself.
        code: String,
        #[command(flatten)]
        output: OutputOptions,
    },
    /// Disable a code for further use.
    #[command(after_help = format!("\
Examples:
  tollgate codes revoke code_3f1c0a5b7d9e2468

{EXIT_CODES}"))]
    Revoke {
        /// Id of the code, not the code itself.
        code: String,
        #[command(flatten)]
        once: IdempotencyOptions,
        #[command(flatten)]
        output: OutputOptions,
    },
}

/// Kind of a code.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum CodeKindChoice {
    /// Credit for the redeeming account.
    Credit,
    /// An invitation to sign up, optionally with credit.
    Invite,
}

#[derive(Args, Debug)]
pub(super) struct CreateCode {
    /// Kind of the code.
    kind: CodeKindChoice,
    /// US dollars per use, such as `5.00`. Required for credit.
    #[arg(long, value_name = "AMOUNT")]
    amount: Option<String>,
    /// Number of accounts that can use it.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    uses: u32,
    /// Expiry, such as `2027-01-31T12:00:00Z`. Default: never.
    #[arg(long, value_name = "TIME")]
    expires_at: Option<String>,
    /// Note, shown in the list.
    #[arg(long, value_name = "TEXT", default_value = "")]
    note: String,
    #[command(flatten)]
    once: IdempotencyOptions,
    #[command(flatten)]
    output: OutputOptions,
}

/// Path of the codes.
const PATH: &str = "/admin/v1/codes";

impl CodesCommand {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Create(create) => create.run(),
            Self::List { pages, output } => output.list(PATH, &[], &pages, &CODES),
            Self::Show { code, output } => {
                output.show(&AdminRequest::get(format!("{PATH}/{}", encoded(&code))), &CODE)
            }
            Self::Revoke { code, once, output } => {
                let ask = AdminRequest::post(format!("{PATH}/{}/revoke", encoded(&code)));
                output.show(&ask.once(&once.id()), &CODE)
            }
        }
    }
}

impl CreateCode {
    fn run(self) -> anyhow::Result<ExitCode> {
        let kind = match self.kind {
            CodeKindChoice::Credit => "credit",
            CodeKindChoice::Invite => "invite",
        };
        let body = json!({
            "kind": kind,
            "amount": self.amount.map(Value::from),
            "uses_max": self.uses,
            "expires_at": self.expires_at,
            "note": self.note,
        });
        self.output
            // A repetition gets no code: with `--quiet` that must fail, or a script would use an empty one.
            .show_secret(&AdminRequest::post(PATH).with(body).once(&self.once.id()), &NEW_CODE)
    }
}
