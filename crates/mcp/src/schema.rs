//! The JSON Schemas of the tools' arguments, as the running configuration and the caller's key have
//! them. What is said here is a help to whoever fills them in: the gateway checks all of it.

use std::sync::Arc;

use rmcp::model::JsonObject;
use serde_json::{Map, Value, json};

use super::usable_model::UsableModel;
use tollgate_money::price::{ImageSize, Resolution};

/// An object with these properties, and no others.
pub(super) fn object(properties: Value, required: &[&str]) -> Arc<JsonObject> {
    let schema = json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    Arc::new(match schema {
        Value::Object(schema) => schema,
        _ => Map::new(),
    })
}

/// Schema of `model`: one of these names, or one that matches a pattern.
pub(super) fn model(usable: &[UsableModel<'_>]) -> Value {
    let (patterns, names): (Vec<&str>, Vec<&str>) =
        usable.iter().map(|usable| usable.name).partition(|name| name.ends_with('*'));
    let description = "Which model. `list_models` tells more of each.";
    if patterns.is_empty() {
        return json!({"type": "string", "enum": names, "description": description});
    }
    let fits = |pattern: &&str| {
        // Names of models have one character that means something in a pattern.
        let literal = pattern.trim_end_matches('*').replace('.', "\\.");
        json!({"type": "string", "pattern": format!("^{literal}")})
    };
    let mut any: Vec<Value> = patterns.iter().map(fits).collect();
    if !names.is_empty() {
        any.insert(0, json!({"type": "string", "enum": names}));
    }
    json!({"anyOf": any, "description": description})
}

/// `extra`: what the tool has no argument for.
pub(super) fn extra() -> Value {
    json!({
        "type": "object",
        "description": "Further fields of the request, as the model's own API has them.",
    })
}

/// `n`: how many images.
pub(super) fn count(usable: &[UsableModel<'_>]) -> Value {
    let max = usable.iter().map(|usable| usable.model.limits.images.count_max).max();
    json!({"type": "integer", "minimum": 1, "maximum": max.unwrap_or(1), "description": "How many."})
}

/// `size`: a choice where every model has a list, a text where one has rules.
pub(super) fn size(usable: &[UsableModel<'_>]) -> Value {
    let limits = || usable.iter().map(|usable| &usable.model.limits.images);
    // One model with rules in the place of a list may make other sizes than those listed.
    let has_list = limits().all(|limits| {
        !limits.sizes.is_empty()
            && limits.side_max.is_none()
            && limits.side_multiple.is_none()
            && limits.aspect_ratio_max.is_none()
    });
    let mut sizes: Vec<ImageSize> = limits().flat_map(|limits| limits.sizes.clone()).collect();
    sizes.sort_by_key(|size| (size.width, size.height));
    sizes.dedup();
    let words: Vec<String> =
        sizes.iter().map(|size| format!("{}x{}", size.width, size.height)).collect();
    let description = "Width and height in pixels. `list_models` tells which model has which.";
    if has_list {
        json!({"type": "string", "enum": words, "description": description})
    } else {
        let examples: Vec<&String> = words.iter().take(4).collect();
        json!({"type": "string", "examples": examples, "description": description})
    }
}

/// A choice of words that some of the models have; a text where one says nothing.
pub(super) fn words<T: Copy>(
    usable: &[UsableModel<'_>],
    of: impl Fn(&UsableModel<'_>) -> Option<Vec<T>>,
    word: impl Fn(T) -> &'static str,
    description: &str,
) -> Value {
    let mut all: Vec<&'static str> = Vec::new();
    for usable in usable {
        // A model without a list takes any word, so a choice would hide what it can do.
        let Some(own) = of(usable) else {
            return json!({"type": "string", "description": description});
        };
        for one in own {
            if !all.contains(&word(one)) {
                all.push(word(one));
            }
        }
    }
    json!({"type": "string", "enum": all, "description": description})
}

/// `duration`: whole seconds that some of the models make.
pub(super) fn duration(usable: &[UsableModel<'_>]) -> Value {
    let limits = || usable.iter().map(|usable| &usable.model.limits.video);
    let (min, max) =
        (limits().map(|one| one.seconds_min).min(), limits().map(|one| one.seconds_max).max());
    json!({
        "type": "integer",
        "minimum": min.unwrap_or(1),
        "maximum": max.unwrap_or(1),
        "description": "Seconds. What a video costs grows with them.",
    })
}

/// `resolution`: what some of the models make.
pub(super) fn resolution(usable: &[UsableModel<'_>]) -> Value {
    let of = |usable: &UsableModel<'_>| {
        let own = &usable.model.limits.video.resolutions;
        Some(if own.is_empty() { Resolution::ALL.to_vec() } else { own.clone() })
    };
    words(usable, of, Resolution::as_str, "How sharp. What a video costs may grow with it.")
}

/// Limits and features of one request to a model, for `list_models`.
pub(super) fn limits(usable: &UsableModel<'_>) -> Value {
    let (model, mut members) = (usable.model, Map::new());
    let limits = &model.limits;
    let mut add = |name: &str, value: Value| {
        members.insert(name.to_owned(), value);
    };
    // By the field of models.yaml that has an effect: so an operation says in its row what is shown of it.
    let has = |field: &str| {
        model.operations.iter().any(|operation| operation.info().limits.contains(&field))
    };
    if limits.input_tokens_max > 0 {
        add("context_tokens_max", json!(limits.input_tokens_max));
    }
    // A video has an end of its own: its tokens follow from seconds and resolution.
    if limits.output_tokens_max > 0 && !has("resolutions") {
        add("output_tokens_max", json!(limits.output_tokens_max));
    }
    if has("images_max") {
        let images = &limits.images;
        add("images_max", json!(images.count_max));
        add("reference_images_min", json!(images.references_min));
        add("reference_images_max", json!(images.references_max));
        let sizes = images.sizes_in_words('x');
        if !sizes.is_empty() {
            add("sizes", json!(sizes));
        }
    }
    if has("resolutions") {
        let video = &limits.video;
        add("seconds", json!([video.seconds_min, video.seconds_max]));
        let words: Vec<&str> = video.resolutions.iter().map(|one| one.as_str()).collect();
        add("resolutions", json!(words));
    }
    if has("characters_max") {
        add("characters_max", json!(limits.speech.characters_max));
    }
    if has("dimensions") && !limits.dimensions.is_empty() {
        add("dimensions", json!(limits.dimensions));
    }
    Value::Object(members)
}
