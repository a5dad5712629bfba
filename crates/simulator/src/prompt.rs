//! Token count of a prompt, equal for a paid request and for a count.

use std::collections::BTreeMap;

use http::StatusCode;
use serde_json::json;
use serde_json::value::RawValue;

use super::answer::{Answer, ErrorFormat};
use super::behaviour::{Behaviour, SimulatedRefusal};

/// Approximate bytes of a prompt per token.
const BYTES_PER_TOKEN: usize = 4;
/// The fields of requests that are a part of the prompt, in any dialect.
const PROMPT_FIELDS: [&str; 8] = [
    "messages",
    "system",
    "input",
    "instructions",
    "contents",
    "systemInstruction",
    "system_instruction",
    "tools",
];
/// Fields that real counters refuse, in any dialect: those that affect the answer only.
const ANSWER_FIELDS: [&str; 8] = [
    "max_tokens",
    "max_output_tokens",
    "stream",
    "temperature",
    "top_p",
    "metadata",
    "stop_sequences",
    "store",
];
/// Field of a Gemini count request that contains a whole generation request.
const CONTENT_REQUEST: &str = "generateContentRequest";

/// The fields of a request's body, as they are written.
type BodyFields<'a> = BTreeMap<&'a str, &'a RawValue>;

/// The tokens of the prompt of a request with this `body`.
pub(super) fn tokens(body: &[u8]) -> u64 {
    of_fields(&serde_json::from_slice(body).unwrap_or_default())
}

fn of_fields(fields: &BodyFields<'_>) -> u64 {
    let bytes = |field: &&str| fields.get(*field).map_or(0, |value| value.get().len());
    let bytes: usize = PROMPT_FIELDS.iter().map(bytes).sum();
    1 + (bytes / BYTES_PER_TOKEN) as u64
}

/// Dialect of a token count.
#[derive(Clone, Copy)]
pub(super) enum CountDialect<'a> {
    Anthropic,
    Openai,
    /// Google, for the model that the path names.
    Google(&'a str),
}

/// Answers a request to count the tokens of a prompt.
pub(super) fn count(dialect: CountDialect<'_>, body: &[u8], behaviour: &Behaviour) -> Answer {
    let envelope = match dialect {
        CountDialect::Anthropic => ErrorFormat::Anthropic,
        CountDialect::Openai => ErrorFormat::Openai,
        CountDialect::Google(_) => ErrorFormat::Google,
    };
    if behaviour.faults.refusal == Some(SimulatedRefusal::Garbage) {
        return Answer::garbage(false);
    }
    let fields: BodyFields<'_> = serde_json::from_slice(body).unwrap_or_default();
    if let Some(message) = refusal(dialect, &fields).filter(|_| behaviour.strict) {
        return Answer::refused(envelope, StatusCode::BAD_REQUEST, &message, behaviour);
    }
    // Google counts `contents` alone unless the whole request is wrapped so.
    let inner = fields.get(CONTENT_REQUEST).map(|value| value.get().as_bytes());
    let counted = inner.map_or_else(|| of_fields(&fields), tokens);
    // Real counters err by some percent; tests set by how many.
    let counted = counted.saturating_mul(u64::from(behaviour.count.percent)) / 100;
    let counted = i64::try_from(counted).unwrap_or(i64::MAX);
    let tokens = behaviour.usage.prompt.unwrap_or(counted);
    let answer = match dialect {
        CountDialect::Anthropic => json!({"input_tokens": tokens}),
        CountDialect::Openai => {
            json!({"object": "response.input_tokens", "input_tokens": tokens})
        }
        CountDialect::Google(_) => json!({"totalTokens": tokens}),
    };
    Answer::json(answer.to_string(), behaviour)
}

/// Refusal of a request by the real counter.
fn refusal(dialect: CountDialect<'_>, fields: &BodyFields<'_>) -> Option<String> {
    if let Some(field) = ANSWER_FIELDS.iter().find(|field| fields.contains_key(*field)) {
        return Some(format!("{field}: Extra inputs are not permitted"));
    }
    let CountDialect::Google(model) = dialect else { return None };
    let inner: BodyFields<'_> = serde_json::from_str(fields.get(CONTENT_REQUEST)?.get()).ok()?;
    let named = inner.get("model").map_or("", |value| value.get());
    (named != format!("\"models/{model}\""))
        .then(|| "The model of generateContentRequest must be the one of the path.".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_no_part_of_a_prompt() {
        let plain = r#"{"model":"m","messages":[{"role":"user","content":"four words, or five"}]}"#;
        let long = plain.replace("}]}", r#"}],"max_tokens":4096,"metadata":{"user_id":"u"}}"#);
        assert_eq!(tokens(plain.as_bytes()), tokens(long.as_bytes()));
        let tools = plain.replace("}]}", r#"}],"tools":[{"name":"a_tool_of_some_length"}]}"#);
        assert!(tokens(tools.as_bytes()) > tokens(plain.as_bytes()));
    }
}
