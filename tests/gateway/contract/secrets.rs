//! The operator's data in upstreams' refusals of calls that the gateway makes itself.

use serde_json::{Value, json};

use super::upstream::{Upstream, answer};
use super::{family_s, family_v, gateway, post};

const JSON: &str = "Content-Type: application/json\r\n";
const SECRET: &str = "sk-credential-of-the-operator";

/// A request of each kind: an image that is put together, and tasks of two families.
fn requests() -> [(&'static str, Value); 3] {
    let image = json!({
        "model": "qf-image-2.0",
        "input": {"messages": [{"role": "user", "content": [{"text": "a cat"}]}]},
    });
    [("/v1/images/generations", image), (super::VIDEOS, family_v()), (super::VIDEOS, family_s())]
}

/// The words of a refusal in the shapes of both protocols.
fn refusal(message: &str) -> String {
    format!(
        r#"{{"code":"InvalidParameter","message":"{message}","error":{{"code":"InvalidParameter","message":"{message}"}}}}"#
    )
}

#[test]
fn a_refusal_that_tells_a_secret_or_cannot_be_read_is_replaced() {
    let escaped = SECRET.replace('k', "\\u006b");
    let nested = SECRET.replace('k', "\\\\\\\\u006b");
    let whose =
        format!("{JSON}OpenAI-Organization: org-canary\r\nX-DashScope-Workspace: ws-canary\r\n");
    let deep = format!("{}{SECRET}", r#"{"code":"InvalidParameter","a":["#.repeat(10_000));
    let values =
        format!(r#"{{"code":"InvalidParameter","a":[{}"{escaped}"]}}"#, "0,".repeat(200_000));
    let long = refusal(&"x".repeat(600_000));
    for (lines, body) in [
        (JSON.to_owned(), refusal(SECRET)),
        (JSON.to_owned(), refusal(&escaped)),
        (JSON.to_owned(), refusal(&nested)),
        (whose.clone(), refusal("of org-canary")),
        (whose, refusal("in ws-canary")),
        (JSON.to_owned(), deep),
        (JSON.to_owned(), values),
        (JSON.to_owned(), long),
        (format!("{JSON}Content-Encoding: gzip\r\n"), refusal("canary that nobody can read")),
        (JSON.to_owned(), String::new()),
        (JSON.to_owned(), refusal("x").chars().flat_map(|letter| [letter, '\0']).collect()),
    ] {
        let text_found = (lines.clone(), body.clone());
        let upstream = Upstream::start(move |_| answer(400, &text_found.0, &text_found.1));
        let gateway = gateway(&upstream);
        for (path, request) in requests() {
            let refused = post(&gateway, path, &request.to_string());
            let text = String::from_utf8_lossy(&refused.bytes).into_owned();
            let shown: String = body.chars().take(100).collect();
            assert_eq!(refused.status(), 400, "{shown}: {text}");
            assert!(!text.contains("canary") && !text.contains("operator\""), "{shown}: {text}");
            assert!(!text.contains("u006b"), "{shown}: {text}");
            assert!(refused.json()["error"]["message"].is_string(), "{shown}: {text}");
            assert_eq!(refused.header("content-encoding"), None, "{text}");
        }
    }
}

/// No task is in doubt, and no money held for it.
#[test]
fn a_refusal_that_breaks_off_is_one_all_the_same() {
    let upstream = Upstream::start(|_| {
        format!("HTTP/1.1 400 X\r\n{JSON}Content-Length: 5000\r\n\r\n{{\"code\":\"canary")
    });
    let gateway = gateway(&upstream);
    for (path, request) in requests() {
        let refused = post(&gateway, path, &request.to_string());
        let text = String::from_utf8_lossy(&refused.bytes).into_owned();
        assert_eq!(refused.status(), 400, "{text}");
        assert!(!text.contains("canary"), "{text}");
    }
    assert_eq!(gateway.settled()["held"], "0.00");
}

#[test]
fn a_refusal_that_is_no_document_is_text() {
    for (body, kind) in [
        ("<html><script>alert(1)</script></html>", "text/plain; charset=utf-8"),
        (r#"{"code":"InvalidParameter","message":"of its own"}"#, "application/json"),
    ] {
        let upstream = Upstream::start(move |_| answer(422, "Content-Type: text/html\r\n", body));
        let gateway = gateway(&upstream);
        for (path, request) in requests() {
            let refused = post(&gateway, path, &request.to_string());
            assert_eq!((refused.status(), refused.body()), (422, body.into()), "{refused:?}");
            assert_eq!(refused.header("content-type").as_deref(), Some(kind), "{refused:?}");
        }
    }
}
