//! Upstreams that answer in ways that no specification of theirs knows.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};

use crate::harness::{Answer, Gateway, ask};

const GOOD: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
const WHOLE: &str = "{\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":0}}";

/// An upstream that answers every request with these bytes and closes the connection.
pub(crate) fn upstream_that_says(response: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut request = [0; 64 * 1024];
            // A gateway that has gone away needs no answer.
            if stream.read(&mut request).is_ok_and(|bytes| bytes > 0) {
                drop(stream.write_all(response.as_bytes()));
                // What is left unread would have the connection reset before all is taken.
                drop(stream.shutdown(std::net::Shutdown::Write));
                drop(stream.set_read_timeout(Some(std::time::Duration::from_millis(300))));
                while stream.read(&mut request).is_ok_and(|bytes| bytes > 0) {}
            }
        }
    });
    address
}

/// A gateway whose upstream says this, and has been given such a credential.
fn keyed(credential: &str, response: &str) -> Gateway {
    let upstream = upstream_that_says(response.to_owned());
    Gateway::serving(
        &format!(
            "  odd: {{ protocol: openai, base_url: 'http://{upstream}/v1', credential: '{credential}' }}\n\
             routes:\n  - {{ path: /v1/chat/completions, operation: chat }}\n"
        ),
        "models:\n  m:\n    operations: [chat]\n    targets: [{ upstream: odd }]\n    \
         prices: { input_per_1m_tokens: 1, output_per_1m_tokens: 10 }\n    \
         limits: { context_tokens_max: 1000, output_tokens_max: 100 }\n    reasoning: false\n",
    )
}

/// A whole answer with this head and body, at whose end the connection closes.
fn closing(media_type: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\nConnection: close\r\n\r\n{body}")
}

/// A customer's answer from such an upstream, and the charge.
fn call(response: &str) -> (Answer, String) {
    let gateway = Gateway::start(upstream_that_says(response.to_owned()));
    let answer = ask(gateway.address, &gateway.chat_json(GOOD));
    let balance = gateway.settled();
    (answer, balance["spent"].as_str().expect("dollars").to_owned())
}

/// A whole answer of JSON with more lines in its head.
pub(crate) fn json_with(head: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{head}\r\n{body}"
    )
}

#[test]
fn an_answer_that_cannot_be_metered_is_not_relayed() {
    let switched =
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nfree";
    for response in [&json_with("Content-Encoding: gzip\r\n", WHOLE), switched] {
        let (answer, spent) = call(response);
        assert_eq!((answer.status(), spent.as_str()), (502, "0.00"), "{response}\n{answer:?}");
        assert_eq!(answer.header("connection").as_deref(), Some("close"), "{answer:?}");
        assert!(answer.is_closed, "a connection that is said to be closed is closed");
    }
}

#[test]
fn an_error_with_a_good_status_costs_nothing() {
    let error = r#"{"error":{"message":"overloaded","type":"server_error"}}"#;
    let (answer, spent) = call(&json_with("", error));
    assert_eq!((answer.status(), spent.as_str()), (429, "0.00"), "{answer:?}");
    assert_eq!(answer.json()["error"]["code"], "rate_limit_exceeded", "{answer:?}");

    let events = format!("data: {error}\n\n");
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
    let (answer, spent) = call(&format!("{head}{events}"));
    assert_eq!((answer.status(), spent.as_str()), (429, "0.00"), "{answer:?}");

    // Behind the answer's first word there is no other status.
    let begun = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"}}]}\n\n";
    let (answer, _) = call(&format!("{head}{begun}{events}"));
    let text = String::from_utf8_lossy(&answer.bytes);
    assert_eq!(answer.status(), 200, "{answer:?}");
    assert_eq!(text.matches("data: ").count(), 2, "the upstream has said it already: {text}");
}

/// A gateway with a model that may think in secret, whose upstream says this.
fn thinking(response: &str, more: &str) -> Gateway {
    let upstream = upstream_that_says(response.to_owned());
    Gateway::serving(
        &format!(
            "  odd: {{ protocol: openai, base_url: 'http://{upstream}/v1', credential: k }}\n\
             routes:\n  - {{ path: /v1/chat/completions, operation: chat }}\n"
        ),
        &format!(
            "models:\n  m:\n    operations: [chat]\n    targets: [{{ upstream: odd }}]\n    \
             prices: {{ input_per_1m_tokens: 1, cached_input_per_1m_tokens: 0.1, \
             output_per_1m_tokens: 5 }}\n    \
             limits: {{ context_tokens_max: 200000, output_tokens_max: 100000 }}\n{more}"
        ),
    )
}

/// Charge of an answer from such an upstream, in dollars.
fn charged(gateway: &Gateway) -> f64 {
    let answer = ask(gateway.address, &gateway.chat_json(GOOD));
    assert_eq!(answer.status(), 200, "{answer:?}");
    gateway.settled()["spent"].as_str().and_then(|spent| spent.parse().ok()).expect("dollars")
}

/// Cached tokens beside the prompt, as resellers of Claude write them in OpenAI's shape.
#[test]
fn usage_that_contradicts_itself_is_read_the_dearer_way_and_counted() {
    let usage = |total: u64| {
        format!(
            "{{\"choices\":[],\"usage\":{{\"prompt_tokens\":100,\"completion_tokens\":10,\
             \"total_tokens\":{total},\"prompt_tokens_details\":{{\"cached_tokens\":4000}}}}}}"
        )
    };
    let cause = "upstream=\"odd\"";
    for (total, contradicts) in [(110, true), (4110, false)] {
        let gateway = thinking(&json_with("", &usage(total)), "");
        let spent = charged(&gateway);
        assert!((spent - 0.00055).abs() < 1e-12, "{total}: {spent}");
        let metrics = gateway.metrics();
        let lines = metrics.lines().filter(|line| {
            line.starts_with("tollgate_usage_contradictions_total{cause=\"cache_above_prompt\"")
        });
        let found: Vec<&str> = lines.filter(|line| line.contains(cause)).collect();
        let count = format!(" {}", u8::from(contradicts));
        assert!(found.len() == 1 && found[0].ends_with(&count), "{total}: {found:?}");
    }
}

#[test]
fn a_complete_answer_without_usage_costs_its_estimate() {
    let stream = |usage: &str| {
        let text = "data: {\"choices\":[{\"delta\":{\"content\":\"Hello there\"}}]}\n\n";
        let end = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
        closing("text/event-stream", &format!("{text}{end}{usage}data: [DONE]\n\n"))
    };
    let message = "data: {\"choices\":[],\"usage\":{\"completion_tokens\":25}}\n\n";
    for (usage, more, least, most) in [
        ("", "", 0.0, 0.0002),
        (message, "", 0.000_125, 0.0002),
        ("", "    missing_usage: bound\n", 0.5, 0.7),
        ("", "    reasoning: false\n", 0.0, 0.0002),
    ] {
        let gateway = thinking(&stream(usage), more);
        let spent = charged(&gateway);
        assert!((least..most).contains(&spent), "{usage}{more}: {spent}");
        let lost = gateway.metric("tollgate_operator_loss_dollars_total{cause=\"untold\"}");
        let is_noted = more.is_empty();
        assert_eq!(lost > 0.0, is_noted, "{usage}{more}: {lost}");
        // A side that is told is not lost.
        assert!(usage.is_empty() || lost < 0.01, "{usage}: {lost}");
    }
}

#[test]
fn a_busy_upstreams_words_stay_here_but_for_when_to_come_again() {
    let body = r#"{"error":{"message":"Rate limit reached in organization org-canary"}}"#;
    let response = format!(
        "HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\nRetry-After: 7\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let (answer, spent) = call(&response);
    assert_eq!((answer.status(), spent.as_str()), (429, "0.00"), "{answer:?}");
    assert_eq!(answer.header("retry-after").as_deref(), Some("7"), "{answer:?}");
    assert_eq!(answer.json()["error"]["code"], "rate_limit_exceeded", "{answer:?}");
    assert!(!String::from_utf8_lossy(&answer.bytes).contains("canary"), "{answer:?}");
}

#[test]
fn hints_come_without_the_operators_cookies() {
    let hints = "HTTP/1.1 103 Early Hints\r\nSet-Cookie: canary=1\r\n\r\n";
    let (answer, spent) = call(&format!("{hints}{}", json_with("", WHOLE)));
    assert_eq!((answer.status(), spent.as_str()), (200, "0.000003"), "{answer:?}");
    assert!(!String::from_utf8_lossy(&answer.bytes).contains("canary"), "{answer:?}");
}

const STREAMED: &str = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;
const EVENTS: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"}}]}\n\n\
    data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}\n\n\
    data: [DONE]\n\n";

/// An error within an answer that is good otherwise: the customer reads it without the credential.
#[test]
fn an_error_in_a_stream_or_with_a_good_status_tells_no_credential() {
    const SECRET: &str = "sk-upstream-canary";
    const BEGUN: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"}}]}\n\n";
    let error =
        format!(r#"{{"error":{{"message":"{SECRET} has no quota","type":"x","code":"y"}}}}"#);
    for (kind, body, request, is_begun) in [
        ("text/event-stream", format!("{BEGUN}data: {error}\n\n"), STREAMED, true),
        ("application/json", error.clone(), GOOD, false),
    ] {
        let gateway = keyed(SECRET, &closing(kind, &body));
        let answer = ask(gateway.address, &gateway.chat_json(request));
        let text = String::from_utf8(answer.body()).expect("text");
        assert_eq!(text.contains("****************** has no quota"), is_begun, "{kind}: {text}");
        assert_eq!(answer.status(), if is_begun { 200 } else { 502 }, "{kind}: {text}");
        assert!(!text.contains(SECRET), "{kind}: {text}");
    }
}

/// Headers that frame the answer are not searched for the credential.
#[test]
fn a_short_credential_makes_no_answer_free() {
    for credential in ["x", "t", "text", "json", "stream", "utf-8", "/"] {
        for (body, answer) in [
            (GOOD, json_with("", WHOLE)),
            (STREAMED, closing("text/event-stream; charset=utf-8", EVENTS)),
        ] {
            let gateway = keyed(credential, &answer);
            let answer = ask(gateway.address, &gateway.chat_json(body));
            let spent = gateway.settled()["spent"].as_str().expect("dollars").to_owned();
            let kind = answer.header("content-type").unwrap_or_default();
            let is_stream = body == STREAMED;
            assert_eq!(answer.status(), 200, "{credential}: {answer:?}");
            assert_eq!(kind.contains("event-stream"), is_stream, "{credential}: {answer:?}");
            let due = if is_stream { "0.000013" } else { "0.000003" };
            assert_eq!(spent, due, "{credential}: {answer:?}");
            let text = String::from_utf8_lossy(&answer.bytes).into_owned();
            assert!(!is_stream || !text.contains("usage"), "nobody asked for it: {text}");
        }
    }
}

/// Where head and body disagree, the body decides.
#[test]
fn events_that_are_called_json_are_charged_as_events() {
    for body in [EVENTS.to_owned(), format!(": ping\n\n{EVENTS}"), format!("\n\n{EVENTS}")] {
        let gateway = keyed("sk-upstream-canary", &closing("application/json", &body));
        let answer = ask(gateway.address, &gateway.chat_json(STREAMED));
        let spent = gateway.settled()["spent"].clone();
        let text = String::from_utf8_lossy(&answer.bytes).into_owned();
        assert_eq!((answer.status(), spent.as_str()), (200, Some("0.000013")), "{text}");
        let kind = answer.header("content-type");
        assert_eq!(kind.as_deref(), Some("text/event-stream"), "{text}");
        assert!(text.contains("data: [DONE]") && !text.contains("usage"), "{text}");
    }
}

#[test]
fn json_that_is_called_events_is_not_delivered() {
    let body = "{\"choices\":[{\"message\":{\"content\":\"free-canary\"}}]}";
    for body in [body.to_owned(), format!("\n {body}\n\n"), format!("[{body}]")] {
        for request in [STREAMED, GOOD] {
            let gateway = keyed("sk-upstream-canary", &closing("text/event-stream", &body));
            let answer = ask(gateway.address, &gateway.chat_json(request));
            let text = String::from_utf8_lossy(&answer.bytes).into_owned();
            assert!(!text.contains("free-canary"), "{text}");
            assert!(text.contains("BadGateway"), "{text}");
            assert_eq!(gateway.settled()["spent"], "0.00", "{text}");
            let lost = gateway.metric("tollgate_operator_loss_dollars_total{cause=\"untold\"}");
            assert!(lost > 0.0, "it is in the books");
        }
    }
}

#[test]
fn an_answer_of_no_kind_is_a_bad_gateway() {
    for head in ["", "Content-Type: text/plain\r\n", "Content-Type: application/x-ndjson\r\n"] {
        let length = WHOLE.len();
        let (answer, spent) =
            call(&format!("HTTP/1.1 200 OK\r\n{head}Content-Length: {length}\r\n\r\n{WHOLE}"));
        assert_eq!((answer.status(), spent.as_str()), (502, "0.00"), "{answer:?}");
        assert_eq!(answer.json()["error"]["code"], "BadGateway", "{answer:?}");
    }
}

/// Headers that could steer a proxy, a browser or a cache are removed.
#[test]
fn only_listed_headers_reach_the_customer() {
    let dangerous = [
        "X-Accel-Redirect: /internal/canary",
        "X-Accel-Buffering: yes-canary",
        "X-Sendfile: /etc/canary",
        "Location: https://canary.example",
        "Refresh: 0; url=https://canary.example",
        "Clear-Site-Data: \"canary\"",
        "Content-Security-Policy: canary",
        "Service-Worker-Allowed: /canary",
        "Link: <canary>; rel=preload",
        "Report-To: canary",
        "NEL: canary",
        "Via: 1.1 canary",
        "Cache-Control: public, max-age=1, canary=1",
        "ETag: \"canary\"",
        "Alt-Svc: canary=\":443\"",
        "Set-Cookie: canary=1",
        "Content-Disposition: attachment; filename=canary",
        "X-Internal-Host: canary",
        "azureml-model-session: canary",
        "OpenAI-Organization: canary",
        "x-ratelimit-remaining-requests: 7-canary",
        "anthropic-ratelimit-requests-limit: canary",
        "Access-Control-Allow-Origin: https://canary.example",
        "Server: canary",
        "X-Request-Id: canary",
    ];
    let lines = format!("{}\r\nOpenAI-Processing-Ms: 12\r\n", dangerous.join("\r\n"));
    let hints = "HTTP/1.1 103 Early Hints\r\nLink: <canary>; rel=preload\r\n\r\n".repeat(3);
    let refusal = "{\"error\":{\"message\":\"no\"}}";
    let refused = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\nContent-Length: {}\r\n{lines}\r\n{refusal}",
        refusal.len()
    );
    for (response, status) in [(json_with(&lines, WHOLE), 200), (refused, 400)] {
        let (answer, _) = call(&format!("{hints}{response}"));
        assert_eq!(answer.status(), status, "{answer:?}");
        let text = String::from_utf8_lossy(&answer.bytes).into_owned();
        assert!(!text.contains("canary"), "{text}");
        assert!(!text.contains("103 "), "{text}");
        assert_eq!(answer.header("openai-processing-ms").as_deref(), Some("12"), "{text}");
        assert_eq!(answer.header("x-content-type-options").as_deref(), Some("nosniff"), "{text}");
        assert_ne!(answer.header("content-type").as_deref(), Some("text/html"), "{text}");
    }
}

/// An upstream that repeats what it was sent tells the customer nothing of the operator's.
#[test]
fn a_refusal_with_the_operators_credential_is_replaced() {
    let refusal = |head: &str, body: &str| {
        let length = body.len();
        format!("HTTP/1.1 {head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
    };
    let json = "400 Bad Request\r\nContent-Type: application/json";
    let organization = format!("{json}\r\nOpenAI-Organization: org-canary-of-ours");
    let long = format!("{{\"pad\":\"{}\",\"key\":\"sk-upstream-canary\"}}", "x".repeat(2 << 20));
    for (head, body) in [
        (json, "{\"error\":{\"message\":\"Bearer sk-upstream-canary is odd\"}}"),
        (json, "{\"error\":{\"message\":\"sk-upstream\\u002dcanary is odd\"}}"),
        (json, long.as_str()),
        (
            "422 Unprocessable Entity\r\nContent-Type: text/plain",
            "Authorization: sk-upstream-canary",
        ),
        (organization.as_str(), "{\"error\":{\"message\":\"org-canary-of-ours may not\"}}"),
        ("400 Bad Request\r\nContent-Encoding: gzip", "sk-upstrm-canary, which nobody can read"),
    ] {
        let gateway = keyed("sk-upstream-canary", &refusal(head, body));
        for request in [GOOD, STREAMED] {
            let answer = ask(gateway.address, &gateway.chat_json(request));
            let text = String::from_utf8_lossy(&answer.bytes).into_owned();
            assert_eq!(answer.status(), 400, "{head}: {text}");
            assert!(!text.contains("canary"), "{text}");
            assert_eq!(answer.json()["error"]["type"], "invalid_request_error", "{text}");
        }
    }
    // An id of theirs goes to the log.
    let upstream = upstream_that_says(refusal(
        "400 Bad Request\r\nX-Request-Id: sk-upstream-of-a-test",
        "{\"error\":{\"message\":\"odd\"}}",
    ));
    let gateway = Gateway::listening("", "", upstream);
    assert_eq!(ask(gateway.address, &gateway.chat_json(GOOD)).status(), 400);
    let log = std::fs::read_to_string(gateway.path("log")).expect("the log");
    assert!(!log.contains("sk-upstream-of-a-test"), "{log}");
    let plain = "{\"error\":{\"message\":\"`temperature` is odd\"}}";
    for credential in ["sk-upstream-canary", "x", "is-odd", "temp"] {
        let gateway = keyed(credential, &refusal(json, plain));
        let answer = ask(gateway.address, &gateway.chat_json(GOOD));
        assert_eq!((answer.status(), answer.body()), (400, plain.into()), "{credential}");
    }
}

/// Customers can quote the gateway's request id; the upstream's id is in the log.
#[test]
fn a_relayed_failure_has_the_gateways_id() {
    let body = "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Busy\"},\"request_id\":\"req_of_the_upstream\"}";
    let response = format!(
        "HTTP/1.1 529 Overloaded\r\nContent-Type: application/json\r\n\
         request-id: req_of_the_upstream\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let upstream = upstream_that_says(response);
    let gateway = Gateway::listening("", "", upstream);
    let query = r#"{"model":"claude","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}"#;
    let length = format!("Content-Length: {}\r\n", query.len());
    let answer = ask(gateway.address, &gateway.post("/v1/messages", &length, query));
    let text = String::from_utf8_lossy(&answer.bytes).into_owned();
    assert_eq!(answer.status(), 529, "{text}");
    let id = answer.header("x-request-id").expect("an id");
    assert_eq!(answer.header("request-id").as_deref(), Some(id.as_str()), "{text}");
    assert_eq!(answer.json()["request_id"], id.as_str(), "{text}");
    assert_eq!(answer.json()["error"]["message"], "Busy", "the rest is as it was: {text}");
    let logged = || std::fs::read_to_string(gateway.path("log")).unwrap_or_default();
    let is_logged = |line: &str| line.contains(&id) && line.contains("req_of_the_upstream");
    crate::harness::eventually("the line with both ids", || logged().lines().any(is_logged));
}

/// Answers of tens of megabytes, of which those for embeddings are put together or re-encoded: neither
/// their values nor their nesting take more than the memory of bodies, which is 64 MiB here.
#[test]
fn answers_of_millions_of_values_take_no_memory() {
    let zeros = "0,".repeat(15_000_000);
    let vectors = r#"{"embedding":[0]},"#.repeat(800_000);
    for (name, answer) in [
        ("zeros", format!(r#"{{"data":[{zeros}0],"usage":{{"prompt_tokens":1}}}}"#)),
        ("vectors", format!(r#"{{"data":[{vectors}0],"usage":{{"prompt_tokens":1}}}}"#)),
        ("nesting", format!(r#"{{"data":{}"#, "[".repeat(15_000_000))),
    ] {
        let upstream = upstream_that_says(json_with("", &answer));
        let upstreams = format!(
            "  up: {{ protocol: openai, base_url: 'http://{upstream}/v1', credential: sk-upstream-of-a-test }}\n"
        );
        let model = |name: &str, more: &str| {
            format!(
                "  {name}:
    operations: [embeddings]
    targets: [{{ upstream: up }}]
    prices: {{ input_per_1m_tokens: 1 }}
    limits: {{ context_tokens_max: 8192{more} }}
"
            )
        };
        let models =
            format!("models:\n{}{}", model("one", ""), model("parts", ", batch_inputs_max: 1"));
        let gateway = Gateway::serving(&upstreams, &models);
        for model in ["one", "parts"] {
            let body =
                format!(r#"{{"model":"{model}","input":["a","b"],"encoding_format":"base64"}}"#);
            let lines = format!("Content-Length: {}\r\n", body.len());
            let answer = ask(gateway.address, &gateway.post("/v1/embeddings", &lines, &body));
            let status = answer.status();
            assert!(matches!(status, 200 | 502), "{name} for {model}: {status}");
            assert_eq!(ask(gateway.address, &gateway.get("/v1/models")).status(), 200, "it serves");
        }
        gateway.settled();
        let rss_bytes = gateway.rss_bytes_max();
        println!("{name}: {} MiB resident", rss_bytes >> 20);
        assert!(rss_bytes < 256 << 20, "{name}: {rss_bytes} bytes resident");
    }
}

/// An answer that is put together follows the rules of one that is passed on: another target is asked
/// after what the operator lists, at the operator's loss, and never after a status of success.
#[test]
fn an_answer_that_is_put_together_is_repeated_as_one_that_is_passed_on() {
    let page = closing("text/html", "<p>odd</p>");
    let late = "HTTP/1.1 504 Gateway Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let vector =
        r#"{"data":[{"embedding":[0.5],"index":0}],"usage":{"prompt_tokens":1,"total_tokens":1}}"#;
    for (odd, allowed, status, is_paid_twice) in [
        (page.as_str(), "timeout, connection_lost", 502, false),
        (late, "timeout, connection_lost", 504, false),
        (late, "504", 200, true),
    ] {
        let (odd, good) = (odd.to_owned(), json_with("Connection: close\r\n", vector));
        let (odd, good) = (upstream_that_says(odd), upstream_that_says(good));
        let upstream = |name: &str, address: SocketAddr, more: &str| {
            format!(
                "  {name}: {{ protocol: openai, base_url: 'http://{address}/v1', \
                 credential: sk-upstream-of-a-test{more} }}\n"
            )
        };
        let rules = format!(", retries: {{ on: [{allowed}] }}");
        let upstreams = upstream("odd", odd, &rules) + &upstream("good", good, "");
        let model = |name: &str, more: &str| {
            format!(
                "  {name}:
    operations: [embeddings]
    targets: [{{ upstream: odd }}, {{ upstream: good, priority: 1 }}]
    prices: {{ input_per_1m_tokens: 1 }}
    limits: {{ context_tokens_max: 8192{more} }}
"
            )
        };
        let models =
            format!("models:\n{}{}", model("one", ""), model("parts", ", batch_inputs_max: 1"));
        for model in ["one", "parts"] {
            let gateway = Gateway::serving(&upstreams, &models);
            let body = format!(r#"{{"model":"{model}","input":["a"]}}"#);
            let lines = format!("Content-Length: {}\r\n", body.len());
            let answer = ask(gateway.address, &gateway.post("/v1/embeddings", &lines, &body));
            assert_eq!(answer.status(), status, "{model} after {allowed}: {answer:?}");
            gateway.settled();
            let lost = gateway.metric(r#"tollgate_operator_loss_dollars_total{cause="retry"}"#);
            assert_eq!(lost > 0.0, is_paid_twice, "{model} after {allowed}: {lost}");
        }
    }
}
