//! The forms of both consoles: their fields, what is wrong with them, and the token with which a form
//! that is sent twice counts once.

use std::num::NonZeroU32;
use std::str::FromStr;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use sha2::{Digest as _, Sha256};

use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;
use tollgate_types::secret::Secret;

/// The field with the token of [`new_submit_token`].
const SUBMIT_TOKEN_FIELD: &str = "once";
/// Field that proves which session sends a form. It differs between sessions and does not depend on the form.
const CSRF_FIELD: &str = "csrf";

/// Error of one field of a form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The name of the field.
    pub field: &'static str,
    /// Message beside the field.
    pub text: String,
}

impl FieldError {
    /// An error of the field called `field`, with the sentence that stands beside it.
    pub fn new(field: &'static str, text: impl Into<String>) -> Self {
        Self { field, text: text.into() }
    }
}

/// Errors of a form's fields.
#[derive(Clone, Debug, Default)]
pub struct FieldErrors(Vec<FieldError>);

impl FieldErrors {
    /// Notes what is wrong with a field. Of several notes about one field, the first is shown.
    pub fn note(&mut self, field: &'static str, text: impl Into<String>) {
        self.0.push(FieldError::new(field, text));
    }

    /// The value that was read, or the default after its error was noted.
    pub fn take<T: Default>(&mut self, read: Result<T, FieldError>) -> T {
        read.unwrap_or_else(|error| {
            self.0.push(error);
            T::default()
        })
    }

    /// True if any field has an error.
    pub fn is_any(&self) -> bool {
        !self.0.is_empty()
    }

    /// The sentence about a field, if something is wrong with it.
    pub fn at(&self, field: &str) -> Option<&str> {
        self.0.iter().find(|error| error.field == field).map(|error| error.text.as_str())
    }
}

/// Submitted fields of a form. A missing field counts as empty, so that a forged form gets the same messages
/// as a person.
#[derive(Clone, Debug, Default)]
pub struct Form {
    fields: Vec<(String, String)>,
    /// Errors of the submitted fields, for the page that shows the form again.
    pub errors: FieldErrors,
    /// Hash of the form's path and fields, which distinguishes it from others with the same token.
    digest: [u8; 32],
}

impl<S: Send + Sync> FromRequest<S> for Form {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let path = request.uri().path().to_owned();
        // The guard has bounded its length.
        let bytes = Bytes::from_request(request, state).await;
        let bytes = bytes.map_err(|_| StatusCode::BAD_REQUEST.into_response())?;
        let fields = url::form_urlencoded::parse(&bytes).into_owned();
        // The CSRF token is masked anew on every page: with it, a repeated form would look like another one.
        let fields: Vec<_> = fields.filter(|(name, _)| name != CSRF_FIELD).collect();
        // With the path: one token sent to two forms is a conflict, not a repetition.
        let digest = Sha256::digest(format!("{path} {fields:?}")).into();
        Ok(Self { fields, errors: FieldErrors::default(), digest })
    }
}

impl Form {
    /// A new form with initial values.
    pub fn filled<N: Into<String>>(fields: impl IntoIterator<Item = (N, String)>) -> Self {
        let fields = fields.into_iter().map(|(name, text)| (name.into(), text)).collect();
        Self { fields, ..Self::default() }
    }

    /// The text of a field as it was typed, with the blanks around it.
    pub fn exact_text(&self, name: &str) -> &str {
        self.texts(name).next().unwrap_or_default()
    }

    /// The text of a field without the blanks around it.
    pub fn text(&self, name: &str) -> &str {
        self.exact_text(name).trim()
    }

    /// The text of a field as it was typed, or `default` if the form was not sent.
    pub fn text_or<'a>(&'a self, name: &str, default: &'a str) -> &'a str {
        self.texts(name).next().unwrap_or(default)
    }

    /// The texts of a field that may be there more than once, such as boxes to tick.
    pub fn texts(&self, name: &str) -> impl Iterator<Item = &str> {
        self.fields.iter().filter(move |(field, _)| field == name).map(|(_, text)| text.as_str())
    }

    /// Error of a field, if it has one.
    pub fn error(&self, name: &str) -> Option<&str> {
        self.errors.at(name)
    }

    /// The token of [`new_submit_token`] that the form carries, if it is one: 16 to 64 visible ASCII
    /// characters.
    pub fn submit_token(&self) -> Option<&str> {
        let token = self.text(SUBMIT_TOKEN_FIELD);
        let is_one =
            (16..=64).contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic());
        is_one.then_some(token)
    }

    /// The SHA-256 of where the form was sent to and of its fields.
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// One line of text of at most `bytes_max` bytes, possibly empty.
    ///
    /// # Errors
    /// When it is longer, or has a control character.
    pub fn line(&self, name: &'static str, bytes_max: usize) -> Result<&str, FieldError> {
        let text = self.text(name);
        if text.len() > bytes_max {
            return Err(FieldError::new(name, format!("At most {bytes_max} bytes.")));
        }
        if text.contains(char::is_control) {
            return Err(FieldError::new(name, "One line, please."));
        }
        Ok(text)
    }

    /// Parse a field; `None` if it is empty.
    ///
    /// # Errors
    /// When it cannot be read: `expected` says what is taken.
    pub fn parsed<T: FromStr>(
        &self,
        name: &'static str,
        expected: &str,
    ) -> Result<Option<T>, FieldError> {
        match self.text(name) {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| FieldError::new(name, expected)),
        }
    }

    /// A number above zero; `None` where the field is empty.
    ///
    /// # Errors
    /// For anything else.
    pub fn count(&self, name: &'static str) -> Result<Option<NonZeroU32>, FieldError> {
        self.parsed(name, "A whole number from 1 to 4294967295.")
    }

    /// Dollars, with or without their sign; `None` where the field is empty.
    ///
    /// # Errors
    /// For what is no amount.
    pub fn amount(&self, name: &'static str) -> Result<Option<Nanousd>, FieldError> {
        let text = self.text(name);
        let text = text.strip_prefix('$').unwrap_or(text);
        if text.is_empty() {
            return Ok(None);
        }
        let wrong = |error| FieldError::new(name, format!("Not valid: {error}."));
        text.parse().map(Some).map_err(wrong)
    }

    /// Dollars above zero, with or without their sign.
    ///
    /// # Errors
    /// For what is no amount, and where the field is empty.
    pub fn amount_above_zero(&self, name: &'static str) -> Result<Nanousd, FieldError> {
        let amount = self.amount(name)?.filter(|amount| !amount.is_zero());
        amount.ok_or_else(|| FieldError::new(name, "Dollars above zero, such as 10.00."))
    }

    /// A time in UTC as browsers send it, `2026-01-31T12:00` with or without seconds; `None` where the
    /// field is empty.
    ///
    /// # Errors
    /// For anything else.
    pub fn time(&self, name: &'static str) -> Result<Option<UnixMs>, FieldError> {
        let text = self.text(name);
        if text.is_empty() {
            return Ok(None);
        }
        // `datetime-local` leaves out the seconds when they are zero.
        let seconds = if text.len() == 16 { ":00" } else { "" };
        let time = UnixMs::parse_rfc3339(&format!("{text}{seconds}Z"));
        let wrong = || FieldError::new(name, "A time such as 2027-01-31T12:00, in UTC.");
        time.map(Some).ok_or_else(wrong)
    }
}

/// A new token for the forms of a page: sent twice with one token, a form counts once.
pub fn new_submit_token() -> String {
    /// Length for about 120 random bits.
    const CHARACTERS: usize = 22;
    Secret::new_token().expose().chars().take(CHARACTERS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(field: &'static str, text: &str) -> Form {
        Form::filled([(field, text.to_owned())])
    }

    #[test]
    fn what_is_typed_is_read_or_refused_at_its_field() {
        assert_eq!(form("n", " 7 ").count("n"), Ok(NonZeroU32::new(7)));
        assert_eq!(form("n", "").count("n"), Ok(None));
        assert_eq!(form("n", "0").count("n").expect_err("not above zero").field, "n");
        assert_eq!(form("a", "$2.50").amount("a"), Ok(Some(Nanousd::new(2_500_000_000))));
        assert!(form("a", "0.00").amount_above_zero("a").is_err());
        let time = form("t", "2026-01-31T12:00").time("t").expect("a time").expect("not empty");
        assert_eq!(time.to_rfc3339(), "2026-01-31T12:00:00Z");
        assert!(form("l", "é").line("l", 1).is_err() && form("l", "a\nb").line("l", 9).is_err());
    }

    #[test]
    fn the_first_error_of_a_field_is_shown() {
        let mut form = form("n", "x");
        let read = form.count("n");
        assert_eq!(form.errors.take(read), None);
        form.errors.note("n", "Another thing.");
        assert!(form.error("n").is_some_and(|text| text.starts_with("A whole number")));
        assert_eq!(form.error("m"), None);
    }

    #[test]
    fn tokens_are_recognised() {
        let form = form(SUBMIT_TOKEN_FIELD, &format!("{}.grant", new_submit_token()));
        assert!(form.submit_token().is_some());
        assert_eq!(Form::filled([(SUBMIT_TOKEN_FIELD, "short".to_owned())]).submit_token(), None);
    }
}
