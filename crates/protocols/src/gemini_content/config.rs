//! `generationConfig`: how much may come out, and what of it costs otherwise.

use super::{camel, check_spelling};
use crate::fields::{check_listed, is_passed, no_object};
use crate::json::{Object, Value};
use crate::limits::ModelLimits;
use tollgate_types::error::GatewayError;

/// Maximum number of candidates, Google's own limit.
const CANDIDATES_MAX: u64 = 8;

/// Fields that change no price, by the first of their spellings. Those that make pictures and sound are
/// not among them.
pub(in super::super) const FIELDS: [&str; 19] = [
    "temperature",
    "topP",
    "topK",
    "seed",
    "maxOutputTokens",
    "stopSequences",
    "candidateCount",
    "presencePenalty",
    "frequencyPenalty",
    "responseMimeType",
    "responseSchema",
    "responseJsonSchema",
    "responseModalities",
    "responseLogprobs",
    "logprobs",
    "thinkingConfig",
    "mediaResolution",
    "audioTimestamp",
    "enableEnhancedCivicAnswers",
];

/// Settings of the answer that affect its cost.
#[derive(Debug)]
pub(super) struct GenerationConfig {
    /// The most tokens of each candidate, thoughts included.
    pub(super) output_tokens_max: Option<u64>,
    pub(super) candidates: u64,
    /// True or false if the request switches thinking on or off.
    pub(super) thinks: Option<bool>,
    /// True if it has stop sequences.
    pub(super) has_stops: bool,
}

impl GenerationConfig {
    pub(super) fn read(body: &Object<'_>, limits: &ModelLimits) -> Result<Self, GatewayError> {
        let config = ["generationConfig", "generation_config"];
        let Some(config) = config.into_iter().find_map(|key| body.get_non_null(key)) else {
            return Ok(Self {
                output_tokens_max: None,
                candidates: 1,
                thinks: None,
                has_stops: false,
            });
        };
        let config = object("generationConfig", &config)?;
        check_spelling(&config)?;
        let (mut output_tokens_max, mut candidates, mut thinks) = (None, 1, None);
        let mut has_stops = false;
        for (key, value) in config.members() {
            let name = camel(key);
            check_listed("generationConfig", &name, &FIELDS, &limits.pass.fields)?;
            match name.as_str() {
                // Google treats `null` as absent, but the field's name was checked before.
                _ if value.is_null() => {}
                "maxOutputTokens" => {
                    output_tokens_max = Some(tokens(&value, limits)?);
                }
                "candidateCount" => {
                    let count = value.as_u64().filter(|n| (1..=CANDIDATES_MAX).contains(n));
                    let expected = "an integer from 1 to 8";
                    candidates = count.ok_or_else(|| invalid("candidateCount", expected))?;
                }
                "stopSequences" => has_stops = true,
                "responseModalities" => check_modalities(&value, limits)?,
                "thinkingConfig" => thinks = self::thinks(&value)?,
                _ => {}
            }
        }
        Ok(Self { output_tokens_max, candidates, thinks, has_stops })
    }
}

fn object<'a>(field: &'static str, value: &Value<'a>) -> Result<Object<'a>, GatewayError> {
    let read = value.as_object();
    read.map_err(|error| GatewayError::invalid(field, no_object(field, value, &error)))
}

fn invalid(field: &str, expected: &str) -> GatewayError {
    let field = format!("generationConfig.{field}");
    let message = format!("`{field}` must be {expected}");
    GatewayError::invalid(field, message)
}

fn tokens(value: &Value<'_>, limits: &ModelLimits) -> Result<u64, GatewayError> {
    let max = limits.output_tokens_max;
    match value.as_u64() {
        Some(tokens) if (1..=max).contains(&tokens) => Ok(tokens),
        Some(tokens) if tokens > max => {
            let expected = format!("at most {max} for this model, not {tokens}");
            Err(invalid("maxOutputTokens", &expected))
        }
        _ => Err(invalid("maxOutputTokens", "an integer of at least 1")),
    }
}

/// Pictures and sound have prices of their own.
fn check_modalities(value: &Value<'_>, limits: &ModelLimits) -> Result<(), GatewayError> {
    let is_text = |one: Value<'_>| one.as_str().is_some_and(|it| it.eq_ignore_ascii_case("text"));
    let is_listed = value.elements().is_some_and(|mut all| all.all(is_text));
    let is_passed = || is_passed("generationConfig", "responseModalities", &limits.pass.fields);
    if is_listed || is_passed() {
        return Ok(());
    }
    Err(invalid("responseModalities", "[\"TEXT\"]: what else costs is not known"))
}

/// True or false if the request switches thinking on or off.
fn thinks(value: &Value<'_>) -> Result<Option<bool>, GatewayError> {
    let config = object("generationConfig.thinkingConfig", value)?;
    check_spelling(&config)?;
    let given =
        |key: &str, other: &str| config.get_non_null(key).or_else(|| config.get_non_null(other));
    let budget = given("thinkingBudget", "thinking_budget");
    let level = given("thinkingLevel", "thinking_level");
    Ok(match (budget, level) {
        // Zero alone switches thinking off; -1 leaves the amount to the model.
        (Some(budget), _) => Some(budget.text() != b"0"),
        (None, Some(_)) => Some(true),
        (None, None) => None,
    })
}
