//! Bodies that JSON parsers, or a bill and an upstream, could read differently.

use super::Row;
use crate::harness::Gateway;

const MESSAGES: &str = r#""messages":[{"role":"user","content":"hi"}]"#;

pub(crate) fn rows(gateway: &Gateway) -> Vec<Row> {
    let mut rows = documents(gateway);
    rows.extend(members(gateway));
    rows.extend(values(gateway));
    rows
}

fn row(gateway: &Gateway, name: &'static str, body: Vec<u8>) -> Row {
    Row::any(name, gateway.chat_json(body), 400, "invalid_request_error")
}

/// A request that is good but for what stands in front of its model and messages.
fn with(gateway: &Gateway, name: &'static str, members: &str) -> Row {
    let body = format!(r#"{{{members},"model":"m",{MESSAGES}}}"#);
    row(gateway, name, body.into_bytes())
}

/// Bodies that are no JSON object, or no request.
fn documents(gateway: &Gateway) -> Vec<Row> {
    let row = |name, body| row(gateway, name, body);
    let good = format!(r#"{{"model":"m",{MESSAGES}}}"#);
    vec![
        row("empty body", Vec::new()),
        row("white space", b" \r\n\t ".to_vec()),
        row("cut in the middle", good.as_bytes()[..good.len() / 2].to_vec()),
        row("text behind the end", format!("{good}x").into_bytes()),
        row("second document", format!("{good}{good}").into_bytes()),
        row("NUL behind the end", format!("{good}\0").into_bytes()),
        row("byte-order mark", format!("\u{feff}{good}").into_bytes()),
        row("UTF-16", good.encode_utf16().flat_map(u16::to_le_bytes).collect()),
        row("invalid UTF-8", [b"{\"x\":\"\xff\",", &good.as_bytes()[1..]].concat()),
        row("overlong UTF-8", [b"{\"x\":\"\xc0\xaf\",", &good.as_bytes()[1..]].concat()),
        row("array", format!("[{good}]").into_bytes()),
        row("text", b"\"m\"".to_vec()),
        row("null", b"null".to_vec()),
        row("single quotes", good.replace('"', "'").into_bytes()),
        row("comment", good.replacen('{', "{/**/", 1).into_bytes()),
        row("comma behind the last member", good.replacen("]}", "],}", 1).into_bytes()),
        row("no model", format!("{{{MESSAGES}}}").into_bytes()),
        row("no messages", br#"{"model":"m"}"#.to_vec()),
        row("empty messages", br#"{"model":"m","messages":[]}"#.to_vec()),
        row("messages as text", br#"{"model":"m","messages":"hi"}"#.to_vec()),
        row("model as a number", format!(r#"{{"model":1,{MESSAGES}}}"#).into_bytes()),
        row("model as an array", format!(r#"{{"model":["m"],{MESSAGES}}}"#).into_bytes()),
    ]
}

/// Members that are there twice, or too deep, or too many.
fn members(gateway: &Gateway) -> Vec<Row> {
    let with = |name, members: &str| with(gateway, name, members);
    let nested = |depth: usize| format!(r#""x":{}1{}"#, "[".repeat(depth), "]".repeat(depth));
    let many: Vec<_> = (0..1000).map(|index| format!(r#""x{index}":1"#)).collect();
    vec![
        with("model twice", r#""model":"cheap""#),
        with("model and its escaped twin", r#""mod\u0065l":"cheap""#),
        with("model in another case", r#""Model":"cheap""#),
        with("stream twice", r#""stream":false,"stream":true"#),
        with("n twice", r#""n":1,"n":100"#),
        with("n and its escaped twin", r#""n":1,"\u006e":100"#),
        with("max_tokens twice", r#""max_tokens":1,"max_tokens":1000"#),
        with("max_tokens in another case", r#""Max_Tokens":1000"#),
        with("unknown key twice", r#""x":1,"x":2"#),
        with("array 65 deep", &nested(65)),
        with("array 100,000 deep", &nested(100_000)),
        with(
            "objects 100,000 deep",
            &format!(r#""x":{}1{}"#, r#"{"a":"#.repeat(100_000), "}".repeat(100_000)),
        ),
        with("array without end", &format!(r#""x":{}"#, "[".repeat(500_000))),
        with("a thousand members", &many.join(",")),
    ]
}

/// Values that are no JSON, or not what their member takes.
fn values(gateway: &Gateway) -> Vec<Row> {
    let with = |name, members: &str| with(gateway, name, members);
    vec![
        with("number beyond a double", r#""x":1e400"#),
        with("negative number beyond a double", r#""x":-1e400"#),
        with("number of 100,000 digits", &format!(r#""x":{}"#, "9".repeat(100_000))),
        with("number with a leading zero", r#""n":010"#),
        with("number with a plus", r#""n":+1"#),
        with("hexadecimal number", r#""n":0x10"#),
        with("number without its fraction", r#""n":1."#),
        with("NaN", r#""temperature":NaN"#),
        with("Infinity", r#""temperature":Infinity"#),
        with("lone high surrogate", r#""x":"\ud800""#),
        with("lone low surrogate", r#""x":"\udc00""#),
        with("surrogates in the wrong order", r#""x":"\udc00\ud800""#),
        with("NUL in a text", "\"x\":\"a\0b\""),
        with("escaped NUL", r#""x":"a\u0000b""#),
        with("line end in a text", "\"x\":\"a\nb\""),
        with("unknown escape", r#""x":"\q""#),
        with("negative max_tokens", r#""max_tokens":-1"#),
        with("max_tokens of zero", r#""max_tokens":0"#),
        with("fraction of a token", r#""max_tokens":1.5"#),
        with("max_tokens as text", r#""max_tokens":"10""#),
        with("max_tokens beyond 64 bits", r#""max_tokens":18446744073709551617"#),
        with("n of zero", r#""n":0"#),
        with("negative n", r#""n":-1"#),
        with("n of a million", r#""n":1000000"#),
        with("n as text", r#""n":"2""#),
        with("stream as text", r#""stream":"true""#),
        with("stream as a number", r#""stream":1"#),
        with("temperature out of range", r#""temperature":1000"#),
        with("stream_options as text", r#""stream":true,"stream_options":"x""#),
        with(
            "include_usage twice",
            r#""stream":true,"stream_options":{"include_usage":true,"include_usage":false}"#,
        ),
    ]
}
