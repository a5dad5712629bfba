//! Limits: which are needed, which have no effect, and what they mean where they are left out.

use std::collections::HashSet;

use super::price_fields;
use crate::document::{Document, Fault};
use crate::raw;
use crate::snapshot::Target;
use crate::spans::DocumentPath;
use tollgate_protocols::limits::{
    CallIds, ChatStyle, ChatTools, DOCUMENTS_MAX, Efforts, ImageLimits, Mode, ModelLimits,
    PassList, PricedFeatures, SEARCHES_MAX, SpeechLimits, ThinkingField, ThinkingStyle,
    TranscriptionLimits, TranslationTarget, VideoLimits,
};
use tollgate_protocols::media::PictureFamily;
use tollgate_protocols::{Dialect, Operation};

/// The limits that are typed as one field, and whether it was typed.
fn typed(raw: &raw::ModelLimitsSection) -> Vec<&'static str> {
    [
        ("context_tokens_max", raw.context_tokens_max.is_some()),
        ("output_tokens_max", raw.output_tokens_max.is_some()),
        ("pictures", raw.pictures.is_some()),
        ("dimensions", !raw.dimensions.is_empty()),
        ("batch_inputs_max", raw.batch_inputs_max.is_some()),
        ("token_ids", raw.token_ids.is_some()),
        ("documents_max", raw.documents_max.is_some()),
        ("images_max", raw.images_max.is_some()),
        ("reference_images_min", raw.reference_images_min.is_some()),
        ("reference_images_max", raw.reference_images_max.is_some()),
        ("sizes", !raw.sizes.is_empty()),
        ("side_max", raw.side_max.is_some()),
        ("side_multiple", raw.side_multiple.is_some()),
        ("aspect_ratio_max", raw.aspect_ratio_max.is_some()),
        ("qualities", raw.qualities.is_some()),
        ("output_formats", raw.output_formats.is_some()),
        ("response_formats", raw.response_formats.is_some()),
        ("mask", raw.mask.is_some()),
        ("stream", raw.stream.is_some()),
        ("resolutions", !raw.resolutions.is_empty()),
        ("seconds_min", raw.seconds_min.is_some()),
        ("seconds_max", raw.seconds_max.is_some()),
        ("minus_one", raw.minus_one.is_some()),
        ("characters_max", raw.characters_max.is_some()),
        ("audio_formats", raw.audio_formats.is_some()),
        ("instructions", raw.instructions.is_some()),
        ("billed_seconds_min", raw.billed_seconds_min.is_some()),
        ("audio_tokens_per_second", raw.audio_tokens_per_second.is_some()),
    ]
    .into_iter()
    .filter_map(|(limit, typed)| typed.then_some(limit))
    .collect()
}

/// Compiles a model's limits, and notes what is missing, superfluous or contradictory.
pub(super) fn compile(
    document: &mut Document,
    at: &DocumentPath,
    raw: &raw::ModelEntry,
) -> ModelLimits {
    let operations: Vec<Operation> = raw.operations.iter().map(|name| name.0).collect();
    let billed_by_tokens = raw.prices.output_per_1m_tokens.is_some();
    let reasoning = raw.reasoning.unwrap_or(true);
    let missing_usage = super::missing_usage::compile(raw.missing_usage);
    let searches_max = raw.searches_max.unwrap_or(SEARCHES_MAX);
    let translation = translation(raw);
    let chat_tools = chat_tools(raw.translated.chat_tools);
    let raw = &raw.limits;
    let typed = typed(raw);
    for limit in &typed {
        if !operations.iter().any(|operation| operation.info().limits.contains(limit)) {
            let message =
                format!("`{limit}` has no effect on {}", price_fields::listed(&operations));
            document.note(Fault::at_key(&at.key(limit), message).warning());
        }
    }
    let mut reported = HashSet::new();
    for operation in &operations {
        let row = operation.info();
        let by_tokens: &[&str] = if billed_by_tokens { row.limits_required_by_tokens } else { &[] };
        let required = row.limits_required.iter().chain(by_tokens);
        // Several operations often need the same limit: it is reported once.
        for limit in required.filter(|limit| !typed.contains(limit)) {
            // Errors, not warnings: without these a hold has no upper bound.
            if reported.insert(limit) {
                let message = format!("`{operation}` needs the limit `{limit}`");
                let help = format!(
                    "the most that a request can cost is computed from it: `limits: {{ {limit}: … }}`"
                );
                document.note(Fault::at_key(at, message).help(help));
            }
        }
    }
    if let (Some(min), Some(max)) = (raw.seconds_min, raw.seconds_max)
        && min > max
    {
        let message = "the shortest video is longer than the longest";
        document.note(Fault::at_value(&at.key("seconds_min"), message));
    }
    if let (Some(min), Some(max)) = (raw.reference_images_min, raw.reference_images_max)
        && min > max
    {
        let message = "more images must be referred to than can be";
        document.note(Fault::at_value(&at.key("reference_images_min"), message));
    }
    ModelLimits {
        input_tokens_max: raw.context_tokens_max.unwrap_or(0),
        pictures: raw.pictures.map(|name| name.0),
        output_tokens_max: raw.output_tokens_max.unwrap_or(0),
        dimensions: raw.dimensions.clone(),
        batch_inputs_max: raw.batch_inputs_max,
        token_ids: raw.token_ids.unwrap_or(true),
        documents_max: raw.documents_max.unwrap_or(DOCUMENTS_MAX),
        images: images(raw),
        speech: speech(raw),
        transcription: transcription(raw),
        video: VideoLimits {
            resolutions: raw.resolutions.iter().map(|name| name.0).collect(),
            seconds_min: raw.seconds_min.unwrap_or(1),
            seconds_max: raw.seconds_max.unwrap_or(0),
            minus_one: raw.minus_one.unwrap_or(false),
        },
        reasoning,
        missing_usage,
        searches_max,
        pass: PassList::default(),
        priced: PricedFeatures::default(),
        translation,
        chat_tools,
    }
}

/// The formula for pictures of a model that names none: the dearest of the provider whose dialect all of its
/// targets speak.
pub(super) fn pictures_of<'a>(targets: impl Iterator<Item = &'a Target>) -> Option<PictureFamily> {
    pictures_over(targets.map(|target| target.upstream.dialect))
}

fn pictures_over(dialects: impl Iterator<Item = Dialect>) -> Option<PictureFamily> {
    let mut families = dialects.map(|dialect| match dialect {
        Dialect::Anthropic => Some(PictureFamily::AnthropicHigh),
        Dialect::Gemini | Dialect::Vertex => Some(PictureFamily::Google),
        _ => None,
    });
    let first = families.next()??;
    // Targets of different families count pictures differently, and the hold is made before one is chosen.
    families.all(|family| family == Some(first)).then_some(first)
}

fn chat_tools(typed: raw::ChatToolsWords) -> ChatTools {
    match typed {
        raw::ChatToolsWords::Always => ChatTools::Always,
        raw::ChatToolsWords::WithoutEffort => ChatTools::WithoutEffort,
        raw::ChatToolsWords::EffortNone => ChatTools::EffortNone,
        raw::ChatToolsWords::Never => ChatTools::Never,
    }
}

/// Compiles the options for translated requests.
fn translation(raw: &raw::ModelEntry) -> Option<TranslationTarget> {
    let mode = match raw.translation {
        raw::Translation::Lenient => Mode::Lenient,
        raw::Translation::Strict => Mode::Strict,
        raw::Translation::Off => return None,
    };
    let options = &raw.translated;
    Some(TranslationTarget {
        mode,
        thinking: match options.thinking {
            raw::ThinkingParameter::Effort => ThinkingStyle::Effort,
            raw::ThinkingParameter::Budget => ThinkingStyle::Budget,
            raw::ThinkingParameter::None => ThinkingStyle::None,
        },
        takes_sampling: options.sampling,
        chat: match options.chat {
            raw::ChatWords::Common => ChatStyle::Common,
            raw::ChatWords::Openai => ChatStyle::Openai,
        },
        call_ids: match options.call_ids {
            raw::CallIdWords::Any => CallIds::Any,
            raw::CallIdWords::Nine => CallIds::Nine,
        },
        thinking_field: match options.thinking_field {
            raw::ThinkingFieldWords::None => ThinkingField::None,
            raw::ThinkingFieldWords::Thinking => ThinkingField::Thinking,
            raw::ThinkingFieldWords::EnableThinking => ThinkingField::EnableThinking,
            raw::ThinkingFieldWords::ReasoningEffort => ThinkingField::ReasoningEffort,
            raw::ThinkingFieldWords::ChatTemplateKwargs => ThinkingField::ChatTemplateKwargs,
        },
        efforts: match &options.efforts {
            None => Efforts::default(),
            Some(words) => Efforts::from_words(words.iter().map(|word| word.as_str())),
        },
        caches: options.caches,
        ..TranslationTarget::default()
    })
}

/// The fields that translated requests have because the model is told by them to think, or not to: they
/// are let through.
pub(super) fn thinking_fields(raw: &raw::ModelEntry) -> &'static [&'static str] {
    match raw.translated.thinking_field {
        raw::ThinkingFieldWords::None | raw::ThinkingFieldWords::ReasoningEffort => &[],
        raw::ThinkingFieldWords::Thinking => &["thinking"],
        raw::ThinkingFieldWords::EnableThinking => &["enable_thinking", "thinking_budget"],
        raw::ThinkingFieldWords::ChatTemplateKwargs => &["chat_template_kwargs"],
    }
}

/// Warns about limits of a pattern, which will also apply to future models. A pattern that ends in a date
/// matches only releases of one model.
pub(super) fn check_pattern(
    document: &mut Document,
    at: &DocumentPath,
    id: &str,
    raw: &raw::ModelLimitsSection,
) {
    let Some(literal) = id.strip_suffix('*') else { return };
    // Releases of one model share its limits; only a pattern that fits other models goes out of date.
    if DATES.iter().any(|date| literal.ends_with(date)) {
        return;
    }
    let limits = [
        ("context_tokens_max", raw.context_tokens_max),
        ("output_tokens_max", raw.output_tokens_max),
    ];
    if let Some((limit, _)) = limits.into_iter().find(|(_, tokens)| tokens.is_some()) {
        let message =
            "the limits of a pattern are out of date as soon as a model comes that has others";
        let help = format!(
            "list the models, or let the pattern go on with a date: `{}-20*`",
            literal.trim_end_matches('-')
        );
        document.note(Fault::at_key(&at.key(limit), message).warning().help(help));
    }
}

/// Beginnings of a release date behind a model's name.
const DATES: [&str; 2] = ["-20", "@20"];

fn images(raw: &raw::ModelLimitsSection) -> ImageLimits {
    let default = ImageLimits::default();
    ImageLimits {
        count_max: raw.images_max.unwrap_or(default.count_max),
        references_min: raw.reference_images_min.unwrap_or(default.references_min),
        references_max: raw.reference_images_max.unwrap_or(default.references_max),
        sizes: raw.sizes.iter().map(|size| size.0).collect(),
        side_max: raw.side_max,
        side_multiple: raw.side_multiple,
        aspect_ratio_max: raw.aspect_ratio_max,
        qualities: raw.qualities.as_ref().map(|names| names.iter().map(|name| name.0).collect()),
        output_formats: raw
            .output_formats
            .as_ref()
            .map(|names| names.iter().map(|name| name.0).collect()),
        response_formats: raw
            .response_formats
            .as_ref()
            .map(|names| names.iter().map(|name| name.0).collect()),
        mask: raw.mask.unwrap_or(default.mask),
        stream: raw.stream.unwrap_or(default.stream),
    }
}

fn transcription(raw: &raw::ModelLimitsSection) -> TranscriptionLimits {
    let default = TranscriptionLimits::default();
    TranscriptionLimits {
        seconds_max: raw.seconds_max,
        billed_seconds_min: raw.billed_seconds_min.unwrap_or(default.billed_seconds_min),
        audio_tokens_per_second: raw
            .audio_tokens_per_second
            .unwrap_or(default.audio_tokens_per_second),
    }
}

fn speech(raw: &raw::ModelLimitsSection) -> SpeechLimits {
    let default = SpeechLimits::default();
    SpeechLimits {
        characters_max: raw.characters_max.unwrap_or(default.characters_max),
        formats: raw.audio_formats.as_ref().map(|names| names.iter().map(|name| name.0).collect()),
        instructions: raw.instructions.unwrap_or(default.instructions),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape;

    #[test]
    fn rows_of_operations_name_fields_that_exist() {
        let limits = shape::schema_of::<raw::ModelLimitsSection>();
        let conditions = shape::schema_of::<raw::WhenSection>();
        let has = |schema: &schemars::Schema, field: &str| {
            schema.as_value()["properties"].get(field).is_some()
        };
        for operation in Operation::EVERY {
            let row = operation.info();
            let required = row.limits_required.iter().chain(row.limits_required_by_tokens);
            for field in row.limits.iter().chain(required) {
                assert!(has(&limits, field), "{operation}: no limit `{field}`");
            }
            for field in row.conditions {
                assert!(has(&conditions, field), "{operation}: no condition `{field}`");
            }
        }
    }

    #[test]
    fn pictures_are_counted_by_the_dialect_where_all_targets_speak_one() {
        use PictureFamily::{AnthropicHigh, Google};
        for (dialects, expected) in [
            (&[Dialect::Anthropic][..], Some(AnthropicHigh)),
            (&[Dialect::Gemini, Dialect::Vertex], Some(Google)),
            (&[Dialect::Anthropic, Dialect::Gemini], None),
            (&[Dialect::Anthropic, Dialect::Openai], None),
            (&[Dialect::Openai], None),
            (&[Dialect::Bedrock], None),
            (&[], None),
        ] {
            assert_eq!(pictures_over(dialects.iter().copied()), expected, "{dialects:?}");
        }
    }
}
