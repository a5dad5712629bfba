//! The fields of `console`.

use std::time::Duration;

use schemars::JsonSchema;

use crate::rate::Dollars;
use crate::scalar::DurationText;
use crate::url::BaseUrl;
use tollgate_money::money::Nanousd;

/// Settings of the customers' console.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename = "Console")]
pub(crate) struct ConsoleSection {
    /// `true` serves the customers' console. Default: `true`. Takes effect at a restart.
    pub(crate) enabled: bool,
    /// Path of the console on the customers' listeners. Default: `/console`. Takes effect after a restart.
    pub(crate) path: String,
    /// Rule for registrations. Default: `invite`.
    pub(crate) sign_up: SignUpMode,
    /// Credit of a new account, in US dollars. Default: none.
    pub(crate) trial_credit: Dollars,
    /// Lifetime of a login. Default: `12h`.
    pub(crate) session: DurationText,
    /// URL of the gateway for customers, such as `https://gateway.example.com`, shown in examples to copy.
    /// With `https`, cookies are never sent without TLS. Default: the host that the browser requests.
    pub(crate) public_url: Option<BaseUrl>,
}

impl Default for ConsoleSection {
    fn default() -> Self {
        Self {
            enabled: true,
            path: "/console".to_owned(),
            sign_up: SignUpMode::Invite,
            trial_credit: Dollars(Nanousd::ZERO),
            session: DurationText(Duration::from_secs(12 * 3600)),
            public_url: None,
        }
    }
}

/// Rule for registrations.
#[derive(Clone, Copy, Debug, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(title = "who may sign up", inline)]
#[serde(rename = "SignUp")]
pub(crate) enum SignUpMode {
    /// Nobody: operators create the accounts.
    Closed,
    /// Anyone with an invite code.
    Invite,
    /// Everyone can register.
    Open,
}
