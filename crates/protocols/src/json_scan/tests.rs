use proptest::prelude::*;
use serde_json::{Map, Value};

use super::*;

fn scan(pieces: &[&[u8]]) -> UsageScan {
    let mut scan = UsageScan::default();
    for piece in pieces {
        scan.feed(piece);
    }
    scan
}

#[test]
fn only_the_top_level_usage_counts() {
    let text = br#"{"choices":[{"usage":{"no":1},"text":"\"usage\":{}"}], "usage" : {"a":[1,{"b":"}"}]} ,"x":"usage"}"#;
    let scanned = scan(&[text]);
    assert_eq!(scanned.usage().map(<[u8]>::trim_ascii), Some(&br#"{"a":[1,{"b":"}"}]}"#[..]));
}

#[test]
fn every_usage_of_one_object_is_seen() {
    let text = br#"{"usage":{"a":1},"choices":["four"],"usage" : null,"usage":{"a":2},"id":"x"}"#;
    let scanned = scan(&[&text[..9], &text[9..30], &text[30..]]);
    let seen: Vec<&[u8]> = scanned.usages().map(<[u8]>::trim_ascii).collect();
    assert_eq!(seen, [&br#"{"a":1}"#[..], b"null", br#"{"a":2}"#]);
    assert_eq!((scanned.output_bytes(), scanned.text_bytes()), (4, 5));
    assert_eq!(scan(&[&text[..50]]).usages().count(), 0, "not whole");
}

#[test]
fn an_error_that_is_not_null_is_seen() {
    let seen = |text: &str| scan(&[text.as_bytes()]).has_error();
    assert!(seen(r#"{"error":{"message":"no"}}"#) && seen(r#"{"a":1,"error" : "no"}"#));
    assert!(!seen(r#"{"error":null}"#) && !seen(r#"{"error" : null ,"a":1}"#));
    assert!(!seen(r#"{"choices":[{"error":1}]}"#) && !seen("{}"));
}

#[test]
fn the_objects_in_data_are_counted() {
    let count = |text: &str| scan(&[text.as_bytes()]).data_items();
    assert_eq!(count(r#"{"data":[{"a":{"b":[{}]}}, {"c":"},{"} ],"x":[{}]}"#), 2);
    assert_eq!(count(r#"{"data":[],"usage":{"data":[{}]}}"#), 0);
    assert_eq!(count(r#"{"data":[[{}],1]}"#), 0, "only objects in the list itself");
}

#[test]
fn what_is_not_one_whole_object_has_no_usage() {
    for text in ["", "{\"usage\":{}", "[]", "{\"usage\":1}x", "<html>", "{\"usage\":1}{", "}"] {
        let scanned = scan(&[text.as_bytes()]);
        assert!(!scanned.is_complete() && scanned.usage().is_none(), "{text:?}");
    }
}

proptest! {
    #[test]
    fn cutting_changes_nothing(cut in 0usize..80, cut2 in 0usize..80) {
        let text = br#"{"id":"a\\\"b","usage":{"prompt_tokens":1,"s":"\\"},"data":[1.5,{"usage":2}]}"#;
        let (a, b) = (cut.min(cut2).min(text.len()), cut.max(cut2).min(text.len()));
        let pieces = scan(&[&text[..a], &text[a..b], &text[b..]]);
        let whole = scan(&[text]);
        prop_assert!(pieces.is_complete());
        prop_assert_eq!(pieces.usage(), whole.usage());
        prop_assert_eq!(whole.usage(), Some(&br#"{"prompt_tokens":1,"s":"\\"}"#[..]));
    }
}

/// Values as answers have them, with what is looked for at the top also inside.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[a-z {}:,\\[\\]\"\\\\]{0,90}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let key = prop_oneof![any_key(), "[a-z\"\\\\]{0,40}"];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn any_key() -> impl Strategy<Value = String> {
    const KEYS: [&str; 9] =
        ["usage", "error", "data", "choices", "content", "output", "", "usages", "\"usage"];
    prop::sample::select(KEYS.as_slice()).prop_map(str::to_owned)
}

/// A document, as a list of the texts of its keys and its values: keys can be there twice.
fn any_members() -> impl Strategy<Value = Vec<(String, Value)>> {
    prop::collection::vec((any_key(), any_value()), 0..8)
}

/// The document, with `space` wherever there may be some.
fn written(members: &[(String, Value)], space: &str) -> String {
    let member = |(key, value): &(String, Value)| {
        let key = Value::from(key.as_str());
        let value = if space.is_empty() { value.to_string() } else { format!("{value:#}") };
        format!("{space}{key}{space}:{space}{value}{space}")
    };
    let members: Vec<String> = members.iter().map(member).collect();
    format!("{space}{{{}}}{space}", members.join(","))
}

/// The bytes between the quotes of a string, without its backslashes and what they escape.
fn plain_bytes(text: &str) -> u64 {
    let written = Value::from(text).to_string();
    let (mut plain, mut bytes) = (0, written.trim_matches('"').bytes());
    // A string can begin and end with quotes of its own, which are escaped.
    if written.len() > 2 {
        bytes = written[1..written.len() - 1].bytes();
    }
    while let Some(byte) = bytes.next() {
        if byte == b'\\' {
            bytes.next();
        } else {
            plain += 1;
        }
    }
    plain
}

/// The plain bytes of all strings in a value, its keys among them.
fn text_bytes(value: &Value) -> u64 {
    let of_member = |(key, value): (&String, &Value)| plain_bytes(key) + text_bytes(value);
    match value {
        Value::String(text) => plain_bytes(text),
        Value::Array(elements) => elements.iter().map(text_bytes).sum(),
        Value::Object(members) => members.iter().map(of_member).sum(),
        _ => 0,
    }
}

/// Results of a scan.
#[derive(Debug, PartialEq)]
struct ScanResult {
    is_complete: bool,
    usages: Vec<Vec<u8>>,
    has_error: bool,
    data_items: u64,
    text_bytes: u64,
    output_bytes: u64,
}

fn scan_of(pieces: &[&[u8]]) -> ScanResult {
    let scan = scan(pieces);
    ScanResult {
        is_complete: scan.is_complete(),
        usages: scan.usages().map(<[u8]>::to_vec).collect(),
        has_error: scan.has_error(),
        data_items: scan.data_items(),
        text_bytes: scan.text_bytes(),
        output_bytes: scan.output_bytes(),
    }
}

/// Results of a parser for the same document.
fn expected(members: &[(String, Value)]) -> ScanResult {
    let all = |key: &'static str| {
        members.iter().filter(move |(other, _)| other == key).map(|(_, value)| value)
    };
    let children = |value: &Value| match value {
        Value::Array(elements) => elements.iter().filter(|it| it.is_object()).count(),
        Value::Object(members) => members.values().filter(|it| it.is_object()).count(),
        _ => 0,
    };
    let text = |keys: &[&str], of: bool| -> u64 {
        let is_selected = |(key, _): &&(String, Value)| keys.contains(&key.as_str()) == of;
        members.iter().filter(is_selected).map(|(_, value)| text_bytes(value)).sum()
    };
    let parse = |text: String| serde_json::from_str::<Value>(&text).expect("JSON").to_string();
    ScanResult {
        is_complete: true,
        usages: all("usage").map(|it| parse(it.to_string()).into_bytes()).collect(),
        // Two of `null` are no error that anybody writes, and are one here.
        has_error: all("error").count() > 1 || all("error").any(|value| !value.is_null()),
        data_items: all("data").map(|value| children(value) as u64).sum(),
        text_bytes: text(&["usage", "error"], false),
        output_bytes: text(&["choices", "content", "output"], true),
    }
}

proptest! {
    /// The scan finds what a parser finds, in documents of any shape.
    #[test]
    fn it_says_what_a_parser_says(members in any_members(), space in "[ \n\t\r]{0,3}") {
        let text = written(&members, &space);
        prop_assert!(serde_json::from_str::<Map<String, Value>>(&text).is_ok(), "JSON: {}", text);
        let mut result = scan_of(&[text.as_bytes()]);
        for usage in &mut result.usages {
            let value: Value = serde_json::from_slice(usage).expect("a usage is JSON");
            *usage = value.to_string().into_bytes();
        }
        let mut expected = expected(&members);
        let kept = USAGES_MAX.min(expected.usages.len().saturating_sub(1));
        let last = expected.usages.pop();
        expected.usages.truncate(kept);
        expected.usages.extend(last);
        prop_assert_eq!(result, expected);
    }

    /// Wherever a document is cut in two, whether it is JSON or not, the scan says the same; and it
    /// says so of a document that comes byte by byte.
    #[test]
    fn every_cut_says_the_same(
        members in any_members(),
        space in "[ \n]{0,2}",
        changes in prop::collection::vec((any::<prop::sample::Index>(), any_byte()), 0..4),
    ) {
        let mut text = written(&members, &space).into_bytes();
        for (place, byte) in changes {
            let place = place.index(text.len());
            match byte {
                Some(byte) => text[place] = byte,
                None => text.truncate(place.max(1)),
            }
        }
        let whole = scan_of(&[&text]);
        for cut in 0..=text.len() {
            let (before, behind) = text.split_at(cut);
            prop_assert_eq!(&scan_of(&[before, behind]), &whole, "cut at {}", cut);
        }
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        prop_assert_eq!(&scan_of(&bytes), &whole, "byte by byte");
    }

    /// An answer has failed if one of its choices says so, as a parser reads it and wherever it is cut.
    #[test]
    fn choices_have_failed_where_a_parser_says_so(
        choices in prop::collection::vec(any_choice(), 0..4),
        space in "[ \n]{0,2}",
        cut in any::<prop::sample::Index>(),
    ) {
        let expected = choices.iter().any(|choice| {
            let reason = choice.get("finish_reason").and_then(Value::as_str);
            choice.get("error").is_some_and(Value::is_object)
                || matches!(reason, Some("error" | "network_error"))
        });
        let tier = ("service_tier".to_owned(), Value::from("flex"));
        let meta = ("meta".to_owned(), serde_json::json!({"a": [1]}));
        let choices = ("choices".to_owned(), choices.into_iter().map(Value::Object).collect());
        let text = written(&[tier, choices, meta], &space).into_bytes();
        let (before, behind) = text.split_at(cut.index(text.len()));
        for scan in [scan(&[&text]), scan(&[before, behind])] {
            prop_assert_eq!(scan.says_it_failed(), expected, "{}", String::from_utf8_lossy(&text));
            prop_assert_eq!(scan.service_tier(), Some(&br#""flex""#[..]));
            let metas: Vec<Value> =
                scan.metas().map(|meta| serde_json::from_slice(meta).expect("JSON")).collect();
            prop_assert_eq!(metas, [serde_json::json!({"a": [1]})]);
        }
    }
}

/// The members of a choice, some of which say that it has failed, or only look so.
fn any_choice() -> impl Strategy<Value = Map<String, Value>> {
    let words = ["error", "network_error", "stop", "errors", "", "er\\ror", "{\"error\":{"];
    let word = prop::sample::select(words.to_vec()).prop_map(Value::from);
    let keys = ["error", "index", "message", "a key that is longer than what is compared"];
    let other = prop_oneof![
        word.clone(),
        Just(Value::Null),
        Just(serde_json::json!({})),
        Just(serde_json::json!({"error": {"finish_reason": "error"}})),
        Just(serde_json::json!([{"error": {}}, "error", {}])),
    ];
    let member =
        prop_oneof![(Just("finish_reason"), word), (prop::sample::select(keys.to_vec()), other),];
    let members = prop::collection::vec(member, 0..4);
    members.prop_map(|all| all.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

/// A byte that means something, or any; `None` ends the document there.
fn any_byte() -> impl Strategy<Value = Option<u8>> {
    let meaning = prop::sample::select(b"\"\\{}[]:, u\0\n\xFF".as_slice());
    prop_oneof![6 => meaning.prop_map(Some), 2 => any::<u8>().prop_map(Some), 1 => Just(None)]
}

#[test]
fn an_answer_that_ends_at_its_most_output_is_seen_in_every_dialect() {
    for (document, expected) in [
        (r#"{"choices":[{"finish_reason":"length","message":{}}]}"#, true),
        (r#"{"choices":[{"message":{"finish_reason":"length"}}]}"#, false),
        (r#"{"choices":[{"finish_reason":"stop"},{"finish_reason":"length"}]}"#, true),
        (r#"{"stop_reason":"max_tokens","content":[]}"#, true),
        (r#"{"stop_reason":"end_turn","content":[{"stop_reason":"max_tokens"}]}"#, false),
        (r#"{"stop_reason":"model_context_window_exceeded"}"#, true),
        (r#"{"status":"incomplete","output":[]}"#, true),
        (r#"{"status":"completed"}"#, false),
        (r#"{"candidates":[{"content":{},"finishReason":"MAX_TOKENS"}]}"#, true),
        (r#"{"candidates":[{"content":{},"finishReason":"STOP"}]}"#, false),
        (r#"{"stopReason":"max_tokens"}"#, true),
    ] {
        for size in [1, 3, document.len()] {
            let mut scan = UsageScan::default();
            document.as_bytes().chunks(size).for_each(|piece| scan.feed(piece));
            assert_eq!(scan.ended_at_limit(), expected, "{document} in pieces of {size}");
        }
    }
}
