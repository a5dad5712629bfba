//! Forms that readers of forms, or a bill and an upstream, could read differently.

const FORM: &str = "multipart/form-data; boundary=b";

/// A PNG of 64 by 64 pixels, as far as a reader of sizes looks.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x40\0\0\0\x40\x08\x06\0\0\0";

fn part(head: &str, content: &[u8]) -> Vec<u8> {
    [b"--b\r\n", head.as_bytes(), b"\r\n\r\n", content, b"\r\n"].concat()
}

fn field(name: &str, value: &str) -> Vec<u8> {
    part(&format!("Content-Disposition: form-data; name=\"{name}\""), value.as_bytes())
}

fn file(name: &str, content: &[u8]) -> Vec<u8> {
    part(&format!("Content-Disposition: form-data; name=\"{name}\"; filename=\"a\""), content)
}

fn open(more: &[Vec<u8>]) -> Vec<u8> {
    let good = [file("image", PNG), field("model", "pimg-2"), field("prompt", "a hat")];
    [good.concat(), more.concat()].concat()
}

fn form(more: &[Vec<u8>]) -> Vec<u8> {
    [open(more), b"--b--\r\n".to_vec()].concat()
}

/// Name, content type, body and expected status.
pub(crate) fn rows() -> Vec<(&'static str, String, Vec<u8>, u16)> {
    let good = form(&[]);
    let many: Vec<Vec<u8>> = (0..10_000).map(|number| field(&format!("x{number}"), "1")).collect();
    let long_head =
        format!("Content-Disposition: form-data; name=\"x\"\r\nX: {}", "y".repeat(9000));
    let other_mask = [&PNG[..19], b"\x41", &PNG[20..]].concat();
    let typed = |name, content_type: &str, body: &[u8], status| {
        (name, content_type.to_owned(), body.to_vec(), status)
    };
    let with = |name, more: Vec<u8>| (name, FORM.to_owned(), form(&[more]), 400);
    vec![
        typed("an honest form", FORM, &good, 200),
        typed("JSON", "application/json", b"{\"model\":\"pimg-2\"}", 415),
        typed("no boundary", "multipart/form-data", &good, 400),
        typed("two boundaries", "multipart/form-data; boundary=b; boundary=c", &good, 400),
        typed("a long boundary", &format!("{FORM}{}", "b".repeat(71)), &good, 400),
        typed("another boundary", "multipart/form-data; boundary=c", &good, 400),
        typed(
            "two types",
            "multipart/form-data; boundary=b\r\nContent-Type: multipart/form-data; boundary=c",
            &good,
            400,
        ),
        typed("no end", FORM, &open(&[]), 400),
        typed("nothing", FORM, b"", 400),
        // RFC 2046, section 5.1.1: a preamble and an epilogue are ignored. The upstream gets
        // neither.
        typed("text before", FORM, &[b"x\r\n".as_slice(), &good].concat(), 200),
        typed("text behind", FORM, &[good.as_slice(), b"x"].concat(), 200),
        typed(
            "bare line feeds",
            FORM,
            &String::from_utf8_lossy(&good).replace("\r\n", "\n").into_bytes(),
            400,
        ),
        typed("ten thousand parts", FORM, &form(&many), 400),
        with("model twice", field("model", "dle-2")),
        with("n twice", [field("n", "1"), field("n", "10")].concat()),
        with("n in octal", field("n", "010")),
        with("n in another case", field("N", "10")),
        with("n as a list", field("n[]", "10")),
        with("n as a file", file("n", b"1")),
        with("a mask of another size", file("mask", &other_mask)),
        with("a folded header", part("Content-Disposition: form-data;\r\n name=\"n\"", b"9")),
        with("an encoded name", part("Content-Disposition: form-data; name*=utf-8''n", b"9")),
        with("a name twice", part("Content-Disposition: form-data; name=\"x\"; name=\"n\"", b"9")),
        with("a long header", part(&long_head, b"1")),
        with("no name", part("Content-Disposition: form-data", b"1")),
        with(
            "encoded content",
            part(
                "Content-Disposition: form-data; name=\"n\"\r\nContent-Transfer-Encoding: base64",
                b"OQ==",
            ),
        ),
    ]
}
