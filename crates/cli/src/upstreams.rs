//! `tollgate upstreams`: how the upstreams of a running gateway are doing.

use std::process::ExitCode;

use clap::Args;

use super::admin_call::AdminRequest;
use super::asked::OutputOptions;
use super::exit::CODES;
use super::sheets::UPSTREAMS;

/// How the upstreams of a running gateway are doing, and each target at them.
#[derive(Args, Debug)]
#[command(after_help = format!("\
Examples:
  tollgate upstreams
  tollgate upstreams --json | jq '.upstreams[] | select(.healthy | not).name'

{CODES}"))]
pub(super) struct UpstreamsArgs {
    #[command(flatten)]
    asked: OutputOptions,
}

impl UpstreamsArgs {
    /// Runs the command and says with what to exit.
    ///
    /// # Errors
    /// What the gateway says, or that it says nothing.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        self.asked.show(&AdminRequest::get("/admin/v1/upstreams"), &UPSTREAMS)
    }
}
