//! The bound of a prompt whose tokens its provider has counted.

use super::offer::Prompt;
use super::server_tools::ToolResult;
use super::terms::{InputBound, searching};
use tollgate_money::price::Usage;

/// Tokens by which a prompt may exceed its count, beside a fiftieth of it. Anthropic calls its counts an
/// estimate from which "the actual number of input tokens" may "differ by a small amount" (guide "Token
/// counting"). A fiftieth costs 2 % of a hold.
const COUNT_MARGIN_TOKENS: u64 = 64;
/// The part of a count by which a prompt may exceed it: one of so many.
const COUNT_MARGIN_PART: u64 = 50;
/// The part of our own estimate below which no count is believed: one of so many. Some servers answer
/// with a constant. Estimates err upward (ADR 16), by a factor of two for short words.
const ESTIMATE_PART_MIN: u64 = 4;

/// The input of a prompt that its provider's counter counts whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct CountableInput {
    input: InputBound,
    /// How often the upstream reads the prompt.
    rounds: u64,
    /// What a search adds to the prompt for the rounds after it.
    search: Option<ToolResult>,
}

impl CountableInput {
    /// `None` where the upstream reads more than it counts: for tools without a bound of their own, and
    /// for fields that only the operator's word lets through.
    pub(super) fn of(input: InputBound, prompt: &Prompt) -> Option<Self> {
        let (rounds, search) = (prompt.rounds, prompt.search);
        let is_covered = search.is_some() || rounds == 1;
        (is_covered && !prompt.has_passed).then_some(Self { input, rounds, search })
    }

    /// Lowers the tokens of the prompt to a count with its margin, and to a part of `estimate` at the
    /// lowest. Returns the input before and after; `None` where the count is no better.
    pub(super) fn tighten(&mut self, count: u64, estimate: u64) -> Option<(Usage, Usage)> {
        let count = count.max(estimate / ESTIMATE_PART_MIN);
        let margin = (count / COUNT_MARGIN_PART).saturating_add(COUNT_MARGIN_TOKENS);
        let counted = count.saturating_add(margin);
        if counted >= self.input.once() {
            return None;
        }
        let before = self.usage();
        self.input = self.input.counted(counted);
        Some((before, self.usage()))
    }

    /// The most tokens that the prompt has when it is read once.
    pub(super) fn once(&self) -> u64 {
        self.input.once()
    }

    fn usage(&self) -> Usage {
        match self.search {
            Some(search) => searching(search, self.rounds, self.input, 0),
            None => {
                Usage { input_tokens: self.input.once().saturating_mul(self.rounds), ..Usage::ZERO }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tollgate_money::price::{Unit, Usage};

    use crate::anthropic_messages::AnthropicMessages;
    use crate::json::Object;
    use crate::limits::{ModelLimits, Pass, Priced};
    use crate::openai_responses::OpenaiResponses;
    use crate::{Call, Codec, Request};

    /// Words of the prompt, which are so many tokens and five times as many bytes.
    const WORDS: u64 = 8_000;
    const COUNTED: u64 = 8_000 + 160 + 64;

    fn read(codec: &dyn Codec, body: &str) -> Box<dyn Call> {
        let limits = ModelLimits {
            input_tokens_max: 200_000,
            output_tokens_max: 8_000,
            priced: Priced { units: Unit::ALL.to_vec(), ..Priced::default() },
            pass: Pass { fields: vec!["x_unknown".to_owned()], ..Pass::default() },
            ..ModelLimits::default()
        };
        let object = Object::parse(body.as_bytes()).expect("JSON");
        codec.read(&Request::Json(object), &limits).expect("valid")
    }

    fn messages(fields: &str) -> Box<dyn Call> {
        let text = "word ".repeat(8_000);
        read(
            &AnthropicMessages,
            &format!(
                r#"{{"model":"m","max_tokens":100,"messages":[{{"role":"user","content":"{text}"}}]{fields}}}"#
            ),
        )
    }

    fn responses(fields: &str) -> Box<dyn Call> {
        let text = "word ".repeat(8_000);
        read(
            &OpenaiResponses,
            &format!(r#"{{"model":"m","max_output_tokens":100,"input":"{text}"{fields}}}"#),
        )
    }

    fn counted(call: &mut Box<dyn Call>, tokens: u64) -> Usage {
        assert!(call.terms_mut().count_input(tokens), "lower than the bytes");
        call.bound()
    }

    #[test]
    fn a_count_with_its_margin_stands_for_the_bytes_of_a_prompt() {
        let mut call = messages("");
        let before = call.bound();
        assert!(before.input_tokens > 40_000);
        let after = counted(&mut call, WORDS);
        assert_eq!(after, Usage { input_tokens: COUNTED, ..before }, "and nothing else changes");
        assert!(call.floor().input_tokens <= after.input_tokens);
        // A later count replaces the first where it is lower, and never raises the bound.
        assert!(!call.terms_mut().count_input(WORDS + 1_000));
        assert_eq!(call.bound(), after);
    }

    #[test]
    fn a_count_that_is_no_better_changes_nothing_and_one_far_below_the_estimate_is_not_believed() {
        let mut call = messages("");
        let (before, floor) = (call.bound(), call.floor().input_tokens);
        for useless in [before.input_tokens, u64::MAX] {
            assert!(!call.terms_mut().count_input(useless), "{useless}");
            assert_eq!(call.bound(), before);
        }
        let least = floor / 4 + floor / 200 + 64;
        assert_eq!(counted(&mut call, 1).input_tokens, least, "a counter that answers 1");
        assert!(least > WORDS / 4 && call.floor().input_tokens == least, "{least}");
    }

    #[test]
    fn searches_add_their_results_to_the_counted_prompt() {
        let tool = r#","tools":[{"type":"web_search"}]"#;
        let mut call = responses(tool);
        let before = call.bound();
        let after = counted(&mut call, WORDS);
        // Five searches of 8,000 tokens; rounds after the first read the prompt from the cache.
        assert_eq!(after.input_tokens, COUNTED + 5 * 8_000);
        let reread: u64 = (0..5).map(|calls| COUNTED + calls * 8_000).sum();
        assert_eq!(after.cache_read_tokens, reread);
        assert_eq!(after.output_tokens, before.output_tokens);
        assert_eq!(after[Unit::WebSearches], before[Unit::WebSearches]);
        let tool = r#","tools":[{"type":"web_search_20250305","name":"web_search","max_uses":2}]"#;
        let mut call = messages(tool);
        let after = counted(&mut call, WORDS);
        let rounds = [COUNTED, COUNTED + 8_000, COUNTED + 16_000];
        assert_eq!(after.input_tokens, rounds.iter().sum::<u64>(), "each round is input");
    }

    #[test]
    fn a_summary_keeps_its_context() {
        let compacts = r#","context_management":{"edits":[{"type":"compact_20260112"}]}"#;
        let mut call = messages(compacts);
        let before = call.bound();
        assert_eq!(before.input_tokens, 400_000);
        let after = counted(&mut call, WORDS);
        assert_eq!(after, Usage { input_tokens: 200_000 + COUNTED, ..before });
    }

    #[test]
    fn what_a_counter_does_not_cover_keeps_its_bound() {
        for mut call in [
            responses(r#","tools":[{"type":"code_interpreter","container":{"type":"auto"}}]"#),
            messages(r#","tools":[{"type":"web_fetch_20250910","name":"web_fetch"}]"#),
            messages(r#","x_unknown":1"#),
        ] {
            let before = call.bound();
            assert!(!call.terms().is_countable());
            assert!(!call.terms_mut().count_input(WORDS));
            assert_eq!(call.bound(), before);
        }
    }
}
