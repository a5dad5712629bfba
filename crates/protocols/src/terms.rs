//! What every request says, whatever its protocol: its model, the most that it can use and the
//! least.

use std::ops::Range;

use super::NamedInPath;
use super::estimate::TextSize;
use super::fields::boolean;
use super::form::{Discarded, Form, Part};
use super::json::{Object, Value};
use super::limits::ModelLimits;
use super::offer::Prompt;
use super::server_tools::{Reread, ToolResult};
use super::splice::{Splice, json_string};
use tollgate_money::error::{ErrorKind, GatewayError};
use tollgate_money::price::Usage;

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

    /// The terms of a prompt, whose input its bytes bound unless something says otherwise.
    ///
    /// # Errors
    /// A prompt that the model's context cannot hold, with `context_length_exceeded`, and a `stream`
    /// that is no boolean.
    pub(super) fn of_prompt(
        body: &Object<'_>,
        prompt: &Prompt,
        limits: &ModelLimits,
        output_tokens_max: u64,
    ) -> Result<Self, GatewayError> {
        let bytes = prompt_tokens_max(body);
        let context = limits.input_tokens_max;
        if prompt.is_text && bytes / BYTES_PER_TOKEN_MAX > context {
            return Err(too_long(bytes / BYTES_PER_TOKEN_MAX, context));
        }
        let input_once = match prompt.added_tokens_max {
            Some(added) => context.min(bytes.saturating_add(added)),
            None => context,
        };
        // A picture in base64 has a thousandth of the tokens that so many letters would have.
        let has_media = prompt.added_tokens_max.is_none();
        let size = TextSize::of_document(&body.decoded_text(has_media));
        let mut bound = match prompt.search {
            Some(search) => {
                searching(search, prompt.rounds, input_once, context, output_tokens_max)
            }
            None => Usage {
                input_tokens: input_once.saturating_mul(prompt.rounds),
                output_tokens: output_tokens_max.saturating_mul(prompt.rounds),
                ..Usage::ZERO
            },
        };
        if prompt.is_compacted {
            // What sums it up reads all of it, and is not bounded by what was asked for.
            bound.input_tokens = bound.input_tokens.saturating_add(context);
            bound.output_tokens = bound.output_tokens.saturating_add(limits.output_tokens_max);
        }
        Ok(Self {
            stream: boolean(body, "stream")?.unwrap_or(false),
            model: ModelField::read(body),
            bound: bound.plus(&prompt.ran_max),
            floor: Usage { input_tokens: size.tokens().min(input_once), ..Usage::ZERO },
        })
    }
}

impl Terms {
    /// The terms of a request whose path names its model, and says how it is answered.
    pub(super) fn named_in_path(self, named: NamedInPath<'_>) -> Self {
        let model = ModelField { place: ModelLocation::Path, name: named.model.to_owned() };
        Self { stream: named.streams, model, ..self }
    }
}

/// The most tokens that any tokenizer makes of what a document of text says: one for each byte of it,
/// whichever way it is spelled, and what numbers can grow by where a provider writes them anew. ADR 77
/// says why that covers how providers render tools and messages.
fn prompt_tokens_max(body: &Object<'_>) -> u64 {
    body.decoded_bytes().saturating_add(body.rewritten_bytes()) as u64
}

/// What a prompt comes to whose upstream searches for the answer, of which each round but the last adds a
/// result to it. The most output that was asked for is that of all rounds together, as vendors define it
/// ("for a response", "absolute maximum"). What a vendor bills beyond that is charged by its report.
fn searching(
    search: ToolResult,
    rounds: u64,
    input_once: u64,
    context: u64,
    output_tokens_max: u64,
) -> Usage {
    /// Rounds of which each is added up by itself; those after it are taken for a whole context.
    const COUNTED_MAX: u64 = 128;
    let calls = rounds.saturating_sub(1);
    let prompt_after =
        |calls: u64| context.min(input_once.saturating_add(search.tokens.saturating_mul(calls)));
    let counted = (1..=calls.min(COUNTED_MAX)).map(|call| prompt_after(call - 1));
    let rest = calls.saturating_sub(COUNTED_MAX).saturating_mul(context);
    let reread = counted.fold(rest, u64::saturating_add);
    let mut bound = Usage {
        input_tokens: prompt_after(calls),
        output_tokens: output_tokens_max,
        ..Usage::ZERO
    };
    match search.reread {
        Reread::Cached => bound.cache_read_tokens = reread,
        Reread::Input => bound.input_tokens = bound.input_tokens.saturating_add(reread),
        Reread::Free => {}
    }
    bound
}

/// Bytes of a request that a token has at most, on the average of a prompt as long as a context.
/// English has four to five, and the rest of a document next to nothing beside it.
const BYTES_PER_TOKEN_MAX: u64 = 6;

/// In the words that Claude Code and Codex know: they make their context shorter, and come again.
fn too_long(tokens: u64, context: u64) -> GatewayError {
    let message = format!("prompt is too long: {tokens} tokens > {context} maximum");
    GatewayError::new(ErrorKind::InvalidRequest, message).code("context_length_exceeded")
}

/// Where a request names its model, and how.
#[derive(Debug)]
pub(super) struct ModelField {
    place: ModelLocation,
    name: String,
}

#[derive(Debug)]
enum ModelLocation {
    /// The value of a JSON member.
    Json(Range<usize>),
    /// A part of a form.
    Form(Part, Discarded),
    /// The path, which is written anew for each upstream.
    Path,
}

impl ModelField {
    fn read(body: &Object<'_>) -> Self {
        let value = body.get("model");
        let name = value.as_ref().and_then(Value::as_str).unwrap_or_default().into_owned();
        Self {
            place: ModelLocation::Json(value.map(|value| value.range).unwrap_or_default()),
            name,
        }
    }

    pub(super) fn of_part(form: &Form, part: &Part, name: &str) -> Self {
        Self {
            place: ModelLocation::Form(part.clone(), form.discarded.clone()),
            name: name.to_owned(),
        }
    }

    /// The name overwritten, unless the upstream uses the same. What stands around the parts of a form
    /// stays here.
    pub(super) fn rename(&self, upstream_model: &str) -> Splice {
        let mut splice = Splice::default();
        if let ModelLocation::Form(_, discarded) = &self.place {
            discarded.cut(&mut splice);
        }
        match &self.place {
            _ if self.name == upstream_model => {}
            ModelLocation::Json(range) => {
                splice.replace(range.clone(), json_string(upstream_model))
            }
            ModelLocation::Form(part, _) => part.overwrite(upstream_model, &mut splice),
            ModelLocation::Path => {}
        }
        splice
    }
}
