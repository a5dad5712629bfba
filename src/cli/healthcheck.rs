//! `tollgate healthcheck`: whether a gateway wants requests, for container engines that ask by
//! running a command.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::admin_call::{self, AdminEndpoint, AdminRequest};
use super::admin_tls;

/// Ask a running gateway whether it wants requests: exits with 0 if it does.
#[derive(Debug, Args)]
pub(super) struct Healthcheck {
    /// Address of the admin API.
    #[arg(long, default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, 9090)), value_name = "ADDRESS")]
    admin: SocketAddr,
    /// A PEM file with the certificate that the admin address shows, where it has TLS.
    #[arg(long, value_name = "FILE")]
    admin_certificate: Option<PathBuf>,
    /// How long the whole answer may take, in milliseconds.
    #[arg(long, default_value_t = 2000, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=60_000))]
    timeout_ms: u64,
}

impl Healthcheck {
    /// Runs the command and says with what to exit.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let time = Duration::from_millis(self.timeout_ms);
        let tls = self.admin_certificate.as_deref().map(admin_tls::pinned_to).transpose()?;
        let place = AdminEndpoint { address: self.admin, tls };
        let answer = match admin_call::call(&place, &AdminRequest::get("/readyz"), None, time) {
            Ok(answer) => answer,
            // Container engines know 0 and 1 alone.
            Err(error) => {
                eprintln!("error: {error:#}");
                return Ok(ExitCode::FAILURE);
            }
        };
        println!("{}", String::from_utf8_lossy(&answer.body).trim());
        Ok(if answer.status == 200 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
