//! A browser without JavaScript: one cookie jar, forms as they stand on their pages.

use std::sync::Mutex;

use reqwest::header::{COOKIE, HeaderMap, LOCATION, SET_COOKIE};

/// Reads pages and sends their forms.
pub(crate) struct Pages {
    base: String,
    http: reqwest::Client,
    cookie: Mutex<Option<String>>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Pages {
    /// A browser with nothing in its jar, for the pages at `base`, without a slash at the end.
    pub(crate) fn at(base: &str) -> Self {
        let http = super::http_builder().redirect(reqwest::redirect::Policy::none());
        let http = http.build().expect("a client");
        Self { base: base.to_owned(), http, cookie: Mutex::default() }
    }

    /// The cookie in the jar: `name=value`.
    pub(crate) fn cookie(&self) -> Option<String> {
        self.cookie.lock().expect("no panic").clone()
    }

    /// Puts something else into the jar.
    pub(crate) fn set_cookie(&self, cookie: Option<&str>) {
        *self.cookie.lock().expect("no panic") = cookie.map(str::to_owned);
    }

    /// A page; its path begins with a slash.
    pub(crate) async fn get(&self, path: &str) -> Page {
        self.send(self.http.get(format!("{}{path}", self.base))).await
    }

    /// The form of `page` that leads to `action`, with these fields filled in. A field that the form
    /// does not have is a mistake of the test.
    pub(crate) async fn fill(&self, page: &Page, action: &str, typed: &[(&str, &str)]) -> Page {
        self.post(action, &page.form(action, typed)).await
    }

    /// Any form.
    pub(crate) async fn post(&self, path: &str, fields: &[(String, String)]) -> Page {
        let body =
            url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let request = self.http.post(format!("{}{path}", self.base)).body(body);
        self.send(request.header("content-type", "application/x-www-form-urlencoded")).await
    }

    /// A request of one's own making, with the jar's cookie.
    pub(crate) fn request(&self, method: reqwest::Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.base));
        match self.cookie() {
            Some(cookie) => request.header(COOKIE, cookie),
            None => request,
        }
    }

    /// Follows the way that a form leads to.
    pub(crate) async fn follow(&self, answer: &Page) -> Page {
        assert_eq!(answer.status, 303, "a form leads on: {answer:?}");
        self.get(answer.location()).await
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Page {
        let request = match self.cookie() {
            Some(cookie) => request.header(COOKIE, cookie),
            None => request,
        };
        let answer = request.send().await.expect("an answer");
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        if let Some(set) = headers.get(SET_COOKIE) {
            let set = set.to_str().expect("text");
            let pair = set.split(';').next().expect("a pair");
            let is_removed = set.contains("Max-Age=0");
            self.set_cookie(Some(pair).filter(|_| !is_removed));
        }
        Page { status, headers, body: answer.text().await.expect("text") }
    }
}

impl Page {
    /// Where it leads.
    pub(crate) fn location(&self) -> &str {
        self.headers[LOCATION].to_str().expect("text")
    }

    /// The fields of the form that leads to `action`, with these filled in.
    pub(crate) fn form(&self, action: &str, typed: &[(&str, &str)]) -> Vec<(String, String)> {
        let marker = format!("action=\"{action}\"");
        let form = self.body.split("<form ").find(|form| {
            let head = form.split('>').next().unwrap_or_default();
            head.contains(&marker) && head.contains("method=\"post\"")
        });
        let form = form.unwrap_or_else(|| panic!("no form leads to {action}: {}", self.body));
        let form = form.split("</form>").next().expect("its end");
        let mut fields = Vec::new();
        for tag in form.split('<').filter(|tag| tag.starts_with("input ")) {
            let tag = tag.split('>').next().unwrap_or_default();
            let attribute = |name: &str| {
                let (_, rest) = tag.split_once(&format!(" {name}=\""))?;
                Some(unescaped(rest.split('"').next()?))
            };
            let Some(name) = attribute("name") else { continue };
            let is_choice =
                ["radio", "checkbox"].contains(&&*attribute("type").unwrap_or_default());
            if !is_choice || tag.contains(" checked") {
                fields.push((name, attribute("value").unwrap_or_default()));
            }
        }
        for (name, value) in typed {
            assert!(
                form.contains(&format!("name=\"{name}\"")),
                "{action} has no field {name}: {form}"
            );
            fields.retain(|(existing, _)| existing != name);
            fields.push(((*name).to_owned(), (*value).to_owned()));
        }
        fields
    }
}

/// Reverses askama's escaping.
fn unescaped(text: &str) -> String {
    [("&#60;", "<"), ("&#62;", ">"), ("&#34;", "\""), ("&#39;", "'"), ("&#38;", "&")]
        .into_iter()
        .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}
