//! Models whose answers may come without a usage, which is told before the first of them does.

use crate::document::{Document, Fault};
use crate::raw;
use crate::snapshot::Target;
use crate::spans::DocumentPath;
use tollgate_protocols::limits::MissingUsage;
use tollgate_protocols::{Dialect, Operation};

/// The hosts, or how they end, of providers that speak OpenAI's protocol and report what every answer
/// used.
const REPORTING: [&str; 29] = [
    "openai.com",
    "openai.azure.com",
    "anthropic.com",
    "googleapis.com",
    "aliyuncs.com",
    "volces.com",
    "bytepluses.com",
    "amazonaws.com",
    "x.ai",
    "deepseek.com",
    "moonshot.ai",
    "moonshot.cn",
    "z.ai",
    "bigmodel.cn",
    "minimax.io",
    "minimaxi.com",
    "mistral.ai",
    "groq.com",
    "together.xyz",
    "together.ai",
    "fireworks.ai",
    "openrouter.ai",
    "siliconflow.com",
    "siliconflow.cn",
    "perplexity.ai",
    "cerebras.ai",
    "cohere.ai",
    "cohere.com",
    "nvidia.com",
];
/// Output limit below which the hidden cost of an answer is small.
const OUTPUT_TOKENS_MIN: u64 = 64_000;

/// Warns about a model that may think without showing it, at an upstream that is not known to report usage.
pub(super) fn check(
    document: &mut Document,
    at: &DocumentPath,
    raw: &raw::ModelEntry,
    operations: &[Operation],
    targets: &[Target],
) {
    let may_hide = !raw.free
        && raw.reasoning != Some(false)
        && raw.missing_usage.is_none()
        && raw.limits.output_tokens_max.is_some_and(|most| most >= OUTPUT_TOKENS_MIN)
        && operations.iter().any(|operation| operation.info().is_prompt);
    let unknown = targets.iter().find(|target| {
        target.upstream.dialect == Dialect::Openai && !reports(&target.upstream.destination.host)
    });
    if let (true, Some(target)) = (may_hide, unknown) {
        let message = format!(
            "`{}` is not known to report what answers used: one without a `usage` is charged by \
             what is seen of it, and what the model may have thought beyond is your loss",
            target.upstream.name
        );
        let help = "`reasoning: false` if the model shows all that it writes; else say \
                    `missing_usage: estimate`, or `bound` to charge the most that it can be";
        document.note(Fault::at_key(at, message).help(help).warning());
    }
}

/// True if the provider at this host always reports usage.
fn reports(host: &str) -> bool {
    REPORTING.iter().any(|domain| {
        host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

/// Compiles `missing_usage`, which is `estimate` by default.
pub(super) fn compile(raw: Option<raw::MissingUsageRule>) -> MissingUsage {
    match raw {
        None | Some(raw::MissingUsageRule::Estimate) => MissingUsage::Estimate,
        Some(raw::MissingUsageRule::Bound) => MissingUsage::Bound,
    }
}

#[cfg(test)]
mod tests {
    use super::reports;

    #[test]
    fn providers_are_known_by_their_hosts_and_those_below_them() {
        for host in ["api.openai.com", "x.ai", "eu.api.x.ai", "r.openai.azure.com"] {
            assert!(reports(host), "{host}");
        }
        for host in ["127.0.0.1", "vllm", "max.ai.example.com", "notx.ai", "openai.com.evil.io"] {
            assert!(!reports(host), "{host}");
        }
    }
}
