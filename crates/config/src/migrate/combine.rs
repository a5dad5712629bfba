//! Several entries of one name as one model.

use super::Migration;
use super::deployment::{Deployment, RATE_MAX};
use super::field::PRICES;
use super::plan::{PlannedModel, PlannedTarget};
use tollgate_money::price::Unit;

/// The heaviest that a target can be.
const WEIGHT_MAX: u64 = 1000;

/// A figure of an entry, if it has it.
type Limit = fn(&Deployment) -> Option<u64>;

impl Migration<'_> {
    /// Makes one model of all entries of a name.
    pub(super) fn model(&mut self, deployments: &[Deployment]) -> PlannedModel {
        let Some(first) = deployments.first() else { return PlannedModel::default() };
        let mut model = PlannedModel { id: first.name.clone(), ..PlannedModel::default() };
        let weights = weights(deployments);
        for (deployment, weight) in deployments.iter().zip(weights) {
            for (operation, upstream) in &deployment.served {
                if !model.operations.contains(operation) {
                    model.operations.push(operation);
                }
                let target = PlannedTarget {
                    upstream: upstream.clone(),
                    model: deployment.own.clone(),
                    priority: deployment.priority,
                    weight,
                };
                let is_same = |known: &&mut PlannedTarget| {
                    (&known.upstream, &known.model) == (&target.upstream, &target.model)
                };
                match model.targets.iter_mut().find(is_same) {
                    None => model.targets.push(target),
                    Some(_)
                        if deployment.served.iter().filter(|(_, u)| u == upstream).count() > 1 => {}
                    Some(_) => {
                        let help = "one target is enough: give it the `weight` of both";
                        self.left_out(deployment.mark, "this target is there already", help);
                    }
                }
            }
        }
        self.rates(deployments, &mut model);
        self.fill_prices(deployments, &mut model);
        fill_limits(deployments, &mut model);
        if !model.missing.is_empty() {
            let missing = model.missing.join(", ");
            let message = format!("`{}` is written as a comment: it lacks {missing}", model.id);
            let help = "LiteLLM has a list of prices and limits of its own, which is not read: \
                        fill it in, and take the comment signs away";
            self.left_out(first.mark, &message, help);
        }
        model
    }

    /// Limits of single targets become one of the model, if each of them has one.
    fn rates(&mut self, deployments: &[Deployment], model: &mut PlannedModel) {
        let limits: [(&str, Limit); 3] = [
            ("requests_per_minute", |deployment| deployment.rpm),
            ("tokens_per_minute", |deployment| deployment.tpm),
            ("concurrent_requests", |deployment| deployment.concurrent),
        ];
        let sum = |limit: Limit| {
            deployments.iter().map(limit).sum::<Option<u64>>().filter(|sum| *sum <= RATE_MAX)
        };
        for (field, limit) in limits {
            if let Some(sum) = sum(limit) {
                model.rates.insert(field, sum);
            } else if deployments.iter().any(|deployment| limit(deployment).is_some())
                && let Some(first) = deployments.first()
            {
                let message =
                    format!("the {field} of single targets of `{}` are left out", model.id);
                let help = "a limit is a model's: it is kept where all of its targets have one";
                self.left_out(first.mark, &message, help);
            }
        }
    }

    /// One model has one price: the highest that is said for each kind, else that of our own list.
    fn fill_prices(&mut self, deployments: &[Deployment], model: &mut PlannedModel) {
        let wanted = wanted_prices(&model.operations);
        let dollars = |text: &String| text.parse::<rust_decimal::Decimal>().unwrap_or_default();
        let said: Vec<_> = deployments.iter().filter(|one| !one.prices.is_empty()).collect();
        if let Some(first) = said.first() {
            for (_, unit) in PRICES {
                let all = said.iter().flat_map(|one| &one.prices);
                let of_unit = all.filter(|(priced, _)| priced == unit).map(|(_, price)| price);
                if let Some(price) = of_unit.max_by_key(|price| dollars(price))
                    && wanted.contains(unit)
                {
                    model.prices.push((*unit, price.clone()));
                }
            }
            if said.iter().any(|one| one.prices != first.prices) {
                let message = format!("the targets of `{}` have different prices", model.id);
                let help = "a model has one price here: the highest of each kind is written";
                self.left_out(first.mark, &message, help);
            }
        } else if let Some(listed) = deployments.iter().find_map(|one| one.listed.as_ref()) {
            model.prices.clone_from(&listed.prices);
            model.prices.retain(|(unit, _)| wanted.contains(unit));
            model.prices_when.clone_from(&listed.prices_when);
            model.comments.push("Prices of Tollgate's own list: check them.".to_owned());
            if let Some(first) = deployments.first() {
                let message =
                    format!("`{}` has no prices: those of our own list are written", model.id);
                self.note(first.mark, message, "check them against your contracts");
            }
        }
        let is_zero = |(_, price): &(Unit, String)| dollars(price).is_zero();
        model.free = !model.prices.is_empty() && model.prices.iter().all(is_zero);
        if !model.free {
            let has = |unit: Unit| model.prices.iter().any(|(priced, _)| *priced == unit);
            let missing = wanted.iter().map(|unit| unit.info());
            let missing = missing.filter(|unit| unit.priced_as.is_none() && !has(unit.unit));
            let missing: Vec<_> = missing.map(|unit| unit.price).collect();
            // An image has a price, or its tokens have; and so it is with a ranking.
            let is_image = model.operations.contains(&"image_generation");
            let has_other = match model.operations[..] {
                ["rerank"] => has(Unit::InputTokens) || has(Unit::RerankUnits),
                _ => is_image && has(Unit::InputTokens) && has(Unit::OutputTokens),
            };
            if !has_other {
                model.missing.extend(missing);
            }
        }
    }
}

/// The units that operations are billed by, and those that are looked at beside them.
fn wanted_prices(operations: &[&str]) -> &'static [Unit] {
    use Unit::{
        CacheReadTokens, CacheWrite1hTokens, CacheWriteTokens, Characters, Images, InputTokens,
        OutputTokens, RerankUnits,
    };
    match operations {
        ["embeddings"] => &[InputTokens],
        ["rerank"] => &[InputTokens, RerankUnits],
        ["image_generation"] => &[Images],
        ["speech"] => &[Characters],
        _ => &[InputTokens, CacheReadTokens, CacheWriteTokens, CacheWrite1hTokens, OutputTokens],
    }
}

/// Weights as they are said, or else in the proportion of the rates, as LiteLLM draws them; within
/// what can be written.
fn weights(deployments: &[Deployment]) -> Vec<u64> {
    let all = |share: Limit| deployments.iter().map(share).collect::<Option<Vec<u64>>>();
    let shares =
        all(|one| one.weight).or_else(|| all(|one| one.rpm)).or_else(|| all(|one| one.tpm));
    let shares = shares.unwrap_or_else(|| {
        deployments.iter().map(|deployment| deployment.weight.unwrap_or(1)).collect()
    });
    let divisor = shares.iter().copied().fold(0, gcd).max(1);
    let largest = shares.iter().max().map_or(1, |largest| largest / divisor);
    let scale = largest.div_ceil(WEIGHT_MAX).max(1);
    shares.iter().map(|share| (share / divisor / scale).max(1)).collect()
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The limits that operations need: the least that is said, else those of our own list.
fn fill_limits(deployments: &[Deployment], model: &mut PlannedModel) {
    let is_text = ["chat", "messages", "responses"];
    let is_text = model.operations.iter().any(|operation| is_text.contains(operation));
    let listed = deployments.iter().find_map(|one| one.listed.as_ref());
    if !is_text {
        if let Some(listed) = listed {
            model.limits.clone_from(&listed.limits);
        }
        return;
    }
    for field in ["context_tokens_max", "output_tokens_max"] {
        let all = deployments.iter().flat_map(|one| &one.limits);
        let said = all.filter(|(name, _)| name == field).map(|(_, count)| count);
        let least = said.min_by_key(|count| count.parse::<u64>().unwrap_or(u64::MAX));
        let of_list =
            || listed?.limits.iter().find(|(name, _)| name == field).map(|(_, count)| count);
        match least.or_else(of_list) {
            Some(count) => model.limits.push((field.to_owned(), count.clone())),
            None => model.missing.push(field),
        }
    }
}
