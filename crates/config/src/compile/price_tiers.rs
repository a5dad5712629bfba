//! Providers' prices that a model's own do not tell of, as the list of models that comes with this build
//! knows them.

use super::price_fields::field;
use crate::document::{Document, Fault};
use crate::raw;
use crate::spans::DocumentPath;
use tollgate_money::price::Unit;

/// Models that cost more above so many input tokens, by the provider's name. A test holds them against
/// `models.yaml`: reading that at each start would take longer than all else.
const TIERS: &[(&str, &[u64])] = &[
    ("MiniMax-M3", &[512_000]),
    ("claude-haiku-5-5", &[100_000]),
    ("gemini-2.5-pro", &[200_000]),
    ("gemini-3.1-pro-preview", &[200_000]),
    ("gemini-3.1-pro-preview-customtools", &[200_000]),
    ("gpt-5.4", &[272_000]),
    ("gpt-5.5", &[272_000]),
    ("gpt-5.6-luna", &[272_000]),
    ("gpt-5.6-sol", &[272_000]),
    ("gpt-5.6-terra", &[272_000]),
    ("gpt-6-astra", &[272_000]),
    ("gpt-6-luna", &[272_000]),
    ("gpt-6-sol", &[272_000]),
    ("gpt-6.1-sol", &[272_000]),
    ("gpt-6.1-terra", &[272_000]),
    ("grok-4.20-0309-non-reasoning", &[199_999]),
    ("grok-4.3", &[199_999]),
    ("grok-4.5", &[199_999]),
    ("grok-4.6", &[199_999]),
    ("grok-4.7", &[199_999]),
    ("qwen-flash", &[256_000]),
    ("qwen-plus", &[256_000]),
    ("qwen3-coder-plus", &[32_000, 128_000, 256_000]),
    ("qwen3-max", &[32_000, 128_000]),
    ("qwen3.7-flash", &[32_000, 256_000]),
    ("qwen3.7-plus", &[256_000]),
];

/// Notes a model whose provider asks more for long prompts than its prices do, at each length from
/// which it does.
pub(super) fn check(document: &mut Document, at: &DocumentPath, id: &str, raw: &raw::ModelEntry) {
    if raw.free {
        return;
    }
    let names = raw.targets.iter().map(|target| target.model.as_deref().unwrap_or(id));
    let found = names.filter_map(|name| {
        let (_, tiers) = tiers_of(name)?;
        Some((name, missing(tiers, raw)))
    });
    // Targets can differ, and a model has one list of prices: the target with most lengths counts.
    let Some((name, missing)) = found.max_by_key(|(_, missing)| missing.len()) else { return };
    let Some(first) = missing.first() else { return };
    let lengths: Vec<String> = missing.iter().map(u64::to_string).collect();
    let lengths = lengths.join(" and ");
    let message =
        format!("`{name}` costs more above {lengths} input tokens, and no price here says so");
    let help = format!(
        "`prices_when: [{{ when: {{ input_tokens_above: {first} }}, prices: {{ {}: … }} }}]`, or \
         a lower `context_tokens_max`",
        field(Unit::InputTokens)
    );
    document.note(Fault::at_key(&at.key("prices"), message).help(help));
}

/// Known tiers of a provider's model: by the name itself, with a list's prefix or a release's date around it,
/// or by a pattern.
fn tiers_of(name: &str) -> Option<&'static (&'static str, &'static [u64])> {
    // Aggregators put the maker in front: `openai/gpt-5.4`.
    let name = name.rsplit('/').next().unwrap_or(name);
    let is_date = |text: &str| {
        let is_plain = |byte: u8| byte.is_ascii_digit() || byte == b'-';
        text.starts_with("-20") && text.bytes().all(is_plain)
    };
    TIERS.iter().find(|(model, _)| match name.strip_suffix('*') {
        Some(beginning) => {
            (!beginning.is_empty() && model.starts_with(beginning))
                || beginning.strip_prefix(model).is_some_and(is_date)
        }
        None => name.strip_prefix(model).is_some_and(|rest| rest.is_empty() || is_date(rest)),
    })
}

/// The known lengths that prompts can exceed and that no price is for: each needs one from there on, or
/// from a shorter length that is above the one before.
fn missing(tiers: &[u64], raw: &raw::ModelEntry) -> Vec<u64> {
    // Of a price for one tier alone, those of the others are still missing.
    let is_general = |when: &raw::WhenSection| {
        when.service_tier.is_none() && when.speed.is_none() && when.inference_geo.is_none()
    };
    let all = raw.prices_when.iter().map(|one| &one.when).filter(|when| is_general(when));
    let typed: Vec<u64> = all.filter_map(|when| when.input_tokens_above).collect();
    let longest = raw.limits.context_tokens_max.unwrap_or(0);
    let mut before = 0;
    let is_missing = |above: &&u64| {
        let from = std::mem::replace(&mut before, **above);
        // A prompt cannot be longer than the context, so a lower `context_tokens_max` needs no price.
        longest > **above && !typed.iter().any(|typed| (from < *typed) && *typed <= **above)
    };
    tiers.iter().filter(is_missing).copied().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn what_is_known_is_what_the_list_of_models_says() {
        let text = include_str!("../../../../models.yaml");
        let schema = crate::models_schema();
        let mut document =
            Document::parse("models.yaml", text.as_bytes(), &|_| None, schema).expect("YAML");
        let models = crate::compile::typed_models(&mut document).expect("in order");
        let mut listed: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for model in &models {
            let above =
                model.prices_when.iter().filter_map(|(condition, _)| condition.input_tokens_above);
            let mut above: Vec<u64> = above.collect();
            above.sort_unstable();
            above.dedup();
            for (_, name) in model.targets.iter().filter(|_| !above.is_empty()) {
                listed.insert(name.clone().unwrap_or_else(|| model.id.clone()), above.clone());
            }
        }
        let tiers: BTreeMap<String, Vec<u64>> =
            TIERS.iter().map(|(name, above)| ((*name).to_owned(), above.to_vec())).collect();
        assert_eq!(tiers, listed, "TIERS, and models.yaml");
    }

    #[test]
    fn a_name_is_known_by_its_beginning_and_by_what_stands_around_it() {
        for (name, expected) in [
            ("gpt-5.4", Some("gpt-5.4")),
            ("gpt-5.4-2026-03-05", Some("gpt-5.4")),
            ("openai/gpt-5.4", Some("gpt-5.4")),
            ("gpt-5.4-20*", Some("gpt-5.4")),
            ("gpt-5.4*", Some("gpt-5.4")),
            ("gemini-2.5*", Some("gemini-2.5-pro")),
            ("gpt-5.4-mini", None),
            ("gpt-5.4-mini*", None),
            ("*", None),
            ("gpt-5", None),
        ] {
            assert_eq!(tiers_of(name).map(|(model, _)| *model), expected, "{name}");
        }
    }
}
