//! `tollgate upstreams`: health of a running gateway's upstreams.

use std::process::ExitCode;

use clap::Args;

use super::admin_call::AdminRequest;
use super::exit::CODES;
use super::output::OutputOptions;
use super::sheets::UPSTREAMS;

/// Show the health of a running gateway's upstreams and targets.
#[derive(Args, Debug)]
#[command(after_help = format!("\
Examples:
  tollgate upstreams
  tollgate upstreams --json | jq '.upstreams[] | select(.healthy | not).name'

{CODES}"))]
pub(super) struct UpstreamsArgs {
    #[command(flatten)]
    output: OutputOptions,
}

impl UpstreamsArgs {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        self.output.show(&AdminRequest::get("/admin/v1/upstreams"), &UPSTREAMS)
    }
}
