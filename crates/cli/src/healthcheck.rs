//! `tollgate healthcheck`: readiness check for container engines that run a command.

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

/// Default address of the admin API.
const DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9090);

/// Check the readiness of a running gateway: exits with 0 if it is ready.
#[derive(Debug, Args)]
pub(super) struct Healthcheck {
    /// Address of the admin API. Default: from `routes.yaml`, or 127.0.0.1:9090 without such a file.
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<SocketAddr>,
    /// PEM file with the certificate of the admin address, if it uses TLS. Default: `admin.tls` in
    /// `routes.yaml`.
    #[arg(long, value_name = "FILE")]
    admin_certificate: Option<PathBuf>,
    /// Path of `routes.yaml`. Default: in the working directory, or else in `/etc/tollgate`.
    #[arg(long, value_name = "FILE")]
    routes: Option<PathBuf>,
    /// Timeout of the whole call, in milliseconds.
    #[arg(long, default_value_t = 2000, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=60_000))]
    timeout_ms: u64,
}

impl Healthcheck {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let time = Duration::from_millis(self.timeout_ms);
        let answer = self
            .endpoint()
            // Without a token: probes need none, and a health check should read no secrets.
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

    /// Admin API address: the flag, else from `routes.yaml`.
    fn endpoint(&self) -> anyhow::Result<AdminEndpoint> {
        let (address, certificate) = match self.admin {
            Some(address) => (address, None),
            None => self.configured()?,
        };
        let certificate = self.admin_certificate.clone().or(certificate);
        let tls = certificate.as_deref().map(admin_tls::pinned_to).transpose()?;
        Ok(AdminEndpoint { address, tls })
    }

    /// Address from `routes.yaml`. A gateway keeps running while its file is edited, so an unnamed,
    /// invalid file does not make it unhealthy: the default address is used then.
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
                // A named file that is invalid is a mistake of the command; an unnamed one may be in the
                // middle of an edit.
                if self.routes.is_some() {
                    return Err(error);
                }
                errln!("warning: {error:#}; using {DEFAULT}");
                Ok((DEFAULT, None))
            }
        }
    }
}
