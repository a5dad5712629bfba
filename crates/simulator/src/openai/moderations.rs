//! Moderations: text with the word "attack", and images with it in their URL, are flagged.

use serde_json::{Value, json};

use crate::answer::Answer;
use crate::behaviour::{Behaviour, SimulatedRefusal, UsageForm};
use crate::received_request::ReceivedRequest;

/// Word that is flagged.
const HARMFUL: &str = "attack";

/// Answer `…/moderations`. Reports usage only if configured; OpenAI does not.
pub(crate) fn answer(http_request: &ReceivedRequest<'_>, behaviour: &Behaviour) -> Answer {
    let request: Value = match serde_json::from_slice(http_request.body) {
        Ok(request) => request,
        Err(error) => return Answer::invalid(&format!("The body: {error}."), behaviour),
    };
    let inputs: Vec<Value> = match &request["input"] {
        Value::String(text) => vec![json!(text)],
        // The parts of one input are judged together.
        Value::Array(parts) if parts.first().is_some_and(Value::is_object) => {
            vec![json!(request["input"].to_string())]
        }
        Value::Array(texts) if !texts.is_empty() => texts.clone(),
        _ => return Answer::invalid("`input` is required.", behaviour),
    };
    if !request["model"].is_string() {
        return Answer::invalid("`model` must be a string.", behaviour);
    }
    if behaviour.faults.refusal == Some(SimulatedRefusal::Garbage) {
        return Answer::garbage(false);
    }
    let results = inputs.iter().map(|input| {
        let flagged = input.as_str().is_some_and(|text| text.contains(HARMFUL));
        let score = if flagged { 0.9 } else { 0.01 };
        json!({
            "flagged": flagged,
            "categories": {"violence": flagged},
            "category_scores": {"violence": score},
            "category_applied_input_types": {"violence": ["text"]},
        })
    });
    let results: Vec<Value> = results.collect();
    let mut body = json!({"id": "modr-1", "model": request["model"], "results": results});
    let reported = behaviour.usage.prompt.filter(|_| behaviour.faults.usage != UsageForm::Missing);
    if let Some(tokens) = reported {
        body["usage"] = json!({"prompt_tokens": tokens, "total_tokens": tokens});
    }
    Answer::json(body.to_string(), behaviour)
}
