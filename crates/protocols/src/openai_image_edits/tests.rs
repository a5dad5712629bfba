use bytes::Bytes;

use super::*;
use crate::form::{Boundary, FormScan};
use crate::limits::{ImageFormat, PassList};
use tollgate_money::price::{ImageSize, Quality, Usage, UsageSource};

/// Beginning of a PNG file, up to its size.
fn png(width: u32, height: u32) -> Vec<u8> {
    let signature = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".as_slice();
    let rest = b"\x08\x06\0\0\0".as_slice();
    [signature, &width.to_be_bytes(), &height.to_be_bytes(), rest].concat()
}

const JPEG: &[u8] = b"\xFF\xD8\xFF\xC0\0\x11\x08\0\x10\0\x20\x03\x01\x22\0\x02\x11\x01\x03\x11\x01";

fn file(name: &str, content: &[u8]) -> Vec<u8> {
    let head =
        format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"a\"\r\n\r\n");
    [head.as_bytes(), content, b"\r\n"].concat()
}

fn field(name: &str, value: &str) -> Vec<u8> {
    format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n").into()
}

fn form(parts: &[Vec<u8>]) -> Vec<u8> {
    [parts.concat(), b"--b--\r\n".to_vec()].concat()
}

fn gpt() -> ImageLimits {
    let size = ImageSize::parse("1024x1024").expect("a size");
    ImageLimits {
        sizes: vec![size],
        side_max: Some(3840),
        qualities: Some(vec![Quality::Low, Quality::High]),
        output_formats: Some(ImageFormat::ALL.to_vec()),
        response_formats: Some(vec![ResponseFormat::B64Json]),
        stream: true,
        ..ImageLimits::default()
    }
}

fn dalle() -> ImageLimits {
    ImageLimits {
        references_max: 1,
        output_formats: Some(Vec::new()),
        response_formats: Some(ResponseFormat::ALL.to_vec()),
        mask: false,
        ..gpt()
    }
}

fn read(body: &[u8], images: ImageLimits) -> Result<Box<dyn Call>, GatewayError> {
    read_passing(body, images, PassList::default())
}

fn read_passing(
    body: &[u8],
    images: ImageLimits,
    pass: PassList,
) -> Result<Box<dyn Call>, GatewayError> {
    let mut scan =
        FormScan::new(Boundary::from_content_type(b"multipart/form-data; boundary=b").expect("ok"));
    scan.feed(body).expect("a form");
    let request = Request::Form(scan.finish(body).expect("a form"), body);
    let (input_tokens_max, output_tokens_max) = (1000, 6240);
    let limits =
        ModelLimits { input_tokens_max, output_tokens_max, images, pass, ..ModelLimits::default() };
    OpenaiImageEdits.read(&request, &limits)
}

fn basic() -> Vec<Vec<u8>> {
    vec![file("image", &png(64, 32)), field("model", "m"), field("prompt", "a hat")]
}

fn with(more: &[Vec<u8>]) -> Vec<u8> {
    form(&[basic(), more.to_vec()].concat())
}

#[test]
fn the_hold_covers_every_image_and_all_input() {
    let body = with(&[field("n", "3"), field("quality", "low"), field("size", "1024x1024")]);
    let call = read(&body, gpt()).expect("valid");
    let max_usage = Usage { input_tokens: 1000, output_tokens: 3 * 6240, images: 3, ..Usage::ZERO };
    assert_eq!(call.max_usage(), max_usage, "nobody knows the tokens of an image before");
    assert_eq!(call.min_usage().output_tokens, 3 * 272);
    assert_eq!(call.traits().quality, Some(Quality::Low));
    assert!(!call.streams());
}

#[test]
fn an_answer_is_billed_by_what_it_reports() {
    let request = include_bytes!("../../fixtures/openai_image_edits/request.form");
    let call = read(request, gpt()).expect("valid");
    let expected = Usage {
        input_tokens: 20,
        image_input_tokens: 194,
        output_tokens: 272,
        images: 1,
        ..Usage::ZERO
    };
    for (framing, answer) in [
        (Framing::Json, include_str!("../../fixtures/openai_image_edits/response.json")),
        (Framing::Sse, include_str!("../../fixtures/openai_image_edits/stream.sse")),
    ] {
        let mut meter = call.meter(framing);
        let mut relayed = meter.relay(Bytes::from(answer)).to_vec();
        relayed.extend_from_slice(&meter.finish());
        assert_eq!(relayed, answer.as_bytes(), "byte for byte");
        assert_eq!(meter.measure(), (expected, UsageSource::Upstream), "{framing:?}");
    }
    let mut failed = call.meter(Framing::Json);
    failed.relay(Bytes::from(include_str!("../../fixtures/openai_image_edits/error.json")));
    assert!(failed.has_failed(), "an error in a 200 is charged to nobody");
}

#[test]
fn the_body_stays_but_for_what_must_change() {
    let body = with(&[]);
    let call = read(&body, gpt()).expect("valid");
    assert!(call.splice("m").is_empty(), "byte for byte");
    let renamed = call.splice("gpt-image-2").apply(&Bytes::from(body));
    let mut parts = basic();
    parts[1] = field("model", "gpt-image-2");
    assert_eq!(renamed, form(&parts));
}

#[test]
fn the_way_to_answer_is_the_contracts() {
    let body = with(&[field("response_format", "b64_json")]);
    let sent = read(&body, gpt()).expect("valid").splice("m").apply(&Bytes::from(body));
    assert_eq!(sent, with(&[]), "an upstream with one way is not told");
    let plain = with(&[]);
    let sent = read(&plain, dalle()).expect("valid").splice("m").apply(&Bytes::from(plain));
    let expected = [vec![field("response_format", "b64_json")], basic()].concat();
    assert_eq!(sent, form(&expected), "and one with two gets the default");
    let url = with(&[field("response_format", "url")]);
    assert!(read(&url, dalle()).expect("valid").splice("m").is_empty());
}

#[test]
fn an_operator_can_let_a_field_through() {
    let body = with(&[field("strength", "0.5"), field("user", "u"), field("moderation", "low")]);
    let read_with = |pass: &[&str]| {
        let fields = pass.iter().map(|field| (*field).to_owned()).collect();
        read_passing(&body, gpt(), PassList { fields, ..PassList::default() })
    };
    let error = read_with(&[]).expect_err("nobody knows what it costs");
    assert_eq!(error.param.as_deref(), Some("strength"), "{error}");
    assert!(error.message.contains("`pass_fields`"), "{error}");
    assert!(read_with(&["strength"]).is_ok());
}

#[test]
fn without_a_report_an_edit_is_charged_as_it_was_held() {
    let call = read(&with(&[field("n", "2"), field("quality", "low")]), gpt()).expect("valid");
    let mut meter = call.meter(Framing::Json);
    meter.relay(Bytes::from_static(br#"{"data":[{"b64_json":"AAAA"},{"b64_json":"AAAA"}]}"#));
    assert_eq!(meter.measure(), (call.max_usage(), UsageSource::Estimated));
}

#[test]
fn images_can_be_many_and_of_three_formats() {
    let webp = b"RIFF\x1a\0\0\0WEBPVP8L\x0e\0\0\0\x2f\x1f\xc0\x07\x00";
    let many = [
        file("image[]", &png(8, 8)),
        file("image[]", JPEG),
        file("image[]", webp),
        field("model", "m"),
        field("prompt", "p"),
        file("mask", &png(8, 8)),
    ];
    read(&form(&many), gpt()).expect("valid");
}

#[test]
fn invalid_forms_name_the_field() {
    for (more, limits, param, code) in [
        (field("n", "0"), gpt(), "n", None),
        (field("n", "11"), gpt(), "n", None),
        (field("n", "010"), gpt(), "n", None),
        (field("n", "1.0"), gpt(), "n", None),
        (field("n", " 1"), gpt(), "n", None),
        (field("N", "1"), gpt(), "N", None),
        (field("n[]", "1"), gpt(), "n[]", None),
        (field("model", "m"), gpt(), "model", None),
        (field("User", "u"), gpt(), "User", None),
        (field("tools", "[]"), gpt(), "tools", None),
        (file("image[0]", &png(64, 32)), gpt(), "image[0]", None),
        (field("size", "512x512"), gpt(), "size", None),
        (field("size", "2048x2048"), gpt(), "size", None),
        (field("quality", "hd"), gpt(), "quality", None),
        (field("response_format", "url"), gpt(), "response_format", None),
        (field("output_format", "gif"), gpt(), "output_format", None),
        (field("output_format", "png"), dalle(), "output_format", None),
        (field("background", "blue"), gpt(), "background", None),
        (field("stream", "1"), gpt(), "stream", None),
        (file("prompt", b"x"), gpt(), "prompt", None),
        (file("image", b"GIF89a"), gpt(), "image", None),
        (file("image", &png(1, 1)), dalle(), "image", None),
        (file("mask", &png(64, 33)), gpt(), "mask", Some("invalid_mask")),
        (file("mask", JPEG), gpt(), "mask", Some("invalid_mask")),
        (file("mask", b"\x89PNG\r\n\x1a\n"), gpt(), "mask", Some("invalid_mask")),
        (file("mask", &png(64, 32)), dalle(), "mask", Some("invalid_mask")),
    ] {
        let shown = String::from_utf8_lossy(&more).into_owned();
        let error = read(&with(&[more]), limits).expect_err(&shown);
        assert_eq!(error.param.as_deref(), Some(param), "{shown}: {error}");
        assert_eq!(error.code, code, "{shown}: {error}");
    }
    let jpeg = [field("background", "transparent"), field("output_format", "jpeg")];
    let error = read(&with(&jpeg), gpt()).expect_err("no alpha channel");
    assert_eq!(error.param.as_deref(), Some("background"));
    for missing in 0..3 {
        let mut parts = basic();
        parts.remove(missing);
        let error = read(&form(&parts), gpt()).expect_err("a part is missing");
        let names = ["image", "model", "prompt"];
        assert_eq!(error.param.as_deref(), Some(names[missing]));
    }
}
