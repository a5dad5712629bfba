//! The bodies of requests, of the sizes that applications send.

use serde_json::json;

const SYSTEM: &str = "You are a travel assistant. Answer in two sentences, without a greeting, and \
    say which assumption matters most.";
const QUESTION: &str = "A train leaves Lyon at 9:14 and arrives in Paris at 11:08. Another leaves \
    at 9:44 and takes eleven minutes longer. Which one should I take if I have to be at the Gare de \
    l'Est, twenty-five minutes from the station by metro, at noon, and how much time would be left \
    there?";
const PROMPT: &str = "A night train in the snow, seen from a bridge, in the style of a poster";

/// A chat of about 600 bytes, or of about `bytes` if that is more.
pub(crate) fn chat(model: &str, stream: bool, bytes: usize) -> Vec<u8> {
    let mut question = QUESTION.to_owned();
    while question.len() + 512 < bytes {
        let line = question.len();
        question += &format!(" Timetable entry {line}: every quarter of an hour.");
    }
    let body = json!({
        "model": model,
        "messages": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": question},
        ],
        "temperature": 0.2,
        "max_tokens": 256,
        "stream": stream,
    });
    body.to_string().into_bytes()
}

/// The same small chat as a message in Anthropic's protocol, to be streamed.
pub(crate) fn message(model: &str) -> Vec<u8> {
    let body = json!({
        "model": model,
        "system": SYSTEM,
        "messages": [{"role": "user", "content": QUESTION}],
        "temperature": 0.2,
        "max_tokens": 256,
        "stream": true,
    });
    body.to_string().into_bytes()
}

/// The prompt of an image.
pub(crate) fn prompt(model: &str) -> Vec<u8> {
    json!({"model": model, "prompt": PROMPT, "size": "1024x1024"}).to_string().into_bytes()
}
