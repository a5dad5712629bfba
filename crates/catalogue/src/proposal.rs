//! Prices of a model as text for `models.yaml`.

use tollgate_money::money::Rate;
use tollgate_money::price::Unit;

use crate::condition::as_flow;
use crate::own::OwnModel;

/// A model's `prices` and `prices_when`, indented as they stand below `models`.
pub(crate) fn yaml(model: &OwnModel) -> String {
    let mut lines = vec![format!("  {}:", key(&model.id))];
    if !model.base.is_empty() {
        lines.push("    prices:".to_owned());
        lines
            .extend(model.base.iter().map(|(unit, rate)| format!("      {}", price(*unit, *rate))));
    }
    if !model.when.is_empty() {
        lines.push("    prices_when:".to_owned());
    }
    for (condition, rates) in &model.when {
        let prices: Vec<_> = rates.iter().map(|(unit, rate)| price(*unit, *rate)).collect();
        lines.push(format!("      - when: {}", as_flow(condition)));
        lines.push(format!("        prices: {{ {} }}", prices.join(", ")));
    }
    lines.join("\n")
}

/// A price line: `input_per_1m_tokens: 0.15`.
pub(crate) fn price(unit: Unit, rate: Rate) -> String {
    let info = unit.info();
    format!("{}: {}", info.price, rate.dollars(info.per))
}

/// A model's id as a YAML key, quoted if necessary.
fn key(id: &str) -> String {
    // YAML 1.1 reads these as booleans or null.
    let is_word = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"]
        .contains(&id.to_ascii_lowercase().as_str());
    let is_plain =
        id.starts_with(|first: char| first.is_ascii_alphabetic()) && !id.ends_with(':') && !is_word;
    if is_plain { id.to_owned() } else { format!("'{id}'") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::in_tier;
    use tollgate_money::price::ServiceTier;

    #[test]
    fn prices_are_written_as_they_are_typed() {
        let rate = |femtousd| Rate::from_femtousd(femtousd);
        let base = vec![
            (Unit::InputTokens, rate(150_000_000)),
            (Unit::CacheReadTokens, rate(37_500_000)),
            (Unit::WebSearches, rate(10_000_000_000_000)),
        ];
        let priority = vec![(Unit::InputTokens, rate(250_000_000))];
        let when = vec![(in_tier(ServiceTier::Priority), priority)];
        let model = OwnModel { id: "gpt-4o-mini".to_owned(), base, when, ..OwnModel::default() };
        let expected = "  gpt-4o-mini:
    prices:
      input_per_1m_tokens: 0.15
      cached_input_per_1m_tokens: 0.0375
      per_1k_web_searches: 10.00
    prices_when:
      - when: { service_tier: priority }
        prices: { input_per_1m_tokens: 0.25 }";
        assert_eq!(yaml(&model), expected);
    }

    #[test]
    fn ids_that_yaml_would_misread_are_quoted() {
        for (id, expected) in
            [("o3", "o3"), ("claude-*", "claude-*"), ("4o", "'4o'"), ("on", "'on'"), ("*", "'*'")]
        {
            assert_eq!(key(id), expected);
        }
    }
}
