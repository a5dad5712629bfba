//! The frame around every page, and its response.

use askama::Template;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::assets;
use super::session::{Session, Sessions};

/// One way through a console.
#[derive(Clone, Copy, Debug)]
pub struct NavItem {
    /// Its path below the console's, beginning with a slash; empty for the first page.
    pub path: &'static str,
    /// Label of the link.
    pub label: &'static str,
}

/// Severity of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlashLevel {
    /// The form had its effect.
    Success,
    /// The action failed; the message says why.
    Error,
}

/// Result of a form.
#[derive(Clone, Debug)]
pub struct Flash {
    /// Severity of the message.
    pub level: FlashLevel,
    /// The sentence that the page shows.
    pub text: String,
}

/// Variables of the template `frame.html`, which every page extends.
#[derive(Clone, Debug)]
pub struct PageFrame {
    /// The console's path, without a slash at the end.
    pub base: String,
    /// Name of the console.
    pub product: &'static str,
    /// Path of the embedded files.
    pub assets: String,
    /// Name of the session's user; `None` for guests, who get no navigation.
    pub who: Option<String>,
    /// The ways through the console.
    pub nav: &'static [NavItem],
    /// The path of the way that the page belongs to.
    pub here: &'static str,
    /// The token that forms of this session carry, against requests of other sites.
    pub csrf: String,
    /// Result of the previous form.
    pub flash: Option<Flash>,
}

impl PageFrame {
    /// The frame of a page for a guest.
    pub fn new(base: &str, product: &'static str, sessions: &Sessions, session: &Session) -> Self {
        Self {
            base: base.to_owned(),
            product,
            assets: assets::directory(base),
            who: None,
            nav: &[],
            here: "",
            csrf: sessions.form_token(session),
            flash: None,
        }
    }

    /// Frame of a page for a logged-in user, with the navigation at `here`.
    pub fn logged_in(self, who: String, nav: &'static [NavItem], here: &'static str) -> Self {
        Self { who: Some(who), nav, here, ..self }
    }

    /// This frame with a message above the content of its page.
    pub fn with_flash(self, level: FlashLevel, text: impl Into<String>) -> Self {
        Self { flash: Some(Flash { level, text: text.into() }), ..self }
    }
}

/// A rendered page.
pub struct HtmlPage<T>(pub T);

impl<T: Template> IntoResponse for HtmlPage<T> {
    fn into_response(self) -> Response {
        match self.0.render() {
            Ok(html) => {
                ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], html).into_response()
            }
            Err(error) => {
                // A template fails only if a value cannot be written; no part of the page was sent yet.
                log::error!("a page could not be filled: {error}");
                (StatusCode::INTERNAL_SERVER_ERROR, "The page could not be made.").into_response()
            }
        }
    }
}

/// Page that shows an error.
#[derive(Template)]
#[template(path = "failed.html")]
pub struct FailurePage {
    /// Variables of the frame.
    pub frame: PageFrame,
    /// Heading of the page: the problem in a few words.
    pub title: &'static str,
    /// Next step for the reader, in a sentence.
    pub text: String,
}
