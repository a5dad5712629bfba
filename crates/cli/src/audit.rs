//! `tollgate audit`: who did what.

use std::process::ExitCode;

use clap::Args;

use super::asked::{OutputOptions, Pages};
use super::exit::CODES;
use super::sheets::ACTS;

/// Who did what, newest first: operators, customers and the gateway itself.
#[derive(Args, Debug)]
#[command(after_help = format!("\
Examples:
  tollgate audit
  tollgate audit --account acct_3f1c0a5b7d9e2468 --all --json | jq -c '.data[]'

{CODES}"))]
pub(super) struct AuditArgs {
    /// What was done on one account.
    #[arg(long, value_name = "ACCOUNT")]
    account: Option<String>,
    #[command(flatten)]
    pages: Pages,
    #[command(flatten)]
    asked: OutputOptions,
}

impl AuditArgs {
    /// Runs the command and says with what to exit.
    ///
    /// # Errors
    /// What the gateway says, or that it says nothing.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let query = [("account", self.account.as_deref())];
        self.asked.list("/admin/v1/audit", &query, &self.pages, &ACTS)
    }
}
