//! The two files as operators wrote them, for comparing: variables by their names, secrets by a
//! fingerprint.

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::shown::{SchemaPlace, is_variable};
use super::spans::{WalkStep, is_telling};
use tollgate_types::secret::Secret;

/// Hex digits of a secret's fingerprint: enough to see that another one was written.
const FINGERPRINT_HEX_DIGITS: usize = 8;
/// Prefix of a digest. YAML read here cannot contain this character, so no value looks like a digest.
const HIDDEN: &str = "\0";
/// Fields of `routes.yaml` that take effect at a restart.
const RESTART_ONLY: [&str; 4] = ["listeners", "admin", "store", "shutdown"];
/// A field that takes effect without a restart: a leaked token must not wait for one.
const TAKEN_UP: &str = "admin.operators";
/// Fields that identify an item of a list.
const NAMES: [&str; 3] = ["path", "address", "upstream"];

/// A difference between two configurations.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Change {
    /// Path of the field, such as `upstreams.openai.timeouts.read`.
    pub field: String,
    /// Value in force; `None` for an added field.
    pub running: Option<Value>,
    /// Value in the files; `None` for a removed field.
    pub files: Option<Value>,
    /// True for a field that takes effect at a restart only.
    pub restart_only: bool,
}

/// A configuration as it was typed, with digests in the place of what may be a secret. The digests are
/// shown to nobody as they are: a guessed password could be held against them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RedactedConfig(Value);

impl RedactedConfig {
    /// The description without secrets. Fingerprints of secrets can be compared with others that were made
    /// with the same `key` only, and reveal nothing without it.
    #[must_use]
    pub fn shown(&self, key: &Secret) -> Value {
        let mut shown = self.0.clone();
        show(&mut shown, &Sha256::digest(key.expose().as_bytes()));
        shown
    }
}

/// Replaces digests by fingerprints.
fn show(value: &mut Value, key: &[u8]) {
    match value {
        Value::Object(fields) => {
            for (name, mut value) in std::mem::take(fields) {
                show(&mut value, key);
                // A secret can stand where a key belongs, as in `{a, b}`.
                let shown = fingerprint(&name, key).unwrap_or(name);
                fields.insert(shown, value);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| show(item, key)),
        Value::String(text) => {
            if let Some(shown) = fingerprint(text, key) {
                *text = shown;
            }
        }
        _ => {}
    }
}

/// The fingerprint that replaces a digest; `None` for other values.
fn fingerprint(text: &str, key: &[u8]) -> Option<String> {
    let digest = text.strip_prefix(HIDDEN)?;
    // The key has a length of its own, so nothing can be put between the two.
    let digest = Sha256::new().chain_update(key).chain_update(digest).finalize();
    let shown: String = hex(&digest).chars().take(FINGERPRINT_HEX_DIGITS).collect();
    Some(format!("secret {shown}"))
}

/// A digest that replaces a text.
fn hidden(text: &str) -> String {
    format!("{HIDDEN}{}", hex(&Sha256::digest(text.as_bytes())))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// One file, before variables are expanded.
pub(super) fn describe(typed: &serde_yaml::Value, schema: &Value) -> RedactedConfig {
    let mut described = serde_json::to_value(typed).unwrap_or_default();
    mask(&mut described, &MaskPlace { schema: SchemaPlace::root(schema), field: None });
    RedactedConfig(described)
}

/// A value in the walk that masks what may not be shown.
struct MaskPlace<'a> {
    schema: SchemaPlace<'a>,
    /// The mapping around the value, and its key there.
    field: Option<(&'a SchemaPlace<'a>, &'a str)>,
}

impl MaskPlace<'_> {
    fn is_public(&self) -> bool {
        match self.field {
            Some((above, "file")) => above.has_public_file(),
            _ => self.schema.is_public(),
        }
    }

    /// True if a value here may be shown as typed.
    fn may_show(&self, typed: &str) -> bool {
        let tells = self.field.is_some_and(|(_, key)| is_telling(key, typed));
        is_variable(typed) || (!tells && self.is_public())
    }
}

/// Overwrites what may not be shown with its digest. What only names a variable or a file is shown.
fn mask(value: &mut Value, place: &MaskPlace<'_>) {
    match value {
        Value::Object(fields) => {
            for (key, mut value) in std::mem::take(fields) {
                let is_bare = {
                    let schema = place.schema.below(WalkStep::Key(&key));
                    let inner = MaskPlace { schema, field: Some((&place.schema, &key)) };
                    mask(&mut value, &inner);
                    // `{a, b}` is two keys that say nothing: values that were to stand in a list.
                    value.is_null() && !inner.is_public()
                };
                fields.insert(if is_bare { hidden(&key) } else { key }, value);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                let schema = place.schema.below(WalkStep::Index(index));
                mask(item, &MaskPlace { schema, field: None });
            }
        }
        Value::Null => {}
        Value::String(typed) => {
            if !place.may_show(typed) {
                *typed = hidden(typed);
            }
        }
        Value::Bool(_) | Value::Number(_) => {
            let typed = value.to_string();
            if !place.may_show(&typed) {
                *value = json!(hidden(&typed));
            }
        }
    }
}

/// A described configuration for people.
#[must_use]
pub fn as_yaml(described: &Value) -> String {
    // What came from YAML goes back into it.
    serde_yaml::to_string(described).unwrap_or_default()
}

/// Differences between the configuration in force and the files, in the order of the files, removals last.
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
        // Removed ones last, so that additions stay in the order of the file.
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
                // Items are compared by name: one that moves, or that another is put before, has not changed.
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
pub(super) fn together(routes: RedactedConfig, models: RedactedConfig) -> RedactedConfig {
    let mut whole = Map::new();
    for RedactedConfig(part) in [routes, models] {
        if let Value::Object(fields) = part {
            whole.extend(fields);
        }
    }
    RedactedConfig(json!(whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described_with(key: &str, yaml: &str) -> Value {
        let typed = serde_yaml::from_str(yaml).expect("YAML");
        let mut schema = crate::routes_schema();
        let models = crate::models_schema();
        for part in ["properties", "$defs"] {
            for (name, value) in models[part].as_object().into_iter().flatten() {
                schema[part][name] = value.clone();
            }
        }
        describe(&typed, &schema).shown(&Secret::new(key.to_owned()))
    }

    fn described(yaml: &str) -> Value {
        described_with("a key", yaml)
    }

    #[test]
    fn secrets_are_shown_as_fingerprints_and_variables_by_name() {
        let shown = described(
            "upstreams:\n  a: { credential: sk-canary }\n  b: { credential: '${KEY}' }\n  \
             c: { credential: '${KEY:-sk-canary}' }\n  d: { credential: { file: /run/key } }\n  \
             e: { credentials: { x: sk-canary } }\n  f: { base_url: 'http://canary@x' }\n  \
             g: { credental: sk-canary, headers: { authorization: canary }, tokens: [canary] }\n  h: { credentials: { sk-canary, sk-other-canary } }\n\
             admin: { token: canary }\n",
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
    fn a_fingerprint_says_nothing_without_its_key() {
        let typed = "admin: { token: canary }\n";
        let (one, other) = (described_with("one", typed), described_with("other", typed));
        assert_ne!(one["admin"]["token"], other["admin"]["token"]);
        let digest = hex(&Sha256::digest(b"canary"));
        let plain: String = digest.chars().take(FINGERPRINT_HEX_DIGITS).collect();
        assert_ne!(one["admin"]["token"], format!("secret {plain}"), "no plain digest");
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
