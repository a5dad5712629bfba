//! Attributes an upstream's refusal to the customer, the operator or the provider. Many providers say "your
//! account" with the status of a malformed request, so the body decides, and the status only where the body
//! is silent.
//!
//! | File | What |
//! |---|---|
//! | `body` | the shapes in which providers write errors, read into one |
//! | `rule` | what a row of a table is, and how it matches |
//! | `phrases` | what providers without a table of their own begin such messages with |
//! | `openai`, `anthropic`, … | a table for each provider family |
//! | `answer` | errors within answers whose status is one of success |
//!
//! Customers must not be able to bring such a verdict about: it shuts the operator's credential out. So
//! codes, types and reasons are compared, which providers choose from a list, and messages only by
//! their beginning: providers quote a customer's text behind words of their own.

mod answer;
mod body;
mod phrases;
mod rule;

mod anthropic;
mod ark;
mod azure;
mod bedrock;
mod dashscope;
mod google;
mod minimax;
mod openai;
mod resellers;
mod retrieval;
mod xai;
mod zhipu;

use std::time::Duration;

pub use answer::{AnswerStart, beginning, frames_beginning};
use body::RefusalBody;
use rule::Rule;

use crate::Dialect;

/// Party at fault for a refused request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalFault {
    /// The operator's credential is wrong, revoked or expired.
    Credential,
    /// The operator's account has no credit, has reached a limit of spending, is disabled, or may not
    /// be used from here.
    Account,
    /// The upstream does not have the model, or the operator's account may not use it.
    Model,
    /// The upstream has no room at the moment.
    Busy,
    /// The upstream itself failed.
    Upstream,
    /// The customer's request is at fault.
    Customer,
}

impl RefusalFault {
    /// Its word in metrics and in the log.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Credential => "credential",
            Self::Account => "account",
            Self::Model => "model",
            Self::Busy => "busy",
            Self::Upstream => "upstream",
            Self::Customer => "request",
        }
    }
}

/// An upstream's error instead of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamRefusal {
    /// Party at fault; `None` where the status must decide.
    pub fault: Option<RefusalFault>,
    /// Status of the refusal: the one in the body if the response has a status of success.
    pub status: u16,
    /// Delay before a retry, if the body gives one.
    pub delay: Option<Duration>,
    /// The most telling of its codes and types; empty without one.
    pub code: String,
    /// The upstream's message, unchanged.
    pub message: String,
}

/// The tables, each provider family's own.
const TABLES: [&[Rule]; 12] = [
    openai::RULES,
    anthropic::RULES,
    google::RULES,
    bedrock::RULES,
    azure::RULES,
    dashscope::RULES,
    ark::RULES,
    xai::RULES,
    minimax::RULES,
    zhipu::RULES,
    retrieval::RULES,
    resellers::RULES,
];

/// The table that is looked into first: what resellers relay in others' words is found in the rest.
fn own_table(dialect: Dialect) -> &'static [Rule] {
    match dialect {
        Dialect::Openai => openai::RULES,
        Dialect::Anthropic => anthropic::RULES,
        Dialect::Dashscope => dashscope::RULES,
        Dialect::Ark => ark::RULES,
        Dialect::Xai => xai::RULES,
        Dialect::Voyage => retrieval::RULES,
        Dialect::Bedrock => bedrock::RULES,
        Dialect::Gemini | Dialect::Vertex => google::RULES,
    }
}

/// Reads what an upstream says with a status other than one of success, or in an answer that
/// [`beginning`] has found to be an error. `name` is what a header calls the failure.
#[must_use]
pub fn read(dialect: Dialect, status: u16, name: Option<&str>, body: &[u8]) -> UpstreamRefusal {
    let read = RefusalBody::read(status, name, body);
    // What a reseller repeats of its own upstream's words is closer to the cause.
    let fault = read.inner.as_deref().and_then(|inner| fault_of(dialect, inner));
    let fault = fault.or_else(|| fault_of(dialect, &read));
    let code = read.words.first().cloned().unwrap_or_default();
    UpstreamRefusal { fault, status: read.status, delay: read.delay, code, message: read.message }
}

fn fault_of(dialect: Dialect, body: &RefusalBody) -> Option<RefusalFault> {
    let own = own_table(dialect);
    let others = TABLES.into_iter().filter(|table| table.as_ptr() != own.as_ptr());
    let mut tables = std::iter::once(own).chain(others);
    let matching = tables.find_map(|table| table.iter().find(|rule| rule.matches(body)));
    matching.map(|rule| rule.fault).or_else(|| phrases::fault_of(body))
}

#[cfg(test)]
mod tests;
