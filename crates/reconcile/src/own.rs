//! What the journal says that calls cost.

use std::collections::BTreeSet;

use thiserror::Error;
use tollgate_money::money::Nanousd;
use tollgate_money::price::Usage;

use crate::day::Day;

/// For what an upstream is paid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OwnKind {
    /// The answer that a customer was charged for.
    Answer,
    /// An answer that broke or never came.
    Unpaid,
    /// A try that was followed by another.
    Retry,
}

/// What records of kind `cost` come to, each one call at an upstream or one try of it, where they have
/// in common what they are compared by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnLine {
    /// The day in UTC on which it was settled.
    pub day: Day,
    /// The day in UTC on which its request began, which is that of its end where nobody knows.
    pub began: Day,
    /// The name of the upstream.
    pub upstream: String,
    /// The name of its credential; empty where the upstream has only one.
    pub credential: String,
    /// What the upstream calls the model.
    pub model: String,
    /// What is paid for.
    pub kind: OwnKind,
    /// Whether the upstream has not said what was used.
    pub is_estimated: bool,
    /// How many calls and tries they are.
    pub calls: u64,
    /// What was used; of a try without an answer the most that it can be.
    pub usage: Usage,
    /// What it cost the operator.
    pub cost: Nanousd,
    /// The most that estimated answers can have cost beyond that, by the `loss` records of their requests.
    pub loss: Nanousd,
}

/// What the records of one line have in common: its day, the day on which their requests began, upstream,
/// credential, model, kind and whether they are estimated.
pub(crate) type OwnKey = (Day, Day, String, String, String, OwnKind, bool);

impl OwnLine {
    pub(crate) fn key(&self) -> OwnKey {
        let names = (self.upstream.clone(), self.credential.clone(), self.model.clone());
        let (upstream, credential, model) = names;
        (self.day, self.began, upstream, credential, model, self.kind, self.is_estimated)
    }

    /// Adds one with the same key.
    pub(crate) fn add(&mut self, more: &Self) {
        self.calls = self.calls.saturating_add(more.calls);
        self.usage = self.usage.plus(&more.usage);
        self.cost = self.cost.checked_add(more.cost).unwrap_or(Nanousd::MAX);
        self.loss = self.loss.checked_add(more.loss).unwrap_or(Nanousd::MAX);
    }

    /// The name by which its credential is compared: that of the upstream where it has only one.
    pub(crate) fn credential_name(&self) -> &str {
        if self.credential.is_empty() { &self.upstream } else { &self.credential }
    }
}

/// Why it is not clear which upstreams a statement is about.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UpstreamError {
    /// No upstream has records of what calls cost.
    #[error("the journal has no records of costs: give the targets of the upstream a `cost`")]
    NoCosts,
    /// This one has none, and those have.
    #[error("the journal has no records of costs at the upstream {0}, only at {1}")]
    Unknown(String, String),
    /// Several have some, and none was named.
    #[error("the journal has costs at {0}: name those of this provider's account with --upstream")]
    Ambiguous(String),
}

/// Keeps the lines of the named upstreams. Without a name, all lines must be of one upstream.
///
/// # Errors
/// When there are none, or a choice has to be made.
pub fn select_upstreams(
    mut lines: Vec<OwnLine>,
    names: &[String],
) -> Result<Vec<OwnLine>, UpstreamError> {
    let found: BTreeSet<&str> = lines.iter().map(|line| line.upstream.as_str()).collect();
    let list = || found.iter().copied().collect::<Vec<_>>().join(", ");
    if found.is_empty() {
        return Err(UpstreamError::NoCosts);
    }
    if let Some(unknown) = names.iter().find(|name| !found.contains(name.as_str())) {
        return Err(UpstreamError::Unknown(unknown.clone(), list()));
    }
    if names.is_empty() && found.len() > 1 {
        return Err(UpstreamError::Ambiguous(list()));
    }
    if !names.is_empty() {
        lines.retain(|line| names.contains(&line.upstream));
    }
    Ok(lines)
}
