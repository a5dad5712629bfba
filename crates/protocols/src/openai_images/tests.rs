use bytes::Bytes;

use super::*;
use crate::limits::{ImageLimits, PassList, ResponseFormat};
use tollgate_money::price::{ImageSize, Quality, Usage, UsageSource};

const REQUEST: &[u8] = include_bytes!("../../fixtures/openai_images/request.json");
const RESPONSE: &str = include_str!("../../fixtures/openai_images/response.json");
const STREAM: &str = include_str!("../../fixtures/openai_images/stream.sse");
const ERROR: &str = include_str!("../../fixtures/openai_images/error.json");

fn limits() -> ModelLimits {
    let sizes = ["1024x1024", "1536x1024"].map(|size| ImageSize::parse(size).expect("a size"));
    let images = ImageLimits {
        sizes: sizes.to_vec(),
        side_max: Some(3840),
        side_multiple: Some(16),
        aspect_ratio_max: Some(3),
        qualities: Some(vec![Quality::Low, Quality::High]),
        response_formats: Some(vec![ResponseFormat::B64Json]),
        stream: true,
        ..ImageLimits::default()
    };
    let (input_tokens_max, output_tokens_max) = (1000, 5000);
    ModelLimits { input_tokens_max, output_tokens_max, images, ..ModelLimits::default() }
}

fn read(codec: &dyn Codec, body: &[u8]) -> Result<Box<dyn Call>, GatewayError> {
    codec.read(&Request::Json(Object::parse(body).expect("JSON")), &limits())
}

fn measure(framing: Framing, response: &str) -> (Usage, UsageSource, bool) {
    let mut meter = read(&OpenaiImages, REQUEST).expect("valid").meter(framing);
    let mut out = Vec::new();
    for piece in response.as_bytes().chunks(7) {
        out.extend_from_slice(&meter.relay(Bytes::copy_from_slice(piece)));
    }
    out.extend_from_slice(&meter.finish());
    assert_eq!(out, response.as_bytes(), "byte for byte");
    let (usage, source) = meter.measure();
    (usage, source, meter.is_complete())
}

#[test]
fn an_answer_is_billed_by_what_it_reports() {
    let expected = Usage { input_tokens: 13, output_tokens: 544, images: 2, ..Usage::ZERO };
    assert_eq!(measure(Framing::Json, RESPONSE), (expected, UsageSource::Upstream, true));
    let one = Usage { output_tokens: 372, images: 1, ..expected };
    assert_eq!(measure(Framing::Sse, STREAM), (one, UsageSource::Upstream, true));
    let mut failed = read(&OpenaiImages, REQUEST).expect("valid").meter(Framing::Json);
    failed.relay(Bytes::from(ERROR));
    assert!(failed.has_failed(), "an error in a 200 is charged to nobody");
}

#[test]
fn a_report_is_believed_however_large() {
    let report = |usage: &str| {
        let response = format!(r#"{{"data":[{{}},{{}}],"usage":{usage}}}"#);
        let (used, source, _) = measure(Framing::Json, &response);
        assert_eq!((used.images, source), (2, UsageSource::Upstream), "{usage}");
        (used.input_tokens, used.output_tokens)
    };
    assert_eq!(report(r#"{"input_tokens":5000,"output_tokens":99999999}"#), (5000, 99_999_999));
    assert_eq!(report(r#"{"input_tokens":13,"total_tokens":1013}"#), (13, 1000));
    let all = r#"{"input_tokens":13,"output_tokens":10,"total_tokens":1013}"#;
    assert_eq!(report(all), (13, 1000), "what is in neither part was put out");
}

#[test]
fn without_a_report_the_hold_is_what_is_charged() {
    let max_usage = read(&OpenaiImages, REQUEST).expect("valid").max_usage();
    assert_eq!((max_usage.images, max_usage.output_tokens), (2, 10_000));
    for usage in
        ["null", "{}", r#"{"output_tokens":-1}"#, r#"{"input_tokens":13,"output_tokens":0}"#]
    {
        let response = format!(r#"{{"data":[{{}},{{}}],"usage":{usage}}}"#);
        let measured = measure(Framing::Json, &response);
        assert_eq!(measured, (max_usage, UsageSource::Estimated, true), "{usage}");
    }
    for nothing in ["{}", r#"{"data":[]}"#, r#"{"output":{"task_id":"1"}}"#] {
        let measured = measure(Framing::Json, nothing);
        assert_eq!(measured, (max_usage, UsageSource::Estimated, true), "{nothing}");
    }
    let cut = measure(Framing::Json, r#"{"data":[{"b64_json":"abc"#);
    assert_eq!(cut, (max_usage, UsageSource::Estimated, false));
}

#[test]
fn what_is_left_to_the_model_is_estimated_as_the_dearest() {
    let min_usage = |fields: &str| {
        let body = format!(r#"{{"model":"m","prompt":"p"{fields}}}"#);
        read(&OpenaiImages, body.as_bytes()).expect(fields).min_usage().output_tokens
    };
    assert_eq!(min_usage(r#","quality":"low","size":"1024x1024""#), 272);
    for open in
        ["", r#","quality":"auto","size":"auto""#, r#","quality":"low""#, r#","size":"1024x1024""#]
    {
        assert_eq!(min_usage(open), 5000, "{open}");
    }
}

/// Measurement of a stream of `events`, for a request with these fields.
fn streamed(codec: &dyn Codec, fields: &str, events: &[&str], ends: bool) -> (Usage, UsageSource) {
    let body = format!(r#"{{"model":"m","prompt":"p","stream":true{fields}}}"#);
    let mut meter = read(codec, body.as_bytes()).expect(fields).meter(Framing::Sse);
    for event in events {
        meter.relay(Bytes::from(format!("data: {event}\n\n")));
    }
    if ends {
        meter.finish();
    }
    meter.measure()
}

#[test]
fn the_images_of_a_stream_add_up() {
    let event = |more: &str| {
        format!(
            r#"{{"type":"image_generation.completed","b64_json":"iVBORw0KGgo="{more},"usage":{{"input_tokens":10,"output_tokens":1000}}}}"#
        )
    };
    let plain = event("");
    let four = [plain.as_str(); 4];
    let of = |images: u64| Usage {
        input_tokens: 10 * images,
        output_tokens: 1000 * images,
        images,
        ..Usage::ZERO
    };
    let measured = |events: &[&str], ends| streamed(&OpenaiImages, r#","n":4"#, events, ends);
    assert_eq!(measured(&four, true), (of(4), UsageSource::Upstream));
    assert_eq!(measured(&four, false), (of(4), UsageSource::Upstream), "all have come");
    assert_eq!(measured(&four[..2], true), (of(2), UsageSource::Upstream), "it made no more");
    let cut = measured(&four[..1], false);
    let rest = Usage { output_tokens: 1000 + 3 * 5000, images: 4, ..cut.0 };
    assert_eq!(cut, (rest, UsageSource::Estimated), "the others are made all the same");
    assert!(cut.0.input_tokens > 10, "{cut:?}");

    let (first, second) = (event(r#","image_index":0"#), event(r#","image_index":1"#));
    let dear = first.replace("1000", "1500");
    let repeated = measured(&[&first, &second, &dear, &first], true);
    let expected = Usage { output_tokens: 2500, ..of(2) };
    assert_eq!(repeated, (expected, UsageSource::Upstream), "each image once, the dearest");
    let partial = plain.replace("completed", "partial_image");
    assert_eq!(measured(&[&partial, &partial, &plain], true), (of(1), UsageSource::Upstream));

    let unreported = r#"{"type":"image_generation.completed","b64_json":"iVBORw0KGgo="}"#;
    let some = measured(&[&plain, unreported], true);
    assert_eq!((some.0.images, some.0.output_tokens), (2, 6000), "the hold's share of it");
    assert_eq!(some.1, UsageSource::Estimated);
    let failed = r#"{"type":"error","error":{"message":"no"}}"#;
    let costly = failed.replacen('{', r#"{"usage":{"output_tokens":700},"#, 1);
    assert_eq!(measured(&[&costly], true).0, Usage { output_tokens: 700, ..Usage::ZERO });
    assert_eq!(measured(&[&plain, failed], true), (of(1), UsageSource::Upstream));
    let nothing = measured(&[], false);
    assert_eq!((nothing.0.images, nothing.0.output_tokens), (4, 20_000));
}

#[test]
fn arks_series_are_counted_by_the_report_or_by_the_events() {
    const SERIES: &str = r#","sequential_image_generation":"auto""#;
    let end = |images: u64| {
        format!(
            r#"{{"type":"image_generation.completed","usage":{{"generated_images":{images},"output_tokens":60000,"total_tokens":60000}}}}"#
        )
    };
    let part = |index: u64| {
        format!(
            r#"{{"type":"image_generation.partial_succeeded","image_index":{index},"url":"https://a.example/{index}.png"}}"#
        )
    };
    let measured = |events: &[&str], ends| streamed(&ArkImages, SERIES, events, ends);
    let of = |images| Usage { output_tokens: 60_000, images, ..Usage::ZERO };
    assert_eq!(measured(&[&end(15)], true), (of(15), UsageSource::Upstream));
    let (zero, one) = (part(0), part(1));
    assert_eq!(measured(&[&zero, &one, &end(2)], true), (of(2), UsageSource::Upstream));
    assert_eq!(measured(&[&zero, &one, &end(1)], true), (of(2), UsageSource::Upstream));
    let failed =
        r#"{"type":"image_generation.partial_failed","image_index":2,"error":{"code":"c"}}"#;
    assert_eq!(measured(&[&zero, failed, &end(1)], true), (of(1), UsageSource::Upstream));
    let (cut, source) = measured(&[&zero, &one], false);
    assert_eq!((cut.images, source), (15, UsageSource::Estimated), "a series goes on");
}

#[test]
fn options_without_a_price_are_refused() {
    let pass = PassList { fields: vec!["tools".to_owned()], ..PassList::default() };
    let passing = ModelLimits { pass, ..limits() };
    for (codec, fields) in [
        (&OpenaiImages as &dyn Codec, r#""image":"https://a.example/1.png""#),
        (&OpenaiImages, r#""seed":1"#),
        (&ArkImages, r#""tools":[{"type":"web_search"}]"#),
        (&ArkImages, r#""quality":"low""#),
    ] {
        let body = format!(r#"{{"model":"m","prompt":"p",{fields}}}"#);
        let error = read(codec, body.as_bytes()).expect_err(fields);
        assert!(error.message.contains("`pass_fields`"), "{error}");
        let object = Object::parse(body.as_bytes()).expect("JSON");
        let passed = codec.read(&Request::Json(object), &passing);
        assert_eq!(passed.is_ok(), fields.contains("tools"), "{fields}");
    }
}

#[test]
fn the_hold_covers_every_image_and_the_price_can_depend_on_them() {
    let call = read(&OpenaiImages, REQUEST).expect("valid");
    let max_usage = call.max_usage();
    assert_eq!((max_usage.images, max_usage.output_tokens), (2, 10_000));
    assert_eq!(max_usage.input_tokens, REQUEST.len() as u64, "bytes bound the prompt's tokens");
    assert_eq!(call.traits().quality, Some(Quality::Low));
    assert_eq!(call.traits().size, ImageSize::parse("1536x1024"));
    let partial = br#"{"model":"m","prompt":"p","stream":true,"partial_images":3,"size":"auto"}"#;
    let call = read(&OpenaiImages, partial).expect("valid");
    assert!(call.streams());
    assert_eq!(call.max_usage().output_tokens, 5300, "partial images cost tokens of their own");
}

#[test]
fn the_upstream_gets_no_option_without_a_choice() {
    for (body, sent) in [
        (
            r#"{"model":"m", "response_format":"b64_json", "prompt":"p"}"#,
            r#"{"model":"m", "prompt":"p"}"#,
        ),
        (
            r#"{"model":"m","prompt":"p" , "response_format":"b64_json" }"#,
            r#"{"model":"m","prompt":"p" }"#,
        ),
    ] {
        let splice = read(&OpenaiImages, body.as_bytes()).expect("valid").splice("m");
        let edited = splice.apply(&Bytes::from_static(body.as_bytes()));
        assert_eq!(std::str::from_utf8(&edited), Ok(sent));
    }
}

#[test]
fn arks_series_are_bounded() {
    for (fields, images) in [
        ("", 1),
        (r#","sequential_image_generation":"disabled""#, 1),
        // The model's limit is ten, but nobody tells Ark.
        (r#","sequential_image_generation":"auto""#, 15),
        (
            r#","sequential_image_generation":"auto","sequential_image_generation_options":{"max_images":3}"#,
            3,
        ),
    ] {
        let body = format!(r#"{{"model":"m","prompt":"p"{fields}}}"#);
        let call = read(&ArkImages, body.as_bytes()).expect(fields);
        assert_eq!(call.max_usage().images, images, "{fields}");
    }
    let call = read(&ArkImages, br#"{"model":"m","prompt":"p"}"#).expect("valid");
    let mut meter = call.meter(Framing::Json);
    meter.relay(Bytes::from(
        r#"{"data":[{"url":"u"}],"usage":{"generated_images":1,"output_tokens":4000}}"#,
    ));
    let usage = Usage { output_tokens: 4000, images: 1, ..Usage::ZERO };
    assert_eq!(meter.measure(), (usage, UsageSource::Upstream));
}

#[test]
fn invalid_requests_name_the_field() {
    for (codec, fields, param) in [
        (&OpenaiImages as &dyn Codec, r#""prompt":"""#, "prompt"),
        (&OpenaiImages, r#""n":1"#, "prompt"),
        (&OpenaiImages, r#""prompt":"p","n":0"#, "n"),
        (&OpenaiImages, r#""prompt":"p","n":11"#, "n"),
        (&OpenaiImages, r#""prompt":"p","n":1.5"#, "n"),
        (&OpenaiImages, r#""prompt":"p","N":1"#, "N"),
        (&OpenaiImages, r#""prompt":"p","size":"1000x1000""#, "size"),
        (&OpenaiImages, r#""prompt":"p","size":"3856x1600""#, "size"),
        (&OpenaiImages, r#""prompt":"p","size":"3840x1264""#, "size"),
        (&OpenaiImages, r#""prompt":"p","size":"1024*1024""#, "size"),
        (&OpenaiImages, r#""prompt":"p","size":7"#, "size"),
        (&OpenaiImages, r#""prompt":"p","quality":"medium""#, "quality"),
        (&OpenaiImages, r#""prompt":"p","response_format":"url""#, "response_format"),
        (&OpenaiImages, r#""prompt":"p","output_format":"gif""#, "output_format"),
        (
            &OpenaiImages,
            r#""prompt":"p","background":"transparent","output_format":"jpeg""#,
            "background",
        ),
        (&OpenaiImages, r#""prompt":"p","background":"red""#, "background"),
        (&OpenaiImages, r#""prompt":"p","stream":"yes""#, "stream"),
        (&OpenaiImages, r#""prompt":"p","partial_images":4"#, "partial_images"),
        (&ArkImages, r#""prompt":"p","n":2"#, "n"),
        (&ArkImages, r#""prompt":"p","sequential_image_generation":"on""#, SERIES),
        (
            &ArkImages,
            r#""prompt":"p","sequential_image_generation":"auto","sequential_image_generation_options":{"max_images":99}"#,
            SERIES_OPTIONS,
        ),
        (
            &ArkImages,
            r#""prompt":"p","sequential_image_generation":"auto","sequential_image_generation_options":{"more":1}"#,
            "sequential_image_generation_options.more",
        ),
        (
            &ArkImages,
            r#""prompt":"p","image":["","","","","","","","","","","","","","","","",""]"#,
            "image",
        ),
    ] {
        let body = format!(r#"{{"model":"m",{fields}}}"#);
        let error = read(codec, body.as_bytes()).expect_err(fields);
        assert_eq!(error.param.as_deref(), Some(param), "{fields}: {error}");
    }
}
