use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Value, json};

use super::*;
use crate::arguments;
use crate::by_trees::{self, mostly};
use tollgate_protocols::json::Object;

/// The call of a tool with what a client says of itself, and the headers that say the same.
fn call_of(version: &'static str) -> (HeaderMap, Value) {
    let headers = [(VERSION, version), (METHOD, TOOLS_CALL), (NAME, "chat")];
    let headers = headers.map(|(name, value)| (name, HeaderValue::from_static(value)));
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": TOOLS_CALL, "params": {
        "name": "chat",
        "arguments": {"model": "m", "prompt": "Hi"},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": version,
            "io.modelcontextprotocol/clientInfo": {"name": "client", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
        },
    }});
    (HeaderMap::from_iter(headers), message)
}

fn is_direct(headers: &HeaderMap, message: &Value) -> bool {
    read::<JsonObject>(headers, message.to_string().as_bytes()).is_some()
}

#[test]
fn the_usual_call_is_answered_without_the_library() {
    let (headers, message) = call_of("2026-07-28");
    assert!(is_direct(&headers, &message));
    let earlier = json!({"jsonrpc": "2.0", "id": "a", "method": TOOLS_CALL,
        "params": {"name": "get_balance"}});
    assert!(is_direct(&HeaderMap::new(), &earlier));
}

#[test]
fn the_arguments_of_a_chat_are_no_tree() {
    let (headers, message) = call_of("2026-07-28");
    let earlier = json!({"jsonrpc": "2.0", "id": "a", "method": TOOLS_CALL, "params": {
        "name": "chat", "arguments": {"model": "m", "messages": [{"role": "user", "content": "a"}]},
    }});
    let named = HeaderMap::from_iter([(NAME, HeaderValue::from_static("chat"))]);
    for (headers, message) in [(headers, &message), (HeaderMap::new(), &earlier), (named, &earlier)]
    {
        let body = message.to_string();
        let call = read_call(&headers, body.as_bytes()).expect("a call");
        assert!(matches!(call.work, Arguments::Chat(_)), "{headers:?} {body}");
    }
}

#[test]
fn what_a_client_reads_may_be_said_in_one_header_or_in_several() {
    let accepts = |lists: &[&'static str]| {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
        for list in lists {
            headers.append(ACCEPT, HeaderValue::from_static(list));
        }
        is_json_for_json(&headers)
    };
    assert!(accepts(&["application/json, text/event-stream"]));
    assert!(accepts(&["text/event-stream,application/json"]));
    assert!(accepts(&["application/json, text/event-stream", "application/json"]));
    assert!(accepts(&["application/json", "text/event-stream"]));
    for others in [
        &["application/json"][..],
        &["*/*"],
        &["application/json;q=0, text/event-stream"],
        &[r#"a="b, application/json, c", text/event-stream"#],
        &[],
    ] {
        assert!(!accepts(others), "{others:?}");
    }
}

#[test]
fn what_is_not_exactly_a_call_is_left_to_the_library() {
    let (headers, message) = call_of("2026-07-28");
    for (path, value) in [
        ("/method", json!("tools/list")),
        ("/params/name", json!("nothing")),
        ("/params/_meta/progressToken", json!(1)),
        ("/params/task", json!({})),
        ("/jsonrpc", json!("1.0")),
    ] {
        let mut message = message.clone();
        let (parent, name) = path.rsplit_once('/').expect("a member");
        message.pointer_mut(parent).expect("an object")[name] = value;
        assert!(!is_direct(&headers, &message), "{path}");
    }
    for name in [VERSION, METHOD, NAME] {
        let mut headers = headers.clone();
        headers.remove(&name);
        assert!(!is_direct(&headers, &message), "{name}");
    }
}

#[test]
fn a_chat_is_answered_as_the_library_writes_it() {
    let answer = br#"{"id": "x", "model": "m", "choices": [{"finish_reason": "stop", "message":
        {"content": "a \"b\"", "tool_calls": [{"id": "1"}]}}], "usage": {"total_tokens":7}}"#;
    let outcome = CallOutcome { request_id: "req_1", served_by: "n", cost: "0.5".parse().ok() };
    for (id, is_self_contained) in [(json!(7), true), (json!("a\n"), false)] {
        let id: RequestId = serde_json::from_value(id).expect("an id");
        let document = Object::parse(answer).expect("an object");
        let strict = ChatReply::read_strict(&document, false).expect("read without a tree");
        let message = chat_message(&id, is_self_contained, &strict, outcome);
        let mut content = ChatReply::read(answer, false).expect("an answer").into_tree();
        content["request_id"] = json!("req_1");
        content["served_by"] = json!("n");
        content["cost_usd"] = json!("0.50");
        let mut result = CallToolResult::success(vec![ContentBlock::text("a \"b\"")]);
        result.structured_content = Some(content);
        result.result_type = result.result_type.filter(|_| is_self_contained);
        let expected = ResultMessage { jsonrpc: JsonRpcVersion2_0, id: &id, result };
        let expected = serde_json::to_string(&expected).expect("JSON");
        assert_eq!(String::from_utf8(message).expect("text"), expected);
    }
}

/// Objects with some members always, and at most so many more, in any order and with names twice.
fn members(
    always: Vec<(&'static str, BoxedStrategy<String>)>,
    most: usize,
    more: Vec<(&'static str, BoxedStrategy<String>)>,
) -> BoxedStrategy<String> {
    let named = |(name, values): (&'static str, BoxedStrategy<String>)| {
        values.prop_map(move |value| (name, value)).boxed()
    };
    let always: Vec<_> = always.into_iter().map(named).collect();
    let more: Vec<_> = more.into_iter().map(named).collect();
    let more = proptest::collection::vec(proptest::strategy::Union::new(more), 0..=most);
    (always, more)
        .prop_map(|(always, more)| [always, more].concat())
        .prop_shuffle()
        .prop_map(|members| by_trees::object(&members))
        .boxed()
}

fn message() -> BoxedStrategy<String> {
    let roles = [r#""user""#, r#""assistant""#, r#""system""#, r#""tool""#, r#"{"user":null}"#];
    let contents = [r#""Hi""#, r#""a\nb""#, "null", r#"[{"type": "text", "text": "a"}]"#, "\"\""];
    let call = r#"[{"id": "1", "function": {"name": "f", "arguments": "{\"a\": 1.0}"}}]"#;
    let (role, content) = (mostly(&roles).boxed(), mostly(&contents).boxed());
    let as_array = mostly(&[r#"["user", "Hi", null, null]"#, r#"["user"]"#]).boxed();
    let as_object = members(
        vec![("role", role.clone()), ("content", content.clone())],
        1,
        vec![
            ("role", role),
            ("content", content),
            ("tool_calls", mostly(&[call, "[]", "[{}]", "null"]).boxed()),
            ("tool_call_id", mostly(&[r#""1""#, "null"]).boxed()),
            ("other", by_trees::value().boxed()),
        ],
    );
    prop_oneof![8 => as_object, 1 => as_array].boxed()
}

fn arguments() -> BoxedStrategy<String> {
    let model = mostly(&[r#""m""#, r#""mod\u0065l""#]).boxed();
    let prompt = mostly(&[r#""Hi""#, r#""say \"a\"""#, "null"]).boxed();
    let messages = proptest::collection::vec(message(), 0..4).prop_map(|all| by_trees::array(&all));
    let messages = prop_oneof![6 => messages, 1 => by_trees::value()].boxed();
    let deep = [100, 125, 126, 127, 128].map(|depth| "[".repeat(depth) + &"]".repeat(depth));
    let deep =
        proptest::sample::select(deep.to_vec()).prop_map(|deep| format!(r#"{{"a":{deep}}}"#));
    let extra = mostly(&[r#"{"stream": true, "model": "n", "seed": 7}"#, "{}", "null"]);
    let more = || {
        vec![
            ("model", model.clone()),
            ("prompt", prompt.clone()),
            ("system", mostly(&[r#""Be brief.""#, "null"]).boxed()),
            ("max_tokens", mostly(&["1", "256", "256.0", "-1", "null"]).boxed()),
            ("temperature", mostly(&["1", "0.2", "1e0", "0.1e1", "null"]).boxed()),
            ("top_p", mostly(&["0.9", "1"]).boxed()),
            ("stop", mostly(&[r#"["a", "\n"]"#, "[]", "null"]).boxed()),
            ("extra", prop_oneof![4 => extra.clone(), 1 => deep.clone()].boxed()),
            ("other", by_trees::value().boxed()),
        ]
    };
    let prompted = members(vec![("model", model.clone()), ("prompt", prompt.clone())], 3, more());
    let chat = members(vec![("model", model.clone()), ("messages", messages)], 3, more());
    let in_array = Just(r#"["m", "Hi"]"#.to_owned());
    prop_oneof![8 => prompted, 8 => chat, 1 => by_trees::value(), 1 => in_array].boxed()
}

fn calls() -> impl Strategy<Value = Vec<u8>> {
    let name = mostly(&[r#""chat""#, r#""ch\u0061t""#, r#""embed""#]).boxed();
    let params = members(
        vec![("name", name), ("arguments", arguments())],
        1,
        vec![("_meta", mostly(&["{}", "{}", "null"]).boxed()), ("arguments", arguments())],
    );
    let id = mostly(&["1", r#""a""#, "1.0", "-7", r#""\u00e9""#]).boxed();
    let fixed = |text: &str| Just(text.to_owned()).boxed();
    let message = members(
        vec![
            ("jsonrpc", fixed(r#""2.0""#)),
            ("id", id),
            ("method", fixed(r#""tools/call""#)),
            ("params", prop_oneof![20 => params, 1 => by_trees::value()].boxed()),
        ],
        0,
        vec![("jsonrpc", fixed("1"))],
    );
    by_trees::broken(message)
}

/// A message as it was read when all of its arguments were a tree.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TreeMessage<'a> {
    #[serde(rename = "jsonrpc")]
    _jsonrpc: JsonRpcVersion2_0,
    id: NumberOrString,
    method: String,
    #[serde(borrow)]
    params: TreeParams<'a>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TreeParams<'a> {
    name: String,
    #[serde(default)]
    arguments: JsonObject,
    #[serde(borrow, rename = "_meta", default)]
    meta: ClientMeta<'a>,
}

type Comparison = Option<(NumberOrString, String, Option<Result<String, String>>)>;

fn by_tree(body: &[u8], by_messages: bool) -> Comparison {
    let TreeMessage { id, method, params, .. } = serde_json::from_slice(body).ok()?;
    let TreeParams { name, arguments, meta } = params;
    // Of what a client says of itself, all is said in headers as well, and there are none.
    let says_nothing = meta.version.is_none() && meta.capabilities.is_none();
    let is_call = method == TOOLS_CALL && TOOLS.iter().any(|row| row.name == name) && says_nothing;
    let called = (name == chat::NAME).then(|| by_trees::body(arguments, by_messages));
    is_call.then_some((id, name, called))
}

fn by_reader(body: &[u8], by_messages: bool) -> Comparison {
    let DirectCall { id, tool, work, .. } = read_call(&HeaderMap::new(), body)?;
    let called = (tool.name == chat::NAME).then(|| {
        let arguments = match work {
            Arguments::Chat(arguments) => Ok(arguments),
            Arguments::Tree(arguments) => arguments::read(arguments),
        };
        let body = arguments.and_then(|arguments| arguments.body(by_messages, 1000));
        let chat = |error: ToolError| json!(error.into_result().content).to_string();
        body.map(|body| String::from_utf8(body).expect("text")).map_err(chat)
    });
    Some((id, tool.name.to_owned(), called))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    /// Whatever comes, it is left to the library, refused, or asked of the model, in the same words and in
    /// the same order as when its arguments were a tree.
    #[test]
    fn calls_are_read_as_trees_were(body in calls(), by_messages in any::<bool>()) {
        let text = String::from_utf8_lossy(&body);
        prop_assert_eq!(by_reader(&body, by_messages), by_tree(&body, by_messages), "{}", text);
    }
}

#[test]
fn calls_of_every_outcome_are_compared() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut called, mut refused, mut left) = (0, 0, 0);
    for _ in 0..500 {
        let body = calls().new_tree(&mut runner).expect("a call").current();
        match by_reader(&body, false) {
            Some((_, _, Some(Ok(_)))) => called += 1,
            Some(_) => refused += 1,
            None => left += 1,
        }
    }
    assert!(
        called > 30 && refused > 50 && left > 50,
        "{called} asked, {refused} refused, {left} left"
    );
}
