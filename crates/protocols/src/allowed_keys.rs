//! Keys of requests that codecs accept, for comparison with a provider's own types.

use super::request_policy::{
    Allowlist, Field, Key, ObjectTable, Setting, SettingTable, ToolKey,
    are_tools_recognized_by_keys,
};
use tollgate_money::price::{InferenceGeo, ServiceTier, Speed};

/// Tables within each other: a result of a tool has content, and that has results.
const DEPTH_MAX: usize = 4;
/// OpenAI's newer word for [`ServiceTier::Priority`].
const FAST: &str = "fast";

/// A key that requests of an operation may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedKey {
    /// Path of the key: `messages.content.text`. Lists do not show in it.
    pub path: String,
    /// Permitted values, including those that need a price; a trailing `*` matches any ending. `None` if the
    /// value is not checked.
    pub words: Option<Vec<String>>,
}

impl AllowedKey {
    /// Every key of an allowlist, those within objects included.
    pub(super) fn of_allowlist(allowlist: &'static Allowlist) -> Vec<Self> {
        let mut listed = ListedKeys { allowlist, keys: Vec::new() };
        for (name, field) in allowlist.fields {
            listed.field(name, field);
        }
        listed.keys
    }

    /// Fields by their names alone, of which no value is looked at here.
    pub(super) fn of_names(names: &[&str]) -> Vec<Self> {
        // Forms write the members of an object in brackets.
        let path = |name: &str| name.replace("[]", "").replace('[', ".").replace(']', "");
        names.iter().map(|name| Self { path: path(name), words: None }).collect()
    }
}

struct ListedKeys {
    allowlist: &'static Allowlist,
    keys: Vec<AllowedKey>,
}

impl ListedKeys {
    fn add(&mut self, path: &str, words: Option<Vec<String>>) {
        self.keys.push(AllowedKey { path: path.to_owned(), words });
    }

    fn field(&mut self, name: &str, field: &Field) {
        match field {
            Field::Plain
            | Field::Reference
            | Field::Thinking
            | Field::Sounds
            | Field::Runs(..)
            | Field::Omitted(_)
            | Field::ContextManagement => self.add(name, None),
            Field::Words(words) => {
                let words = words.iter().copied().chain(priceable(name));
                self.add(name, Some(words.map(str::to_owned).collect()));
            }
            Field::Modalities => {
                let words = ["text", "audio", "image"].map(str::to_owned);
                self.add(name, Some(words.to_vec()));
            }
            Field::Items(table) => {
                self.add(name, None);
                self.table(name, table, DEPTH_MAX);
            }
            Field::Tools => {
                self.add(name, None);
                self.tools(name, 1);
            }
            Field::Settings(settings) => self.settings(name, settings),
        }
    }

    fn settings(&mut self, path: &str, settings: SettingTable) {
        self.add(path, None);
        for (name, setting) in settings {
            let words = match setting {
                Setting::Plain => None,
                Setting::Words(words) => {
                    Some(words.iter().map(|word| (*word).to_owned()).collect())
                }
                Setting::Lifetime(lifetimes) => {
                    Some(lifetimes.iter().map(|lifetime| lifetime.word.to_owned()).collect())
                }
            };
            self.add(&format!("{path}.{name}"), words);
        }
    }

    fn table(&mut self, path: &str, table: &ObjectTable, depth: usize) {
        let Some(depth) = depth.checked_sub(1) else { return };
        for (name, key) in table.keys {
            let path = format!("{path}.{name}");
            match key {
                Key::Plain
                | Key::Opaque
                | Key::Picture
                | Key::Media
                | Key::Medium(_)
                | Key::Detail
                | Key::Citations
                | Key::File
                | Key::Sound
                | Key::Billed(_) => {
                    self.add(&path, None);
                }
                Key::Type => {
                    let kinds = table.kinds.iter().map(|kind| kind.name.to_owned());
                    self.add(&path, Some(kinds.collect()));
                }
                Key::Items(nested) => {
                    self.add(&path, None);
                    self.table(&path, nested, depth);
                }
                Key::Tools | Key::Definition => {
                    self.add(&path, None);
                    self.tools(&path, 0);
                }
                Key::Settings(settings) => self.settings(&path, settings),
            }
        }
    }

    /// The keys of tools, and of those that they are made of.
    fn tools(&mut self, path: &str, deeper: usize) {
        let allowlist = self.allowlist;
        if are_tools_recognized_by_keys(allowlist) {
            for tool in allowlist.server_tools {
                self.add(&format!("{path}.{}", tool.name), None);
            }
        }
        for (name, key) in allowlist.tool_keys {
            let path = format!("{path}.{name}");
            let words = match key {
                ToolKey::Type => {
                    let own = allowlist.tools.iter().map(|tool| (tool.name, tool.is_dated));
                    let run = allowlist.server_tools.iter().map(|tool| (tool.name, tool.is_dated));
                    let all = own.chain(run).map(|(name, is_dated)| {
                        format!("{name}{}", if is_dated { "*" } else { "" })
                    });
                    Some(all.collect())
                }
                // Whatever value it has, it is refused.
                ToolKey::Dearer([]) => None,
                ToolKey::Dearer(usual) => {
                    let word = |usual: &&str| usual.trim_matches(['[', ']', '"']).to_owned();
                    Some(usual.iter().map(word).collect())
                }
                ToolKey::Plain
                | ToolKey::Needed
                | ToolKey::Tools
                | ToolKey::Uses
                | ToolKey::Results => None,
            };
            self.add(&path, words);
            if matches!(key, ToolKey::Tools) && deeper > 0 {
                self.tools(&path, deeper - 1);
            }
        }
    }
}

/// The words of a field that an operator can give a price.
fn priceable(field: &str) -> Vec<&'static str> {
    match field {
        "service_tier" | "serviceTier" => {
            let all = ServiceTier::ALL.iter().map(|tier| tier.as_str());
            all.chain([FAST]).collect()
        }
        "speed" => Speed::ALL.iter().map(|speed| speed.as_str()).collect(),
        "inference_geo" => InferenceGeo::ALL.iter().map(|geo| geo.as_str()).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use crate::{Operation, allowed_keys};

    #[test]
    fn every_key_of_a_table_is_listed_with_the_words_that_are_looked_at() {
        let keys = allowed_keys(Operation::Responses);
        let found = |path: &str| keys.iter().find(|key| key.path == path).expect(path);
        assert_eq!(found("input.content.text").words, None);
        let ttl = found("input.content.prompt_cache_breakpoint.ttl");
        assert_eq!(ttl.words, Some(vec!["30m".to_owned(), "12h".to_owned()]));
        let kinds = found("input.content.type").words.as_ref().expect("kinds");
        assert!(kinds.iter().any(|kind| kind == "input_text"), "{kinds:?}");
        let tools = found("input.tools.type").words.as_ref().expect("types");
        assert!(tools.iter().any(|name| name == "web_search*"), "{tools:?}");
        let tiers = found("service_tier").words.as_ref().expect("tiers");
        assert!(tiers.iter().any(|tier| tier == "ultrafast"), "it can have a price: {tiers:?}");
        assert!(keys.iter().all(|key| key.path != "moderation"));
        assert_eq!(allowed_keys(Operation::Video), [], "its codec has no table");
    }
}
