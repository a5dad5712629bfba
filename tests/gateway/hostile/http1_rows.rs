//! Requests whose HTTP/1.1 framing, size or header is hostile.

use super::Row;
use crate::harness::Gateway;

const BODY: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
/// A smuggled request behind a refused one, which must not be served.
const SMUGGLED: &str = "GET /v1/models HTTP/1.1\r\nHost: gateway\r\n\r\n";

pub(crate) fn rows(gateway: &Gateway) -> Vec<Row> {
    let mut rows = heads(gateway);
    rows.extend(lengths(gateway));
    rows.extend(chunks(gateway));
    rows.extend(sizes(gateway));
    rows.extend(meanings(gateway));
    rows
}

/// Request lines and header lines that two parsers could read differently.
fn heads(gateway: &Gateway) -> Vec<Row> {
    let length = format!("Content-Length: {}\r\n", BODY.len());
    let good = String::from_utf8(gateway.chat(&length, BODY)).expect("text");
    let replaced = |name, from: &str, to: &str| {
        assert!(good.contains(from), "{name} changes nothing");
        Row::framing(name, good.replacen(from, to, 1))
    };
    let line =
        |name, line: &str| replaced(name, "Host: gateway\r\n", &format!("Host: gateway\r\n{line}"));
    vec![
        Row::framing("bare LF everywhere", good.replace("\r\n", "\n")),
        replaced("bare LF after the request line", "HTTP/1.1\r\n", "HTTP/1.1\n"),
        replaced("bare LF at the end", "\r\n\r\n", "\r\n\n"),
        line("bare LF inside a value", "X: a\nY: b\r\n"),
        line("bare CR inside a value", "X: a\rY: b\r\n"),
        Row::framing("a host that is none", "GET http://]a:80/ HTTP/1.0\r\n\r\n"),
        line("NUL in a value", "X: a\0b\r\n"),
        line("control byte in a value", "X: a\x01b\r\n"),
        line("DEL in a value", "X: a\x7fb\r\n"),
        line("folded line", "X: a\r\n b\r\n"),
        line("line folded with a tab", "X: a\r\n\tb\r\n"),
        line("folded first line", " X: a\r\n"),
        line("space before the colon", "X : a\r\n"),
        line("tab before the colon", "X\t: a\r\n"),
        line("line without a colon", "X\r\n"),
        line("empty name", ": a\r\n"),
        line("parenthesis in a name", "X(: a\r\n"),
        line("NUL in a name", "X\0: a\r\n"),
        line("letter above ASCII in a name", "X\u{e9}: a\r\n"),
        line("second Host, equal", "Host: gateway\r\n"),
        line("second Host, different", "Host: other\r\n"),
        replaced("no Host", "Host: gateway\r\n", ""),
        replaced("empty Host", "Host: gateway", "Host:"),
        replaced("list of Hosts", "Host: gateway", "Host: gateway, other"),
        replaced("user name in Host", "Host: gateway", "Host: a@gateway"),
        replaced("path in Host", "Host: gateway", "Host: gateway/x"),
        replaced("target's host is not Host", "POST /", "POST http://other/"),
        replaced("target's host with a user", "POST /", "POST http://gateway@other/"),
        replaced("NUL in the path", "completions HTTP", "completions\0 HTTP"),
        replaced("control byte in the path", "completions HTTP", "completions\x01 HTTP"),
        replaced("space in the path", "completions HTTP", "completions x HTTP"),
        replaced("byte above ASCII in the path", "completions HTTP", "completions\u{e9} HTTP"),
        replaced("fragment in the path", "completions HTTP", "completions#x HTTP"),
        replaced("backslash in the path", "/v1/", "/v1\\"),
        replaced("two spaces", "POST /", "POST  /"),
        replaced("tab for a space", "POST /", "POST\t/"),
        replaced("no path", " /v1/chat/completions", ""),
        replaced("odd method", "POST", "PO(ST"),
        replaced("HTTP/1.2", "HTTP/1.1", "HTTP/1.2"),
        replaced("HTTP/2.0 as text", "HTTP/1.1", "HTTP/2.0"),
        replaced("version in lower case", "HTTP/1.1", "http/1.1"),
        replaced("space after the version", "HTTP/1.1", "HTTP/1.1 "),
        replaced("no version", " HTTP/1.1", ""),
        Row::framing("empty line first", format!("\r\n{good}")),
        line("Connection names the length", "Connection: content-length\r\n"),
        line("Connection names the host", "Connection: close, Host\r\n"),
        Row::framing("another protocol", "SSH-2.0-OpenSSH_9.2\r\n\r\n".to_owned()),
    ]
}

/// Every way to say two things about where the body ends, with a request smuggled behind it.
fn lengths(gateway: &Gateway) -> Vec<Row> {
    let n = BODY.len();
    let chunked = format!("{n:x}\r\n{BODY}\r\n0\r\n\r\n{SMUGGLED}");
    let plain = format!("{BODY}{SMUGGLED}");
    let row = |name, lines: String, body: &str| Row::framing(name, gateway.chat(&lines, body));
    let te = |name, value: &str| row(name, format!("Transfer-Encoding: {value}\r\n"), &chunked);
    let cl = |name, value: String| row(name, format!("Content-Length: {value}\r\n"), &plain);
    vec![
        row(
            "length, then chunked",
            format!("Content-Length: {n}\r\nTransfer-Encoding: chunked\r\n"),
            &chunked,
        ),
        row(
            "chunked, then length",
            "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n".to_owned(),
            &chunked,
        ),
        row(
            "length twice, equal",
            format!("Content-Length: {n}\r\nContent-Length: {n}\r\n"),
            &plain,
        ),
        row(
            "length twice, different",
            format!("Content-Length: {n}\r\nContent-Length: 0\r\n"),
            &plain,
        ),
        cl("length as a list", format!("{n}, {n}")),
        cl("length with a plus", format!("+{n}")),
        cl("negative length", format!("-{n}")),
        cl("hexadecimal length", format!("0x{n:x}")),
        cl("length with a space inside", "5 7".to_owned()),
        cl("length with a fraction", format!("{n}.0")),
        cl("empty length", String::new()),
        cl("length beyond 64 bits", format!("1844674407370955{}", 1616 + n)),
        row("space before the length's colon", format!("Content-Length : {n}\r\n"), &plain),
        te("chunked is not last", "chunked, identity"),
        te("identity before chunked", "identity, chunked"),
        te("gzip before chunked", "gzip, chunked"),
        te("chunked twice in a list", "chunked, chunked"),
        te("chunked in two lines", "chunked\r\nTransfer-Encoding: chunked"),
        te("chunked and identity in two lines", "chunked\r\nTransfer-Encoding: identity"),
        te("xchunked", "xchunked"),
        te("quoted chunked", "\"chunked\""),
        te("vertical tab before chunked", "\x0bchunked"),
        te("identity", "identity"),
        te("empty transfer coding", ""),
        Row::framing("HTTP/1.0 with a transfer coding", {
            let request = gateway.chat("Transfer-Encoding: chunked\r\n", &chunked);
            String::from_utf8(request).expect("text").replacen("HTTP/1.1", "HTTP/1.0", 1)
        }),
    ]
}

/// Chunked bodies that are not.
fn chunks(gateway: &Gateway) -> Vec<Row> {
    let n = BODY.len();
    let row = |name, body: String| {
        Row::framing(name, gateway.chat("Transfer-Encoding: chunked\r\n", body))
    };
    vec![
        row("0x before the chunk size", format!("0x{n:x}\r\n{BODY}\r\n0\r\n\r\n")),
        row("negative chunk size", format!("-{n:x}\r\n{BODY}\r\n0\r\n\r\n")),
        row("chunk size with a plus", format!("+{n:x}\r\n{BODY}\r\n0\r\n\r\n")),
        row("chunk size after a space", format!(" {n:x}\r\n{BODY}\r\n0\r\n\r\n")),
        row("chunk size beyond 64 bits", format!("fffffffffffffffff\r\n{BODY}\r\n0\r\n\r\n")),
        row("chunk size that is no number", format!("zz\r\n{SMUGGLED}")),
        row("chunk without its CR LF", format!("{n:x}\r\n{BODY}0\r\n\r\n")),
        row("chunk longer than its size", format!("{n:x}\r\n{BODY}XX\r\n0\r\n\r\n")),
        row("bare LF between chunks", format!("{n:x}\n{BODY}\n0\n\n")),
        row("bare LF in a chunk extension", format!("{n:x};a\nb\r\n{BODY}\r\n0\r\n\r\n")),
        row("bare LF behind a chunk extension", format!("{n:x};a\n{BODY}\r\n0\r\n\r\n")),
        row("blank behind a chunk size", format!("{n:x} \r\n{BODY}\r\n0\r\n\r\n")),
        row("tab behind a chunk size", format!("{n:x}\t\r\n{BODY}\r\n0\r\n\r\n")),
        row("blank in a chunk extension", format!("{n:x}; a\r\n{BODY}\r\n0\r\n\r\n")),
        row("bare LF in a trailer", format!("{n:x}\r\n{BODY}\r\n0\r\nX: y\nZ: y\r\n\r\n")),
        row(
            "chunk extension of 64 KiB",
            format!("{n:x};{}\r\n{BODY}\r\n0\r\n\r\n", "x".repeat(65536)),
        ),
        row(
            "trailer of 64 KiB",
            format!("{n:x}\r\n{BODY}\r\n0\r\nX: {}\r\n\r\n", "x".repeat(65536)),
        ),
    ]
}

/// More than is taken.
fn sizes(gateway: &Gateway) -> Vec<Row> {
    let megabyte = "y".repeat(1 << 20);
    let header = |lines: String| gateway.chat(&lines, "");
    let endless = format!("10000\r\n{}\r\n", "x".repeat(0x10000)).repeat(24);
    let path = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(1 << 17));
    vec![
        Row::closing(
            "header of 1 MiB",
            header(format!("X: {megabyte}\r\n")),
            431,
            "headers_too_large",
        ),
        Row::closing("300 headers", header("X: y\r\n".repeat(300)), 431, "headers_too_large"),
        Row::closing("path of 128 KiB", path, 431, "headers_too_large"),
        Row::closing(
            "10 GB declared",
            gateway.chat("Content-Length: 10000000000\r\n", "{"),
            413,
            "request_too_large",
        ),
        Row::closing(
            "10 GB declared, and smuggled",
            gateway.chat("Content-Length: 10000000000\r\n", SMUGGLED),
            413,
            "request_too_large",
        ),
        Row::closing(
            "one byte too many",
            gateway.chat("Content-Length: 1048577\r\n", ""),
            413,
            "request_too_large",
        ),
        Row::closing(
            "chunks without end",
            gateway.chat("Transfer-Encoding: chunked\r\n", endless),
            413,
            "request_too_large",
        ),
        Row::closing(
            "10 GB expected to be waited for",
            gateway.chat("Expect: 100-continue\r\nContent-Length: 10000000000\r\n", ""),
            413,
            "request_too_large",
        ),
    ]
}

/// Well-formed requests for what is not done here.
fn meanings(gateway: &Gateway) -> Vec<Row> {
    let length = format!("Content-Length: {}\r\n", BODY.len());
    let good = String::from_utf8(gateway.chat(&length, BODY)).expect("text");
    let line = |lines: &str| gateway.chat(&format!("{lines}{length}"), BODY);
    let key = format!("Authorization: Bearer {}\r\n", gateway.key);
    let with_key = |authorization: &str| good.replacen(&key, authorization, 1);
    let method = |name, method: &str| {
        Row::any("", good.replacen("POST", method, 1), 405, "method_not_allowed").named(name)
    };
    vec![
        Row::any("gzip", line("Content-Encoding: gzip\r\n"), 415, "unsupported_media_type"),
        Row::any("zstd", line("Content-Encoding: zstd\r\n"), 415, "unsupported_media_type"),
        Row::any(
            "two codings",
            line("Content-Encoding: identity, br\r\n"),
            415,
            "unsupported_media_type",
        ),
        method("TRACE", "TRACE"),
        method("method in lower case", "post"),
        method("unknown method", "BREW"),
        method("PUT", "PUT"),
        Row::any("unknown path", good.replacen("completions", "x", 1), 404, "not_found"),
        Row::any("path with a doubled slash", good.replacen("/v1/", "//v1/", 1), 404, "not_found"),
        Row::any("path that climbs", good.replacen("/v1/", "/v1/../v1/", 1), 404, "not_found"),
        Row::any(
            "path with an escaped slash",
            good.replacen("/chat/", "%2Fchat/", 1),
            404,
            "not_found",
        ),
        Row::any("no key", with_key(""), 401, "unauthorized"),
        Row::any("empty key", with_key("Authorization: Bearer \r\n"), 401, "unauthorized"),
        Row::any("another scheme", with_key("Authorization: Basic c2s6\r\n"), 401, "unauthorized"),
        Row::any(
            "key of 32 KiB",
            with_key(&format!("Authorization: Bearer {}\r\n", "k".repeat(32768))),
            401,
            "unauthorized",
        ),
        Row::any(
            "key with SQL",
            with_key("Authorization: Bearer ' OR 1=1 --\r\n"),
            401,
            "unauthorized",
        ),
        Row::any(
            "key above ASCII",
            with_key("Authorization: Bearer \u{e9}\u{1f511}\r\n"),
            401,
            "unauthorized",
        ),
        Row::any(
            "two keys",
            with_key(&format!("{key}Authorization: Bearer x\r\n")),
            401,
            "unauthorized",
        ),
        Row::any(
            "the operator's key",
            with_key("Authorization: Bearer sk-upstream-of-a-test\r\n"),
            401,
            "unauthorized",
        ),
    ]
}
