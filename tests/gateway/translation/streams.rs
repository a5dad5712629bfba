//! The gateway's own additions to an upstream's stream: keep-alive comments, early ends, ids, and retry
//! times.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tungstenite::Message;
use tungstenite::client::IntoClientRequest as _;

use super::wire::Customer;
use super::{CELLS, call, gateway, gateway_with, spent};
use crate::harness::{Answer, Gateway, Responder, connect, paced_stream, simulator};

const EVENTS: &str = "content-type: text/event-stream\r\n";
const JSON: &str = "content-type: application/json\r\n";

fn events(events: &[Value]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

/// A stream of the dialect of `model`: its first event, and the rest of it.
fn expected_texts(model: &str) -> (String, String) {
    let usage = json!({"prompt_tokens": 10, "completion_tokens": 2, "input_tokens": 10,
        "output_tokens": 2});
    match model {
        "on-chat" => {
            let chunk = |delta: Value, word: Value| json!({"id": "c", "usage": usage, "choices": [{"index": 0, "delta": delta, "finish_reason": word}]});
            let rest = events(&[chunk(json!({"content": "Hi"}), json!("stop"))]);
            let first = chunk(json!({"role": "assistant", "content": "Oh. "}), Value::Null);
            (events(&[first]), rest + "data: [DONE]\n\n")
        }
        "on-messages" => {
            let delta = |text: &str| json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}});
            let first = [
                json!({"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 10, "output_tokens": 1}}}),
                json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
                delta("Oh. "),
            ];
            let rest = [
                delta("Hi"),
                json!({"type": "content_block_stop", "index": 0}),
                json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}}),
                json!({"type": "message_stop"}),
            ];
            (events(&first), events(&rest))
        }
        "on-responses" => {
            let delta = |text: &str| json!({"type": "response.output_text.delta", "output_index": 0, "delta": text});
            let first = [
                json!({"type": "response.created", "response": {"id": "r"}}),
                json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "id": "m"}}),
                delta("Oh. "),
            ];
            let rest = [
                delta("Hi"),
                json!({"type": "response.completed", "response": {"id": "r", "status": "completed", "usage": usage}}),
            ];
            (events(&first), events(&rest))
        }
        _ => {
            let chunk =
                |text: &str| json!({"candidates": [{"content": {"parts": [{"text": text}]}}]});
            let mut last = chunk("Hi");
            last["candidates"][0]["finishReason"] = json!("STOP");
            last["usageMetadata"] =
                json!({"promptTokenCount": 10, "candidatesTokenCount": 2, "totalTokenCount": 12});
            (events(&[chunk("Oh. ")]), events(&[last]))
        }
    }
}

/// A streamed answer, and when each piece of its body came.
fn timed(gateway: &Gateway, customer: Customer, model: &str) -> (String, Vec<Duration>) {
    let (path, body) = customer.request(&customer.body(model, true));
    let request = gateway.post(&path, &format!("Content-Length: {}\r\n", body.len()), &body);
    let mut stream = connect(gateway.address);
    stream.write_all(&request).expect("a request leaves");
    let (began, mut text, mut times) = (Instant::now(), Vec::new(), Vec::new());
    let mut piece = [0; 16 * 1024];
    while !text.ends_with(b"\r\n0\r\n\r\n") {
        let length = stream.read(&mut piece).expect("an answer");
        if length == 0 {
            break;
        }
        text.extend_from_slice(&piece[..length]);
        times.push(began.elapsed());
    }
    (String::from_utf8(text).expect("text"), times)
}

fn signs(customer: Customer, text: &str) -> usize {
    let pings = text.matches("event: ping\ndata: {\"type\":\"ping\"}\n\n").count();
    assert!(pings == 0 || customer == Customer::Messages, "{text}");
    match customer {
        // Google's SDKs read no comments, and skip blank lines.
        Customer::Gemini => {
            assert!(!text.contains("\n: "), "{text}");
            text.matches("\r\n\n\n\r\n").count()
        }
        _ => pings + text.matches(": keep-alive\n\n").count(),
    }
}

#[test]
fn comments_of_an_upstream_reach_the_customer_at_once() {
    let pause = Duration::from_millis(100);
    for (customer, model) in CELLS.into_iter().filter(|(_, model)| *model != "on-converse") {
        let (first, rest) = expected_texts(model);
        let comment = match model {
            "on-messages" => "event: ping\ndata: {\"type\": \"ping\"}\n\n",
            _ => ": keepalive\n\n",
        };
        let mut pieces = vec![(Duration::ZERO, first)];
        pieces.extend((0..5).map(|_| (pause, comment.to_owned())));
        pieces.push((pause, rest));
        // Those that the gateway would make itself come later.
        let gateway = gateway_with("", paced_stream(pieces), "", "");
        let (text, times) = timed(&gateway, customer, model);
        assert_eq!(signs(customer, &text), 5, "{customer:?} {model}: {text}");
        let longest = times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default();
        assert!(longest < pause * 4, "{customer:?} {model}: silent for {longest:?}");
        let answer = Answer { bytes: text.into_bytes(), is_closed: true, took: Duration::ZERO };
        assert_eq!(customer.read(&answer, true).text, "Oh. Hi", "{customer:?} {model}");
    }
}

/// An upstream that sends comments before its first event, and one that sends nothing: the customer has
/// something after an interval.
#[test]
fn a_customer_has_something_to_read_within_the_interval() {
    let limits = "  sse_keepalive: 200ms\n";
    let sim = simulator(&["delay-ms=900"]);
    let silent = gateway_with(limits, sim.addr(), "", "");
    for (customer, model) in CELLS {
        let (text, times) = timed(&silent, customer, model);
        assert!(signs(customer, &text) >= 2, "{customer:?} {model}: {text}");
        assert!(times[0] < Duration::from_millis(600), "{customer:?} {model}: {times:?}");
        if model == "on-converse" {
            continue;
        }
        let (first, rest) = expected_texts(model);
        let comments = (0..8).map(|_| (Duration::from_millis(100), ": thinking\n\n".to_owned()));
        let pieces = comments.chain([(Duration::ZERO, first + &rest)]).collect();
        let gateway = gateway_with(limits, paced_stream(pieces), "", "");
        let (text, times) = timed(&gateway, customer, model);
        assert!(signs(customer, &text) >= 2, "{customer:?} {model}: {text}");
        assert!(times[0] < Duration::from_millis(600), "{customer:?} {model}: {times:?}");
        let answer = Answer { bytes: text.into_bytes(), is_closed: true, took: Duration::ZERO };
        assert_eq!(customer.read(&answer, true).text, "Oh. Hi", "{customer:?} {model}");
    }
}

/// An upstream that says for three seconds only that it is alive: the stream begins long before the
/// gateway would send a comment unasked, and another target could still answer.
#[test]
fn comments_before_the_first_event_begin_the_stream() {
    for (customer, model) in CELLS.into_iter().filter(|(_, model)| *model == "on-chat") {
        let (first, rest) = expected_texts(model);
        let comments = (0..6).map(|_| (Duration::from_millis(500), ": thinking\n\n".to_owned()));
        let pieces = comments.chain([(Duration::ZERO, first + &rest)]).collect();
        let (text, times) = timed(&gateway_with("", paced_stream(pieces), "", ""), customer, model);
        assert!(signs(customer, &text) >= 1, "{customer:?} {model}: {text}");
        assert!(times[0] < Duration::from_millis(2500), "{customer:?} {model}: {times:?}");
        let answer = Answer { bytes: text.into_bytes(), is_closed: true, took: Duration::ZERO };
        assert_eq!(customer.read(&answer, true).text, "Oh. Hi", "{customer:?} {model}");
    }
}

/// A picture has no words in the customer's dialect: what the gateway gives up is charged as far as it was
/// delivered, of a stream as of a document, and the message says which.
#[test]
fn what_the_gateway_gives_up_is_charged_by_what_was_delivered() {
    let part = |part: Value| json!({"candidates": [{"content": {"parts": [part]}}]});
    let picture = json!({"inlineData": {"mimeType": "image/png", "data": "AAAA"}});
    let mut last = part(json!({"text": "."}));
    last["candidates"][0]["finishReason"] = json!("STOP");
    last["usageMetadata"] =
        json!({"promptTokenCount": 10, "candidatesTokenCount": 300, "totalTokenCount": 310});
    let words = "Here is what you have asked for";
    for (before, is_charged) in [("", false), (words, true)] {
        let chunks = [part(json!({"text": before})), part(picture.clone()), last.clone()];
        let mut document = last.clone();
        document["candidates"][0]["content"]["parts"] = json!([{"text": before}, picture]);
        let (stream, document) = (events(&chunks), document.to_string());
        let upstream = Responder::start(move |_, request| {
            match request.target().1.contains("streamGenerateContent") {
                true => (200, EVENTS.to_owned(), stream.clone()),
                false => (200, JSON.to_owned(), document.clone()),
            }
        });
        for customer in [Customer::Chat, Customer::Messages, Customer::Responses] {
            let gateway = gateway(upstream.address, "", "");
            let answer = call(&gateway, customer, &customer.body("on-gemini", false));
            assert_eq!(answer.status(), 502, "{customer:?}: {answer:?}");
            assert_eq!(spent(&gateway), 0, "{customer:?}: nothing of a document was delivered");
            let answer = call(&gateway, customer, &customer.body("on-gemini", true));
            let text = String::from_utf8(answer.content()).expect("text");
            customer.check_broken(&answer, &text);
            let charged = spent(&gateway);
            assert_eq!(charged > 0, is_charged, "{customer:?}: {charged} {text}");
            assert!(charged < 10 * 3_000 + 300 * 15_000, "{customer:?}: {charged}");
            let message =
                if is_charged { "What was delivered is charged" } else { "Nothing is charged" };
            assert!(text.contains(message), "{customer:?}: {text}");
        }
    }
}

/// An end without an answer is an error, and costs nothing.
#[test]
fn an_end_without_an_answer_is_an_error_and_free() {
    let document = json!({"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL", "index": 0}],
        "usageMetadata": {"promptTokenCount": 10, "thoughtsTokenCount": 90, "totalTokenCount": 100}});
    let upstream = Responder::start(move |_, request| {
        match request.target().1.contains("streamGenerateContent") {
            true => (200, EVENTS.to_owned(), events(std::slice::from_ref(&document))),
            false => (200, JSON.to_owned(), document.to_string()),
        }
    });
    for customer in [Customer::Chat, Customer::Messages, Customer::Responses] {
        let gateway = gateway(upstream.address, "", "");
        for stream in [false, true] {
            let answer = call(&gateway, customer, &customer.body("on-gemini", stream));
            let text = String::from_utf8_lossy(&answer.bytes).into_owned();
            assert!(text.contains("MALFORMED_FUNCTION_CALL"), "{customer:?}: {text}");
            match stream {
                true => customer.check_broken(&answer, &text),
                false => assert_eq!(answer.status(), 502, "{customer:?}: {text}"),
            }
            assert_eq!(spent(&gateway), 0, "{customer:?} {stream}: {text}");
        }
    }
}

/// Calls of upstreams that give no ids have one each, in all answers of a conversation.
#[test]
fn calls_without_ids_have_one_of_their_own() {
    let called = json!({"functionCall": {"name": "weather", "args": {}}});
    let gemini = json!({"responseId": "always-the-same", "candidates": [{"finishReason": "STOP", "content": {"parts": [called, called]}}],
        "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 3, "totalTokenCount": 13}});
    let tool =
        |index: u64| json!({"index": index, "function": {"name": "weather", "arguments": "{}"}});
    let usage = json!({"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13});
    let choice = |key: &str| {
        json!({"id": "", "usage": usage, "choices": [{"index": 0, "finish_reason": "tool_calls",
            key: {"role": "assistant", "tool_calls": [tool(0), tool(1)]}}]})
    };
    let (whole, chunk) = (choice("message"), choice("delta"));
    let upstream = Responder::start(move |_, request| {
        let body = String::from_utf8_lossy(&request.body).into_owned();
        match (request.target().1, body.contains("\"stream\":true")) {
            (path, _) if path.contains("stream") => {
                (200, EVENTS.to_owned(), events(std::slice::from_ref(&gemini)))
            }
            (path, _) if path.contains("generateContent") => {
                (200, JSON.to_owned(), gemini.to_string())
            }
            (_, true) => {
                (200, EVENTS.to_owned(), events(std::slice::from_ref(&chunk)) + "data: [DONE]\n\n")
            }
            (_, false) => (200, JSON.to_owned(), whole.to_string()),
        }
    });
    let gateway = gateway(upstream.address, "", "");
    for (customer, model) in CELLS {
        if !["on-chat", "on-gemini"].contains(&model) {
            continue;
        }
        let mut ids = Vec::new();
        for stream in [false, true, false, true] {
            let answer = call(&gateway, customer, &customer.body(model, stream));
            let read = customer.read(&answer, stream);
            assert_eq!(
                (read.calls.len(), &*read.stop),
                (2, "tools"),
                "{customer:?} {model}: {answer:?}"
            );
            ids.extend(read.calls.into_iter().map(|called| called.id));
        }
        let is_id = |id: &String| {
            (1..=40).contains(&id.len())
                && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        };
        assert!(ids.iter().all(is_id), "{customer:?} {model}: {ids:?}");
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count, "{customer:?} {model}: {ids:?}");
    }
}

/// When to come again reaches the customer of any dialect, with the status that the failure has.
#[test]
fn the_time_that_an_upstream_asks_for_reaches_the_customer() {
    for (status, kind, expected) in
        [(429, "rate_limit_error", 429), (529, "overloaded_error", 429), (503, "api_error", 502)]
    {
        let body =
            json!({"type": "error", "error": {"type": kind, "message": "Not now."}}).to_string();
        let head = format!("{JSON}retry-after: 7\r\n");
        let upstream = Responder::start(move |_, _| (status, head.clone(), body.clone()));
        for (customer, model) in CELLS {
            let gateway = gateway(upstream.address, "", "");
            for stream in [false, true] {
                let answer = call(&gateway, customer, &customer.body(model, stream));
                let what = format!("{customer:?} {model} {status} {stream}: {answer:?}");
                // The second time no target is asked, as all have asked for time.
                let is_called = !stream || status == 503;
                let seconds: u64 = answer.header("retry-after").expect(&what).parse().expect(&what);
                assert!((1..=7).contains(&seconds) && (!is_called || seconds == 7), "{what}");
                assert_eq!(answer.status(), expected, "{what}");
                assert_eq!(spent(&gateway), 0, "{what}");
            }
        }
    }
    let body = json!({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "Quota.",
        "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}]}});
    let upstream = Responder::start(move |_, _| (429, JSON.to_owned(), body.to_string()));
    let gateway = gateway(upstream.address, "", "");
    let answer = call(&gateway, Customer::Messages, &Customer::Messages.body("on-gemini", false));
    assert_eq!(
        (answer.status(), answer.header("retry-after").as_deref()),
        (429, Some("35")),
        "{answer:?}"
    );
    assert_eq!(answer.header("retry-after-ms").as_deref(), Some("34500"), "{answer:?}");
}

#[test]
fn signs_of_life_are_pings_over_websockets() {
    let (first, rest) = expected_texts("on-messages");
    let ping =
        (Duration::from_millis(50), "event: ping\ndata: {\"type\": \"ping\"}\n\n".to_owned());
    let mut pieces = vec![(Duration::ZERO, first), ping.clone(), ping.clone(), ping];
    pieces.push((Duration::ZERO, rest));
    let gateway = gateway_with("", paced_stream(pieces), "", "");
    let mut request =
        format!("ws://{}/v1/responses", gateway.address).into_client_request().expect("a request");
    let bearer = format!("Bearer {}", gateway.key).parse().expect("a value");
    request.headers_mut().insert("authorization", bearer);
    let (mut socket, _) =
        tungstenite::client(request, connect(gateway.address)).expect("a WebSocket");
    let mut turn = Customer::Responses.body("on-messages", true);
    turn["type"] = json!("response.create");
    socket.send(Message::text(turn.to_string())).expect("a turn leaves");
    let mut pings = 0;
    loop {
        match socket.read().expect("a message") {
            Message::Ping(_) => pings += 1,
            Message::Text(text) if text.contains("\"type\":\"response.completed\"") => break,
            Message::Text(text) => assert!(!text.contains("\"error\":{"), "{text}"),
            _ => {}
        }
    }
    assert_eq!(pings, 3);
}
