//! Usage in an answer, and the billed part of it.

use serde::Deserialize;
use serde_json::Number;

use crate::disjoint::count;
use crate::metering::read_wire;
use tollgate_money::price::{Usage, UsageSource};

/// Units with a price.
#[derive(Clone, Copy, Debug)]
pub(super) struct BilledUnits {
    pub(super) seconds: bool,
    pub(super) tokens: bool,
    /// The seconds that are billed of shorter audio.
    pub(super) seconds_min: u64,
}

impl BilledUnits {
    /// The billed part of a usage.
    pub(super) fn usage(self, usage: &Usage) -> Usage {
        let seconds = if self.seconds { usage.audio_seconds } else { 0 };
        let tokens = if self.tokens { *usage } else { Usage::ZERO };
        Usage { audio_seconds: seconds, ..tokens }
    }

    /// The billed usage: reported units as reported, the rest as estimated.
    pub(super) fn measure(self, report: &AudioReport, estimate: &Usage) -> (Usage, UsageSource) {
        let seconds = report.seconds.map(|seconds| seconds.max(self.seconds_min));
        let tokens = report.tokens.unwrap_or(*estimate);
        let is_reported = (!self.seconds || seconds.is_some())
            && (!self.tokens || report.tokens.is_some())
            && (seconds.is_some() || report.tokens.is_some());
        let audio_seconds = seconds.unwrap_or(estimate.audio_seconds);
        let usage = self.usage(&Usage { audio_seconds, ..tokens });
        (usage, if is_reported { UsageSource::Upstream } else { UsageSource::Estimated })
    }

    /// True if a report is above the maximum that was thought possible.
    pub(super) fn is_above(self, report: &AudioReport, max_usage: &Usage) -> bool {
        let seconds = report.seconds.unwrap_or(0).max(self.seconds_min);
        let tokens = report.tokens.unwrap_or(Usage::ZERO);
        self.seconds && seconds > max_usage.audio_seconds.max(self.seconds_min)
            || self.tokens
                && (tokens.input_tokens_total() > max_usage.input_tokens_total()
                    || tokens.output_tokens > max_usage.output_tokens)
    }
}

/// Usage reported in a response. If it is reported several times, the largest values are kept.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AudioReport {
    /// Seconds of audio, begun ones and all.
    pub(super) seconds: Option<u64>,
    /// Tokens of the text and audio input, and of the output.
    pub(super) tokens: Option<Usage>,
}

/// `usage` as OpenAI writes it, in seconds or in tokens, and as Mistral does, in both.
#[derive(Deserialize)]
struct WireTranscriptionUsage {
    #[serde(default)]
    seconds: Option<Number>,
    #[serde(default)]
    prompt_audio_seconds: Option<Number>,
    #[serde(default, deserialize_with = "count")]
    input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    prompt_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    output_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    completion_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    total_tokens: Option<u64>,
    #[serde(default)]
    input_token_details: Option<WireAudioDetails>,
}

#[derive(Clone, Copy, Default, Deserialize)]
struct WireAudioDetails {
    #[serde(default, deserialize_with = "count")]
    text_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    audio_tokens: Option<u64>,
}

impl AudioReport {
    /// Adds a `usage` object.
    pub(super) fn add(&mut self, usage: &[u8]) {
        let Some(wire) = read_wire::<WireTranscriptionUsage>(usage) else { return };
        let reported_seconds_value = wire.seconds.as_ref().or(wire.prompt_audio_seconds.as_ref());
        self.add_seconds(reported_seconds_value.and_then(begun_seconds));
        // There is no sound without tokens.
        let total = wire.total_tokens.unwrap_or(0);
        let output = wire.output_tokens.max(wire.completion_tokens).unwrap_or(0);
        let input = wire.input_tokens.max(wire.prompt_tokens);
        let input = input.unwrap_or_else(|| total.saturating_sub(output));
        if input == 0 {
            return;
        }
        let details = wire.input_token_details.unwrap_or_default();
        let beside = details.audio_tokens.filter(|audio| *audio > input).unwrap_or(0);
        let output_tokens = output.max(total.saturating_sub(input).saturating_sub(beside));
        // What is not told of is taken for sound, which most of it is.
        let (text, audio_input_tokens) = match (details.audio_tokens, details.text_tokens) {
            // More sound than input is beside it.
            (Some(audio), _) if audio > input => (input, audio),
            (Some(audio), _) => (input - audio, audio),
            (None, text) => {
                let text = text.unwrap_or(0).min(input);
                (text, input - text)
            }
        };
        let tokens = Usage { input_tokens: text, audio_input_tokens, output_tokens, ..Usage::ZERO };
        let before = self.tokens.unwrap_or(Usage::ZERO);
        let is_more = tokens.input_tokens_total() >= before.input_tokens_total();
        let input = if is_more { tokens } else { before };
        let output_tokens = tokens.output_tokens.max(before.output_tokens);
        self.tokens = Some(Usage { output_tokens, ..input });
    }

    /// Adds the duration that is reported beside the `usage`.
    pub(super) fn add_seconds(&mut self, seconds: Option<u64>) {
        // There is no audio of no length.
        self.seconds = self.seconds.max(seconds.filter(|seconds| *seconds > 0));
    }
}

/// Seconds as they are written, begun ones and all; `None` for what is no length.
pub(super) fn begun_seconds(number: &Number) -> Option<u64> {
    number.as_u64().or_else(|| {
        let seconds = number.as_f64().filter(|seconds| *seconds > 0.0)?;
        format!("{:.0}", seconds.ceil()).parse().ok()
    })
}
