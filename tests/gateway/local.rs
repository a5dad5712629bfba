//! Answers by the gateway itself: unknown paths and models.

use crate::harness::{Admin, Demo};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn unknown_paths_and_models_get_a_suggestion() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let customer = admin.customer("1.00").await;
    let refused = async |path: &str, body: Value| {
        let call = demo.post(path, &body, "").bearer_auth(&customer.key);
        let answer = call.send().await.expect("an answer");
        assert_eq!(answer.status(), 404, "{path}");
        let body: Value = answer.json().await.expect("JSON");
        body["error"]["message"].as_str().unwrap_or_default().to_owned()
    };
    for (path, suggestion) in [
        ("/chat/completions", "POST /v1/chat/completions"),
        ("/v1/v1/chat/completions", "POST /v1/chat/completions"),
        ("/v1/chat/completion", "POST /v1/chat/completions"),
        ("/v1/messages/", "POST /v1/messages"),
        ("/models", "GET /v1/models"),
        ("/v1/embedding", "POST /v1/embeddings"),
        ("/mpc", "POST /mcp"),
    ] {
        let message = refused(path, json!({})).await;
        assert!(message.contains(&format!("Did you mean {suggestion}?")), "{path}: {message}");
    }
    let message = refused("/v1/quux/frobnicate", json!({})).await;
    assert!(!message.contains("Did you mean"), "{message}");
    assert!(message.contains("GET /console"), "all there are: {message}");

    let ask = |model: &str| json!({"model": model, "messages": []});
    for (model, suggestion) in [("gpt-4o-mimi", "gpt-4o-mini"), ("GPT-4O", "gpt-4o")] {
        let message = refused("/v1/chat/completions", ask(model)).await;
        assert!(message.contains(&format!("Did you mean `{suggestion}`?")), "{model}: {message}");
    }
    let message = refused("/v1/chat/completions", ask("something-else-entirely")).await;
    assert!(!message.contains("Did you mean"), "{message}");

    // What a key may not use is not given away.
    let account = &customer.account;
    let key = admin
        .post(&format!("/accounts/{account}/keys"), json!({"name": "one", "models": ["gpt-4o"]}))
        .await;
    let key = key["key"].as_str().expect("a key").to_owned();
    let call = demo.post("/v1/chat/completions", &ask("gpt-4o-mimi"), "").bearer_auth(key);
    let body: Value = call.send().await.expect("an answer").json().await.expect("JSON");
    let message = body["error"]["message"].as_str().unwrap_or_default();
    assert!(!message.contains("gpt-4o-mini"), "{message}");
}
