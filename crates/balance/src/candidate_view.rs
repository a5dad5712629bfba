//! Snapshot of a model's channels for the admin API: availability and expected share.

use std::sync::Arc;
use std::time::Instant;

use super::Table;
use super::breaker::CircuitStanding;
use super::channel::{Channel, PlannedCall};
use super::choose::{ChannelView, shares};
use super::circuit::CallOrigin;
use tollgate_config::snapshot::{CircuitRules, Model, Target};

/// One channel of a model with its expected share of calls.
pub struct CandidateView<'a> {
    /// Target that would be called.
    pub target: &'a Target,
    /// Channel of the target.
    pub channel: &'a Channel,
    /// Circuit status for the call.
    pub standing: CircuitStanding,
    /// Expected share of the next calls, from 0 to 1.
    pub share: f64,
}

impl Table {
    /// Channels of a model in the order of its targets, with their shares of the calls of `account`, or
    /// of all accounts if `None`.
    #[must_use]
    pub fn candidate_views<'a>(
        &'a self,
        model: &'a Model,
        account: Option<u64>,
        now: Instant,
        rules: &CircuitRules,
    ) -> Vec<CandidateView<'a>> {
        let targets = model.targets.iter().map(Arc::as_ref);
        let channels: Vec<(&Target, &Channel)> = targets
            .flat_map(|target| {
                self.channels(target).iter().map(move |channel| (target, channel.as_ref()))
            })
            .collect();
        let view = |(at, (target, channel)): (usize, &(&Target, &Channel))| {
            let caller = CallOrigin { account: account.unwrap_or_default(), tokens: 0 };
            let view = channel.view(target, PlannedCall { caller, kind: channel.kind }, now, rules);
            // For no account in particular, the status for all decides.
            (at, ChannelView { standing: channel.standing(account, now, rules), ..view })
        };
        let views: Vec<(usize, ChannelView)> = channels.iter().enumerate().map(view).collect();
        let spread = channels.into_iter().zip(&views).zip(shares(&views));
        spread
            .map(|(((target, channel), (_, view)), share)| CandidateView {
                target,
                channel,
                standing: view.standing,
                share,
            })
            .collect()
    }
}
