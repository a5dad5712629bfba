//! Providers' free counters of input tokens: what goes to them for a request, and what they answer.
//!
//! A counter takes fewer fields than the operation whose prompts it counts, and refuses the others. What
//! goes to it is the request as its upstream gets it, with the fields that the counter does not take
//! spliced out. A field that is in no table may add to the prompt without being counted, so that such a
//! request is not counted at all.
//!
//! Fields and answers: Anthropic's API reference, "Count tokens in a Message"; OpenAI's, "Get input token
//! counts"; the Gemini API's, "Counting tokens"; Vertex AI's REST reference, `CountTokensRequest`.

use bytes::Bytes;

use super::json::Object;
use super::splice::{EditedBody, Splice, json_string};
use super::{Dialect, Operation};

/// The most tokens that a believable count has: more than any model reads.
const COUNT_MAX: u64 = 1 << 40;

/// A provider's counter, by the requests that it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Counter {
    /// Counts requests to Anthropic's Messages API.
    Messages,
    /// Counts requests to OpenAI's Responses API.
    Responses,
    /// Counts requests to Google's `generateContent`.
    Content,
}

/// Acceptance of a field by a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FieldSupport {
    /// The field is part of the counted prompt.
    Yes,
    /// The counter refuses the field, which adds nothing to the prompt.
    No,
}

use FieldSupport::{No, Yes};

type CounterFields = [(&'static str, FieldSupport)];

const MESSAGES: &CounterFields = &[
    ("model", Yes),
    ("messages", Yes),
    ("max_tokens", No),
    ("system", Yes),
    ("stream", No),
    ("tools", Yes),
    ("thinking", Yes),
    ("temperature", No),
    ("metadata", No),
    // It only ever takes something out of the prompt; a summary is held for by itself.
    ("context_management", No),
    ("output_config", Yes),
    ("output_format", Yes),
    ("tool_choice", Yes),
    ("cache_control", Yes),
    ("stop_sequences", No),
    ("top_p", No),
    ("top_k", No),
    ("diagnostics", No),
    ("service_tier", No),
    ("speed", No),
    ("inference_geo", No),
];

/// Fields without `prompt`, whose text the counter cannot read, and `conversation`, which grows between
/// requests.
const RESPONSES: &CounterFields = &[
    ("model", Yes),
    ("input", Yes),
    ("stream", No),
    ("instructions", Yes),
    ("tools", Yes),
    ("tool_choice", Yes),
    ("parallel_tool_calls", Yes),
    ("reasoning", Yes),
    ("text", Yes),
    ("previous_response_id", Yes),
    ("truncation", Yes),
    ("store", No),
    ("include", No),
    ("prompt_cache_key", No),
    ("prompt_cache_options", No),
    ("prompt_cache_retention", No),
    ("max_output_tokens", No),
    ("max_tool_calls", No),
    ("client_metadata", No),
    ("metadata", No),
    ("temperature", No),
    ("top_p", No),
    ("top_logprobs", No),
    ("stream_options", No),
    ("user", No),
    ("safety_identifier", No),
    ("service_tier", No),
    ("context_management", No),
    ("image", No),
    ("access_programs", No),
    ("background", No),
];

const GEMINI: &CounterFields = &[
    ("contents", Yes),
    ("systemInstruction", Yes),
    ("system_instruction", Yes),
    ("tools", Yes),
    ("toolConfig", Yes),
    ("tool_config", Yes),
    ("generationConfig", Yes),
    ("generation_config", Yes),
    ("safetySettings", No),
    ("safety_settings", No),
    ("labels", No),
    ("serviceTier", No),
    ("service_tier", No),
];

/// `CountTokensRequest` has no word for the configuration of tools.
const VERTEX: &CounterFields = &[
    ("contents", Yes),
    ("systemInstruction", Yes),
    ("system_instruction", Yes),
    ("tools", Yes),
    ("toolConfig", No),
    ("tool_config", No),
    ("generationConfig", Yes),
    ("generation_config", Yes),
    ("safetySettings", No),
    ("safety_settings", No),
    ("labels", No),
    ("serviceTier", No),
    ("service_tier", No),
];

impl Counter {
    /// Operation of the counting endpoint.
    #[must_use]
    pub fn operation(self) -> Operation {
        match self {
            Self::Messages => Operation::CountTokens,
            Self::Responses => Operation::InputTokens,
            Self::Content => Operation::CountContentTokens,
        }
    }

    /// The counter's request for `body`, the upstream's body for the model `model`. `None` where the counter
    /// would not count all of it.
    #[must_use]
    pub fn request(self, dialect: Dialect, model: &str, body: &Bytes) -> Option<EditedBody> {
        let object = Object::parse(body).ok()?;
        let fields = match (self, dialect) {
            (Self::Messages, _) => MESSAGES,
            (Self::Responses, _) => RESPONSES,
            (Self::Content, Dialect::Vertex) => VERTEX,
            (Self::Content, _) => GEMINI,
        };
        let mut left_out = Vec::new();
        for key in object.keys() {
            // A field without a row: what the counter makes of it is not known, so nothing is
            // counted.
            match fields.iter().find(|(field, _)| *field == key)?.1 {
                Yes => {}
                No => left_out.push(key),
            }
        }
        let mut splice = Splice::default();
        for range in object.member_ranges(&left_out) {
            splice.replace(range, "");
        }
        if (self, dialect) == (Self::Content, Dialect::Gemini) {
            wrap_content(&object, left_out.len() < object.keys().count(), model, &mut splice);
        }
        Some(splice.apply_in_pieces(body))
    }

    /// The tokens that a counter's answer tells of; `None` for an answer that cannot be one.
    #[must_use]
    pub fn read(self, answer: &[u8]) -> Option<u64> {
        let object = Object::parse(answer).ok()?;
        let field = match self {
            Self::Messages | Self::Responses => "input_tokens",
            Self::Content => "totalTokens",
        };
        let tokens = object.get(field)?.as_u64()?;
        // A prompt of no tokens does not exist, and a count beyond any context is none.
        (1..COUNT_MAX).contains(&tokens).then_some(tokens)
    }
}

/// Makes a `generateContentRequest` of a body: without that, the Gemini API counts `contents` alone. It
/// wants the model in there once more, by its resource name.
fn wrap_content(body: &Object<'_>, has_fields: bool, model: &str, splice: &mut Splice) {
    let open = memchr::memchr(b'{', body.text()).unwrap_or(0);
    let model = json_string(&format!("models/{model}"));
    let comma = if has_fields { "," } else { "" };
    let head = format!(r#"{{"generateContentRequest":{{"model":{model}{comma}"#);
    splice.replace(open..open + 1, head);
    splice.replace(body.text().len()..body.text().len(), "}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(counter: Counter, dialect: Dialect, body: &str) -> Option<String> {
        let body = Bytes::copy_from_slice(body.as_bytes());
        let sent = counter.request(dialect, "m-1", &body)?.into_whole();
        Some(String::from_utf8(sent.into()).expect("UTF-8"))
    }

    #[test]
    fn only_what_a_counter_does_not_take_is_cut_out_of_the_bytes() {
        for (counter, dialect, body, expected) in [
            (
                Counter::Messages,
                Dialect::Anthropic,
                r#"{"model": "m-1", "max_tokens":4096,"system":"é\u00e9", "stream":true,"messages":[ {"role":"user","content":"hi"} ],"top_p":1e0}"#,
                r#"{"model": "m-1", "system":"é\u00e9", "messages":[ {"role":"user","content":"hi"} ]}"#,
            ),
            (
                Counter::Responses,
                Dialect::Openai,
                r#"{"store":false,"model":"m-1","input":"hi","tools":[],"include":["x"],"stream":true,"reasoning":{"effort":"low"},"prompt_cache_key":"k"}"#,
                r#"{"model":"m-1","input":"hi","tools":[],"reasoning":{"effort":"low"}}"#,
            ),
            (
                Counter::Content,
                Dialect::Gemini,
                " {\"safetySettings\":[],\"contents\":[{\"parts\":[{\"text\":\"hi\"}]}],\"toolConfig\":{}}\n",
                " {\"generateContentRequest\":{\"model\":\"models/m-1\",\"contents\":[{\"parts\":[{\"text\":\"hi\"}]}],\"toolConfig\":{}}\n}",
            ),
            (
                Counter::Content,
                Dialect::Vertex,
                r#"{"contents":[{"parts":[{"text":"hi"}]}],"tools":[],"toolConfig":{},"labels":{}}"#,
                r#"{"contents":[{"parts":[{"text":"hi"}]}],"tools":[]}"#,
            ),
        ] {
            let sent = sent(counter, dialect, body).expect("countable");
            assert_eq!(sent, expected, "{counter:?} over {dialect:?}");
            assert!(Object::parse(sent.as_bytes()).is_ok(), "{sent}");
        }
    }

    #[test]
    fn a_field_that_no_table_has_is_not_counted_past() {
        for (counter, dialect, body) in [
            (Counter::Messages, Dialect::Anthropic, r#"{"messages":[],"mcp_servers":[]}"#),
            (Counter::Responses, Dialect::Openai, r#"{"input":"hi","prompt":{"id":"p"}}"#),
            (Counter::Responses, Dialect::Openai, r#"{"input":"hi","conversation":"c"}"#),
            (Counter::Content, Dialect::Gemini, r#"{"contents":[],"cachedContent":"c"}"#),
            (Counter::Content, Dialect::Vertex, r#"{"contents":[],"cachedContent":"c"}"#),
        ] {
            assert_eq!(sent(counter, dialect, body), None, "{body}");
        }
    }

    #[test]
    fn an_answer_that_cannot_be_a_count_is_none() {
        let read = |counter: Counter, answer: &str| counter.read(answer.as_bytes());
        assert_eq!(read(Counter::Messages, r#"{"input_tokens":14}"#), Some(14));
        let answer = r#"{"object":"response.input_tokens","input_tokens":9}"#;
        assert_eq!(read(Counter::Responses, answer), Some(9));
        assert_eq!(
            read(Counter::Content, r#"{"totalTokens":7,"promptTokensDetails":[]}"#),
            Some(7)
        );
        for strange in [
            r#"{"input_tokens":0}"#,
            r#"{"input_tokens":-3}"#,
            r#"{"input_tokens":"14"}"#,
            r#"{"input_tokens":1e3}"#,
            r#"{"input_tokens":18446744073709551615}"#,
            r#"{"totalTokens":14}"#,
            r#"{"error":{"type":"not_found_error"}}"#,
            "[14]",
            "14",
            "",
            "<html>",
        ] {
            assert_eq!(read(Counter::Messages, strange), None, "{strange}");
        }
    }
}
