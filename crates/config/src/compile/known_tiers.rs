//! Providers' prices that a model's own do not tell of, as the list of models that comes with this build
//! knows them.

use super::prices::field;
use crate::document::{Document, Fault};
use crate::raw;
use crate::spans::Path;
use tollgate_money::price::Unit;

/// Models that cost more above so many input tokens, by the provider's name. A test holds them against
/// `models.yaml`: reading that at each start would take longer than all else.
const KNOWN: &[(&str, &[u64])] = &[
    ("MiniMax-M3", &[512_000]),
    ("claude-haiku-5-5", &[100_000]),
    ("gemini-2.5-pro", &[200_000]),
    ("gemini-3.1-pro-preview", &[200_000]),
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

/// Notes a model whose provider asks more for long prompts than its prices do.
pub(super) fn check(document: &mut Document, at: &Path, id: &str, raw: &raw::Model) {
    let is_long = |above: u64| raw.limits.context_tokens_max.is_some_and(|most| most > above);
    let has_tiers = raw.prices_when.iter().any(|one| one.when.input_tokens_above.is_some());
    if raw.free || has_tiers {
        return;
    }
    let names = raw.targets.iter().map(|target| target.model.as_deref().unwrap_or(id));
    let known = |name: &str| KNOWN.iter().find(|(known, _)| *known == name);
    let mut known = names.filter_map(|name| Some((name, known(name)?.1.first().copied()?)));
    if let Some((name, above)) = known.find(|(_, above)| is_long(*above)) {
        let message =
            format!("`{name}` costs more above {above} input tokens, and no price here says so");
        let help = format!(
            "`prices_when: [{{ when: {{ input_tokens_above: {above} }}, prices: {{ {}: … }} }}]`, or \
             a lower `context_tokens_max`",
            field(Unit::InputTokens)
        );
        document.note(Fault::at_key(&at.key("prices"), message).help(help));
    }
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
        let known: BTreeMap<String, Vec<u64>> =
            KNOWN.iter().map(|(name, above)| ((*name).to_owned(), above.to_vec())).collect();
        assert_eq!(known, listed, "KNOWN, and models.yaml");
    }
}
