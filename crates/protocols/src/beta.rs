//! Betas that customers ask for in a header, and what each needs before it may reach an upstream.
//!
//! A beta opens fields of a body, and a few change what a request costs by themselves. What it opens is
//! read in the body, where [`super::allowlist`] denies by default. So a beta is forwarded unless this table
//! says that it needs a price, or something of the operator's account, which the model does not have. A
//! name that is not in the table is forwarded as well, unless a word in it names something that Anthropic
//! sells at a price of its own. What is not forwarded is named in `x-tollgate-left-out`, and the fields that
//! belong to it are refused, or left out by name too.
//!
//! Sources, seen 2026-11-27: the names in Claude Code 2.1.332 and in the Python package `anthropic` 2.14.0;
//! <https://platform.claude.com/docs/en/about-claude/pricing> for what has a price.

use std::borrow::Cow;

use super::limits::ModelLimits;
use tollgate_money::price::Unit;

/// The longest name that is forwarded, in bytes.
const NAME_BYTES_MAX: usize = 128;
/// Bytes of a name that a header of the answer repeats.
const SHOWN_BYTES_MAX: usize = 64;
/// The context of models that have no longer one, in tokens. Above it some models cost more.
const USUAL_CONTEXT: u64 = 200_000;

/// A beta feature of Anthropic's API.
#[derive(Debug)]
pub struct Beta {
    /// Its name without the date.
    pub name: &'static str,
    /// The condition of its being forwarded.
    pub needs: BetaNeeds,
    /// Fields and types of the body that belong to it, where it needs anything.
    pub fields: &'static [&'static str],
}

/// A condition of a beta's being forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BetaNeeds {
    /// Nothing: by Anthropic's documentation it changes no price, or what it opens is priced in the body.
    Nothing,
    /// A model with a context above the usual one: the operator's prices are for all of it.
    LongContext,
    /// A price for this word of a field.
    Word(&'static str, &'static str),
    /// A price for this unit.
    Unit(Unit),
    /// The operator's word for this field of the body: `pass_fields`.
    Field(&'static str),
    /// The operator's word for this type of tools: `pass_tools`.
    Tool(&'static str),
    /// The operator's word for the beta itself: `pass_headers`.
    Operator,
}

const fn free(name: &'static str) -> Beta {
    Beta { name, needs: BetaNeeds::Nothing, fields: &[] }
}

const fn needs(name: &'static str, needs: BetaNeeds, fields: &'static [&'static str]) -> Beta {
    Beta { name, needs, fields }
}

/// Supported betas, by name.
pub static BETAS: &[Beta] = &[
    free("advanced-tool-use"),
    // Another model is asked, at its own price.
    needs("advisor-tool", BetaNeeds::Tool("advisor_20260301"), &["tools: advisor_20260301"]),
    free("afk-mode"),
    // Memory, agents and sandboxes belong to the operator's account.
    needs("agent-memory", BetaNeeds::Operator, &[]),
    free("auto-mode-classifier"),
    free("cache-diagnosis"),
    // Reads a cache without a request, and so without a usage.
    needs("cache-keepalive", BetaNeeds::Operator, &[]),
    needs("ccr-byoc", BetaNeeds::Operator, &[]),
    needs("ccr-triggers", BetaNeeds::Operator, &[]),
    free("claude-code"),
    free("claude-code-side-query"),
    needs(
        "code-execution",
        BetaNeeds::Unit(Unit::ContainerSessions),
        &["tools: code_execution_20250825"],
    ),
    free("compact"),
    free("computer-use"),
    // Sonnet 4 and 4.5 cost more above 200,000 tokens; models with a long context by themselves do not.
    needs("context-1m", BetaNeeds::LongContext, &[]),
    free("context-hint"),
    free("context-management"),
    // The provider reviews the calls of an answer with another model; what that costs is told by no
    // usage.
    needs("dangerous-tool-use", BetaNeeds::Field("safeguards"), &["safeguards"]),
    free("dev-full-thinking"),
    needs("dreaming", BetaNeeds::Operator, &[]),
    free("effort"),
    needs("environments", BetaNeeds::Operator, &[]),
    // The body says `ttl`, and the usage what was written for an hour.
    free("extended-cache-ttl"),
    needs("fallback-credit", BetaNeeds::Field("fallback_credit_token"), &["fallback_credit_token"]),
    needs("fast-mode", BetaNeeds::Word("speed", "fast"), &["speed"]),
    needs("files-api", BetaNeeds::Operator, &[]),
    free("fine-grained-tool-streaming"),
    free("inline-tools"),
    free("interleaved-thinking"),
    needs("managed-agents", BetaNeeds::Operator, &[]),
    free("max-tokens-3-5-sonnet"),
    needs("mcp-client", BetaNeeds::Field("mcp_servers"), &["mcp_servers"]),
    needs("mcp-servers", BetaNeeds::Field("mcp_servers"), &["mcp_servers"]),
    needs("mcp-tunnels", BetaNeeds::Operator, &[]),
    needs("message-batches", BetaNeeds::Operator, &[]),
    // The provider keeps the conversation: what is not in the body cannot be held.
    needs("message-threads", BetaNeeds::Field("thread"), &["thread"]),
    free("mid-conversation-effort"),
    free("mid-conversation-output-config"),
    free("mid-conversation-system"),
    free("mid-conversation-system-clear-at"),
    free("mid-conversation-tool-changes"),
    free("model-context-window-exceeded"),
    needs("oauth", BetaNeeds::Operator, &[]),
    needs("oidc-federation", BetaNeeds::Operator, &[]),
    free("output-128k"),
    free("pdfs"),
    free("per-turn-control"),
    needs("program-use-case-ids", BetaNeeds::Operator, &[]),
    free("prompt-caching"),
    free("prompt-caching-evict"),
    free("prompt-caching-scope"),
    free("redact-thinking"),
    // Names in the operator's own bills.
    needs("request-tags", BetaNeeds::Operator, &[]),
    free("resumption"),
    // Another model answers, at its own price.
    needs("server-side-fallback", BetaNeeds::Field("fallbacks"), &["fallbacks"]),
    needs("skills", BetaNeeds::Field("container"), &["container"]),
    free("structured-outputs"),
    needs("subagent-review", BetaNeeds::Field("safeguards"), &["safeguards"]),
    free("task-budgets"),
    free("thinking-binding-controls"),
    free("thinking-display-updates"),
    free("thinking-resumption"),
    free("thinking-token-count"),
    free("timing"),
    free("token-counting"),
    free("token-efficient-tools"),
    free("tool-examples"),
    free("tool-provenance"),
    free("tool-search-tool"),
    needs("user-profiles", BetaNeeds::Operator, &[]),
    // The tools of these are read in the body.
    free("web-fetch"),
    free("web-search"),
    free("web-search-results-only"),
];

/// Words that name what Anthropic sells at a price of its own, or keeps for an account: faster answers,
/// tiers, longer contexts, places, tools that it runs, other models, storage.
static PRICED_WORDS: &[&str] = &[
    "account",
    "accounts",
    "advisor",
    "agent",
    "agents",
    "batch",
    "batches",
    "billing",
    "browser",
    "code",
    "container",
    "containers",
    "credit",
    "credits",
    "execution",
    "fallback",
    "fallbacks",
    "fast",
    "faster",
    "fetch",
    "file",
    "files",
    "flex",
    "geo",
    "keepalive",
    "long",
    "mcp",
    "premium",
    "price",
    "pricing",
    "priority",
    "region",
    "residency",
    "sandbox",
    "search",
    "server",
    "skill",
    "skills",
    "speed",
    "storage",
    "thread",
    "threads",
    "tier",
    "tiers",
    "turbo",
    "ultrafast",
    "workspace",
];

/// The betas that need something which a model with these limits and prices has.
#[must_use]
pub fn granted(limits: &ModelLimits) -> Vec<&'static str> {
    let is_met = |needs: BetaNeeds| match needs {
        BetaNeeds::Nothing | BetaNeeds::Operator => false,
        BetaNeeds::LongContext => limits.input_tokens_max > USUAL_CONTEXT,
        BetaNeeds::Word(field, word) => limits.priced.has_word(field, word),
        BetaNeeds::Unit(unit) => limits.priced.has_unit(unit),
        BetaNeeds::Field(field) => limits.pass.has_field(field),
        BetaNeeds::Tool(kind) => limits.pass.has_tool(kind),
    };
    BETAS.iter().filter(|beta| is_met(beta.needs)).map(|beta| beta.name).collect()
}

/// Decides on Anthropic's beta of this name, with or without a date, for a model that has been
/// [granted](granted()) these. True for one that is forwarded.
#[must_use]
pub fn is_forwarded(token: &str, granted: &[&'static str]) -> bool {
    let name = undated(token);
    match BETAS.binary_search_by(|beta| beta.name.cmp(name)) {
        Ok(at) => BETAS
            .get(at)
            .is_some_and(|beta| beta.needs == BetaNeeds::Nothing || granted.contains(&beta.name)),
        Err(_) => is_name(token) && !names_a_price(name),
    }
}

/// Decides on OpenAI's beta of this name. True for one that is forwarded: the Responses API needs none any more, and clients go on
/// to send one; the others are of APIs that keep something for an account.
#[must_use]
pub fn is_openai_forwarded(token: &str) -> bool {
    let name = token.split_once('=').map_or(token, |(name, _)| name);
    is_name(name) && name == "responses"
}

/// A beta that is left out, as a header of the answer names it.
#[must_use]
pub fn shown(header: &str, token: &str) -> String {
    let is_plain = |letter: &char| letter.is_ascii_graphic() && *letter != ',';
    let token: String = token.chars().filter(is_plain).take(SHOWN_BYTES_MAX).collect();
    format!("{header}: {token}")
}

fn undated(token: &str) -> &str {
    token.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '-')
}

fn is_name(token: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    token.len() <= NAME_BYTES_MAX && token.bytes().all(is_letter)
}

/// True for an unknown name of which a word is one of [`PRICED_WORDS`], or a size such as `2m`.
fn names_a_price(name: &str) -> bool {
    let mut words = name.split(['-', '_', '.']).map(|word| match word {
        word if word.bytes().any(|byte| byte.is_ascii_uppercase()) => {
            Cow::Owned(word.to_ascii_lowercase())
        }
        word => Cow::Borrowed(word),
    });
    words.any(|word| {
        let is_size = word.strip_suffix(['k', 'm']).is_some_and(|digits| {
            !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
        });
        is_size || PRICED_WORDS.binary_search(&&*word).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Object;
    use crate::limits::{PassList, PricedFeatures};
    use crate::request_policy;

    #[test]
    fn both_tables_are_in_order() {
        assert!(BETAS.is_sorted_by(|a, b| a.name < b.name));
        assert!(PRICED_WORDS.is_sorted_by(|a, b| a < b));
        let dated = BETAS.iter().find(|beta| undated(beta.name) != beta.name);
        assert!(dated.is_none(), "a name without its date: {dated:?}");
    }

    #[test]
    fn what_claude_code_sends_is_forwarded() {
        // Claude Code 2.1.332 under its own names, in every mode.
        for token in [
            "claude-code-20250219",
            "interleaved-thinking-2025-05-14",
            "context-management-2025-06-27",
            "per-turn-control-2026-07-01",
            "mid-conversation-tool-changes-2026-07-01",
            "thinking-token-count-2026-05-13",
            "advanced-tool-use-2025-11-20",
            "effort-2025-11-24",
            "thinking-display-updates-2026-08-18",
            "afk-mode-2026-01-31",
            "timing-2026-09-09",
            "inline-tools-2026-09-15",
        ] {
            assert!(is_forwarded(token, &[]), "{token}");
        }
    }

    #[test]
    fn an_unknown_beta_is_forwarded_unless_it_names_a_price() {
        for (token, expected) in [
            ("gentle-words-2027-01-01", true),
            ("per-block-control-2027-02-03", true),
            ("output-format-v2-2027-01-01", true),
            ("context-2m-2027-01-01", false),
            ("context-512K-2027-01-01", false),
            ("Fast-mode-2027-01-01", false),
            ("ultrafast-2027-01-01", false),
            ("priority-tier-2027-01-01", false),
            ("image-search-2027-01-01", false),
            ("mcp-client-v3-2027-01-01", false),
            ("spaces are no name", false),
            ("ümlaut-2027-01-01", false),
        ] {
            assert_eq!(is_forwarded(token, &[]), expected, "{token}");
        }
        assert!(!is_forwarded(&"a".repeat(NAME_BYTES_MAX + 1), &[]));
    }

    #[test]
    fn a_beta_with_a_price_needs_it() {
        let plain = ModelLimits { input_tokens_max: 200_000, ..ModelLimits::default() };
        assert_eq!(granted(&plain), Vec::<&str>::new());
        for beta in BETAS.iter().filter(|beta| beta.needs != BetaNeeds::Nothing) {
            assert!(!is_forwarded(&format!("{}-2026-01-01", beta.name), &[]), "{beta:?}");
        }
        let long = ModelLimits { input_tokens_max: 1_000_000, ..ModelLimits::default() };
        assert_eq!(granted(&long), ["context-1m"]);
        let priced = PricedFeatures {
            words: vec![("speed", "fast")],
            units: vec![Unit::ContainerSessions],
            ..PricedFeatures::default()
        };
        let priced = ModelLimits { priced, ..plain.clone() };
        assert_eq!(granted(&priced), ["code-execution", "fast-mode"]);
        assert!(is_forwarded("fast-mode-2026-02-01", &granted(&priced)));
        let pass = PassList { fields: vec!["safeguards".to_owned()], ..PassList::default() };
        let passed = ModelLimits { pass, ..plain };
        assert_eq!(granted(&passed), ["dangerous-tool-use", "subagent-review"]);
    }

    #[test]
    fn fields_of_a_beta_that_is_left_out_do_not_go_upstream_either() {
        let limits = ModelLimits::default();
        for beta in BETAS.iter().filter(|beta| beta.needs != BetaNeeds::Nothing) {
            for field in beta.fields {
                let fields = match field.strip_prefix("tools: ") {
                    Some(kind) => format!(r#""tools":[{{"type":"{kind}","name":"x"}}]"#),
                    None => format!(r#""{field}":"fast""#),
                };
                let text = format!(r#"{{"model":"m","messages":[],{fields}}}"#);
                let body = Object::parse(text.as_bytes()).expect("JSON");
                match request_policy::read(&body, &request_policy::MESSAGES, &limits) {
                    Ok(prompt) => assert_eq!(prompt.left_out_fields, [*field], "{beta:?}"),
                    Err(error) => assert!(error.param.is_some(), "{beta:?} {error:?}"),
                }
            }
        }
    }
}
