use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use proptest::prelude::*;

use crate::json::Object;
use crate::limits::{ModelLimits, PassList, PricedFeatures};
use crate::media::{PictureDetail, PictureFamily, PictureSize};
use crate::request_policy::{
    Allowlist, CHAT, CONVERSE, GEMINI, MESSAGES, Prompt, RESPONSES, TOOLS_TOKENS_MAX, read,
};
use tollgate_money::price::Unit;

/// A PNG of this size with `bytes` after its header.
fn png(width: u32, height: u32, bytes: usize) -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    file.extend(width.to_be_bytes());
    file.extend(height.to_be_bytes());
    file.extend([7, 130, 251].iter().cycle().take(bytes));
    file
}

fn limits(family: Option<PictureFamily>) -> ModelLimits {
    ModelLimits {
        input_tokens_max: 1_000_000,
        pictures: family,
        pass: PassList::default(),
        ..ModelLimits::default()
    }
}

fn prompt(allowlist: &'static Allowlist, body: &str, family: PictureFamily) -> Prompt {
    let object = Object::parse(body.as_bytes()).expect(body);
    read(&object, allowlist, &limits(Some(family)))
        .unwrap_or_else(|error| panic!("{error}: {body}"))
}

/// The most input tokens of a prompt: a token for each byte of text, and those that are added.
fn input_tokens(body: &Object<'_>, prompt: &Prompt) -> u64 {
    let bytes = (body.decoded_bytes() + body.rewritten_bytes()) as u64;
    bytes - prompt.media_bytes + prompt.added_tokens_max.expect("bounded")
}

/// The most input tokens of a request.
fn bound(allowlist: &'static Allowlist, body: &str, family: PictureFamily) -> u64 {
    let object = Object::parse(body.as_bytes()).expect(body);
    let limits = limits(Some(family));
    let prompt = read(&object, allowlist, &limits).expect(body);
    assert!(prompt.has_media && prompt.input_ways().has_media, "it can be billed as a picture");
    assert!(!prompt.is_plain() && !prompt.is_text, "{body}");
    input_tokens(&object, &prompt)
}

/// Requests of each dialect that hold a picture, wherever one can stand. `@FILE` stands for its base64.
fn requests() -> Vec<(&'static Allowlist, &'static str)> {
    vec![
        (
            &CHAT,
            r#"{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"hi"},{"type":"image_url","image_url":{"url":"data:image/png;base64,@FILE"}}]}]}"#,
        ),
        (
            &CHAT,
            r#"{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":"DATA:Image/PNG;charset=utf-8;Base64,@FILE"}]}]}"#,
        ),
        (
            &MESSAGES,
            r#"{"model":"m","messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"@FILE"},"cache_control":{"type":"ephemeral"}}]}]}"#,
        ),
        (
            &MESSAGES,
            r#"{"model":"m","messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"source":{"data":"@FILE","media_type":"image/png","type":"base64"},"type":"image"}]}]}]}"#,
        ),
        (
            &RESPONSES,
            r#"{"model":"m","input":[{"role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,@FILE"}]}]}"#,
        ),
        (
            &RESPONSES,
            r#"{"model":"m","input":[{"type":"function_call_output","call_id":"c","output":[{"image_url":"data:image/png;base64,@FILE","type":"input_image","detail":"auto"}]}]}"#,
        ),
        (
            &RESPONSES,
            r#"{"model":"m","input":[{"type":"computer_call_output","call_id":"c","acknowledged_safety_checks":[],"output":{"type":"computer_screenshot","image_url":"data:image/png;base64,@FILE"}}]}"#,
        ),
        (
            &GEMINI,
            r#"{"contents":[{"role":"user","parts":[{"text":"hi"},{"inlineData":{"mimeType":"image/png","data":"@FILE"}}]}]}"#,
        ),
        (
            &GEMINI,
            r#"{"contents":[{"role":"user","parts":[{"functionResponse":{"name":"f","response":{},"parts":[{"inline_data":{"data":"@FILE","mime_type":"image/png"}}]}}]}]}"#,
        ),
        (
            &CONVERSE,
            r#"{"model":"m","messages":[{"role":"user","content":[{"image":{"format":"png","source":{"bytes":"@FILE"}}}]}]}"#,
        ),
        (
            &CONVERSE,
            r#"{"model":"m","messages":[{"role":"user","content":[{"toolResult":{"toolUseId":"t","content":[{"image":{"format":"png","source":{"bytes":"@FILE"}}}]}}]}]}"#,
        ),
    ]
}

#[test]
fn a_picture_is_held_by_its_formula_in_every_dialect() {
    for (allowlist, request) in requests() {
        let body = request.replace("@FILE", &STANDARD.encode(png(1024, 1024, 5_000)));
        let rest = bound_of_rest(request);
        for (family, tokens) in [
            (PictureFamily::OpenaiTiles, 765),
            (PictureFamily::AnthropicHigh, 1_399),
            (PictureFamily::GoogleLevels, 1_120),
        ] {
            assert_eq!(bound(allowlist, &body, family), rest + tokens, "{family}: {request}");
        }
        let object = Object::parse(body.as_bytes()).expect("JSON");
        let unknown = read(&object, allowlist, &limits(None)).expect("offered");
        assert_eq!(
            unknown.added_tokens_max, None,
            "a model whose pictures nobody knows: {request}"
        );
    }
}

/// The bytes of a request without the data of its picture.
fn bound_of_rest(request: &str) -> u64 {
    let bytes = request.replace("base64,@FILE", "base64,").replace("Base64,@FILE", "Base64,");
    let bytes = bytes.replace(r#""@FILE""#, r#""""#);
    bytes.len() as u64
}

#[test]
fn a_picture_that_nobody_has_seen_comes_to_the_most() {
    let chat = |url: &str| {
        format!(
            r#"{{"model":"m","messages":[{{"role":"user","content":[{{"type":"image_url","image_url":{{"url":"{url}"}}}}]}}]}}"#
        )
    };
    let noise = STANDARD.encode([7_u8; 600]);
    for url in [
        "https://example.com/a.png".to_owned(),
        format!("data:image/png;base64,{noise}"),
        "data:image/heic;base64,AAAA".to_owned(),
        "data:image/svg+xml,%3Csvg%3E".to_owned(),
        String::new(),
    ] {
        let body = chat(&url);
        let bytes = body.len() as u64;
        let most = bound(&CHAT, &body, PictureFamily::OpenaiTiles);
        assert!((bytes + 1_445).saturating_sub(most) <= noise.len() as u64, "{url}: {most}");
        assert!(most >= 1_445, "{url}");
        let unlimited = prompt(&CHAT, &body, PictureFamily::OpenaiPatchesOriginal);
        assert_eq!(unlimited.added_tokens_max, None, "{url}: that has no most");
    }
    let by_url = r#"{"model":"m","messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://a.example/b"}}]}]}"#;
    let expected = by_url.len() as u64 + 4_784;
    assert_eq!(bound(&MESSAGES, by_url, PictureFamily::AnthropicHigh), expected);
}

#[test]
fn detail_is_read_wherever_it_stands() {
    let data = STANDARD.encode(png(4000, 4000, 100));
    let held = |allowlist, body: &str, family| {
        let body = body.replace("@FILE", &data);
        prompt(allowlist, &body, family).added_tokens_max
    };
    let image = |fields: &str| {
        format!(
            r#"{{"model":"m","input":[{{"role":"user","content":[{{"type":"input_image",{fields}}}]}}]}}"#
        )
    };
    let family = PictureFamily::OpenaiPatches2500;
    for (fields, expected) in [
        (r#""detail":"low","image_url":"data:image/png;base64,@FILE""#, Some(308)),
        (r#""image_url":"data:image/png;base64,@FILE","detail":"high""#, Some(3_000)),
        (r#""image_url":"data:image/png;base64,@FILE","detail":"\u006friginal""#, Some(12_000)),
        (r#""image_url":"data:image/png;base64,@FILE","detail":"utmost""#, Some(12_000)),
        (r#""image_url":"data:image/png;base64,@FILE","detail":7"#, None),
        (r#""image_url":"data:image/png;base64,@FILE","detail":null"#, Some(3_000)),
        (r#""image_url":"data:image/png;base64,@FILE","detail":"low","detail":"original""#, None),
        (r#""image_url":"data:image/png;base64,@FILE","file_id":"f""#, None),
        (r#""image_url":"data:image/png;base64,@FILE","image_url":"https://a.example""#, None),
    ] {
        assert_eq!(held(&RESPONSES, &image(fields), family), expected, "{fields}");
    }
    let chat = |fields: &str| {
        format!(
            r#"{{"model":"m","messages":[{{"role":"user","content":[{{"type":"image_url","image_url":{{"url":"data:image/png;base64,@FILE"{fields}}}}}]}}]}}"#
        )
    };
    for (fields, expected) in [
        (r#","detail":"low""#, Some(308)),
        (r#","detail":"original""#, Some(12_000)),
        (r#","max_pixels":99999999"#, None),
        (r#","url":"https://a.example/b""#, None),
    ] {
        assert_eq!(held(&CHAT, &chat(fields), family), expected, "{fields}");
    }
    let gemini = |part: &str, rest: &str| {
        format!(
            r#"{{"contents":[{{"role":"user","parts":[{{"inlineData":{{"mimeType":"image/png","data":"@FILE"}}{part}}}]}}]{rest}}}"#
        )
    };
    let family = PictureFamily::GoogleLevels;
    for (part, rest, expected) in [
        ("", "", Some(1_120)),
        ("", r#","generationConfig":{"mediaResolution":"MEDIA_RESOLUTION_LOW"}"#, Some(280)),
        (
            "",
            r#","generationConfig":{"mediaResolution":"MEDIA_RESOLUTION_ULTRA_HIGH"}"#,
            Some(2_240),
        ),
        ("", r#","generationConfig":{"mediaResolution":"X"}"#, Some(2_240)),
        ("", r#","generationConfig":{"mediaResolution":3}"#, None),
        (
            r#","mediaResolution":{"level":"MEDIA_RESOLUTION_ULTRA_HIGH"}"#,
            r#","generationConfig":{"mediaResolution":"MEDIA_RESOLUTION_LOW"}"#,
            Some(2_240),
        ),
        (r#","mediaResolution":{"level":"MEDIA_RESOLUTION_LOW","numTokens":9000}"#, "", None),
        (
            r#","mediaResolution":{"level":"MEDIA_RESOLUTION_ULTRA_HIGH"},"media_resolution":{"level":"MEDIA_RESOLUTION_LOW"}"#,
            "",
            None,
        ),
        (r#","videoMetadata":{"fps":24}"#, "", None),
        (r#","text":"and a text""#, "", Some(1_120)),
        (r#","inline_data":{"mimeType":"image/png","data":"@FILE"}"#, "", None),
    ] {
        assert_eq!(held(&GEMINI, &gemini(part, rest), family), expected, "{part} {rest}");
    }
}

#[test]
fn what_is_no_picture_holds_the_whole_context_as_before() {
    let family = PictureFamily::Anthropic;
    let pdf = STANDARD.encode(b"%PDF-1.7 \xE2\xE3");
    for content in [
        format!(r#"{{"type":"image","source":{{"type":"base64","media_type":"image/png","data":"{pdf}"}}}}"#),
        r#"{"type":"image","source":{"type":"file","file_id":"f"}}"#.to_owned(),
        r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA","data":"AAAA"}}"#.to_owned(),
        r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA","x":1}}"#.to_owned(),
        r#"{"type":"image","source":"https://a.example"}"#.to_owned(),
        r#"{"type":"image"}"#.to_owned(),
        r#"{"type":"text","text":"hi","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}"#.to_owned(),
        r#"{"type":"document","source":{"type":"url","url":"https://a.example/b.pdf"}}"#.to_owned(),
        r#"{"type":"document","source":{"type":"text","media_type":"text/plain","data":"hi"},"citations":{"enabled":true}}"#.to_owned(),
        r#"{"type":"document","source":{"type":"text","media_type":"text/html","data":"hi"}}"#.to_owned(),
    ] {
        let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":[{content}]}}]}}"#);
        let prompt = prompt(&MESSAGES, &body, family);
        assert_eq!(prompt.added_tokens_max, None, "{content}");
        assert!(prompt.has_media, "{content}");
    }
    let text = r#"{"model":"m","messages":[{"role":"user","content":[{"type":"document","title":"t","context":"c","source":{"type":"text","media_type":"text/plain","data":"hi"},"citations":{"enabled":false}}]}]}"#;
    let document = prompt(&MESSAGES, text, family);
    assert_eq!((document.added_tokens_max, document.media_bytes), (Some(0), 0));
    assert!(document.is_plain(), "a document of text is text");
    // Base64 that is not in the place of a picture is text.
    let call = format!(
        r#"{{"model":"m","messages":[{{"role":"assistant","content":[{{"type":"tool_use","id":"t","name":"f","input":{{"type":"image","source":{{"data":"{}"}}}}}}]}}]}}"#,
        STANDARD.encode(png(9, 9, 500))
    );
    let call = prompt(&MESSAGES, &call, family);
    assert!(call.is_plain() && call.media_bytes == 0, "{call:?}");
}

#[test]
fn a_document_is_held_by_its_pages_and_what_draws_them() {
    let page = |number: u32| format!("{number} 0 obj << /Type /Page /Parent 2 0 R >> endobj\n");
    let tree = "2 0 obj << /Type /Pages /Count 2 /Kids [3 0 R 4 0 R] >> endobj\n";
    let drawn = format!("5 0 obj << /Length 9000 >> stream\n{}endstream endobj", "x".repeat(9_000));
    let file = format!("%PDF-1.4\n{tree}{}{}{drawn}", page(3), page(4));
    let data = STANDARD.encode(&file);
    for (allowlist, request) in [
        (
            &MESSAGES,
            r#"{"model":"m","messages":[{"role":"user","content":[{"type":"document","title":"t","source":{"type":"base64","media_type":"application/pdf","data":"@FILE"}}]}]}"#,
        ),
        (
            &RESPONSES,
            r#"{"model":"m","input":[{"role":"user","content":[{"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,@FILE"}]}]}"#,
        ),
        (
            &RESPONSES,
            r#"{"model":"m","input":[{"type":"function_call_output","call_id":"c","output":[{"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,@FILE"}]}]}"#,
        ),
        (
            &CHAT,
            r#"{"model":"m","messages":[{"role":"user","content":[{"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,@FILE"}}]}]}"#,
        ),
        (
            &GEMINI,
            r#"{"contents":[{"role":"user","parts":[{"inlineData":{"mimeType":"application/pdf","data":"@FILE"}}]}]}"#,
        ),
    ] {
        let rest = bound_of_rest(request);
        for (family, tokens) in [
            (PictureFamily::Anthropic, 2 * 1_600 + 9_001),
            (PictureFamily::OpenaiTiles, 2 * 1_445 + 9_001),
            (PictureFamily::OpenaiPatchesOriginal, 2 * 3_000 + 9_001),
            (PictureFamily::GoogleTiles, 2 * 258),
            (PictureFamily::GoogleLevels, 2 * 1_120),
        ] {
            for way in 0..2 {
                let body = request.replace("@FILE", &spelled(&data, way));
                assert_eq!(bound(allowlist, &body, family), rest + tokens, "{family}: {request}");
            }
        }
        let body = request.replace("@FILE", &data);
        let unknown = prompt(allowlist, &body, PictureFamily::Qwen);
        assert_eq!(unknown.added_tokens_max, None, "that takes no documents: {request}");
        let cut = request.replace("@FILE", &STANDARD.encode(&file[..60]));
        let cut = prompt(allowlist, &cut, PictureFamily::Anthropic);
        assert_eq!(cut.added_tokens_max, None, "that has no pages: {request}");
    }
    for content in [
        r#"{"type":"file","file":{"file_id":"file-1"}}"#,
        r#"{"type":"file","file":{"filename":"a.docx","file_data":"data:application/msword;base64,AAAA"}}"#,
    ] {
        let body =
            format!(r#"{{"model":"m","messages":[{{"role":"user","content":[{content}]}}]}}"#);
        assert_eq!(prompt(&CHAT, &body, PictureFamily::OpenaiTiles).added_tokens_max, None);
    }
    let cited = format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":[{{"type":"document","citations":{{"enabled":true}},"source":{{"type":"base64","media_type":"application/pdf","data":"{data}"}}}}]}}]}}"#
    );
    assert_eq!(prompt(&MESSAGES, &cited, PictureFamily::Anthropic).added_tokens_max, None);
}

/// So many seconds of plain samples.
fn wav(seconds: u32) -> Vec<u8> {
    let mut file = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0".to_vec();
    file.extend(8_000_u32.to_le_bytes());
    file.extend(8_000_u32.to_le_bytes());
    file.extend(b"\x01\0\x08\0data");
    file.extend((8_000 * seconds).to_le_bytes());
    file.extend(std::iter::repeat_n(0x80, 8_000 * seconds as usize));
    file
}

#[test]
fn sound_is_held_by_its_length() {
    let priced =
        PricedFeatures { units: vec![Unit::AudioInputTokens], ..PricedFeatures::default() };
    for (allowlist, request) in [
        (
            &GEMINI,
            r#"{"contents":[{"role":"user","parts":[{"inlineData":{"mimeType":"audio/wav","data":"@FILE"}}]}]}"#,
        ),
        (
            &CHAT,
            r#"{"model":"m","messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"@FILE","format":"wav"}}]}]}"#,
        ),
    ] {
        for (family, each) in [
            (PictureFamily::GoogleTiles, Some(32)),
            (PictureFamily::OpenaiTiles, Some(10)),
            (PictureFamily::Anthropic, None),
        ] {
            let limits = ModelLimits { priced: priced.clone(), ..limits(Some(family)) };
            let added = |file: &[u8]| {
                let body = request.replace("@FILE", &STANDARD.encode(file));
                let object = Object::parse(body.as_bytes()).expect("JSON");
                let prompt = read(&object, allowlist, &limits).expect("priced");
                assert!(prompt.has_media && !prompt.is_plain(), "{request}");
                prompt.added_tokens_max
            };
            assert_eq!(added(&wav(60)), each.map(|each| 61 * each), "{family}: {request}");
            assert_eq!(added(b"no sound at all"), None, "{family}: {request}");
        }
    }
}

/// Requests that providers have counted, each with its tokens and where that stands.
const COUNTED: [(&str, &Allowlist, u64, &str); 6] = [
    (
        "Anthropic, \"Token counting\", basic messages",
        &MESSAGES,
        14,
        r#"{"model":"claude-opus-4-7","system":"You are a scientist","messages":[{"role":"user","content":"Hello, Claude"}]}"#,
    ),
    (
        "Anthropic, \"Token counting\", messages with tools",
        &MESSAGES,
        403,
        r#"{"model":"claude-opus-4-7","tools":[{"name":"get_weather","description":"Get the current weather in a given location","input_schema":{"type":"object","properties":{"location":{"type":"string","description":"The city and state, e.g. San Francisco, CA"}},"required":["location"]}}],"messages":[{"role":"user","content":"What's the weather like in San Francisco?"}]}"#,
    ),
    (
        "Anthropic, \"Token counting\", messages with images",
        &MESSAGES,
        1_551,
        r#"{"model":"claude-opus-4-6","messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://upload.wikimedia.org/wikipedia/commons/a/a7/Camponotus_flavomarginatus_ant.jpg"}},{"type":"text","text":"Describe this image"}]}]}"#,
    ),
    (
        "OpenAI, API reference, \"Create chat completion\", default",
        &CHAT,
        19,
        r#"{"model":"gpt-4.1","messages":[{"role":"developer","content":"You are a helpful assistant."},{"role":"user","content":"Hello!"}]}"#,
    ),
    (
        "OpenAI, API reference, \"Create chat completion\", image input",
        &CHAT,
        1_117,
        r#"{"model":"gpt-4.1","messages":[{"role":"user","content":[{"type":"text","text":"What is in this image?"},{"type":"image_url","image_url":{"url":"https://upload.wikimedia.org/wikipedia/commons/thumb/d/dd/Gfp-wisconsin-madison-the-nature-boardwalk.jpg/2560px-Gfp-wisconsin-madison-the-nature-boardwalk.jpg"}}]}],"max_tokens":300}"#,
    ),
    (
        "OpenAI, API reference, \"Create chat completion\", functions",
        &CHAT,
        82,
        r#"{"model":"gpt-4.1","messages":[{"role":"user","content":"What is the weather like in Boston today?"}],"tools":[{"type":"function","function":{"name":"get_current_weather","description":"Get the current weather in a given location","parameters":{"type":"object","properties":{"location":{"type":"string","description":"The city and state, e.g. San Francisco, CA"},"unit":{"type":"string","enum":["celsius","fahrenheit"]}},"required":["location"]}}}],"tool_choice":"auto"}"#,
    ),
];

#[test]
fn no_documented_count_of_a_request_is_above_its_bound() {
    for (source, allowlist, tokens, body) in COUNTED {
        let family = match source.starts_with("Anthropic") {
            true => PictureFamily::Anthropic,
            false => PictureFamily::OpenaiTiles,
        };
        let object = Object::parse(body.as_bytes()).expect(source);
        let limits = limits(Some(family));
        let prompt = read(&object, allowlist, &limits).expect(source);
        let held = input_tokens(&object, &prompt);
        assert!(held >= tokens, "{source}: {held} for {tokens}");
        // A prompt with tools is taken to have Anthropic's text for them.
        let added = if body.contains("tools") { TOOLS_TOKENS_MAX } else { 0 };
        assert!(held <= 10 * tokens + added, "{source}: {held} for {tokens}");
    }
}

/// A text as it is, with its slashes escaped, or with each letter escaped.
fn spelled(text: &str, way: usize) -> String {
    match way {
        0 => text.to_owned(),
        1 => text.replace('/', "\\/"),
        _ => text.chars().map(|letter| format!("\\u{:04x}", u32::from(letter))).collect(),
    }
}

proptest! {
    /// However a picture is spelled, it is held by its formula and its data are no text.
    #[test]
    fn spellings_of_a_picture_are_held_alike(
        width in 1..20_000_u32,
        height in 1..20_000_u32,
        bytes in 0..600_usize,
        encoding in 0..4_usize,
        way in 0..3_usize,
        space in prop::sample::select(vec!["", " ", "\n  "]),
    ) {
        let file = png(width, height, bytes);
        let data = match encoding {
            0 => STANDARD.encode(file),
            1 => STANDARD_NO_PAD.encode(file),
            2 => URL_SAFE.encode(file),
            _ => URL_SAFE_NO_PAD.encode(file),
        };
        let data = spelled(&data, way);
        for (allowlist, request) in requests() {
            let body = request.replace("@FILE", &data).replace("\":", &format!("\":{space}"));
            for family in [PictureFamily::OpenaiTiles, PictureFamily::Anthropic, PictureFamily::Google] {
                let size = PictureSize { width: width.into(), height: height.into() };
                let tokens = family.tokens_max(Some(size), PictureDetail::Auto).expect("limited");
                prop_assert_eq!(bound(allowlist, &body, family), bound_of_rest(request) + tokens);
            }
        }
    }
}
