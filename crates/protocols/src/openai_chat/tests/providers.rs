//! Deviations of providers that copied the API, in their own bytes.

use super::*;

/// Measurement of a stream of exactly these data, where the customer did not request usage.
fn measured(data: &[&str]) -> (Usage, UsageSource, bool) {
    let stream: String = data.iter().map(|data| format!("data: {data}\n\n")).collect();
    let sizes = [stream.len(), 7].map(|size| {
        let (_, meter) = relay(&stream, "", size);
        let (usage, source) = meter.measure();
        (usage, source, meter.has_failed())
    });
    assert_eq!(sizes[0], sizes[1], "cuts change nothing: {stream}");
    sizes[0]
}

/// Measurement of a document.
fn document(text: &str) -> (Usage, UsageSource, bool) {
    let body = with(r#""stream":false"#);
    let mut meter = read(body.as_bytes()).expect("valid").meter(Framing::Json);
    for piece in text.as_bytes().chunks(5) {
        meter.relay(Bytes::copy_from_slice(piece));
    }
    let (usage, source) = meter.measure();
    (usage, source, meter.has_failed())
}

const HI: &str = r#"{"choices":[{"index":0,"delta":{"content":"hi there"},"finish_reason":null}]}"#;

#[test]
fn usage_is_found_where_moonshot_and_groq_put_it() {
    let expected =
        Usage { input_tokens: 56, cache_read_tokens: 1280, output_tokens: 31, ..Usage::ZERO };
    let moonshot = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop","usage":{"prompt_tokens":1336,"completion_tokens":31,"total_tokens":1367,"cached_tokens":1280}}]}"#;
    assert_eq!(measured(&[HI, moonshot, "[DONE]"]), (expected, UsageSource::Upstream, false));
    let groq = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"x_groq":{"id":"req_1","usage":{"queue_time":0.04,"prompt_tokens":1336,"prompt_time":0.001,"completion_tokens":31,"completion_time":0.2,"total_tokens":1367,"total_time":0.3,"prompt_tokens_details":{"cached_tokens":1280}}}}"#;
    assert_eq!(measured(&[HI, groq, "[DONE]"]), (expected, UsageSource::Upstream, false));
    let both = format!(
        r#"{{"choices":[],"usage":{{"prompt_tokens":1336,"completion_tokens":31,"cached_tokens":1280}},{}"#,
        &groq[groq.find("\"x_groq\"").expect("it")..]
    );
    assert_eq!(measured(&[HI, groq, &both, "[DONE]"]), (expected, UsageSource::Upstream, false));
}

#[test]
fn an_error_in_the_place_of_an_answer_is_none() {
    for body in [
        r#"{"id":"x","choices":null,"usage":{"total_tokens":0},"base_resp":{"status_code":1008,"status_msg":"insufficient balance"}}"#,
        r#"{"base_resp":{"status_msg":"rate limit","status_code":1002}}"#,
        r#"{"choices":[{"index":0,"error":{"code":502,"message":"down"},"finish_reason":"error"}]}"#,
        r#"{"choices":[{"index":0,"message":{"content":""},"error":{"code":502}}]}"#,
        r#"{"choices":[{"finish_reason" : "network_error","index":0}]}"#,
        r#"{"error":{"code":502,"message":"down"},"choices":[{"delta":{"content":""},"finish_reason":"error"}]}"#,
    ] {
        assert!(document(body).2, "a document: {body}");
        assert!(measured(&[body]).2, "a stream: {body}");
    }
    let stopped = r#"{"choices":[],"x_groq":{"id":"req_1","error":"over capacity"}}"#;
    assert!(measured(&[HI, stopped]).2, "a stream that Groq has stopped");
    for body in [
        r#"{"choices":[{"index":0,"error":null,"finish_reason":"stop"}],"base_resp":{"status_code":0,"status_msg":""}}"#,
        r#"{"choices":[{"message":{"content":"error","finish_reason":"error","error":{}},"finish_reason":"stop"}]}"#,
        r#"{"choices":[{"finish_reason":"stop","stop_reason":"error","x":{}}],"base_resp":null}"#,
    ] {
        assert!(!document(body).2, "a document: {body}");
        assert!(!measured(&[body]).2, "a stream: {body}");
    }
}

#[test]
fn what_a_failed_answer_reports_is_billed_all_the_same() {
    let usage = r#""usage":{"prompt_tokens":12,"completion_tokens":5}"#;
    let expected = Usage { input_tokens: 12, output_tokens: 5, ..Usage::ZERO };
    for failed in [
        format!(r#"{{"choices":[{{"finish_reason":"error"}}],{usage}}}"#),
        format!(r#"{{"choices":[],{usage},"base_resp":{{"status_code":1027}}}}"#),
    ] {
        assert_eq!(document(&failed), (expected, UsageSource::Upstream, false), "{failed}");
        assert_eq!(measured(&[HI, &failed]).0, expected, "{failed}");
    }
}

#[test]
fn thoughts_count_as_shown_wherever_they_stand() {
    let of = |delta: &str| {
        let chunk = format!(r#"{{"choices":[{{"index":0,"delta":{delta}}}]}}"#);
        measured(&[&chunk]).0.output_tokens
    };
    let text = "a thought of a few words";
    let expected = of(&format!(r#"{{"content":"{text}"}}"#));
    assert!(expected > 3, "{expected}");
    for delta in [
        format!(r#"{{"reasoning_content":"{text}"}}"#),
        format!(
            r#"{{"reasoning":"{text}","reasoning_details":[{{"type":"reasoning.text","text":"{text}"}}]}}"#
        ),
        format!(
            r#"{{"reasoning_details":[{{"type":"reasoning.text","text":"{text}","index":0}}]}}"#
        ),
        format!(
            r#"{{"content":[{{"type":"thinking","thinking":[{{"type":"text","text":"{text}"}}]}}]}}"#
        ),
        format!(r#"{{"content":[{{"type":"text","text":"{text}"}}]}}"#),
    ] {
        assert_eq!(of(&delta), expected, "{delta}");
    }
}

#[test]
fn blank_lines_before_a_document_are_nothing() {
    let text = "\n\n\n\n{\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":5,\"prompt_cache_hit_tokens\":4}}";
    let expected = Usage { input_tokens: 8, cache_read_tokens: 4, output_tokens: 5, ..Usage::ZERO };
    assert_eq!(document(text), (expected, UsageSource::Upstream, false));
}
