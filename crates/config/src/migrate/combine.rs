//! Several entries of one name as one model.

use std::collections::HashSet;

use super::Migration;
use super::deployment::{Deployment, RATE_MAX};
use super::plan::{PlannedModel, PlannedTarget};
use crate::compile::{has_effect, lacking};
use tollgate_money::price::Unit;
use tollgate_protocols::{Dialect, Operation};

/// The heaviest that a target can be.
const WEIGHT_MAX: u64 = 1000;

/// Reads a figure of an entry, if present.
type LimitField = fn(&Deployment) -> Option<u64>;

impl Migration<'_> {
    /// Combines all entries of a name into one model.
    pub(super) fn model(&mut self, deployments: &[Deployment]) -> PlannedModel {
        let Some(first) = deployments.first() else { return PlannedModel::default() };
        let mut model = PlannedModel { id: first.name.clone(), ..PlannedModel::default() };
        model.operations = common_operations(deployments);
        // OpenAI's clients go to targets that answer them without a translation, where there are any.
        let is_openai = |one: &Deployment| one.dialect == Dialect::Openai;
        let answers_openai = deployments.iter().any(is_openai);
        let mut seen = HashSet::new();
        for (deployment, weight) in deployments.iter().zip(weights(deployments)) {
            let compatible = deployment.compatible.clone().filter(|_| answers_openai);
            let compatible = compatible.map(|upstream| self.plan.upstream(upstream));
            for upstream in std::iter::once(deployment.upstream.clone()).chain(compatible) {
                let target = PlannedTarget {
                    upstream,
                    model: deployment.own.clone(),
                    priority: deployment.priority,
                    weight,
                };
                // Our configuration refuses the same target twice.
                if seen.insert((target.upstream.clone(), target.model.clone())) {
                    model.targets.push(target);
                    continue;
                }
                let help = "one target is enough: give it the `weight` of both";
                self.left_out(deployment.mark, "this target is there already", help);
            }
        }
        self.dialects(deployments, &model);
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

    /// Warns of a model whose targets speak several protocols: they do not stand in for each other.
    fn dialects(&mut self, deployments: &[Deployment], model: &PlannedModel) {
        let Some(first) = deployments.first() else { return };
        let is_text = model.operations.iter().any(|operation| operation.info().is_prompt);
        let answers_openai = deployments.iter().any(|one| one.dialect == Dialect::Openai);
        let spoken = |one: &Deployment| match one.compatible {
            Some(_) if answers_openai => Dialect::Openai,
            _ => one.dialect,
        };
        let is_mixed = deployments.iter().any(|one| spoken(one) != spoken(first));
        if is_text && is_mixed {
            let message = format!("the targets of `{}` speak different protocols", model.id);
            let help = "a request goes to those that speak its own, and to others only where none does: \
                        for one to stand in for another, make two models and list one in `fallbacks`";
            self.left_out(first.mark, &message, help);
        }
    }

    /// Limits of single targets become one of the model, if each of them has one.
    fn rates(&mut self, deployments: &[Deployment], model: &mut PlannedModel) {
        let limits: [(&str, LimitField); 3] = [
            ("requests_per_minute", |deployment| deployment.rpm),
            ("tokens_per_minute", |deployment| deployment.tpm),
            ("concurrent_requests", |deployment| deployment.concurrent),
        ];
        let sum = |limit: LimitField| {
            // A sum of some targets alone would be lower than what the model can take.
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

    /// Sets the prices of a model: the highest of its deployments for each unit, else that of the built-in
    /// list.
    fn fill_prices(&mut self, deployments: &[Deployment], model: &mut PlannedModel) {
        let priced: Vec<_> = deployments.iter().filter(|one| !one.prices.is_empty()).collect();
        let listed = deployments.iter().find_map(|one| one.listed.as_ref());
        if let Some(first) = priced.first() {
            // The highest of each kind: a lower one would sell the dearer target below its cost.
            model.prices = highest(&priced);
            let operations = &model.operations;
            let (kept, idle): (Vec<_>, Vec<_>) = std::mem::take(&mut model.prices)
                .into_iter()
                .partition(|(unit, _)| has_effect(*unit, operations));
            model.prices = kept;
            for (unit, _) in idle {
                let field = unit.info().price;
                let message = format!("the price `{field}` of `{}` is left out", model.id);
                let help = format!("it has no effect on {}", listed_names(operations));
                self.left_out(first.mark, &message, &help);
            }
            if priced.iter().any(|one| one.prices != first.prices) {
                let message = format!("the targets of `{}` have different prices", model.id);
                let help = "a model has one price here: the highest of each kind is written";
                self.left_out(first.mark, &message, help);
            }
        } else if let Some(listed) = listed {
            model.prices.clone_from(&listed.prices);
            model.prices.retain(|(unit, _)| has_effect(*unit, &model.operations));
            model.prices_when.clone_from(&listed.prices_when);
            model.free = listed.free;
            model.comments.push("Prices of Tollgate's own list: check them.".to_owned());
            if let Some(first) = deployments.first() {
                let message =
                    format!("`{}` has no prices: those of our own list are written", model.id);
                self.note(first.mark, message, "check them against your contracts");
            }
        }
        let is_zero = |(_, price): &(Unit, String)| dollars(price).is_zero();
        // Zeros alone: a model of the operator's own machines, which costs its users nothing.
        model.free |= !model.prices.is_empty() && model.prices.iter().all(is_zero);
        if !model.free {
            let priced: Vec<Unit> = model.prices.iter().map(|(unit, _)| *unit).collect();
            let missing = lacking(&priced, &model.operations);
            model.missing.extend(missing.into_iter().map(|unit| unit.info().price));
        }
    }
}

/// The operations of all targets together. One that has no Responses API would be sent its requests as
/// they are: then they are translated for all, which needs no entry.
fn common_operations(deployments: &[Deployment]) -> Vec<Operation> {
    let mut operations: Vec<Operation> = Vec::new();
    for operation in deployments.iter().flat_map(|one| &one.operations) {
        if !operations.contains(operation) {
            operations.push(*operation);
        }
    }
    let lacks_responses = |one: &Deployment| {
        one.dialect == Dialect::Openai
            && one.operations.contains(&Operation::Chat)
            && !one.operations.contains(&Operation::Responses)
    };
    let is_openai = |one: &Deployment| one.dialect == Dialect::Openai;
    let has_compatible =
        deployments.iter().any(|one| one.compatible.is_some()) && deployments.iter().any(is_openai);
    if deployments.iter().any(lacks_responses) || has_compatible {
        operations.retain(|operation| *operation != Operation::Responses);
    }
    operations
}

/// The highest price of each kind, in the order of the units.
fn highest(priced: &[&Deployment]) -> Vec<(Unit, String)> {
    let of = |unit: &Unit| {
        let all = priced.iter().flat_map(|one| &one.prices);
        let of_unit = all.filter(|(of, _)| of == unit).map(|(_, price)| price);
        of_unit.max_by_key(|price| dollars(price)).map(|price| (*unit, price.clone()))
    };
    Unit::ALL.iter().filter_map(of).collect()
}

fn dollars(text: &str) -> rust_decimal::Decimal {
    text.parse().unwrap_or_default()
}

fn listed_names(operations: &[Operation]) -> String {
    let names: Vec<&str> = operations.iter().map(|operation| operation.as_str()).collect();
    names.join(", ")
}

/// Weights as they are said, or else in the proportion of the rates, as LiteLLM draws them; within
/// what can be written.
fn weights(deployments: &[Deployment]) -> Vec<u64> {
    let all = |share: LimitField| deployments.iter().map(share).collect::<Option<Vec<u64>>>();
    let shares =
        all(|one| one.weight).or_else(|| all(|one| one.rpm)).or_else(|| all(|one| one.tpm));
    let shares = shares.unwrap_or_else(|| {
        deployments.iter().map(|deployment| deployment.weight.unwrap_or(1)).collect()
    });
    // Rates are in the thousands, and a weight has an upper bound: the ratio is what counts.
    let divisor = shares.iter().copied().fold(0, gcd).max(1);
    let largest = shares.iter().max().map_or(1, |largest| largest / divisor);
    let scale = largest.div_ceil(WEIGHT_MAX).max(1);
    // At least one: rounding must not take a target out.
    shares.iter().map(|share| (share / divisor / scale).max(1)).collect()
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Sets the limits that operations require: the lowest of the deployments, else those of the built-in list.
fn fill_limits(deployments: &[Deployment], model: &mut PlannedModel) {
    let is_text = model.operations.iter().any(|operation| operation.info().is_prompt);
    let listed = deployments.iter().find_map(|one| one.listed.as_ref());
    // Limits of other operations have no counterpart in `model_info`.
    if !is_text {
        if let Some(listed) = listed {
            model.limits.clone_from(&listed.limits);
        }
        return;
    }
    for field in ["context_tokens_max", "output_tokens_max"] {
        let all = deployments.iter().flat_map(|one| &one.limits);
        let counts = all.filter(|(name, _)| name == field).map(|(_, count)| count);
        // The least, so that no target gets a request that is too long for it.
        let least = counts.min_by_key(|count| count.parse::<u64>().unwrap_or(u64::MAX));
        let of_list =
            || listed?.limits.iter().find(|(name, _)| name == field).map(|(_, count)| count);
        match least.or_else(of_list) {
            Some(count) => model.limits.push((field.to_owned(), count.clone())),
            None => model.missing.push(field),
        }
    }
}
