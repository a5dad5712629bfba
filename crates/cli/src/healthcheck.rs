//! `tollgate healthcheck`: whether a gateway wants requests, for container engines that ask by
//! running a command.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::admin_call::{self, AdminEndpoint, AdminRequest};
use super::admin_tls;
use super::exit;
use super::files::{self, Files};
use super::terminal::{errln, one_line, outln};

/// Where the admin API is when nothing says anything else.
const DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9090);

/// Ask a running gateway whether it wants requests: exits with 0 if it does.
#[derive(Debug, Args)]
pub(super) struct Healthcheck {
    /// Address of the admin API. Default: that of `routes.yaml`, or 127.0.0.1:9090 where there is no
    /// such file.
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<SocketAddr>,
    /// A PEM file with the certificate that the admin address shows, where it has TLS. Default: that of
    /// `admin.tls` in `routes.yaml`.
    #[arg(long, value_name = "FILE")]
    admin_certificate: Option<PathBuf>,
    /// Where `routes.yaml` is. Default: in the working directory, or, where there is none, in
    /// `/etc/tollgate`.
    #[arg(long, value_name = "FILE")]
    routes: Option<PathBuf>,
    /// How long the whole answer may take, in milliseconds.
    #[arg(long, default_value_t = 2000, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=60_000))]
    timeout_ms: u64,
}

impl Healthcheck {
    /// Runs the command and says with what to exit.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let time = Duration::from_millis(self.timeout_ms);
        let answer = self
            .endpoint()
            .and_then(|place| admin_call::call(&place, &AdminRequest::get("/readyz"), None, time));
        let answer = match answer {
            Ok(answer) => answer,
            // Container engines know 0 and 1 alone.
            Err(error) => {
                exit::say(&error);
                return Ok(ExitCode::FAILURE);
            }
        };
        outln!("{}", one_line(String::from_utf8_lossy(&answer.body).trim()));
        Ok(if answer.status == 200 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// The admin API to ask: the flag, else the address of `routes.yaml`.
    fn endpoint(&self) -> anyhow::Result<AdminEndpoint> {
        let (address, certificate) = match self.admin {
            Some(address) => (address, None),
            None => self.configured()?,
        };
        let certificate = self.admin_certificate.clone().or(certificate);
        let tls = certificate.as_deref().map(admin_tls::pinned_to).transpose()?;
        Ok(AdminEndpoint { address, tls })
    }

    /// What `routes.yaml` says. A gateway runs on while its file is being edited, so a file that was not
    /// named and cannot be used makes it no less healthy: then the default is asked.
    fn configured(&self) -> anyhow::Result<(SocketAddr, Option<PathBuf>)> {
        let files = Files::at(self.routes.clone());
        if !files.has_routes() {
            return Ok((DEFAULT, None));
        }
        let read = || {
            let file = files.settings()?;
            Ok((file.admin_address()?, file.admin_certificate()?))
        };
        match read() {
            Ok(found) => Ok(found),
            Err(errors) => {
                let errors: Vec<_> = errors;
                let error = files::failure(&errors, "or name the gateway with --admin");
                if self.routes.is_some() {
                    return Err(error);
                }
                errln!("warning: {error:#}; {DEFAULT} is asked");
                Ok((DEFAULT, None))
            }
        }
    }
}
