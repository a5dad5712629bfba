//! Azure's own ways: the header of its keys, and the paths of deployments.

use serde_json::json;

use super::{CHAT, completion, only_ours};
use crate::harness::{Gateway, Responder, ask, chat_model};

#[test]
fn keys_and_deployments_are_named_as_azure_wants_it() {
    let upstream = Responder::start(|_, _| completion());
    let upstreams = format!(
        "  classic: {{ protocol: azure, base_url: 'http://{0}', api_version: 2024-10-21, credential: key-of-a-test }}
  v1: {{ protocol: azure, base_url: 'http://{0}/openai/v1', credential: key-of-a-test }}
",
        upstream.address
    );
    let renamed = chat_model("renamed", "classic")
        .replace("{ upstream: classic }", "{ upstream: classic, model: my gpt/4o }");
    let models = format!(
        "models:\n{}{}{}{renamed}",
        chat_model("m", "classic"),
        chat_model("n", "v1"),
        chat_model("gpt-*", "classic"),
    );
    let gateway = Gateway::serving(&upstreams, &models);
    let version = "?api-version=2024-10-21";
    for (model, path) in [
        ("m", format!("/openai/deployments/m/chat/completions{version}")),
        ("n", "/openai/v1/chat/completions".to_owned()),
        ("renamed", format!("/openai/deployments/my%20gpt%2F4o/chat/completions{version}")),
        ("gpt-/..x", format!("/openai/deployments/gpt-%2F..x/chat/completions{version}")),
    ] {
        let body = CHAT.replace("\"m\"", &json!(model).to_string());
        let lines = format!("api-key: customers\r\nContent-Length: {}\r\n", body.len());
        let answer = ask(gateway.address, &gateway.chat(&lines, &body));
        assert_eq!(answer.status(), 200, "{model}: {answer:?}");
        let requests = upstream.requests();
        let request = requests.last().expect("it has come");
        assert_eq!(request.target(), ("POST", path.as_str()), "{model}");
        assert_eq!(
            (request.header("api-key"), request.header("authorization")),
            ("key-of-a-test", "")
        );
        only_ours(request, "api-key");
    }
}
