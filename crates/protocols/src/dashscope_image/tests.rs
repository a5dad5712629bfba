use super::*;

const REQUEST: &str = include_str!("../../fixtures/dashscope_image/request.json");
const RESPONSE: &str = include_str!("../../fixtures/dashscope_image/response.json");
const ERROR: &str = include_str!("../../fixtures/dashscope_image/error.json");

fn limits(references: std::ops::RangeInclusive<u32>) -> ModelLimits {
    let sizes = ["1024*1024", "1664*928"].map(|size| ImageSize::parse(size).expect("a size"));
    let images = ImageLimits {
        count_max: 1,
        references_min: *references.start(),
        references_max: *references.end(),
        sizes: sizes.to_vec(),
        ..ImageLimits::default()
    };
    ModelLimits { images, ..ModelLimits::default() }
}

fn read(body: &str, edits: bool) -> Result<Box<dyn Call>, GatewayError> {
    let object = Object::parse(body.as_bytes()).expect("JSON");
    let limits = if edits { limits(1..=3) } else { limits(0..=0) };
    DashscopeImage.read(&Request::Json(object), &limits)
}

fn collect(answer: &str) -> Result<CollectedAnswer, UpstreamFault> {
    let call = read(REQUEST, false).expect("valid");
    let collect = call.collected().expect("it is collected");
    collect.read(&[Bytes::copy_from_slice(answer.as_bytes())])
}

#[test]
fn the_body_goes_on_byte_for_byte_and_so_does_the_answer() {
    let call = read(REQUEST, false).expect("valid");
    assert_eq!(call.max_usage(), Usage { images: 1, ..Usage::ZERO });
    assert_eq!(call.traits().size, ImageSize::parse("1664x928"));
    let body = Bytes::from_static(REQUEST.as_bytes());
    let sent = call.collected().expect("collected").bodies("qwen-image-2.0", &body);
    assert_eq!(sent, [REQUEST.replace("qf-image-2.0", "qwen-image-2.0")]);
    let collected = collect(RESPONSE).expect("an answer");
    assert_eq!(collected.usage.images, 1);
    assert!(matches!(collected.content, CollectedContent::Json(answer) if answer == RESPONSE));
}

#[test]
fn both_ways_to_report_usage_are_read() {
    let other = r#""usage":{"output_width":1664,"output_height":928,"input_image_count":0,"output_image_count":1}"#;
    let at = RESPONSE.find("\"usage\"").expect("usage");
    let answer = format!("{}{other}}}", &RESPONSE[..at]);
    assert_eq!(collect(&answer).expect("an answer").usage.images, 1);
    let none = RESPONSE.replace("image_count", "x");
    assert_eq!(collect(&none).expect("an answer").usage.images, 1, "the image itself tells");
    let many = RESPONSE.replace("\"image_count\": 1", "\"image_count\": 9");
    assert_eq!(collect(&many).expect("an answer").usage.images, 9, "as it is billed");
    let zero = RESPONSE.replace("\"image_count\": 1", "\"image_count\": 0");
    assert_eq!(collect(&zero).expect("an answer").usage.images, 1, "there is an image");
}

#[test]
fn an_answer_without_images_and_figures_is_charged_as_requested() {
    for answer in [
        r#"{"request_id":"r","output":{"task_id":"t","task_status":"PENDING"}}"#,
        r#"{"output":{"choices":[]},"usage":{}}"#,
        "{}",
    ] {
        let collected = collect(answer).expect(answer);
        assert_eq!(collected.usage.images, 1, "{answer}");
        assert_eq!(collected.source, UsageSource::Estimated, "{answer}");
    }
    let none = r#"{"output":{"choices":[]},"usage":{"image_count":0}}"#;
    assert_eq!(collect(none).expect("an answer").usage.images, 0, "as it says");
}

#[test]
fn an_error_is_one_whatever_its_status() {
    assert!(matches!(collect(ERROR), Err(UpstreamFault::Relayed(400, body)) if body == ERROR));
    let overdue = ERROR.replace("InvalidParameter", "Arrearage");
    assert!(matches!(collect(&overdue), Err(UpstreamFault::Upstreams(_))));
    assert!(matches!(collect("<html>"), Err(UpstreamFault::Upstreams(_))));
}

/// Spec section 2.2, row by row.
#[test]
fn invalid_requests_name_the_field() {
    const IMAGE: &str = r#"{"image":"https://example.com/a.png"}"#;
    const TEXT: &str = r#"{"text":"a cat"}"#;
    let content =
        |blocks: &str| format!(r#"{{"messages":[{{"role":"user","content":[{blocks}]}}]}}"#);
    let at_content = "input.messages[0].content";
    let inside = IMAGE.replace("example.com", "169.254.169.254");
    let plain = IMAGE.replace("https", "http");
    for (input, parameters, edits, param) in [
        ("null".to_owned(), "{}", false, "input"),
        (r#""text""#.to_owned(), "{}", false, "input"),
        (r#"{"messages":[],"messages":[]}"#.to_owned(), "{}", false, "input"),
        ("{}".to_owned(), "{}", false, "input.messages"),
        (r#"{"messages":[]}"#.to_owned(), "{}", false, "input.messages"),
        (r#"{"messages":[{},{}]}"#.to_owned(), "{}", false, "input.messages"),
        (
            r#"{"messages":[{"role":"system","content":[{"text":"a"}]}]}"#.to_owned(),
            "{}",
            false,
            "input.messages[0].role",
        ),
        (r#"{"messages":[{"role":"user","content":"a"}]}"#.to_owned(), "{}", false, at_content),
        (content(""), "{}", false, at_content),
        (content(r#"{"text":""}"#), "{}", false, at_content),
        (content(r#"{"text":"a","image":"https://a.example/b"}"#), "{}", true, at_content),
        (content(&format!("{TEXT},{IMAGE}")), "{}", false, at_content),
        (content(TEXT), "{}", true, at_content),
        (content(IMAGE), "{}", true, at_content),
        (content(&[TEXT, IMAGE, IMAGE, IMAGE, IMAGE].join(",")), "{}", true, at_content),
        (content(&format!("{TEXT},{inside}")), "{}", true, at_content),
        (content(&format!("{TEXT},{plain}")), "{}", true, at_content),
        (content(TEXT), "[]", false, "parameters"),
        (content(TEXT), r#"{"size":"512*512"}"#, false, "parameters.size"),
        (content(TEXT), r#"{"size":"1024x1024"}"#, false, "parameters.size"),
        (content(TEXT), r#"{"size":1024}"#, false, "parameters.size"),
        (content(TEXT), r#"{"n":2}"#, false, "parameters.n"),
        (content(TEXT), r#"{"n":0}"#, false, "parameters.n"),
        (content(TEXT), r#"{"N":1}"#, false, "parameters.N"),
        (content(TEXT), r#"{"seed":-1}"#, false, "parameters.seed"),
        (content(TEXT), r#"{"watermark":"no"}"#, false, "parameters.watermark"),
        (content(TEXT), r#"{"prompt_extend":1}"#, false, "parameters.prompt_extend"),
        (content(TEXT), r#"{"negative_prompt":[]}"#, false, "parameters.negative_prompt"),
        (content(TEXT), r#"{"mode":"pro"}"#, false, "parameters.mode"),
        (content(r#"{"text":"a","video":"v"}"#), "{}", false, "input.messages[0].content[0].video"),
        (content(TEXT).replacen('{', r#"{"task_id":"t","#, 1), "{}", false, "input.task_id"),
        (
            content(TEXT).replace(r#""role""#, r#""name":"n","role""#),
            "{}",
            false,
            "input.messages[0].name",
        ),
    ] {
        let body = format!(r#"{{"model":"m","input":{input},"parameters":{parameters}}}"#);
        let error = read(&body, edits).expect_err(&body);
        assert_eq!(error.param.as_deref(), Some(param), "{body}: {error}");
        assert_eq!(error.code, Some("InvalidParameter"), "{body}");
    }
    let good = format!(r#"{{"model":"m","input":{}}}"#, content(&format!("{IMAGE},{TEXT}")));
    assert!(read(&good, true).is_ok(), "one image and a text");
}
