//! `POST /v1/audio/speech` for the `qf3-tts` family, over DashScope's native protocol, which makes a
//! `wav` file and says where it is. Spec sections 2.9 and 7; Alibaba Cloud Model Studio, "Speech
//! synthesis (Qwen-TTS) API".

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;

use super::dashscope::{self, GENERATION_PATH, WireError};
use super::fields;
use super::json::{self, Object};
use super::limits::{AudioFormat, ModelLimits, SpeechLimits, choose};
use super::openai_speech;
use super::{
    Call, Codec, Collect, CollectedAnswer, CollectedContent, Dialect, Operation, Request,
    RequestBounds, UpstreamFault,
};
use crate::codec::bounds_in_field;
use tollgate_money::price::{Usage, UsageSource};
use tollgate_types::error::{ErrorKind, GatewayError};

/// Voice used where the customer names none that the upstream has.
const DEFAULT_VOICE: &str = "Cherry";
/// OpenAI's voices, which its clients request.
const OPENAI_VOICES: [&str; 13] = [
    "alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "marin", "nova", "onyx", "sage",
    "shimmer", "verse",
];

/// The codec of speech over DashScope's native API.
#[derive(Debug)]
pub struct DashscopeSpeech;

impl Codec for DashscopeSpeech {
    fn operation(&self) -> Operation {
        Operation::Speech
    }

    fn dialects(&self) -> &'static [Dialect] {
        &[Dialect::Dashscope]
    }

    fn path(&self) -> &'static str {
        GENERATION_PATH
    }

    fn read(
        &self,
        request: &Request<'_>,
        limits: &ModelLimits,
    ) -> Result<Box<dyn Call>, GatewayError> {
        let body = request.json()?;
        let text = openai_speech::read_input(body, limits)?;
        let voice = fields::text(body, "voice")?.filter(|voice| !voice.is_empty());
        let is_openais =
            |voice: &String| OPENAI_VOICES.iter().any(|name| name.eq_ignore_ascii_case(voice));
        if body.get_non_null("speed").is_some_and(|speed| speed.as_f64().is_none()) {
            return Err(GatewayError::invalid("speed", "`speed` must be a number"));
        }
        if fields::text(body, "stream_format")?.is_some_and(|format| format != "audio") {
            let message = "`stream_format` must be `audio` for this model";
            return Err(GatewayError::invalid("stream_format", message));
        }
        let characters = |of: fn(char) -> u64| text.chars().map(of).sum();
        // Some of DashScope's models count an ideograph twice.
        let most =
            Usage { characters: characters(|c| 1 + u64::from(!c.is_ascii())), ..Usage::ZERO };
        let least = Usage { characters: characters(|_| 1), ..Usage::ZERO };
        Ok(Box::new(SpeechCall {
            bounds: RequestBounds::from_body(body, most, least),
            format: read_format(body, &limits.speech)?,
            instructions: read_instructions(body, &limits.speech)?,
            voice: voice.filter(|voice| !is_openais(voice)),
            text,
        }))
    }
}

fn read_format(body: &Object<'_>, limits: &SpeechLimits) -> Result<AudioFormat, GatewayError> {
    let requested = fields::text(body, "response_format")?;
    let formats = limits.formats.as_deref();
    if let Some([only]) = formats {
        return Ok(*only);
    }
    let requested = requested.as_deref().unwrap_or(AudioFormat::Mp3.as_str());
    choose("response_format", requested, formats)
}

fn read_instructions(
    body: &Object<'_>,
    limits: &SpeechLimits,
) -> Result<Option<String>, GatewayError> {
    let instructions = fields::text(body, "instructions")?.filter(|text| !text.is_empty());
    if instructions.is_some() && !limits.instructions {
        let message = "this model takes no `instructions`; an instruct model does";
        return Err(GatewayError::invalid("instructions", message));
    }
    Ok(instructions)
}

#[derive(Debug)]
struct SpeechCall {
    bounds: RequestBounds,
    text: String,
    voice: Option<String>,
    instructions: Option<String>,
    format: AudioFormat,
}

impl Call for SpeechCall {
    bounds_in_field!();

    /// Its answers are collected: nothing is relayed as it comes.
    fn collected(&self) -> Option<&(dyn Collect + Sync)> {
        Some(self)
    }
}

#[derive(Deserialize)]
struct WireAnswer {
    output: WireOutput,
    #[serde(default)]
    usage: Option<WireSpeechUsage>,
}

#[derive(Deserialize)]
struct WireOutput {
    audio: WireAudio,
}

#[derive(Deserialize)]
struct WireAudio {
    url: String,
}

#[derive(Deserialize)]
struct WireSpeechUsage {
    #[serde(default)]
    characters: Option<u64>,
}

impl SpeechCall {
    /// The upstream's words about the customer's request, in the shape of this endpoint.
    fn fault(status: u16, body: &Bytes) -> UpstreamFault {
        match dashscope::fault(status, body) {
            UpstreamFault::Relayed(_, body) => {
                let error: WireError = json::from_upstream(&body).unwrap_or_default();
                let message = match error.message.as_str() {
                    "" => "The upstream refused the request.".to_owned(),
                    text => text.to_owned(),
                };
                UpstreamFault::Customers(GatewayError::new(ErrorKind::InvalidRequest, message))
            }
            other => other,
        }
    }
}

impl Collect for SpeechCall {
    fn bodies(&self, upstream_model: &str, _: &Bytes) -> Vec<Bytes> {
        let voice = self.voice.as_deref().unwrap_or(DEFAULT_VOICE);
        let mut body = json!({
            "model": upstream_model,
            "input": {"text": self.text, "voice": voice},
        });
        if let Some(instructions) = &self.instructions {
            body["parameters"] = json!({"instructions": instructions});
        }
        vec![body.to_string().into()]
    }

    fn read(&self, answers: &[Bytes]) -> Result<CollectedAnswer, UpstreamFault> {
        let answer = answers.first().cloned().unwrap_or_default();
        if dashscope::error_in(&answer).is_some() {
            return Err(Self::fault(200, &answer));
        }
        let Some(wire) = json::from_upstream::<WireAnswer>(&answer) else {
            return Err(UpstreamFault::Upstreams("the upstream's answer has no audio".to_owned()));
        };
        let reported = wire.usage.and_then(|usage| usage.characters);
        // It speaks, so none are no report.
        let (usage, source) = match reported.filter(|characters| *characters > 0) {
            Some(characters) => (Usage { characters, ..Usage::ZERO }, UsageSource::Upstream),
            None => (self.bounds.max_usage, UsageSource::Estimated),
        };
        Ok(CollectedAnswer {
            usage,
            source,
            content: CollectedContent::Audio(wire.output.audio.url, self.format),
        })
    }

    fn refusal(&self, status: u16, body: &Bytes) -> Option<UpstreamFault> {
        Some(Self::fault(status, body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESPONSE: &str = include_str!("../fixtures/dashscope_speech/response.json");
    const ERROR: &str = include_str!("../fixtures/dashscope_speech/error.json");

    fn flash() -> SpeechLimits {
        SpeechLimits { characters_max: 10, instructions: false, ..SpeechLimits::default() }
    }

    fn instruct() -> SpeechLimits {
        SpeechLimits { formats: Some(vec![AudioFormat::Wav]), instructions: true, ..flash() }
    }

    fn read(fields: &str, speech: SpeechLimits) -> Result<Box<dyn Call>, GatewayError> {
        let body = format!(r#"{{"model":"m",{fields}}}"#);
        let object = Object::parse(body.as_bytes()).expect("JSON");
        let limits = ModelLimits { speech, ..ModelLimits::default() };
        DashscopeSpeech.read(&Request::Json(object), &limits)
    }

    fn sent(call: &dyn Call) -> serde_json::Value {
        let bodies = call.collected().expect("collected").bodies("qwen3", &Bytes::new());
        serde_json::from_slice(&bodies[0]).expect("JSON")
    }

    fn collect(call: &dyn Call, answer: &str) -> Result<CollectedAnswer, UpstreamFault> {
        let answer = Bytes::copy_from_slice(answer.as_bytes());
        call.collected().expect("collected").read(&[answer])
    }

    #[test]
    fn a_voice_that_only_openai_knows_is_cherrys() {
        for (fields, voice) in [
            (r#""input":"hi""#, "Cherry"),
            (r#""input":"hi","voice":null"#, "Cherry"),
            (r#""input":"hi","voice":"alloy""#, "Cherry"),
            (r#""input":"hi","voice":"Alloy""#, "Cherry"),
            (r#""input":"hi","voice":"Ethan""#, "Ethan"),
            (r#""input":"hi","voice":"Nobody""#, "Nobody"),
        ] {
            let call = read(fields, flash()).expect(fields);
            let expected = json!({"model": "qwen3", "input": {"text": "hi", "voice": voice}});
            assert_eq!(sent(call.as_ref()), expected, "{fields}");
        }
    }

    #[test]
    fn the_instruct_model_takes_instructions_and_makes_wav() {
        let fields = r#""input":"hi","instructions":"whisper","response_format":"opus","speed":2"#;
        let call = read(fields, instruct()).expect("valid");
        assert_eq!(sent(call.as_ref())["parameters"]["instructions"], "whisper");
        let collected = collect(call.as_ref(), RESPONSE).expect("an answer");
        assert!(matches!(collected.content, CollectedContent::Audio(_, AudioFormat::Wav)));
        let flash = read(r#""input":"hi""#, flash()).expect("valid");
        let collected = collect(flash.as_ref(), RESPONSE).expect("an answer");
        assert!(
            matches!(collected.content, CollectedContent::Audio(url, AudioFormat::Mp3) if url.contains("wav"))
        );
    }

    #[test]
    fn characters_are_billed_as_reported_or_counted() {
        let call = read(r#""input":"hi 你好""#, flash()).expect("valid");
        assert_eq!((call.max_usage().characters, call.min_usage().characters), (7, 5));
        let characters = |answer: &str| {
            let collected = collect(call.as_ref(), answer).expect("an answer");
            (collected.usage.characters, collected.source)
        };
        assert_eq!(characters(&RESPONSE.replace("195", "7")), (7, UsageSource::Upstream));
        assert_eq!(characters(RESPONSE), (195, UsageSource::Upstream), "as it is billed");
        let without_report = RESPONSE.replace("characters", "x");
        assert_eq!(characters(&without_report), (7, UsageSource::Estimated), "as it was held");
        let zero = RESPONSE.replace("195", "0");
        assert_eq!(characters(&zero), (7, UsageSource::Estimated), "there is audio");
    }

    #[test]
    fn the_upstreams_text_about_the_request_is_passed_on() {
        let call = read(r#""input":"hi""#, flash()).expect("valid");
        let Err(UpstreamFault::Customers(error)) = collect(call.as_ref(), ERROR) else {
            panic!("an error of the customer's");
        };
        assert!(error.message.contains("Voice"), "{error}");
        let refusal = call
            .collected()
            .expect("collected")
            .refusal(400, &Bytes::from(ERROR.replace("InvalidParameter", "Arrearage")));
        assert!(matches!(refusal, Some(UpstreamFault::Upstreams(_))), "the operator's account");
    }

    #[test]
    fn invalid_requests_name_the_field() {
        for (fields, param) in [
            (r#""voice":"Ethan""#, "input"),
            (r#""input":"""#, "input"),
            (r#""input":["hi"]"#, "input"),
            (r#""input":"12345678901""#, "input"),
            (r#""input":"hi","Input":"hi""#, "Input"),
            (r#""input":"hi","voice":{"id":"x"}"#, "voice"),
            (r#""input":"hi","response_format":"opus""#, "response_format"),
            (r#""input":"hi","instructions":"whisper""#, "instructions"),
            (r#""input":"hi","speed":"fast""#, "speed"),
            (r#""input":"hi","stream_format":"sse""#, "stream_format"),
            (r#""input":"hi","language_type":"English""#, "language_type"),
        ] {
            let error = read(fields, flash()).expect_err(fields);
            assert_eq!(error.param.as_deref(), Some(param), "{fields}: {error}");
        }
    }
}
