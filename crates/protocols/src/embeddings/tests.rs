use super::*;

const REQUEST: &[u8] = include_bytes!("../../fixtures/openai_embeddings/request.json");
const RESPONSE: &[u8] = include_bytes!("../../fixtures/openai_embeddings/response.json");

fn read(body: &[u8]) -> Result<Box<dyn Call>, GatewayError> {
    let object = Object::parse(body).expect("JSON");
    let limits =
        ModelLimits { input_tokens_max: 50, dimensions: vec![256, 512], ..ModelLimits::default() };
    OpenaiEmbeddings.read(&Request::Json(object), &limits)
}

fn relay(request: &[u8], response: &[u8]) -> (Vec<u8>, Box<dyn Meter>) {
    let mut meter = read(request).expect("valid").meter(Framing::Json);
    let mut out = Vec::new();
    for piece in response.chunks(9) {
        out.extend_from_slice(&meter.relay(Bytes::copy_from_slice(piece)));
    }
    out.extend_from_slice(&meter.finish());
    (out, meter)
}

#[test]
fn floats_become_base64_on_request() {
    let (out, meter) = relay(REQUEST, RESPONSE);
    let text = String::from_utf8(out).expect("text");
    // struct.pack("<3f", 0.5, -1.25, 3) and struct.pack("<3f", 1e-3, 0, -0.0) in Python.
    let expected = std::str::from_utf8(RESPONSE)
        .expect("text")
        .replace("[0.5,-1.25,3]", "\"AAAAPwAAoL8AAEBA\"")
        .replace("[1e-3,0,-0.0]", "\"bxKDOgAAAAAAAACA\"");
    assert_eq!(text, expected);
    assert_eq!(meter.measure(), (Usage { input_tokens: 4, ..Usage::ZERO }, UsageSource::Upstream));
    let (again, _) = relay(REQUEST, text.as_bytes());
    assert_eq!(again, text.as_bytes(), "base64 stays as it is");
}

#[test]
fn floats_stay_floats_for_who_did_not_ask() {
    let (out, meter) = relay(br#"{"model":"m","input":["a","b"]}"#, RESPONSE);
    assert_eq!(out, RESPONSE);
    assert_eq!(meter.held_bytes(), 0);
}

#[test]
fn vectors_go_on_in_the_order_of_their_inputs() {
    let swapped = std::str::from_utf8(RESPONSE).expect("text");
    let swapped =
        swapped.replace("\"index\":0", "\"index\":2").replace("\"index\":1", "\"index\":0");
    let swapped = swapped.replace("\"index\":2", "\"index\":1");
    for (format, second) in [("float", "[1e-3,0,-0.0]"), ("base64", "\"bxKDOgAAAAAAAACA\"")] {
        let body = format!(r#"{{"model":"m","input":["a","b"],"encoding_format":"{format}"}}"#);
        let (out, meter) = relay(body.as_bytes(), swapped.as_bytes());
        let text = String::from_utf8(out).expect("text");
        let first = format!(r#""data":[{{"object":"embedding","index":0,"embedding":{second}}}"#);
        assert!(text.contains(&first), "{text}");
        assert!(meter.is_complete(), "{text}");
    }
}

#[test]
fn an_answer_that_lacks_a_vector_is_none_and_goes_nowhere() {
    let good = std::str::from_utf8(RESPONSE).expect("text");
    for (bad, why) in [
        (good.replace("\"index\":1", "\"index\":0"), "twice"),
        (good.replace("\"index\":1", "\"index\":2"), "out of range"),
        (good.replace("\"index\":1", "\"index\":1.5"), "no integer"),
        (good.replace("\"index\":1,", ""), "no index"),
        (r#"{"data":[],"usage":{"prompt_tokens":4}}"#.to_owned(), "no vectors"),
        (r#"{"usage":{"prompt_tokens":4}}"#.to_owned(), "no list"),
    ] {
        let (out, meter) = relay(REQUEST, bad.as_bytes());
        assert!(out.is_empty() && !meter.is_complete(), "{why}");
        assert_eq!(meter.relayed(), Usage::ZERO, "{why}: nothing was delivered");
    }
    let one = br#"{"model":"m","input":"a"}"#;
    let (out, meter) = relay(one, good.as_bytes());
    assert!(out.is_empty() && !meter.is_complete(), "two for one input");
}

#[test]
fn a_missing_or_impossible_usage_is_estimated() {
    for response in [
        &br#"{"data":[{"index":0}]}"#[..],
        br#"{"data":[{"index":0}],"usage":{"prompt_tokens":-4}}"#,
        br#"{"data":[{"index":0}],"usage":{"prompt_tokens":0,"total_tokens":0}}"#,
    ] {
        let (out, meter) = relay(br#"{"model":"m","input":"first text"}"#, response);
        let (usage, source) = meter.measure();
        assert_eq!(source, UsageSource::Estimated);
        assert!((1..=30).contains(&usage.input_tokens), "{usage:?}");
        let answer: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
        assert!(answer["usage"]["prompt_tokens"].is_i64(), "the contract has one: {answer}");
    }
}

/// Upstreams bill what they add to an input, such as the words of its `input_type`.
#[test]
fn a_report_is_believed_however_large() {
    for (usage, tokens) in [
        (r#"{"prompt_tokens":99999}"#, 99_999),
        (r#"{"total_tokens":99999}"#, 99_999),
        (r#"{"prompt_tokens":4,"total_tokens":9900}"#, 9900),
    ] {
        let response = format!(r#"{{"data":[{{}}],"usage":{usage}}}"#);
        let (_, meter) = relay(REQUEST, response.as_bytes());
        let used = Usage { input_tokens: tokens, ..Usage::ZERO };
        assert_eq!(meter.measure(), (used, UsageSource::Upstream), "{usage}");
    }
}

#[test]
fn an_error_in_a_200_is_charged_to_nobody_unless_it_reports_a_use() {
    let failed = |response: &str| relay(REQUEST, response.as_bytes()).1.has_failed();
    assert!(failed(r#"{"error":{"message":"no"}}"#));
    assert!(!failed(r#"{"error":{"message":"no"},"usage":{"prompt_tokens":4}}"#));
    assert!(!failed(std::str::from_utf8(RESPONSE).expect("text")));
}

#[test]
fn what_came_of_a_call_that_failed_is_counted() {
    let body = br#"{"model":"m","input":["a","b","c"]}"#;
    let limits = ModelLimits { batch_inputs_max: Some(1), ..ModelLimits::default() };
    let object = Object::parse(body).expect("JSON");
    let call = OpenaiEmbeddings.read(&Request::Json(object), &limits).expect("valid");
    let collect = call.collected().expect("it is cut in three");
    let answer =
        Bytes::from(r#"{"data":[{"index":0,"embedding":[1]}],"usage":{"prompt_tokens":8}}"#);
    let used = Usage { input_tokens: 16, ..Usage::ZERO };
    let two = [answer.clone(), answer];
    assert_eq!(collect.answered(&two), Some((used, UsageSource::Upstream)));
    assert_eq!(collect.answered(&[]), None);
}

#[test]
fn a_report_is_charged_also_above_the_limit() {
    for (usage, tokens, is_above) in [
        (r#"{"prompt_tokens":100}"#, 100, false),
        (r#"{"prompt_tokens":99999}"#, 99_999, true),
        (r#"{"prompt_tokens":3,"total_tokens":4}"#, 4, false),
        (r#"{"total_tokens":4.0}"#, 4, false),
        (r#"{"prompt_tokens":9},"usage":{"prompt_tokens":1}"#, 9, false),
    ] {
        let response = format!(r#"{{"data":[],"usage":{usage}}}"#);
        let (_, meter) = relay(REQUEST, response.as_bytes());
        let expected = Usage { input_tokens: tokens, ..Usage::ZERO };
        assert_eq!(meter.measure(), (expected, UsageSource::Upstream), "{usage}");
        assert_eq!(meter.is_above_limits(), is_above, "{usage}");
    }
}

#[test]
fn every_shape_of_input_is_taken_and_bounded() {
    for (input, max_usage) in [
        (r#""abc""#, 5),
        (r#""\u4f60""#, 5),
        // A letter that tokenizers take apart: 3 bytes, of which 33 become.
        (r#""\ufdfa""#, 35),
        (r#"["a" ,  "b"]"#, 6),
        ("[6151,12]", 4),
        ("[[6151],[1,2]]", 5),
    ] {
        let body = format!(r#"{{"model":"m","input":{input}}}"#);
        let call = read(body.as_bytes()).expect(input);
        assert_eq!(call.max_usage().input_tokens, max_usage, "{input}");
    }
    let typed = br#"{"model":"m","input":["a","b"],"input_type":"query"}"#;
    assert_eq!(read(typed).expect("valid").max_usage().input_tokens, 6 + 2 * 32, "for its words");
    let long = format!(r#"{{"model":"m","input":"{}"}}"#, "x".repeat(100));
    assert_eq!(
        read(long.as_bytes()).expect("long").max_usage().input_tokens,
        50,
        "the model's limit"
    );
}

#[test]
fn invalid_requests_name_the_field() {
    for (fields, param) in [
        (r#""input":"""#, "input"),
        (r#""input":[]"#, "input"),
        (r#""input":{}"#, "input"),
        (r#""input":["a",1]"#, "input"),
        (r#""input":[[1],[]]"#, "input"),
        (r#""input":[[1],["a"]]"#, "input"),
        (r#""input":[-1]"#, "input"),
        (r#""input":"a","dimensions":300"#, "dimensions"),
        (r#""input":"a","encoding_format":"hex""#, "encoding_format"),
        (r#""Input":"a","input":"a""#, "Input"),
    ] {
        let body = format!(r#"{{"model":"m",{fields}}}"#);
        let error = read(body.as_bytes()).expect_err(fields);
        assert_eq!(error.param.as_deref(), Some(param), "{fields}: {error}");
    }
    let many = format!(r#"{{"model":"m","input":[{}]}}"#, vec!["\"a\""; 2049].join(","));
    assert_eq!(read(many.as_bytes()).expect_err("2049").param.as_deref(), Some("input"));
}

#[test]
fn voyage_gets_its_own_words_and_the_customer_openais() {
    let limits = ModelLimits { dimensions: vec![256], ..ModelLimits::default() };
    let body = include_bytes!("../../fixtures/voyage_embeddings/request.json");
    let object = Object::parse(body).expect("JSON");
    let call = VoyageEmbeddings.read(&Request::Json(object), &limits).expect("valid");
    let sent = call.splice("voyage-4").apply(&Bytes::from_static(body));
    let expected =
        r#"{"model":"voyage-4","input":["a"], "output_dimension" : 256,"encoding_format":null}"#;
    assert_eq!(std::str::from_utf8(&sent), Ok(expected));

    let mut meter = call.meter(Framing::Json);
    let answer = include_str!("../../fixtures/voyage_embeddings/response.json");
    assert!(meter.relay(Bytes::from(answer)).is_empty(), "held until it is whole");
    let reported = answer.replace("9}", "9,\"prompt_tokens\":9}");
    assert_eq!(std::str::from_utf8(&meter.finish()), Ok(reported.as_str()));

    let ids = Object::parse(br#"{"model":"m","input":[[1,2],[3]]}"#).expect("JSON");
    let refused = VoyageEmbeddings.read(&Request::Json(ids), &limits).expect_err("token ids");
    assert!(refused.message.contains("check_embedding_ctx_length"), "{refused}");
    let wrong = Object::parse(br#"{"model":"m","input":"a","dimensions":3}"#).expect("JSON");
    assert!(
        VoyageEmbeddings.read(&Request::Json(wrong), &limits).is_err(),
        "a size that the model has not"
    );
}
