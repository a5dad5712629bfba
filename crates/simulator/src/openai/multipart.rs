//! Bodies of `multipart/form-data` (RFC 7578), read with more tolerance than a server should have.

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use memchr::memmem;

/// Part of a multipart form.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FormPart {
    pub(super) name: String,
    pub(super) data: Bytes,
}

/// The parts with a name, in order; `None` if the body is no form, or one without its end.
pub(super) fn parts(headers: &HeaderMap, body: &Bytes) -> Option<Vec<FormPart>> {
    let delimiter = format!("\r\n--{}", boundary(headers)?);
    // The first delimiter has no line before it that it would have to end.
    let first = delimiter.trim_start();
    let mut rest = body.slice(memmem::find(body, first.as_bytes())? + first.len()..);
    let mut parts = Vec::new();
    while !rest.starts_with(b"--") {
        // What follows a delimiter is the end of its line, which also begins the next delimiter if
        // the part is empty.
        let end = memmem::find(&rest, delimiter.as_bytes())?;
        parts.extend(part(&rest.slice(..end)));
        rest = rest.slice(end + delimiter.len()..);
    }
    Some(parts)
}

fn boundary(headers: &HeaderMap) -> Option<&str> {
    let content_type = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let parameters = content_type.strip_prefix("multipart/form-data")?.split(';');
    let boundary = parameters.filter_map(|it| it.trim().strip_prefix("boundary=")).next()?;
    Some(boundary.trim_matches('"')).filter(|boundary| !boundary.is_empty())
}

/// A part with its head, from the end of the delimiter's line.
fn part(bytes: &Bytes) -> Option<FormPart> {
    const HEAD_END: &[u8] = b"\r\n\r\n";
    let end = memmem::find(bytes, HEAD_END)?;
    let head = String::from_utf8_lossy(bytes.get(..end)?);
    let disposition =
        head.lines().find(|line| line.to_ascii_lowercase().starts_with("content-disposition:"))?;
    let name = disposition.split(';').find_map(|it| it.trim().strip_prefix("name="))?;
    Some(FormPart {
        name: name.trim_matches('"').to_owned(),
        data: bytes.slice(end + HEAD_END.len()..),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(content_type: &str, body: &'static str) -> Option<Vec<(String, String)>> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, content_type.parse().expect("a header"));
        let text = |part: FormPart| (part.name, String::from_utf8_lossy(&part.data).into_owned());
        let parts = parts(&headers, &Bytes::from_static(body.as_bytes()))?;
        Some(parts.into_iter().map(text).collect())
    }

    #[test]
    fn parts_have_names_and_data() {
        let body = "preamble\r\n--b\r\ncontent-type: image/png\r\nContent-Disposition: form-data; \
                    name=\"image[]\"; filename=\"a.png\"\r\n\r\none\r\n--\r\n\r\ntwo\r\n--b\r\n\
                    Content-Disposition: form-data;name=n\r\n\r\n\r\n--b--\r\n";
        let expected =
            [("image[]", "one\r\n--\r\n\r\ntwo"), ("n", "")].map(|(a, b)| (a.into(), b.into()));
        let content_type = "multipart/form-data; charset=utf-8; boundary=\"b\"";
        assert_eq!(read(content_type, body), Some(expected.to_vec()));
    }

    #[test]
    fn a_form_without_its_end_is_none() {
        let content_type = "multipart/form-data; boundary=b";
        let body = "--b\r\nContent-Disposition: form-data; name=\"n\"\r\n\r\n1\r\n--b--";
        assert!(read(content_type, body).is_some());
        assert_eq!(read(content_type, &body[..body.len() - 6]), None, "half of a body");
        assert_eq!(read("multipart/form-data", body), None, "no boundary");
        assert_eq!(read("application/json", body), None, "no form");
    }
}
