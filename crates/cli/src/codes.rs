//! `tollgate codes`: what customers redeem for credit, or sign up with.

use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use super::admin_call::{AdminRequest, encoded};
use super::asked::{IdempotencyOptions, OutputOptions, Pages};
use super::exit::CODES as EXIT_CODES;
use super::sheets::{CODE, CODES, NEW_CODE};

/// Codes that customers redeem for credit, or sign up with.
#[derive(Args, Debug)]
pub(super) struct CodesArgs {
    #[command(subcommand)]
    command: CodesCommand,
}

#[derive(Subcommand, Debug)]
enum CodesCommand {
    /// Make a code. It is shown this once.
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
    List(ListCodes),
    /// Show one code, by its id.
    #[command(after_help = format!("\
Examples:
  tollgate codes show code_3f1c0a5b7d9e2468

{EXIT_CODES}"))]
    Show(ShowCode),
    /// Let nobody use a code any more.
    #[command(after_help = format!("\
Examples:
  tollgate codes revoke code_3f1c0a5b7d9e2468

{EXIT_CODES}"))]
    Revoke(Revoke),
}

/// What a code is good for.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum CodeKind {
    /// Money for the account that redeems it.
    Credit,
    /// An account of one's own, perhaps with money to try it.
    Invite,
}

#[derive(Args, Debug)]
struct CreateCode {
    /// What it is good for.
    kind: CodeKind,
    /// US dollars that each use gives, such as `5.00`. A code for credit needs it.
    #[arg(long, value_name = "AMOUNT")]
    amount: Option<String>,
    /// How many accounts can use it.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    uses: u32,
    /// When it ends, such as `2027-01-31T12:00:00Z`. Default: never.
    #[arg(long, value_name = "TIME")]
    expires_at: Option<String>,
    /// What it is for, for those who read the list.
    #[arg(long, value_name = "TEXT", default_value = "")]
    note: String,
    #[command(flatten)]
    once: IdempotencyOptions,
    #[command(flatten)]
    asked: OutputOptions,
}

#[derive(Args, Debug)]
struct ListCodes {
    #[command(flatten)]
    pages: Pages,
    #[command(flatten)]
    asked: OutputOptions,
}

#[derive(Args, Debug)]
struct ShowCode {
    /// The code's id; not the code.
    code: String,
    #[command(flatten)]
    asked: OutputOptions,
}

#[derive(Args, Debug)]
struct Revoke {
    /// The code's id; not the code.
    code: String,
    #[command(flatten)]
    once: IdempotencyOptions,
    #[command(flatten)]
    asked: OutputOptions,
}

/// Where the codes are.
const PATH: &str = "/admin/v1/codes";

impl CodesArgs {
    /// Runs the command and says with what to exit.
    ///
    /// # Errors
    /// What the gateway says, or that it says nothing.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            CodesCommand::Create(create) => create.run(),
            CodesCommand::List(ListCodes { pages, asked }) => asked.list(PATH, &[], &pages, &CODES),
            CodesCommand::Show(ShowCode { code, asked }) => {
                asked.show(&AdminRequest::get(format!("{PATH}/{}", encoded(&code))), &CODE)
            }
            CodesCommand::Revoke(Revoke { code, once, asked }) => {
                let ask = AdminRequest::post(format!("{PATH}/{}/revoke", encoded(&code)));
                asked.show(&ask.once(&once.id()), &CODE)
            }
        }
    }
}

impl CreateCode {
    fn run(self) -> anyhow::Result<ExitCode> {
        let kind = match self.kind {
            CodeKind::Credit => "credit",
            CodeKind::Invite => "invite",
        };
        let body = json!({
            "kind": kind,
            "amount": self.amount.map(Value::from),
            "uses_max": self.uses,
            "expires_at": self.expires_at,
            "note": self.note,
        });
        self.asked
            .show_secret(&AdminRequest::post(PATH).with(body).once(&self.once.id()), &NEW_CODE)
    }
}
