//! xAI, which writes `{"code": "…", "error": "…"}` with sentences for codes.
//!
//! Source: xAI, "Debugging errors".

use super::RefusalFault::{Account, Busy, Credential, Customer, Model};
use super::rule::{Rule, code, says};

pub(super) const RULES: &[Rule] = &[
    says("incorrect api key provided", Credential),
    says("no api key provided", Credential),
    says("invalid or missing api key", Credential),
    says("the api key is", Credential),
    says("api key is currently", Credential),
    says("your api key is", Credential),
    says("unauthorized.", Credential),
    says("your team * has either used all available credits", Account),
    says("your newly created team doesn't have any credits", Account),
    says("you have run out of credits", Account),
    says("you need to purchase", Account),
    says("permission-denied: your team", Account),
    says("the model * does not exist or your team", Model),
    says("your team * does not have access to the model", Model),
    says("your api key does not have access", Model),
    says("model not found:", Model),
    code("some resource has been exhausted", Busy),
    code("the service is currently unavailable", Busy),
    says("content violates usage guidelines", Customer),
    says("failed check: safety_check", Customer),
];
