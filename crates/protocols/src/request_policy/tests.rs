use super::*;
use crate::embeddings;

fn limits(pass: PassList) -> ModelLimits {
    ModelLimits { input_tokens_max: 1000, output_tokens_max: 100, pass, ..ModelLimits::default() }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn read_with(
    allowlist: &'static Allowlist,
    body: &str,
    pass: PassList,
) -> Result<Prompt, GatewayError> {
    read(&Object::parse(body.as_bytes()).expect(body), allowlist, &limits(pass))
}

fn chat(content: &str) -> Result<Prompt, GatewayError> {
    let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":{content}}}]}}"#);
    read_with(&CHAT, &body, PassList::default())
}

fn responses(input: &str) -> Result<Prompt, GatewayError> {
    read_with(&RESPONSES, &format!(r#"{{"model":"m","input":{input}}}"#), PassList::default())
}

fn messages(content: &str) -> Result<Prompt, GatewayError> {
    let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":{content}}}]}}"#);
    read_with(&MESSAGES, &body, PassList::default())
}

#[track_caller]
fn assert_text(prompt: Result<Prompt, GatewayError>) {
    let prompt = prompt.expect("offered");
    assert!(prompt.is_plain() && prompt.is_text, "{prompt:?}");
}

/// Asserts that it is allowed, with the whole context held for it.
#[track_caller]
fn assert_whole(prompt: Result<Prompt, GatewayError>, what: &str) {
    let prompt = prompt.expect(what);
    assert!(prompt.added_tokens_max.is_none() && !prompt.is_plain(), "{what}: {prompt:?}");
}

#[track_caller]
fn assert_refused(prompt: Result<Prompt, GatewayError>, list: &str) {
    let error = prompt.expect_err("refused");
    assert!(error.message.contains(list), "{error}");
}

#[test]
fn text_is_bounded_by_its_bytes() {
    for content in [
        r#""hi""#,
        "null",
        r#"[{"type":"text","text":"hi","cache_control":{"type":"ephemeral"}}]"#,
        r#"[{"t\u0079pe":"t\u0065xt","text":"an \"input_image\" of \"type\":\"input_file\""}]"#,
        r#"[{"text":"the type comes last","type":"text"}]"#,
    ] {
        assert_text(chat(content));
    }
    assert_text(responses(r#""hi""#));
    assert_text(responses(r#"[{"role":"user","content":"hi"}]"#));
    assert_text(responses(
        r#"[{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]},
            {"type":"function_call","call_id":"c","name":"f","arguments":"{}","id":null},
            {"type":"function_call_output","call_id":"c","output":"{\"type\":\"input_image\"}"},
            {"type":"shell_call_output","call_id":"c","output":[{"stdout":"","stderr":"","outcome":{"type":"exit"}}]}]"#,
    ));
    assert_text(messages(
        r#"[{"type":"text","text":"hi"},
            {"type":"tool_use","id":"t","name":"f","input":{"type":"image","source":{}}},
            {"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"ok"}]}]"#,
    ));
    let thought = r#"[{"type":"thinking","thinking":"","signature":"c2ln"}]"#;
    let thought = messages(thought).expect("offered");
    assert!(thought.is_plain() && !thought.is_text, "what is encrypted is no text");
    let thought =
        responses(r#"[{"type":"reasoning","id":"rs","summary":[],"encrypted_content":"c2ln"}]"#);
    assert!(thought.expect("offered").is_plain());
}

#[test]
fn what_stands_for_input_elsewhere_holds_the_whole_context() {
    for input in [
        r#"[{"type":"message","role":"user","content":[{"type":"\u0069nput_file","file_url":"https://a/b"}]}]"#,
        r#"[{"role":"user","content":[{"type":"input_im\u0061ge","file_id":"f"}]}]"#,
        r#"[{"role":"user","content":[{"t\u0079pe":"input_image","file_id":"f"}]}]"#,
        r#"[{"type":"item_reference","id":"msg_1"}]"#,
        r#"[{"id":"msg_1"}]"#,
        r#"[{"id":"msg_1","role":"user"}]"#,
        r#"[{"type":"reasoning","id":"rs_1","summary":[]}]"#,
        r#"[{"type":"function_call_output","call_id":"c"}]"#,
        r#"[{"type":"image_generation_call","id":"ig_1"}]"#,
        r#"[{"type":"computer_call_output","call_id":"c","output":{"type":"computer_screenshot","image_url":"https://a/b"}}]"#,
        r#"[{"type":"function_call_output","call_id":"c","output":[{"type":"input_image","file_id":"f"}]}]"#,
        r#"[{"role":"user","content":"hi","content":"ho"}]"#,
        r#"[{"role":"user","content":"hi","file_id":"f"}]"#,
        r#"{"id":"msg_1"}"#,
    ] {
        assert_whole(responses(input), input);
    }
    for content in [
        r#"[{"type":"image_url","image_url":{"url":"https://example.com/a.png"}}]"#,
        r#"[{"type":"image_url","image_url":{"url":"data:image\/png;base64,AAAA"}}]"#,
        r#"[{"type":"file","file":{"file_id":"f"}}]"#,
        r#"[{"type":"text","text":"hi","image_url":{"url":"https://a/b"}}]"#,
        r#"[{"type":"text"}]"#,
        "[[1]]",
    ] {
        assert_whole(chat(content), content);
    }
    for content in [
        r#"[{"type":"image","source":{"type":"file","file_id":"f"}}]"#,
        r#"[{"type":"docum\u0065nt","source":{"type":"url","url":"https://a/b"}}]"#,
        r#"[{"type":"tool_result","tool_use_id":"t","content":[{"type":"image","source":{}}]}]"#,
        r#"[{"type":"web_search_tool_result","tool_use_id":"t","content":[{"type":"web_search_result","url":"u"}]}]"#,
    ] {
        assert_whole(messages(content), content);
    }
    for field in
        [r#""previous_response_id":"r""#, r#""conversation":"c""#, r#""prompt":{"id":"p"}"#]
    {
        let body = format!(r#"{{"model":"m","input":"hi",{field}}}"#);
        assert_whole(read_with(&RESPONSES, &body, PassList::default()), field);
    }
    let absent = r#"{"model":"m","input":"hi","previous_response_id":null}"#;
    assert_text(read_with(&RESPONSES, absent, PassList::default()));
}

#[test]
fn unlisted_content_is_refused() {
    for content in [
        r#"[{"type":"input_audio","input_audio":{"data":"","format":"wav"}}]"#,
        r#"[{"type":"\u0069nput_audio","\u0069nput_audio":{"data":"","format":"wav"}}]"#,
        r#"[{"type":"text","text":"hi","input_audio":{"data":""}}]"#,
        r#"[{"type":"audio_url","audio_url":{"url":"https://a/b"}}]"#,
        r#"[{"type":"video_url","video_url":{"url":"https://a/b"}}]"#,
        r#"[{"type":"video","video":["https://a/1","https://a/2"]}]"#,
        r#"[{"type":"text","text":"hi","video_url":{"url":"https://a/b"}}]"#,
        r#"[{"type":"text","type":"input_audio","text":"hi"}]"#,
        r#"[{"input_audio":{"data":""}}]"#,
        r#"[{"type":7}]"#,
        r#"[{"type":"image_url","image_url":{"url":"data:audio/wav;base64,AAAA"}}]"#,
        r#"[{"type":"image_url","image_url":{"url":"data:\u0061udio/wav;base64,AAAA"}}]"#,
        r#"[{"type":"image_url","image_url":{"url":"\u0064ata:audio/wav;base64,AAAA"}}]"#,
        r#"[{"type":"image_url","image_url":"data:video/mp4;base64,AAAA"}]"#,
        r#"{"type":"input_audio","input_audio":{}}"#,
    ] {
        assert_refused(chat(content), "pass_content");
    }
    let spoken = r#"{"model":"m","messages":[{"role":"assistant","audio":{"id":"a"}}]}"#;
    assert_refused(read_with(&CHAT, spoken, PassList::default()), "pass_content");
    let silent = r#"{"model":"m","messages":[{"role":"assistant","content":"hi","audio":null}]}"#;
    assert_text(read_with(&CHAT, silent, PassList::default()));
    assert_refused(responses(r#"[{"type":"program","code":"x"}]"#), "pass_content");
    assert_refused(messages(r#"[{"type":"container_upload","file_id":"f"}]"#), "pass_content");
    for content in [
        r#"[{"Type":"input_audio","type":"text","text":"hi"}]"#,
        r#"[{"type":"text","text":"hi","INPUT_AUDIO":{}}]"#,
    ] {
        assert_refused(chat(content), "lower-case");
    }
    let error = chat(r#"[{"type":"input_audio"}]"#).expect_err("refused");
    assert_eq!(error.param.as_deref(), Some("messages"), "{error}");
}

#[test]
fn unlisted_fields_are_refused() {
    for (allowlist, fields) in [
        (
            &CHAT,
            &["web_search_options", "deferred", "extra_body", "cached_content", "max_tool_calls"][..],
        ),
        (&RESPONSES, &["moderation", "background_options"]),
        (&MESSAGES, &["mcp_servers", "container", "compaction", "billing_policy"]),
        (&embeddings::OPENAI_FIELDS, &["instruct"]),
        (&embeddings::VOYAGE_FIELDS, &["inputs"]),
    ] {
        for field in fields {
            let body = format!(r#"{{"model":"m","{field}":null}}"#);
            let error = read_with(allowlist, &body, PassList::default()).expect_err(field);
            assert_eq!(error.param.as_deref(), Some(*field), "{error}");
            assert!(error.message.contains("`pass_fields` in models.yaml"), "{error}");
        }
    }
}

#[test]
fn keys_that_parsers_fold_are_refused_whatever_is_passed() {
    let pass = PassList { fields: names(&["*", "max_to\u{212a}ens"]), ..PassList::default() };
    for (key, why) in [
        ("max_to\u{212a}ens", "ASCII"),
        ("max_token\u{17f}", "ASCII"),
        (r"max_to\u212aens", "ASCII"),
        ("Max_Tokens", "lower-case"),
        (r"\u004dax_tokens", "lower-case"),
    ] {
        let body = format!(r#"{{"model":"m","max_tokens":1,"{key}":90000}}"#);
        assert_refused(read_with(&CHAT, &body, pass.clone()), why);
    }
}

#[test]
fn words_that_cost_more_are_refused() {
    for (allowlist, field) in [
        (&CHAT, r#""service_tier":"priority""#),
        (&CHAT, r#""service_tier":"auto""#),
        (&CHAT, r#""service_tier":["priority"]"#),
        (&CHAT, r#""modalities":["text","audio"]"#),
        (&RESPONSES, r#""service_tier":"pri\u006frity""#),
        (&MESSAGES, r#""speed":"fast""#),
        (&MESSAGES, r#""inference_geo":"us""#),
    ] {
        let body = format!(r#"{{"model":"m",{field}}}"#);
        assert_refused(read_with(allowlist, &body, PassList::default()), "pass_fields");
        let fields = names(&["service_tier", "modalities", "speed", "inference_geo"]);
        let pass = PassList { fields, ..PassList::default() };
        let passed = read_with(allowlist, &body, pass).expect("passed");
        assert!(passed.has_passed && !passed.is_plain(), "{passed:?}");
    }
    for (allowlist, field) in [
        (&CHAT, r#""service_tier":"flex","modalities":["text"]"#),
        (&CHAT, r#""service_tier":null"#),
        (&MESSAGES, r#""service_tier":"standard_only","speed":"standard""#),
    ] {
        assert_text(read_with(
            allowlist,
            &format!(r#"{{"model":"m",{field}}}"#),
            PassList::default(),
        ));
    }
}

/// One tier can have a price for short prompts and one for long prompts.
#[test]
fn a_refusal_names_each_word_that_has_a_price_once() {
    let words = vec![("service_tier", "priority"), ("service_tier", "priority")];
    let priced = PricedFeatures { words, ..PricedFeatures::default() };
    let limits = ModelLimits { priced, ..limits(PassList::default()) };
    let body = Object::parse(br#"{"model":"m","service_tier":"turbo"}"#).expect("an object");
    let refusal = read(&body, &CHAT, &limits).expect_err("refused");
    assert!(refusal.message.contains("flex or priority: what else"), "{refusal}");
}

#[test]
fn searches_are_bounded_by_the_customers_limit_or_by_one_that_is_set() {
    let priced = PricedFeatures {
        units: vec![Unit::WebSearches, Unit::ContainerSessions],
        ..PricedFeatures::default()
    };
    let limits = ModelLimits { priced, ..limits(PassList::default()) };
    let with_prices = |allowlist, fields: &str| {
        let body = format!(r#"{{"model":"m",{fields}}}"#);
        let object = Object::parse(body.as_bytes()).expect(fields);
        let without = read_with(allowlist, &body, PassList::default());
        (read(&object, allowlist, &limits), without.is_err())
    };
    let searches = |most| Usage { web_searches: most, ..Usage::ZERO };
    for (allowlist, fields, rounds, is_limited_here) in [
        (&RESPONSES, r#""tools":[{"type":"web_search"}]"#, 6, true),
        (&RESPONSES, r#""tools":[{"type":"web_search"}],"max_tool_calls":null"#, 6, true),
        (&RESPONSES, r#""tools":[{"type":"web_search_2025_08_26"}],"max_tool_calls":3"#, 4, false),
        (&MESSAGES, r#""tools":[{"type":"web_search_20250305","name":"s"}]"#, 6, true),
        (
            &MESSAGES,
            r#""tools":[{"type":"web_search_20250305","name":"s","max_uses":8}]"#,
            9,
            false,
        ),
        (
            &MESSAGES,
            r#""tools":[{"type":"web_search_20250305","name":"s","max_uses":2},{"type":"web_search_20260209","name":"t"}]"#,
            8,
            true,
        ),
    ] {
        let (priced, is_refused_without) = with_prices(allowlist, fields);
        let prompt = priced.expect(fields);
        assert!(is_refused_without, "{fields}");
        assert_eq!(
            (prompt.rounds, prompt.server_calls_max),
            (rounds, searches(rounds - 1)),
            "{fields}"
        );
        assert!(prompt.search.is_some() && prompt.added_tokens_max.is_some(), "{fields}");
        assert_eq!(prompt.search_limit.is_some(), is_limited_here, "{fields}");
        assert!(!prompt.is_plain(), "{fields}: not all is shown");
    }
    let beside = r#""tools":[{"type":"web_search"},{"type":"code_interpreter"}]"#;
    let prompt = with_prices(&RESPONSES, beside).0.expect(beside);
    assert!(
        prompt.search.is_none() && prompt.added_tokens_max.is_none(),
        "code reads what it likes"
    );
}

#[test]
fn searches_in_files_are_bounded_by_their_pieces() {
    let priced = PricedFeatures {
        units: vec![Unit::WebSearches, Unit::FileSearches],
        ..PricedFeatures::default()
    };
    let limits = ModelLimits { priced, ..limits(PassList::default()) };
    let prompt = |tools: &str, rest: &str| {
        let body = format!(r#"{{"model":"m","tools":[{tools}]{rest}}}"#);
        let object = Object::parse(body.as_bytes()).expect(tools);
        read(&object, &RESPONSES, &limits).expect(tools)
    };
    let files = r#"{"type":"file_search","vector_store_ids":["vs_1"]"#;
    for (tools, tokens) in [
        (format!("{files}}}"), Some(16_000)),
        (format!("{files},\"max_num_results\":50}}"), Some(40_000)),
        (format!("{files},\"max_num_results\":0}}"), Some(800)),
        (format!("{files},\"max_num_results\":null}}"), Some(16_000)),
        (format!("{files},\"max_num_results\":\"50\"}}"), None),
        (format!(r#"{files}}},{{"type":"web_search"}}"#), Some(16_000)),
        (format!(r#"{{"type":"web_search"}},{files},"max_num_results":4}}"#), Some(8_000)),
    ] {
        let prompt = prompt(&tools, "");
        assert_eq!(prompt.search.map(|search| search.tokens), tokens, "{tools}");
        assert_eq!(prompt.added_tokens_max.is_some(), tokens.is_some(), "{tools}");
        assert_eq!(prompt.search_limit.is_some(), tokens.is_some(), "{tools}");
    }
    let limited = prompt(&format!("{files}}}"), r#","max_tool_calls":2"#);
    assert_eq!((limited.rounds, limited.server_calls_max.file_searches), (3, 2));
    let history = r#"[{"type":"file_search_call","id":"fs_1","status":"completed","queries":["a"],"results":null}]"#;
    let later = responses(history).expect("offered");
    assert_eq!((later.added_tokens_max, later.rounds), (Some(16_000), 1));
    assert_whole(responses(r#"[{"type":"file_search_call","id":"fs_1"}]"#), "by its id");
}

#[test]
fn what_has_a_price_of_its_own_is_offered_with_one_and_held() {
    let priced = PricedFeatures {
        words: vec![("service_tier", "priority"), ("speed", "fast")],
        thinking: true,
        units: vec![
            Unit::WebSearches,
            Unit::AudioInputTokens,
            Unit::ContainerSessions,
            Unit::FileSearches,
        ],
    };
    let limits = ModelLimits { priced, ..limits(PassList::default()) };
    let with_prices = |allowlist, fields: &str| {
        let body = format!(r#"{{"model":"m",{fields}}}"#);
        let object = Object::parse(body.as_bytes()).expect(fields);
        let without = read_with(allowlist, &body, PassList::default());
        (read(&object, allowlist, &limits), without.is_err())
    };
    for (allowlist, fields) in [
        (&CHAT, r#""service_tier":"priority""#),
        (&RESPONSES, r#""service_tier":"priority""#),
        (&MESSAGES, r#""speed":"fast""#),
        (&CHAT, r#""enable_thinking":true,"thinking_budget":7"#),
    ] {
        let (priced, is_refused_without) = with_prices(allowlist, fields);
        let prompt = priced.expect(fields);
        assert!(prompt.is_plain() && prompt.is_text && is_refused_without, "{fields}: {prompt:?}");
    }
    let code = Usage { container_sessions: 1, ..Usage::ZERO };
    for (allowlist, fields, rounds, server_calls_max) in [
        (&MESSAGES, r#""tools":[{"type":"code_execution_20250825","name":"c"}]"#, 10, code),
        (
            &CHAT,
            r#""messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{}}]}]"#,
            1,
            Usage::ZERO,
        ),
    ] {
        let (priced, is_refused_without) = with_prices(allowlist, fields);
        let prompt = priced.expect(fields);
        assert!(is_refused_without, "{fields}");
        assert_eq!(
            (prompt.rounds, prompt.server_calls_max),
            (rounds, server_calls_max),
            "{fields}"
        );
        assert!(prompt.added_tokens_max.is_none(), "{fields}: nobody knows what is read");
    }
    let (priced, _) = with_prices(&CHAT, r#""service_tier":["priority"]"#);
    assert!(priced.is_err(), "of a list nobody knows which one counts");
    let fetches = r#""tools":[{"type":"web_fetch_20260318","name":"f"}]"#;
    let (fetch, is_refused_without) = with_prices(&MESSAGES, fetches);
    assert!(fetch.is_ok() && !is_refused_without, "what is fetched is input");
    for (allowlist, fields) in [
        (&CHAT, r#""audio":{"voice":"v"}"#),
        (&CHAT, r#""thinking_budget":1"#),
        (&CHAT, r#""enable_search":true"#),
        (&CHAT, r#""search_parameters":{"mode":"on"}"#),
    ] {
        let body = format!(r#"{{"model":"m",{fields}}}"#);
        assert_refused(read_with(allowlist, &body, PassList::default()), "pass_fields");
    }
}

/// The length of a video is unknown until the upstream has read it.
#[test]
fn a_video_is_offered_with_a_price_and_holds_the_whole_context() {
    let priced =
        PricedFeatures { units: vec![Unit::VideoInputTokens], ..PricedFeatures::default() };
    let limits = ModelLimits { priced, ..limits(PassList::default()) };
    let read = |part: &str| {
        let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":[{part}]}}]}}"#);
        let object = Object::parse(body.as_bytes()).expect(part);
        read(&object, &CHAT, &limits)
    };
    for part in [
        r#"{"type":"video_url","video_url":{"url":"https://a/b.mp4"},"fps":2,"max_frames":9}"#,
        r#"{"type":"video_url","video_url":{"url":"data:video/mp4;base64,AAAA"}}"#,
        r#"{"type":"video","video":["https://a/1.png","https://a/2.png"]}"#,
        r#"{"type":"video\u005furl","video_url":{"url":"https://a/b.mp4"}}"#,
    ] {
        let prompt = read(part).expect(part);
        assert!(prompt.added_tokens_max.is_none() && prompt.input_ways().has_media, "{part}");
    }
    for part in [
        r#"{"type":"audio_url","audio_url":{"url":"https://a/b.mp3"}}"#,
        r#"{"type":"text","text":"a","input_audio":{"data":""}}"#,
        r#"{"type":"video_uri","video_uri":{}}"#,
    ] {
        assert_refused(read(part), "pass_content");
    }
}

/// A model that makes pictures, and more of them or finer ones than usual, has other prices.
#[test]
fn pictures_are_made_as_their_price_says() {
    let priced = PricedFeatures { units: vec![Unit::Images], ..PricedFeatures::default() };
    let limits = ModelLimits { priced, ..limits(PassList::default()) };
    for (more, refused) in [
        ("", None),
        (r#","size":"1536x1024","quality":"high","background":"opaque""#, None),
        (r#","partial_images":0,"input_fidelity":"low","model":null"#, None),
        (r#","partial_images":3"#, Some("partial_images")),
        (r#","input_fidelity":"high""#, Some("input_fidelity")),
        (r#","model":"gpt-image-2""#, Some("model")),
        (r#","m\u006fdel":"gpt-image-2""#, Some("model")),
    ] {
        let body = format!(r#"{{"model":"m","tools":[{{"type":"image_generation"{more}}}]}}"#);
        let object = Object::parse(body.as_bytes()).expect(more);
        let read = read(&object, &RESPONSES, &limits);
        let Some(key) = refused else {
            read.expect(more);
            continue;
        };
        let message = read.expect_err(more).message;
        assert!(message.contains(&format!("`{key}` of the tool `image_generation`")), "{message}");
    }
    // Tools that the customer runs may have such words in them.
    let own = r#"{"type":"function","name":"f","parameters":{},"model":"x"}"#;
    with_tool(&RESPONSES, own, PassList::default()).expect("a function");
}

#[test]
fn every_source_that_a_search_can_use_is_held() {
    let priced = PricedFeatures { units: vec![Unit::WebSearches], ..PricedFeatures::default() };
    let limits = ModelLimits { priced, ..limits(PassList::default()) };
    let read = |fields: &str| {
        let body = format!(r#"{{"model":"m",{fields}}}"#);
        let object = Object::parse(body.as_bytes()).expect(fields);
        read(&object, &CHAT, &limits)
            .map(|prompt| (prompt.rounds, prompt.server_calls_max.web_searches))
    };
    for (fields, rounds, sources) in [
        (r#""enable_search":true"#, 2, 5),
        (r#""search_parameters":{"mode":"on"}"#, 2, 20),
        (r#""search_parameters":{"max_search_results":50}"#, 2, 50),
        (r#""search_parameters":{"max_search_results":0}"#, 2, 1),
        (r#""search_parameters":{"max_search_results":3},"enable_search":true"#, 3, 8),
    ] {
        assert_eq!(read(fields).expect(fields), (rounds, sources), "{fields}");
    }
    for most in ["\"50\"", "1.5", "-1", "[9]"] {
        let fields = format!(r#""search_parameters":{{"max_search_results":{most}}}"#);
        assert!(read(&fields).is_err(), "{most}: what cannot be read bounds nothing");
    }
}

#[test]
fn code_runs_in_a_new_container_of_the_usual_size() {
    let priced =
        PricedFeatures { units: vec![Unit::ContainerSessions], ..PricedFeatures::default() };
    let limits = ModelLimits { priced, ..limits(PassList::default()) };
    for (container, is_offered) in [
        (r#"{"type":"auto"}"#, true),
        (r#"{"type":"auto","memory_limit":"64g"}"#, false),
        (r#"{"type":"auto","file_ids":["file_1"]}"#, false),
        (r#""cntr_1""#, false),
    ] {
        let tool = format!(r#"{{"type":"code_interpreter","container":{container}}}"#);
        let body = format!(r#"{{"model":"m","tools":[{tool}]}}"#);
        let object = Object::parse(body.as_bytes()).expect(container);
        assert_eq!(read(&object, &RESPONSES, &limits).is_ok(), is_offered, "{container}");
    }
}

fn with_tool(
    allowlist: &'static Allowlist,
    tool: &str,
    pass: PassList,
) -> Result<Prompt, GatewayError> {
    read_with(allowlist, &format!(r#"{{"model":"m","tools":[{tool}]}}"#), pass)
}

#[test]
fn tools_that_the_upstream_runs_are_refused() {
    for (allowlist, tools) in [
        (
            &CHAT,
            &[
                r#"{"type":"web_search"}"#,
                r#"{"google_search":{}}"#,
                r#"{"function":{"name":"f"},"google_search":{}}"#,
                r#"{"type":"function","type":"web_search","function":{}}"#,
                r#"{"type":null}"#,
            ][..],
        ),
        (
            &RESPONSES,
            &[
                r#"{"type":"image_generation","model":"gpt-image-1"}"#,
                r#"{"type":"\u0069mage_generation"}"#,
                r#"{"type":"code_interpreter","container":{"type":"auto","memory_limit":"64g"}}"#,
                r#"{"type":"web_search_preview"}"#,
                r#"{"type":"file_search","vector_store_ids":[]}"#,
                r#"{"type":"mcp","server_url":"https://a"}"#,
                r#"{"type":"computer_use_preview"}"#,
                r#"{"type":"shell"}"#,
                r#"{"type":"shell","environment":{"type":"container_auto","x":"local"}}"#,
                r#"{"type":"shell","environment":{"type":"local","type":"container_auto"}}"#,
                r#"{"type":"namespace","name":"n","tools":[{"type":"web_search"}]}"#,
                r#"{"name":"f"}"#,
            ],
        ),
        (
            &MESSAGES,
            &[
                r#"{"type":"web_search_20250305","name":"web_search"}"#,
                r#"{"type":"code_execution_20250825","name":"code_execution"}"#,
                r#"{"type":"advisor_20260301","name":"advisor","model":"claude-opus-4-8"}"#,
                r#"{"type":"bash_x","name":"bash"}"#,
                r#"{"type":"mcp_toolset","mcp_server_name":"m"}"#,
                r#"{"input_schema":{}}"#,
            ],
        ),
    ] {
        for tool in tools {
            assert_refused(with_tool(allowlist, tool, PassList::default()), "pass_tools");
        }
    }
    for item in [
        r#"[{"type":"additional_tools","role":"developer","tools":[{"type":"web_search"}]}]"#,
        r#"[{"type":"tool_search_output","tools":[{"type":"image_generation"}]}]"#,
    ] {
        assert_refused(responses(item), "pass_tools");
    }
}

#[test]
fn tools_that_the_customer_runs_are_bounded_by_their_bytes() {
    for (allowlist, tool, added) in [
        (&CHAT, r#"{"type":"function","function":{"name":"f","parameters":{}}}"#, 0),
        (&CHAT, r#"{"type":"custom","custom":{"name":"f"}}"#, 0),
        (&CHAT, r#"{"function":{"name":"f"}}"#, 0),
        (&RESPONSES, r#"{"type":"function","name":"f","parameters":{},"strict":true}"#, 0),
        (&RESPONSES, r#"{"type":"local_shell"}"#, 0),
        (&RESPONSES, r#"{"type":"shell","environment":{"type":"local"}}"#, 0),
        (
            &RESPONSES,
            r#"{"type":"namespace","name":"n","tools":[{"type":"custom","name":"c"}]}"#,
            0,
        ),
        (&RESPONSES, r#"{"type":"tool_search","execution":"client"}"#, 0),
        (&MESSAGES, r#"{"name":"f","input_schema":{"properties":{"type":{}}}}"#, 0),
        (&MESSAGES, r#"{"type":"custom","name":"f","input_schema":{},"defer_loading":true}"#, 0),
        (&MESSAGES, r#"{"type":"bash_20250124","name":"bash"}"#, TOOLS_TOKENS_MAX),
        (&MESSAGES, r#"{"type":"text_editor_20250728","name":"e"}"#, TOOLS_TOKENS_MAX),
    ] {
        let prompt = with_tool(allowlist, tool, PassList::default()).expect(tool);
        assert_eq!(prompt.added_tokens_max, Some(TOOLS_TOKENS_MAX + added), "{tool}");
        assert_eq!(prompt.rounds, 1);
    }
    for (allowlist, tool) in [
        (&CHAT, r#"{"type":"function","function":{"name":"f"},"google_search":{}}"#),
        (&MESSAGES, r#"{"type":"computer_20251124","name":"computer"}"#),
        (&MESSAGES, r#"{"type":"computer_toolset_20260801"}"#),
    ] {
        assert_whole(with_tool(allowlist, tool, PassList::default()), tool);
    }
    let none = read_with(&CHAT, r#"{"model":"m","tools":[]}"#, PassList::default()).expect("valid");
    assert_eq!(none.added_tokens_max, Some(0));
}

#[test]
fn what_an_operator_passes_holds_the_whole_context() {
    let fields = PassList { fields: names(&["enable_search", "x_*"]), ..PassList::default() };
    for (field, passes) in [("enable_search", true), ("x_1", true), ("enable_thinking", false)] {
        let body = format!(r#"{{"model":"m","{field}":true}}"#);
        let read = read_with(&CHAT, &body, fields.clone());
        assert_eq!(read.is_ok_and(|prompt| prompt.added_tokens_max.is_none()), passes, "{field}");
    }
    let content = PassList { content: names(&["input_audio"]), ..PassList::default() };
    let body = r#"{"messages":[{"content":[{"type":"input_audio","input_audio":{"data":""}}]}]}"#;
    assert_whole(read_with(&CHAT, body, content.clone()), body);
    assert_refused(
        read_with(&CHAT, &body.replace("input_audio", "video_url"), content),
        "pass_content",
    );
}

#[test]
fn tools_that_an_operator_passes_hold_a_context_for_each_round() {
    let pass =
        || PassList { tools: names(&["web_search*", "google_search"]), ..PassList::default() };
    let rounds = |allowlist, tool: &str| with_tool(allowlist, tool, pass()).expect(tool).rounds;
    assert_eq!(rounds(&RESPONSES, r#"{"type":"web_search"}"#), ROUNDS_MAX);
    assert_eq!(rounds(&CHAT, r#"{"google_search":{}}"#), ROUNDS_MAX);
    let search = r#"{"type":"web_search_20250305","name":"w","max_uses":2}"#;
    assert_eq!(rounds(&MESSAGES, search), 3);
    assert_eq!(rounds(&MESSAGES, &search.replace(":2}", ":200}")), ROUNDS_MAX, "it stops itself");
    let two = format!("{search},{}", search.replace(r#","max_uses":2"#, ""));
    assert_eq!(rounds(&MESSAGES, &two), ROUNDS_MAX, "one does not say");
    let body = r#"{"tools":[{"type":"web_search"}],"max_tool_calls":4}"#;
    let bounded = read_with(&RESPONSES, body, pass()).expect("passed");
    assert_eq!(bounded.rounds, 5);
    assert_whole(Ok(bounded), body);
    assert_refused(
        with_tool(&MESSAGES, r#"{"type":"advisor_20260301","name":"a"}"#, pass()),
        "pass_tools",
    );
}

#[test]
fn a_context_that_may_be_summed_up_is_one_answer_more() {
    let read = |allowlist, value: &str| {
        let body = format!(r#"{{"model":"m","context_management":{value}}}"#);
        read_with(allowlist, &body, PassList::default()).expect("offered")
    };
    for clears in [
        "null",
        r#"{"edits":[]}"#,
        r#"{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]}"#,
        r#"{"edits":[{"type":"clear_tool_uses_20250919","trigger":{"type":"input_tokens"}}]}"#,
    ] {
        assert!(read(&MESSAGES, clears).is_plain(), "{clears}");
    }
    for (allowlist, compacts) in [
        (&MESSAGES, r#"{"edits":[{"type":"compact_20260112"}]}"#),
        (&MESSAGES, r#"{"edits":[{"type":"\u0063ompact_20260112"}]}"#),
        (&MESSAGES, r#"{"\u0065dits":[{"type":"compact_20260112"}]}"#),
        (&MESSAGES, r#"{"edits":[{"type":"clear_x","type":"compact_20260112"}]}"#),
        (&MESSAGES, r#"{"edits":{"type":"compact_20260112"}}"#),
        (&RESPONSES, r#"[{"type":"compaction","compact_threshold":1000}]"#),
    ] {
        let prompt = read(allowlist, compacts);
        assert!(prompt.is_compacted && !prompt.is_plain(), "{compacts}");
    }
}

/// With a price for what is kept for twelve hours, or without.
fn with_lifetimes(
    allowlist: &'static Allowlist,
    body: &str,
    is_priced: bool,
) -> Result<Prompt, GatewayError> {
    let units = if is_priced { vec![Unit::CacheWrite12hTokens] } else { Vec::new() };
    let priced = PricedFeatures { units, ..PricedFeatures::default() };
    let limits = ModelLimits { priced, ..limits(PassList::default()) };
    read(&Object::parse(body.as_bytes()).expect(body), allowlist, &limits)
}

/// Bodies that ask for the lifetime wherever OpenAI's dialects can.
fn of_lifetime(ttl: &str) -> Vec<(&'static Allowlist, String)> {
    let mark = format!(r#""prompt_cache_breakpoint":{{"mode":"explicit","ttl":{ttl}}}"#);
    let options = format!(r#""prompt_cache_options":{{"ttl":{ttl}}}"#);
    let text = format!(r#"{{"type":"input_text","text":"a",{mark}}}"#);
    let output = format!(r#"{{"type":"function_call_output","call_id":"c","output":[{text}]}}"#);
    let image = format!(r#"{{"type":"input_image","image_url":"https://a.example/b",{mark}}}"#);
    let part = format!(r#"{{"type":"text","text":"a",{mark}}}"#);
    vec![
        (&RESPONSES, format!(r#"{{"model":"m","input":"a",{options}}}"#)),
        (&COMPACT, format!(r#"{{"model":"m","input":"a",{options}}}"#)),
        (&CHAT, format!(r#"{{"model":"m","messages":[],{options}}}"#)),
        (&RESPONSES, format!(r#"{{"input":[{{"role":"user","content":[{text}]}}]}}"#)),
        (&RESPONSES, format!(r#"{{"input":[{{"role":"user","content":[{image}]}}]}}"#)),
        (&RESPONSES, format!(r#"{{"input":[{output}]}}"#)),
        (&CHAT, format!(r#"{{"messages":[{{"role":"user","content":[{part}]}}]}}"#)),
        (&CHAT, format!(r#"{{"prediction":{{"type":"content","content":[{part}]}}}}"#)),
    ]
}

#[test]
fn a_lifetime_of_a_cache_is_looked_at_by_its_value() {
    for (allowlist, body) in of_lifetime(r#""12h""#) {
        let error = with_lifetimes(allowlist, &body, false).expect_err(&body);
        assert!(error.message.contains("cache_write_12h_per_1m_tokens"), "{body}: {error}");
        let prompt = with_lifetimes(allowlist, &body, true).expect(&body);
        assert_eq!(prompt.input_ways().cache_writes, CacheWrites::Any, "{body}");
        assert_eq!(prompt.written_as, Some(Unit::CacheWrite12hTokens), "{body}");
        let escaped = body.replace("12h", r"\u00312h").replace("ttl", r"\u0074tl");
        let prompt = with_lifetimes(allowlist, &escaped, true).expect(&escaped);
        assert_eq!(prompt.written_as, Some(Unit::CacheWrite12hTokens), "{escaped}");
    }
    for usual in [r#""30m""#, "null"] {
        for (allowlist, body) in of_lifetime(usual) {
            let prompt = with_lifetimes(allowlist, &body, false).expect(&body);
            assert_eq!(prompt.input_ways().cache_writes, CacheWrites::Hour, "{body}");
            assert_eq!(prompt.written_as, None, "{body}");
        }
    }
    for unknown in [r#""24h""#, "720", "true"] {
        for (allowlist, body) in of_lifetime(unknown) {
            let error = with_lifetimes(allowlist, &body, true).expect_err(&body);
            assert!(error.message.contains("30m or 12h"), "{body}: {error}");
        }
    }
    let kept = r#"{"model":"m","input":"a","previous_response_id":"resp_1"}"#;
    let prompt = with_lifetimes(&RESPONSES, kept, true).expect(kept);
    assert_eq!(prompt.input_ways().cache_writes, CacheWrites::Any, "what is kept may be marked");
}

#[test]
fn options_that_change_no_price_pass_and_others_are_named() {
    for (allowlist, fields) in [
        (&CHAT, r#""prompt_cache_options":{"mode":"implicit"}"#),
        (&RESPONSES, r#""prompt_cache_options":{"mode":"implicit","prewarm":false}"#),
        (&RESPONSES, r#""image":{"context_compression":"enabled"}"#),
        (&RESPONSES, r#""access_programs":{"cyber":"standard"}"#),
        (&RESPONSES, r#""access_programs":null"#),
    ] {
        let body = format!(r#"{{"model":"m",{fields}}}"#);
        let prompt = read_with(allowlist, &body, PassList::default()).expect(&body);
        assert!(prompt.is_plain(), "{body}: {prompt:?}");
    }
    for (fields, named) in [
        (r#""prompt_cache_options":{"prewarm":true}"#, "prompt_cache_options.prewarm"),
        (
            r#""prompt_cache_options":{"comparison_response_id":"resp_1"}"#,
            "prompt_cache_options.comparison_response_id",
        ),
        (r#""prompt_cache_options":{"later":1}"#, "prompt_cache_options.later"),
        (r#""prompt_cache_options":"12h""#, "must be an object"),
        (r#""access_programs":{"cyber":"daybreak_red"}"#, "access_programs.cyber"),
        (r#""moderation":{"model":"m"}"#, "moderation"),
        (r#""background_options":{}"#, "background_options"),
    ] {
        let body = format!(r#"{{"model":"m",{fields}}}"#);
        let error = read_with(&RESPONSES, &body, PassList::default()).expect_err(&body);
        assert!(error.message.contains(named), "{body}: {error}");
    }
    let pass = PassList { fields: names(&["prompt_cache_options.prewarm"]), ..PassList::default() };
    let body = r#"{"model":"m","prompt_cache_options":{"prewarm":true}}"#;
    let prompt = read_with(&RESPONSES, body, pass).expect("the operator passes it");
    assert_eq!((prompt.has_passed, prompt.input_ways().cache_writes), (true, CacheWrites::Any));
}

#[test]
fn a_reference_to_a_tool_holds_its_definition_once_more() {
    let reference = r#"{"type":"tool_reference","tool_name":"f"}"#;
    let added = r#"{"type":"tool_addition","tool":{"type":"tool_reference","name":"f"}}"#;
    let tool = r#"{"name":"f","description":"0123456789","defer_loading":true}"#;
    let tokens = |content: &str| {
        let body = format!(
            r#"{{"model":"m","tools":[{tool},{{"name":"g"}}],"messages":[{{"role":"user","content":[{content}]}}]}}"#
        );
        let prompt = read_with(&MESSAGES, &body, PassList::default()).expect(content);
        prompt.added_tokens_max.expect("bounded") - TOOLS_TOKENS_MAX
    };
    let definition = tool.len() as u64;
    assert_eq!(tokens(r#"{"type":"text","text":"hi"}"#), 0);
    assert_eq!(tokens(added), definition);
    let result = format!(r#"{{"type":"tool_result","tool_use_id":"t","content":[{reference}]}}"#);
    assert_eq!(tokens(&format!("{result},{added},{result}")), 3 * definition);
    let removed = r#"{"type":"tool_removal","tool":{"type":"tool_reference","name":"f"}}"#;
    assert_eq!(tokens(removed), 0);
}

#[test]
fn a_tool_that_a_message_defines_is_read_as_any_other() {
    let added = |definition: &str| {
        let content = format!(
            r#"[{{"type":"tool_addition","tool":{{"type":"tool_definition","definition":{definition}}}}}]"#
        );
        messages(&content)
    };
    assert!(added(r#"{"name":"f","input_schema":{}}"#).is_ok());
    for tool in [
        r#"{"type":"web_search_20250305","name":"web_search"}"#,
        r#"{"type":"advisor_20260301","name":"advisor"}"#,
        r#"{"type":"code_execution_20250825","name":"code_execution"}"#,
    ] {
        assert_refused(added(tool), "pass_tools");
        // Nor where the content around it holds the whole context.
        let around = format!(
            r#"[{{"type":"search_result","content":[{{"type":"tool_addition","tool":{{"definition":{tool}}}}}]}}]"#
        );
        assert_refused(messages(&around), "pass_tools");
    }
}

#[test]
fn wishes_that_claude_code_does_without_are_left_out_by_name() {
    let body = r#"{"model":"m","safeguards":[{"type":"dangerous_tool_use"}],"messages":[],
        "thread":{"type":"create"},"fallbacks":"default"}"#;
    let prompt = read_with(&MESSAGES, body, PassList::default()).expect("offered");
    assert_eq!(prompt.left_out_fields, ["safeguards", "thread", "fallbacks"]);
    let passed = PassList { fields: vec!["safeguards".to_owned()], ..PassList::default() };
    let prompt = read_with(&MESSAGES, body, passed).expect("offered");
    assert_eq!(prompt.left_out_fields, ["thread", "fallbacks"]);
    assert!(prompt.has_passed);
    for thread in [r#"{"type":"continue","previous_message_id":"msg_1"}"#, r#""create""#, "{}"] {
        let body = format!(r#"{{"model":"m","thread":{thread},"messages":[]}}"#);
        assert_refused(read_with(&MESSAGES, &body, PassList::default()), "pass_fields");
    }
}
