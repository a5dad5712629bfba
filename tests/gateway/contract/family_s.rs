//! Family S: the upstream's own words, there and back.

use serde_json::json;

use super::upstream::{Upstream, answer, json};
use super::{ended, family_s, gateway, gateway_with, post, submit, submit_under};

#[test]
fn a_submit_is_answered_with_the_upstreams_own_bytes() {
    const REPLY: &str = r#"{ "id" : "cgt-20260122163918-bytes", "status":"queued","x":1.10, "created_at":1769071158 }"#;
    let upstream = Upstream::start(|_| json(200, REPLY));
    let gateway = gateway(&upstream);
    let answer = submit(&gateway, &family_s());
    assert_eq!((answer.status(), answer.body()), (200, REPLY.as_bytes().to_vec()), "{answer:?}");
    assert_eq!(answer.header("content-type").as_deref(), Some("application/json"));
}

/// Spec section 7, the rows of the upstream's own 429 and 5xx.
#[test]
fn the_upstreams_own_codes_arrive_with_their_status() {
    for (status, code, retry_after) in [
        (429, "RateLimitExceeded", "7"),
        (429, "Throttling", "7"),
        (500, "InternalError", ""),
        (500, "InternalServerError", ""),
        (503, "ServiceUnavailable", ""),
        (504, "RequestTimeout", ""),
        (504, "ModelTimeoutException", ""),
    ] {
        let body = format!(r#"{{ "error":{{"code":"{code}","message":"of its own"}}}}"#);
        let text_found = body.clone();
        let upstream = Upstream::start(move |_| {
            let lines = "Content-Type: application/json\r\nRetry-After: 7\r\n";
            answer(status, lines, &text_found)
        });
        let gateway = gateway(&upstream);
        let refused = submit(&gateway, &family_s());
        assert_eq!((refused.status(), refused.body()), (status, body.into_bytes()), "{refused:?}");
        let reply = refused.header("retry-after").unwrap_or_default();
        assert_eq!(reply, retry_after, "{code}");
        let is_in_doubt = status == 504;
        let retry = refused.header("x-should-retry");
        assert_eq!(retry.as_deref() == Some("false"), is_in_doubt, "{code}: {retry:?}");
        assert_eq!(upstream.posts().len(), 1, "{code}: it is never sent again");
    }
}

#[test]
fn a_failure_without_words_has_the_contracts_and_the_operators_is_nobodys() {
    let page = "<html>nginx</html>";
    let quota = r#"{"error":{"code":"QuotaExceeded","message":"account 12345"}}"#;
    let account = r#"{"error":{"code":"ModelAccountRpmRateLimitExceeded","message":"acc 12345"}}"#;
    let secret = format!(
        r#"{{"error":{{"code":"InternalError","message":"{} 12345"}}}}"#,
        "sk-credential-of-the-operator"
    );
    for (status, body, expected, code) in [
        (500, secret.as_str(), 500, "InternalError"),
        (500, page, 500, "InternalError"),
        (502, page, 502, "BadGateway"),
        (503, page, 503, "ServiceUnavailable"),
        (504, page, 504, "RequestTimeout"),
        (429, page, 429, "RateLimitExceeded"),
        (429, account, 429, "RateLimitExceeded"),
        (429, quota, 502, "service_unavailable"),
    ] {
        let text_found = body.to_owned();
        let upstream = Upstream::start(move |_| json(status, &text_found));
        let gateway = gateway(&upstream);
        let refused = submit(&gateway, &family_s());
        let error = &refused.json()["error"];
        assert_eq!((refused.status(), &error["code"]), (expected, &json!(code)), "{refused:?}");
        assert!(!String::from_utf8_lossy(&refused.bytes).contains("12345"), "{refused:?}");
    }
}

#[test]
fn the_same_submit_within_seconds_is_a_conflict_by_default() {
    let upstream = Upstream::start(|_| json(200, r#"{"id":"cgt-1-a"}"#));
    let gateway = gateway_with(&upstream, "");
    assert_eq!(submit(&gateway, &family_s()).status(), 200);
    let again = submit(&gateway, &family_s());
    let code = again.json()["error"]["code"].clone();
    assert_eq!((again.status(), code), (409, json!("idempotency_conflict")), "{again:?}");
    assert_eq!(upstream.posts().len(), 1, "one video is made, and billed");
    // Each is another with a key of its own.
    for key in ["a", "b", "a"] {
        let answer = submit_under(&gateway, key, &family_s());
        assert_eq!(answer.status(), 200, "{key}: {answer:?}");
    }
    assert_eq!(upstream.posts().len(), 3);
}

/// The first answer is repeated in the same process and after a restart, before and after the task's end.
#[test]
fn a_repeated_submit_is_answered_as_the_first_was() {
    const REPLY: &str =
        r#"{ "id" : "cgt-1-replay", "status":"queued","note":"\u732b 猫", "x":1.10 }"#;
    const DONE: &str = r#"{"id":"cgt-1-replay","status":"succeeded","content":{"video_url":"https://a.example/v.mp4"},"usage":{"completion_tokens":1,"total_tokens":1}}"#;
    let upstream =
        Upstream::start(|request| json(200, if request.is_post() { REPLY } else { DONE }));
    let mut gateway = gateway(&upstream);
    let submitted = |gateway: &super::Gateway| {
        let answer = submit_under(gateway, "order-9", &family_s());
        (answer.status(), String::from_utf8_lossy(&answer.body()).into_owned())
    };
    let message = (200, REPLY.to_owned());
    assert_eq!(submitted(&gateway), message, "the first");
    assert_eq!(submitted(&gateway), message, "at once");
    ended(&gateway, "cgt-1-replay");
    assert_eq!(submitted(&gateway), message, "after its end");
    gateway.kill_and_restart();
    assert_eq!(submitted(&gateway), message, "by another process");
    assert_eq!(upstream.posts().len(), 1, "one video is made, and billed");
}

/// Above the limit of a record only the id is repeated.
#[test]
fn a_long_answer_to_a_submit_is_repeated_by_its_id() {
    for (bytes, is_kept) in [(4096, true), (4097, false), (200_000, false)] {
        let head = r#"{"id":"cgt-1-long","pad":""#;
        let message = format!("{head}{}\"}}", "x".repeat(bytes - head.len() - 2));
        let answer = message.clone();
        let upstream = Upstream::start(move |_| json(200, &answer));
        let gateway = gateway(&upstream);
        let repeated = || submit_under(&gateway, "order-9", &family_s()).body();
        assert_eq!(repeated(), message.as_bytes(), "the first");
        let expected = if is_kept { message } else { r#"{"id":"cgt-1-long"}"#.to_owned() };
        assert_eq!(String::from_utf8_lossy(&repeated()), expected, "{bytes} bytes");
        assert_eq!(upstream.posts().len(), 1);
    }
}

#[test]
fn a_submit_that_was_refused_is_no_repetition() {
    let upstream = Upstream::start(|_| {
        json(400, r#"{"error":{"code":"InvalidParameter","message":"of its own"}}"#)
    });
    let gateway = gateway_with(&upstream, "");
    for _ in 0..2 {
        assert_eq!(submit(&gateway, &family_s()).status(), 400);
    }
    assert_eq!(upstream.posts().len(), 2);
}

/// Spec sections 2.5 and 8: from 4 to 15 seconds, seeds from 0.
#[test]
fn seconds_and_seeds_outside_the_contract_are_refused() {
    let upstream = Upstream::start(|_| json(200, r#"{"id":"cgt-1-a"}"#));
    let gateway = gateway(&upstream);
    for (field, value, code) in [
        ("duration", json!(3), "InvalidParameter.DurationOutOfRange"),
        ("duration", json!(-1), "InvalidParameter.DurationOutOfRange"),
        ("duration", json!(16), "InvalidParameter.DurationOutOfRange"),
        ("seed", json!(-1), "InvalidParameter"),
        ("seed", json!(4_294_967_296_u64), "InvalidParameter"),
    ] {
        let mut body = family_s();
        body[field] = value;
        let refused = post(&gateway, super::VIDEOS, &body.to_string());
        let found = &refused.json()["error"]["code"];
        assert_eq!((refused.status(), found), (400, &json!(code)), "{body}");
    }
    assert_eq!(upstream.posts().len(), 0);
}
