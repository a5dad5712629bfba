use bytes::Bytes;

use super::*;
use crate::audio_length::sample_files::{mp3_frame, wav_seconds};
use crate::form::{Boundary, FormScan};
use crate::limits::{PassList, PricedFeatures};
use tollgate_money::price::UsageSource;

/// Fields of a form: name, file name if it is a file, and content.
type FormFields = Vec<(&'static str, Option<&'static str>, Vec<u8>)>;

fn fields(seconds: u32, more: &[(&'static str, &'static str)]) -> FormFields {
    let mut fields: FormFields =
        vec![("file", Some("a.wav"), wav_seconds(seconds)), ("model", None, b"here".to_vec())];
    fields.extend(more.iter().map(|(name, text)| (*name, None, text.as_bytes().to_vec())));
    fields
}

fn body(fields: &FormFields) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, file, content) in fields {
        let file = file.map(|file| format!("; filename=\"{file}\"")).unwrap_or_default();
        let head = format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n");
        body.extend(head.as_bytes());
        body.extend(content);
        body.extend(b"\r\n");
    }
    body.extend(b"--b--\r\n");
    body
}

fn limits(units: &[Unit]) -> ModelLimits {
    ModelLimits {
        output_tokens_max: 2_000,
        priced: PricedFeatures { units: units.to_vec(), ..PricedFeatures::default() },
        ..ModelLimits::default()
    }
}

fn by_seconds() -> ModelLimits {
    limits(&[Unit::AudioSeconds])
}

fn by_tokens() -> ModelLimits {
    limits(&[Unit::InputTokens, Unit::OutputTokens])
}

fn read_with(
    codec: &dyn Codec,
    fields: &FormFields,
    limits: &ModelLimits,
) -> Result<Box<dyn Call>, GatewayError> {
    let body = body(fields);
    let boundary =
        Boundary::from_content_type(b"multipart/form-data; boundary=b").expect("boundary");
    let mut scan = FormScan::new(boundary);
    scan.feed(&body).expect("a form");
    let form = scan.finish(&body).expect("a whole form");
    codec.read(&Request::Form(form, &body), limits)
}

fn read(fields: &FormFields, limits: &ModelLimits) -> Result<Box<dyn Call>, GatewayError> {
    read_with(&OpenaiTranscription, fields, limits)
}

fn param(read: Result<Box<dyn Call>, GatewayError>) -> String {
    read.expect_err("refused").param.unwrap_or_default().into_owned()
}

fn measured(call: &dyn Call, framing: Framing, answer: &str) -> (Usage, UsageSource) {
    let mut meter = call.meter(framing);
    for piece in answer.as_bytes().chunks(7) {
        let _relayed = meter.relay(Bytes::copy_from_slice(piece));
    }
    let _rest = meter.finish();
    assert!(meter.is_complete() && !meter.has_failed(), "{answer}");
    meter.measure()
}

#[test]
fn what_is_held_is_as_long_as_the_file_is() {
    let call = read(&fields(90, &[]), &by_seconds()).expect("valid");
    let seconds = |audio_seconds| Usage { audio_seconds, ..Usage::ZERO };
    assert_eq!((call.max_usage(), call.min_usage()), (seconds(90), seconds(90)), "no tokens");
    let least = |billed_seconds_min| {
        let transcription =
            TranscriptionLimits { billed_seconds_min, ..TranscriptionLimits::default() };
        ModelLimits { transcription, ..by_seconds() }
    };
    assert_eq!(read(&fields(3, &[]), &least(10)).expect("valid").max_usage(), seconds(10));
    assert_eq!(read(&fields(30, &[]), &least(10)).expect("valid").max_usage(), seconds(30));
    let free = read(&fields(3, &[]), &limits(&[])).expect("valid");
    assert_eq!(free.max_usage(), Usage::ZERO);
}

#[test]
fn tokens_are_bounded_by_the_length_and_by_chunks() {
    let max_usage = |seconds, more: &[(&'static str, &'static str)], context| {
        let limits = ModelLimits { input_tokens_max: context, ..by_tokens() };
        let Usage { audio_input_tokens, input_tokens, output_tokens, audio_seconds, .. } =
            read(&fields(seconds, more), &limits).expect("valid").max_usage();
        assert_eq!(audio_seconds, 0, "has no price");
        (audio_input_tokens, input_tokens, output_tokens)
    };
    assert_eq!(max_usage(90, &[], 0), (900, 64, 2_000));
    assert_eq!(max_usage(90, &[], 500), (500, 64, 2_000), "no more than the context");
    assert_eq!(max_usage(90, &[("prompt", "abc")], 0), (900, 67, 2_000));
    let words = [("keywords[]", "abc"), ("keywords[]", "d"), ("languages[]", "en")];
    assert_eq!(max_usage(90, &words, 0), (900, 70, 2_000));
    let auto = [("chunking_strategy", "auto"), ("prompt", "abc")];
    assert_eq!(max_usage(90, &auto, 500), (1_800, 3 * 67, 6_000), "three chunks");
    let object = r#"{"type":"server_vad","prefix_padding_ms":300,"threshold":0.5}"#;
    assert_eq!(max_usage(91, &[("chunking_strategy", object)], 0), (1_820, 256, 8_000));
    let members = [
        ("chunking_strategy[type]", "server_vad"),
        ("chunking_strategy[prefix_padding_ms]", "1000"),
    ];
    assert_eq!(max_usage(10, &members, 0), (200, 64, 2_000));
}

#[test]
fn unlisted_and_repeated_fields_are_refused_by_name() {
    let with = |more: &[(&'static str, &'static str)]| read(&fields(1, more), &by_tokens());
    for (more, named) in [
        (("url", "https://example.com/a.wav"), "url"),
        (
            ("known_speaker_references[]", "data:audio/wav;base64,AA=="),
            "known_speaker_references[]",
        ),
        (("Model", "here"), "Model"),
        (("file[]", "a"), "file[]"),
        (("file", "a"), "file"),
        (("model", "there"), "model"),
        (("stream", "yes"), "stream"),
        (("response_format", "xml"), "response_format"),
        (("chunking_strategy", "other"), "chunking_strategy"),
        (("chunking_strategy", r#"{"prefix_padding_ms":60000}"#), "chunking_strategy"),
        (("chunking_strategy", r#"{"prefix_padding_ms":"9"}"#), "chunking_strategy"),
        (("chunking_strategy", r#"{"chunks":9}"#), "chunking_strategy"),
        (("chunking_strategy[prefix_padding_ms]", "-1"), "chunking_strategy"),
    ] {
        assert_eq!(param(with(&[more])), named, "{more:?}");
    }
    assert_eq!(param(with(&[("prompt", "a"), ("prompt", "b")])), "prompt");
    let both = [("chunking_strategy", "auto"), ("chunking_strategy[type]", "server_vad")];
    assert_eq!(param(with(&both)), "chunking_strategy");
    let pass = PassList { fields: vec!["url".to_owned()], ..PassList::default() };
    let passed = ModelLimits { pass, ..by_tokens() };
    assert!(read(&fields(1, &[("url", "a")]), &passed).is_ok(), "an operator lets it through");
    for missing in ["file", "model"] {
        let mut without = fields(1, &[]);
        without.retain(|(name, ..)| *name != missing);
        assert_eq!(param(read(&without, &by_tokens())), missing);
    }
    let stream = fields(1, &[("stream", "true")]);
    assert_eq!(param(read_with(&OpenaiAudioTranslation, &stream, &by_seconds())), "stream");
    let prompt = fields(1, &[("prompt", "a")]);
    let call = read_with(&OpenaiAudioTranslation, &prompt, &by_seconds()).expect("valid");
    assert_eq!((call.max_usage().audio_seconds, call.streams()), (1, false));
}

#[test]
fn a_file_is_what_its_name_says_or_refused() {
    let named = |name, content: Vec<u8>| {
        let mut fields = fields(1, &[]);
        fields[0] = ("file", Some(name), content);
        read(&fields, &by_seconds())
    };
    let mp3 = mp3_frame().repeat(9);
    assert!(named("a.mp3", mp3.clone()).is_ok() && named("a.MPGA", mp3.clone()).is_ok());
    assert!(named("speech", mp3.clone()).is_ok() && named("a.b.dat", mp3.clone()).is_ok());
    assert_eq!(param(named("a.mp3", wav_seconds(1))), "file");
    assert_eq!(param(named("a.wav", mp3)), "file");
    assert_eq!(param(named("a.wav", b"no audio".to_vec())), "file");
    let transcription =
        TranscriptionLimits { seconds_max: Some(90), ..TranscriptionLimits::default() };
    let limits = ModelLimits { transcription, ..by_seconds() };
    assert!(read(&fields(90, &[]), &limits).is_ok());
    let error = read(&fields(91, &[]), &limits).expect_err("too long");
    assert!(error.message.contains("91 s") && error.message.contains("90 s"), "{}", error.message);
}

#[test]
fn all_but_the_models_name_is_passed_on_byte_for_byte() {
    let fields = fields(1, &[("timestamp_granularities[]", "word"), ("temperature", "0.2")]);
    let body = Bytes::from(body(&fields));
    let call = read(&fields, &by_seconds()).expect("valid");
    assert!(call.splice("here").is_empty());
    let sent = call.splice("whisper-1").apply(&body);
    let (model, at) = (b"whisper-1", memchr::memmem::find(&body, b"here").expect("there"));
    assert_eq!(sent, [&body[..at], model, &body[at + 4..]].concat());
}

#[test]
fn seconds_are_charged_as_reported_and_else_as_they_are_held() {
    let call = read(&fields(9, &[]), &by_seconds()).expect("valid");
    let upstream = UsageSource::Upstream;
    for (answer, seconds, source) in [
        (r#"{"text":"a","usage":{"type":"duration","seconds":9}}"#, 9, upstream),
        (r#"{"text":"a","usage":{"type":"duration","seconds":7.01}}"#, 8, upstream),
        (r#"{"usage":{"seconds":3},"text":"a","usage":{"seconds":5}}"#, 5, upstream),
        (r#"{"text":"a","usage":{"prompt_audio_seconds":6,"prompt_tokens":4}}"#, 6, upstream),
        (r#"{"text":"a","usage":{"seconds":4000}}"#, 4_000, upstream),
        (r#"{"text":"a"}"#, 9, UsageSource::Estimated),
        (r#"{"text":"a","duration":3}"#, 9, UsageSource::Estimated),
        (r#"{"text":"a","usage":{"seconds":0}}"#, 9, UsageSource::Estimated),
        (r#"{"text":"a","usage":{"seconds":-2}}"#, 9, UsageSource::Estimated),
        (
            r#"{"text":"a","usage":{"input_tokens":90,"output_tokens":1}}"#,
            9,
            UsageSource::Estimated,
        ),
    ] {
        let (usage, found) = measured(call.as_ref(), Framing::Json, answer);
        assert_eq!((usage, found), (Usage { audio_seconds: seconds, ..Usage::ZERO }, source));
    }
    let (usage, source) = measured(call.as_ref(), Framing::Binary, "1\n00:00 --> 00:09\nHello\n");
    assert_eq!(
        (usage.audio_seconds, source),
        (9, UsageSource::Estimated),
        "a text reports nothing"
    );
    let transcription =
        TranscriptionLimits { billed_seconds_min: 10, ..TranscriptionLimits::default() };
    let call =
        read(&fields(3, &[]), &ModelLimits { transcription, ..by_seconds() }).expect("valid");
    let answer = r#"{"text":"a","usage":{"seconds":3}}"#;
    assert_eq!(measured(call.as_ref(), Framing::Json, answer).0.audio_seconds, 10);
    let mut meter = call.meter(Framing::Json);
    let _relayed = meter.relay(Bytes::from_static(br#"{"usage":{"seconds":11}}"#));
    assert!(meter.is_above_limits(), "longer than it can be");
}

#[test]
fn tokens_are_charged_as_reported_and_else_estimated() {
    let call = read(&fields(9, &[("prompt", "some words")]), &by_tokens()).expect("valid");
    let used = |audio_input_tokens, input_tokens, output_tokens| Usage {
        audio_input_tokens,
        input_tokens,
        output_tokens,
        ..Usage::ZERO
    };
    let whole = r#"{"type":"tokens","input_tokens":95,"input_token_details":{"text_tokens":5,"audio_tokens":90},"output_tokens":7,"total_tokens":102}"#;
    for (usage, expected) in [
        (whole, used(90, 5, 7)),
        (r#"{"input_tokens":95,"output_tokens":7}"#, used(95, 0, 7)),
        (r#"{"input_tokens":95,"total_tokens":102}"#, used(95, 0, 7)),
        (r#"{"prompt_tokens":95,"input_token_details":{"text_tokens":5}}"#, used(90, 5, 0)),
    ] {
        let answer = format!(r#"{{"text":"Hello","usage":{usage}}}"#);
        let found = measured(call.as_ref(), Framing::Json, &answer);
        assert_eq!(found, (expected, UsageSource::Upstream), "{usage}");
    }
    for answer in [r#"{"text":"Hello there"}"#, r#"{"text":"Hello there","usage":{"seconds":9}}"#] {
        let (usage, source) = measured(call.as_ref(), Framing::Json, answer);
        assert_eq!((usage.audio_input_tokens, source), (90, UsageSource::Estimated));
        assert!((2..20).contains(&usage.output_tokens), "{usage:?}");
    }
}

#[test]
fn a_stream_is_metered_word_by_word_and_charged_as_its_end_says() {
    let stream = [("stream", "true")];
    let call = read(&fields(9, &stream), &by_tokens()).expect("valid");
    assert!(call.streams() && !call.is_all_shown() && !call.answers_binary());
    let delta = "data: {\"type\":\"transcript.text.delta\",\"delta\":\"Hello there\"}\n\n";
    let done = "data: {\"type\":\"transcript.text.done\",\"text\":\"Hello there\",\"usage\":{\"type\":\"tokens\",\"input_tokens\":91,\"input_token_details\":{\"text_tokens\":1,\"audio_tokens\":90},\"output_tokens\":3,\"total_tokens\":94}}\n\n";
    let mut meter = call.meter(Framing::Sse);
    assert_eq!(meter.relayed(), Usage::ZERO, "nothing has come");
    assert_eq!(meter.relay(Bytes::from_static(delta.as_bytes())), delta.as_bytes());
    let relayed = meter.relayed();
    assert_eq!(relayed.audio_input_tokens, 90, "all of it was heard");
    assert!((2..10).contains(&relayed.output_tokens) && !meter.is_complete());
    assert_eq!(meter.measure(), (relayed, UsageSource::Estimated), "cut here");
    assert_eq!(meter.relay(Bytes::from_static(done.as_bytes())), done.as_bytes());
    let used = Usage { audio_input_tokens: 90, input_tokens: 1, output_tokens: 3, ..Usage::ZERO };
    assert_eq!(meter.measure(), (used, UsageSource::Upstream));
    assert!(meter.is_complete());
    let call = read(&fields(9, &stream), &by_seconds()).expect("valid");
    assert!(!call.is_all_shown(), "its end has the upstream's own figures");
    let mut meter = call.meter(Framing::Sse);
    let _relayed = meter.relay(Bytes::from_static(b"data: {\"error\":{\"message\":\"no\"}}\n\n"));
    assert!(meter.has_failed() && meter.is_complete() && meter.relayed() == Usage::ZERO);
}
