//! Result of a form, in the address of the next page: one of a few words, so that no link can put words into
//! a console's mouth.

use axum::response::{IntoResponse as _, Redirect, Response};

/// The words of some forms, each with the sentence that the next page shows.
pub struct DoneMessages(pub &'static [(&'static str, &'static str)]);

impl DoneMessages {
    /// The sentence of a word; `None` for a word that no form leads to.
    pub fn text(&self, word: &str) -> Option<&'static str> {
        self.0.iter().find(|(name, _)| *name == word).map(|(_, text)| *text)
    }

    /// The sentence of the word in a query string.
    pub fn text_in(&self, query: Option<&str>) -> Option<&'static str> {
        let mut fields = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        let (_, word) = fields.find(|(name, _)| name == "done")?;
        self.text(&word)
    }

    /// The way on to the page at `address`, which then shows the sentence of `word`.
    pub fn redirect(&self, address: &str, word: &'static str) -> Response {
        debug_assert!(self.text(word).is_some(), "{word} has no text");
        Redirect::to(&format!("{address}?done={word}")).into_response()
    }
}
