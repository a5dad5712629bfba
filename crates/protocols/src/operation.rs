//! Operations: one row each in [`table`], which everything that configures, admits, prices, routes or shows
//! operations reads.

mod table;

use std::fmt;

use tollgate_money::price::Unit;

pub use table::Operation;

/// An operation's row in the table: all that differs from other operations and is no codec's.
#[derive(Debug)]
pub struct OperationInfo {
    /// Word in YAML, logs and metrics.
    pub name: &'static str,
    /// Default path of its requests at the gateway. That of an operation [with a parent](Self::parent) begins
    /// with the parent's path, and moves with it.
    pub path: &'static str,
    /// Rest of the path as documents write it, where it names the model; empty elsewhere.
    pub path_suffix: &'static str,
    /// Line of the reference that says what the operation does.
    pub summary: &'static str,
    /// Format of request bodies.
    pub body: BodyKind,
    /// Operation that a model must list to serve this one; `None` for operations that YAML names themselves.
    pub parent: Option<Operation>,
    /// Model of requests that name none; `None` where a model is required.
    pub default_model: Option<&'static str>,
    /// False for operations that cost nothing, such as counts of tokens.
    pub is_billed: bool,
    /// True if requests start tasks, whose results are polled below the path. A task is never submitted to a second
    /// model.
    pub is_task: bool,
    /// True for prompts, which can be translated between dialects.
    pub is_prompt: bool,
    /// Alternative sets of units to bill by: a model needs a price for each unit of one set. Empty where no
    /// price is needed.
    pub billed_by: &'static [&'static [Unit]],
    /// Units that can be billed in addition to those of [`Self::billed_by`].
    pub billed_beside: &'static [Unit],
    /// Fields of `limits` in `models.yaml` that have an effect.
    pub limits: &'static [&'static str],
    /// Fields of `limits` that the hold is computed from, so that a model must have them.
    pub limits_required: &'static [&'static str],
    /// Fields of `limits` that a model must also have if output tokens have a price.
    pub limits_required_by_tokens: &'static [&'static str],
    /// Conditions of `prices_when` in `models.yaml` that a request can meet.
    pub conditions: &'static [&'static str],
    /// True where `pass_fields` can name members of nested objects; elsewhere only top-level fields.
    pub passes_nested_fields: bool,
    /// Field that limits output tokens, in the operation's own dialect; `None` without such a limit.
    pub output_limit: Option<&'static str>,
    /// Advice for a customer whose balance does not cover the hold, where no output limit lowers it: the end
    /// of a sentence.
    pub cheaper: &'static str,
    /// Kind of upstream endpoint, by which failures are weighed; `None` for a kind named as the operation.
    pub call_kind: Option<&'static str>,
    /// Shape of errors that clients of the operation read.
    pub error_shape: ErrorShape,
    /// Error code of a request without a model, in dialects that have one of their own.
    pub model_missing_code: Option<&'static str>,
    /// Error code of a model that does not serve the operation, in dialects that have one of their own.
    pub model_mismatch_code: Option<&'static str>,
    /// Operation in OpenTelemetry's conventions for generative AI (`gen_ai.operation.name`); `None` where they
    /// have no word, or the same.
    pub trace_name: Option<&'static str>,
    /// Form in the console's playground; `None` without one.
    pub playground: Option<&'static str>,
    /// `mode` of such models in LiteLLM's configuration.
    pub litellm_mode: Option<&'static str>,
    /// Patterns of names of such models, with `*` for any text: a guess where nothing else tells.
    pub model_names: &'static [&'static str],
    /// Order of guesses where a name fits several operations: the lowest is taken, and of equals the first row.
    pub guess_rank: u8,
}

/// Shape of an error's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorShape {
    /// An object `error`, as OpenAI's SDKs read it.
    Openai,
    /// The same, and an event that ends a stream of OpenAI's Responses API.
    Responses,
    /// Anthropic's `error` with a `type`.
    Anthropic,
    /// Google's `error` with a numeric `code` and a `status`.
    Google,
    /// DashScope's `code` and `message`, with OpenAI's `error` beside them.
    Dashscope,
}

/// Format of an operation's request bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    /// A JSON object with the model's name.
    Json,
    /// A JSON object of which the path has the model's name, and says if the answer is streamed.
    ModelInPath,
    /// A JSON object that may have long lists of token ids, which are counted and not collected.
    JsonWithTokenIds,
    /// A multipart form.
    Form,
}

impl Operation {
    /// Operations that YAML can name, in the order in which documents list them.
    pub const ALL: [Self; Self::NAMED] = {
        let mut named = [Self::EVERY[0]; Self::NAMED];
        let (mut from, mut to) = (0, 0);
        while from < Self::EVERY.len() {
            if Self::EVERY[from].info().parent.is_none() {
                named[to] = Self::EVERY[from];
                to += 1;
            }
            from += 1;
        }
        named
    };

    const NAMED: usize = {
        let (mut at, mut count) = (0, 0);
        while at < Self::EVERY.len() {
            if Self::EVERY[at].info().parent.is_none() {
                count += 1;
            }
            at += 1;
        }
        count
    };

    /// The prompts among [`Self::ALL`].
    pub fn prompts() -> impl Iterator<Item = Self> + Clone {
        Self::ALL.into_iter().filter(|operation| operation.info().is_prompt)
    }

    /// Operations that a model serves because it lists this one, each with its path below this one's.
    pub fn children(self) -> impl Iterator<Item = (Self, &'static str)> {
        let children = Self::EVERY.iter().filter(move |other| other.info().parent == Some(self));
        children.map(move |child| {
            let below = child.info().path.strip_prefix(self.info().path);
            (*child, below.unwrap_or_default())
        })
    }

    /// The operation that a model must list to serve this one.
    #[must_use]
    pub fn granted_by(self) -> Self {
        self.info().parent.unwrap_or(self)
    }

    /// The model of requests that name none; `None` where a model is required.
    #[must_use]
    pub fn default_model(self) -> Option<&'static str> {
        self.info().default_model
    }

    /// True if request bodies are multipart forms.
    #[must_use]
    pub fn takes_form(self) -> bool {
        self.info().body == BodyKind::Form
    }

    /// True for operations that are billed, false for free ones.
    #[must_use]
    pub fn is_billed(self) -> bool {
        self.info().is_billed
    }

    /// True if the path names the model, and says if the answer is streamed.
    #[must_use]
    pub fn names_model_in_path(self) -> bool {
        self.info().body == BodyKind::ModelInPath
    }

    /// Name in YAML, logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.info().name
    }

    /// The kind of upstream endpoint, by which failures are weighed.
    #[must_use]
    pub fn call_kind(self) -> &'static str {
        self.info().call_kind.unwrap_or(self.info().name)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_and_paths_are_unique_among_operations_of_yaml() {
        let names: HashSet<_> =
            Operation::EVERY.iter().map(|operation| operation.as_str()).collect();
        assert_eq!(names.len(), Operation::EVERY.len());
        let paths: HashSet<_> =
            Operation::ALL.iter().map(|operation| operation.info().path).collect();
        assert_eq!(paths.len(), Operation::ALL.len());
    }

    #[test]
    fn a_child_has_its_path_below_its_parent() {
        let of_all: Vec<_> = Operation::ALL.into_iter().flat_map(Operation::children).collect();
        let expected = [
            (Operation::CountTokens, "/count_tokens"),
            (Operation::Compact, "/compact"),
            (Operation::InputTokens, "/input_tokens"),
            (Operation::CountContentTokens, ""),
        ];
        assert_eq!(of_all, expected);
    }
}
