//! `tollgate audit`: the audit log.

use std::process::ExitCode;

use clap::Args;

use super::exit::CODES;
use super::output::{OutputOptions, PageOptions};
use super::sheets::ACTS;

/// Show the audit log, newest first: actions of operators, of customers and of the gateway itself.
#[derive(Args, Debug)]
#[command(after_help = format!("\
Examples:
  tollgate audit
  tollgate audit --account acct_3f1c0a5b7d9e2468 --all --json | jq -c '.data[]'

{CODES}"))]
pub(super) struct AuditArgs {
    /// Only actions on this account.
    #[arg(long, value_name = "ACCOUNT")]
    account: Option<String>,
    #[command(flatten)]
    pages: PageOptions,
    #[command(flatten)]
    output: OutputOptions,
}

impl AuditArgs {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let query = [("account", self.account.as_deref())];
        self.output.list("/admin/v1/audit", &query, &self.pages, &ACTS)
    }
}
