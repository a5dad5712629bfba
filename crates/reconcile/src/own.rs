//! Costs of calls, as the journal has them.

use std::collections::BTreeSet;

use thiserror::Error;
use tollgate_money::money::Nanousd;
use tollgate_money::price::Usage;

use crate::day::Day;

/// Kind of an upstream cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OwnKind {
    /// An answer charged to a customer.
    Answer,
    /// An uncharged answer: broken or missing.
    Unpaid,
    /// An abandoned try, followed by a retry.
    Retry,
}

/// Sum of `cost` records, each one call or one try at an upstream, that share their key for the
/// comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnLine {
    /// The day in UTC on which it was settled.
    pub day: Day,
    /// Day in UTC on which its request began; that of its end if unknown.
    pub began: Day,
    /// The name of the upstream.
    pub upstream: String,
    /// The name of its credential; empty where the upstream has only one.
    pub credential: String,
    /// Upstream's name for the model.
    pub model: String,
    /// Kind of the cost.
    pub kind: OwnKind,
    /// True if the upstream reported no usage.
    pub is_estimated: bool,
    /// Number of calls and tries.
    pub calls: u64,
    /// Usage; the upper bound for a try without an answer.
    pub usage: Usage,
    /// Cost to the operator.
    pub cost: Nanousd,
    /// Largest further cost of estimated answers, from `loss` records.
    pub loss: Nanousd,
}

/// Key of a line: its day, the day on which the requests began, upstream, credential, model, kind, and
/// whether they are estimated.
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
        self.cost = self.cost.saturating_add(more.cost);
        self.loss = self.loss.saturating_add(more.loss);
    }

    /// The name by which its credential is compared: that of the upstream where it has only one.
    pub(crate) fn credential_name(&self) -> &str {
        if self.credential.is_empty() { &self.upstream } else { &self.credential }
    }
}

/// Reason why the upstreams of a statement are ambiguous.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UpstreamError {
    /// No upstream has records of what calls cost.
    #[error("the journal has no records of costs: give the targets of the upstream a `cost`")]
    NoCosts,
    /// This upstream has no costs; those have.
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
        // Two upstreams may belong to two accounts at the provider: their sum would be compared with one
        // bill.
        return Err(UpstreamError::Ambiguous(list()));
    }
    if !names.is_empty() {
        lines.retain(|line| names.contains(&line.upstream));
    }
    Ok(lines)
}
