//! Forms of real clients are read, forms on which parsers disagree are refused, and edits touch nothing else.

use bytes::Bytes;
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

const TYPE: &[u8] = b"multipart/form-data; boundary=b";

fn scan(content_type: &[u8], body: &[u8]) -> Result<Form, FormError> {
    FormScan::new(Boundary::from_content_type(content_type)?).finish(body)
}

/// Feeds `body` up to each of `cuts`, then all of it.
fn scan_cut(boundary: Boundary, body: &[u8], cuts: &[usize]) -> Result<Form, FormError> {
    let mut scan = FormScan::new(boundary);
    for cut in cuts {
        scan.feed(&body[..*cut])?;
    }
    scan.finish(body)
}

/// Name, file name, content type and content of each part.
type ReadParts<'a> = Vec<(&'a str, Option<&'a str>, Option<&'a str>, &'a [u8])>;

fn read<'a>(form: &'a Form, body: &'a [u8]) -> ReadParts<'a> {
    let parts = form.parts.iter();
    let read = parts.map(|part| {
        let content = &body[part.content.clone()];
        (part.name.as_str(), part.filename.as_deref(), part.content_type.as_deref(), content)
    });
    read.collect()
}

#[test]
fn a_form_of_openai_python_is_read() {
    let body = b"--0123456789abcdef0123456789abcdef\r\n\
        Content-Disposition: form-data; name=\"model\"\r\n\r\n\
        gpt-image-1\r\n\
        --0123456789abcdef0123456789abcdef\r\n\
        Content-Disposition: form-data; name=\"prompt\"\r\n\r\n\
        a cat\n\xc3\xa9\r\n\
        --0123456789abcdef0123456789abcdef\r\n\
        Content-Disposition: form-data; name=\"image[]\"; filename=\"a.png\"\r\n\
        Content-Type: image/png\r\n\r\n\
        \x89PNG\r\n\x1a\n\0\r\n\
        --0123456789abcdef0123456789abcdef--\r\n";
    let content_type = b"multipart/form-data; boundary=0123456789abcdef0123456789abcdef";
    let form = scan(content_type, body).expect("a form");
    let expected: ReadParts<'_> = vec![
        ("model", None, None, b"gpt-image-1"),
        ("prompt", None, None, b"a cat\n\xc3\xa9"),
        ("image[]", Some("a.png"), Some("image/png"), b"\x89PNG\r\n\x1a\n\0"),
    ];
    assert_eq!(read(&form, body), expected);
    assert_eq!(form.text(body, "prompt"), Ok(Some("a cat\n\u{e9}")));
    assert_eq!(form.text(body, "size"), Ok(None));
    assert_eq!(form.files(&["image", "image[]"]).count(), 1);
    assert_eq!((form.parts[0].whole.start, form.insertion_point()), (0, 0));
    assert_eq!(form.parts[0].whole.end, form.parts[1].whole.start);
}

#[test]
fn forms_of_other_clients_are_read() {
    let curl = b"--------------------------d74496d66958873e\r\n\
        Content-Disposition: form-data; name=\"image\"; filename=\"a \\\"b\\\".png\"\r\n\
        Content-Type: image/png\r\n\r\nI\r\n\
        --------------------------d74496d66958873e--\r\n";
    let chrome = b"------WebKitFormBoundary7MA4YWxkTrZu0gW\r\n\
        Content-Disposition: form-data; name=\"image\"; filename=\"C:\\\xc3\xa9;%22.png\"\r\n\
        Content-Type: image/png\r\n\r\nI\r\n\
        ------WebKitFormBoundary7MA4YWxkTrZu0gW--\r\n";
    let undici = b"------formdata-undici-012345678901\r\n\
        Content-Disposition: form-data; name=\"image\"; filename=\"blob\"\r\n\
        Content-Type: application/octet-stream\r\n\r\nI\r\n\
        ------formdata-undici-012345678901--";
    let dot_net = b"--9051914041544843365972754266\r\n\
        Content-Type: image/png\r\n\
        Content-Disposition: form-data; name=image; filename=a.png; filename*=utf-8''a.png\r\n\r\n\
        I\r\n--9051914041544843365972754266--\r\n";
    let okhttp = b"--5cf5ef6b-0d27-4a05-a6b9\r\n\
        Content-Disposition: form-data; name=\"image\"; filename=\"\"\r\n\
        Content-Type: image/png\r\nContent-Length: 1\r\n\r\n\
        I\r\n--5cf5ef6b-0d27-4a05-a6b9--\r\n";
    let apache = b"--a_b\r\nContent-Disposition: form-data; name=\"image\"\r\n\
        Content-Type: text/plain; charset=ISO-8859-1\r\n\
        Content-Transfer-Encoding: 8bit\r\n\r\nI\r\n--a_b--\r\n";
    let cases: [(&str, &[u8], Option<&str>); 6] = [
        ("boundary=------------------------d74496d66958873e", curl, Some("a \"b\".png")),
        ("boundary=----WebKitFormBoundary7MA4YWxkTrZu0gW", chrome, Some("C:\\\u{e9};%22.png")),
        ("boundary=----formdata-undici-012345678901", undici, Some("blob")),
        ("boundary=\"9051914041544843365972754266\"", dot_net, Some("a.png")),
        ("boundary=5cf5ef6b-0d27-4a05-a6b9", okhttp, Some("")),
        ("charset=UTF-8; Boundary=a_b", apache, None),
    ];
    for (parameters, body, filename) in cases {
        let content_type = format!("Multipart/Form-Data; {parameters}");
        let form = scan(content_type.as_bytes(), body).expect(parameters);
        let part = form.field("image").expect("one").expect("an image");
        assert_eq!((form.parts.len(), part.filename.as_deref()), (1, filename), "{parameters}");
        assert_eq!(&body[part.content.clone()], b"I", "{parameters}");
    }
    let empty = scan(TYPE, b"\r\n--b--").expect("a form without parts");
    assert_eq!((empty.parts.len(), empty.insertion_point()), (0, 2));
}

#[test]
fn content_types_that_name_no_clear_boundary_are_refused() {
    let long = format!("multipart/form-data; boundary={}", "x".repeat(70 * 1024));
    let longest = format!("multipart/form-data; boundary={}", "x".repeat(70));
    assert!(Boundary::from_content_type(longest.as_bytes()).is_ok(), "70 bytes are allowed");
    assert!(
        Boundary::from_content_type(b"multipart/form-data;boundary=\"a b:?\"").is_ok(),
        "quoted"
    );
    let cases: [(&[u8], FormError); 18] = [
        (b"", FormError::NotForm),
        (b"application/json", FormError::NotForm),
        (b"multipart/mixed; boundary=b", FormError::NotForm),
        (b"multipart/form-data", FormError::BoundaryMissing),
        (b"multipart/form-data; charset=utf-8", FormError::BoundaryMissing),
        (b"multipart/form-data; boundary=b; charset=utf-7", FormError::Charset),
        (b"multipart/form-data; boundary=b; Boundary=c", FormError::ContentType),
        (b"multipart/form-data; boundary=b; boundary*=utf-8''c", FormError::ContentType),
        (b"multipart/form-data; boundary=b; charset*0=utf-7", FormError::ContentType),
        (b"multipart/form-data; boundary=", FormError::ContentType),
        (b"multipart/form-data; boundary = b", FormError::ContentType),
        (b"multipart/form-data; boundary=\"b", FormError::ContentType),
        (b"multipart/form-data; boundary=b c", FormError::ContentType),
        (b"multipart/form-data; boundary=b, boundary=c", FormError::ContentType),
        (b"multipart/form-data; boundary=\"\"", FormError::Boundary),
        (b"multipart/form-data; boundary=\"b \"", FormError::Boundary),
        (b"multipart/form-data; boundary=\"a\\\"b\"", FormError::Boundary),
        (long.as_bytes(), FormError::Boundary),
    ];
    for (content_type, error) in cases {
        let shown = String::from_utf8_lossy(content_type);
        assert_eq!(Boundary::from_content_type(content_type), Err(error), "{shown:.80}");
    }
}

#[test]
fn hostile_framing_is_refused() {
    let part = "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n";
    let form = |before: &str, behind: &str| format!("{before}{part}{behind}");
    let most = format!("{}--b--", part.repeat(PARTS_MAX));
    assert_eq!(scan(TYPE, most.as_bytes()).map(|form| form.parts.len()), Ok(PARTS_MAX));
    let cases = [
        ("a preamble on the line", form("x", "--b--"), FormError::Preamble),
        ("the boundary in a preamble", form("x--b\r\n", "--b--"), FormError::Preamble),
        ("a bare LF before", form("\n", "--b--"), FormError::Preamble),
        ("a bare CR before", form("x\r", "--b--"), FormError::Preamble),
        ("another boundary", "--c--".into(), FormError::BoundaryAbsent),
        ("an epilogue on the line", form("", "--b--x"), FormError::Epilogue),
        ("a form behind the form", form("", "--b--\r\n--b--"), FormError::Epilogue),
        ("a part behind the form", form("", &format!("--b--\r\n{part}--b--")), FormError::Epilogue),
        ("the boundary in an epilogue", form("", "--b--\r\nx --b x"), FormError::Epilogue),
        ("a bare LF behind the last", form("", "--b--\n"), FormError::Epilogue),
        ("half a line end behind", form("", "--b--\r"), FormError::Epilogue),
        ("no body", String::new(), FormError::Unfinished),
        ("a cut first delimiter", "\r".into(), FormError::Unfinished),
        ("a cut in the headers", "--b\r\nContent-D".into(), FormError::Unfinished),
        ("no closing delimiter", part.into(), FormError::Unfinished),
        ("a cut closing delimiter", form("", "--b-"), FormError::Unfinished),
        ("too many parts", form("", &most), FormError::TooManyParts),
        ("a space behind", part.replace("--b", "--b "), FormError::BoundaryLine),
        ("a tab behind the last", form("", "--b\t--"), FormError::BoundaryLine),
        ("a longer boundary in content", form("", "--bc\r\n--b--"), FormError::BoundaryLine),
        ("a bare LF behind", form("", "--b\nx"), FormError::BoundaryLine),
        ("a bare CR behind", form("", "--b\rx"), FormError::BoundaryLine),
        ("a bare LF before", form("", "").replace("1\r\n", "1\n--b--"), FormError::LineEnd),
        ("a bare CR before", form("", "").replace("1\r\n", "1\r--b--"), FormError::LineEnd),
        ("LF and nothing else", form("", "").replace("1\r\n", "\n--b--"), FormError::LineEnd),
        ("a delimiter as content", part.replace("1", "--b--"), FormError::BlankLine),
    ];
    for (name, body, error) in cases {
        assert_eq!(scan(TYPE, body.as_bytes()).map(|_| ()), Err(error), "{name}");
    }
}

#[test]
fn hostile_headers_are_refused() {
    use FormError::{Disposition, EmptyName, EncodedName, Header, HeaderTwice, ParameterTwice};
    let name = "Content-Disposition: form-data; name=\"a\"";
    let with = |header: &str| format!("{name}\r\n{header}");
    let long = with(&format!("X: {}", "x".repeat(HEAD_BYTES_MAX)));
    let named = |rest: &str| format!("Content-Disposition: form-data; {rest}");
    let field = || "a".to_owned();
    let cases = [
        (String::new(), Disposition),
        (String::from("Content-Type: text/plain"), Disposition),
        (with("no colon"), Header),
        (with(": no name"), Header),
        (with("X : y"), Header),
        (with(" folded: x"), Header),
        (with("\tfolded"), Header),
        (with("X: a\0"), Header),
        (with("X: a\tb"), Header),
        (with("X: a\nContent-Type: b"), Header),
        (with("X: a\rY: b"), Header),
        (with("--b"), Header),
        (with("--b: x"), Header),
        (long, FormError::HeadTooLong),
        (with(&["X: y"; HEADER_LINES_MAX].join("\r\n")), FormError::TooManyHeaders),
        (with(name), HeaderTwice("Content-Disposition")),
        (with("Content-Type: a/b\r\ncontent-type: c/d"), HeaderTwice("Content-Type")),
        (with("Content-Transfer-Encoding: base64"), FormError::EncodedContent(field())),
        (with("Content-Encoding: gzip"), FormError::EncodedContent(field())),
        (with("Content-Type: Multipart/Mixed; boundary=c"), FormError::Nested(field())),
        (with("Content-Length: 2"), FormError::ContentLength(field())),
        (with("Content-Length: +1"), FormError::ContentLength(field())),
        (name.replace("form-data", "attachment"), Disposition),
        (name.replace("form-data", "form-data "), Disposition),
        (named("filename=\"; name=x\"; name=\"a\""), Disposition),
        (named("name = \"a\""), Disposition),
        (named("name=\"a\";"), Disposition),
        (named("name=\"a\"b"), Disposition),
        (named("name=\"a"), Disposition),
        (named("name=a b"), Disposition),
        (named("name=\"a\"; filename=\"b\\\""), Disposition),
        (named("name=\"a\"; filename=\"b\\\\\""), Disposition),
        (named("name=\"a\"; filename=\"b\\\"; name=model; z=\""), Disposition),
        (named("name=\"a\"; filename*0=\"b\""), Disposition),
        (named("name=\"\""), EmptyName),
        (named("name=\" \""), EmptyName),
        (named("name=\"mod\\\"el\""), EncodedName),
        (named("name=\"mod\\el\""), EncodedName),
        (named("name=\"=?utf-8?q?model?=\""), EncodedName),
        (named("name*=utf-8''model"), EncodedName),
        (named("name=\"a\"; NAME*0=\"model\""), EncodedName),
        (named("name=\"a\"; Name=\"b\""), ParameterTwice("name")),
        (named("name=\"a\"; filename=b; filename=c"), ParameterTwice("filename")),
        (named("name=\"a\"; filename*=b; filename*=c"), ParameterTwice("filename")),
        (named("name=\"_charset_\""), FormError::Charset),
    ];
    for (head, error) in cases {
        let line_end = if head.is_empty() { "" } else { "\r\n" };
        let body = format!("--b\r\n{head}{line_end}\r\n1\r\n--b--");
        assert_eq!(scan(TYPE, body.as_bytes()).map(|_| ()), Err(error), "{head:.80?}");
    }
    let body = b"--b\r\nContent-Disposition: form-data; name=\"\xff\"\r\n\r\n1\r\n--b--";
    assert_eq!(scan(TYPE, body), Err(EncodedName));
    let most = HEAD_BYTES_MAX - name.len() - "\r\nX: ".len();
    let longest = format!("--b\r\n{name}\r\nX: {}\r\n\r\n1\r\n--b--", "x".repeat(most));
    assert!(scan(TYPE, longest.as_bytes()).is_ok(), "{HEAD_BYTES_MAX} bytes are allowed");
}

#[test]
fn fields_are_refused_that_upstreams_would_read_in_another_way() {
    let part = |rest: &str| format!("--b\r\nContent-Disposition: form-data; name={rest}\r\n");
    let body = [
        part("twice\r\n\r\n1"),
        part("twice\r\n\r\n2"),
        part("file; filename=\"\"\r\n\r\n1"),
        part("utf16\r\nContent-Type: text/plain; charset=utf-16\r\n\r\n1"),
        part("latin1\r\nContent-Type: text/plain; charset=iso-8859-1\r\n\r\n\u{e9}"),
        part("nul\r\n\r\n\0"),
        part("\"Model\"\r\n\r\nm"),
        "--b--\r\n".to_owned(),
    ];
    let body = body.concat();
    let form = scan(TYPE, body.as_bytes()).expect("a form");
    for (name, error) in [
        ("twice", FormError::FieldTwice("twice".to_owned())),
        ("file", FormError::FieldIsFile("file".to_owned())),
        ("utf16", FormError::NotText("utf16".to_owned())),
        ("latin1", FormError::NotText("latin1".to_owned())),
        ("nul", FormError::NotText("nul".to_owned())),
    ] {
        assert_eq!(error.field(), Some(name));
        assert!(error.to_string().starts_with(&format!("`{name}` ")), "{error}");
        assert_eq!(form.text(body.as_bytes(), name), Err(error));
    }
    assert_eq!(form.files(&["file", "twice"]).count(), 3, "in the order of the body");
    assert_eq!(form.case_variant_of(&["model"]), Some("Model"));
    assert_eq!(form.case_variant_of(&["Model", "n"]), None);
    let padded = body.replace("\"Model\"", "\"model \"");
    let form = scan(TYPE, padded.as_bytes()).expect("a form");
    assert_eq!(form.case_variant_of(&["model"]), Some("model "));
}

#[test]
fn an_overwritten_part_states_its_new_length() {
    let body = "--b\r\nContent-Length:  05\r\nContent-Disposition: form-data; name=model\r\n\r\n\
        a\r\nbc\r\n--b--\r\n";
    let form = scan(TYPE, body.as_bytes()).expect("a form");
    let mut splice = Splice::default();
    form.parts[0].overwrite("upstream-name", &mut splice);
    let edited = splice.apply(&Bytes::from(body));
    assert_eq!(edited, body.replace("05", "13").replace("a\r\nbc", "upstream-name"));
    let form = scan(TYPE, &edited).expect("still a form");
    assert_eq!(form.text(&edited, "model"), Ok(Some("upstream-name")));
}

/// RFC 2046, section 5.1.1: what stands around the parts is ignored, and does not go upstream.
#[test]
fn a_preamble_and_an_epilogue_are_read_past_and_cut_out() {
    let part = "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n";
    for (before, behind, kept) in [
        ("", "", ("", "")),
        ("\r\n", "\r\n", ("\r\n", "\r\n")),
        ("", "\r\n\r\n", ("", "\r\n")),
        ("\r\n\r\n", "\r\nThe end.", ("", "\r\n")),
        ("This is a form.\r\n", "\r\n-- b\r\n--\r\n\n", ("", "\r\n")),
        ("--c--\r\n", "\r\n\0\u{e9}", ("", "\r\n")),
    ] {
        let body = Bytes::from(format!("{before}{part}--b--{behind}"));
        let form = scan(TYPE, &body).expect(behind);
        assert_eq!(form.text(&body, "a"), Ok(Some("1")), "{body:?}");
        let mut splice = Splice::default();
        splice.replace(form.insertion_point()..form.insertion_point(), form.part_text("n", "2"));
        form.discarded.cut(&mut splice);
        let sent = splice.apply(&body);
        let expected = format!("{}{}{part}--b--{}", kept.0, form.part_text("n", "2"), kept.1);
        assert_eq!(sent, expected.as_bytes(), "{body:?}");
        let again = scan(TYPE, &sent).expect("still a form");
        assert_eq!(again.text(&sent, "n"), Ok(Some("2")));
    }
}

/// Headers on which parsers disagree are not passed on: file names, and other headers.
#[test]
fn headers_that_no_upstream_needs_are_written_anew() {
    let part = |head: &str| format!("--b\r\n{head}\r\n\r\n\0\u{e9}\r\n \r\n--b--\r\n");
    let disposition = "Content-Disposition: form-data; name=\"image\"";
    for (head, expected, filename) in [
        ("; filename=\"a.png\"; filename*=utf-8''b.php", "; filename=\"a.png\"", "a.png"),
        ("; filename*=UTF-8'en'b.php; filename=a.png", "; filename=\"a.png\"", "a.png"),
        (
            "; filename*=UTF-8''%C3%A9%22%5c.png",
            "; filename=\"\u{e9}%22%5C.png\"",
            "\u{e9}\"\\.png",
        ),
        ("; filename=\"C:\\a.png\"; size=9", "; filename=\"C:\\a.png\"", "C:\\a.png"),
        (
            "; filename=a.png\r\nX-Key: sk-a\r\nContent-Type:  image/png\r\nContent-Length: 6",
            "; filename=\"a.png\"\r\nContent-Type: image/png",
            "a.png",
        ),
    ] {
        let body = Bytes::from(part(&format!("{disposition}{head}")));
        let form = scan(TYPE, &body).expect(head);
        assert_eq!(form.parts[0].filename.as_deref(), Some(filename), "{head}");
        let mut splice = Splice::default();
        form.discarded.cut(&mut splice);
        assert_eq!(splice.apply(&body), part(&format!("{disposition}{expected}")), "{head}");
        // A part that is cut out as a whole leaves no headers behind.
        let mut splice = Splice::default();
        form.discarded.cut(&mut splice);
        splice.replace(form.parts[0].whole.clone(), "");
        assert_eq!(splice.apply(&body), "--b--\r\n", "{head}");
    }
    let plain = part(&format!("{disposition}; filename=\"a.png\"\r\nContent-Type: image/png"));
    let form = scan(TYPE, plain.as_bytes()).expect("a form");
    assert!(form.discarded.heads.is_empty(), "usual headers stay as they are");
    for head in ["; filename*=utf-8''%ff", "; filename*=koi8-r''a", "; filename*=utf-8''a%0d%0ab"] {
        let body = part(&format!("{disposition}{head}"));
        assert_eq!(scan(TYPE, body.as_bytes()).err(), Some(FormError::Disposition), "{head}");
    }
}

#[test]
fn a_long_body_is_looked_at_once() {
    let head = b"--b\r\nContent-Disposition: form-data; name=\"image\"; filename=\"a\"\r\n\r\n";
    let image = b"\r\n--\r\n\r\r\n-x--b ".iter().copied().cycle().take(28 << 20);
    let body: Vec<u8> = head.iter().copied().chain(image).chain(*b"\r\n--b--\r\n").collect();
    let mut scan = FormScan::new(Boundary::from_content_type(TYPE).expect("a boundary"));
    for end in (64 << 10..body.len()).step_by(64 << 10) {
        scan.feed(&body[..end]).expect("no error");
        assert!(end - scan.searched < 3, "{} of {end} bytes are left", end - scan.searched);
    }
    let form = scan.finish(&body).expect("a form");
    assert_eq!(form.parts[0].content.len(), 28 << 20);
}

/// A part as it was put in: name, file name, content type, content.
type GeneratedPart = (String, Option<String>, Option<String>, Vec<u8>);

fn make(delimiter: &str, parts: &[GeneratedPart], line_ends: (bool, bool)) -> Vec<u8> {
    let mut body = if line_ends.0 { b"\r\n".to_vec() } else { Vec::new() };
    for (name, filename, content_type, content) in parts {
        let mut head = format!("{delimiter}\r\nContent-Disposition: form-data; name=\"{name}\"");
        if let Some(filename) = filename {
            head.push_str(&format!("; filename=\"{}\"", filename.replace('"', "\\\"")));
        }
        if let Some(content_type) = content_type {
            head.push_str(&format!("\r\nContent-Type: {content_type}"));
        }
        body.extend_from_slice(&[head.as_bytes(), b"\r\n\r\n", content, b"\r\n"].concat());
    }
    let end = if line_ends.1 { "--\r\n" } else { "--" };
    body.extend_from_slice(&[delimiter.as_bytes(), end.as_bytes()].concat());
    body
}

/// Content full of what looks like a delimiter, but has none at the start of a line.
fn content(delimiter: String) -> impl Strategy<Value = Vec<u8>> {
    let fragment = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..20),
        "(\r\n|\r|\n|-|--|x)".prop_map(String::into_bytes),
        (0..delimiter.len()).prop_map({
            let delimiter = delimiter.clone();
            move |end| format!("\r\n{}", &delimiter[..end]).into_bytes()
        }),
        Just(format!("x{delimiter}").into_bytes()),
        Just(format!("\r\n-{delimiter}\r\n").into_bytes()),
    ];
    proptest::collection::vec(fragment, 0..8).prop_map(move |fragments| {
        let mut tame = Vec::new();
        for byte in fragments.concat() {
            tame.push(byte);
            let before = tame.strip_suffix(delimiter.as_bytes()).map(|before| before.last());
            if before.is_some_and(|last| last.is_none_or(|last| b"\r\n".contains(last))) {
                *tame.last_mut().expect("a delimiter") = b'~';
            }
        }
        tame
    })
}

fn form() -> impl Strategy<Value = (Boundary, Vec<GeneratedPart>, (bool, bool))> {
    ("[a-z'()+_,./:=? -]{0,8}[a-z-]", any::<(bool, bool)>()).prop_flat_map(|(text, line_ends)| {
        let boundary = Boundary { delimiter: format!("--{text}") };
        let part = (
            "[a-zA-Z0-9_\\[\\]%;é]{1,8}",
            proptest::option::of("[a-z0-9 \"=é]{0,12}"),
            proptest::option::of("[a-z]{1,8}/[a-z]{1,8}"),
            content(boundary.delimiter.clone()),
        );
        (Just(boundary), proptest::collection::vec(part, 0..6), Just(line_ends))
    })
}

proptest! {
    #[test]
    fn what_was_put_in_is_read_however_it_is_cut(
        (boundary, parts, line_ends) in form(),
        cuts in proptest::collection::vec(any::<Index>(), 0..30),
    ) {
        let body = make(&boundary.delimiter, &parts, line_ends);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
        cuts.sort_unstable();
        let all: Vec<usize> = (0..=body.len()).collect();
        let form = scan_cut(boundary.clone(), &body, &[]).expect("a form");
        prop_assert_eq!(&scan_cut(boundary.clone(), &body, &cuts).expect("a form"), &form);
        prop_assert_eq!(&scan_cut(boundary, &body, &all).expect("a form"), &form);
        let put_in: ReadParts<'_> = parts.iter().map(|(name, filename, content_type, content)| {
            (name.as_str(), filename.as_deref(), content_type.as_deref(), content.as_slice())
        }).collect();
        prop_assert_eq!(read(&form, &body), put_in);
    }

    /// The edited form is the one that is made from edited parts, byte for byte.
    #[test]
    fn edits_leave_every_other_byte_alone(
        (boundary, mut parts, line_ends) in form(),
        edits in proptest::collection::vec(0u8..3, 6),
        inserts in any::<bool>(),
    ) {
        let body = Bytes::from(make(&boundary.delimiter, &parts, line_ends));
        let form = scan_cut(boundary.clone(), &body, &[]).expect("a form");
        let mut splice = Splice::default();
        for (part, edit) in form.parts.iter().zip(&edits) {
            match edit {
                1 => part.overwrite("upstream-name", &mut splice),
                2 => splice.replace(part.whole.clone(), ""),
                _ => {}
            }
        }
        let mut kept = edits.iter();
        parts.retain_mut(|part| {
            let edit = kept.next().copied().unwrap_or_default();
            if edit == 1 {
                part.3 = b"upstream-name".to_vec();
            }
            edit != 2
        });
        if inserts {
            splice.replace(form.insertion_point()..form.insertion_point(), form.part_text("n", "1"));
            parts.insert(0, ("n".to_owned(), None, None, b"1".to_vec()));
        }
        let edited = splice.apply(&body);
        prop_assert_eq!(&edited, &make(&boundary.delimiter, &parts, line_ends));
        let rescanned = scan_cut(boundary, &edited, &[]).expect("still a form");
        prop_assert_eq!(rescanned.parts.len(), parts.len());
    }

    /// Nothing panics, and cuts change neither what is accepted nor the error.
    #[test]
    fn arbitrary_bytes_are_judged_alike_however_they_are_cut(
        pieces in proptest::collection::vec(prop_oneof![
            3 => proptest::sample::select(vec![
                "--b", "--b\r\n", "--b--", "\r\n", "\r\n--b", "\r\n\r\n", "\r", "\n", "-", "\"", "\\",
                "Content-Disposition: form-data; name=\"a\"\r\n\r\n",
                "Content-Disposition: form-data; name=\"", "; filename=\"", "Content-Length: 1\r\n",
            ]).prop_map(|text| text.as_bytes().to_vec()),
            1 => proptest::collection::vec(any::<u8>(), 0..8),
        ], 0..16),
        starts in any::<bool>(),
    ) {
        let body = [if starts { &b"--b\r\n"[..] } else { b"" }, &pieces.concat()].concat();
        let boundary = Boundary::from_content_type(TYPE).expect("a boundary");
        let all: Vec<usize> = (0..=body.len()).collect();
        let whole = scan_cut(boundary.clone(), &body, &[]);
        prop_assert_eq!(&scan_cut(boundary, &body, &all), &whole);
        if let Ok(form) = whole {
            let mut splice = Splice::default();
            form.discarded.cut(&mut splice);
            let sent = splice.apply(&Bytes::from(body.clone()));
            let again = scan(TYPE, &sent).expect("still a form");
            let contents = |form: &Form, body: &[u8]| {
                let parts = form.parts.iter();
                parts.map(|part| body[part.content.clone()].to_vec()).collect::<Vec<_>>()
            };
            prop_assert_eq!(contents(&again, &sent), contents(&form, &body));
            prop_assert!(again.discarded.around.iter().all(Range::is_empty), "{again:?}");
            prop_assert!(again.discarded.heads.is_empty(), "{again:?}");
            let ends = form.parts.windows(2).all(|two| two[0].whole.end == two[1].whole.start);
            prop_assert!(ends, "parts have gaps between them: {form:?}");
        }
    }

    #[test]
    fn arbitrary_content_types_never_panic(text in "(multipart/form-data)?[;= boundary\"\\\\*]{0,40}") {
        if let Ok(boundary) = Boundary::from_content_type(text.as_bytes()) {
            prop_assert!(boundary.delimiter.len() <= 72, "{boundary:?}");
        }
    }
}
