//! Settings of the shipped `models.yaml` for translated requests: a decision for each model, so that a new
//! one cannot be added without.

use std::collections::BTreeMap;

const SHIPPED: &str = include_str!("../../../models.yaml");
const PROMPTS: [&str; 4] = ["chat", "messages", "responses", "generate_content"];

/// The models, each with its lines, and the value of a field.
fn models() -> BTreeMap<&'static str, Vec<&'static str>> {
    let (_, text) = SHIPPED.split_once("\nmodels:\n").expect("models");
    let mut models = BTreeMap::<_, Vec<_>>::new();
    let mut last = None;
    for line in text.lines() {
        let is_name = line.starts_with("  ") && line[2..].starts_with(char::is_alphanumeric);
        if is_name {
            last = line.trim().strip_suffix(':');
        }
        models.entry(last.unwrap_or_default()).or_default().push(line);
    }
    models
}

fn field<'l>(lines: &[&'l str], name: &str) -> Option<&'l str> {
    lines.iter().find_map(|line| line.strip_prefix("    ")?.strip_prefix(name)?.strip_prefix(": "))
}

fn words(list: &str) -> impl Iterator<Item = &str> {
    list.trim_matches(['[', ']', '{', '}', ' ']).split(", ")
}

#[test]
fn every_shipped_model_that_reasons_says_whether_it_takes_sampling() {
    let mut seen = 0;
    for (name, lines) in models() {
        let operations = field(&lines, "operations").unwrap_or_default();
        let is_prompted = words(operations).any(|operation| PROMPTS.contains(&operation));
        if !is_prompted || field(&lines, "reasoning") == Some("false") {
            continue;
        }
        seen += 1;
        let translated = field(&lines, "translated").unwrap_or_default();
        let sampling = words(translated).filter_map(|one| one.strip_prefix("sampling: "));
        assert_eq!(
            sampling.count(),
            1,
            "{name}: `translated: {{ sampling: … }}`, and above it where its provider says so"
        );
    }
    assert!(seen > 60, "{seen}");
}

#[test]
fn every_shipped_model_of_openais_says_in_which_words_and_with_which_tools_it_is_asked() {
    let mut seen = 0;
    for (name, lines) in models() {
        let targets = field(&lines, "targets").unwrap_or_default();
        let operations = field(&lines, "operations").unwrap_or_default();
        let is_sold = words(operations).any(|operation| operation == "chat");
        if !targets.contains("upstream: openai") || !is_sold {
            continue;
        }
        seen += 1;
        let translated = field(&lines, "translated").unwrap_or_default();
        assert!(words(translated).any(|one| one == "chat: openai"), "{name}: {translated}");
        // GPT-5.2, GPT-5.4 and later take tools beside reasoning over responses alone.
        let generation = name.strip_prefix("gpt-").and_then(|rest| rest.split('-').next());
        let number = generation.and_then(|number| number.parse::<f32>().ok()).unwrap_or(0.0);
        let is_limited = number >= 5.2;
        let has_tools = words(translated).any(|one| one.starts_with("chat_tools: "));
        assert_eq!(has_tools, is_limited, "{name}: {translated}");
    }
    assert!(seen > 20, "{seen}");
}
