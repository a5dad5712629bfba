//! DashScope's own protocol: images and speech, which share one path, and videos.
//!
//! The shapes are those of Alibaba Cloud Model Studio's API reference, "Qwen-Image", "Qwen image
//! editing" and "Qwen-TTS". Requests are authorized as OpenAI's are.

pub(super) mod video;

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{Answer, Envelope};
use super::asked::ReceivedRequest;
use super::behaviour::{Behaviour, Faults, Refusal, UsageDialect};
use super::results;
use super::usage::Usage;
use tollgate_types::clock::UnixMs;

/// The voices that are known; any other is refused.
const VOICES: [&str; 7] = ["Cherry", "Ethan", "Serena", "Chelsie", "Dylan", "Jada", "Sunny"];
/// How long a result can be fetched: a day.
const RESULT_SECONDS: u64 = 86_400;
/// Width and height of an image for which no size was asked.
const SIZE: (u32, u32) = (1024, 1024);

/// The parts of a request that shape the answer.
#[derive(Deserialize)]
struct GenerationRequest {
    #[serde(rename = "model")]
    _model: String,
    input: GenerationInput,
    #[serde(default)]
    parameters: ImageParameters,
}

/// What is asked for shows in the input, not in the path.
#[derive(Deserialize)]
#[serde(untagged)]
enum GenerationInput {
    Image { messages: Vec<Message> },
    Speech { text: String, voice: String },
}

#[derive(Deserialize)]
struct Message {
    content: Vec<Value>,
}

#[derive(Default, Deserialize)]
struct ImageParameters {
    /// Width and height with a `*` between.
    #[serde(default)]
    size: Option<String>,
}

impl ImageParameters {
    /// `None` for a size that is none.
    fn size(&self) -> Option<(u32, u32)> {
        let Some(size) = &self.size else { return Some(SIZE) };
        let (width, height) = size.split_once('*')?;
        Some((width.parse().ok()?, height.parse().ok()?))
    }
}

/// Answers a request for images or speech: `…/multimodal-generation/generation`.
pub(super) fn answer(asked: &ReceivedRequest<'_>, behaviour: &Behaviour) -> Answer {
    let request = match serde_json::from_slice::<GenerationRequest>(asked.body) {
        Ok(request) => request,
        Err(error) => return invalid(&format!("The body: {error}."), behaviour),
    };
    if behaviour.faults.refusal == Some(Refusal::Garbage) {
        return Answer::garbage(false);
    }
    match &request.input {
        GenerationInput::Image { messages } => {
            image(asked, messages, &request.parameters, behaviour)
        }
        GenerationInput::Speech { text, voice } => speech(asked, text, voice, behaviour),
    }
}

fn image(
    asked: &ReceivedRequest<'_>,
    messages: &[Message],
    parameters: &ImageParameters,
    behaviour: &Behaviour,
) -> Answer {
    let Some((width, height)) = parameters.size() else {
        return invalid("parameters.size must be width*height.", behaviour);
    };
    let blocks = || messages.iter().flat_map(|message| &message.content);
    if !blocks().any(|block| block["text"].is_string()) {
        return invalid("input.messages must have a text.", behaviour);
    }
    let images = blocks().filter(|block| block["image"].is_string()).count();
    let usage = Usage::reported(images, 1, behaviour).map(|usage| match behaviour.usage_dialect {
        UsageDialect::Counted => {
            json!({"image_count": usage.output, "width": width, "height": height})
        }
        UsageDialect::Output => json!({
            "output_width": width,
            "output_height": height,
            "input_image_count": usage.input,
            "output_image_count": usage.output,
        }),
    });
    let content = json!([{"image": results::image_url(asked, 0)}]);
    let message = json!({"role": "assistant", "content": content});
    let output = json!({"choices": [{"finish_reason": "stop", "message": message}]});
    whole(asked, output, usage, behaviour)
}

fn speech(asked: &ReceivedRequest<'_>, text: &str, voice: &str, behaviour: &Behaviour) -> Answer {
    if text.is_empty() {
        return invalid("input.text must not be empty.", behaviour);
    }
    if !VOICES.contains(&voice) {
        return invalid(&format!("Voice '{voice}' is not supported."), behaviour);
    }
    let characters = text.chars().count();
    let output = json!({
        "finish_reason": "stop",
        "audio": {
            "data": "",
            "url": results::speech_url(asked, characters),
            "id": format!("audio_sim_{}", asked.number),
            "expires_at": UnixMs::now().seconds() + RESULT_SECONDS,
        },
    });
    let usage = Usage::reported(characters, 0, behaviour);
    let usage = usage.map(|usage| json!({"characters": usage.input}));
    // It is the audio that breaks off: nobody would fetch it after half of an answer.
    let faults = Faults { stop: None, ..behaviour.faults.clone() };
    whole(asked, output, usage, &Behaviour { faults, ..behaviour.clone() })
}

fn whole(
    asked: &ReceivedRequest<'_>,
    output: Value,
    usage: Option<Value>,
    behaviour: &Behaviour,
) -> Answer {
    let mut body = json!({"request_id": format!("req_sim_{}", asked.number), "output": output});
    if let Some(usage) = usage {
        body["usage"] = usage;
    }
    Answer::json(body.to_string(), behaviour)
}

fn invalid(message: &str, behaviour: &Behaviour) -> Answer {
    Answer::refused(Envelope::Dashscope, StatusCode::BAD_REQUEST, message, behaviour)
}
