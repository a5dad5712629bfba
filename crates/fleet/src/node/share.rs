//! Syncs shares of limits with the other nodes, for as long as the node runs.
//!
//! These syncs are their own, beside those about money: a limit that is slow to move must not keep
//! money waiting, nor the other way around.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::Fleet;
use crate::HasFleet;
use crate::lease::Turn;
use crate::postgres::limits::ShareSync;
use tollgate_ledger::Ledger;
use tollgate_limits::Limiter;
use tollgate_types::clock::UnixMs;

/// The interval between reports of limits to the other nodes. Nothing is sent while no limit is in use.
const BEAT: Duration = Duration::from_millis(500);
/// Minimum interval between two syncs, so that many requests in need share one.
const PACE: Duration = Duration::from_millis(20);
/// The time between two syncs while the database does not answer.
const RETRY_PACE: Duration = Duration::from_millis(200);
/// The most limits of one sync: a transaction of this size takes some ten milliseconds.
const ASKS_MAX: usize = 500;
/// A node that stops waits no longer than this to give its shares back. They are free after two terms
/// otherwise.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);
/// The interval between deletions of expired rows.
const CLEAN_INTERVAL: Duration = Duration::from_secs(60);

/// A node's syncs about limits.
struct Sharing {
    fleet: Arc<Fleet>,
    ledger: Arc<Ledger>,
    limits: Arc<Limiter>,
    turn: Turn,
    is_failing: bool,
    cleaned_at: Instant,
}

/// Syncs shares of `limits` and of spending limits until it is stopped. Returns at once in a ledger without a
/// fleet.
pub async fn share(ledger: Arc<Ledger>, limits: Arc<Limiter>, mut stop: watch::Receiver<bool>) {
    let Some(fleet) = ledger.fleet() else { return };
    // Nodes that started together clean up one after the other.
    let cleaned_at = Instant::now() - CLEAN_INTERVAL.mul_f64(fastrand::f64() / 2.0);
    let mut sharing = Sharing { fleet, ledger, limits, turn: 0, is_failing: false, cleaned_at };
    loop {
        let stopped = async { stop.wait_for(|stop| *stop).await.map(drop) };
        let is_hurried = tokio::select! {
            _ = stopped => return sharing.leave().await,
            () = sharing.fleet.share_queue().hurried() => true,
            () = tokio::time::sleep(BEAT) => false,
        };
        let begun = Instant::now();
        sharing.sync().await;
        // The next sync may be due already: rows are cleaned up after unhurried ones only.
        if !is_hurried {
            sharing.clean().await;
        }
        let pace = if sharing.is_failing { RETRY_PACE } else { PACE };
        tokio::time::sleep_until(begun + pace).await;
    }
}

impl Sharing {
    async fn sync(&mut self) {
        let fleet = Arc::clone(&self.fleet);
        // Numbered before the requests are collected: whoever comes in between waits for the next sync.
        let number = fleet.share_queue().begin();
        // Before anything else: what is granted for a term holds from here.
        let sent_at = self.limits.now();
        let share_requests = self.limits.share_requests(ASKS_MAX);
        let share_queue = fleet.share_queue();
        let caps = self.ledger.cap_asks(share_queue.waiting(), UnixMs::now(), |account, key| {
            share_queue.forget(account, key);
        });
        if share_requests.is_empty() && caps.is_empty() {
            return fleet.share_queue().end(number, true);
        }
        self.turn += 1;
        let (node, epoch, turn, term) = (fleet.node(), fleet.epoch(), self.turn, fleet.term());
        let sync = ShareSync { node, epoch, turn, term, share_requests, caps };
        let is_more = sync.share_requests.len() >= ASKS_MAX;
        let answer = match fleet.db().share(&sync).await {
            Ok(Some(answer)) => answer,
            Ok(None) => {
                let why = "another process has joined as this node";
                return self.failed(number, &sync, &why);
            }
            Err(error) => return self.failed(number, &sync, &error),
        };
        if std::mem::take(&mut self.is_failing) {
            log::info!("shares of limits are synced again");
        }
        let grant = sync.share_requests.iter().zip(answer.grant);
        let is_less = self.limits.apply_grants(sent_at, term, grant);
        let is_lowered = self.ledger.take_caps(sync.caps.iter().zip(answer.caps));
        fleet.share_queue().end(number, true);
        // What was lowered here is what others wait for; and where one sync was full, more limits wait.
        if is_less || is_lowered || is_more {
            fleet.share_queue().hurry();
        }
    }

    /// Others may have its shares at once.
    async fn leave(&mut self) {
        self.ledger.give_up_caps(self.fleet.share_queue().waiting());
        if tokio::time::timeout(LEAVE_TIMEOUT, self.sync()).await.is_err() {
            log::warn!("what keys may spend could not be given back in time");
        }
        let left = self.fleet.db().leave_limits(self.fleet.node(), self.fleet.epoch());
        match tokio::time::timeout(LEAVE_TIMEOUT, left).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => log::warn!("shares of limits cannot be given back now: {error}"),
            Err(_) => log::warn!("shares of limits could not be given back in time"),
        }
    }

    fn failed(&mut self, number: u64, sync: &ShareSync, why: &dyn std::fmt::Display) {
        // It is not known if the database has it: the next sync says all of it again.
        self.ledger.retell_caps(&sync.caps);
        if !std::mem::replace(&mut self.is_failing, true) {
            log::warn!("shares of limits cannot be synced now: {why}");
        }
        self.fleet.share_queue().end(number, false);
    }

    async fn clean(&mut self) {
        if self.is_failing || self.cleaned_at.elapsed() < CLEAN_INTERVAL {
            return;
        }
        self.cleaned_at = Instant::now();
        if let Err(error) = self.fleet.db().clean_limits().await {
            log::warn!("limits that are over cannot be removed now: {error}");
        }
    }
}
