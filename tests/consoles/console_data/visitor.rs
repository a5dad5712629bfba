//! A browser without JavaScript: one cookie, forms, and what stands on a page.

use std::net::SocketAddr;

use serde_json::Value;

use crate::harness::{Answer, Gateway, ask};

/// Somebody who has signed up.
pub(crate) struct Visitor {
    address: SocketAddr,
    cookie: String,
}

/// A page as the visitor received it.
pub(crate) struct Shown {
    pub(crate) status: u16,
    pub(crate) answer: Answer,
    pub(crate) html: String,
}

impl Visitor {
    /// Signs up under this name.
    pub(crate) fn sign_up(gateway: &Gateway, name: &str) -> Self {
        let mut visitor = Self { address: gateway.address, cookie: String::new() };
        let page = visitor.get("/signup");
        visitor.keep(&page);
        let token = page.token();
        let email = format!("{}@test.example", name.replace(' ', "-"));
        let fields = [
            ("csrf", token.as_str()),
            ("name", name),
            ("email", &email),
            ("password", "four unrelated words here"),
        ];
        let signed_up = visitor.post("/signup", &fields);
        assert_eq!(signed_up.status, 303, "{}", signed_up.html);
        visitor.keep(&signed_up);
        visitor
    }

    /// The same browser, at another address of the gateway's.
    pub(crate) fn moved_to(&mut self, address: SocketAddr) {
        self.address = address;
    }

    fn keep(&mut self, shown: &Shown) {
        // That of a known device is the log-in's alone.
        let head = shown.answer.head();
        let (_, set) = head.split_once("tollgate_console=").expect("a session's cookie");
        let value = set.split([';', '\r', '\n']).next().expect("a value");
        self.cookie = format!("tollgate_console={value}");
    }

    pub(crate) fn get(&self, path: &str) -> Shown {
        self.ask("GET", path, "")
    }

    /// A page that is there.
    pub(crate) fn page(&self, path: &str) -> Shown {
        let shown = self.get(path);
        assert_eq!(shown.status, 200, "{path}: {}", shown.html);
        shown
    }

    /// Sends a form.
    pub(crate) fn post(&self, path: &str, fields: &[(&str, &str)]) -> Shown {
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        form.extend_pairs(fields);
        self.ask("POST", path, &form.finish())
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> Shown {
        let path = path.strip_prefix("/console").unwrap_or(path);
        let request = format!(
            "{method} /console{path} HTTP/1.1\r\nHost: gateway\r\nCookie: {}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
            self.cookie,
            body.len()
        );
        let answer = ask(self.address, request.as_bytes());
        let is_chunked = answer.header("transfer-encoding").is_some();
        let bytes = if is_chunked { answer.content() } else { answer.body() };
        let html = String::from_utf8(bytes).expect("text");
        Shown { status: answer.status(), answer, html }
    }
}

impl Shown {
    /// Session token in the page's forms.
    pub(crate) fn token(&self) -> String {
        let behind = self.html.split("name=\"csrf\" value=\"").nth(1).expect("a form");
        plain(behind.split('"').next().expect("a value"))
    }

    /// The page as it is each time: what its forms carry is another on every page.
    pub(crate) fn without_token(&self) -> String {
        let mut parts = self.html.split("name=\"csrf\" value=\"");
        let mut page = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            page.push_str(part.split_once('"').expect("a value").1);
        }
        page
    }

    /// The figure with this label.
    pub(crate) fn figure(&self, label: &str) -> String {
        let label = format!("</div><div class=\"soft\">{label}</div>");
        let before = self.html.split(&label).next().filter(|before| *before != self.html);
        let before = before.unwrap_or_else(|| panic!("{label} in {}", self.html));
        plain(before.rsplit("<div class=\"figure\">").next().expect("a figure"))
    }

    /// The rows of the table below the heading with this id, or of the only one.
    pub(crate) fn rows(&self, heading: &str) -> Vec<Vec<String>> {
        let below = self.html.split(&format!("id=\"{heading}\"")).nth(1).unwrap_or_default();
        let body = below.split("<tbody>").nth(1).unwrap_or_default();
        let body = body.split("</tbody>").next().unwrap_or_default();
        body.split("<tr>").skip(1).map(cells).collect()
    }

    /// Where every link with this beginning leads, in order.
    pub(crate) fn links(&self, beginning: &str) -> Vec<String> {
        let beginning = format!("href=\"/console{beginning}");
        let rests = self.html.split(&beginning).skip(1);
        let ends = rests.map(|rest| plain(rest.split('"').next().expect("a link")));
        ends.map(|end| format!("{}{end}", &beginning[6..])).collect()
    }

    /// Where the list goes on.
    pub(crate) fn older(&self) -> Option<String> {
        let before = self.html.split("\" rel=\"next\"").next()?;
        let is_there = before.len() < self.html.len();
        is_there.then(|| plain(before.rsplit("href=\"").next().expect("a link")))
    }

    /// Visible text of the page.
    pub(crate) fn text(&self) -> String {
        plain(&self.html)
    }
}

fn cells(row: &str) -> Vec<String> {
    let row = row.replace("<th ", "<td ");
    row.split("<td").skip(1).map(|cell| plain(cell.split_once('>').expect("a cell").1)).collect()
}

/// Text without its markup.
fn plain(html: &str) -> String {
    let html = html.replace("<br>", " ").replace("</dt>", " ").replace("</li>", " ");
    let mut text = String::new();
    let mut is_markup = false;
    for letter in html.chars() {
        match letter {
            '<' => is_markup = true,
            '>' => is_markup = false,
            letter if !is_markup => text.push(letter),
            _ => {}
        }
    }
    for (entity, letter) in
        [("&#60;", "<"), ("&#62;", ">"), ("&#34;", "\""), ("&#39;", "'"), ("&#38;", "&")]
    {
        text = text.replace(entity, letter);
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// An amount as pages show it.
pub(crate) fn dollars(amount: &Value) -> String {
    format!("${}", amount.as_str().unwrap_or_else(|| panic!("no amount: {amount}")))
}

/// A time as pages show it.
pub(crate) fn utc(at: &Value) -> String {
    let at = at.as_str().unwrap_or_else(|| panic!("no time: {at}"));
    at[..19].replace('T', " ")
}
