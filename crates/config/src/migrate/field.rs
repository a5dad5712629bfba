//! The migration of each field of LiteLLM's configuration.

/// The migration of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The field is converted where it has a meaning.
    Read,
    /// The field has no effect that customers or operators would notice.
    Idle,
    /// The setting works differently, and nothing needs to be done.
    Otherwise(&'static str),
    /// The field is dropped, for this reason.
    LeftOut(&'static str),
    /// The field is converted if an upstream of this build supports it, and else dropped for this reason.
    ReadIfOffered(&'static str, &'static str),
}

use Fate::{Idle, LeftOut, Otherwise, Read, ReadIfOffered};

use tollgate_money::price::Unit;

type Fates = &'static [(&'static str, Fate)];

const IN_REQUESTS: Fate = LeftOut("customers say this in their requests; nothing is added to them");
const CALLBACKS: Fate =
    LeftOut("there are no callbacks: see /metrics, the access log and traces over OTLP");
const DATABASE: Fate = LeftOut(
    "LiteLLM's database is not read: make accounts and keys anew with `tollgate accounts create` \
     and `tollgate keys create`",
);
const NO_REDIS: Fate = Otherwise(
    "no Redis is needed: a gateway counts by itself, and those of a fleet share what they count by \
     `store.postgres`",
);
const NO_HEADERS: Fate = ReadIfOffered("headers", "headers of your own are not sent to upstreams");
/// Fields that are not offered are refused, whatever LiteLLM would have done with them.
const DROP: Fate = Otherwise(
    "fields that are not offered are refused with 400: name those that an upstream can do without in \
     its `leave_out_fields`, and those that it may have in `pass_fields`",
);
const RETRIES: Fate = LeftOut("retries are said for the whole gateway: `balancing.retries`");
const ROLE: &str = "sign in with a key or a role: see `auth.aws` of an upstream";
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

/// Fields of `litellm_params`.
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
    ("drop_params", DROP),
    ("additional_drop_params", DROP),
    ("aws_access_key_id", Read),
    ("aws_secret_access_key", Read),
    ("aws_session_token", Read),
    ("aws_region_name", Read),
    ("aws_role_name", Read),
    ("aws_session_name", Read),
    ("aws_bedrock_runtime_endpoint", Read),
    ("aws_profile_name", LeftOut(ROLE)),
    ("aws_web_identity_token", LeftOut(ROLE)),
    ("aws_sts_endpoint", LeftOut("where roles are assumed is `auth.aws.assume_role.sts_url`")),
    ("vertex_project", Read),
    ("vertex_location", Read),
    ("vertex_credentials", Read),
    ("vertex_ai_project", Read),
    ("vertex_ai_location", Read),
    ("vertex_ai_credentials", Read),
    ("tenant_id", Read),
    ("client_id", Read),
    ("client_secret", Read),
    ("stream_timeout", LeftOut("an upstream has one time for all answers: `timeouts.read`")),
    ("max_retries", RETRIES),
    ("num_retries", RETRIES),
    (
        "azure_ad_token",
        LeftOut("give the upstream `auth` with `entra`, which gets tokens by itself"),
    ),
    (
        "organization",
        ReadIfOffered("headers", "this header is not sent: use a key of that organization"),
    ),
    ("extra_headers", NO_HEADERS),
    ("headers", NO_HEADERS),
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

/// Fields of `model_info`.
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
    ("cache_creation_input_token_cost_above_12hr", Unit::CacheWrite12hTokens),
    ("output_cost_per_token", Unit::OutputTokens),
    ("output_cost_per_image", Unit::Images),
    ("input_cost_per_character", Unit::Characters),
    ("input_cost_per_query", Unit::RerankUnits),
    ("input_cost_per_second", Unit::AudioSeconds),
    ("output_cost_per_second", Unit::Seconds),
    ("output_cost_per_video_per_second", Unit::Seconds),
    ("input_cost_per_audio_token", Unit::AudioInputTokens),
    ("output_cost_per_audio_token", Unit::AudioOutputTokens),
    ("input_cost_per_image_token", Unit::ImageInputTokens),
    ("output_cost_per_image_token", Unit::ImageOutputTokens),
    ("input_cost_per_request", Unit::Requests),
    ("code_interpreter_cost_per_session", Unit::ContainerSessions),
];

/// Fields of `litellm_settings`.
pub(super) const SETTINGS: Fates = &[
    ("num_retries", Read),
    ("request_timeout", Read),
    ("fallbacks", Read),
    ("allowed_fails", Read),
    ("drop_params", DROP),
    ("set_verbose", Idle),
    ("json_logs", Idle),
    ("telemetry", Idle),
    ("default_fallbacks", Read),
    ("context_window_fallbacks", Read),
    ("content_policy_fallbacks", Read),
    ("success_callback", CALLBACKS),
    ("failure_callback", CALLBACKS),
    ("callbacks", CALLBACKS),
    ("service_callbacks", CALLBACKS),
    ("cache", NO_CACHE),
    ("cache_params", NO_CACHE),
    ("max_budget", LeftOut("credit is given to accounts: `tollgate grants create`")),
    ("budget_duration", LeftOut("credit is given to accounts: `tollgate grants create`")),
];

/// Fields of `router_settings`.
pub(super) const ROUTER: Fates = &[
    ("num_retries", Read),
    ("timeout", Read),
    ("fallbacks", Read),
    ("model_group_alias", Read),
    ("allowed_fails", Read),
    ("cooldown_time", Read),
    (
        "routing_strategy",
        Otherwise(
            "of two targets drawn by weight, the one with fewer calls is taken; the cheapest is taken \
             first with `balancing.prefer` and a `cost` at each target",
        ),
    ),
    ("routing_strategy_args", Otherwise("see `balancing` in docs/configuration.md")),
    ("enable_pre_call_checks", Otherwise("requests are always checked before they are sent")),
    ("redis_host", NO_REDIS),
    ("redis_port", NO_REDIS),
    ("redis_password", NO_REDIS),
    ("redis_url", NO_REDIS),
    ("set_verbose", Idle),
    ("context_window_fallbacks", Read),
    ("content_policy_fallbacks", Read),
    ("default_fallbacks", Read),
    ("default_max_parallel_requests", Read),
    (
        "retry_policy",
        LeftOut("which failures are tried again is said for each upstream: `retries.on`"),
    ),
];

/// Fields of `general_settings`.
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
    ("global_max_parallel_requests", Read),
    ("max_parallel_requests", Read),
    ("pass_through_endpoints", LeftOut("only the operations of docs/configuration.md are served")),
];

/// The migration of a field. An unlisted field has no counterpart.
pub(super) fn fate(fates: Fates, name: &str) -> Fate {
    let is_price = PRICES.iter().any(|(theirs, ..)| *theirs == name);
    match fates.iter().find(|(listed, _)| *listed == name) {
        Some((_, fate)) => *fate,
        // By convention, what is only there to be referred to.
        None if name.starts_with("x-") => Idle,
        None if is_price || name.starts_with("supports_") => Read,
        None if name.contains("cost_per") || name.contains("token_cost") => {
            LeftOut("a model has no price of this kind here; see `prices` in docs/configuration.md")
        }
        None => LeftOut("this command does not read it: look for it in docs/configuration.md"),
    }
}

/// True if upstreams of this build have the field.
pub(super) fn offers(field: &str) -> bool {
    let schema = crate::routes_schema();
    schema["$defs"]["Upstream"]["properties"][field].is_object()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// All sentences about the conversion of fields.
    fn sentences() -> Vec<(&'static str, &'static str)> {
        let all = [TOP, PARAMS, INFO, SETTINGS, ROUTER, GENERAL];
        let sentences = all.iter().copied().flatten().filter_map(|(field, fate)| match fate {
            Otherwise(sentence) | LeftOut(sentence) | ReadIfOffered(_, sentence) => {
                Some((*field, *sentence))
            }
            Read | Idle => None,
        });
        sentences.collect()
    }

    /// The names of all fields below a schema.
    fn names(schema: &Value, to: &mut Vec<String>) {
        match schema {
            Value::Object(fields) => {
                for (key, value) in fields {
                    if let (true, Some(properties)) = (key == "properties", value.as_object()) {
                        to.extend(properties.keys().cloned());
                    }
                    names(value, to);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| names(item, to)),
            _ => {}
        }
    }

    /// Every field named in a hint of the migration exists in the schema of `routes.yaml` or `models.yaml`.
    #[test]
    fn every_field_that_a_sentence_names_is_there() {
        let mut fields = Vec::new();
        names(&crate::routes_schema(), &mut fields);
        names(&crate::models_schema(), &mut fields);
        let sentences = sentences();
        let mut checked = 0;
        for (field, sentence) in &sentences {
            for (index, word) in sentence.split('`').enumerate() {
                if index % 2 == 0 || word.starts_with("tollgate ") {
                    continue;
                }
                for name in word.split('.') {
                    assert!(
                        fields.iter().any(|field| field == name),
                        "`{word}`, said of `{field}`"
                    );
                    checked += 1;
                }
            }
        }
        assert!(checked >= 20, "{checked} names in {} sentences", sentences.len());
    }

    #[test]
    fn what_is_offered_is_asked_of_the_schema() {
        assert!(offers("pass_fields") && offers("auth"), "fields of this build");
        assert!(!offers("no_such_field"));
        assert_eq!(fate(PARAMS, "aws_access_key_id"), Read);
    }
}
