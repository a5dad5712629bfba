//! The fields of `console`.

use std::time::Duration;

use schemars::JsonSchema;

use crate::rate::Dollars;
use crate::scalar::Period;
use crate::url::BaseUrl;
use tollgate_money::money::Nanousd;

/// The customers' console.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Console {
    /// Whether there is one. Default: `true`. Takes effect at a restart.
    pub(crate) enabled: bool,
    /// Its path on the customers' listeners. Default: `/console`. Takes effect at a restart.
    pub(crate) path: String,
    /// Who may sign up. Default: `invite`.
    pub(crate) sign_up: SignUpMode,
    /// What a new account gets, in US dollars. Default: nothing.
    pub(crate) trial_credit: Dollars,
    /// How long a customer stays logged in. Default: `12h`.
    pub(crate) session: Period,
    /// How customers reach the gateway, such as `https://gateway.example.com`: shown in what they
    /// paste. With `https`, cookies are never sent without TLS. Default: what the browser has asked
    /// for.
    pub(crate) public_url: Option<BaseUrl>,
}

impl Default for Console {
    fn default() -> Self {
        Self {
            enabled: true,
            path: "/console".to_owned(),
            sign_up: SignUpMode::Invite,
            trial_credit: Dollars(Nanousd::ZERO),
            session: Period(Duration::from_secs(12 * 3600)),
            public_url: None,
        }
    }
}

/// Who may sign up.
#[derive(Clone, Copy, Debug, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(title = "who may sign up", inline)]
#[serde(rename = "SignUp")]
pub(crate) enum SignUpMode {
    /// Nobody: the operator makes the accounts.
    Closed,
    /// Whoever has a code of the operator's.
    Invite,
    /// Everybody.
    Open,
}
