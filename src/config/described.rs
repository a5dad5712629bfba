//! The two files as operators wrote them, for comparing: variables by their names, secrets by a
//! fingerprint.

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::spans::{SECRET_FIELDS, is_telling};

/// Hex digits of a secret's fingerprint: enough to see that another one was written, and too few to
/// find out which.
const FINGERPRINT_HEX_DIGITS: usize = 8;
/// Fields of `routes.yaml` that take effect at a restart.
const RESTART_ONLY: [&str; 4] = ["listeners", "admin", "store", "shutdown"];
/// One of them that takes effect at once: a token that leaked must not wait.
const TAKEN_UP: &str = "admin.operators";
/// Fields that say which item of a list is which.
const NAMES: [&str; 3] = ["path", "address", "upstream"];

/// Something that differs between two configurations.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Change {
    /// Where, such as `upstreams.openai.timeouts.read`.
    pub field: String,
    /// What is there now; `None` for what is added.
    pub running: Option<Value>,
    /// What the files say; `None` for what is removed.
    pub files: Option<Value>,
    /// Whether it takes effect at a restart only.
    pub restart_only: bool,
}

/// One file, before anything is filled in.
pub(super) fn describe(typed: &serde_yaml::Value) -> Value {
    let mut described = serde_json::to_value(typed).unwrap_or_default();
    mask(&mut described, false);
    described
}

/// Overwrites secrets with their fingerprints. What only names a variable or a file is shown.
fn mask(value: &mut Value, is_secret: bool) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let names_secret = SECRET_FIELDS.iter().any(|field| key.starts_with(field))
                    || value.as_str().is_some_and(|text| is_telling(key, text));
                mask(value, (is_secret || names_secret) && key != "file");
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| mask(item, is_secret)),
        Value::String(text) if is_secret && !is_variable(text) => {
            let digest = Sha256::digest(text.as_bytes());
            let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            let shown: String = hex.chars().take(FINGERPRINT_HEX_DIGITS).collect();
            *text = format!("secret {shown}");
        }
        _ => {}
    }
}

/// Whether a text is the name of a variable and nothing else, not even a default.
fn is_variable(text: &str) -> bool {
    let name = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    name.is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'))
}

/// A described configuration for people.
#[must_use]
pub fn as_yaml(described: &Value) -> String {
    // What came from YAML goes back into it.
    serde_yaml::to_string(described).unwrap_or_default()
}

/// What the files change of what runs, in the order of the files, what is removed last.
#[must_use]
pub fn changes(running: &Value, files: &Value) -> Vec<Change> {
    let mut changes = Vec::new();
    compare("", Some(running), Some(files), &mut changes);
    changes
}

fn compare(field: &str, running: Option<&Value>, files: Option<&Value>, to: &mut Vec<Change>) {
    if running == files {
        return;
    }
    if let (Some(running), Some(files)) = (running, files)
        && let (Some(running), Some(files)) = (entries(running), entries(files))
    {
        let removed = running.keys().filter(|key| !files.contains_key(*key));
        for key in files.keys().chain(removed) {
            let field = if field.is_empty() { key.clone() } else { format!("{field}.{key}") };
            compare(&field, running.get(key), files.get(key), to);
        }
        return;
    }
    let top = field.split('.').next().unwrap_or_default();
    to.push(Change {
        field: field.to_owned(),
        running: running.cloned(),
        files: files.cloned(),
        restart_only: RESTART_ONLY.contains(&top) && !field.starts_with(TAKEN_UP),
    });
}

/// The entries of a mapping, or of a list whose items have names.
fn entries(value: &Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(fields) => Some(fields.clone()),
        Value::Array(items) => {
            let mut named = Map::new();
            for item in items {
                let name = NAMES.iter().find_map(|name| item.get(name)?.as_str())?;
                let model =
                    item.get("model").and_then(Value::as_str).map(|model| format!("/{model}"));
                named.insert(format!("[{name}{}]", model.unwrap_or_default()), item.clone());
            }
            // Two items of one name cannot be told apart.
            (named.len() == items.len()).then_some(named)
        }
        _ => None,
    }
}

/// Both files as one document.
pub(super) fn together(routes: Value, models: Value) -> Value {
    let mut whole = Map::new();
    for part in [routes, models] {
        whole.extend(part.as_object().cloned().unwrap_or_default());
    }
    json!(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(yaml: &str) -> Value {
        describe(&serde_yaml::from_str(yaml).expect("YAML"))
    }

    #[test]
    fn secrets_are_shown_as_fingerprints_and_variables_by_name() {
        let shown = described(
            "upstreams:\n  a: { credential: sk-canary }\n  b: { credential: '${KEY}' }\n  \
             c: { credential: '${KEY:-sk-canary}' }\n  d: { credential: { file: /run/key } }\n  \
             e: { credentials: { x: sk-canary } }\n  f: { base_url: 'http://canary@x' }\nadmin: { token: canary }\n",
        );
        assert!(!shown.to_string().contains("canary"), "{shown}");
        assert_eq!(shown["upstreams"]["b"]["credential"], "${KEY}");
        assert_eq!(shown["upstreams"]["d"]["credential"]["file"], "/run/key");
        let upstreams = &shown["upstreams"];
        assert_eq!(upstreams["e"]["credentials"]["x"], upstreams["a"]["credential"]);
        let other = described("admin: { token: another }\n");
        assert_ne!(shown["admin"], other["admin"], "another secret is another fingerprint");
    }

    #[test]
    fn every_kind_of_change_is_named_by_its_field() {
        let before = described(
            "upstreams: { a: { base_url: x, timeouts: { read: 1s } }, b: { base_url: y } }\n\
             models: { m: { targets: [{ upstream: a, weight: 1 }, { upstream: b }] } }\n\
             listeners: [{ address: '1.1.1.1:1' }]\n",
        );
        let after = described(
            "upstreams: { a: { base_url: x, timeouts: { read: 2s } }, c: { base_url: z } }\n\
             models: { m: { targets: [{ upstream: b }, { upstream: a, weight: 5 }] } }\n\
             listeners: [{ address: '1.1.1.1:1', h2c: false }]\n",
        );
        let found = changes(&before, &after);
        let mut named: Vec<_> = found
            .iter()
            .map(|change| {
                let kind = (change.running.is_some(), change.files.is_some());
                (change.field.as_str(), kind, change.restart_only)
            })
            .collect();
        named.sort_unstable();
        assert_eq!(
            named,
            [
                ("listeners.[1.1.1.1:1].h2c", (false, true), true),
                ("models.m.targets.[a].weight", (true, true), false),
                ("upstreams.a.timeouts.read", (true, true), false),
                ("upstreams.b", (true, false), false),
                ("upstreams.c", (false, true), false),
            ]
        );
        assert!(changes(&before, &before).is_empty());
    }
}
