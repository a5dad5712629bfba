//! `models.yaml`: what customers can name.

use std::collections::HashSet;
use std::sync::Arc;

use super::{Upstreams, check_name, limits, prices};
use crate::config::diagnostic::did_you_mean;
use crate::config::document::{Document, Fault};
use crate::config::raw;
use crate::config::snapshot::{MODEL_PUNCTUATION, Model, Target};
use crate::config::spans::Path;
use crate::protocols::{self, Operation};

/// Compiles what is in order, and notes the rest. Returns the models that can be served now, and the
/// ids of those that have targets but do what this build does not serve yet.
pub(super) fn compile(
    document: &mut Document,
    raw: raw::Models,
    upstreams: &Upstreams,
) -> (Vec<Arc<Model>>, Vec<String>) {
    let path = Path::root().key("models");
    if document.keys(&["models"]).is_empty() {
        document.note(Fault::at_key(&path, "there is no model"));
    }
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
        let model = model(document, &path, id, raw, upstreams, &mut index);
        let is_served = |target: &Arc<Target>| {
            let dialect = target.upstream.dialect;
            model.operations.iter().any(|operation| protocols::is_served(*operation, dialect))
        };
        if model.targets.iter().any(is_served) {
            models.push(Arc::new(model));
        } else if !model.targets.is_empty() {
            unserved.push(model.id.to_string());
        }
    }
    (models, unserved)
}

fn model(
    document: &mut Document,
    at: &Path,
    id: String,
    raw: raw::Model,
    upstreams: &Upstreams,
    index: &mut usize,
) -> Model {
    let operations: Vec<Operation> = raw.operations.iter().map(|name| name.0).collect();
    if operations.is_empty() {
        document.note(
            Fault::at_key(&at.key("operations"), "there is no operation").help("such as `[chat]`"),
        );
    }
    for (index, operation) in operations.iter().enumerate() {
        if operations.iter().take(index).any(|earlier| earlier == operation) {
            let path = at.key("operations").index(index);
            document.note(Fault::at_value(&path, format!("`{operation}` is here twice")));
        }
    }
    let prices = prices::compile(document, at, &raw);
    let rates = super::rates(&raw.rate_limits);
    let limits = limits::compile(document, &at.key("limits"), &raw);
    let owned_by = raw.owned_by.or_else(|| raw.targets.first().map(|first| first.upstream.clone()));
    let targets = targets(document, &at.key("targets"), &id, raw.targets, upstreams);
    prices::check_reported(document, &at.key("prices"), &prices.base, &targets, &operations);
    let mut numbered = |target| {
        let target = Target { index: *index, ..target };
        *index += 1;
        Arc::new(target)
    };
    Model {
        id: id.into(),
        operations,
        targets: targets.into_iter().map(&mut numbered).collect(),
        prices,
        limits,
        rates,
        owned_by: owned_by.unwrap_or_default(),
    }
}

/// The targets whose upstreams are on, best first.
fn targets(
    document: &mut Document,
    at: &Path,
    id: &str,
    raw: Vec<raw::Target>,
    upstreams: &Upstreams,
) -> Vec<Target> {
    if raw.is_empty() {
        document.note(Fault::at_key(at, "there is no target").help("such as `- upstream: openai`"));
    }
    let mut seen = HashSet::new();
    let mut targets = Vec::with_capacity(raw.len());
    for (index, raw) in raw.into_iter().enumerate() {
        let at = at.index(index);
        let model = raw.model.or_else(|| (!id.ends_with('*')).then(|| id.to_owned()));
        let shown = model.as_deref().unwrap_or(id);
        if shown.is_empty() || shown.chars().any(char::is_control) {
            document.note(Fault::at_value(&at.key("model"), "this is not the name of a model"));
        }
        if !seen.insert((raw.upstream.clone(), model.clone())) {
            let message = format!("`{shown}` at `{}` is a target already", raw.upstream);
            document.note(Fault::at_value(&at.key("upstream"), message));
        }
        if let Some(upstream) = upstreams.on.get(&raw.upstream) {
            let upstream = Arc::clone(upstream);
            let (priority, weight) = (raw.priority, raw.weight);
            targets.push(Target { index: 0, upstream, model, priority, weight });
        } else if let Some(typed) = &upstreams.typed
            && !typed.contains(&raw.upstream)
        {
            let known: Vec<&str> = typed.iter().map(String::as_str).collect();
            let help = did_you_mean(&raw.upstream, "the upstreams are", &known);
            let message = format!("there is no upstream `{}`", raw.upstream);
            document.note(Fault::at_value(&at.key("upstream"), message).maybe_help(help));
        }
    }
    targets.sort_by_key(|target| target.priority);
    targets
}
