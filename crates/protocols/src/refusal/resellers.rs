//! Gateways in front of other providers: OpenRouter, SiliconFlow, LiteLLM, one-api and its
//! descendants, Vercel, Hugging Face.
//!
//! Source: OpenRouter, "Errors and debugging"; SiliconFlow, "Error codes"; the projects' own sources.

use super::RefusalFault::{Account, Busy, Credential, Customer, Model};
use super::rule::{Rule, code, code_says, says};

pub(super) const RULES: &[Rule] = &[
    // OpenRouter.
    says("insufficient credits", Account),
    says("this request requires more credits", Account),
    says("more credits are required", Account),
    says("prompt tokens limit exceeded", Account),
    says("key limit exceeded", Account),
    says("user not found", Credential),
    says("no auth credentials found", Credential),
    says("no cookie auth credentials found", Credential),
    says("no endpoints found matching your data policy", Model),
    says("no allowed providers are available", Model),
    says("* is not a valid model id", Model),
    says("no endpoints found for", Model),
    says("* requires moderation", Customer),
    says("rate limit exceeded:", Busy),
    says("* is temporarily rate-limited upstream", Busy),
    // SiliconFlow.
    code("30001", Account),
    code("30011", Account),
    code("30003", Model),
    code_says("20012", "model does not exist", Model),
    code_says("20012", "model disabled", Model),
    code("50505", Busy),
    code("50603", Busy),
    says("invalid token", Credential),
    says("api key is invalid", Credential),
    // LiteLLM.
    code("budget_exceeded", Account),
    code("expired_key", Credential),
    code("token_not_found_in_db", Credential),
    code("auth_error", Credential),
    code("key_model_access_denied", Model),
    code("team_model_access_denied", Model),
    code("user_model_access_denied", Model),
    code("org_model_access_denied", Model),
    says("authentication error, invalid proxy server token", Credential),
    says("budget has been exceeded", Account),
    says("exceededbudget:", Account),
    says("no deployments available for selected model", Busy),
    // one-api and its descendants.
    code("insufficient_user_quota", Account),
    code("pre_consume_token_quota_failed", Account),
    code("quota_not_enough", Account),
    says("用户额度不足", Account),
    says("预扣费额度失败", Account),
    says("该令牌额度已用尽", Account),
    says("无效的令牌", Credential),
    says("该令牌状态不可用", Credential),
    says("该令牌已过期", Credential),
    says("当前分组上游负载已饱和", Busy),
    says("no available accounts", Busy),
    says("no available channel", Model),
    // Vercel's gateway, and others that bill for what they pass on.
    code("customer_verification_required", Account),
    says("you have exceeded your monthly included credits", Account),
    // Types that many add to a closer code.
    code("toomanyrequests*", Busy),
];
