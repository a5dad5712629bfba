use super::*;
use crate::limits::{ImageLimits, VideoLimits};
use crate::task::Submit;

const REQUEST: &str = include_str!("../../fixtures/xai_video/request.json");
const RESPONSE: &str = include_str!("../../fixtures/xai_video/response.json");
const RECORD: &str = include_str!("../../fixtures/xai_video/record.json");
const ERROR: &str = include_str!("../../fixtures/xai_video/error.json");

const PREVIEW: &str = "gif-video-1.5-preview";

fn limits(references: std::ops::RangeInclusive<u32>) -> ModelLimits {
    let images = ImageLimits {
        references_min: *references.start(),
        references_max: *references.end(),
        ..ImageLimits::default()
    };
    let video = VideoLimits {
        resolutions: vec![Resolution::P480, Resolution::P720],
        seconds_min: 1,
        seconds_max: 15,
        minus_one: false,
    };
    ModelLimits { images, video, ..ModelLimits::default() }
}

fn read_with(body: &str, limits: &ModelLimits) -> Result<Box<dyn Call>, GatewayError> {
    let object = Object::parse(body.as_bytes()).expect("JSON");
    XaiVideo.read(&Request::Json(object), limits)
}

fn read(body: &str) -> Result<Box<dyn Call>, GatewayError> {
    read_with(body, &limits(0..=1))
}

fn submit(call: &dyn Call) -> &(dyn Submit + Sync) {
    call.submit().expect("it starts a task")
}

#[test]
fn only_the_gateways_fields_are_cut_out() {
    let call = read(REQUEST).expect("valid");
    let sent = submit(&*call).body("grok-imagine-video", &Bytes::from_static(REQUEST.as_bytes()));
    let expected = REQUEST
        .replace("\"wait\":false, \"webhook_url\":\"https://hooks.example.com/g\",\n  ", "")
        .replace("gif-video", "grok-imagine-video");
    assert_eq!(std::str::from_utf8(&sent), Ok(expected.as_str()));
    assert_eq!(submit(&*call).webhook_url(), Some("https://hooks.example.com/g"));
    assert!(!submit(&*call).waits());
}

#[test]
fn seconds_are_held_and_the_resolution_prices_them() {
    let call = read(REQUEST).expect("valid");
    assert_eq!(call.max_usage(), Usage { seconds: 10, ..Usage::ZERO });
    assert_eq!(call.min_usage(), Usage::ZERO);
    let priced = Traits { video_input: Some(false), ..Traits::default() };
    assert_eq!(call.traits(), Traits { resolution: Some(Resolution::P480), ..priced });
    let facts = submit(&*call).facts();
    assert_eq!((facts.max_usage, facts.seconds), (call.max_usage(), 10));
    assert_eq!((facts.resolution.as_str(), facts.aspect_ratio.as_str()), ("480p", "16:9"));
    let plain = read(r#"{"model":"gif-video","prompt":"a","wait":true}"#).expect("valid");
    assert_eq!(plain.max_usage().seconds, 8, "xAI's own default");
    assert_eq!(plain.traits(), priced, "what is left open is priced as the dearest");
    assert!(submit(&*plain).waits());
}

#[test]
fn an_image_or_a_prompt_is_enough() {
    for body in [
        r#"{"model":"gif-video","prompt":"a"}"#.to_owned(),
        r#"{"model":"gif-video","image":{"url":"https://a.example/1"}}"#.to_owned(),
        r#"{"model":"gif-video","image":{"url":"https://a.example/1.webp"},"prompt":""}"#
            .to_owned(),
        format!(r#"{{"model":"{PREVIEW}","image":{{"url":"https://a.example/1"}},"prompt":"a"}}"#),
    ] {
        assert!(read(&body).is_ok(), "{body}: {:?}", read(&body));
    }
}

#[test]
fn wrong_requests_are_refused() {
    for (model, members, param, code) in [
        ("gif-video", r#""duration":5"#, "prompt", "MissingRequired"),
        ("gif-video", r#""prompt":" ""#, "prompt", "ContentEmpty"),
        ("gif-video", r#""prompt":["a"]"#, "prompt", ""),
        ("gif-video", r#""prompt":"a","duration":0"#, "duration", "DurationOutOfRange"),
        ("gif-video", r#""prompt":"a","duration":16"#, "duration", "DurationOutOfRange"),
        ("gif-video", r#""prompt":"a","duration":0.5"#, "duration", ""),
        ("gif-video", r#""prompt":"a","duration":5.5"#, "duration", ""),
        ("gif-video", r#""prompt":"a","duration":16.0"#, "duration", "DurationOutOfRange"),
        ("gif-video", r#""prompt":"a","duration":-6"#, "duration", "DurationOutOfRange"),
        ("gif-video", r#""prompt":"a","duration":1e300"#, "duration", "DurationOutOfRange"),
        ("gif-video", r#""prompt":"a","duration":"5""#, "duration", ""),
        ("gif-video", r#""prompt":"a","Duration":5"#, "Duration", ""),
        (
            "gif-video",
            r#""prompt":"a","resolution":"1080p""#,
            "resolution",
            "ResolutionNotSupported",
        ),
        ("gif-video", r#""prompt":"a","resolution":"720""#, "resolution", "NotInEnum"),
        ("gif-video", r#""prompt":"a","aspect_ratio":1.5"#, "aspect_ratio", ""),
        ("gif-video", r#""prompt":"a","wait":1"#, "wait", ""),
        ("gif-video", r#""image":"https://a.example/1.png""#, "image", ""),
        ("gif-video", r#""image":[{"url":"https://a.example/1.png"}]"#, "image", ""),
        ("gif-video", r#""image":{"URL":"https://a.example/1.png"}"#, "URL", ""),
        ("gif-video", r#""image":{"url":"a","url":"b"}"#, "image", ""),
        ("gif-video", r#""image":{}"#, "image.url", "MissingRequired"),
        ("gif-video", r#""image":{"url":5}"#, "image.url", "UrlInvalid"),
        ("gif-video", r#""image":{"url":"http://a.example/1.png"}"#, "image.url", "UrlInvalid"),
        ("gif-video", r#""image":{"url":"https://127.0.0.1/1.png"}"#, "image.url", "UrlInvalid"),
        ("gif-video", r#""image":{"url":"data:image/png;base64,AA"}"#, "image.url", "UrlInvalid"),
        (
            "gif-video",
            r#""image":{"url":"https://a.example/1.mp4"}"#,
            "image.url",
            "UnsupportedImageFormat",
        ),
        (
            "gif-video",
            r#""image":{"url":"https://a.example/1.png","file_id":"f"}"#,
            "image.file_id",
            "",
        ),
        ("gif-video", r#""prompt":"a","reference_images":[]"#, "reference_images", ""),
        ("gif-video", r#""prompt":"a","video":{"url":"https://a.example/1.mp4"}"#, "video", ""),
        ("gif-video", r#""prompt":"a","output":{"upload_url":"https://a.example/"}"#, "output", ""),
        ("gif-video", r#""prompt":"a","n":2"#, "n", ""),
        (PREVIEW, r#""prompt":"a""#, "image", "MissingRequired"),
        (PREVIEW, r#""prompt":"a","image":null"#, "image", "MissingRequired"),
    ] {
        refused(read(&format!(r#"{{"model":"{model}",{members}}}"#)), param, code);
    }
    let plain = r#"{"model":"an-alias","prompt":"a"}"#;
    refused(read_with(plain, &limits(1..=1)), "image", "MissingRequired");
    let image = r#"{"model":"m","prompt":"a","image":{"url":"https://a.example/1.png"}}"#;
    refused(read_with(image, &limits(0..=0)), "image", "");
    let mut longer = limits(0..=1);
    longer.video.seconds_min = 9;
    refused(read_with(plain, &longer), "duration", "DurationOutOfRange");
}

/// Spec section 2.6: a number. xAI reads an integer.
#[test]
fn whole_seconds_are_taken_in_any_spelling() {
    for (duration, seconds) in [("6", 6), ("6.0", 6), ("1.5e1", 15), ("1E0", 1)] {
        let with =
            |text: &str| format!(r#"{{"model":"gif-video","duration":{text},"prompt":"a"}}"#);
        let body = with(duration);
        let call = read(&body).expect("valid");
        assert_eq!(call.max_usage(), Usage { seconds, ..Usage::ZERO }, "{duration}");
        let sent = submit(&*call).body("gif-video", &Bytes::from(body));
        assert_eq!(sent, with(&seconds.to_string()), "{duration}");
    }
}

fn refused(read: Result<Box<dyn Call>, GatewayError>, param: &str, code: &str) {
    let error = read.expect_err(param);
    let code = match code {
        "" => "InvalidParameter".to_owned(),
        code => format!("InvalidParameter.{code}"),
    };
    assert_eq!(error.param.as_deref(), Some(param), "{error}");
    assert_eq!(error.code, Some(code.as_str()), "{error}");
}

#[test]
fn a_submit_answers_with_the_id_of_a_request() {
    let call = read(REQUEST).expect("valid");
    let read = |answer: &str| submit(&*call).read(&Bytes::copy_from_slice(answer.as_bytes()));
    assert!(matches!(read(RESPONSE), Ok(id) if id == "d97415a1-5796-b7ec-379f-4e6819e08fdf"));
    assert_eq!(XaiTasks.query_path("d97415a1"), "/v1/videos/d97415a1", "not `…/generations/…`");
    for answer in ["", "[]", "{}", r#"{"request_id":5}"#, r#"{"request_id":"a/b"}"#] {
        assert!(matches!(read(answer), Err(UpstreamFault::Upstreams(_))), "{answer}");
    }
    assert!(matches!(read(ERROR), Err(UpstreamFault::Relayed(400, _))));
}

#[test]
fn refusals_of_both_shapes_are_read() {
    let read = |status, body: &str| fault(status, &Bytes::copy_from_slice(body.as_bytes()));
    let UpstreamFault::Relayed(400, flat) = read(400, ERROR) else { panic!("the customer's") };
    let expected = json!({"error": {"message": "The image could not be downloaded.",
        "type": "invalid_request_error", "param": null,
        "code": "Client specified an invalid argument"}});
    assert_eq!(serde_json::from_slice::<Value>(&flat).expect("JSON"), expected);
    let nested = r#"{"error":{"message":"No such aspect ratio","type":"invalid_request_error","param":"aspect_ratio","code":null}}"#;
    assert!(matches!(read(422, nested), UpstreamFault::Relayed(422, body) if body == nested));

    let flat = |message: &str| format!(r#"{{"code":"c","error":"{message}"}}"#);
    let key = flat("Incorrect API key provided: xai-1***9. You can obtain an API key from …");
    assert!(matches!(read(400, &key), UpstreamFault::Upstreams(_)), "the operator's key");
    let credits = flat("Your team 1a2b has used all available credits.");
    assert!(matches!(read(429, &credits), UpstreamFault::Upstreams(_)));
    assert!(matches!(read(403, &credits), UpstreamFault::Upstreams(_)));
    assert!(matches!(read(429, &flat("Too many requests")), UpstreamFault::Busy));
    assert!(matches!(read(503, &flat("m")), UpstreamFault::Upstreams(_)));
    assert!(matches!(read(404, &flat("m")), UpstreamFault::Upstreams(_)));
    assert!(matches!(read(400, "<html>"), UpstreamFault::Upstreams(_)));

    let moderated = flat("Content violates usage guidelines. Team: 1a2b, API key ID: 3c4d");
    let UpstreamFault::Customers(error) = read(403, &moderated) else { panic!("the customer's") };
    assert_eq!(error.code, Some("DataInspectionFailed"));
    assert!(!error.to_string().contains("1a2b"), "the operator's ids: {error}");
}

fn report(status: u16, answer: &str) -> Result<TaskReport, UpstreamFault> {
    let facts = submit(&*read(REQUEST).expect("valid")).facts();
    XaiTasks.read(status, &Bytes::copy_from_slice(answer.as_bytes()), &facts)
}

#[test]
fn every_status_has_its_state() {
    let with = |status: &str| RECORD.replace("\"done\"", &format!("\"{status}\""));
    for (answer, state, seconds) in [
        (RECORD.to_owned(), TaskState::Succeeded, Some(10)),
        (RECORD.replace("\"status\":\"done\",", ""), TaskState::Succeeded, Some(10)),
        (r#"{"status":"pending","progress":5}"#.to_owned(), TaskState::Running, None),
        (with("expired"), TaskState::Expired, None),
        (with("failed"), TaskState::Failed, None),
        (RECORD.replace(":10", ":9.2"), TaskState::Succeeded, Some(10)),
        (RECORD.replace(":10", ":6"), TaskState::Succeeded, Some(6)),
        (RECORD.replace(":10", ":100"), TaskState::Succeeded, Some(100)),
        (RECORD.replace("\"duration\":10", "\"x\":0"), TaskState::Succeeded, None),
    ] {
        let read = report(200, &answer).expect(&answer);
        let usage = seconds.map(|seconds| Usage { seconds, ..Usage::ZERO });
        assert_eq!((read.state, read.usage), (state, usage), "{answer}");
    }
    assert_eq!(report(202, r#"{"status":"pending"}"#).expect("a report").state, TaskState::Running);
    for (status, answer) in [
        (404, ERROR),
        (429, ERROR),
        (500, RECORD),
        (200, "<html>"),
        (200, "{}"),
        (200, ERROR),
        (200, &with("dancing")),
        (200, r#"{"status":"done","video":{"duration":10,"respect_moderation":true}}"#),
        (200, r#"{"status":"done"}"#),
    ] {
        assert!(report(status, answer).is_err(), "{status} {answer}");
    }
}

#[test]
fn what_xai_bills_is_read() {
    let read = report(200, RECORD).expect("a report");
    assert_eq!(read.billed, Some(Nanousd::new(500_000_000)), "half a dollar");
    let ticks = |text: &str| report(200, &RECORD.replace("5000000000", text)).expect("read").billed;
    assert_eq!(ticks("11"), Some(Nanousd::new(2)), "rounded up");
    for none in ["-1", "0.5", "null", "\"5\""] {
        assert_eq!(ticks(none), None, "{none}");
    }
}

fn shown(report: &TaskReport) -> Value {
    let facts = submit(&*read(REQUEST).expect("valid")).facts();
    let record = XaiTasks.record(&TaskRecordView {
        id: "gt_1",
        model: "gif-video",
        state: report.state,
        facts: &facts,
        document: &report.document,
        created_at: 1,
        updated_at: 2,
    });
    serde_json::from_str(&record).expect("JSON")
}

#[test]
fn the_record_is_normalised_and_hides_what_the_operator_pays() {
    let record = shown(&report(200, RECORD).expect("a report"));
    let expected = json!({"id": "gt_1", "object": "video.generation", "model": "gif-video",
        "status": "succeeded", "created_at": 1, "updated_at": 2, "duration": 10,
        "resolution": "480p", "aspect_ratio": "16:9", "seed": null, "usage": {"duration": 10},
        "content": [{"video_url": "https://vidgen.x.ai/videos/d97415a1/video.mp4"}]});
    assert_eq!(record, expected);
    let failed =
        r#"{"status":"failed","error":{"code":"internal","message":"The model fell over"}}"#;
    let record = shown(&report(200, failed).expect("a report"));
    assert_eq!(record["error"], json!({"code": "internal", "message": "The model fell over"}));
    let refused = failed.replace(
        "The model fell over",
        "Content violates usage guidelines. Team: 12345, API key ID: 12345",
    );
    let record = shown(&report(200, &refused).expect("a report"));
    assert_eq!(record["error"]["code"], "DataInspectionFailed");
    assert!(!record.to_string().contains("12345"), "{record}");
    let key = failed.replace("The model fell over", "API key 12345 is disabled");
    let record = shown(&report(200, &key).expect("a report"));
    assert_eq!(record["error"]["code"], "InternalError");
    assert!(!record.to_string().contains("12345"), "{record}");
}

#[test]
fn a_video_that_is_withheld_is_charged_and_says_so() {
    let withheld = r#"{"status":"done","video":{"duration":6,"respect_moderation":false}}"#;
    let read = report(200, withheld).expect("a report");
    let charged = Usage { seconds: 6, ..Usage::ZERO };
    assert_eq!((read.state, read.usage), (TaskState::Failed, Some(charged)));
    let record = shown(&read);
    assert_eq!(record["error"]["code"], "moderated");
    assert!(record["error"]["message"].to_string().contains("charged"), "{record}");
    assert_eq!((&record["usage"], record.get("content")), (&json!({"duration": 6}), None));
    let without_report = withheld.replace("\"duration\":6,", "");
    let read = report(200, &without_report).expect("a report");
    assert_eq!(read.usage, Some(Usage { seconds: 10, ..Usage::ZERO }), "what was asked for");
    let shown_anyway = RECORD.replace("true", "false");
    let read = report(200, &shown_anyway).expect("a report");
    assert_eq!(read.state, TaskState::Succeeded, "it was delivered");
}
