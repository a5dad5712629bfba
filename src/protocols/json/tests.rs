use proptest::prelude::*;

use super::grammar::*;
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
    assert_eq!(value.as_array().expect("array").len(), 1);
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
    let cases: [(&str, &[u8]); 26] = [
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
        let mut splice = crate::protocols::splice::Splice::default();
        for range in object.member_ranges(cut) {
            splice.replace(range, "");
        }
        assert_eq!(splice.apply(&bytes::Bytes::from_static(text.as_bytes())), left, "{cut:?}");
    }
}

#[test]
fn case_variants_are_found() {
    let object = Object::parse(br#"{"Model":"a","N":1}"#).expect("valid");
    assert_eq!(object.case_variant_of(&["model", "stream"]), Some("Model"));
    let exact = Object::parse(br#"{"model":"a"}"#).expect("valid");
    assert_eq!(exact.case_variant_of(&["model", "stream"]), None);
}

proptest! {
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
        let mut splice = crate::protocols::splice::Splice::default();
        let ranges = object.member_ranges(&cut);
        prop_assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start), "{:?}", ranges);
        for range in ranges {
            splice.replace(range, "");
        }
        let left = splice.apply(&bytes::Bytes::from(text.clone()));
        let left = Object::parse(&left).expect("still an object");
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
