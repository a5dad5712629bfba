//! `POST /v1/audio/speech` over upstreams that speak OpenAI's protocol. Spec section 2.9; OpenAI's API
//! reference, "Create speech".
//!
//! The answer is a file, or with `stream_format: "sse"` events. Neither is billed by what it reports
//! but by the characters of the request, so both pass as they are.

use super::allowed_keys::AllowedKey;
use super::fields;
use super::json::Object;
use super::limits::ModelLimits;
use super::{Call, Codec, Dialect, Operation, Reference, Request, RequestBounds};
use crate::codec::bounds_in_field;
use tollgate_money::price::Usage;
use tollgate_types::error::GatewayError;

/// Request fields (spec section 2.9, and `stream_format`). The text alone decides the cost, not the voice or
/// format.
pub(super) const FIELDS: [&str; 7] =
    ["model", "input", "voice", "response_format", "instructions", "speed", "stream_format"];

/// Codec of OpenAI's speech.
#[derive(Debug)]
pub struct OpenaiSpeech;

impl Codec for OpenaiSpeech {
    fn operation(&self) -> Operation {
        Operation::Speech
    }

    fn dialects(&self) -> &'static [Dialect] {
        &[Dialect::Openai]
    }

    fn path(&self) -> &'static str {
        "/audio/speech"
    }

    fn allowed_keys(&self) -> Vec<AllowedKey> {
        AllowedKey::of_names(&FIELDS)
    }

    fn read(
        &self,
        request: &Request<'_>,
        limits: &ModelLimits,
    ) -> Result<Box<dyn Call>, GatewayError> {
        let body = request.json()?;
        let text = read_input(body, limits)?;
        let used = Usage { characters: text.chars().count() as u64, ..Usage::ZERO };
        let stream = match fields::text(body, "stream_format")?.as_deref() {
            None | Some("audio") => false,
            Some("sse") => true,
            Some(_) => {
                let message = "`stream_format` must be `audio` or `sse`";
                return Err(GatewayError::invalid("stream_format", message));
            }
        };
        let bounds = RequestBounds { stream, ..RequestBounds::from_body(body, used, used) };
        Ok(Box::new(SpeechCall { bounds: bounds.with_references(own_voice(body)) }))
    }
}

/// A voice that somebody has made at the upstream, which is named by an object with its id. Those that
/// everybody has are named by a text.
fn own_voice(body: &Object<'_>) -> Vec<Reference> {
    let voice = body.get_non_null("voice").and_then(|voice| {
        let id = voice.as_object().ok()?.get("id")?.as_str()?.into_owned();
        Some(Reference { field: "voice", id })
    });
    voice.into_iter().collect()
}

/// The text to speak.
pub(super) fn read_input(body: &Object<'_>, limits: &ModelLimits) -> Result<String, GatewayError> {
    fields::refuse_case_variants(body, &FIELDS)?;
    fields::refuse_unknown_fields(body, &FIELDS, &limits.pass.fields)?;
    let text = fields::text(body, "input")?.filter(|text| !text.is_empty());
    let missing = || GatewayError::invalid("input", "`input` must be a non-empty string");
    let text = text.ok_or_else(missing)?;
    let (count, max) = (text.chars().count(), limits.speech.characters_max);
    if count > max as usize {
        let message = format!("`input` has {count} characters; at most {max} are allowed");
        return Err(GatewayError::invalid("input", message));
    }
    Ok(text)
}

#[derive(Debug)]
struct SpeechCall {
    bounds: RequestBounds,
}

impl Call for SpeechCall {
    bounds_in_field!();

    fn answers_binary(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::Framing;
    use crate::limits::SpeechLimits;
    use tollgate_money::price::UsageSource;

    fn read(fields: &str) -> Result<Box<dyn Call>, GatewayError> {
        let body = format!(r#"{{"model":"m",{fields}}}"#);
        let object = Object::parse(body.as_bytes()).expect("JSON");
        let speech = SpeechLimits { characters_max: 10, ..SpeechLimits::default() };
        let limits = ModelLimits { speech, ..ModelLimits::default() };
        OpenaiSpeech.read(&Request::Json(object), &limits)
    }

    #[test]
    fn a_request_of_openais_sdk_is_taken() {
        let text = include_bytes!("../fixtures/openai_speech/request.json");
        let request = Request::Json(Object::parse(text).expect("JSON"));
        let call = OpenaiSpeech.read(&request, &ModelLimits::default()).expect("valid");
        assert_eq!(call.max_usage().characters, 22);
        assert!(call.answers_binary() && !call.streams());
        assert!(call.splice("tts-1").is_empty(), "byte for byte");
    }

    #[test]
    fn characters_are_billed_however_many_bytes_they_have() {
        let call = read(r#""input":"a\u4f60好","voice":{"id":"v"},"speed":2"#).expect("valid");
        assert_eq!(call.max_usage().characters, 3);
        let mut meter = call.meter(Framing::Binary);
        let used = Usage { characters: 3, ..Usage::ZERO };
        assert_eq!(meter.relayed(), Usage::ZERO, "nothing has come");
        assert_eq!(meter.relay(Bytes::from_static(b"\xFF\xF3")), b"\xFF\xF3".as_slice());
        assert_eq!(meter.relayed(), used, "all of it was made before its first byte");
        assert!(!meter.is_complete(), "until the upstream has ended it");
        meter.finish();
        assert_eq!(meter.measure(), (used, UsageSource::Estimated));
        assert!(meter.is_complete());
    }

    #[test]
    fn invalid_requests_name_the_field() {
        for (fields, param) in [
            (r#""voice":"alloy""#, "input"),
            (r#""input":"""#, "input"),
            (r#""input":7"#, "input"),
            (r#""input":"12345678901""#, "input"),
            (r#""INPUT":"a""#, "INPUT"),
            (r#""input":"a","stream_format":"x""#, "stream_format"),
            (r#""input":"a","references":["https://a.example/1.wav"]"#, "references"),
        ] {
            let error = read(fields).expect_err(fields);
            assert_eq!(error.param.as_deref(), Some(param), "{fields}: {error}");
        }
    }
}
