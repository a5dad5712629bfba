//! Embeddings, as numbers and in base64.
//!
//! OpenAI's SDKs ask for base64 when their caller names no format, and read little-endian 32-bit
//! floats from it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::behaviour::{Behaviour, SimulatedRefusal};
use crate::received_request::ReceivedRequest;

/// The most inputs that OpenAI takes in one request.
const INPUTS_MAX: usize = 2048;
/// The most inputs that DashScope takes in one request.
const DASHSCOPE_INPUTS_MAX: usize = 10;
/// Largest batch at Voyage.
const VOYAGE_INPUTS_MAX: usize = 1000;
/// Largest batch at Gemini ("at most 100 requests can be in one batch").
const GEMINI_INPUTS_MAX: usize = 100;
/// The largest vector that a request can ask for.
const DIMENSIONS_MAX: u32 = 65_536;

#[derive(Deserialize)]
struct EmbeddingsRequest {
    model: String,
    input: EmbeddingsInput,
    #[serde(default)]
    encoding_format: Option<String>,
    #[serde(default)]
    dimensions: Option<u32>,
    /// Voyage's name for `dimensions`.
    #[serde(default)]
    output_dimension: Option<u32>,
}

/// Vendor of an embeddings model. All share the endpoint, and differ in fields and usage reports.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Vendor {
    Openai,
    /// Told by its models' names.
    Voyage,
    /// Alibaba's, in its compatible mode: text-embedding-v4 takes ten inputs and gives numbers only.
    Dashscope,
    /// Google's, under its OpenAI-compatible prefix: takes text, gives numbers, reports no usage.
    Gemini,
}

impl Vendor {
    fn detect(path: &str, model: &str) -> Self {
        if model.starts_with("voyage-") {
            Self::Voyage
        } else if path.contains("/compatible-mode/") {
            Self::Dashscope
        } else if path.contains("/v1beta/openai/") {
            Self::Gemini
        } else {
            Self::Openai
        }
    }

    /// Refuses what this vendor does not take.
    fn refusal(self, request: &EmbeddingsRequest, behaviour: &Behaviour) -> Option<Answer> {
        let is_text = matches!(request.input, EmbeddingsInput::Text(_) | EmbeddingsInput::Texts(_));
        let is_float = request.encoding_format.as_deref() == Some("float");
        match self {
            Self::Voyage if request.input.len() > VOYAGE_INPUTS_MAX => {
                Some(Answer::invalid("The batch size limit is 1000.", behaviour))
            }
            Self::Gemini if request.input.len() > GEMINI_INPUTS_MAX => {
                let message = "At most 100 requests can be in one batch.";
                Some(Answer::invalid(message, behaviour))
            }
            Self::Voyage if request.dimensions.is_some() || is_float || !is_text => {
                Some(Answer::invalid("Argument is not supported by our API.", behaviour))
            }
            Self::Dashscope if request.input.len() > DASHSCOPE_INPUTS_MAX => {
                let message = "batch size is invalid, it should not be larger than 10.";
                Some(Answer::invalid_as("InvalidParameter", message, behaviour))
            }
            Self::Gemini if !is_text => {
                Some(Answer::invalid("Token ids are not supported as `input`.", behaviour))
            }
            _ => None,
        }
    }

    /// True if the vendor returns embeddings in base64 on request.
    fn knows_base64(self) -> bool {
        matches!(self, Self::Openai | Self::Voyage)
    }

    /// `tokens` as this vendor reports them, if it does.
    fn usage(self, tokens: i64) -> Option<Value> {
        match self {
            Self::Openai | Self::Dashscope => {
                Some(json!({"prompt_tokens": tokens, "total_tokens": tokens}))
            }
            Self::Voyage => Some(json!({"total_tokens": tokens})),
            Self::Gemini => None,
        }
    }
}

/// Text or token ids, one or many.
#[derive(Deserialize)]
#[serde(untagged)]
enum EmbeddingsInput {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<u32>),
    TokenLists(Vec<Vec<u32>>),
}

impl EmbeddingsInput {
    fn len(&self) -> usize {
        match self {
            Self::Text(_) | Self::Tokens(_) => 1,
            Self::Texts(all) => all.len(),
            Self::TokenLists(all) => all.len(),
        }
    }

    /// Each input's bytes, which decide its vector, and its token count.
    fn items(&self) -> Vec<(Vec<u8>, usize)> {
        // Four bytes a token, as prompts are counted; ids are tokens already.
        let text = |text: &String| (text.as_bytes().to_vec(), 1 + text.len() / 4);
        let tokens =
            |ids: &Vec<u32>| (ids.iter().flat_map(|id| id.to_le_bytes()).collect(), ids.len());
        match self {
            Self::Text(one) => vec![text(one)],
            Self::Texts(all) => all.iter().map(text).collect(),
            Self::Tokens(one) => vec![tokens(one)],
            Self::TokenLists(all) => all.iter().map(tokens).collect(),
        }
    }
}

/// Answers `…/embeddings`. The same input always has the same vector, of length one.
pub(crate) fn answer(http_request: &ReceivedRequest<'_>, behaviour: &Behaviour) -> Answer {
    let request = match serde_json::from_slice::<EmbeddingsRequest>(http_request.body) {
        Ok(request) => request,
        Err(error) => return Answer::invalid(&format!("The body: {error}."), behaviour),
    };
    let vendor = Vendor::detect(http_request.path, &request.model);
    if let Some(refused) = vendor.refusal(&request, behaviour) {
        return refused;
    }
    let items = request.input.items();
    if items.is_empty() || items.len() > INPUTS_MAX {
        return Answer::invalid("`input` must have 1 to 2048 items.", behaviour);
    }
    let requested_dimensions = request.dimensions.or(request.output_dimension);
    let dimensions = requested_dimensions.unwrap_or(behaviour.dimensions);
    if !(1..=DIMENSIONS_MAX).contains(&dimensions) {
        return Answer::invalid("`dimensions` must be 1 to 65536.", behaviour);
    }
    if behaviour.faults.refusal == Some(SimulatedRefusal::Garbage) {
        return Answer::garbage(false);
    }
    let in_base64 = behaviour.knows_base64
        && vendor.knows_base64()
        && request.encoding_format.as_deref() == Some("base64");
    let data: Vec<Value> = items
        .iter()
        .enumerate()
        .map(|(index, (bytes, _))| {
            let vector = vector(bytes, dimensions);
            let embedding = if in_base64 { json!(encoded(&vector)) } else { json!(vector) };
            json!({"object": "embedding", "index": index, "embedding": embedding})
        })
        .collect();
    let mut body = json!({"object": "list", "model": request.model, "data": data});
    let tokens: usize = items.iter().map(|(_, tokens)| tokens).sum();
    let tokens = behaviour.usage.prompt.unwrap_or(i64::try_from(tokens).unwrap_or(i64::MAX));
    let reported = behaviour.faults.usage.select(-100, i64::MAX, || tokens);
    if let Some(usage) = reported.and_then(|tokens| vendor.usage(tokens)) {
        body["usage"] = usage;
    }
    Answer::json(body.to_string(), behaviour)
}

fn encoded(vector: &[f32]) -> String {
    let bytes: Vec<u8> = vector.iter().flat_map(|number| number.to_le_bytes()).collect();
    STANDARD.encode(bytes)
}

/// Numbers from a xorshift generator (Marsaglia, 2003) that is seeded with an FNV-1a hash of `bytes`.
fn vector(bytes: &[u8], dimensions: u32) -> Vec<f32> {
    let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    // Xorshift stays at zero for ever: the lowest bit keeps the seed from being that.
    let mut state = bytes.iter().fold(0xcbf2_9ce4_8422_2325, hash) | 1;
    let numbers = (0..dimensions).map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let [a, b, ..] = state.to_le_bytes();
        f32::from(i16::from_le_bytes([a, b])) / 32_768.0
    });
    let mut numbers: Vec<f32> = numbers.collect();
    let length = numbers.iter().map(|number| number * number).sum::<f32>().sqrt();
    if length > 0.0 {
        numbers.iter_mut().for_each(|number| *number /= length);
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_depends_on_its_input_alone_and_has_length_one() {
        let one = vector(b"one", 64);
        assert_eq!(one, vector(b"one", 64), "the same input, the same vector");
        assert_ne!(one, vector(b"two", 64), "another input, another vector");
        let length = one.iter().map(|number| number * number).sum::<f32>();
        assert!((length - 1.0).abs() < 1e-4, "expected length 1, found {length}");
    }
}
