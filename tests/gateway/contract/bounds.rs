//! Limits for customers who pay nothing: texts in records and failed submits.

use serde_json::json;

use super::upstream::{Upstream, json};
use super::{family_g, family_v, gateway, gateway_with, submit};

#[test]
fn texts_that_a_task_keeps_have_limits() {
    let upstream = Upstream::start(|_| json(400, r#"{"code":"InvalidParameter","error":"m"}"#));
    let gateway = gateway(&upstream);
    let url = |bytes: usize| {
        let url = "https://example.com/";
        format!("{url}{}", "a".repeat(bytes - url.len()))
    };
    for (body, field, value, is_taken) in [
        (family_v(), "webhook_url", json!(url(2048)), true),
        (family_v(), "webhook_url", json!(url(2049)), false),
        (family_v(), "webhook_url", json!(url(900_000)), false),
        (family_g(), "webhook_url", json!(url(2049)), false),
        (family_g(), "aspect_ratio", json!("16:9"), true),
        (family_g(), "aspect_ratio", json!("1234567:12345678"), true),
        (family_g(), "aspect_ratio", json!("1234567:123456789"), false),
        (family_g(), "aspect_ratio", json!("evil<b>"), false),
        (family_g(), "aspect_ratio", json!("9".repeat(900_000)), false),
        (family_g(), "aspect_ratio", json!(":"), false),
        (family_v(), "aspect_ratio", json!("x".repeat(900_000)), false),
        (family_g(), "model", json!("m".repeat(900_000)), false),
    ] {
        let before = upstream.posts().len();
        let mut body = body;
        body[field] = value;
        let refused = submit(&gateway, &body);
        assert_eq!(refused.status(), 400, "{field}: {refused:?}");
        let was_called = upstream.posts().len() > before;
        assert_eq!(was_called, is_taken, "{field}");
    }
    let journal: u64 = std::fs::read_dir(gateway.path("data").join("journal"))
        .expect("the journal")
        .map(|file| file.expect("a file").metadata().expect("its length").len())
        .sum();
    assert!(journal < 64 << 10, "{journal} bytes of nothing that was paid for");
}

#[test]
fn submits_that_come_to_nothing_are_counted() {
    let upstream = Upstream::start(|_| json(400, r#"{"code":"InvalidParameter","error":"m"}"#));
    let gateway = gateway_with(&upstream, "repeat_window: none, unpaid_per_minute: 3");
    for _ in 0..3 {
        assert_eq!(submit(&gateway, &family_v()).status(), 400);
    }
    let paused = submit(&gateway, &family_v());
    assert_eq!(paused.status(), 429, "{paused:?}");
    assert_eq!(paused.json()["error"]["code"], "rate_limit_exceeded", "{paused:?}");
    let pause: u64 = paused.header("retry-after").expect("told").parse().expect("seconds");
    assert!((1..=60).contains(&pause), "{pause}");
    assert_eq!(upstream.posts().len(), 3);
}

/// With the shipped defaults, as an attacker finds them.
#[test]
fn an_account_without_an_end_of_refusals_writes_for_a_moment_only() {
    let upstream = Upstream::start(|_| json(400, r#"{"code":"InvalidParameter","error":"m"}"#));
    let gateway = gateway_with(&upstream, "");
    let mut body = family_v();
    let mut statuses = Vec::new();
    for number in 0..60 {
        body["input"]["prompt"] = json!(format!("a lighthouse, {number}"));
        body["webhook_url"] = json!(format!("https://example.com/{}", "a".repeat(2000)));
        statuses.push(submit(&gateway, &body).status());
    }
    assert_eq!(statuses.iter().filter(|status| **status == 400).count(), 30, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 429).count(), 30, "{statuses:?}");
    let journal = std::fs::read_dir(gateway.path("data").join("journal")).expect("the journal");
    let bytes: u64 =
        journal.map(|file| file.expect("a file").metadata().expect("read").len()).sum();
    assert!(bytes < 512 << 10, "{bytes} bytes in a minute");
}
