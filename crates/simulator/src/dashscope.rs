//! DashScope's own protocol: images and speech, which share one path, and videos.
//!
//! The shapes are those of Alibaba Cloud Model Studio's API reference, "Qwen-Image", "Qwen image
//! editing" and "Qwen-TTS". Requests are authorized as OpenAI's are.

pub(super) mod video;

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{Answer, ErrorFormat};
use super::behaviour::{Behaviour, Faults, SimulatedRefusal, UsageDialect};
use super::received_request::ReceivedRequest;
use super::results;
use super::usage::ReportedUsage;
use tollgate_types::clock::UnixMs;

/// Accepted voices; others are refused.
const VOICES: [&str; 7] = ["Cherry", "Ethan", "Serena", "Chelsie", "Dylan", "Jada", "Sunny"];
/// Lifetime of a result, in seconds: a day.
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

/// Input of the generation endpoint; its fields, not the path, decide what is generated.
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
pub(super) fn answer(http_request: &ReceivedRequest<'_>, behaviour: &Behaviour) -> Answer {
    let request = match serde_json::from_slice::<GenerationRequest>(http_request.body) {
        Ok(request) => request,
        Err(error) => return invalid(&format!("The body: {error}."), behaviour),
    };
    if behaviour.faults.refusal == Some(SimulatedRefusal::Garbage) {
        return Answer::garbage(false);
    }
    match &request.input {
        GenerationInput::Image { messages } => {
            image(http_request, messages, &request.parameters, behaviour)
        }
        GenerationInput::Speech { text, voice } => speech(http_request, text, voice, behaviour),
    }
}

fn image(
    http_request: &ReceivedRequest<'_>,
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
    let usage =
        ReportedUsage::reported(images, 1, behaviour).map(|usage| match behaviour.usage_dialect {
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
    let content = json!([{"image": results::image_url(http_request, 0)}]);
    let message = json!({"role": "assistant", "content": content});
    let output = json!({"choices": [{"finish_reason": "stop", "message": message}]});
    whole(http_request, output, usage, behaviour)
}

fn speech(
    http_request: &ReceivedRequest<'_>,
    text: &str,
    voice: &str,
    behaviour: &Behaviour,
) -> Answer {
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
            "url": results::speech_url(http_request, characters),
            "id": format!("audio_sim_{}", http_request.number),
            "expires_at": UnixMs::now().seconds() + RESULT_SECONDS,
        },
    });
    let usage = ReportedUsage::reported(characters, 0, behaviour);
    let usage = usage.map(|usage| json!({"characters": usage.input}));
    // It is the audio that breaks off: nobody would fetch it after half of an answer.
    let faults = Faults { stop: None, ..behaviour.faults.clone() };
    whole(http_request, output, usage, &Behaviour { faults, ..behaviour.clone() })
}

fn whole(
    http_request: &ReceivedRequest<'_>,
    output: Value,
    usage: Option<Value>,
    behaviour: &Behaviour,
) -> Answer {
    let mut body =
        json!({"request_id": format!("req_sim_{}", http_request.number), "output": output});
    if let Some(usage) = usage {
        body["usage"] = usage;
    }
    Answer::json(body.to_string(), behaviour)
}

fn invalid(message: &str, behaviour: &Behaviour) -> Answer {
    Answer::refused(ErrorFormat::Dashscope, StatusCode::BAD_REQUEST, message, behaviour)
}
