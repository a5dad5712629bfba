//! Requests that real providers refuse, with their words.
//!
//! Simulated upstreams answer what they understand. A real provider has a validator in front of its
//! model, which refuses lengths, letters, orders and fields that its reference names in passing or not
//! at all. The rules stand in one table for each protocol, a row each: the page or the public report that
//! shows it, the check, the provider's own words, a body that it takes and one that it refuses. Facts of
//! models (whether they reason, whether they take a prefill) are rows as well: [`models`].
//!
//! Where reports differ, the stricter one counts.

mod anthropic;
mod bedrock;
mod chat_copies;
mod gemini;
mod media;
mod models;
mod openai_chat;
mod openai_responses;
mod schema;

use http::HeaderMap;
use serde_json::Value;

/// A protocol of an upstream, by its validator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StrictDialect {
    /// Chat completions of those who copied OpenAI's, with the templates of open models.
    ChatCopies,
    /// OpenAI's own chat completions (`/v1/chat/completions`).
    OpenaiChat,
    /// OpenAI's Responses API (`/v1/responses`).
    OpenaiResponses,
    /// Anthropic's Messages API (`/v1/messages`).
    Anthropic,
    /// Google's Gemini API (`generateContent`, `streamGenerateContent`).
    Gemini,
    /// Amazon Bedrock's Converse API.
    Bedrock,
}

impl StrictDialect {
    /// All dialects, in the order of their definition.
    pub const ALL: [Self; 6] = [
        Self::ChatCopies,
        Self::OpenaiChat,
        Self::OpenaiResponses,
        Self::Anthropic,
        Self::Gemini,
        Self::Bedrock,
    ];

    /// Provider of a chat completions request: OpenAI by its model names and exclusive fields, else
    /// another.
    #[must_use]
    pub fn of_chat(model: &str, body: &Value) -> Self {
        let own_models = ["gpt-", "o1", "o3", "o4", "chatgpt-"];
        let own_fields = ["max_completion_tokens", "safety_identifier", "verbosity"];
        let is_openais = own_models.iter().any(|start| model.starts_with(start))
            || own_fields.iter().any(|field| has(body, field))
            || list(body, "messages").iter().any(|message| message["role"] == "developer");
        if is_openais { Self::OpenaiChat } else { Self::ChatCopies }
    }

    /// The rules of the provider, in the order in which they are checked.
    #[must_use]
    pub fn rules(self) -> &'static [StrictRule] {
        match self {
            Self::ChatCopies => chat_copies::RULES,
            Self::OpenaiChat => openai_chat::RULES,
            Self::OpenaiResponses => openai_responses::RULES,
            Self::Anthropic => anthropic::RULES,
            Self::Gemini => gemini::RULES,
            Self::Bedrock => bedrock::RULES,
        }
    }
}

/// A request as a validator reads it.
#[derive(Clone, Copy, Debug)]
pub struct StrictRequest<'r> {
    /// The model, which stands in the body or in the path.
    pub model: &'r str,
    /// The headers; `None` where only the body is checked.
    pub headers: Option<&'r HeaderMap>,
    /// The body of the request, as JSON.
    pub body: &'r Value,
}

/// Arguments of a rule's message, if a request violates the rule.
type ViolationWords = Option<Vec<String>>;

/// A validation rule of a provider.
#[derive(Debug)]
pub struct StrictRule {
    /// A short name, such as `roles-alternate`.
    pub name: &'static str,
    /// The page of the documentation or the public report that shows the rule.
    pub source: &'static str,
    /// The provider's words; each `{}` is a place that the check fills.
    pub words: &'static str,
    /// The words for the places of the sentence; `None` where the request keeps the rule.
    check: fn(&StrictRequest<'_>) -> ViolationWords,
    /// Members of a request that keeps the rule, as JSON.
    pub taken: &'static str,
    /// Members of a request that breaks the rule, as JSON.
    pub refused: &'static str,
}

/// The refusal of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrictRefusal {
    /// The HTTP status of the refusal, such as 400.
    pub status: u16,
    /// The name of the rule.
    pub rule: &'static str,
    /// The provider's error message, with the places of the rule's sentence filled.
    pub message: String,
}

/// Checks a request as the provider would before it asks the model.
///
/// # Errors
/// The first rule that the request breaks.
pub fn check(
    dialect: StrictDialect,
    model: &str,
    headers: Option<&HeaderMap>,
    body: &Value,
) -> Result<(), StrictRefusal> {
    let request = StrictRequest { model, headers, body };
    for rule in dialect.rules() {
        if let Some(words) = (rule.check)(&request) {
            let mut message = rule.words.to_owned();
            for word in &words {
                message = message.replacen("{}", word, 1);
            }
            return Err(StrictRefusal { status: 400, rule: rule.name, message });
        }
    }
    Ok(())
}

/// The elements of a member that is an array; none of any other.
fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// String member of an object; empty for anything else.
fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// True if an object has a non-null member of this name.
fn has(value: &Value, key: &str) -> bool {
    value.get(key).is_some_and(|value| !value.is_null())
}

/// The first member of an object that is none of these.
fn unknown_key<'v>(value: &'v Value, allowed: &[&str]) -> Option<&'v str> {
    let members = value.as_object()?;
    members.keys().map(String::as_str).find(|key| !allowed.contains(key))
}

/// True for a non-empty name of letters, digits and these signs.
fn is_word(name: &str, signs: &str) -> bool {
    !name.is_empty()
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || signs.contains(letter))
}

/// The first of some names that stands twice.
fn duplicate<'n>(names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let mut seen = std::collections::HashSet::new();
    names.into_iter().find(|name| !seen.insert(*name))
}

/// The words for the places of a rule's sentence.
macro_rules! found {
    ($($word:expr),* $(,)?) => { $crate::strict::broken([$($word.to_string()),*]) };
}
use found;

/// A rule that a request violates.
fn broken<const PLACES: usize>(words: [String; PLACES]) -> ViolationWords {
    Some(Vec::from(words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The smallest request of each provider, with the members of an example.
    fn request(dialect: StrictDialect, example: &str) -> (String, HeaderMap, Value) {
        let (model, mut body) = match dialect {
            StrictDialect::ChatCopies => {
                ("qwen3.5-27b", json!({"messages": [{"role": "user", "content": "Hi"}]}))
            }
            StrictDialect::OpenaiChat => {
                ("gpt-5.1", json!({"messages": [{"role": "user", "content": "Hi"}]}))
            }
            StrictDialect::OpenaiResponses => ("gpt-5.1", json!({"input": "Hi"})),
            StrictDialect::Anthropic => (
                "claude-opus-4-8",
                json!({"max_tokens": 4096, "messages": [{"role": "user", "content": "Hi"}]}),
            ),
            StrictDialect::Gemini => {
                ("gemini-3-pro", json!({"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}))
            }
            StrictDialect::Bedrock => (
                "anthropic.claude-opus-4-8",
                json!({"messages": [{"role": "user", "content": [{"text": "Hi"}]}]}),
            ),
        };
        let mut model = model.to_owned();
        let mut headers = HeaderMap::new();
        headers.insert("anthropic-version", http::HeaderValue::from_static("2023-06-01"));
        let example: Value = serde_json::from_str(example).expect("JSON");
        for (key, value) in example.as_object().expect("members") {
            match key.as_str() {
                "model" => model = value.as_str().expect("a model").to_owned(),
                "headers" => headers.clear(),
                _ if value.is_null() => drop(body.as_object_mut().expect("members").remove(key)),
                _ => body[key] = value.clone(),
            }
        }
        if matches!(
            dialect,
            StrictDialect::Anthropic
                | StrictDialect::ChatCopies
                | StrictDialect::OpenaiChat
                | StrictDialect::OpenaiResponses
        ) {
            body["model"] = json!(model);
        }
        (model, headers, body)
    }

    #[test]
    fn each_rule_takes_one_body_and_refuses_another() {
        for dialect in StrictDialect::ALL {
            assert!(dialect.rules().len() >= 20, "{dialect:?}: {}", dialect.rules().len());
            for rule in dialect.rules() {
                let (model, headers, body) = request(dialect, rule.taken);
                let taken = check(dialect, &model, Some(&headers), &body);
                assert_eq!(taken, Ok(()), "{dialect:?} {}: {body}", rule.name);
                let (model, headers, body) = request(dialect, rule.refused);
                let refused = StrictRequest { model: &model, headers: Some(&headers), body: &body };
                let words = (rule.check)(&refused);
                let words = words.unwrap_or_else(|| panic!("{dialect:?} {}: {body}", rule.name));
                assert_eq!(words.len(), rule.words.matches("{}").count(), "{}", rule.name);
                let refusal = check(dialect, &model, Some(&headers), &body).expect_err(rule.name);
                assert!(!refusal.message.contains("{}"), "{refusal:?}");
                assert!(rule.source.contains("http"), "{}: {}", rule.name, rule.source);
            }
            let names = dialect.rules().iter().map(|rule| rule.name);
            assert_eq!(duplicate(names), None, "{dialect:?}");
        }
    }
}
