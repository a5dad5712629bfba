//! What becomes of every field of LiteLLM's configuration.

/// What becomes of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is read where it has a meaning.
    Read,
    /// It changes nothing that customers or operators would notice.
    Idle,
    /// It is done in another way, and nothing needs to be done.
    Otherwise(&'static str),
    /// It is left out, for this reason.
    LeftOut(&'static str),
}

use Fate::{Idle, LeftOut, Otherwise, Read};

use tollgate_money::price::Unit;

type Fates = &'static [(&'static str, Fate)];

const IN_REQUESTS: Fate = LeftOut("customers say this in their requests; nothing is added to them");
const CALLBACKS: Fate =
    LeftOut("there are no callbacks: see /metrics, the access log and traces over OTLP");
const DATABASE: Fate = LeftOut(
    "LiteLLM's database is not read: make accounts and keys anew with `tollgate accounts create` \
     and `tollgate keys create`",
);
const NO_REDIS: Fate = Otherwise("no Redis is needed: each process counts for itself");
const NO_CACHE: Fate = LeftOut("answers are not cached");

/// Fields at the top.
pub(super) const TOP: Fates = &[
    ("model_list", Read),
    ("litellm_settings", Read),
    ("router_settings", Read),
    ("general_settings", Read),
    ("credential_list", Read),
    ("environment_variables", LeftOut("set these in the environment of the gateway")),
    ("include", LeftOut("give each of the included files to this command")),
];

/// What becomes of each field of `litellm_params`.
pub(super) const PARAMS: Fates = &[
    ("model", Read),
    ("api_key", Read),
    ("api_base", Read),
    ("base_url", Read),
    ("rpm", Read),
    ("tpm", Read),
    ("max_parallel_requests", Read),
    ("weight", Read),
    ("order", Read),
    ("timeout", Read),
    ("custom_llm_provider", Read),
    ("litellm_credential_name", Read),
    ("api_version", Read),
    ("drop_params", Otherwise("fields that a provider does not know are passed on to it")),
    ("stream_timeout", LeftOut("an upstream has one time for all answers: `timeouts.read`")),
    ("max_retries", LeftOut("retries are said for the whole gateway: `balancing.retries`")),
    ("num_retries", LeftOut("retries are said for the whole gateway: `balancing.retries`")),
    (
        "azure_ad_token",
        LeftOut("give the upstream `auth` with `entra`, which gets tokens by itself"),
    ),
    ("organization", LeftOut("this header is not sent: use a key of that organization")),
    ("extra_headers", LeftOut("headers of your own are not sent")),
    ("headers", LeftOut("headers of your own are not sent")),
    ("temperature", IN_REQUESTS),
    ("max_tokens", IN_REQUESTS),
    ("seed", IN_REQUESTS),
    ("top_p", IN_REQUESTS),
    ("stop", IN_REQUESTS),
    ("extra_body", IN_REQUESTS),
    ("thinking", IN_REQUESTS),
    ("reasoning_effort", IN_REQUESTS),
    ("max_budget", LeftOut("spending is limited for each key: `tollgate keys update`")),
    ("budget_duration", LeftOut("spending is limited for each key: `tollgate keys update`")),
    ("tags", LeftOut("targets are not chosen by tags")),
];

/// What becomes of each field of `model_info`.
pub(super) const INFO: Fates = &[
    ("mode", Read),
    ("base_model", Read),
    ("max_tokens", Read),
    ("max_input_tokens", Read),
    ("max_output_tokens", Read),
    ("id", Idle),
    ("version", Idle),
    ("metadata", Idle),
    ("description", Idle),
    ("litellm_provider", Idle),
    ("access_groups", LeftOut("models are allowed for each key: `tollgate keys create --model`")),
    ("team_id", LeftOut("models are allowed for each key: `tollgate keys create --model`")),
    ("health_check_timeout", LeftOut("upstreams are looked at by their `health_check`")),
];

/// Fields of prices, in `litellm_params` or `model_info`, and the unit that each is the price of one of.
pub(super) const PRICES: &[(&str, Unit)] = &[
    ("input_cost_per_token", Unit::InputTokens),
    ("cache_read_input_token_cost", Unit::CacheReadTokens),
    ("cache_creation_input_token_cost", Unit::CacheWriteTokens),
    ("cache_creation_input_token_cost_above_1hr", Unit::CacheWrite1hTokens),
    ("output_cost_per_token", Unit::OutputTokens),
    ("output_cost_per_image", Unit::Images),
    ("input_cost_per_character", Unit::Characters),
    ("input_cost_per_query", Unit::RerankUnits),
];

/// What becomes of each field of `litellm_settings`.
pub(super) const SETTINGS: Fates = &[
    ("num_retries", Read),
    ("request_timeout", Read),
    ("fallbacks", Read),
    ("allowed_fails", Read),
    ("drop_params", Otherwise("fields that a provider does not know are passed on to it")),
    ("set_verbose", Idle),
    ("json_logs", Idle),
    ("telemetry", Idle),
    ("default_fallbacks", LeftOut("give each model its own targets of a higher `priority`")),
    ("context_window_fallbacks", LeftOut("a refusal of the provider goes to the customer")),
    ("content_policy_fallbacks", LeftOut("a refusal of the provider goes to the customer")),
    ("success_callback", CALLBACKS),
    ("failure_callback", CALLBACKS),
    ("callbacks", CALLBACKS),
    ("service_callbacks", CALLBACKS),
    ("cache", NO_CACHE),
    ("cache_params", NO_CACHE),
    ("max_budget", LeftOut("credit is given to accounts: `tollgate grants create`")),
    ("budget_duration", LeftOut("credit is given to accounts: `tollgate grants create`")),
];

/// What becomes of each field of `router_settings`.
pub(super) const ROUTER: Fates = &[
    ("num_retries", Read),
    ("timeout", Read),
    ("fallbacks", Read),
    ("model_group_alias", Read),
    ("allowed_fails", Read),
    ("cooldown_time", Read),
    (
        "routing_strategy",
        Otherwise("of two targets drawn by weight, the one with fewer calls is taken"),
    ),
    ("routing_strategy_args", Otherwise("there is one way of choosing targets")),
    ("enable_pre_call_checks", Otherwise("requests are always checked before they are sent")),
    ("redis_host", NO_REDIS),
    ("redis_port", NO_REDIS),
    ("redis_password", NO_REDIS),
    ("redis_url", NO_REDIS),
    ("set_verbose", Idle),
    ("context_window_fallbacks", LeftOut("a refusal of the provider goes to the customer")),
    ("content_policy_fallbacks", LeftOut("a refusal of the provider goes to the customer")),
    ("default_fallbacks", LeftOut("give each model its own targets of a higher `priority`")),
    ("retry_policy", LeftOut("which failures are tried again is fixed; see docs/configuration.md")),
];

/// What becomes of each field of `general_settings`.
pub(super) const GENERAL: Fates = &[
    ("master_key", Read),
    ("database_url", DATABASE),
    ("database_connection_pool_limit", Idle),
    ("database_connection_timeout", Idle),
    ("proxy_batch_write_at", Idle),
    ("proxy_budget_rescheduler_min_time", Idle),
    ("proxy_budget_rescheduler_max_time", Idle),
    (
        "store_model_in_db",
        LeftOut("models that were added over LiteLLM's API are not in this file"),
    ),
    ("alerting", LeftOut("alerts are made of metrics: see deploy/prometheus")),
    ("custom_auth", LeftOut("customers have keys; there is no other way in")),
    ("global_max_parallel_requests", LeftOut("see `limits.requests_in_flight_max`")),
    ("pass_through_endpoints", LeftOut("only the operations of docs/configuration.md are served")),
];

/// What becomes of a field. One that is not listed has no counterpart.
pub(super) fn fate(fates: Fates, name: &str) -> Fate {
    let is_price = PRICES.iter().any(|(theirs, ..)| *theirs == name);
    match fates.iter().find(|(known, _)| *known == name) {
        Some((_, fate)) => *fate,
        // By convention, what is only there to be referred to.
        None if name.starts_with("x-") => Idle,
        None if is_price || name.starts_with("supports_") => Read,
        None if name.contains("cost_per") || name.contains("token_cost") => {
            LeftOut("a model has no price of this kind here; see `prices` in docs/configuration.md")
        }
        None => LeftOut("it has no counterpart"),
    }
}
