//! Models that can be tried in the playground, by operation, with their request forms.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::snippets::path_of;
use tollgate_config::snapshot::{Model, Snapshot};
use tollgate_protocols::{Dialect, Operation};

/// Models of one kind that can be chosen: a page with more is slow to use, and long.
const EACH_MAX: usize = 150;

/// The kinds of calls, in the order of the page, each with its models.
pub(super) fn all(config: &Snapshot) -> Vec<Value> {
    type FindSetup = fn(&Model, Operation) -> Option<Value>;
    let kinds: [(&str, &[Operation], FindSetup); 4] = [
        ("chat", &[Operation::Chat, Operation::Messages], chat),
        ("image", &[Operation::ImageGeneration], image),
        ("video", &[Operation::Video], video),
        ("speech", &[Operation::Speech], speech),
    ];
    let listed = kinds.into_iter().map(|(kind, operations, form)| {
        let models = operations.iter().flat_map(|operation| models_for(config, *operation, form));
        let models: Vec<Value> = models.take(EACH_MAX).collect();
        (kind, models)
    });
    let some = listed.filter(|(_, models)| !models.is_empty());
    some.map(|(kind, models)| json!({"kind": kind, "models": models})).collect()
}

/// The models that do `operation` and that the page can ask, in the order of `models.yaml`.
fn models_for(
    config: &Snapshot,
    operation: Operation,
    form: fn(&Model, Operation) -> Option<Value>,
) -> Vec<Value> {
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
        let mut form = form(model, operation)?;
        form["id"] = json!(model.id);
        form["path"] = json!(path);
        Some(form)
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
