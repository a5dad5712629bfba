//! `models.yaml`: what customers can name.

use std::collections::HashSet;
use std::sync::Arc;

use super::fallbacks::TypedOperations;
use super::{
    CompiledUpstreams, check_name, cost, limits, missing_usage, pass, price_fields, price_tiers,
    prices,
};
use crate::diagnostic::did_you_mean;
use crate::document::{Document, Fault};
use crate::raw;
use crate::snapshot::{
    MODEL_PUNCTUATION, Model, OnDisconnect, OwnPricing, PassedHeaders, Pricing, Target, Upstream,
};
use crate::spans::DocumentPath;
use tollgate_money::price::PriceList;
use tollgate_protocols::limits::ModelLimits;
use tollgate_protocols::{Dialect, Operation};

/// Compiles valid models, and reports the others. Returns the models that can be served, and the ids of those
/// with targets whose operations this build does not support.
pub(super) fn compile(
    document: &mut Document,
    raw: raw::Models,
    upstreams: &CompiledUpstreams,
) -> (Vec<Arc<Model>>, Vec<String>) {
    let path = DocumentPath::root().key("models");
    if document.keys(&["models"]).is_empty() {
        document.note(Fault::at_key(&path, "there is no model"));
    }
    let typed = TypedOperations::new(document, &raw.models);
    let mut models = Vec::with_capacity(raw.models.0.len());
    let mut unserved = Vec::new();
    let mut index = 0;
    for (id, raw) in raw.models.0 {
        let path = path.key(&id);
        // An asterisk at the end makes a pattern; alone it fits every name.
        if id != "*" {
            let literal = id.strip_suffix('*').unwrap_or(&id);
            check_name(document, &path, literal, MODEL_PUNCTUATION);
        }
        let fallbacks = typed.compile(document, &path.key("fallbacks"), &id, &raw.fallbacks);
        let model = model(document, &path, id, raw, upstreams, &mut index);
        let model = Model { fallbacks, ..model };
        let is_served = |target: &Arc<Target>| speaks(target, &model.operations);
        if !model.translated.is_empty() || model.targets.iter().any(is_served) {
            models.push(Arc::new(model));
        // A model whose upstreams are all off is not worth a note: that they are off is reported already.
        } else if !model.targets.is_empty() {
            unserved.push(model.id.to_string());
        }
    }
    (models, unserved)
}

/// The operations of a model; reports a list that is empty or names one twice.
fn operations(document: &mut Document, at: &DocumentPath, raw: &raw::ModelEntry) -> Vec<Operation> {
    let operations: Vec<Operation> = raw.operations.iter().map(|name| name.0).collect();
    if operations.is_empty() {
        document.note(Fault::at_key(at, "there is no operation").help("such as `[chat]`"));
    }
    for (index, operation) in operations.iter().enumerate() {
        if operations.iter().take(index).any(|earlier| earlier == operation) {
            let path = at.index(index);
            document.note(Fault::at_value(&path, format!("`{operation}` is here twice")));
        }
    }
    operations
}

fn model(
    document: &mut Document,
    at: &DocumentPath,
    id: String,
    mut raw: raw::ModelEntry,
    upstreams: &CompiledUpstreams,
    index: &mut usize,
) -> Model {
    let operations = operations(document, &at.key("operations"), &raw);
    let prices = prices::compile(document, at, &raw);
    let priced = prices::priced(&prices, &raw);
    let rates = super::rates(&raw.rate_limits);
    let holds = super::holds::of_model(document, &at.key("holds"), &raw.holds);
    let limits = limits::compile(document, &at.key("limits"), &raw);
    limits::check_pattern(document, &at.key("limits"), &id, &raw.limits);
    check_reading(document, at, &raw, &operations);
    price_tiers::check(document, at, &id, &raw);
    let lists = pass::Lists {
        fields: &raw.pass_fields,
        headers: &raw.pass_headers,
        tools: &raw.pass_tools,
        content: &raw.pass_content,
    };
    let (mut own, headers) = pass::compile(document, at, &lists);
    // Translated requests carry these fields to tell the model to think, so the request policy must let them through.
    for field in limits::thinking_fields(&raw) {
        if !own.has_field(field) {
            own.fields.push((*field).to_owned());
        }
    }
    let targets_at = at.key("targets");
    let sold =
        ModelOperations { operations: &operations, translates: limits.translation.is_some() };
    let typed = std::mem::take(&mut raw.targets);
    // Taken from the targets as typed: those of upstreams that are off count as well.
    let owned_by = raw.owned_by.take().or_else(|| typed.first().map(|it| it.upstream.clone()));
    let targets = targets(document, &targets_at, &id, &sold, typed, upstreams, &prices);
    // Its address is no provider's: every model would be warned of.
    if !upstreams.are_simulated {
        missing_usage::check(document, at, &raw, &operations, &targets);
    }
    prices::check_reported(document, &at.key("prices"), &prices.base, &targets, &operations);
    let common = pass::common(targets.iter().map(|target| &*target.upstream));
    let pictures = limits.pictures.or_else(|| limits::pictures_of(targets.iter()));
    let limits = ModelLimits { pass: pass::with(own, common), priced, pictures, ..limits };
    let granted_betas = tollgate_protocols::beta::granted(&limits);
    let headers = PassedHeaders { granted_betas, ..headers };
    let mut numbered = |target: Target| {
        let pass_headers = Arc::new(headers.and(&target.upstream.pass_headers));
        let target = Target { index: *index, pass_headers, ..target };
        // Numbers run on through all models: state of targets is kept by them.
        *index += 1;
        Arc::new(target)
    };
    let translated = translated(&operations, &targets, &limits);
    Model {
        id: id.into(),
        operations,
        translated,
        targets: targets.into_iter().map(&mut numbered).collect(),
        prices: Arc::new(Pricing::of_list(prices)),
        own_prices: OwnPricing::default(),
        limits,
        rates,
        holds,
        on_disconnect: OnDisconnect {
            time: raw.on_disconnect.time.0,
            bytes: raw.on_disconnect.bytes.0 as u64,
        },
        owned_by: owned_by.unwrap_or_default(),
        fallbacks: Vec::new(),
    }
}

/// True if the target's upstream serves one of these operations without translation.
fn speaks(target: &Target, operations: &[Operation]) -> bool {
    let dialect = target.upstream.dialect;
    operations.iter().any(|operation| tollgate_protocols::is_served(*operation, dialect))
}

/// The operations for which requests are translated: those of prompts that no target speaks itself. A
/// target that does is always preferred, as nothing is lost on its way.
fn translated(
    operations: &[Operation],
    targets: &[Target],
    limits: &ModelLimits,
) -> Vec<Operation> {
    if limits.translation.is_none() {
        return Vec::new();
    }
    let is_native = |operation: Operation| {
        operations.contains(&operation) && targets.iter().any(|target| speaks(target, &[operation]))
    };
    let can_be = |operation: Operation| {
        let bridge = |target: &Target| {
            tollgate_protocols::bridge(operation, target.upstream.dialect, operations)
        };
        targets.iter().any(|target| bridge(target).is_some())
    };
    Operation::prompts().filter(|one| !is_native(*one) && can_be(*one)).collect()
}

/// Notes what says how requests are read that this model does not get.
fn check_reading(
    document: &mut Document,
    at: &DocumentPath,
    raw: &raw::ModelEntry,
    operations: &[Operation],
) {
    let has_prompts = operations.iter().any(|operation| operation.info().is_prompt);
    let of_prompts = [
        ("reasoning", raw.reasoning.is_some()),
        ("missing_usage", raw.missing_usage.is_some()),
        ("searches_max", raw.searches_max.is_some()),
        ("pass_tools", !raw.pass_tools.is_empty()),
        ("pass_content", !raw.pass_content.is_empty()),
    ];
    for (field, is_set) in of_prompts {
        if is_set && !has_prompts {
            let message =
                format!("`{field}` has no effect on {}", price_fields::listed(operations));
            document.note(Fault::at_key(&at.key(field), message).warning());
        }
    }
    check_pass_paths(document, at, raw, operations);
}

/// Warns of entries for fields of objects where requests have top-level fields alone looked at.
fn check_pass_paths(
    document: &mut Document,
    at: &DocumentPath,
    raw: &raw::ModelEntry,
    operations: &[Operation],
) {
    let passes_nested = operations.iter().any(|operation| operation.info().passes_nested_fields);
    if operations.is_empty() || passes_nested {
        return;
    }
    for (index, field) in raw.pass_fields.iter().enumerate() {
        if field.contains('.') {
            let on = price_fields::listed(operations);
            let message =
                format!("`{field}` has no effect on {on}: only top-level fields are known");
            let path = at.key("pass_fields").index(index);
            document.note(Fault::at_value(&path, message).warning());
        }
    }
}

/// Operations of a model, and its translation.
#[derive(Clone, Copy)]
struct ModelOperations<'a> {
    operations: &'a [Operation],
    /// True if requests in other dialects are translated for it.
    translates: bool,
}

/// The targets whose upstreams are on, best first.
fn targets(
    document: &mut Document,
    at: &DocumentPath,
    id: &str,
    sold: &ModelOperations<'_>,
    raw: Vec<raw::TargetEntry>,
    upstreams: &CompiledUpstreams,
    prices: &PriceList,
) -> Vec<Target> {
    let ModelOperations { operations, translates } = *sold;
    if raw.is_empty() {
        document.note(Fault::at_key(at, "there is no target").help("such as `- upstream: openai`"));
    }
    let mut seen = HashSet::new();
    let mut placed = Vec::with_capacity(raw.len());
    let mut targets = Vec::with_capacity(raw.len());
    for (index, raw) in raw.into_iter().enumerate() {
        let at = at.index(index);
        let model = raw.model.or_else(|| (!id.ends_with('*')).then(|| id.to_owned()));
        let shown = model.as_deref().unwrap_or(id);
        if shown.is_empty() || shown.chars().any(char::is_control) {
            document.note(Fault::at_value(&at.key("model"), "this is not the name of a model"));
        }
        // A slip: for a larger part of the requests there is `weight`.
        if !seen.insert((raw.upstream.clone(), model.clone())) {
            let message = format!("`{shown}` at `{}` is a target already", raw.upstream);
            document.note(Fault::at_value(&at.key("upstream"), message));
        }
        if let Some(upstream) = upstreams.on.get(&raw.upstream) {
            let upstream = Arc::clone(upstream);
            let (priority, weight) = (raw.priority, raw.weight);
            let sold = (prices, operations);
            let cost = raw.cost.as_ref();
            let cost = cost.and_then(|cost| cost::compile(document, &at.key("cost"), cost, sold));
            check_paths(document, &at.key("upstream"), &upstream, operations);
            check_speech(document, &at.key("upstream"), upstream.dialect, operations, &targets);
            placed.push(PlacedTarget { at: at.key("upstream"), dialect: upstream.dialect });
            let pass_headers = Arc::default();
            targets.push(Target {
                index: 0,
                upstream,
                model,
                priority,
                weight,
                cost,
                pass_headers,
            });
        } else if let Some(typed) = &upstreams.typed
            && !typed.contains(&raw.upstream)
        {
            let names: Vec<&str> = typed.iter().map(String::as_str).collect();
            let help = did_you_mean(&raw.upstream, "the upstreams are", &names);
            let message = format!("there is no upstream `{}`", raw.upstream);
            document.note(Fault::at_value(&at.key("upstream"), message).maybe_help(help));
        }
    }
    check_dialects(document, &placed, operations, translates);
    // Stable, so targets of one priority stay in the order of the file.
    targets.sort_by_key(|target| target.priority);
    if upstreams.prefer == raw::Prefer::LeastCost {
        cost::rank(&mut targets);
    }
    targets
}

/// Notes operations that an upstream has no path for although its dialect has them.
fn check_paths(
    document: &mut Document,
    at: &DocumentPath,
    upstream: &Upstream,
    operations: &[Operation],
) {
    let is_missing = |operation: &&Operation| {
        tollgate_protocols::is_served(**operation, upstream.dialect)
            && !upstream.offers(**operation)
    };
    let missing: Vec<&str> =
        operations.iter().filter(is_missing).map(|operation| operation.as_str()).collect();
    if !missing.is_empty() {
        let names = missing.join(", ");
        let message = format!("Azure's deployments have no path for {names}");
        let help = "name an upstream whose URL ends with `/openai/v1`, without an `api_version`";
        document.note(Fault::at_value(at, message).help(help));
    }
}

/// A target with its position in the file and the protocol of its upstream.
struct PlacedTarget {
    at: DocumentPath,
    dialect: Dialect,
}

/// Warns of targets that get no calls because their upstreams speak nothing that the model is for, and
/// requests are not translated for them.
fn check_dialects(
    document: &mut Document,
    placed: &[PlacedTarget],
    operations: &[Operation],
    translates: bool,
) {
    let is_served =
        |operation: Operation, dialect: Dialect| tollgate_protocols::is_served(operation, dialect);
    for PlacedTarget { at, dialect } in placed {
        let gets_calls = operations.iter().any(|operation| {
            let bridge = || tollgate_protocols::bridge(*operation, *dialect, operations);
            is_served(*operation, *dialect) || translates && bridge().is_some()
        });
        let could_be = |operation: &Operation| {
            Dialect::ALL.into_iter().any(|dialect| is_served(*operation, dialect))
        };
        if !gets_calls && operations.iter().any(could_be) {
            let names: Vec<&str> = operations.iter().map(|one| one.as_str()).collect();
            let message =
                format!("this target gets no calls: {dialect} has no {}", names.join(", "));
            document.note(Fault::at_value(at, message).warning());
        }
    }
}

/// Warns of a target that gets no calls because it answers otherwise than the targets before it.
fn check_speech(
    document: &mut Document,
    at: &DocumentPath,
    dialect: Dialect,
    operations: &[Operation],
    before: &[Target],
) {
    let is_served = |dialect: Dialect| {
        operations.iter().any(|operation| tollgate_protocols::is_served(*operation, dialect))
    };
    // What one makes is passed on, and what the other makes is fetched from where it says.
    let other = before.iter().map(|target| target.upstream.dialect).find(|one| *one != dialect);
    if let (&[Operation::Speech], Some(other)) = (operations, other.filter(|_| is_served(dialect)))
        && is_served(other)
    {
        let message =
            format!("speech comes from one protocol: this target gets no calls beside {other}");
        document.note(Fault::at_value(at, message).warning());
    }
}
