//! Alibaba Cloud Model Studio: DashScope's own calls, and its path for OpenAI's clients, which writes
//! the same codes in OpenAI's shape.
//!
//! Source: Alibaba Cloud Model Studio, "Error messages".

use super::RefusalFault::{Account, Busy, Credential, Customer, Model};
use super::rule::{Rule, code, code_says, says};

pub(super) const RULES: &[Rule] = &[
    code("arrearage*", Account),
    code("allocationquota*", Account),
    code("prepaidbilloverdue*", Account),
    code("postpaidbilloverdue*", Account),
    code("commoditynotpurchased*", Account),
    code_says("insufficient_quota", "free allocated quota exceeded", Account),
    code_says("insufficient_quota", "the free tier of the model has been exhausted", Account),
    // It says so of tokens and requests per minute.
    code("throttling*", Busy),
    code("limit_requests", Busy),
    code_says("insufficient_quota", "allocated quota exceeded", Busy),
    says("free allocated quota exceeded", Account),
    says("the free tier of the model has been exhausted", Account),
    says("access denied, please make sure your account is in good standing", Account),
    code_says("accessdenied*", "the free quota", Account),
    code("invalidapikey*", Credential),
    code("invalidaccesskey*", Credential),
    code("invalid_api_key", Credential),
    says("invalid api-key provided", Credential),
    says("no api-key provided", Credential),
    code("workspace.accessdenied*", Account),
    code("app.accessdenied*", Account),
    code("model.accessdenied*", Model),
    code("model_access_denied", Model),
    code("accessdenied.unpurchased", Model),
    code("modelnotfound*", Model),
    code("model_not_supported", Model),
    code("model_not_found", Model),
    says("model not exist", Model),
    says("model access denied", Model),
    code("limitrequests*", Busy),
    code("ratelimit*", Busy),
    code("data_inspection_failed", Customer),
    code("datainspectionfailed*", Customer),
    code("invalidparameter*", Customer),
    code("invalid_parameter_error", Customer),
];
