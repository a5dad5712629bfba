//! What commands for operators are told: which running gateway, and as whom.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::Value;

use super::files::Files;
use super::{admin_call, admin_token, serve};
use crate::config::Overrides;
use crate::secret::Secret;

/// How long a call may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Which gateway, and as whom.
#[derive(Debug, Args)]
pub(super) struct Operator {
    /// Address of the running gateway's admin API. Default: that of `routes.yaml`.
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<SocketAddr>,
    /// A file with the admin token. Default: the token of `routes.yaml`, or the one that the gateway
    /// has made in its data directory.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    pub(super) files: Files,
}

impl Operator {
    /// `GET`s a path of the admin API.
    ///
    /// # Errors
    /// When there is no answer, or none with what was asked for.
    pub(super) fn get(&self, path: &str) -> anyhow::Result<Value> {
        let (address, token) = self.access()?;
        let answer = admin_call::get(address, path, Some(&token), TIMEOUT)?;
        let (status, document) = (answer.status, serde_json::from_slice::<Value>(&answer.body));
        if !(200..300).contains(&status) {
            let document = document.unwrap_or_default();
            let message = document["error"]["message"].as_str().unwrap_or("no reason was given");
            bail!("the gateway answered {status}: {message}");
        }
        document.with_context(|| format!("{address} answered something else than JSON"))
    }

    /// Where the gateway is, and what it asks for: as told, or else as the files say.
    fn access(&self) -> anyhow::Result<(SocketAddr, Secret)> {
        if let (Some(admin), Some(file)) = (self.admin, &self.token_file) {
            return Ok((admin, admin_token::read(file)?));
        }
        let Some(config) = serve::load(&self.files.sources(), &Overrides::default()) else {
            bail!("the files do not say where the gateway is: use --admin and --token-file");
        };
        let token = match (&self.token_file, config.admin.token) {
            (Some(file), _) => admin_token::read(file)?,
            (None, Some(token)) => token,
            (None, None) => admin_token::kept(&config.store.data_dir)?,
        };
        Ok((self.admin.unwrap_or(config.admin.address), token))
    }
}
