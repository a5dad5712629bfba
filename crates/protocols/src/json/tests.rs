use proptest::prelude::*;

use super::*;

#[test]
fn finds_members_and_their_ranges() {
    let text = br#" {"model" : "gpt-4o", "n":2,"stream":true, "x":[{"model":"no"}],"u":null} "#;
    let object = Object::parse(text).expect("valid");
    assert_eq!(object.get("model").and_then(|v| v.as_str()).as_deref(), Some("gpt-4o"));
    assert_eq!(object.get("n").and_then(|v| v.as_u64()), Some(2));
    assert_eq!(object.get("stream").and_then(|v| v.as_bool()), Some(true));
    assert_eq!(object.get_non_null("u"), None);
    let value = object.get("x").expect("x");
    assert_eq!(&text[value.range.clone()], br#"[{"model":"no"}]"#);
    assert_eq!(value.elements().expect("array").count(), 1);
}

#[test]
fn an_escaped_key_is_the_same_key() {
    let object = Object::parse(br#"{"mod\u0065l":"a"}"#).expect("valid");
    assert_eq!(object.get("model").and_then(|v| v.as_str()).as_deref(), Some("a"));
    assert!(object.has_escaped_keys());
    let twice = Object::parse(br#"{"model":"a","mod\u0065l":"b"}"#).expect_err("twins");
    assert!(twice.message.contains("duplicate key"), "{twice}");
}

#[test]
fn an_empty_body_is_called_empty() {
    for text in ["", " \n"] {
        let error = Object::parse(text.as_bytes()).expect_err("nothing");
        assert_eq!(error.message, "the body is empty; it must be a JSON object", "{text:?}");
    }
}

#[test]
fn refuses_what_parsers_disagree_on() {
    let deep = format!("{{\"a\":{}1{}}}", "[".repeat(64), "]".repeat(64));
    let long_number = format!("{{\"a\":{}}}", "1".repeat(600));
    let cases: [(&str, &[u8]); 28] = [
        ("empty", b""),
        ("array", b"[]"),
        ("duplicate", br#"{"a":1,"a":2}"#),
        ("trailing text", br#"{"a":1} x"#),
        ("two documents", br#"{"a":1}{"a":2}"#),
        ("byte-order mark", b"\xef\xbb\xbf{}"),
        ("bad UTF-8", b"{\"a\":\"\xff\"}"),
        ("overflow", br#"{"a":1e400}"#),
        ("nested overflow", br#"{"a":[[-1e999]]}"#),
        ("long number", long_number.as_bytes()),
        ("depth", deep.as_bytes()),
        ("lone high surrogate", br#"{"a":"\ud83d"}"#),
        ("high surrogate and another escape", br#"{"a":"\ud83d\n"}"#),
        ("lone low surrogate", br#"{"a":"\ude00"}"#),
        ("escaped NUL", br#"{"a":"\u0000"}"#),
        ("raw NUL", b"{\"a\":\"\0\"}"),
        ("raw newline", b"{\"a\":\"\n\"}"),
        ("leading zero", br#"{"a":01}"#),
        ("bare point", br#"{"a":1.}"#),
        ("plus sign", br#"{"a":+1}"#),
        ("NaN", br#"{"a":NaN}"#),
        ("trailing comma", br#"{"a":1,}"#),
        ("trailing comma in an array", br#"{"a":[1,]}"#),
        ("array that ends as an object", br#"{"a":[1}}"#),
        ("object that ends as an array", br#"{"a":{"b":1]}"#),
        ("comment", br#"{"a":1/**/}"#),
        ("single quotes", br#"{'a':1}"#),
        ("cut off", br#"{"a":{"b":[1,{"c":"#),
    ];
    for (name, text) in cases {
        assert!(Object::parse(text).is_err(), "{name} was accepted");
    }
    let deepest = format!("{{\"a\":{}1{}}}", "[".repeat(63), "]".repeat(63));
    assert!(Object::parse(deepest.as_bytes()).is_ok(), "64 levels are allowed");
    assert!(Object::parse(r#"{"a":"\ud83d\ude00 é 😀"}"#.as_bytes()).is_ok());
}

/// The text without these ranges, which ascend.
fn without(text: &str, ranges: Vec<Range<usize>>) -> String {
    let mut left = text.to_owned();
    ranges.into_iter().rev().for_each(|range| left.replace_range(range, ""));
    left
}

#[test]
fn members_go_with_their_commas() {
    let text = r#"{ "a":1, "b" : [2] ,"c":3,"d":4 }"#;
    for (cut, left) in [
        (&["a"][..], r#"{ "b" : [2] ,"c":3,"d":4 }"#),
        (&["b"], r#"{ "a":1, "c":3,"d":4 }"#),
        (&["d"], r#"{ "a":1, "b" : [2] ,"c":3 }"#),
        (&["d", "c"], r#"{ "a":1, "b" : [2] }"#),
        (&["a", "b"], r#"{ "c":3,"d":4 }"#),
        (&["a", "c"], r#"{ "b" : [2] ,"d":4 }"#),
        (&["a", "c", "d"], r#"{ "b" : [2] }"#),
        (&["a", "b", "c", "d"], "{  }"),
        (&["x"], text),
    ] {
        let object = Object::parse(text.as_bytes()).expect("valid");
        assert_eq!(without(text, object.member_ranges(cut)), left, "{cut:?}");
    }
}

#[test]
fn more_values_than_allowed_are_refused_where_they_begin() {
    let text = br#"{"a":[0,[],{"b":null}],"c":"d"}"#;
    let object = Object::parse(text).expect("valid");
    assert_eq!(object.values(), 6, "the array, its three, the null and the text");
    assert!(Object::parse_within(text, 6).is_ok());
    let error = Object::parse_within(text, 5).expect_err("one too many");
    assert!(error.message.contains("more than 5 values (`json_values_max`)"), "{error}");
    assert_eq!(error.offset, 27, "before the last");
    assert_eq!(Object::parse(b"{}").map(|object| object.values()), Ok(0));
    let zeros = format!(r#"{{"stop":[{}0]}}"#, "0,".repeat(10_000_000));
    let error = Object::parse_within(zeros.as_bytes(), 100_000).expect_err("too many");
    assert!(error.offset < 300_000, "the rest is not looked at: {error}");
}

#[test]
fn elements_are_those_of_the_array_alone() {
    let text = br#"{"a": [ 1 ,"]",[2,3] , {"b":[4]}, []] ,"c":[],"d":7}"#;
    let object = Object::parse(text).expect("valid");
    let texts = |key| {
        let elements = object.get(key).expect(key).elements()?;
        Some(elements.map(|one| String::from_utf8_lossy(one.text()).into_owned()).collect())
    };
    let expected = ["1", "\"]\"", "[2,3]", "{\"b\":[4]}", "[]"].map(str::to_owned);
    assert_eq!(texts("a"), Some(expected.to_vec()));
    assert_eq!(texts("c"), Some(Vec::new()));
    assert_eq!(texts("d"), None);
}

#[test]
fn case_variants_are_found() {
    let object = Object::parse(br#"{"Model":"a","N":1}"#).expect("valid");
    assert_eq!(object.case_variant_of(&["model", "stream"]), Some("Model"));
    let exact = Object::parse(br#"{"model":"a"}"#).expect("valid");
    assert_eq!(exact.case_variant_of(&["model", "stream"]), None);
}

/// Any JSON value, and how many values are inside.
fn tree() -> impl Strategy<Value = serde_json::Value> {
    let text = "[\\[\\]{},:\"\\\\ a-zé\n]{0,8}";
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<i32>().prop_map(serde_json::Value::from),
        text.prop_map(serde_json::Value::from),
    ];
    leaf.prop_recursive(5, 64, 8, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..8).prop_map(serde_json::Value::from),
            proptest::collection::btree_map(text, inner, 0..8)
                .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
        ]
    })
}

fn values_inside(value: &serde_json::Value) -> usize {
    let all = |inside: usize, one: &serde_json::Value| inside + 1 + values_inside(one);
    match value {
        serde_json::Value::Array(elements) => elements.iter().fold(0, all),
        serde_json::Value::Object(members) => members.values().fold(0, all),
        _ => 0,
    }
}

proptest! {
    /// A text has the number of values that a parser makes of it.
    #[test]
    fn values_are_counted_as_parsers_make_them(value in tree(), cut in 0usize..200) {
        let wrapped = serde_json::json!({"x": value});
        let expected = values_inside(&wrapped);
        for text in [wrapped.to_string(), format!("{wrapped:#}")] {
            let object = Object::parse(text.as_bytes()).expect("valid");
            prop_assert_eq!(object.values(), expected, "{}", text);
            prop_assert!(Object::parse_within(text.as_bytes(), expected).is_ok());
            prop_assert!(Object::parse_within(text.as_bytes(), expected - 1).is_err());
            prop_assert_eq!(values_within(text.as_bytes(), expected), Some(expected), "{}", text);
            prop_assert_eq!(values_within(text.as_bytes(), expected - 1), None);
            // What breaks off has no more than the whole.
            let cut = &text.as_bytes()[..cut.min(text.len())];
            prop_assert!(values_within(cut, expected + 1).is_some());
        }
    }

    /// Whatever a lenient parser makes of a text that the grammar here refuses, was counted.
    #[test]
    fn no_parser_makes_more_values_than_are_counted(text in r#"[\[\]{},:"\\0a \t\x0c]{0,40}"#) {
        let values = values_within(text.as_bytes(), usize::MAX).expect("no limit");
        for value in serde_json::Deserializer::from_str(&text).into_iter::<serde_json::Value>() {
            let Ok(value) = value else { break };
            prop_assert!(values_inside(&value) <= values, "{:?}", text);
        }
    }

    /// Whatever is accepted, serde_json reads the same way; and nothing panics.
    #[test]
    fn agrees_with_serde_json(text in r#"[\{\}\[\]:,"\\u0-9a-fdDeE.+\-ntr l sx]{0,40}"#) {
        if Object::parse(text.as_bytes()).is_ok() {
            let parsed: Result<serde_json::Value, _> = serde_json::from_str(&text);
            prop_assert!(parsed.is_ok_and(|v| v.is_object()), "accepted {text:?}");
        }
    }

    #[test]
    fn reads_what_serde_json_writes(
        strings in proptest::collection::btree_map("[^\u{0}]{0,12}", "[^\u{0}]{0,40}", 0..6),
    ) {
        let text = serde_json::to_vec(&strings).expect("serialise");
        let object = Object::parse(&text).expect("valid JSON was refused");
        for (key, value) in &strings {
            let read = object.get(key).and_then(|v| v.as_str()).map(Cow::into_owned);
            prop_assert_eq!(read.as_ref(), Some(value));
        }
    }

    #[test]
    fn without_some_of_its_members_an_object_is_one_with_the_others(
        members in proptest::collection::vec((any::<bool>(), "[\\[\\],:{}a-c\"\\\\]{0,6}"), 0..8),
        space in "[ \n\t]{0,3}",
    ) {
        let written = |index: usize, value: &str| {
            let value = serde_json::Value::from(value);
            format!("{space}\"k{index}\"{space}:{space}{value}{space}")
        };
        let all = members.iter().enumerate();
        let texts: Vec<_> = all.clone().map(|(index, (_, value))| written(index, value)).collect();
        let text = format!("{space}{{{}{space}}}{space}", texts.join(","));
        let cut: Vec<_> = all.clone().filter(|(_, (cut, _))| *cut).map(|(i, _)| format!("k{i}")).collect();
        let cut: Vec<&str> = cut.iter().map(String::as_str).collect();

        let object = Object::parse(text.as_bytes()).expect("an object");
        let ranges = object.member_ranges(&cut);
        prop_assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start), "{:?}", ranges);
        let left = without(&text, ranges);
        let left = Object::parse(left.as_bytes()).expect("still an object");
        for (index, (is_cut, value)) in all {
            let read = left.get(&format!("k{index}")).and_then(|value| value.as_str());
            let expected = Some(value.as_str()).filter(|_| !is_cut);
            prop_assert_eq!(read.as_deref(), expected, "k{} in {}", index, text);
        }
        let untouched = object.member_ranges(&["other"]);
        prop_assert!(untouched.is_empty(), "no such member: {:?}", untouched);
    }

    #[test]
    fn plain_text_ends_where_a_look_at_each_byte_says(
        plain in "[a-zé]{0,200}", rest in "[\"\\\\\n\u{1f}\u{7f}ab]{0,20}", from in 0usize..9,
    ) {
        let text = [plain.as_bytes(), rest.as_bytes()].concat();
        let from = from.min(text.len());
        let special = |byte: &u8| matches!(byte, b'"' | b'\\') || *byte < 0x20;
        let end = text[from..].iter().position(special).map_or(text.len(), |end| from + end);
        prop_assert_eq!(plain_text_end(&text, from), end);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(object) = Object::parse(&bytes) {
            prop_assert!(object.text() == bytes.as_slice());
        }
    }
}

/// Documents with what is judged in them: escapes, keys that are the same, surrogates, deep levels.
fn any_document() -> impl Strategy<Value = Vec<u8>> {
    let string = prop::sample::select(
        [
            r#""""#,
            r#""a""#,
            r#""\u0061""#,
            r#""\ud83d\ude00""#,
            r#""\ud83d""#,
            r#""\u0000""#,
            r#""\/\"\\""#,
            "\"é你😀\"",
            r#""a text that is longer than the blocks in which it is looked at, one after the other""#,
        ]
        .as_slice(),
    );
    let scalar =
        prop::sample::select(["0", "-1.5e3", "01", "1e999", "true", "null", "nul"].as_slice());
    let value = prop_oneof![4 => string.clone(), 2 => scalar]
        .prop_map(str::to_owned)
        .prop_recursive(3, 16, 4, move |inner| {
            let member =
                (prop::sample::select([r#""a""#, r#""b\n""#, "\"é\""].as_slice()), inner.clone());
            let members = prop::collection::vec(
                member.prop_map(|(key, value)| format!("{key}: {value}")),
                0..3,
            );
            prop_oneof![
                prop::collection::vec(inner, 0..4).prop_map(|all| format!("[{}]", all.join(", "))),
                members.prop_map(|all| format!("{{{}}}", all.join(","))),
            ]
        });
    let meaning = prop::sample::select(br#""\{}[]:,0- u"#.as_slice());
    let byte = prop_oneof![meaning, any::<u8>()];
    let changes = prop::collection::vec((any::<prop::sample::Index>(), byte), 0..3);
    let members = prop::collection::vec((string, value), 0..5);
    (members, changes).prop_map(|(members, changes)| {
        let members: Vec<String> =
            members.iter().map(|(key, value)| format!("{key}:{value}")).collect();
        let mut text = format!("{{{}}}", members.join(",")).into_bytes();
        for (place, byte) in changes {
            let place = place.index(text.len());
            text[place] = byte;
        }
        text
    })
}

proptest! {
    /// An accepted document reads as a parser reads it, and invalid UTF-8 is refused at its first byte,
    /// whatever else is wrong.
    #[test]
    fn nothing_damaged_is_taken_for_something_else(text in any_document()) {
        let read = Object::parse(&text);
        if let Err(invalid) = std::str::from_utf8(&text) {
            prop_assert_eq!(read.err().map(|error| error.offset), Some(invalid.valid_up_to()));
            return Ok(());
        }
        let Ok(object) = read else { return Ok(()) };
        let parsed: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(&text).expect("a parser reads what was taken");
        prop_assert_eq!(object.keys().count(), parsed.len(), "no key is there twice");
        for (key, value) in object.members() {
            let value: serde_json::Value = serde_json::from_slice(value.text()).expect("a value");
            prop_assert_eq!(Some(&value), parsed.get(key), "{}", key);
        }
    }
}

/// The keys of an object in their order, also those that are there twice.
#[derive(serde::Deserialize)]
#[serde(transparent)]
struct Keys(#[serde(deserialize_with = "keys")] Vec<String>);

fn keys<'de, D: serde::Deserializer<'de>>(reader: D) -> Result<Vec<String>, D::Error> {
    struct Visitor;
    impl<'de> serde::de::Visitor<'de> for Visitor {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: serde::de::MapAccess<'de>>(
            self,
            mut members: A,
        ) -> Result<Vec<String>, A::Error> {
            let mut keys = Vec::new();
            while let Some((key, _)) = members.next_entry::<_, serde::de::IgnoredAny>()? {
                keys.push(key);
            }
            Ok(keys)
        }
    }
    reader.deserialize_map(Visitor)
}

/// The plain rules, of a document that is not deep: what a parser reads as an object, without a key that
/// is there twice and without NUL.
fn is_acceptable(text: &[u8]) -> bool {
    let Ok(Keys(mut keys)) = serde_json::from_slice(text) else { return false };
    let count = keys.len();
    keys.sort();
    keys.dedup();
    let tree: Result<serde_json::Value, _> = serde_json::from_slice(text);
    tree.is_ok() && keys.len() == count && !has_nul(text)
}

/// True if a string of a document has an escape for NUL.
fn has_nul(mut text: &[u8]) -> bool {
    while let Some(at) = text.iter().position(|&byte| byte == b'\\') {
        if text[at..].starts_with(br"\u0000") {
            return true;
        }
        text = &text[at + 2..];
    }
    false
}

proptest! {
    /// Exactly the documents that a plain implementation accepts are accepted, also damaged ones, and however
    /// the strings lie in the scanned blocks.
    #[test]
    fn what_the_plain_rules_take_is_taken(text in any_document(), space in 0_usize..70) {
        let text = [" ".repeat(space).into_bytes(), text].concat();
        let (read, expected) = (Object::parse(&text), is_acceptable(&text));
        prop_assert_eq!(read.is_ok(), expected, "{:?}: {:?}", String::from_utf8_lossy(&text), read);
    }
}
