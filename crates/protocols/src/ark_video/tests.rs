use serde_json::json;

use super::*;
use crate::task::Submit;

const REQUEST: &str = include_str!("../../fixtures/ark_video/request.json");
const RESPONSE: &str = include_str!("../../fixtures/ark_video/response.json");
const RECORD: &str = include_str!("../../fixtures/ark_video/record.json");
const ERROR: &str = include_str!("../../fixtures/ark_video/error.json");

const V20: &str = "df-sf-2-0-260128";
const FAST: &str = "df-sf-2-0-fast-260128";
const PRO: &str = "sf-1-5-pro-251215";
const OLD: &str = "sf-1-0-pro-250528";
const TEXT: &str = r#"{"type":"text","text":"a cat"}"#;

fn limits(model: &str) -> ModelLimits {
    use Resolution::{P480, P720, P1080};
    let resolutions = if model == FAST { vec![P480, P720] } else { vec![P480, P720, P1080] };
    let video = VideoLimits { resolutions, seconds_min: 4, seconds_max: 15, minus_one: true };
    // A bound that is too low here must not make the hold lower than what can be made.
    ModelLimits { output_tokens_max: 1000, video, ..ModelLimits::default() }
}

fn read(body: &str) -> Result<Box<dyn Call>, GatewayError> {
    let object = Object::parse(body.as_bytes()).expect("JSON");
    let model = object.get("model").and_then(|model| Some(model.as_str()?.into_owned()));
    ArkVideo.read(&Request::Json(object), &limits(&model.unwrap_or_default()))
}

fn submit(call: &dyn Call) -> &(dyn Submit + Sync) {
    call.submit().expect("it starts a task")
}

fn body(model: &str, content: &str, more: &str) -> String {
    format!(r#"{{"model":"{model}","content":[{content}]{more}}}"#)
}

fn block(kind: &str, url: &str) -> String {
    format!(r#"{{"type":"{kind}","{kind}":{{"url":"{url}"}}}}"#)
}

const IMAGE: &str = r#"{"type":"image_url","image_url":{"url":"https://a.example/1.png"}}"#;
const DRAFT: &str = r#"{"type":"draft_task","draft_task":{"task_id":"cgt-1-a"}}"#;

#[test]
fn only_wait_is_cut_out() {
    let call = read(REQUEST).expect("valid");
    assert!(submit(&*call).waits());
    let body = Bytes::from_static(REQUEST.as_bytes());
    let expected = REQUEST.replace("\"wait\" : true, ", "");
    assert_eq!(submit(&*call).body(V20, &body), expected, "the same name upstream");
    let renamed = expected.replace(V20, "dreamina-seedance-2-0-260128");
    assert_eq!(submit(&*call).body("dreamina-seedance-2-0-260128", &body), renamed);
    let without = REQUEST.replace("\"wait\" : true", "\"priority\" : 5");
    let call = read(&without).expect("valid");
    let body = Bytes::from(without);
    let sent = submit(&*call).body(V20, &body);
    assert_eq!(sent.as_ptr(), body.as_ptr(), "without `wait` it is the same memory");
    assert_eq!(submit(&*call).webhook_url(), None);
    assert_eq!(submit(&*call).headers(), []);
    assert_eq!(call.min_usage(), Usage::ZERO);
}

#[test]
fn the_hold_covers_the_largest_video_that_can_come_of_it() {
    let max_usage = |body: &str| {
        let max_usage = read(body).expect(body).max_usage();
        (max_usage.seconds, max_usage.output_tokens)
    };
    let tokens = |seconds: u64, pixels: u64| (seconds, (seconds * 24 * pixels).div_ceil(1024));
    let of = |more: &str| max_usage(&body(V20, TEXT, more));
    assert_eq!(of(r#","duration":5,"resolution":"480p""#), tokens(5, 480_000));
    assert_eq!(of(r#","duration":5,"resolution":"720p""#), tokens(5, 970_000));
    assert_eq!(of(r#","duration":5,"resolution":"1080p""#), tokens(5, 2_100_000));
    assert_eq!(of(r#","duration":5"#), tokens(5, 2_100_000), "the model's choice");
    assert_eq!(of(r#","duration":-1,"resolution":"480p""#), tokens(15, 480_000));
    assert_eq!(of(r#","resolution":"480p""#), tokens(15, 480_000));
    assert_eq!(max_usage(&body(FAST, TEXT, r#","duration":4"#)), tokens(4, 970_000));
    let video = block("video_url", "https://a.example/1.mp4");
    let video = body(V20, &video, r#","duration":5,"resolution":"720p""#);
    assert_eq!(max_usage(&video), tokens(20, 970_000), "and the seconds that go in");
    assert_eq!(max_usage(REQUEST), tokens(25, 970_000));
    let draft = body(PRO, TEXT, r#","duration":5,"draft":true"#);
    assert_eq!(max_usage(&draft), tokens(5, 480_000), "drafts are small");
    let from_draft = body(PRO, DRAFT, r#","duration":5,"resolution":"480p""#);
    assert_eq!(max_usage(&from_draft), tokens(15, 480_000), "as long as the draft was");
    let frames = body(OLD, TEXT, r#","duration":5,"frames":289,"resolution":"480p""#);
    assert_eq!(max_usage(&frames), tokens(13, 480_000));
    let frames = body(OLD, TEXT, r#","duration":5,"frames":29,"resolution":"480p""#);
    assert_eq!(max_usage(&frames), tokens(5, 480_000));
    for text in [
        "a cat --rs 1080p --dur 12",
        "--frames 289 a cat",
        "a\\n--Resolution 1080p",
        "a cat.--rs 1080p,--dur 12",
        "a cat--rs 1080p",
        "a cat(--rs=1080p)",
        "a cat ---rs 1080p",
        "\\u002d\\u002drs 1080p",
        "猫--rs 1080p",
    ] {
        let text = format!(r#"{{"type":"text","text":"{text}"}}"#);
        let body = body(OLD, &text, r#","duration":5,"resolution":"480p""#);
        assert_eq!(max_usage(&body), tokens(15, 2_100_000), "{body}");
        assert_eq!(read(&body).expect("valid").traits().resolution, None, "{body}");
    }
    let parted = r#"{"type":"text","text":"a cat -"},{"type":"text","text":"-rs 1080p"}"#;
    let parted = body(OLD, parted, r#","duration":5,"resolution":"480p""#);
    assert_eq!(max_usage(&parted), tokens(15, 2_100_000), "as it reads when it is put together");
    let dashes = body(V20, r#"{"type":"text","text":"a cat -- or --2 -rs"}"#, r#","duration":5"#);
    assert_eq!(max_usage(&dashes), tokens(5, 2_100_000));
    let drafted = r#"{"type":"text","text":"a cat --rs 1080p"}"#;
    let drafted = body(PRO, drafted, r#","duration":5,"draft":true"#);
    assert_eq!(max_usage(&drafted), tokens(15, 2_100_000), "nobody knows which counts");
}

#[test]
fn the_price_can_depend_on_the_options() {
    let traits = |body: &str| read(body).expect(body).traits();
    let plain = Traits { draft: Some(false), video_input: Some(false), ..Traits::default() };
    assert_eq!(traits(&body(V20, TEXT, "")), Traits { audio: Some(true), ..plain });
    let silent = body(V20, TEXT, r#","generate_audio":false,"resolution":"720p""#);
    let p720 = Some(Resolution::P720);
    assert_eq!(traits(&silent), Traits { audio: Some(false), resolution: p720, ..plain });
    assert_eq!(traits(&body(OLD, TEXT, "")), Traits { audio: Some(false), ..plain });
    assert_eq!(traits(&body("an-alias", TEXT, "")), plain, "nobody knows whether it has sound");
    let draft = body(PRO, TEXT, r#","draft":true,"resolution":"480p""#);
    let p480 = Some(Resolution::P480);
    assert_eq!(
        traits(&draft),
        Traits { audio: Some(true), draft: Some(true), resolution: p480, ..plain }
    );
    let from_draft = body(PRO, DRAFT, r#","generate_audio":false"#);
    assert_eq!(traits(&from_draft), plain, "the draft's sound, not what is asked for now");
    let video = block("video_url", "https://a.example/1.mp4");
    assert_eq!(traits(&body(V20, &video, "")).video_input, Some(true));
    let flags = |text: &str| {
        let block = format!(r#"{{"type":"text","text":"{text}"}}"#);
        let traits = traits(&body(PRO, &block, r#","generate_audio":false,"draft":true"#));
        (traits.audio, traits.draft)
    };
    assert_eq!(flags("a cat --rs 480p"), (Some(false), Some(true)));
    assert_eq!(flags("a cat --generate_Audio true"), (None, Some(true)));
    assert_eq!(flags("a cat --draft false"), (Some(false), None));
}

#[test]
fn what_is_kept_with_the_task() {
    let facts = submit(&*read(REQUEST).expect("valid")).facts();
    assert_eq!((facts.seconds, facts.expires_after_s), (10, 172_800));
    assert_eq!((facts.resolution.as_str(), facts.aspect_ratio.as_str()), ("720p", "adaptive"));
    let late = body(V20, TEXT, r#","execution_expires_after":3600"#);
    assert_eq!(submit(&*read(&late).expect("valid")).facts().expires_after_s, 3600);
}

#[test]
fn every_task_that_is_built_on_must_be_the_customers() {
    let tasks = |content: &str| submit(&*read(&body(PRO, content, "")).expect(content)).tasks();
    assert_eq!(tasks(TEXT), Vec::<String>::new());
    assert_eq!(tasks(DRAFT), ["cgt-1-a"]);
    let native = r#"{"type":"draft_task","draft_task":{"id":"cgt-2-b"}}"#;
    assert_eq!(tasks(&format!("{DRAFT},{native}")), ["cgt-1-a", "cgt-2-b"]);
    let both = r#"{"type":"draft_task","draft_task":{"task_id":"cgt-1-a","id":"cgt-2-b"}}"#;
    assert_eq!(tasks(both), ["cgt-1-a", "cgt-2-b"], "whichever the upstream reads");
}

#[test]
fn what_the_contract_allows_is_taken() {
    let image = |role: &str| IMAGE.replace("\"type\"", &format!("\"role\":\"{role}\",\"type\""));
    let video = block("video_url", "http://a.example/1.mp4");
    let audio = block("audio_url", "https://a.example/1.wav");
    let with_role = r#"{"type":"audio_url","audio_url":{"url":"https://a.example/1.wav"},"role":"reference_audio"}"#;
    let data = block("image_url", "data:image/jpeg;base64,AAAA");
    for (model, content, more) in [
        (V20, TEXT.to_owned(), r#","ratio":"21:9","seed":0,"camera_fixed":false,"priority":1"#),
        (V20, format!("{TEXT},{},{}", image("first_frame"), image("last_frame")), ""),
        (V20, format!("{},{video},{audio}", image("reference_image")), ""),
        (V20, with_role.to_owned() + "," + IMAGE, r#","return_last_frame":true"#),
        (FAST, IMAGE.to_owned(), r#","seed":-1,"generate_audio":true"#),
        (PRO, DRAFT.to_owned(), r#","duration":-1,"wait":false"#),
        (PRO, TEXT.to_owned(), r#","draft":true,"safety_identifier":"u1""#),
        (OLD, data, r#","frames":57,"generate_audio":false,"draft":false,"seed":4294967295"#),
        ("an-alias", format!("{video},{DRAFT}"), r#","draft":true,"frames":29,"duration":-1"#),
        (
            "an-alias",
            TEXT.to_owned(),
            r#","generate_audio":true,"callback_url":"https://10.0.0.1/""#,
        ),
        (V20, TEXT.to_owned(), r#","execution_expires_after":259200,"duration":null"#),
    ] {
        let body = body(model, &content, more);
        assert!(read(&body).is_ok(), "{body}: {:?}", read(&body));
    }
}

/// A seed of -1, which leaves the choice to the model, needs the operator's permission.
#[test]
fn minus_one_is_refused_unless_the_operator_says_otherwise() {
    for (field, code) in
        [("duration", "InvalidParameter.DurationOutOfRange"), ("seed", "InvalidParameter")]
    {
        let body = body(V20, TEXT, &format!(r#","{field}":-1"#));
        assert!(read(&body).is_ok(), "{field}");
        let object = Object::parse(body.as_bytes()).expect("JSON");
        let mut limits = limits(V20);
        limits.video.minus_one = false;
        let error = ArkVideo.read(&Request::Json(object), &limits).expect_err("out of range");
        assert_eq!((error.param.as_deref(), error.code), (Some(field), Some(code)));
    }
}

fn refused(body: &str, param: &str, code: &str) {
    let error = read(body).expect_err(body);
    let code = match code {
        "" => "InvalidParameter".to_owned(),
        code => format!("InvalidParameter.{code}"),
    };
    assert_eq!(error.param.as_deref(), Some(param), "{body}: {error}");
    assert_eq!(error.code, Some(code.as_str()), "{body}: {error}");
}

/// Spec section 7, the rows that a gateway can know, for fields.
#[test]
fn wrong_fields_are_refused_with_the_codes_of_the_contract() {
    for (model, more, param, code) in [
        (V20, r#","resolution":"4k""#, "resolution", "NotInEnum"),
        (V20, r#","resolution":720"#, "resolution", "NotInEnum"),
        (V20, r#","resolution":"720P""#, "resolution", "NotInEnum"),
        (FAST, r#","resolution":"1080p""#, "resolution", "ResolutionNotSupported"),
        (PRO, r#","draft":true,"resolution":"720p""#, "resolution", "ResolutionNotSupported"),
        (V20, r#","ratio":"2:1""#, "ratio", "NotInEnum"),
        (V20, r#","ratio":1.5"#, "ratio", "NotInEnum"),
        (V20, r#","duration":3"#, "duration", "DurationOutOfRange"),
        (V20, r#","duration":16"#, "duration", "DurationOutOfRange"),
        (V20, r#","duration":0"#, "duration", "DurationOutOfRange"),
        (V20, r#","duration":-2"#, "duration", "DurationOutOfRange"),
        (OLD, r#","duration":-1"#, "duration", "DurationOutOfRange"),
        (V20, r#","duration":5.5"#, "duration", ""),
        (V20, r#","duration":"5""#, "duration", ""),
        (V20, r#","seed":-2"#, "seed", ""),
        (V20, r#","seed":4294967296"#, "seed", ""),
        (V20, r#","seed":1.5"#, "seed", ""),
        (V20, r#","execution_expires_after":3599"#, "execution_expires_after", ""),
        (V20, r#","execution_expires_after":259201"#, "execution_expires_after", ""),
        (OLD, r#","frames":28"#, "frames", ""),
        (OLD, r#","frames":25"#, "frames", ""),
        (OLD, r#","frames":30"#, "frames", ""),
        (OLD, r#","frames":293"#, "frames", ""),
        (PRO, r#","frames":29"#, "frames", ""),
        (V20, r#","frames":29"#, "frames", ""),
        ("an-alias", r#","frames":30"#, "frames", ""),
        (OLD, r#","generate_audio":true"#, "generate_audio", ""),
        (V20, r#","generate_audio":"yes""#, "generate_audio", ""),
        (V20, r#","draft":true"#, "draft", ""),
        (OLD, r#","draft":true"#, "draft", ""),
        (PRO, r#","draft":1"#, "draft", ""),
        (V20, r#","camera_fixed":1"#, "camera_fixed", ""),
        (V20, r#","watermark":"no""#, "watermark", ""),
        (V20, r#","return_last_frame":0"#, "return_last_frame", ""),
        (V20, r#","wait":"true""#, "wait", ""),
        (V20, r#","Wait":true"#, "Wait", ""),
        (V20, r#","Draft":true"#, "Draft", ""),
        (V20, r#","callback_url":5"#, "callback_url", ""),
        (V20, r#","callback_url":"http://example.com/""#, "callback_url", "UrlInvalid"),
        (V20, r#","callback_url":"example.com""#, "callback_url", "UrlInvalid"),
        (V20, r#","callback_url":"https://a b/""#, "callback_url", "UrlInvalid"),
        (V20, r#","webhook_url":"https://example.com/""#, "webhook_url", ""),
        (V20, r#","tools":[{"type":"web_search"}]"#, "tools", ""),
        (V20, r#","n":2"#, "n", ""),
        (V20, r#","service_tier":"priority""#, "service_tier", "NotInEnum"),
        (V20, r#","service_tier":5"#, "service_tier", "NotInEnum"),
    ] {
        refused(&body(model, TEXT, more), param, code);
    }
    refused(&format!(r#"{{"content":[{TEXT}]}}"#), "model", "MissingRequired");
    refused(&format!(r#"{{"model":"","content":[{TEXT}]}}"#), "model", "MissingRequired");
    refused(&format!(r#"{{"model":"{V20}"}}"#), "content", "MissingRequired");
    refused(&format!(r#"{{"model":"{V20}","content":null}}"#), "content", "MissingRequired");
    refused(&format!(r#"{{"model":"{V20}","content":"a cat"}}"#), "content", "");
}

#[test]
fn what_a_video_begins_with_must_be_there() {
    let with_role = |role: &str| format!(r#"{{"role":"{role}",{}"#, &IMAGE[1..]);
    let (first, last) = (with_role("first_frame"), with_role("last_frame"));
    const I2V: &str = "seedance-1-0-lite-i2v-250428";
    for (model, content, is_missing) in [
        (V20, last.clone(), false),
        (V20, format!("{last},{first}"), false),
        (V20, format!("{IMAGE},{last}"), false),
        (I2V, TEXT.to_owned(), true),
        (I2V, format!("{TEXT},{IMAGE}"), false),
        (V20, TEXT.to_owned(), false),
    ] {
        let body = body(model, &content, "");
        match is_missing {
            true => refused(&body, "content", "MissingRequired"),
            false => drop(read(&body).expect(&body)),
        }
    }
    let text = body("an-alias", TEXT, "");
    let object = Object::parse(text.as_bytes()).expect("JSON");
    let images = crate::limits::ImageLimits { references_min: 1, ..Default::default() };
    let limits = ModelLimits { images, ..limits(V20) };
    let error = ArkVideo.read(&Request::Json(object), &limits).expect_err("without an image");
    assert_eq!(error.code, Some("InvalidParameter.MissingRequired"), "{error}");
}

/// Blocks that are wrong are refused by their parameter and the contract's code.
#[test]
fn wrong_blocks_are_refused_with_the_codes_of_the_contract() {
    let (kind, role) = ("content[0].type", "content[0].role");
    let (image, video, audio) =
        ("content[0].image_url.url", "content[0].video_url.url", "content[0].audio_url.url");
    let blank = r#"{"type":"text","text":" \n"}"#;
    let with_role = |block: &str, role: &str| format!(r#"{{"role":{role},{}"#, &block[1..]);
    let url = |url: &str| block("image_url", url);
    let sound = block("audio_url", "https://a.example/1.mp3");
    let clip = block("video_url", "https://a.example/1.mp4");
    for (model, content, param, code) in [
        (V20, String::new(), "content", "ContentEmpty"),
        (V20, blank.to_owned(), "content", "ContentEmpty"),
        (V20, format!("{blank},{blank}"), "content", "ContentEmpty"),
        (V20, sound.clone(), "content", "MissingRequired"),
        (V20, r#""a cat""#.to_owned(), "content[0]", ""),
        (V20, format!(r#"{TEXT},{{"type":"text","type":"text"}}"#), "content[1]", ""),
        (V20, r#"{"text":"a cat"}"#.to_owned(), kind, "MissingRequired"),
        (V20, r#"{"type":"music","music":"a"}"#.to_owned(), kind, "NotInEnum"),
        (V20, r#"{"type":5}"#.to_owned(), kind, "NotInEnum"),
        (V20, r#"{"type":"text","Text":"a"}"#.to_owned(), "Text", ""),
        (V20, r#"{"type":"text"}"#.to_owned(), "content[0].text", "MissingRequired"),
        (V20, r#"{"type":"text","text":["a"]}"#.to_owned(), "content[0].text", ""),
        (V20, with_role(TEXT, r#""first_frame""#), role, "UnsupportedRole"),
        (V20, with_role(IMAGE, r#""middle_frame""#), role, "UnsupportedRole"),
        (V20, with_role(IMAGE, r#""reference_video""#), role, "UnsupportedRole"),
        (V20, with_role(IMAGE, "1"), role, "UnsupportedRole"),
        (V20, with_role(&clip, r#""first_frame""#), role, "UnsupportedRole"),
        (
            V20,
            IMAGE.replace("{\"url\"", "{\"role\":\"first_frame\",\"url\""),
            "content[0].image_url.role",
            "UnsupportedRole",
        ),
        (V20, r#"{"type":"image_url"}"#.to_owned(), "content[0].image_url", "MissingRequired"),
        (V20, r#"{"type":"image_url","image_url":{}}"#.to_owned(), image, "MissingRequired"),
        (
            V20,
            r#"{"type":"image_url","image_url":"https://a.example/1.png"}"#.to_owned(),
            "content[0].image_url",
            "",
        ),
        (V20, r#"{"type":"image_url","image_url":{"url":5}}"#.to_owned(), image, "UrlInvalid"),
        (V20, url("a.png"), image, "UrlInvalid"),
        (V20, url("ftp://a.example/1.png"), image, "UrlInvalid"),
        (V20, url("asset://asset-1"), image, "UrlInvalid"),
        (V20, url("https://a.example/1 2.png"), image, "UrlInvalid"),
        (V20, url("https://a.example/1.pdf"), image, "UnsupportedImageFormat"),
        (V20, url("data:text/plain;base64,AAAA"), image, "UnsupportedImageFormat"),
        (V20, block("video_url", "https://a.example/1.txt"), video, "UnsupportedVideoFormat"),
        (V20, block("video_url", "https://a.example/1.png"), video, "UnsupportedVideoFormat"),
        (V20, block("audio_url", "https://a.example/1.html"), audio, "UnsupportedAudioFormat"),
        (FAST, clip.clone(), kind, ""),
        (PRO, clip.clone(), kind, ""),
        (OLD, clip, kind, ""),
        (PRO, sound.clone(), kind, ""),
        (OLD, sound, kind, ""),
        (V20, DRAFT.to_owned(), kind, ""),
        (OLD, DRAFT.to_owned(), kind, ""),
        (PRO, r#"{"type":"draft_task"}"#.to_owned(), "content[0].draft_task", "MissingRequired"),
        (
            PRO,
            r#"{"type":"draft_task","draft_task":{}}"#.to_owned(),
            "content[0].draft_task.task_id",
            "MissingRequired",
        ),
        (PRO, DRAFT.replace("\"cgt-1-a\"", "5"), "content[0].draft_task.task_id", ""),
        (PRO, DRAFT.replace("task_id", "Task_Id"), "Task_Id", ""),
    ] {
        refused(&body(model, &content, ""), param, code);
    }
}

#[test]
fn what_nobody_knows_of_in_a_block_is_refused() {
    let beside =
        r#"{"type":"text","text":"a","video_url":{"url":"https://a.example/1.mp4"}}"#.to_owned();
    let within = IMAGE.replace("{\"url\"", "{\"detail\":\"high\",\"url\"");
    let draft = DRAFT.replace("{\"task_id\"", "{\"version\":2,\"task_id\"");
    for (model, content, param) in [
        (V20, beside, "content[0].video_url"),
        (V20, within, "content[0].image_url.detail"),
        (PRO, draft, "content[0].draft_task.version"),
    ] {
        refused(&body(model, &content, ""), param, "");
    }
}

fn report(status: u16, answer: &str) -> Result<TaskReport, UpstreamFault> {
    let facts = submit(&*read(REQUEST).expect("valid")).facts();
    ArkTasks.read(status, &Bytes::copy_from_slice(answer.as_bytes()), &facts)
}

#[test]
fn a_submit_answers_with_the_id_of_a_task() {
    let call = read(REQUEST).expect("valid");
    let read = |answer: &str| submit(&*call).read(&Bytes::copy_from_slice(answer.as_bytes()));
    assert!(matches!(read(RESPONSE), Ok(id) if id == "cgt-20260122163918-abcde"));
    assert_eq!(
        ArkTasks.query_path("cgt-1-a"),
        "/api/v3/contents/generations/tasks/cgt-1-a",
        "below the base URL"
    );
    for answer in ["", "[]", "{}", r#"{"id":""}"#, r#"{"id":"../../x"}"#] {
        assert!(matches!(read(answer), Err(UpstreamFault::Upstreams(_))), "{answer}");
    }
    assert!(matches!(read(ERROR), Err(UpstreamFault::Relayed(400, body)) if body == ERROR));
    let refusal = submit(&*call).refusal(400, &Bytes::from_static(ERROR.as_bytes()));
    assert!(
        matches!(refusal, UpstreamFault::Relayed(400, body) if body == ERROR),
        "in its own words"
    );
    assert!(ArkTasks.is_native());
}

#[test]
fn every_status_has_its_state() {
    for (word, state) in [
        ("queued", TaskState::Queued),
        ("running", TaskState::Running),
        ("succeeded", TaskState::Succeeded),
        ("failed", TaskState::Failed),
        ("expired", TaskState::Expired),
        ("cancelled", TaskState::Cancelled),
    ] {
        let read = report(200, &RECORD.replace("succeeded", word)).expect(word);
        assert_eq!(read.state, state, "{word}");
        assert_eq!(read.usage.is_some(), word == "succeeded", "{word}");
    }
    for (status, answer) in [
        (404, r#"{"error":{"code":"ResourceNotFound","message":"m"}}"#),
        (404, ""),
        (429, "{}"),
        (500, RECORD),
        (200, "<html>"),
        (200, "{}"),
        (200, ERROR),
        (200, &RECORD.replace("succeeded", "processing")),
    ] {
        assert!(report(status, answer).is_err(), "{status} {answer}");
    }
}

#[test]
fn tokens_are_what_the_upstream_counted_also_above_the_hold() {
    let max_usage = read(REQUEST).expect("valid").max_usage();
    let used = |from: &str, to: &str| report(200, &RECORD.replace(from, to)).expect("read").usage;
    let tokens = r#""completion_tokens": 411300"#;
    // The seconds that go in are billed beside those of the video.
    let reported = Usage { output_tokens: 411_300, seconds: max_usage.seconds, ..Usage::ZERO };
    assert_eq!(used("\n", "\n"), Some(reported));
    assert_eq!(used(r#""duration": 10,"#, ""), Some(reported));
    assert_eq!(
        used(r#""duration": 10,"#, r#""duration": 99,"#),
        Some(Usage { seconds: 99 + 15, ..reported })
    );
    let many = used(tokens, r#""completion_tokens": 99999999"#);
    assert_eq!(many, Some(Usage { output_tokens: 99_999_999, ..reported }));
    let total = r#""total_tokens": 411300"#;
    assert!(RECORD.contains(total), "the fixture changed");
    let more = used(total, r#""total_tokens": 500000"#);
    assert_eq!(more, Some(Usage { output_tokens: 500_000, ..reported }), "the dearer of the two");
    let all = format!("{tokens}, {total}");
    assert!(RECORD.contains(&all), "the fixture changed");
    for none in [r#""completion_tokens": 0"#, r#""completion_tokens": "x""#, r#""x": 1"#] {
        assert_eq!(used(&all, none), None, "{none}");
    }
}

fn shown(state: TaskState, document: &str) -> Value {
    let record = ArkTasks.record(&TaskRecordView {
        id: "cgt-20260122163918-abcde",
        model: V20,
        state,
        facts: &TaskFacts::default(),
        document,
        created_at: 1,
        updated_at: 2,
    });
    serde_json::from_str(&record).expect("JSON")
}

#[test]
fn the_record_is_the_upstreams_with_what_the_platform_adds() {
    let read = report(200, RECORD).expect("a report");
    let mut expected: Value = serde_json::from_str(RECORD).expect("JSON");
    assert_eq!(read.document, RECORD.trim(), "its own bytes");
    expected["object"] = "video.generation".into();
    assert_eq!(shown(TaskState::Succeeded, &read.document), expected);

    let first = shown(TaskState::Processing, "");
    let expected = json!({"id": "cgt-20260122163918-abcde", "object": "video.generation",
        "model": V20, "status": "processing", "created_at": 1});
    assert_eq!(first, expected, "before the first answer");

    let running = json!({"id": "cgt-20260122163918-abcde", "status": "running", "updated_at": 1,
        "error": null, "created_at": 7, "resolution": "720p"})
    .to_string();
    let given_up = shown(TaskState::Expired, &running);
    assert_eq!((&given_up["status"], &given_up["updated_at"]), (&json!("expired"), &json!(2)));
    assert_eq!(given_up["error"]["code"], "expired");
    assert_eq!((&given_up["created_at"], &given_up["resolution"]), (&json!(7), &json!("720p")));
    assert_eq!(given_up["model"], V20, "what the upstream left out");
    let error = task::TaskError { code: "Expired", message: "m" };
    let given_up = shown(TaskState::Expired, &ArkTasks.given_up(&running, &error));
    assert_eq!(
        (&given_up["error"]["code"], &given_up["created_at"]),
        (&json!("Expired"), &json!(7))
    );
    let unheard = shown(TaskState::Failed, &ArkTasks.given_up("", &error));
    assert_eq!((&unheard["error"]["message"], &unheard["created_at"]), (&json!("m"), &json!(1)));
    let still = shown(TaskState::Running, &running);
    assert_eq!((&still["status"], &still["error"]), (&json!("running"), &Value::Null));
}

#[test]
fn what_is_wrong_with_the_operators_account_is_not_shown() {
    let failed = |code: &str| {
        let error = format!(
            r#""status": "failed", "error": {{"code":"{code}","message":"account 12345"}}"#
        );
        report(200, &RECORD.replace(r#""status": "succeeded""#, &error)).expect("a report").document
    };
    for code in ["AccountOverdueError", "ModelNotOpen", "QuotaExceeded", "ServerOverloaded"] {
        let document = failed(code);
        let text = &document;
        assert!(!text.contains("12345") && !text.contains(code), "{text}");
        assert_eq!(shown(TaskState::Failed, &document)["error"]["code"], "InternalError");
    }
    let theirs = failed("OutputVideoSensitiveContentDetected");
    let expected =
        json!({"code": "OutputVideoSensitiveContentDetected", "message": "account 12345"});
    assert_eq!(shown(TaskState::Failed, &theirs)["error"], expected);
}
