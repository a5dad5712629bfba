//! The cells: whose request is written for whom.

use std::collections::BTreeMap;

use serde_json::Value;
use tollgate_simulator::strict::{self, StrictDialect};
use tollgate_translation::dialect::{
    ChatStyle, CustomerDialect, Efforts, Losses, ThinkingStyle, TranslationTarget, Untranslatable,
    UpstreamDialect,
};
use tollgate_translation::names::CallIds;
use tollgate_translation::{Chat, Converse, Gemini, Messages, Responses};

use crate::render;
use crate::talk::{Customer, Talk};

/// A model at an upstream, as its provider has it and as the configuration describes it.
pub(crate) struct TargetModel {
    pub(crate) name: &'static str,
    pub(crate) dialect: StrictDialect,
    pub(crate) target: TranslationTarget,
}

fn target(thinking: ThinkingStyle, takes_sampling: bool) -> TranslationTarget {
    TranslationTarget {
        thinking,
        takes_sampling,
        output_max: 32_000,
        ..TranslationTarget::default()
    }
}

/// The models of an upstream's kind: those that reason and those that do not, told by words and by
/// numbers.
pub(crate) fn models(dialect: StrictDialect) -> Vec<TargetModel> {
    use ThinkingStyle::{Budget, Effort, None};
    let model = |name, target| TargetModel { name, dialect, target };
    let openai = |takes_sampling| TranslationTarget {
        chat: ChatStyle::Openai,
        ..target(Effort, takes_sampling)
    };
    let reasons = |takes_sampling| TranslationTarget {
        efforts: Efforts::from_words(["none", "low", "medium", "high"]),
        ..openai(takes_sampling)
    };
    let plain = TranslationTarget { thinking: None, efforts: Efforts::NONE, ..openai(true) };
    match dialect {
        StrictDialect::ChatCopies => vec![
            model("qwen3.5-27b", target(None, true)),
            model(
                "mistral-large-latest",
                TranslationTarget { call_ids: CallIds::Nine, ..target(None, true) },
            ),
        ],
        StrictDialect::OpenaiChat => {
            vec![model("gpt-5.1", reasons(false)), model("gpt-4o", plain)]
        }
        StrictDialect::OpenaiResponses => {
            vec![model("gpt-5.1", reasons(false)), model("gpt-4o", plain)]
        }
        StrictDialect::Anthropic => vec![
            model("claude-opus-4-8", target(Effort, false)),
            model("claude-opus-4-6", target(Effort, true)),
            model("claude-haiku-4-5", target(Budget, true)),
        ],
        StrictDialect::Gemini => vec![
            model("gemini-3.1-pro-preview", target(Effort, true)),
            model("gemini-2.5-flash", target(Budget, true)),
        ],
        StrictDialect::Bedrock => vec![
            model("anthropic.claude-opus-4-8", target(Effort, false)),
            model("anthropic.claude-haiku-4-5", target(Budget, true)),
            model("amazon.nova-pro-v1", target(None, true)),
        ],
    }
}

pub(crate) fn reader(customer: Customer) -> &'static dyn CustomerDialect {
    match customer {
        Customer::Chat => &Chat,
        Customer::Messages => &Messages,
        Customer::Responses => &Responses,
        Customer::Gemini => &Gemini,
    }
}

pub(crate) fn writer(dialect: StrictDialect) -> &'static dyn UpstreamDialect {
    match dialect {
        StrictDialect::ChatCopies | StrictDialect::OpenaiChat => &Chat,
        StrictDialect::OpenaiResponses => &Responses,
        StrictDialect::Anthropic => &Messages,
        StrictDialect::Gemini => &Gemini,
        StrictDialect::Bedrock => &Converse,
    }
}

/// The twenty cells: four customers by six kinds of upstreams, without the four whose upstream is the
/// customer's own provider, which gets the request as it is. Chat completions of the common kind are
/// written anew for customers of OpenAI's own.
pub(crate) fn cells() -> Vec<(Customer, StrictDialect)> {
    let own = |customer| match customer {
        Customer::Chat => StrictDialect::OpenaiChat,
        Customer::Messages => StrictDialect::Anthropic,
        Customer::Responses => StrictDialect::OpenaiResponses,
        Customer::Gemini => StrictDialect::Gemini,
    };
    let customers = Customer::ALL.into_iter();
    customers
        .flat_map(|customer| StrictDialect::ALL.map(|dialect| (customer, dialect)))
        .filter(|(customer, dialect)| *dialect != own(*customer))
        .collect()
}

/// Stop sequences, which the Responses API has no words for: the gateway reaches such a model through its
/// chat completions, where they are carried.
pub(crate) const GOES_ELSEWHERE: &str = "stop";

/// Outcome of one request for one pair of dialects.
#[derive(Debug)]
pub(crate) enum CellOutcome {
    /// The provider takes it.
    Taken,
    /// The gateway refuses it by this field.
    Refused { field: String },
    /// The provider refuses it.
    Fault { rule: &'static str, message: String, written: String },
}

/// Reads a customer's request and writes it for a model, and has the provider look at it.
pub(crate) fn pass(customer: Customer, body: &[u8], model: &TargetModel) -> CellOutcome {
    let refused =
        |refusal: Untranslatable| CellOutcome::Refused { field: refusal.field.into_owned() };
    let read = match reader(customer).read_request(body) {
        Ok(read) => read,
        Err(refusal) => return refused(refusal),
    };
    let target = TranslationTarget { streams: read.frame.streams, ..model.target };
    let written = writer(model.dialect).write_request(&read.parts, &target, &mut Losses::default());
    let written = match written {
        Ok(written) => written,
        Err(refusal) => return refused(refusal),
    };
    let mut document: Value = match serde_json::from_slice(&written) {
        Ok(document) => document,
        Err(error) => {
            let written = String::from_utf8_lossy(&written).into_owned();
            return CellOutcome::Fault { rule: "json", message: error.to_string(), written };
        }
    };
    if !matches!(model.dialect, StrictDialect::Gemini | StrictDialect::Bedrock) {
        document["model"] = model.name.into();
    }
    match strict::check(model.dialect, model.name, None, &document) {
        Ok(()) => CellOutcome::Taken,
        Err(refusal) => CellOutcome::Fault {
            rule: refusal.rule,
            message: refusal.message,
            written: document.to_string(),
        },
    }
}

/// A field without the places in it: `messages[].content[].text`.
pub(crate) fn without_places(field: &str) -> String {
    let mut kept = String::new();
    let mut is_inside = false;
    for letter in field.chars() {
        match letter {
            '[' => is_inside = true,
            ']' => is_inside = false,
            _ if is_inside => continue,
            _ => {}
        }
        kept.push(letter);
    }
    kept
}

/// Outcomes of many requests for one pair of dialects.
#[derive(Default)]
pub(crate) struct CellTally {
    pub(crate) total: usize,
    pub(crate) refused: BTreeMap<String, usize>,
    pub(crate) faults: BTreeMap<(&'static str, &'static str), (usize, String)>,
}

impl CellTally {
    /// Refusals by name, without those of requests that the gateway sends elsewhere.
    pub(crate) fn refused_total(&self, goes_elsewhere: impl Fn(&str) -> bool) -> usize {
        self.refused
            .iter()
            .filter(|(field, _)| !goes_elsewhere(field))
            .map(|(_, count)| count)
            .sum()
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.total += other.total;
        for (field, count) in other.refused {
            *self.refused.entry(field).or_default() += count;
        }
        for (key, (count, example)) in other.faults {
            let fault = self.faults.entry(key).or_insert((0, example));
            fault.0 += count;
        }
    }

    /// The reasons of the refusals, the commonest first.
    pub(crate) fn reasons(&self) -> String {
        let mut reasons: Vec<_> = self.refused.iter().collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let reasons = reasons.into_iter().map(|(field, count)| format!("{field} {count}"));
        reasons.collect::<Vec<_>>().join(", ")
    }
}

/// Conversations of these seeds in a cell, each for one of the upstream's models.
pub(crate) fn run(
    customer: Customer,
    dialect: StrictDialect,
    seeds: std::ops::Range<u64>,
) -> CellTally {
    let models = models(dialect);
    let mut tally = CellTally::default();
    for seed in seeds {
        let mut rng = fastrand::Rng::with_seed(seed);
        let talk = Talk::new(&mut rng, customer);
        let body = render::request(&talk, customer, &mut rng).to_string();
        let model = &models[rng.usize(0..models.len())];
        tally.total += 1;
        match pass(customer, body.as_bytes(), model) {
            CellOutcome::Taken => {}
            CellOutcome::Refused { field } => {
                *tally.refused.entry(without_places(&field)).or_default() += 1;
            }
            CellOutcome::Fault { rule, message, written } => {
                let example =
                    || format!("seed {seed}: {message}\n    asked {body}\n    wrote {written}");
                let fault =
                    tally.faults.entry((model.name, rule)).or_insert_with(|| (0, example()));
                fault.0 += 1;
            }
        }
    }
    tally
}
