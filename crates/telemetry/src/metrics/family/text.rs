//! Lines of Prometheus' text format, version 0.0.4, and what a family needs of its series to write them.

/// One series of a family: a handle to what requests count.
pub(in crate::metrics) trait Series: Clone + Send + Sync + 'static {
    /// Name of the type in the text format.
    const KIND: &'static str;
    /// Properties that all series of a family share.
    type Shape: Send + Sync;

    /// A series at zero.
    fn new(shape: &Self::Shape) -> Self;

    /// Appends the lines of the series. `labels` are written out, without braces.
    fn push(&self, name: &str, labels: &str, shape: &Self::Shape, out: &mut String);
}

/// Integers from here on are rounded by a float, which every sample is by definition.
const EXACT_MAX: u64 = 1 << 53;

/// Appends a label's value, escaped.
pub(super) fn push_label(out: &mut String, value: &str) {
    push_escaped(out, value, true);
}

/// Appends the help of a family, escaped: quotes stand as they are there.
pub(super) fn push_help(out: &mut String, help: &str) {
    push_escaped(out, help, false);
}

fn push_escaped(out: &mut String, text: &str, is_quoted: bool) {
    let must = |byte: &u8| matches!(byte, b'\\' | b'\n') || is_quoted && *byte == b'"';
    if !text.as_bytes().iter().any(must) {
        return out.push_str(text);
    }
    for char in text.chars() {
        match char {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if is_quoted => out.push_str("\\\""),
            other => out.push(other),
        }
    }
}

/// Appends a sample that is a whole number.
#[expect(clippy::cast_precision_loss, reason = "samples are floats by the format's definition")]
pub(super) fn push_count(out: &mut String, count: u64) {
    if count < EXACT_MAX {
        out.push_str(itoa::Buffer::new().format(count));
    } else {
        push_float(out, count as f64);
    }
}

/// Appends a sample that is a whole number with a sign.
pub(super) fn push_signed(out: &mut String, count: i64) {
    if count < 0 {
        out.push('-');
    }
    push_count(out, count.unsigned_abs());
}

/// Appends any sample: the shortest digits that give the same float again.
pub(super) fn push_float(out: &mut String, value: f64) {
    // Most series of models that were never called are zero, and the general case allocates.
    if value.to_bits() == 0 {
        out.push('0');
    } else {
        out.push_str(&value.to_string());
    }
}
