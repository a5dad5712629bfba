//! The bodies of requests, of the sizes that applications send.

use serde_json::json;

/// The boundary between the parts of a form: as long as those of the SDKs.
const BOUNDARY: &str = "5a1c9e0b7d3f4826a1c9e0b7d3f48265";
/// The first bytes of a PNG of 4096 by 4096 pixels (W3C, "Portable Network Graphics", 5.2 and 11.2.1).
const PNG_START: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x10\0\0\0\x10\0\x08\x02\0\0\0";

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

/// A request for the vectors of `texts` short texts.
pub(crate) fn embeddings(model: &str, texts: usize) -> Vec<u8> {
    let text = |at: usize| format!("Timetable entry {at}: every quarter of an hour.");
    let texts: Vec<String> = (0..texts).map(text).collect();
    json!({"model": model, "input": texts}).to_string().into_bytes()
}

/// The prompt of an image.
pub(crate) fn prompt(model: &str) -> Vec<u8> {
    json!({"model": model, "prompt": PROMPT, "size": "1024x1024"}).to_string().into_bytes()
}

/// The content type of a form.
pub(crate) fn form_type() -> String {
    format!("multipart/form-data; boundary={BOUNDARY}")
}

/// A form of `bytes` bytes with an image to edit.
pub(crate) fn edit(model: &str, bytes: usize) -> Vec<u8> {
    let field = |name: &str, value: &str| {
        format!(
            "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
        )
    };
    let start = format!(
        "{}{}--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"image\"; \
         filename=\"train.png\"\r\nContent-Type: image/png\r\n\r\n",
        field("model", model),
        field("prompt", PROMPT),
    );
    let end = format!("\r\n--{BOUNDARY}--\r\n");
    let mut form = Vec::with_capacity(bytes);
    form.extend_from_slice(start.as_bytes());
    form.extend_from_slice(PNG_START);
    fill(&mut form, bytes - end.len());
    form.extend_from_slice(end.as_bytes());
    form
}

/// Grows `form` to `length` with what looks like compressed data, always the same: whoever searches
/// an image for the boundary meets every byte of it about as often as in a real one.
fn fill(form: &mut Vec<u8>, length: usize) {
    // Marsaglia, "Xorshift RNGs", 2003: the shifts of the 64-bit generator.
    let mut state: u64 = 0x9E37_79B9_7F4A_7C15;
    while form.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        form.extend_from_slice(&state.to_le_bytes());
    }
    form.truncate(length);
}
