//! The ways to a model as they stand, for those who look on.

use std::sync::Arc;
use std::time::Instant;

use super::Table;
use super::channel::{Channel, PlannedCall};
use super::choose::{View, shares};
use super::circuit::{Caller, CircuitStanding};
use crate::config::snapshot::{CircuitRules, Model, Target};

/// One way to a model.
pub struct Way<'a> {
    /// The target that would be called.
    pub target: &'a Target,
    /// The target with one of its upstream's credentials.
    pub channel: &'a Channel,
    /// Whether a call is worth making.
    pub standing: CircuitStanding,
    /// Its share of the calls that come next, from 0 to 1.
    pub share: f64,
}

impl Table {
    /// The ways to a model, in the order of its targets, as the calls of `account`, or of all where
    /// none is named, are spread over them now.
    #[must_use]
    pub fn ways<'a>(
        &'a self,
        model: &'a Model,
        account: Option<u64>,
        now: Instant,
        rules: &CircuitRules,
    ) -> Vec<Way<'a>> {
        let targets = model.targets.iter().map(Arc::as_ref);
        let ways: Vec<(&Target, &Channel)> = targets
            .flat_map(|target| self.channels(target).iter().map(move |way| (target, way.as_ref())))
            .collect();
        let view = |(at, (target, channel)): (usize, &(&Target, &Channel))| {
            let caller = Caller { account: account.unwrap_or_default(), tokens: 0 };
            let view = channel.view(target, PlannedCall { caller, kind: channel.kind }, now, rules);
            // Of nobody's calls those of all tell.
            (at, View { standing: channel.standing(account, now, rules), ..view })
        };
        let views: Vec<(usize, View)> = ways.iter().enumerate().map(view).collect();
        let spread = ways.into_iter().zip(&views).zip(shares(&views));
        spread
            .map(|(((target, channel), (_, view)), share)| Way {
                target,
                channel,
                standing: view.standing,
                share,
            })
            .collect()
    }
}
