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
    /// The address that a proxy says it comes from.
    address: Option<String>,
    kept: Mutex<Kept>,
}

#[derive(Clone, Default)]
struct Kept {
    cookie: String,
    /// The cookie of a device where somebody was logged in, which is sent to the log-in alone.
    device: String,
    token: String,
}

/// A page as the visitor received it.
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

    /// Text between the first `before` and the next `after`, with entities decoded.
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
        Self { base: base.into(), client, address: None, kept: Mutex::default() }
    }

    /// The same browser where a proxy says that it has this address.
    pub(crate) fn at(self, address: impl Into<String>) -> Self {
        Self { address: Some(address.into()), ..self }
    }

    /// The cookie of the device: `name=value`, or empty where nobody was logged in.
    pub(crate) fn device(&self) -> String {
        self.kept.lock().expect("kept").device.clone()
    }

    /// Makes it the device of somebody else.
    pub(crate) fn be_device(&self, cookie: impl Into<String>) {
        self.kept.lock().expect("kept").device = cookie.into();
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
        let mut request = request.build().expect("a request");
        let mut cookies = vec![self.cookie()];
        if request.url().path().ends_with("/login") {
            cookies.push(self.device());
        }
        cookies.retain(|cookie| !cookie.is_empty());
        if !cookies.is_empty() {
            request.headers_mut().insert(COOKIE, cookies.join("; ").parse().expect("a header"));
        }
        if let Some(address) = &self.address {
            request.headers_mut().insert("x-forwarded-for", address.parse().expect("a header"));
        }
        let answer = self.client.execute(request).await.expect("an answer");
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        let mut text = answer.text().await.expect("text");
        let mut kept = self.kept.lock().expect("kept");
        for set in headers.get_all(SET_COOKIE) {
            let pair = set.to_str().expect("text").split(';').next().expect("a pair").to_owned();
            if pair.starts_with("tollgate_device=") {
                kept.device = pair;
            } else {
                kept.cookie = pair;
            }
        }
        if let Some((_, rest)) = text.split_once("name=\"csrf\" value=\"") {
            kept.token = rest.split('"').next().expect("a value").to_owned();
            // It is another on every page.
            text = text.replace(&kept.token, "TOKEN");
        }
        Shown { status, headers, text }
    }
}
