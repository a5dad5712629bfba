//! Amazon's binary frames of event streams (Smithy specification, "Amazon Event Stream Specification").

use bytes::Bytes;

/// The type of headers whose values are texts.
const TEXT: u8 = 7;

/// The frame of an event.
pub(super) fn event(name: &str, payload: &str) -> Bytes {
    frame("event", ":event-type", name, payload)
}

/// The frame of an exception.
pub(super) fn exception(name: &str, payload: &str) -> Bytes {
    frame("exception", ":exception-type", name, payload)
}

/// The frame with a wrong checksum at its end.
pub(super) fn with_wrong_checksum(frame: &Bytes) -> Bytes {
    let mut bytes = frame.to_vec();
    if let Some(last) = bytes.last_mut() {
        *last ^= 1;
    }
    bytes.into()
}

fn frame(kind: &str, name_key: &str, name: &str, payload: &str) -> Bytes {
    let mut headers = Vec::new();
    let all = [(name_key, name), (":content-type", "application/json"), (":message-type", kind)];
    for (key, value) in all {
        headers.extend(u8::try_from(key.len()).unwrap_or_default().to_be_bytes());
        headers.extend_from_slice(key.as_bytes());
        headers.push(TEXT);
        headers.extend(u16::try_from(value.len()).unwrap_or_default().to_be_bytes());
        headers.extend_from_slice(value.as_bytes());
    }
    let length = |bytes: usize| u32::try_from(bytes).unwrap_or_default().to_be_bytes();
    // Two lengths and two checksums of four bytes each stand around headers and payload.
    let mut frame = length(16 + headers.len() + payload.len()).to_vec();
    frame.extend(length(headers.len()));
    frame.extend(crc32fast::hash(&frame).to_be_bytes());
    frame.extend(headers);
    frame.extend_from_slice(payload.as_bytes());
    frame.extend(crc32fast::hash(&frame).to_be_bytes());
    frame.into()
}
