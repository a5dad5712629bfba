//! Prices and limits of the list of models that comes with this build.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use super::tree::{self, MappingField, YamlNode};
use tollgate_money::price::Unit;
use tollgate_protocols::Operation;

/// A model in the shipped `models.yaml`.
#[derive(Clone, Debug)]
pub(super) struct ShippedModel {
    /// Operations of the model.
    pub(super) operations: Vec<Operation>,
    /// True for a model that costs nothing.
    pub(super) free: bool,
    /// Units and the dollars that their price fields have.
    pub(super) prices: Vec<(Unit, String)>,
    /// Entries of `prices_when` as they are written: of prompts those that depend on the length alone.
    pub(super) prices_when: Vec<String>,
    /// Limits, as they are written.
    pub(super) limits: Vec<(String, String)>,
}

/// The list, read once: a file to migrate may have thousands of models.
static LIST: LazyLock<Option<YamlNode>> =
    LazyLock::new(|| tree::parse(include_str!("../../../../models.yaml")).ok());
/// The places of models in the list, by an upstream and either name that they have there.
static PLACES: LazyLock<HashMap<(&str, &str), usize>> = LazyLock::new(|| {
    let mut places = HashMap::new();
    for (field, place) in models().iter().zip(0..) {
        let targets = field.node.get("targets").map(YamlNode::items).unwrap_or_default();
        let mut upstreams = HashSet::new();
        for target in targets {
            let Some(upstream) = target.text_of("upstream") else { continue };
            // The first target of an upstream is the one that counts, and the first model of a name.
            if upstreams.insert(upstream) {
                for name in std::iter::once(field.key.as_str()).chain(target.text_of("model")) {
                    places.entry((upstream, name)).or_insert(place);
                }
            }
        }
    }
    places
});

fn models() -> &'static [MappingField] {
    let list: Option<&'static YamlNode> = LIST.as_ref();
    list.and_then(|list| list.get("models")).map(YamlNode::fields).unwrap_or_default()
}

/// Finds a model by the name that it has at an upstream of the list.
pub(super) fn find(upstream: &str, model: &str) -> Option<ShippedModel> {
    let found = models().get(*PLACES.get(&(upstream, model))?)?;
    let free = found.node.text_of("free") == Some("true");
    let operations = found.node.get("operations").map(YamlNode::items).unwrap_or_default();
    let operations: Vec<Operation> = operations.iter().filter_map(operation).collect();
    let prices = found.node.get("prices").map(YamlNode::fields).unwrap_or_default();
    let typed = |unit: &Unit| {
        let field = prices.iter().find(|field| field.key == unit.info().price)?;
        Some((*unit, field.node.text()?.to_owned()))
    };
    let prices = Unit::ALL.iter().filter_map(typed).collect();
    let limits = found.node.get("limits").map(YamlNode::fields).unwrap_or_default();
    let limits = limits.iter().filter_map(|field| Some((field.key.clone(), written(&field.node)?)));
    let limits = limits.collect();
    let when = found.node.get("prices_when").map(YamlNode::items).unwrap_or_default();
    let is_text = operations.iter().any(|operation| operation.info().is_prompt);
    let prices_when: Option<Vec<String>> =
        when.iter().filter(|entry| !is_text || is_of_length(entry)).map(entry_as_written).collect();
    // A price under a condition that cannot be written would be sold at another one.
    Some(ShippedModel { operations, free, prices, prices_when: prices_when?, limits })
}

fn operation(node: &YamlNode) -> Option<Operation> {
    let word = node.text()?;
    Operation::ALL.into_iter().find(|operation| operation.as_str() == word)
}

/// True for an entry of `prices_when` that depends on the length of a prompt alone.
fn is_of_length(entry: &YamlNode) -> bool {
    let conditions = entry.get("when").map(YamlNode::fields).unwrap_or_default();
    conditions.iter().all(|field| field.key == "input_tokens_above")
}

/// An entry of `prices_when` as it is written.
fn entry_as_written(entry: &YamlNode) -> Option<String> {
    let pairs = |node: &YamlNode| {
        let pairs = node
            .fields()
            .iter()
            .map(|field| Some(format!("{}: {}", field.key, field.node.text()?)));
        pairs.collect::<Option<Vec<_>>>().map(|pairs| pairs.join(", "))
    };
    let (when, prices) = (pairs(entry.get("when")?)?, pairs(entry.get("prices")?)?);
    Some(format!("{{ when: {{ {when} }}, prices: {{ {prices} }} }}"))
}

/// A limit as it is written: a word, or several in brackets.
fn written(node: &YamlNode) -> Option<String> {
    if let Some(text) = node.text() {
        return Some(text.to_owned());
    }
    let words: Option<Vec<&str>> = node.items().iter().map(YamlNode::text).collect();
    Some(format!("[{}]", words?.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_found_by_either_name_at_their_upstream_alone() {
        let found = find("openai", "gpt-4o-mini").expect("it is listed");
        assert!(found.prices.contains(&(Unit::InputTokens, "0.15".to_owned())), "{found:?}");
        assert!(found.limits.contains(&("context_tokens_max".into(), "128000".into())));
        assert!(find("anthropic", "claude-sonnet-4-5-20250929").is_some(), "the provider's name");
        assert!(find("anthropic", "gpt-4o-mini").is_none(), "another provider");
        let image = find("openai", "gpt-image-1").expect("it is listed");
        assert!(image.operations.contains(&Operation::ImageGeneration), "{image:?}");
        assert!(image.prices.iter().any(|(unit, _)| *unit == Unit::ImageInputTokens), "{image:?}");
        assert!(find("openai", "omni-moderation-latest").is_some_and(|found| found.free));
        let long = find("gemini", "gemini-2.5-pro").expect("it is listed").prices_when;
        let begin = "{ when: { input_tokens_above: 200000 }, prices: { input_per_1m_tokens: 2.50";
        assert!(matches!(long.as_slice(), [one] if one.starts_with(begin)), "{long:?}");
    }
}
