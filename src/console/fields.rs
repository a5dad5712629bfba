//! What a form sends, and what is wrong with it.

use axum::extract::{FromRequest, RawForm, Request};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};

/// The fields of a form. One that was not sent is empty, like one that was not filled: a form that
/// somebody else has made is told the same as a person.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields(Vec<(String, String)>);

impl Fields {
    /// A field's text, as typed.
    pub(super) fn exactly(&self, name: &str) -> &str {
        self.all(name).next().unwrap_or_default()
    }

    /// A field's text without blanks around it.
    pub(super) fn text(&self, name: &str) -> &str {
        self.exactly(name).trim()
    }

    /// The texts of a field that may be there more than once, such as boxes to tick.
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(field, _)| field == name).map(|(_, text)| text.as_str())
    }
}

impl<S: Send + Sync> FromRequest<S> for Fields {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let RawForm(bytes) = RawForm::from_request(request, state).await.map_err(|_| {
            (StatusCode::BAD_REQUEST, "This is not what the form sends.").into_response()
        })?;
        Ok(Self(url::form_urlencoded::parse(&bytes).into_owned().collect()))
    }
}

/// What is wrong with fields: each with what to say beside it.
#[derive(Clone, Debug, Default)]
pub(super) struct Wrong(Vec<(&'static str, String)>);

impl Wrong {
    /// Notes what is wrong with a field. The first thing is said.
    pub(super) fn note(&mut self, field: &'static str, text: impl Into<String>) {
        self.0.push((field, text.into()));
    }

    /// Whether anything is.
    pub(super) fn is_any(&self) -> bool {
        !self.0.is_empty()
    }

    /// What is wrong with this field; empty for nothing.
    pub(super) fn with(&self, field: &str) -> &str {
        self.0.iter().find(|(name, _)| *name == field).map_or("", |(_, text)| text)
    }
}

/// What a text of at most `chars_max` characters may be called: not nothing, and one line.
pub(super) fn check_name(wrong: &mut Wrong, field: &'static str, text: &str, chars_max: usize) {
    if text.is_empty() {
        wrong.note(field, "Write something here.");
    } else if text.chars().count() > chars_max {
        wrong.note(field, format!("At most {chars_max} characters."));
    } else if text.chars().any(char::is_control) {
        wrong.note(field, "Letters, digits and marks in one line only.");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_line_of_bounded_length() {
        for (text, is_wrong) in
            [("a", false), ("", true), ("a\nb", true), ("éééé", false), ("eeeee", true)]
        {
            let mut wrong = Wrong::default();
            check_name(&mut wrong, "name", text, 4);
            assert_eq!(wrong.is_any(), is_wrong, "{text:?}: {}", wrong.with("name"));
        }
    }
}
