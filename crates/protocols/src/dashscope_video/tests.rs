use super::*;
use crate::limits::{ImageLimits, VideoLimits};
use crate::task::Submit;

const REQUEST: &str = include_str!("../../fixtures/dashscope_video/request.json");
const RESPONSE: &str = include_str!("../../fixtures/dashscope_video/response.json");
const RECORD: &str = include_str!("../../fixtures/dashscope_video/record.json");
const ERROR: &str = include_str!("../../fixtures/dashscope_video/error.json");

fn limits() -> ModelLimits {
    ModelLimits {
        images: ImageLimits { references_max: 5, ..ImageLimits::default() },
        video: VideoLimits {
            resolutions: vec![Resolution::P720, Resolution::P1080],
            seconds_min: 2,
            seconds_max: 15,
            minus_one: false,
        },
        ..ModelLimits::default()
    }
}

fn read(body: &str) -> Result<Box<dyn Call>, GatewayError> {
    let object = Object::parse(body.as_bytes()).expect("JSON");
    DashscopeVideo.read(&Request::Json(object), &limits())
}

fn submit(call: &dyn Call) -> &(dyn Submit + Sync) {
    call.submit().expect("it starts a task")
}

/// A body for `model` with these members of `input` and `parameters`, and others at the top.
fn body(model: &str, top: &str, input: &str, parameters: &str) -> String {
    format!(r#"{{"model":"{model}"{top},"input":{{{input}}},"parameters":{{{parameters}}}}}"#)
}

const T27: &str = r#""resolution":"720P","duration":5"#;
const T26: &str = r#""size":"1280*720","duration":5"#;
const PROMPT: &str = r#""prompt":"a cat""#;
const IMAGE: &str = r#""img_url":"https://example.com/a.png""#;

#[test]
fn the_billing_fields_are_cut_out_and_every_other_byte_stays() {
    let call = read(REQUEST).expect("valid");
    let sent = submit(&*call).body("wan2.7-t2v", &Bytes::from_static(REQUEST.as_bytes()));
    let expected = "{ \"model\": \"wan2.7-t2v\",\n  \"input\": {\"prompt\":  \"A kitten runs in the \
                    moonlight \\ud83d\\udc31\"},\n  \"parameters\" : { \"resolution\": \"720P\", \
                    \"duration\": 5, \"prompt_extend\": true, \"watermark\":false, \"scale\": 1.50 } \
                    }\n";
    assert_eq!(std::str::from_utf8(&sent), Ok(expected));
    assert_eq!(submit(&*call).headers(), [("X-DashScope-Async", "enable")]);
    assert_eq!(submit(&*call).webhook_url(), Some("https://hooks.example.com/video?x=1"));
    assert!(!submit(&*call).waits() && submit(&*call).tasks().is_empty());
    assert_eq!(call.min_usage(), Usage::ZERO, "a submit that is refused costs nothing");
}

#[test]
fn fields_with_escapes_are_cut_out_too() {
    let body = format!(
        r#"{{"dur\u0061tion":5,"model":"vf2.7-t2v","w\u0061it":true,"input":{{{PROMPT}}},"parameters":{{{T27}}},"r\u0065solution":"720p"}}"#
    );
    let call = read(&body).expect("valid");
    assert!(submit(&*call).waits());
    let sent = submit(&*call).body("vf2.7-t2v", &Bytes::from(body));
    let expected =
        format!(r#"{{"model":"vf2.7-t2v","input":{{{PROMPT}}},"parameters":{{{T27}}}}}"#);
    assert_eq!(sent, expected);
}

#[test]
fn options_decide_the_hold_and_the_price() {
    let seconds = |body: &str| read(body).map(|call| call.max_usage().seconds);
    let video_input = |body: &str| read(body).map(|call| call.traits().video_input);
    let plain = body("vf2.7-t2v", "", PROMPT, T27);
    let call = read(&plain).expect("valid");
    assert_eq!(call.max_usage(), Usage { seconds: 5, ..Usage::ZERO });
    let facts = submit(&*call).facts();
    assert_eq!(facts.max_usage, call.max_usage());
    assert_eq!((facts.seconds, facts.expires_after_s), (5, 172_800));
    assert_eq!((facts.resolution.as_str(), facts.aspect_ratio.as_str()), ("720p", "16:9"));
    assert_eq!(
        call.traits(),
        Traits {
            resolution: Some(Resolution::P720),
            video_input: Some(false),
            ..Traits::default()
        }
    );
    let long = body(
        "m",
        r#","duration":9,"resolution":"1080p""#,
        "",
        r#""resolution":"1080P","duration":9,"audio":false"#,
    );
    let call = read(&long).expect("valid");
    assert_eq!((call.max_usage().seconds, call.traits().audio), (9, Some(false)));
    assert_eq!(call.traits().resolution, Some(Resolution::P1080));

    let reference =
        |urls: &str| body("vf2.6-r2v", "", &format!("{PROMPT},\"reference_urls\":[{urls}]"), T26);
    let image = reference(r#""https://a.example/1.png""#);
    assert_eq!((seconds(&image).ok(), video_input(&image).ok()), (Some(5), Some(Some(false))));
    let video =
        reference(r#""https://a.example/1.png","https://a.example/2.mp4","https://a.example/3""#);
    assert_eq!((seconds(&video).ok(), video_input(&video).ok()), (Some(20), Some(Some(true))));
    let unclear = reference(r#""https://a.example/1.png","https://a.example/3""#);
    assert_eq!(
        (seconds(&unclear).ok(), video_input(&unclear).ok()),
        (Some(20), Some(None)),
        "it may be a video, so the hold covers one"
    );
    for kind in ["reference_video", "first_clip"] {
        let media =
            format!(r#"{PROMPT},"media":[{{"type":"{kind}","url":"https://a.example/1"}}]"#);
        let body = body("an-alias", "", &media, T27);
        assert_eq!(seconds(&body).ok(), Some(20), "{kind}");
    }
    let older = body("m", "", r#""reference_video_urls":["https://a.example/1"]"#, T26);
    assert_eq!(seconds(&older).ok(), Some(20));
    let unknown = body("vf2.7-t2v", "", &format!(r#"{PROMPT},"clip":"https://a.example/1""#), T27);
    assert_eq!(
        (seconds(&unknown).ok(), video_input(&unknown).ok()),
        (Some(20), Some(None)),
        "what nobody knows can be a video"
    );
}

#[test]
fn a_video_that_is_given_sound_is_priced_with_sound() {
    let audio = |model: &str, input: &str, parameters: &str| {
        read(&body(model, "", input, parameters)).expect(input).traits().audio
    };
    let silent = r#""resolution":"720P","duration":5,"audio":false"#;
    let sound = r#""audio_url":"https://a.example/1.mp3""#;
    assert_eq!(audio("vf2.6-i2v-flash", IMAGE, silent), Some(false));
    assert_eq!(audio("vf2.6-i2v-flash", &format!("{IMAGE},{sound}"), silent), None);
    assert_eq!(audio("vf2.6-i2v-flash", IMAGE, &silent.replace("false", "true")), Some(true));
    let driven = r#""media":[{"type":"first_frame","url":"https://a.example/1.png"},{"type":"driving_audio","url":"https://a.example/3.mp3"}]"#;
    assert_eq!(audio("vf2.7-i2v", driven, silent), None);
    assert_eq!(audio("an-alias", &format!(r#"{PROMPT},"voice":"v""#), silent), None);
}

#[test]
fn what_would_multiply_the_bill_is_refused_unless_it_is_let_through() {
    for (field, param) in [
        ("n", "parameters.n"),
        ("N", "parameters.N"),
        ("mode", "parameters.mode"),
        ("service_tier", "parameters.service_tier"),
        ("\u{17F}ize", "parameters.\u{17F}ize"),
    ] {
        let parameters = format!(r#"{T27},"{field}":4"#);
        refused(&body("vf2.7-t2v", "", PROMPT, &parameters), param, "");
    }
    refused(&body("vf2.7-t2v", r#","service_tier":"flex""#, PROMPT, T27), "service_tier", "");
    let media = media(&REFERENCE.replace('{', r#"{"weight":2,"#));
    refused(&body("vf2.7-r2v", "", &media, T27), "input.media[0].weight", "");
    let text = body("vf2.7-t2v", "", PROMPT, &format!(r#"{T27},"mode":"pro""#));
    let object = Object::parse(text.as_bytes()).expect("JSON");
    let mut limits = limits();
    limits.pass.fields = vec!["parameters.mode".to_owned()];
    assert!(DashscopeVideo.read(&Request::Json(object), &limits).is_ok());
}

/// Spec section 2.4, what each group takes.
#[test]
fn each_group_takes_its_own_form() {
    let first = r#""media":[{"type":"first_frame","url":"https://a.example/1.png"},{"type":"last_frame","url":"https://a.example/2.png"},{"type":"driving_audio","url":"https://a.example/3.mp3"}]"#;
    let clip = r#""media":[{"type":"first_clip","url":"https://a.example/1.mp4"}]"#;
    let references = r#""media":[{"type":"reference_image","url":"https://a.example/1.png"},{"type":"reference_video","url":"https://a.example/2.mov"}]"#;
    let data = r#""img_url":"data:image/png;base64,AAAA""#;
    let urls = r#""reference_urls":["https://a.example/1.png"]"#;
    let word = r#""resolution":"720P","duration":5,"shot_type":"multi""#;
    for (model, input, parameters) in [
        ("vf2.7-t2v", PROMPT.to_owned(), T27),
        ("vf2.7-t2v-2026-04-25", PROMPT.to_owned(), T27),
        ("vf2.6-t2v", PROMPT.to_owned(), T26),
        ("vf2.6-t2v", format!(r#"{PROMPT},"audio_url":"https://a.example/1.mp3""#), T26),
        ("vf2.5-t2v-preview", format!(r#"{PROMPT},"negative_prompt":"dogs""#), T26),
        ("vf2.6-i2v", IMAGE.to_owned(), T26),
        ("vf2.6-i2v-flash", format!("{IMAGE},{PROMPT}"), word),
        ("vf2.5-i2v-preview", data.to_owned(), word),
        ("vf2.6-r2v", format!("{PROMPT},{urls}"), T26),
        ("vf2.7-i2v", first.to_owned(), T27),
        ("vf2.7-i2v", format!("{clip},{PROMPT}"), T27),
        ("vf2.7-r2v", format!("{references},{PROMPT}"), T27),
        ("happyhorse-1.0-r2v", format!("{references},{PROMPT}"), T27),
        ("an-alias", format!("{PROMPT},{IMAGE}"), word),
        ("an-alias", format!("{PROMPT},{urls}"), T26),
    ] {
        let body = body(model, "", &input, parameters);
        assert!(read(&body).is_ok(), "{body}: {:?}", read(&body));
    }
    let portrait = body(
        "vf2.6-t2v",
        r#","aspect_ratio":"9:16","resolution":"1080p","duration":10"#,
        PROMPT,
        r#""size":"1080*1920","duration":10"#,
    );
    assert!(read(&portrait).is_ok(), "{:?}", read(&portrait));
    let same = body(
        "vf2.7-t2v",
        r#","aspect_ratio":"9:16""#,
        PROMPT,
        r#""resolution":"720P","duration":5,"ratio":"9:16""#,
    );
    assert!(read(&same).is_ok(), "{:?}", read(&same));
}

fn refused(body: &str, param: &str, code: &str) {
    let error = read(body).expect_err(body);
    let code = if code.is_empty() {
        "InvalidParameter".to_owned()
    } else {
        format!("InvalidParameter.{code}")
    };
    assert_eq!(error.param.as_deref(), Some(param), "{body}: {error}");
    assert_eq!(error.code, Some(code.as_str()), "{body}: {error}");
}

#[test]
fn wrong_billing_fields_are_refused() {
    for (top, param, code) in [
        (r#","duration":1"#, "duration", "DurationOutOfRange"),
        (r#","duration":16"#, "duration", "DurationOutOfRange"),
        (r#","duration":-1"#, "duration", "DurationOutOfRange"),
        (r#","duration":5.5"#, "duration", ""),
        (r#","duration":5.0"#, "duration", ""),
        (r#","duration":"5""#, "duration", ""),
        (r#","Duration":5"#, "Duration", ""),
        (r#","resolution":"480p""#, "resolution", "ResolutionNotSupported"),
        (r#","resolution":"720P""#, "resolution", "NotInEnum"),
        (r#","resolution":"4k""#, "resolution", "NotInEnum"),
        (r#","resolution":720"#, "resolution", "NotInEnum"),
        (r#","aspect_ratio":"16x9""#, "aspect_ratio", "NotInEnum"),
        (r#","aspect_ratio":"7:5""#, "aspect_ratio", "NotInEnum"),
        (r#","aspect_ratio":1"#, "aspect_ratio", "NotInEnum"),
        (r#","wait":"yes""#, "wait", ""),
        (r#","WAIT":true"#, "WAIT", ""),
        (r#","webhook_url":5"#, "webhook_url", ""),
    ] {
        refused(&body("vf2.7-t2v", top, PROMPT, T27), param, code);
    }
    let twice = format!(
        r#"{{"model":"m","input":{{}},"parameters":{{"duration":5,"duration":10,{T27}}}}}"#
    );
    refused(&twice, "parameters", "");
    refused(r#"{"model":"vf2.7-t2v"}"#, "input", "MissingRequired");
    refused(r#"{"model":"vf2.7-t2v","input":null}"#, "input", "MissingRequired");
    refused(r#"{"model":"vf2.7-t2v","input":"a cat"}"#, "input", "");
    refused(r#"{"model":"m","input":{}}"#, "parameters", "MissingRequired");
    refused(r#"{"model":"m","input":{},"parameters":[]}"#, "parameters", "");
}

/// Spec section 7: what is http or https is a URL. The gateway does not fetch it.
#[test]
fn media_can_be_fetched_over_http() {
    let frame = media(&FRAME.replace("https", "http"));
    for (model, input, parameters) in [
        ("vf2.7-i2v", frame, T27),
        ("vf2.6-i2v", image_url(r#""http://a.example/1.png""#), T26),
        ("vf2.6-r2v", urls(r#""http://a.example/1.png""#), T26),
    ] {
        let body = body(model, "", &input, parameters);
        assert!(read(&body).is_ok(), "{body}: {:?}", read(&body).err());
    }
}

#[test]
fn what_is_recorded_is_the_ratio_that_is_made() {
    for (model, top, parameters, ratio) in [
        ("vf2.6-t2v", "", r#""size":"1280*720","duration":5"#, "16:9"),
        ("vf2.6-t2v", "", r#""size":"720*1280","duration":5"#, "9:16"),
        ("vf2.6-t2v", "", r#""size":"960*960","duration":5"#, "1:1"),
        ("vf2.6-t2v", "", r#""size":"1088*832","duration":5"#, "4:3"),
        ("vf2.6-t2v", "", r#""size":"832*1088","duration":5"#, "3:4"),
        ("vf2.6-t2v", r#","aspect_ratio":"2:3""#, r#""size":"720*1280","duration":5"#, "2:3"),
        ("vf2.7-t2v", "", r#""resolution":"720P","duration":5,"ratio":"9:16""#, "9:16"),
        ("vf2.7-t2v", "", T27, "16:9"),
    ] {
        let body = body(model, top, PROMPT, parameters);
        let facts = submit(&*read(&body).expect(&body)).facts();
        assert_eq!(facts.aspect_ratio, ratio, "{body}");
    }
}

#[test]
fn five_seconds_must_be_what_the_model_can_make() {
    let text = body("m", "", "", T27);
    let object = Object::parse(text.as_bytes()).expect("JSON");
    let mut limits = limits();
    limits.video.seconds_min = 6;
    let error = DashscopeVideo.read(&Request::Json(object), &limits).expect_err("5 is below 6");
    assert_eq!(error.code, Some("InvalidParameter.DurationOutOfRange"));
}

#[test]
fn parameters_that_say_something_else_than_what_is_billed_are_refused() {
    let (res, dur, size) = ("parameters.resolution", "parameters.duration", "parameters.size");
    let p480 = r#","resolution":"1080p""#;
    for (model, top, parameters, param, code) in [
        // Asked and paid for the one, made the other.
        ("vf2.7-t2v", p480, T27, res, ""),
        ("vf2.7-t2v", "", r#""resolution":"1080P","duration":5"#, res, ""),
        ("vf2.7-t2v", "", r#""resolution":"720p","duration":5"#, res, "NotInEnum"),
        ("vf2.7-t2v", "", r#""resolution":720,"duration":5"#, res, "NotInEnum"),
        ("vf2.7-t2v", "", r#""resolution":"720P","duration":6"#, dur, ""),
        ("vf2.7-t2v", "", r#""resolution":"720P","duration":"5""#, dur, ""),
        ("vf2.7-t2v", "", r#""resolution":"720P","duration":5.0"#, dur, ""),
        ("vf2.7-t2v", r#","duration":9"#, T27, dur, ""),
        // What is left out, the upstream decides.
        ("vf2.7-t2v", "", r#""duration":5"#, res, "MissingRequired"),
        ("vf2.7-t2v", "", r#""resolution":"720P""#, dur, "MissingRequired"),
        ("vf2.7-t2v", "", r#""resolution":"720P","duration":null"#, dur, "MissingRequired"),
        ("vf2.6-t2v", "", r#""duration":5"#, size, "MissingRequired"),
        ("vf2.6-t2v", "", T27, size, "MissingRequired"),
        ("vf2.6-i2v", "", r#""duration":5"#, res, "MissingRequired"),
        ("an-alias", "", r#""duration":5"#, res, "MissingRequired"),
        // Of the other version.
        ("vf2.7-t2v", "", T26, size, ""),
        // Sizes.
        ("vf2.6-t2v", p480, T26, size, ""),
        ("vf2.6-t2v", "", r#""size":"1920*1080","duration":5"#, size, ""),
        ("vf2.6-t2v", "", r#""size":"832*480","duration":5"#, size, ""),
        ("vf2.6-t2v", "", r#""size":"1280x720","duration":5"#, size, "NotInEnum"),
        ("vf2.6-t2v", "", r#""size":"1281*720","duration":5"#, size, "NotInEnum"),
        ("vf2.6-t2v", "", r#""size":[1280,720],"duration":5"#, size, "NotInEnum"),
        ("vf2.6-t2v", r#","aspect_ratio":"9:16""#, T26, size, "AspectRatioMismatch"),
        ("vf2.6-t2v", r#","aspect_ratio":"1:1""#, T26, size, "AspectRatioMismatch"),
        ("vf2.6-i2v", "", r#""size":"1280*720","resolution":"1080P","duration":5"#, res, ""),
        ("vf2.6-i2v", "", r#""size":"1920*1080","resolution":"720P","duration":5"#, size, ""),
        ("an-alias", "", r#""size":"1920*1080","duration":5"#, size, ""),
        // Keys that some parsers would take.
        ("vf2.7-t2v", "", r#""resolution":"720P","duration":5,"Duration":10"#, "Duration", ""),
        ("vf2.7-t2v", "", r#""resolution":"720P","duration":5,"Size":"1*1""#, "Size", ""),
        // The rest.
        (
            "vf2.7-t2v",
            r#","aspect_ratio":"16:9""#,
            r#""resolution":"720P","duration":5,"ratio":"9:16""#,
            "parameters.ratio",
            "AspectRatioMismatch",
        ),
        ("vf2.7-t2v", "", r#""resolution":"720P","duration":5,"ratio":1"#, "parameters.ratio", ""),
        (
            "vf2.7-t2v",
            "",
            r#""resolution":"720P","duration":5,"audio":"no""#,
            "parameters.audio",
            "",
        ),
    ] {
        let input = if model.contains("i2v") { IMAGE } else { PROMPT };
        refused(&body(model, top, input, parameters), param, code);
    }
}

fn urls(urls: &str) -> String {
    format!(r#"{PROMPT},"reference_urls":[{urls}]"#)
}

fn media(items: &str) -> String {
    format!(r#"{PROMPT},"media":[{items}]"#)
}

fn image_url(url: &str) -> String {
    format!(r#""img_url":{url}"#)
}

const URL: &str = r#""https://a.example/1.png""#;
const FRAME: &str = r#"{"type":"first_frame","url":"https://a.example/1.png"}"#;
const REFERENCE: &str = r#"{"type":"reference_image","url":"https://a.example/1.png"}"#;

fn input_refused(cases: &[(&str, String, &str, &str)]) {
    for (model, input, param, code) in cases {
        let parameters = if model.contains("2.6") { T26 } else { T27 };
        refused(&body(model, "", input, parameters), param, code);
    }
}

#[test]
fn input_that_is_not_for_text_to_video_is_refused() {
    let audio = format!(r#"{PROMPT},"audio_url":{URL}"#);
    input_refused(&[
        ("vf2.7-t2v", String::new(), "input.prompt", "MissingRequired"),
        ("vf2.7-t2v", r#""prompt":"  ""#.to_owned(), "input.prompt", "ContentEmpty"),
        ("vf2.7-t2v", r#""prompt":["a"]"#.to_owned(), "input.prompt", ""),
        ("vf2.7-t2v", r#""Prompt":"a""#.to_owned(), "Prompt", ""),
        ("vf2.7-t2v", media(FRAME), "input.media", ""),
        ("vf2.7-t2v", audio.clone(), "input.audio_url", ""),
        ("vf2.6-t2v", audio, "input.audio_url", "UnsupportedAudioFormat"),
        ("vf2.6-t2v", format!("{PROMPT},{IMAGE}"), "input.img_url", ""),
        ("vf2.6-t2v", urls(URL), "input.reference_urls", ""),
        ("vf2.6-t2v", format!(r#"{PROMPT},"video_url":{URL}"#), "input.video_url", ""),
    ]);
}

#[test]
fn input_that_is_not_for_version_2_6_is_refused() {
    let (refs, img) = ("input.reference_urls", "input.img_url");
    let two = urls(&format!(r#"{URL},"data:image/png;base64,AA""#));
    let no_prompt = urls(URL).replace("\"prompt\":\"a cat\",", "");
    input_refused(&[
        ("vf2.6-i2v", PROMPT.to_owned(), img, "MissingRequired"),
        ("vf2.6-i2v", image_url("5"), img, "UrlInvalid"),
        ("vf2.6-i2v", image_url(r#""ftp://a.example/1.png""#), img, "UrlInvalid"),
        ("vf2.6-i2v", image_url(r#""https://192.168.0.1/1.png""#), img, "UrlInvalid"),
        ("vf2.6-i2v", image_url(r#""data:text/html;base64,AAAA""#), img, "UnsupportedImageFormat"),
        ("vf2.6-i2v", image_url(r#""https://a.example/1.pdf""#), img, "UnsupportedImageFormat"),
        ("vf2.6-i2v", media(FRAME), "input.media", ""),
        ("vf2.6-i2v", format!(r#"{IMAGE},"prompt":5"#), "input.prompt", ""),
        ("vf2.6-r2v", PROMPT.to_owned(), refs, "MissingRequired"),
        ("vf2.6-r2v", urls(""), refs, "MissingRequired"),
        ("vf2.6-r2v", urls(&[URL; 6].join(",")), refs, ""),
        ("vf2.6-r2v", format!(r#"{PROMPT},"reference_urls":{URL}"#), refs, ""),
        ("vf2.6-r2v", urls("{}"), "input.reference_urls[0]", "UrlInvalid"),
        ("vf2.6-r2v", two, "input.reference_urls[1]", "UrlInvalid"),
        ("vf2.6-r2v", no_prompt, "input.prompt", "MissingRequired"),
        ("an-alias", image_url(r#""file:///etc/passwd""#), img, "UrlInvalid"),
        ("an-alias", r#""prompt":5"#.to_owned(), "input.prompt", ""),
    ]);
}

/// Every model of the contract (spec section 2.4) and of family H, without what it makes a video from.
#[test]
fn each_model_misses_what_it_needs() {
    for (model, input) in [
        ("vf2.6-t2v", ""),
        ("vf2.7-t2v", ""),
        ("vf2.7-t2v-2026-04-25", ""),
        ("vf2.5-t2v-preview", ""),
        ("vf2.6-i2v", PROMPT),
        ("vf2.6-i2v-flash", PROMPT),
        ("vf2.7-i2v", PROMPT),
        ("vf2.7-i2v-2026-04-25", PROMPT),
        ("vf2.5-i2v-preview", PROMPT),
        ("vf2.6-r2v", PROMPT),
        ("vf2.6-r2v-flash", PROMPT),
        ("vf2.7-r2v", PROMPT),
        ("happyhorse-1.0-r2v", PROMPT),
    ] {
        let has_sizes = model.contains("2.6") || model.contains("2.5");
        let parameters = if has_sizes { T26 } else { T27 };
        let error = read(&body(model, "", input, parameters)).expect_err(model);
        let code = error.code.unwrap_or_default();
        assert_eq!(code, "InvalidParameter.MissingRequired", "{model}: {error}");
    }
}

#[test]
fn a_name_that_tells_nothing_needs_what_its_limits_say() {
    let needs = |references_min: u32, input: &str| {
        let text = body("an-alias", "", input, T27);
        let object = Object::parse(text.as_bytes()).expect("JSON");
        let images = ImageLimits { references_min, ..ImageLimits::default() };
        let limits = ModelLimits { images, ..limits() };
        DashscopeVideo.read(&Request::Json(object), &limits).map(drop)
    };
    let two = media(&[REFERENCE; 2].join(","));
    for (min, input, is_enough) in [
        (0, PROMPT, true),
        (1, PROMPT, false),
        (1, IMAGE, true),
        (1, &*media(""), false),
        (1, &*media(FRAME), true),
        (2, &*media(FRAME), false),
        (2, &*two, true),
    ] {
        let read = needs(min, input);
        assert_eq!(read.is_ok(), is_enough, "{min} of {input}: {read:?}");
        let code = read.err().and_then(|error| error.code);
        assert!(code.is_none_or(|code| code == "InvalidParameter.MissingRequired"), "{code:?}");
    }
}

#[test]
fn input_that_is_not_for_version_2_7_is_refused() {
    const MEDIA: &str = "input.media";
    let (kind, url) = ("input.media[0].type", "input.media[0].url");
    let frame = |old: &str, new: &str| media(&FRAME.replace(old, new));
    let with = |more: &str| media(&format!("{FRAME},{more}"));
    let ftp = media(&REFERENCE.replace("https", "ftp"));
    input_refused(&[
        ("vf2.7-i2v", PROMPT.to_owned(), MEDIA, "MissingRequired"),
        ("vf2.7-i2v", media(""), MEDIA, "MissingRequired"),
        ("vf2.7-i2v", frame("first", "last"), MEDIA, "MissingRequired"),
        ("vf2.7-i2v", with(REFERENCE), MEDIA, ""),
        ("vf2.7-i2v", format!(r#""media":{FRAME}"#), MEDIA, ""),
        ("vf2.7-i2v", IMAGE.to_owned(), "input.img_url", ""),
        ("vf2.7-i2v", frame("first_frame", "mask"), kind, "NotInEnum"),
        ("vf2.7-i2v", frame("\"first_frame\"", "5"), kind, "NotInEnum"),
        ("vf2.7-i2v", frame("\"type\"", "\"kind\""), kind, "MissingRequired"),
        ("vf2.7-i2v", frame("\"url\"", "\"uri\""), url, "MissingRequired"),
        ("vf2.7-i2v", frame("\"url\"", "\"URL\""), "URL", ""),
        ("vf2.7-i2v", frame("https", "ftp"), url, "UrlInvalid"),
        ("vf2.7-i2v", frame(".png", ".mp4"), url, "UnsupportedImageFormat"),
        ("vf2.7-i2v", frame("first_frame", "first_clip"), url, "UnsupportedVideoFormat"),
        ("vf2.7-i2v", with("5"), "input.media[1]", ""),
        ("vf2.7-r2v", media(FRAME), MEDIA, "MissingRequired"),
        ("vf2.7-r2v", media(&[REFERENCE; 6].join(",")), MEDIA, ""),
        ("vf2.7-r2v", format!(r#""media":[{REFERENCE}]"#), "input.prompt", "MissingRequired"),
        ("vf2.7-r2v", media(""), MEDIA, "MissingRequired"),
        ("happyhorse-1.0-r2v", PROMPT.to_owned(), MEDIA, "MissingRequired"),
        ("happyhorse-1.0-r2v", format!(r#"{PROMPT},"media":null"#), MEDIA, "MissingRequired"),
        ("happyhorse-1.0-r2v", media(""), MEDIA, "MissingRequired"),
        ("happyhorse-1.0-r2v", media(FRAME), MEDIA, "MissingRequired"),
        ("happyhorse-1.0-r2v", IMAGE.to_owned(), "input.prompt", "MissingRequired"),
        ("happyhorse-1.0-r2v", format!("{PROMPT},{IMAGE}"), "input.img_url", ""),
        ("happyhorse-1.0-r2v", media(&[REFERENCE; 6].join(",")), MEDIA, ""),
        ("happyhorse-1.0-r2v", ftp, url, "UrlInvalid"),
    ]);
}

fn facts() -> TaskFacts {
    submit(&*read(REQUEST).expect("valid")).facts()
}

fn report(status: u16, answer: &str) -> Result<TaskReport, UpstreamFault> {
    DashscopeTasks.read(status, &Bytes::copy_from_slice(answer.as_bytes()), &facts())
}

fn document(report: &TaskReport) -> Value {
    serde_json::from_str(&report.document).expect("JSON")
}

#[test]
fn a_submit_answers_with_the_id_of_a_task() {
    let call = read(REQUEST).expect("valid");
    let read = |answer: &str| submit(&*call).read(&Bytes::copy_from_slice(answer.as_bytes()));
    assert!(matches!(read(RESPONSE), Ok(id) if id == "0385dc79-5ff8-4d82-bcb6-24a5d1b1d1a2"));
    assert_eq!(
        DashscopeTasks.query_path("0385dc79-5ff8"),
        "/api/v1/tasks/0385dc79-5ff8",
        "below the base URL"
    );
    for answer in ["", "[]", "{}", r#"{"output":{}}"#, r#"{"output":{"task_id":"../x"}}"#] {
        assert!(matches!(read(answer), Err(UpstreamFault::Upstreams(_))), "{answer}");
    }
    let refusal = r#"{"code":"InvalidParameter","message":"m","request_id":"r"}"#;
    assert!(matches!(read(refusal), Err(UpstreamFault::Relayed(400, body)) if body == refusal));
    assert!(matches!(read(r#"{"code":"Arrearage"}"#), Err(UpstreamFault::Upstreams(_))));
    let refused =
        |status, body: &str| submit(&*call).refusal(status, &Bytes::from(body.to_owned()));
    assert!(matches!(refused(429, r#"{"code":"Throttling.RateQuota"}"#), UpstreamFault::Busy));
    assert!(matches!(refused(401, r#"{"code":"InvalidApiKey"}"#), UpstreamFault::Upstreams(_)));
    assert!(matches!(refused(400, refusal), UpstreamFault::Relayed(400, _)));
}

#[test]
fn every_status_has_its_state() {
    for (word, state) in [
        ("PENDING", TaskState::Queued),
        ("SUSPENDED", TaskState::Queued),
        ("RUNNING", TaskState::Running),
        ("SUCCEEDED", TaskState::Succeeded),
        ("FAILED", TaskState::Failed),
        ("CANCELED", TaskState::Cancelled),
    ] {
        let read = report(200, &RECORD.replace("SUCCEEDED", word)).expect(word);
        assert_eq!(read.state, state, "{word}");
        let usage = (word == "SUCCEEDED").then_some(Usage { seconds: 5, ..Usage::ZERO });
        assert_eq!(read.usage, usage, "{word}");
    }
    for answer in [
        &RECORD.replace("SUCCEEDED", "UNKNOWN"),
        &RECORD.replace("SUCCEEDED", "DANCING"),
        &RECORD.replace("video_url", "x"),
        "<html>",
        "{}",
        r#"{"code":"InternalError","message":"m"}"#,
    ] {
        assert!(report(200, answer).is_err(), "{answer}");
    }
    for status in [400, 401, 403, 404, 429, 500, 503] {
        assert!(report(status, "{}").is_err(), "{status}");
        assert!(report(status, RECORD).is_err(), "{status} with a body of a success");
    }
}

#[test]
fn usage_is_read_in_every_form_and_as_it_is_billed() {
    let original = r#"{"duration": 5, "input_video_duration": 0, "output_video_duration": 5, "video_count": 1, "SR": 720, "ratio": "16:9", "fps": 30}"#;
    assert!(RECORD.contains(original), "the fixture changed");
    let seconds = |usage: &str| {
        let read = report(200, &RECORD.replace(original, usage)).expect("a report");
        (read.usage.map(|usage| usage.seconds), document(&read)["usage"].clone())
    };
    let object = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    assert_eq!(seconds(original), (Some(5), object(original)));
    assert_eq!(
        seconds(&Value::from(original).to_string()),
        (Some(5), object(original)),
        "a string"
    );
    let older = r#"{"video_duration":4.2,"video_ratio":"1280*720","video_count":1}"#;
    assert_eq!(seconds(older), (Some(5), object(older)), "begun seconds count whole");
    assert_eq!(seconds(r#"{"duration":3}"#).0, Some(3), "less than was asked for");
    assert_eq!(seconds(r#"{"duration":500}"#).0, Some(500), "more than was asked for");
    assert_eq!(seconds(r#"{"video_duration":5,"video_count":4}"#).0, Some(20));
    let parts = r#"{"duration":5,"input_video_duration":9.5,"output_video_duration":5}"#;
    assert_eq!(seconds(parts).0, Some(15), "the parts come to more");
    for none in ["null", "5", "[]", "\"x\"", "{}", r#"{"duration":0}"#, r#"{"duration":null}"#] {
        assert_eq!(seconds(none).0, None, "{none}");
    }
}

#[test]
fn the_record_is_normalised() {
    let shown = |report: &TaskReport| {
        let record = DashscopeTasks.record(&TaskRecordView {
            id: "gt_1",
            model: "vf2.7-t2v",
            state: report.state,
            facts: &facts(),
            document: &report.document,
            created_at: 1,
            updated_at: 2,
        });
        serde_json::from_str::<Value>(&record).expect("JSON")
    };
    let done = shown(&report(200, RECORD).expect("a report"));
    let expected = json!({
        "id": "gt_1", "object": "video.generation", "model": "vf2.7-t2v", "status": "succeeded",
        "created_at": 1, "updated_at": 2, "duration": 5, "resolution": "720p",
        "aspect_ratio": "16:9", "seed": null,
        "content": [{"video_url": "https://dashscope-result-sh.oss-accelerate.aliyuncs.com/1d/video.mp4?Expires=1769157831&Signature=x"}],
        "usage": {"duration": 5, "input_video_duration": 0, "output_video_duration": 5,
            "video_count": 1, "SR": 720, "ratio": "16:9", "fps": 30},
        "orig_prompt": "A kitten runs in the moonlight",
        "actual_prompt": "A small grey kitten runs across a meadow in the moonlight, close-up",
    });
    assert_eq!(done, expected);
    let seeded = RECORD.replace("\"orig_prompt\"", "\"seed\": 12345, \"orig_prompt\"");
    assert_eq!(shown(&report(200, &seeded).expect("a report"))["seed"], 12345);

    let failed = shown(&report(200, ERROR).expect("a report"));
    let error = json!({"code": "InvalidParameter", "message": "The size does not match xxxxxx"});
    assert_eq!(failed["error"], error);
    assert!(failed.get("content").is_none(), "{failed}");
}

#[test]
fn what_is_wrong_with_the_operators_account_is_not_shown() {
    for code in
        ["Arrearage", "AccessDenied.Unpurchased", "Throttling.AllocationQuota", "InvalidApiKey"]
    {
        let answer = ERROR
            .replace("InvalidParameter", code)
            .replace("The size does not match xxxxxx", "account 12345 owes money");
        let read = report(200, &answer).expect("a report");
        assert_eq!((read.state, read.usage), (TaskState::Failed, None), "{code}");
        let text = &read.document;
        assert!(!text.contains("12345") && !text.contains(code), "{text}");
        assert_eq!(document(&read)["error"]["code"], "InternalError");
    }
}
