//! Models that can be tried in the playground, by operation, with their request forms.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::snippets::path_of;
use tollgate_config::snapshot::{Model, Snapshot};
use tollgate_protocols::{Dialect, Operation};

/// Models of one kind that can be chosen: a page with more is slow to use, and long.
const EACH_MAX: usize = 150;

/// The forms of the playground with the models of each, in the order of operations.
pub(super) fn all(config: &Snapshot) -> Vec<Value> {
    let mut forms: Vec<(&str, Vec<Value>)> = Vec::new();
    for operation in Operation::ALL {
        let Some(form) = operation.info().playground else { continue };
        let Some(setup) = setup_of(form) else { continue };
        let models = models_for(config, operation, setup);
        match forms.iter_mut().find(|(other, _)| *other == form) {
            Some((_, listed)) => listed.extend(models),
            None => forms.push((form, models)),
        }
    }
    for (_, models) in &mut forms {
        // Cut at the end, not by operation: several operations share a form.
        models.truncate(EACH_MAX);
    }
    let some = forms.into_iter().filter(|(_, models)| !models.is_empty());
    some.map(|(form, models)| json!({"kind": form, "models": models})).collect()
}

/// Describes to the page how a model is requested; `None` for models that it cannot request.
type FindSetup = fn(&Model, Operation) -> Option<Value>;

fn setup_of(form: &str) -> Option<FindSetup> {
    match form {
        "chat" => Some(chat),
        "image" => Some(image),
        "video" => Some(video),
        "speech" => Some(speech),
        _ => None,
    }
}

/// The models that do `operation` and that the page can ask, in the order of `models.yaml`.
fn models_for(config: &Snapshot, operation: Operation, setup: FindSetup) -> Vec<Value> {
    let Some(path) = path_of(config, operation) else { return Vec::new() };
    let named = config.models.iter().filter(|model| !model.is_wildcard());
    let doing = named.filter(|model| {
        // A model of messages is listed as one, and asked as one.
        let speaks = |operation| model.operations.contains(&operation);
        let is_translated =
            operation == Operation::Chat && model.serves(operation) && !speaks(Operation::Messages);
        speaks(operation) || is_translated
    });
    let described = |model: &Arc<Model>| {
        let mut described = setup(model, operation)?;
        described["id"] = json!(model.id);
        described["path"] = json!(path);
        Some(described)
    };
    doing.filter_map(described).collect()
}

fn dialect(model: &Model) -> Option<Dialect> {
    model.targets.first().map(|target| target.upstream.dialect)
}

fn chat(_: &Model, operation: Operation) -> Option<Value> {
    Some(json!({"as": if operation == Operation::Messages { "messages" } else { "chat" }}))
}

/// Form of models that generate images from a text alone.
fn image(model: &Model, _: Operation) -> Option<Value> {
    let limits = &model.limits.images;
    if limits.references_min > 0 {
        return None;
    }
    let family = if dialect(model) == Some(Dialect::Dashscope) { "input" } else { "prompt" };
    let by = if family == "input" { '*' } else { 'x' };
    let sizes = limits.sizes.iter().map(|size| format!("{}{by}{}", size.width, size.height));
    Some(json!({"as": family, "sizes": sizes.collect::<Vec<_>>()}))
}

/// Form of models that generate videos from a text alone.
fn video(model: &Model, _: Operation) -> Option<Value> {
    let family = match dialect(model)? {
        Dialect::Ark => "content",
        Dialect::Xai => "prompt",
        Dialect::Dashscope => dashscope_video(&model.id)?,
        Dialect::Openai
        | Dialect::Anthropic
        | Dialect::Voyage
        | Dialect::Bedrock
        | Dialect::Gemini
        | Dialect::Vertex => return None,
    };
    let limits = &model.limits.video;
    let resolutions = limits.resolutions.iter().map(|resolution| resolution.as_str());
    Some(json!({
        "as": family,
        "resolutions": resolutions.collect::<Vec<_>>(),
        "seconds": [limits.seconds_min, limits.seconds_max],
    }))
}

/// Request form of a text-to-video model of family V: by size up to version 2.6, by resolution after that
/// (spec section 2.4).
fn dashscope_video(id: &str) -> Option<&'static str> {
    if !id.split('-').any(|word| word == "t2v") {
        return None;
    }
    let is_early = ["2.5-", "2.6-"].iter().any(|version| id.contains(version));
    Some(if is_early { "input-size" } else { "input-resolution" })
}

fn speech(model: &Model, _: Operation) -> Option<Value> {
    let formats = model.limits.speech.formats.as_deref().unwrap_or_default();
    let formats: Vec<&str> = formats.iter().map(|format| format.as_str()).collect();
    Some(
        json!({"as": "speech", "formats": formats, "characters": model.limits.speech.characters_max}),
    )
}
