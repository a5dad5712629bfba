//! `POST /v1/audio/transcriptions` and `/v1/audio/translations` over upstreams that speak OpenAI's protocol:
//! what is said in a file, written down (OpenAI's API reference, "Create transcription" and "Create
//! translation"). The form is passed on as it is but for the model's name.
//!
//! Upstreams bill the seconds of the audio, or tokens of it and of the text. What is held is the longest that
//! the file can be once it is decoded, by [`audio_length`](super::audio_length); what is charged, the
//! upstream's report. Answers of plain text, and those of older servers, report nothing: then the length
//! that is held is charged, as an estimate.

use super::allowed_keys::AllowedKey;
use super::audio_length::{self, AudioContainer};
use super::estimate::ReadTokens;
use super::fields;
use super::form::{Form, Part};
use super::limits::{ModelLimits, TranscriptionLimits};
use super::metering::StreamMeter;
use super::request_bounds::ModelField;
use super::{Call, Codec, Dialect, Framing, Meter, Operation, Request, RequestBounds};
use crate::codec::bounds_in_field;
use tollgate_money::price::{CacheWrites, InputWays, Unit, Usage};
use tollgate_types::error::GatewayError;

pub(super) mod chunking;
mod meter;
mod usage;

use meter::{DocumentMeter, TextMeter, TranscriptTally};
use usage::BilledUnits;

/// Fields that a form can have once.
pub(super) const FIELDS: [&str; 7] =
    ["file", "model", "language", "prompt", "response_format", "temperature", "stream"];
/// Lists, whose parts SDKs name with brackets or without. The words of the first two are read by the model.
pub(super) const LISTS: [&str; 8] = [
    "keywords",
    "keywords[]",
    "languages",
    "languages[]",
    "include",
    "include[]",
    "timestamp_granularities",
    "timestamp_granularities[]",
];
/// Fields of a form that requests a translation.
pub(super) const TRANSLATION_FIELDS: [&str; 5] =
    ["file", "model", "prompt", "response_format", "temperature"];
/// Text tokens that stand around the prompt at most: OpenAI's models bill ten and fewer.
const INPUT_TOKENS_ADDED_MAX: u64 = 64;

/// Codec of OpenAI's transcriptions.
#[derive(Debug)]
pub struct OpenaiTranscription;

impl Codec for OpenaiTranscription {
    fn operation(&self) -> Operation {
        Operation::Transcription
    }

    fn dialects(&self) -> &'static [Dialect] {
        &[Dialect::Openai]
    }

    fn path(&self) -> &'static str {
        "/audio/transcriptions"
    }

    fn allowed_keys(&self) -> Vec<AllowedKey> {
        AllowedKey::of_names(&[&FIELDS[..], &LISTS, &chunking::FIELDS].concat())
    }

    fn read(
        &self,
        request: &Request<'_>,
        limits: &ModelLimits,
    ) -> Result<Box<dyn Call>, GatewayError> {
        let field_names = [&FIELDS[..], &LISTS, &chunking::FIELDS].concat();
        let fields = AudioForm::read(request, &field_names, &limits.pass.fields)?;
        let chunks_last = chunking::read(&fields)?;
        Ok(Box::new(TranscriptionCall::read(&fields, chunks_last, limits)?))
    }
}

/// Codec of OpenAI's translations of audio.
#[derive(Debug)]
pub struct OpenaiAudioTranslation;

impl Codec for OpenaiAudioTranslation {
    fn operation(&self) -> Operation {
        Operation::AudioTranslation
    }

    fn dialects(&self) -> &'static [Dialect] {
        &[Dialect::Openai]
    }

    fn path(&self) -> &'static str {
        "/audio/translations"
    }

    fn allowed_keys(&self) -> Vec<AllowedKey> {
        AllowedKey::of_names(&TRANSLATION_FIELDS)
    }

    fn read(
        &self,
        request: &Request<'_>,
        limits: &ModelLimits,
    ) -> Result<Box<dyn Call>, GatewayError> {
        let fields = AudioForm::read(request, &TRANSLATION_FIELDS, &limits.pass.fields)?;
        Ok(Box::new(TranscriptionCall::read(&fields, None, limits)?))
    }
}

/// The fields of a form.
struct AudioForm<'a> {
    form: &'a Form,
    body: &'a [u8],
}

impl<'a> AudioForm<'a> {
    /// Refuses ambiguous names, which only some parsers take for a field, and fields of unknown cost.
    fn read(
        request: &'a Request<'_>,
        field_names: &[&str],
        pass: &[String],
    ) -> Result<Self, GatewayError> {
        let (form, body) = request.form()?;
        if let Some(name) = form.case_variant_of(field_names) {
            let name: String = name.chars().take(64).collect();
            let message = format!("`{name}` is not a field; field names are lower-case and plain");
            return Err(GatewayError::invalid(name, message));
        }
        let mut names = form.parts.iter().map(|part| part.name.as_str());
        names.try_for_each(|name| fields::check_listed("", name, field_names, pass))?;
        let fields = Self { form, body };
        // Read once and refused here: a field that is there twice is read differently by parsers.
        for name in field_names.iter().filter(|name| !LISTS.contains(name) && **name != "file") {
            fields.text(name)?;
        }
        Ok(fields)
    }

    fn text(&self, name: &str) -> Result<Option<&'a str>, GatewayError> {
        Ok(self.form.text(self.body, name)?)
    }

    /// Tokens of everything that the model reads in addition to the audio.
    fn read_tokens(&self) -> Result<ReadTokens, GatewayError> {
        const READ: [&str; 5] = ["prompt", "keywords", "keywords[]", "languages", "languages[]"];
        let mut tokens = ReadTokens::default();
        for part in self.form.files(&READ) {
            tokens = tokens.plus(ReadTokens::measure(part.text(self.body)?));
        }
        let most = tokens.most.saturating_add(INPUT_TOKENS_ADDED_MAX);
        Ok(ReadTokens { most, ..tokens }.bounded())
    }

    fn streams(&self) -> Result<bool, GatewayError> {
        match self.text("stream")? {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => {
                let message = "`stream` must be `true` or `false`";
                Err(GatewayError::invalid("stream", message))
            }
        }
    }

    /// True if the requested answer is not JSON.
    fn asks_for_text(&self) -> Result<bool, GatewayError> {
        match self.text("response_format")? {
            None | Some("json" | "verbose_json" | "diarized_json") => Ok(false),
            Some("text" | "srt" | "vtt") => Ok(true),
            Some(_) => {
                let message = "`response_format` must be one of json, text, srt, verbose_json, vtt, \
                               diarized_json";
                Err(GatewayError::invalid("response_format", message))
            }
        }
    }

    /// The seconds of the file, begun ones and all.
    fn seconds(&self, limits: &TranscriptionLimits) -> Result<u64, GatewayError> {
        let invalid = |message: String| GatewayError::invalid("file", message);
        let part = self.form.field("file")?;
        let part = part.ok_or_else(|| invalid("`file` is required: the audio file".to_owned()))?;
        let content = self.body.get(part.content.clone()).unwrap_or_default();
        // The longest that any reader makes of the file: headers lie, and the hold must cover what
        // is billed.
        let measured = audio_length::longest(content);
        let (container, length) = measured.map_err(|fault| invalid(format!("{fault}.")))?;
        // After the length, which says what the file is.
        check_name(part, container)?;
        let seconds = length.seconds().max(1);
        let max = limits.seconds_max.map_or(u64::MAX, u64::from);
        if seconds > max {
            return Err(invalid(format!(
                "`file` can be {seconds} s long; this model takes at most {max} s"
            )));
        }
        Ok(seconds.max(limits.billed_seconds_min.into()))
    }
}

/// Checks the file name: upstreams that choose the format by it could find other audio than was measured
/// here.
fn check_name(part: &Part, container: AudioContainer) -> Result<(), GatewayError> {
    let name = part.filename.as_deref().unwrap_or_default();
    let Some((_, extension)) = name.rsplit_once('.') else { return Ok(()) };
    let named = AudioContainer::from_extension(extension);
    if named.is_none_or(|containers| containers.contains(&container)) {
        return Ok(());
    }
    let extension: String = extension.chars().take(8).collect();
    let message = format!(
        "`file` has a name that ends with `.{extension}`, and is {}: name it as what it is",
        container.as_str()
    );
    Err(GatewayError::invalid("file", message))
}

#[derive(Debug)]
struct TranscriptionCall {
    bounds: RequestBounds,
    billed: BilledUnits,
    asks_for_text: bool,
}

impl TranscriptionCall {
    /// Reads what both operations have in common. The audio is cut into chunks that last so many seconds
    /// at most, or not at all.
    fn read(
        fields: &AudioForm<'_>,
        chunks_last: Option<u64>,
        limits: &ModelLimits,
    ) -> Result<Self, GatewayError> {
        let missing = || GatewayError::invalid("model", "`model` must be a non-empty text");
        let model = fields.form.field("model")?.zip(fields.text("model")?).ok_or_else(missing)?;
        let (stream, asks_for_text) = (fields.streams()?, fields.asks_for_text()?);
        let tokens = fields.read_tokens()?;
        let seconds = fields.seconds(&limits.transcription)?;
        let billed = BilledUnits {
            seconds: limits.priced.has_unit(Unit::AudioSeconds),
            tokens: limits.priced.has_unit(Unit::InputTokens),
            seconds_min: limits.transcription.billed_seconds_min.into(),
        };
        let audio_tokens =
            seconds.saturating_mul(limits.transcription.audio_tokens_per_second.into());
        // Each chunk is a call of the model: it reads the prompt, and can begin in the one before.
        let chunks = chunks_last.map_or(1, |seconds_max| seconds.div_ceil(seconds_max).max(1));
        let context = limits.input_tokens_max;
        let audio_tokens_max = match chunks_last {
            // Chunks overlap: in the worst case all of the audio is read twice.
            Some(_) => audio_tokens.saturating_mul(2),
            None if context > 0 => audio_tokens.min(context),
            None => audio_tokens,
        };
        let max_usage = billed.usage(&Usage {
            audio_seconds: seconds,
            audio_input_tokens: audio_tokens_max,
            input_tokens: tokens.most.saturating_mul(chunks),
            output_tokens: limits.output_tokens_max.saturating_mul(chunks),
            ..Usage::ZERO
        });
        let min_usage = billed.usage(&Usage {
            audio_seconds: seconds,
            audio_input_tokens: audio_tokens.min(audio_tokens_max),
            input_tokens: tokens.about.saturating_mul(chunks),
            ..Usage::ZERO
        });
        let model = ModelField::from_part(fields.form, model.0, model.1);
        let bounds = RequestBounds::from_parts(stream, model, max_usage, min_usage);
        Ok(Self { bounds, billed, asks_for_text })
    }
}

impl Call for TranscriptionCall {
    bounds_in_field!();

    /// True: the audio is processed before the first word, and the written text is visible. After a
    /// disconnect the stream is nevertheless read to its end, which has the upstream's own figures.
    fn is_all_shown(&self) -> bool {
        !self.bounds.stream
    }

    /// Audio input, which has its own price.
    fn input_ways(&self) -> InputWays {
        InputWays { cache_writes: CacheWrites::None, has_media: false }
    }

    fn answers_binary(&self) -> bool {
        self.asks_for_text
    }

    fn meter(&self, framing: Framing) -> Box<dyn Meter> {
        match framing {
            Framing::Json | Framing::EventStream => {
                Box::new(DocumentMeter::new(&self.bounds, self.billed))
            }
            Framing::Binary => Box::new(TextMeter::new(&self.bounds, self.billed)),
            Framing::Sse => {
                Box::new(StreamMeter::for_images(TranscriptTally::new(&self.bounds, self.billed)))
            }
        }
    }
}

#[cfg(test)]
mod tests;
