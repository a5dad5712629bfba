//! Providers that copied OpenAI's chat completions, and in which words each of them fails.

use std::str::FromStr;

use http::StatusCode;
use serde_json::{Value, json};

/// Provider whose chat completions dialect is imitated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChatProvider {
    /// OpenAI: what the others have copied.
    #[default]
    Openai,
    /// DeepSeek: `reasoning_content`, comments and blank lines while it waits, its own counts of caches.
    Deepseek,
    /// Moonshot: usage inside the last choice of a stream.
    Moonshot,
    /// Zhipu: usage with the last piece, codes that are numbers in strings.
    Zhipu,
    /// MiniMax: thoughts between tags, failures with status 200.
    Minimax,
    /// Mistral: thoughts in blocks, no field that it does not know, ids of nine letters.
    Mistral,
    /// Groq: `reasoning`, usage in `x_groq`.
    Groq,
    /// Together: `reasoning`, usage with the last piece, cached tokens at its top.
    Together,
    /// Fireworks: `reasoning_content`, usage with the last piece.
    Fireworks,
    /// OpenRouter: signed thoughts, what it cost, failures within choices.
    Openrouter,
    /// SiliconFlow: usage with every piece, refusals in plain text.
    Siliconflow,
    /// vLLM: `reasoning`, usage on request.
    Vllm,
    /// SGLang: `reasoning_content`, usage on request.
    Sglang,
    /// Ollama: `reasoning`, calls of tools in one piece.
    Ollama,
    /// llama.cpp: `reasoning_content`, `timings`, calls of tools without ids.
    Llamacpp,
}

/// A body in the place of an answer.
pub(super) struct ErrorBody {
    pub(super) status: StatusCode,
    pub(super) content_type: &'static str,
    pub(super) text: String,
}

impl ChatProvider {
    /// Error body of a refusal, if it differs from OpenAI's. `code` replaces the usual one.
    pub(super) fn refusal(
        self,
        status: StatusCode,
        code: Option<&str>,
        message: &str,
    ) -> Option<ErrorBody> {
        let number = status.as_u16();
        let body = |value: Value| {
            let (content_type, text) = ("application/json", value.to_string());
            Some(ErrorBody { status, content_type, text })
        };
        match self {
            Self::Zhipu => {
                let usual = match number {
                    401 => "1002",
                    429 => "1302",
                    400..=499 => "1210",
                    _ => "1234",
                };
                body(json!({"error": {"code": code.unwrap_or(usual), "message": message}}))
            }
            Self::Minimax => {
                let base_resp = minimax_base_resp(status, code, message);
                let value = json!({"id": "sim", "choices": null, "created": 1_700_000_000,
                    "usage": {"total_tokens": 0, "total_characters": 0}, "base_resp": base_resp});
                // MiniMax answers every failure with 200 and says so in `base_resp` alone.
                let (status, content_type) = (StatusCode::OK, "application/json");
                Some(ErrorBody { status, content_type, text: value.to_string() })
            }
            // Mistral's validator is FastAPI's, whose errors are a list with a path each.
            Self::Mistral if number == 422 => body(mistral_forbidden(message)),
            Self::Mistral => body(json!({"object": "error", "message": message,
                "type": "invalid_request_error", "param": null, "code": code})),
            Self::Siliconflow => Some(siliconflow_error(status, message)),
            Self::Openrouter => {
                body(json!({"error": {"code": number, "message": message}, "user_id": "user_sim"}))
            }
            Self::Sglang => body(json!({"object": "error", "message": message,
                "type": "BadRequestError", "param": null, "code": number})),
            Self::Vllm => body(json!({"error": {"message": message, "type": "BadRequestError",
                "param": null, "code": number}})),
            Self::Llamacpp => body(json!({"error": {"code": number, "message": message,
                "type": code.unwrap_or("invalid_request_error")}})),
            _ => None,
        }
    }

    /// Choice of a late failure with status 200; `None` if it does as others do.
    pub(super) fn failed_choice(self) -> Option<Value> {
        let error = json!({"code": 502, "message": "It failed after all."});
        let choice = json!({"index": 0, "message": {"role": "assistant", "content": ""},
            "error": error, "finish_reason": "error", "native_finish_reason": "error"});
        (self == Self::Openrouter).then(|| {
            json!({"id": "gen-sim", "object": "chat.completion", "model": "sim",
                "provider": "Sim", "choices": [choice]})
        })
    }

    /// The event with which a stream fails; `None` where it is OpenAI's.
    pub(super) fn error_event(self) -> Option<Value> {
        let message = "The simulated upstream failed in the middle of the stream.";
        let chunk = |choice: Value| json!({"id": "sim", "object": "chat.completion.chunk", "choices": [choice]});
        let failed = |reason: &str| {
            chunk(json!({"index": 0, "delta": {"content": ""}, "finish_reason": reason}))
        };
        match self {
            Self::Zhipu => Some(failed("network_error")),
            Self::Openrouter => {
                let mut event = failed("error");
                event["error"] = json!({"code": 502, "message": message});
                Some(event)
            }
            Self::Groq => {
                let mut event = chunk(json!({"index": 0, "delta": {}, "finish_reason": null}));
                event["x_groq"] = json!({"id": "req_sim", "error": message});
                Some(event)
            }
            Self::Minimax => Some(json!({"id": "sim", "choices": null,
                "base_resp": {"status_code": 1013, "status_msg": message}})),
            _ => None,
        }
    }
}

/// Source of the codes: <https://platform.minimax.io/docs/api-reference/errorcode>.
fn minimax_base_resp(status: StatusCode, code: Option<&str>, message: &str) -> Value {
    let usual = match status.as_u16() {
        401 => 1004,
        402 => 1008,
        429 => 1002,
        400..=499 => 2013,
        _ => 1000,
    };
    let code = code.and_then(|code| code.parse().ok()).unwrap_or(usual);
    json!({"status_code": code, "status_msg": message})
}

/// `message` is the path of the field that is too much, with dots.
fn mistral_forbidden(message: &str) -> Value {
    let place: Vec<&str> = std::iter::once("body").chain(message.split('.')).collect();
    let detail = json!({"type": "extra_forbidden", "loc": place,
        "msg": "Extra inputs are not permitted", "input": null});
    json!({"object": "error", "message": {"detail": [detail]}, "type": "invalid_request_error",
        "param": null, "code": null})
}

fn siliconflow_error(status: StatusCode, message: &str) -> ErrorBody {
    let (content_type, text) = match status.as_u16() {
        401 => ("application/json", json!("Invalid token").to_string()),
        404 => ("text/plain", "404 page not found".to_owned()),
        429 => ("application/json", json!({"message": message, "data": null}).to_string()),
        400..=499 => (
            "application/json",
            json!({"code": 20012, "message": message, "data": null}).to_string(),
        ),
        _ => ("text/plain", message.to_owned()),
    };
    ErrorBody { status, content_type, text }
}

impl FromStr for ChatProvider {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "openai" => Self::Openai,
            "deepseek" => Self::Deepseek,
            "moonshot" => Self::Moonshot,
            "zhipu" => Self::Zhipu,
            "minimax" => Self::Minimax,
            "mistral" => Self::Mistral,
            "groq" => Self::Groq,
            "together" => Self::Together,
            "fireworks" => Self::Fireworks,
            "openrouter" => Self::Openrouter,
            "siliconflow" => Self::Siliconflow,
            "vllm" => Self::Vllm,
            "sglang" => Self::Sglang,
            "ollama" => Self::Ollama,
            "llamacpp" => Self::Llamacpp,
            _ => {
                return Err(
                    "openai, deepseek, moonshot, zhipu, minimax, mistral, groq, together, fireworks, \
                     openrouter, siliconflow, vllm, sglang, ollama or llamacpp",
                );
            }
        })
    }
}
