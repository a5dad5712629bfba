//! Paid results are stored whole, whatever texts surround them.

use serde_json::{Value, json};

use super::upstream::{Upstream, json};
use super::{ended, family_s, family_v, gateway, record, submit};

const URL: &str = "https://a.example/v.mp4?Expires=1769157831&Signature=x%2By";

/// Prompts in all kinds of characters, as long as they can be; and both of them come back.
#[test]
fn a_paid_video_is_kept_however_long_its_prompts_are() {
    let texts = [
        ("Chinese", "猫".repeat(3000)),
        ("emoji", "🦊".repeat(4096)),
        ("quotes", "\"".repeat(4096)),
        ("control characters", "\u{1}".repeat(4096)),
        ("Cyrillic", "ж".repeat(4096)),
        ("longer than is shown", "猫".repeat(50_000)),
    ];
    for (name, text) in texts {
        let prompt = text.clone();
        let upstream = Upstream::start(move |request| {
            let task = json!({"task_id": "0385dc79-5ff8", "task_status": "PENDING"});
            if request.is_post() {
                return json(200, &json!({"output": task}).to_string());
            }
            let done = json!({
                "output": {"task_id": "0385dc79-5ff8", "task_status": "SUCCEEDED",
                    "video_url": URL, "orig_prompt": prompt, "actual_prompt": prompt, "seed": 7},
                "usage": {"duration": 5, "video_count": 1},
            });
            json(200, &done.to_string())
        });
        let mut gateway = gateway(&upstream);
        let accepted = submit(&gateway, &family_v());
        assert_eq!(accepted.status(), 202, "{accepted:?}");
        let id = accepted.json()["id"].as_str().expect("an id").to_owned();
        let check = |record: &Value| {
            assert_eq!(record["content"][0]["video_url"], URL, "{name}: {record}");
            assert_eq!((&record["seed"], &record["usage"]["duration"]), (&json!(7), &json!(5)));
            let shown: String = text.chars().take(4096).collect();
            assert_eq!(record["orig_prompt"], shown.as_str(), "{name}");
            assert_eq!(record["actual_prompt"], shown.as_str(), "{name}");
        };
        check(&ended(&gateway, &id).json());
        assert_eq!(gateway.settled()["spent"], "0.50");
        // From the ledger, also when it is rebuilt from its journal.
        gateway.kill_and_restart();
        check(&record(&gateway, &id).json());
        gateway.kill();
        std::fs::remove_dir_all(gateway.path("data").join("sled")).expect("sled's directory");
        gateway.kill_and_restart();
        check(&record(&gateway, &id).json());
    }
}

/// Family S: the upstream's own bytes, and not one paid for is missing of a record that is too large.
#[test]
fn a_record_of_family_s_is_the_upstreams_own_bytes() {
    let small = r#"{ "id":"cgt-20260122163918-bytes", "model":"seedance", "z":1.10, "a":1e2, "é":"\u00e9",
 "status":"succeeded", "content":{"video_url":"URL","last_frame_url":null}, "seed":18446744073709551616,
 "usage":{"completion_tokens":100000,"total_tokens":100000}, "created_at":1769071158 }"#
        .replace("URL", URL);
    let note = "猫".repeat(7_000);
    let large = small.replacen("{ ", &format!("{{ \"note\":\"{note}\","), 1);
    let huge = small.replacen("{ ", &format!("{{ \"prompt\":\"{}\",", "猫".repeat(70_000)), 1);
    for (message, kept) in [(&small, &small), (&large, &large), (&huge, &small)] {
        let answered = message.clone();
        let upstream = Upstream::start(move |request| {
            if request.is_post() {
                return json(200, r#"{ "id" : "cgt-20260122163918-bytes" }"#);
            }
            json(200, &answered)
        });
        let mut gateway = gateway(&upstream);
        let accepted = submit(&gateway, &family_s());
        assert_eq!(accepted.status(), 200, "{accepted:?}");
        let id = "cgt-20260122163918-bytes";
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        let expected = kept.replacen(
            "\"created_at\":1769071158 }",
            "\"created_at\":1769071158,\"object\":\"video.generation\" }",
            1,
        );
        let squeeze = |text: &str| text.replace("{ ", "{");
        assert_eq!(squeeze(&text(ended(&gateway, id).body())), squeeze(&expected));
        gateway.kill_and_restart();
        assert_eq!(squeeze(&text(record(&gateway, id).body())), squeeze(&expected), "kept so");
    }
}
