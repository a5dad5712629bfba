//! Names as parsers of different leniency see them, and the refusals that repeat them.

use std::borrow::Cow;

use tollgate_types::error::GatewayError;

/// Letters of a customer's name for something that a message repeats.
const SHOWN_MAX: usize = 64;

/// The text without its escapes.
pub(super) fn resolved(written: &[u8]) -> Option<Cow<'_, str>> {
    if memchr::memchr(b'\\', written).is_none() {
        return std::str::from_utf8(written).ok().map(Cow::Borrowed);
    }
    let quoted = [b"\"", written, b"\""].concat();
    serde_json::from_slice::<String>(&quoted).ok().map(Cow::Owned)
}

/// The name as the most lenient parsers see it. Go's takes the Kelvin sign for a `k` and the long s
/// for an `s`.
pub(super) fn folded(name: &str) -> String {
    let fold = |letter: char| match letter {
        '\u{212a}' => 'k',
        '\u{17f}' => 's',
        letter => letter.to_ascii_lowercase(),
    };
    name.chars().map(fold).collect()
}

pub(super) fn shown(name: &str) -> String {
    name.chars().filter(|letter| !letter.is_control()).take(SHOWN_MAX).collect()
}

pub(super) fn not_lower_case(shown: &str) -> GatewayError {
    let message = format!("`{shown}` is not a field; field names are lower-case");
    GatewayError::invalid(shown.to_owned(), message)
}

pub(super) fn not_offered(param: &'static str, what: &str, list: &str) -> GatewayError {
    let message = format!(
        "{what} is not offered here: what it costs is not known. An operator can allow it for this \
         model with `{list}` in models.yaml."
    );
    GatewayError::invalid(param, message)
}

pub(super) fn not_priced(param: &'static str, what: &str, price: &str) -> GatewayError {
    let message = format!(
        "{what} is not offered here: it has no price. An operator can give it one for this model \
         with `{price}` in models.yaml, or allow it with `pass_tools`."
    );
    GatewayError::invalid(param, message)
}
