//! What every request says, whatever its protocol: its model, the most that it can use and the
//! least.

use std::ops::Range;

use super::estimate::TextSize;
use super::fields::boolean;
use super::form::Part;
use super::json::{Object, Value};
use super::limits::ModelLimits;
use super::splice::{Splice, json_string};
use crate::error::GatewayError;
use crate::price::Usage;

/// What every request says, whatever its protocol.
#[derive(Debug)]
pub struct Terms {
    pub(super) stream: bool,
    pub(super) model: ModelField,
    pub(super) bound: Usage,
    pub(super) floor: Usage,
}

impl Terms {
    /// The terms of a request whose answer is never a stream.
    pub(super) fn of_whole(body: &Object<'_>, bound: Usage, floor: Usage) -> Self {
        Self { stream: false, model: ModelField::read(body), bound, floor }
    }

    /// The terms of a prompt, whose input its bytes bound unless an upstream adds to it.
    pub(super) fn of_prompt(
        body: &Object<'_>,
        prompt: &Prompt,
        limits: &ModelLimits,
        output_tokens_max: u64,
    ) -> Result<Self, GatewayError> {
        let text = body.text();
        let bytes = text.len() as u64;
        let input_tokens_max = match prompt.added_tokens_max {
            Some(added) if !prompt.has_media && !body.has_escaped_keys() => {
                limits.input_tokens_max.min(bytes.saturating_add(added))
            }
            _ => limits.input_tokens_max,
        };
        let size = if prompt.has_media { TextSize::of_strings(text) } else { TextSize::of(text) };
        let input_tokens = size.tokens().min(input_tokens_max);
        Ok(Self {
            stream: boolean(body, "stream")?.unwrap_or(false),
            model: ModelField::read(body),
            bound: Usage {
                input_tokens: input_tokens_max,
                output_tokens: output_tokens_max,
                ..Usage::ZERO
            },
            floor: Usage { input_tokens, ..Usage::ZERO },
        })
    }
}

/// What a prompt has beside its text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prompt {
    /// Media and files, whose tokens their bytes do not bound.
    pub(super) has_media: bool,
    /// The most tokens that an upstream adds; `None` if nobody can say.
    pub(super) added_tokens_max: Option<u64>,
}

/// Where a request names its model, and how.
#[derive(Debug)]
pub(super) struct ModelField {
    place: Place,
    name: String,
}

#[derive(Debug)]
enum Place {
    /// The value of a JSON member.
    Json(Range<usize>),
    /// A part of a form.
    Form(Part),
}

impl ModelField {
    fn read(body: &Object<'_>) -> Self {
        let value = body.get("model");
        let name = value.as_ref().and_then(Value::as_str).unwrap_or_default().into_owned();
        Self { place: Place::Json(value.map(|value| value.range).unwrap_or_default()), name }
    }

    pub(super) fn of_part(part: &Part, name: &str) -> Self {
        Self { place: Place::Form(part.clone()), name: name.to_owned() }
    }

    /// The name overwritten, unless the upstream uses the same.
    pub(super) fn rename(&self, upstream_model: &str) -> Splice {
        let mut splice = Splice::default();
        match &self.place {
            _ if self.name == upstream_model => {}
            Place::Json(range) => splice.replace(range.clone(), json_string(upstream_model)),
            Place::Form(part) => part.overwrite(upstream_model, &mut splice),
        }
        splice
    }
}
