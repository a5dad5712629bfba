//! Prices of a model, as lines of a page.

use serde_json::{Map, Value};

use super::show;
use tollgate_money::price::UNITS;

/// Prices that hold under one condition and are for the same amount of units.
#[derive(Debug, PartialEq, Eq)]
pub struct PriceLine {
    /// Condition of the price; empty for always.
    pub when: String,
    /// The prices: `input $2.50, output $15.00 per 1M tokens`.
    pub text: String,
}

/// Prices as [`tollgate_pricing`] writes them, a line for each condition and amount of units.
pub fn price_lines(pricing: &Value) -> Vec<PriceLine> {
    let mut lines = together("", pricing);
    for branch in pricing["prices_when"].as_array().into_iter().flatten() {
        let when = branch["when"].as_object().map(condition).unwrap_or_default();
        lines.extend(together(&when, &branch["prices"]));
    }
    if lines.is_empty() {
        lines.push(PriceLine { when: String::new(), text: "nothing".to_owned() });
    }
    lines
}

/// The prices of one condition, in the order of units; those for the same amount stand together.
fn together(when: &str, prices: &Value) -> Vec<PriceLine> {
    let mut lines: Vec<(String, Vec<String>)> = Vec::new();
    for unit in UNITS {
        let Some(dollars) = prices[unit.price].as_str() else { continue };
        let Some((what, per)) = unit.price.split_once("per_") else { continue };
        let per = words(per).replace("1m ", "1M ").replace("1k ", "1,000 ");
        let price = format!("{} ${dollars}", words(what)).trim_start().to_owned();
        // Units of one amount are neighbours in the table of units.
        match lines.last_mut().filter(|(other, _)| *other == per) {
            Some((_, prices)) => prices.push(price),
            None => lines.push((per, vec![price])),
        }
    }
    let line = |(per, prices): (String, Vec<String>)| PriceLine {
        when: when.to_owned(),
        text: format!("{} per {per}", prices.join(", ")),
    };
    lines.into_iter().map(line).collect()
}

/// A condition in words: `input tokens above 200,000, service tier priority`.
fn condition(when: &Map<String, Value>) -> String {
    let word = |(name, value): (&String, &Value)| match value {
        Value::Bool(true) => format!("with {}", words(name)),
        Value::Bool(false) => format!("without {}", words(name)),
        Value::Number(number) => {
            let count = number.as_u64().unwrap_or_default();
            format!("{} {}", words(name), show::count(&count))
        }
        Value::String(text) => format!("{} {text}", words(name)),
        _ => words(name),
    };
    when.iter().map(word).collect::<Vec<_>>().join(", ")
}

/// A name of `models.yaml` as words.
fn words(name: &str) -> String {
    name.trim_end_matches('_').replace('_', " ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn prices_are_told_in_lines() {
        let pricing = json!({
            "currency": "USD",
            "version": "abcdefgh",
            "input_per_1m_tokens": "2.50",
            "output_per_1m_tokens": "15.00",
            "per_1k_web_searches": "10.00",
            "per_image": "0.04",
            "prices_when": [{
                "when": {"input_tokens_above": 200_000, "service_tier": "flex", "thinking": false},
                "prices": {"output_per_1m_tokens": "30.00"},
            }],
        });
        let lines = price_lines(&pricing);
        let lines: Vec<_> =
            lines.iter().map(|line| (line.when.as_str(), line.text.as_str())).collect();
        let when = "input tokens above 200,000, service tier flex, without thinking";
        assert_eq!(
            lines,
            [
                ("", "input $2.50, output $15.00 per 1M tokens"),
                ("", "$0.04 per image"),
                ("", "$10.00 per 1,000 web searches"),
                (when, "output $30.00 per 1M tokens"),
            ]
        );
        let [free] = &price_lines(&json!({"currency": "USD"}))[..] else { panic!("one line") };
        assert_eq!(free.text, "nothing");
    }
}
