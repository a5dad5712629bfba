//! From the configurations of other gateways to ours.
//!
//! [`litellm`] reads what LiteLLM's proxy is configured with. What cannot be said in our files is
//! never dropped in silence: each such field is a warning with its place and the reason.

mod tree;
mod provider;
mod figure;
mod field;
mod plan;
mod deployment;
mod values;
mod place;
mod sign_in;
mod combine;
mod settings;
mod listed;
mod write;

use field::{Fate, fate};
use plan::MigrationPlan;
use tree::{YamlNode, YamlValue};

use std::collections::HashMap;

use super::diagnostic::{Diagnostic, Severity, SourceExcerpt};
use super::spans::Mark;
use tollgate_types::printable::shortened;

/// Maximum size of the file, in bytes.
const FILE_BYTES_MAX: usize = 16 << 20;

/// The longest message or help, in characters.
const MESSAGE_CHARS_MAX: usize = 1_000;

/// The converted `routes.yaml` and `models.yaml`, with diagnostics about the conversion.
#[derive(Debug)]
pub struct MigratedConfig {
    /// The text of the new `routes.yaml`.
    pub routes: String,
    /// The text of the new `models.yaml`.
    pub models: String,
    /// Findings: a warning for each dropped setting, a note for each changed one.
    pub found: Vec<Diagnostic>,
}

/// Converts LiteLLM's `config.yaml` to the two configuration files; `file` is its name.
///
/// # Errors
/// What keeps it from being read at all.
pub fn litellm(file: &str, bytes: &[u8]) -> Result<MigratedConfig, Box<Diagnostic>> {
    let whole = |message: &str, place| {
        let (file, message) = (file.to_owned(), message.to_owned());
        Box::new(Diagnostic { severity: Severity::Error, message, file, place, help: None })
    };
    if bytes.len() > FILE_BYTES_MAX {
        return Err(whole(&format!("this file is longer than {FILE_BYTES_MAX} bytes"), None));
    }
    let text =
        std::str::from_utf8(bytes).map_err(|_| whole("this file is not UTF-8 text", None))?;
    let lines: Vec<&str> = text.lines().collect();
    let root = tree::parse(text).map_err(|error| {
        let Mark { line, column, width } = error.mark;
        let place = SourceExcerpt::around(&shown(&lines, line), line, column, width);
        whole(&error.message, Some(place))
    })?;
    if root.get("model_list").is_none_or(|list| list.items().is_empty()) {
        return Err(whole("there is no `model_list` in this file", None));
    }
    let mut migration = Migration {
        file,
        lines,
        plan: MigrationPlan::default(),
        found: Vec::new(),
        places: HashMap::new(),
        keys: HashMap::new(),
        shown: HashMap::new(),
        concurrent: None,
    };
    migration.run(&root);
    let Migration { plan, mut found, .. } = migration;
    // By place: entries are read by section, and an operator reads the file from its top.
    found.sort_by_key(|found| found.place.as_ref().map(|place| (place.line, place.column)));
    let (routes, models) = write::files(file, &plan);
    Ok(MigratedConfig { routes, models, found })
}

/// A migration in progress.
struct Migration<'a> {
    file: &'a str,
    lines: Vec<&'a str>,
    plan: MigrationPlan,
    found: Vec<Diagnostic>,
    /// The places of the plan's models, by id.
    places: HashMap<String, usize>,
    /// Literal keys, numbered in the order of their occurrence.
    keys: HashMap<String, usize>,
    /// Lines quoted in findings, with possible secrets masked.
    shown: HashMap<usize, Vec<char>>,
    /// Default limit of concurrent requests per deployment.
    concurrent: Option<u64>,
}

impl Migration<'_> {
    fn run(&mut self, root: &YamlNode) {
        self.sort_out(root, field::TOP);
        for section in ["litellm_settings", "router_settings", "general_settings"] {
            let fates = match section {
                "litellm_settings" => field::SETTINGS,
                "router_settings" => field::ROUTER,
                _ => field::GENERAL,
            };
            if let Some(section) = root.get(section) {
                self.sort_out(section, fates);
            }
        }
        self.models(root);
        self.settings(root);
        let is_usable = |model: &plan::PlannedModel| model.missing.is_empty();
        if !self.plan.models.iter().any(is_usable) {
            let help = "fill in what is marked in models.yaml, and take the comment signs away";
            self.left_out(root.mark, "no model is complete", help);
        }
    }

    /// Reports the fields of a mapping that are not converted.
    fn sort_out(&mut self, node: &YamlNode, fates: &'static [(&'static str, Fate)]) {
        for field in node.fields() {
            let name = &field.key;
            match fate(fates, name) {
                Fate::Read | Fate::Idle => {}
                Fate::ReadIfOffered(field, _) if field::offers(field) => {}
                Fate::Otherwise(how) => {
                    self.note(field.mark, format!("`{name}` is not needed"), how);
                }
                // What is switched off, or empty, is not missed.
                Fate::LeftOut(_) | Fate::ReadIfOffered(..) if is_off(&field.node) => {}
                Fate::LeftOut(why) | Fate::ReadIfOffered(_, why) => {
                    self.left_out(field.mark, &format!("`{name}` is left out"), why);
                }
            }
        }
    }

    /// Reports a lost setting, or one that needs manual work.
    fn left_out(&mut self, mark: Mark, message: &str, help: &str) {
        self.say(Severity::Warning, mark, message.to_owned(), help);
    }

    /// Reports a setting that works differently.
    fn note(&mut self, mark: Mark, message: String, help: &str) {
        self.say(Severity::Note, mark, message, help);
    }

    fn say(&mut self, severity: Severity, mark: Mark, message: String, help: &str) {
        // A line may have thousands of fields, so it is looked at once.
        let line = self.shown.entry(mark.line).or_insert_with(|| shown(&self.lines, mark.line));
        let place = Some(SourceExcerpt::around(line, mark.line, mark.column, mark.width));
        let help = Some(shortened(help, MESSAGE_CHARS_MAX).into_owned());
        let message = shortened(&message, MESSAGE_CHARS_MAX).into_owned();
        self.found.push(Diagnostic { severity, message, file: self.file.to_owned(), place, help });
    }

    /// A value of LiteLLM's as text of ours: `os.environ/NAME` is `${NAME}`, and a dollar sign is
    /// written twice.
    fn filled(text: &str) -> String {
        match text.strip_prefix("os.environ/") {
            Some(name) => format!("${{{name}}}"),
            // A dollar sign begins a variable in our files.
            None => text.replace('$', "$$"),
        }
    }

    /// Converts a secret of LiteLLM to a variable. A literal secret is not copied: the new files name a
    /// variable, which must be set.
    fn secret(&mut self, node: &YamlNode) -> Option<String> {
        let text = node.text().filter(|text| !matches!(*text, "" | "none" | "None" | "null"))?;
        if text.starts_with("os.environ/") {
            return Some(Self::filled(text));
        }
        let next = self.keys.len() + 1;
        // One variable for a key that several entries share.
        let number = *self.keys.entry(text.to_owned()).or_insert(next);
        let name = format!("LITELLM_KEY_{number}");
        let help = format!("set the environment variable {name} to it");
        self.left_out(node.mark, "a key that is written out is not copied", &help);
        Some(format!("${{{name}}}"))
    }
}

/// True for a value that means "none" or "off".
fn is_off(node: &YamlNode) -> bool {
    match &node.value {
        YamlValue::Nothing => true,
        YamlValue::Text(text) => text.eq_ignore_ascii_case("false"),
        YamlValue::List(items) => items.is_empty(),
        YamlValue::Fields(fields) => fields.is_empty(),
    }
}

/// Words at the ends of names of fields whose values are not shown.
const SECRET_WORDS: [&str; 11] = [
    "_key",
    "_access_key_id",
    "session_token",
    "credentials",
    "ad_token",
    "auth_token",
    "secret",
    "password",
    "headers",
    "database_url",
    "redis_url",
];

/// A line, from 1, without what may be a secret in it.
fn shown(lines: &[&str], number: usize) -> Vec<char> {
    let line = lines.get(number.saturating_sub(1)).copied().unwrap_or_default();
    let behind_name = |word: &&str| {
        let (_, after) = line.split_once(*word)?;
        let value = after.trim_start_matches(['"', '\'', ' ', ':']);
        (!value.starts_with("os.environ/")).then(|| line.len() - value.len())
    };
    // What begins like a key is one, wherever it is.
    let ends = SECRET_WORDS.iter().filter_map(behind_name).chain(line.find("sk-"));
    let (shown, hidden) = line.split_at(ends.min().unwrap_or(line.len()));
    let stars = hidden.chars().map(|letter| if letter == ' ' { ' ' } else { '*' });
    shown.chars().chain(stars).collect()
}
