//! Somebody with a browser without JavaScript: keeps a cookie, follows no redirects, and sends the
//! token of the form that it has seen last.

use std::sync::Mutex;

use reqwest::header::{COOKIE, HOST, HeaderMap, LOCATION, ORIGIN, SET_COOKIE};
use reqwest::redirect::Policy;

use super::http::http_builder;

/// A visitor of one console.
pub(crate) struct Visitor {
    base: String,
    client: reqwest::Client,
    kept: Mutex<Kept>,
}

#[derive(Clone, Default)]
struct Kept {
    cookie: String,
    token: String,
}

/// What a visitor was shown.
#[derive(Debug)]
pub(crate) struct Shown {
    /// The status.
    pub(crate) status: u16,
    /// The headers.
    pub(crate) headers: HeaderMap,
    /// The page.
    pub(crate) text: String,
}

impl Shown {
    /// Where the visitor is sent; empty for nowhere.
    pub(crate) fn location(&self) -> &str {
        self.headers.get(LOCATION).map_or("", |value| value.to_str().expect("text"))
    }

    /// What stands between the first `before` and the next `after`, with its entities read.
    pub(crate) fn between(&self, before: &str, after: &str) -> String {
        let (_, rest) =
            self.text.split_once(before).unwrap_or_else(|| panic!("{before}: {self:?}"));
        let (text, _) = rest.split_once(after).expect("an end");
        let entities = [("&#39;", "'"), ("&#34;", "\""), ("&#60;", "<"), ("&#62;", ">")];
        let text = text.to_owned();
        entities.iter().fold(text, |text, (from, to)| text.replace(from, to)).replace("&#38;", "&")
    }
}

impl Visitor {
    /// Somebody who has not been there yet. `base` is the console's address.
    pub(crate) fn new(base: impl Into<String>) -> Self {
        let client = http_builder().redirect(Policy::none()).build().expect("a client");
        Self { base: base.into(), client, kept: Mutex::default() }
    }

    /// The same browser where the console is elsewhere now.
    pub(crate) fn moved(&mut self, base: impl Into<String>) {
        self.base = base.into();
    }

    /// Another browser with the same cookie.
    pub(crate) fn copy(&self) -> Self {
        let copy = Self::new(self.base.clone());
        *copy.kept.lock().expect("kept") = self.kept.lock().expect("kept").clone();
        copy
    }

    /// The cookie that it would send: `name=value`.
    pub(crate) fn cookie(&self) -> String {
        self.kept.lock().expect("kept").cookie.clone()
    }

    /// Makes it send this cookie.
    pub(crate) fn keep(&self, cookie: impl Into<String>) {
        self.kept.lock().expect("kept").cookie = cookie.into();
    }

    /// The token of the form that it has seen last.
    pub(crate) fn token(&self) -> String {
        self.kept.lock().expect("kept").token.clone()
    }

    /// Asks for a page.
    pub(crate) async fn get(&self, path: &str) -> Shown {
        self.send(self.client.get(format!("{}{path}", self.base))).await
    }

    /// Sends the form of the page that it has seen last.
    pub(crate) async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Shown {
        let token = self.token();
        self.post_as(path, &token, &[], fields).await
    }

    /// Sends a form with this token and these headers.
    pub(crate) async fn post_as(
        &self,
        path: &str,
        token: &str,
        headers: &[(&str, &str)],
        fields: &[(&str, &str)],
    ) -> Shown {
        let token = [("csrf", token)].into_iter().filter(|(_, token)| !token.is_empty());
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        form.extend_pairs(token.chain(fields.iter().copied()));
        let url = format!("{}{path}", self.base);
        let mut request = self
            .client
            .post(&url)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(form.finish());
        if !headers.iter().any(|(name, _)| *name == ORIGIN.as_str() || *name == HOST.as_str()) {
            let origin = url.split('/').take(3).collect::<Vec<_>>().join("/");
            request = request.header(ORIGIN, origin);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request).await
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Shown {
        let cookie = self.cookie();
        let request = if cookie.is_empty() { request } else { request.header(COOKIE, cookie) };
        let answer = request.send().await.expect("an answer");
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        let text = answer.text().await.expect("text");
        let mut kept = self.kept.lock().expect("kept");
        if let Some(set) = headers.get(SET_COOKIE) {
            let pair = set.to_str().expect("text").split(';').next().expect("a pair");
            kept.cookie = pair.to_owned();
        }
        if let Some((_, rest)) = text.split_once("name=\"csrf\" value=\"") {
            kept.token = rest.split('"').next().expect("a value").to_owned();
        }
        Shown { status, headers, text }
    }
}
