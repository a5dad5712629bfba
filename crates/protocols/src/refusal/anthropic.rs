//! Anthropic, and its models at Bedrock and Vertex, whose accounts answer in their own clouds' words.
//!
//! Source: Anthropic, "Errors". What is said of the account comes as `invalid_request_error` with 400,
//! so only the message tells.

use super::RefusalFault::{Account, Busy, Credential, Model};
use super::rule::{Rule, code, code_says, says};

pub(super) const RULES: &[Rule] = &[
    says("your credit balance is too low", Account),
    says("you have reached your specified api usage limits", Account),
    says("you have reached your specified workspace api usage limits", Account),
    says("you have reached your specified", Account),
    says("this organization has been disabled", Account),
    says("your organization has been disabled", Account),
    says("your account has been disabled", Account),
    says("your account does not have access to claude", Account),
    says("you're out of extra usage", Account),
    says("third-party apps now draw from your extra usage", Account),
    says("access to anthropic models is not allowed from", Account),
    says("your organization does not have permission to use", Account),
    says("this workspace has been archived", Account),
    code_says("forbidden", "request not allowed", Account),
    code("billing_error", Account),
    code("authentication_error", Credential),
    says("invalid x-api-key", Credential),
    says("x-api-key header is required", Credential),
    says("invalid bearer token", Credential),
    says("oauth token has expired", Credential),
    says("oauth token revoked", Credential),
    says("oauth token has been revoked", Credential),
    says("oauth authentication is currently not supported", Credential),
    says("oauth authentication is currently not allowed", Credential),
    says("this credential is only authorized for use with", Credential),
    code_says("not_found_error", "model:", Model),
    says("your api key does not have permission to use the specified resource", Model),
    says("your organization does not have access to", Model),
    code("overloaded_error", Busy),
    code("rate_limit_error", Busy),
    says("number of request tokens has exceeded your", Busy),
    says("this request would exceed your organization's", Busy),
    says("this request would exceed your account's rate limit", Busy),
];
