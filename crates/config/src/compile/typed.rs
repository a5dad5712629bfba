//! Models with the prices that were typed, for who compares them with those of others.

use super::prices_when;
use crate::document::Document;
use crate::raw;
use tollgate_money::money::Rate;
use tollgate_money::price::{Condition, Unit};

/// A model of `models.yaml` with the prices that were typed. What has a price by default has none here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypedModel {
    /// The id that customers use, or a pattern of such ids.
    pub id: String,
    /// Operations, as words of the file.
    pub operations: Vec<&'static str>,
    /// The upstream of each target, and its name for the model where that was typed.
    pub targets: Vec<(String, Option<String>)>,
    /// True for a model with `free: true`.
    pub free: bool,
    /// The prices below `prices`.
    pub prices: Vec<(Unit, Rate)>,
    /// The entries of `prices_when` with the prices that each names, in the order of the file.
    pub prices_when: Vec<(Condition, Vec<(Unit, Rate)>)>,
    /// Context size in tokens.
    pub context_tokens_max: Option<u64>,
    /// Output limit in tokens.
    pub output_tokens_max: Option<u64>,
}

/// The models of a file whose fields are in order; `None` when some are not, which the document then
/// says. Whether they fit together is not asked. A model with a variable that is not set is left out,
/// with a warning: prices are compared where the service's variables are not.
pub(crate) fn typed_models(document: &mut Document) -> Option<Vec<TypedModel>> {
    document.leave_unfilled_out();
    let raw: Option<raw::Models> = document.read(&["models"]);
    let raw = raw.filter(|_| !document.has_errors())?;
    let typed = raw.models.0.into_iter().map(|(id, raw)| TypedModel {
        id,
        operations: raw.operations.iter().map(|name| name.0.as_str()).collect(),
        prices: rates(&raw.prices),
        prices_when: raw
            .prices_when
            .iter()
            .map(|one| (prices_when::condition(&one.when), rates(&one.prices)))
            .collect(),
        targets: raw.targets.into_iter().map(|target| (target.upstream, target.model)).collect(),
        free: raw.free,
        context_tokens_max: raw.limits.context_tokens_max,
        output_tokens_max: raw.limits.output_tokens_max,
    });
    Some(typed.collect())
}

fn rates(prices: &raw::PricesSection) -> Vec<(Unit, Rate)> {
    let typed = |unit: &Unit| prices.rate(*unit).map(|rate| (*unit, rate));
    Unit::ALL.iter().filter_map(typed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_money::price::ServiceTier;

    #[test]
    fn models_have_the_prices_that_were_typed() {
        let text = "models:\n  m-*:\n    operations: [chat, responses]\n    targets: [{ upstream: a }, \
                    { upstream: b, model: n }]\n    prices: { input_per_1m_tokens: 0.15, \
                    output_per_1m_tokens: '${PRICE:-1}' }\n    prices_when:\n      - when: { \
                    service_tier: flex }\n        prices: { output_per_1m_tokens: 0.5 }\n    limits: \
                    { context_tokens_max: 1000 }\n";
        let schema = crate::models_schema();
        let mut document =
            Document::parse("models.yaml", text.as_bytes(), &|_| None, schema).expect("YAML");
        let models = typed_models(&mut document).expect("in order");
        let [model] = models.as_slice() else { panic!("{models:?}") };
        assert_eq!(model.operations, ["chat", "responses"]);
        let named = ("b".to_owned(), Some("n".to_owned()));
        assert_eq!(model.targets, [("a".to_owned(), None), named]);
        let milli = |count: i64| Rate::from_femtousd(count * 1_000_000);
        let base = [(Unit::InputTokens, milli(150)), (Unit::OutputTokens, milli(1000))];
        assert_eq!(model.prices, base, "and no cached input");
        let [(condition, prices)] = model.prices_when.as_slice() else { panic!("{model:?}") };
        assert_eq!(condition.traits.service_tier, Some(ServiceTier::Flex));
        assert_eq!(prices, &[(Unit::OutputTokens, milli(500))]);
        assert_eq!((model.context_tokens_max, model.output_tokens_max), (Some(1000), None));
    }

    #[test]
    fn a_file_with_errors_has_no_models() {
        let text = "models:\n  m:\n    operations: [chat]\n    targets: []\n    prices: { \
                    input_per_1m_tokens: cheap }\n";
        let schema = crate::models_schema();
        let mut document =
            Document::parse("models.yaml", text.as_bytes(), &|_| None, schema).expect("YAML");
        assert_eq!(typed_models(&mut document), None);
        assert!(!document.into_diagnostics().is_empty());
    }
}
