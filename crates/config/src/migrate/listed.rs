//! Prices and limits of the list of models that comes with this build.

use super::field::PRICES;
use super::tree::{self, Node};
use tollgate_money::price::Unit;

/// What the list says of a model.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    /// Units and the dollars that their price fields have.
    pub(super) prices: Vec<(Unit, String)>,
    /// What it costs above so many input tokens, as entries of `prices_when` are written.
    pub(super) prices_when: Vec<String>,
    /// Limits, as they are written.
    pub(super) limits: Vec<(String, String)>,
}

/// Finds a model by the name that it has at an upstream of the list.
pub(super) fn find(upstream: &str, model: &str) -> Option<Listed> {
    let list = tree::parse(include_str!("../../../../models.yaml")).ok()?;
    let models = list.get("models")?.fields();
    let is_it = |id: &str, entry: &Node| {
        let targets = entry.get("targets").map(Node::items).unwrap_or_default();
        let at = targets.iter().find(|target| target.text_of("upstream") == Some(upstream));
        at.is_some_and(|target| id == model || target.text_of("model") == Some(model))
    };
    let found = models.iter().find(|field| is_it(&field.key, &field.node))?;
    let prices = found.node.get("prices")?;
    let prices = PRICES
        .iter()
        .filter_map(|(_, unit)| Some((*unit, prices.text_of(unit.info().price)?.to_owned())))
        .collect();
    let limits = found.node.get("limits").map(Node::fields).unwrap_or_default();
    let limits = limits.iter().filter_map(|field| Some((field.key.clone(), written(&field.node)?)));
    let when = found.node.get("prices_when").map(Node::items).unwrap_or_default();
    let prices_when = when.iter().filter_map(above_tokens).collect();
    Some(Listed { prices, prices_when, limits: limits.collect() })
}

/// An entry that depends on the length of a prompt alone, as it is written.
fn above_tokens(entry: &Node) -> Option<String> {
    let pairs = |node: &Node| {
        let pairs = node
            .fields()
            .iter()
            .map(|field| Some(format!("{}: {}", field.key, field.node.text()?)));
        pairs.collect::<Option<Vec<_>>>()
    };
    let when = pairs(entry.get("when")?)?;
    let is_length = |pair: &String| pair.starts_with("input_tokens_above:");
    let prices = pairs(entry.get("prices")?)?.join(", ");
    when.iter()
        .all(is_length)
        .then(|| format!("{{ when: {{ {} }}, prices: {{ {prices} }} }}", when.join(", ")))
}

/// A limit as it is written: a word, or several in brackets.
fn written(node: &Node) -> Option<String> {
    if let Some(text) = node.text() {
        return Some(text.to_owned());
    }
    let words: Option<Vec<&str>> = node.items().iter().map(Node::text).collect();
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
        let long = find("gemini", "gemini-2.5-pro").expect("it is listed").prices_when;
        let begin = "{ when: { input_tokens_above: 200000 }, prices: { input_per_1m_tokens: 2.50";
        assert!(matches!(long.as_slice(), [one] if one.starts_with(begin)), "{long:?}");
    }
}
