//! Voyage, Cohere and Jina, which embed and rank.
//!
//! Source: Voyage AI, "Error codes"; Cohere, "Errors"; Jina AI, "Reader and search API errors".

use super::RefusalFault::{Account, Busy, Credential, Model};
use super::rule::{Rule, says};

pub(super) const RULES: &[Rule] = &[
    says("provided api key is invalid", Credential),
    says("you have not provided an api key", Credential),
    says("invalid api token", Credential),
    says("no api key supplied", Credential),
    says("invalid api key, please get a new one", Credential),
    says("missing bearer token", Credential),
    says("account balance not enough", Account),
    says("insufficient balance in your", Account),
    says("your api key's balance", Account),
    says("please add or update your payment method", Account),
    says("your account has been", Account),
    says("the ip address * is not allowed", Account),
    says("model * is not supported. supported models are", Model),
    says("model * not found", Model),
    says("model * was removed", Model),
    says("you are using a trial key", Busy),
    says("you have not yet added your payment method", Busy),
    says("you have exceeded your provided rate limits", Busy),
];
