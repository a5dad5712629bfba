//! The versions of the clients: `tests/clients/versions.json` decides, the lists of pins follow.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// A client with its package.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) name: String,
    pub(crate) npm: Option<String>,
    pub(crate) pypi: Option<String>,
    pub(crate) version: String,
}

fn file() -> Value {
    serde_json::from_str(include_str!("../../clients/versions.json"))
        .expect("the versions are JSON")
}

/// The date of the last run with these versions.
pub(crate) fn date() -> String {
    file()["date"].as_str().expect("a date").to_owned()
}

pub(crate) fn clients() -> Vec<Client> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let file = file();
    let clients = file["clients"].as_array().expect("clients").iter();
    clients
        .map(|client| Client {
            name: text(&client["name"]).expect("a name"),
            npm: text(&client["npm"]),
            pypi: text(&client["pypi"]),
            version: text(&client["version"]).expect("a version"),
        })
        .collect()
}

/// The version of the client of this name.
pub(crate) fn of(name: &str) -> String {
    let found = clients().into_iter().find(|client| client.name == name);
    found.unwrap_or_else(|| panic!("no client {name}")).version
}

pub(crate) fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// True if the expected texts are written instead of compared.
#[expect(clippy::disallowed_methods, reason = "a switch of these tests, not of the gateway")]
pub(crate) fn renews() -> bool {
    std::env::var_os("UPDATE_EXPECTED").is_some()
}

/// Compares a file with what it should be, or writes it.
pub(crate) fn expect(name: &str, text: &str) {
    let path = path(name);
    if renews() {
        std::fs::write(&path, text).expect("the file is written");
        return;
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let remedy = "run: UPDATE_EXPECTED=1 cargo test --test operations agents::";
    assert!(found == text, "{name} is out of step; {remedy}\n{found}\n---\n{text}");
}

#[test]
fn the_pins_are_those_of_the_versions() {
    let read = |name: &str| std::fs::read_to_string(path(name)).expect("the pins");
    let (node, python) = ("tests/node/package.json", "tests/python/requirements.txt");
    let (mut packages, mut requirements) = (read(node), read(python));
    let pinned = |text: &str, start: &str, end: &str, version: &str| {
        let at = text.find(start).unwrap_or_else(|| panic!("no {start}")) + start.len();
        let length = text[at..].find(end).expect("an end");
        format!("{}{version}{}", &text[..at], &text[at + length..])
    };
    for client in clients() {
        if let Some(name) = &client.npm {
            packages = pinned(&packages, &format!("\"{name}\": \""), "\"", &client.version);
        }
        if let Some(name) = &client.pypi {
            requirements = pinned(&requirements, &format!("\n{name}=="), "\n", &client.version);
        }
    }
    expect(node, &packages);
    expect(python, &requirements);
}
