//! Connection of operators' commands to a running gateway: address and credentials.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use clap::Args;
use serde_json::Value;

use super::admin_call::{self, AdminAnswer, AdminEndpoint, AdminRequest};
use super::exit::{FAILED, Failure, NOT_FOUND, REFUSED};
use super::files::{self, Files};
use super::{admin_tls, admin_token};
use tollgate_config::RoutesFile;
use tollgate_types::secret::Secret;

/// Timeout of a call: somewhat longer than the gateway's wait for its ledger, whose error is more useful
/// than a timeout.
const TIMEOUT: Duration = Duration::from_secs(35);

/// Advice on arguments that replace the file's settings.
const ARGUMENTS: &str = "or name the gateway with --admin and --token-file";

/// Gateway address and credentials.
#[derive(Debug, Args)]
#[command(next_help_heading = "Which gateway")]
pub(super) struct AdminOptions {
    /// Address of the running gateway's admin API. Default: from `routes.yaml`.
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<SocketAddr>,
    /// File with the admin token. Default: the token from `routes.yaml`, or the one that the gateway
    /// generated in its data directory.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// PEM file with the certificate of the admin address, which is then called over TLS and accepted
    /// with this certificate only. Default: `admin.tls` in `routes.yaml`.
    #[arg(long, value_name = "FILE")]
    admin_certificate: Option<PathBuf>,
    #[command(flatten)]
    pub(super) files: Files,
}

/// A JSON document of the admin API, raw and parsed.
#[derive(Debug)]
pub(super) struct JsonDocument {
    /// Bytes of the response as received.
    pub(super) text: Bytes,
    /// Value parsed from the bytes.
    pub(super) value: Value,
}

impl AdminOptions {
    /// `GET` a path of the admin API.
    ///
    /// # Errors
    /// No response, or an error response.
    pub(super) fn get(&self, path: &str) -> anyhow::Result<Value> {
        Ok(self.ask(&AdminRequest::get(path))?.value)
    }

    /// Call the admin API.
    ///
    /// # Errors
    /// No response, or an error response.
    pub(super) fn ask(&self, ask: &AdminRequest) -> anyhow::Result<JsonDocument> {
        let (document, status) = self.ask_any(ask)?;
        if (200..300).contains(&status) { Ok(document) } else { Err(refusal(status, &document)) }
    }

    /// Call the admin API; an error response is returned with its status.
    ///
    /// # Errors
    /// No response, or none in JSON.
    pub(super) fn ask_any(&self, ask: &AdminRequest) -> anyhow::Result<(JsonDocument, u16)> {
        let (place, token) = self.access()?;
        call(&place, &token, ask)
    }

    /// Stream a long response in chunks, each at most `silence` after the previous one.
    ///
    /// # Errors
    /// No response, a broken response, or an error of `each`.
    pub(super) fn stream(
        &self,
        ask: &AdminRequest,
        silence: Duration,
        each: &mut dyn FnMut(&[u8]) -> std::io::Result<()>,
    ) -> anyhow::Result<()> {
        let (place, token) = self.access()?;
        match admin_call::stream(&place, ask, Some(&token), silence, each)? {
            None => Ok(()),
            Some(answer) => Err(refusal(answer.status, &read(place.address, answer)?)),
        }
    }

    /// `GET` a path of the admin API, and also return the token used.
    ///
    /// # Errors
    /// No response, or an error response.
    pub(super) fn get_with_token(&self, path: &str) -> anyhow::Result<(Value, Secret)> {
        let (place, token) = self.access()?;
        match call(&place, &token, &AdminRequest::get(path))? {
            (document, 200..300) => Ok((document.value, token)),
            (document, status) => Err(refusal(status, &document)),
        }
    }

    /// Address and token of the gateway: from the arguments, or else from `routes.yaml`, of which only
    /// these settings are read.
    fn access(&self) -> anyhow::Result<(AdminEndpoint, Secret)> {
        let pinned = self.admin_certificate.as_deref().map(admin_tls::pinned_to).transpose()?;
        // Both given: the command also runs on a machine without the gateway's files.
        if let (Some(address), Some(file)) = (self.admin, &self.token_file) {
            return Ok((AdminEndpoint { address, tls: pinned }, admin_token::read(file)?));
        }
        let file = self.files.settings().map_err(|errors| files::failure(&errors, ARGUMENTS))?;
        let mut wrong = Vec::new();
        let address = self.admin.map_or_else(|| file.admin_address(), Ok);
        let address = files::noted(address, &mut wrong);
        let configured = match &self.token_file {
            Some(_) => Some(None),
            None => files::noted(file.admin_token(), &mut wrong),
        };
        let certificate = match &pinned {
            Some(_) => Some(None),
            None => files::noted(file.admin_certificate(), &mut wrong),
        };
        // All settings are tried first, so that one message names everything that is missing.
        let (Some(address), Some(configured), Some(certificate)) =
            (address, configured, certificate)
        else {
            return Err(files::failure(&wrong, ARGUMENTS));
        };
        let token = match (&self.token_file, configured) {
            (Some(file), _) => admin_token::read(file)?,
            (None, Some(token)) => token,
            (None, None) => self.kept_token(&file)?,
        };
        let tls = match (pinned, certificate) {
            (None, Some(certificate)) => Some(admin_tls::pinned_to(&certificate)?),
            (pinned, _) => pinned,
        };
        Ok((AdminEndpoint { address, tls }, token))
    }

    /// Token generated by a gateway with this file.
    fn kept_token(&self, file: &RoutesFile) -> anyhow::Result<Secret> {
        let data_dir = file.data_dir().map_err(|errors| files::failure(&errors, ARGUMENTS))?;
        admin_token::kept(&data_dir).map_err(|error| {
            let routes = self.files.routes();
            let help = format!(
                "`data_dir` of {} is where it was looked for; a gateway that was started with --data \
                 has it there: name that file with --token-file, and run this as a user who may read it",
                routes.display()
            );
            Failure { code: FAILED, message: format!("{error:#}"), help: Some(help) }.into()
        })
    }
}

fn call(
    place: &AdminEndpoint,
    token: &Secret,
    ask: &AdminRequest,
) -> anyhow::Result<(JsonDocument, u16)> {
    let answer = admin_call::call(place, ask, Some(token), ask.time.unwrap_or(TIMEOUT))?;
    let status = answer.status;
    Ok((read(place.address, answer)?, status))
}

fn read(address: SocketAddr, answer: AdminAnswer) -> anyhow::Result<JsonDocument> {
    let value = serde_json::from_slice(&answer.body);
    let value = value.with_context(|| {
        format!("{address} answered {} with something else than JSON", answer.status)
    })?;
    Ok(JsonDocument { text: answer.body, value })
}

/// Failure with the API's message and advice.
pub(super) fn refusal(status: u16, document: &JsonDocument) -> anyhow::Error {
    let error = &document.value["error"];
    let message = error["message"].as_str().unwrap_or("no reason was given");
    let help = match (status, error["code"].as_str()) {
        (401, _) => Some("give the admin token in a file with --token-file"),
        // The message of an unknown path; other 404s name the missing object.
        (404, _) if message.starts_with("There is nothing at") => {
            Some("the gateway that runs does not know this command: it is another version")
        }
        (409, Some("idempotency_conflict")) => {
            Some("use another --id, or the same content as the first time")
        }
        // The ledger may have written before the answer was lost.
        (500.., _) => Some("repeat the command with the same --id: nothing is done twice"),
        _ => None,
    };
    let code = match status {
        404 => NOT_FOUND,
        400..500 => REFUSED,
        _ => 1,
    };
    let mut message = format!("the gateway answered {status}: {message}");
    if let Some(param) = error["param"].as_str().filter(|param| !message.contains(*param)) {
        message.push_str(&format!(" (`{param}`)"));
    }
    Failure { code, message, help: help.map(str::to_owned) }.into()
}
