//! A hold that grows while its answer streams. It is extended in memory ahead of use, while the existing
//! hold pays for the bytes and the journal writes the extension.

use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use crate::{AdmittedRequest, Holding, Payment};
use tollgate_ledger::{Refusal, SpendLimitStatus};
use tollgate_money::money::Nanousd;
use tollgate_money::price::{Side, UNITS, Usage};
use tollgate_protocols::Framing;

/// The shortest time between two extensions of one hold, each of which is a record in the journal.
pub(super) const SPACING: Duration = Duration::from_secs(2);
/// Seconds of the stream's pace that are held ahead: one more than [`SPACING`], for a stream that
/// accelerates.
const LEAD_SECONDS: i64 = 3;
/// Seconds of the stream's pace that one extension covers: it lasts for a lead and for as long again.
const EXTENSION_SECONDS: i64 = 6;
/// Output, in tokens, below which an extension ahead of use is not worth its record.
const STEP_TOKENS: u64 = 256;
/// An account with this many times the rest of the bound is not short of money any more.
const PLENTY: i64 = 8;
/// The time between two attempts of an extension that failed. An attempt takes a lock, and no disk.
const RETRY: Duration = Duration::from_millis(250);
/// The shortest time that a pace is measured over: chunks arrive in bursts.
const PACE_WINDOW: Duration = Duration::from_millis(250);
/// The shortest time for a stream's first pace: one that needs an extension within a quarter of a second is
/// fast.
const FIRST_WINDOW: Duration = Duration::from_millis(50);

/// Money that a hold can grow by: the ledger, or a model in tests.
pub(super) trait GrowthFunds {
    /// Amount of the hold.
    fn amount(&self) -> Nanousd;

    /// Durable part of the hold.
    fn durable_amount(&self) -> Nanousd;

    /// Money of the account that no hold covers.
    fn available(&self) -> Nanousd;

    /// Holds `amount` more of the account's money.
    fn extend(&mut self, amount: Nanousd) -> Result<(), Refusal>;

    /// Start a transfer of `amount` from the fleet. Returns true while one is running.
    fn fetches(&mut self, amount: Nanousd) -> bool;
}

/// The cost of what was relayed of a stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RelayedCost {
    /// Input and output together.
    pub(super) total: Nanousd,
    /// Part of the cost caused by the output.
    pub(super) output: Nanousd,
}

/// The costs that a hold grows by.
#[derive(Clone, Copy, Debug)]
pub(super) struct RollCosts {
    /// The amount beyond which the hold does not grow ahead of use.
    pub(super) bound: Nanousd,
    /// The price of a slice of output.
    pub(super) slice: Nanousd,
    /// The smallest extension ahead of use.
    pub(super) step: Nanousd,
    /// Maximum cost of the call other than its output.
    pub(super) input: Nanousd,
}

/// Growth of one hold.
#[derive(Debug)]
pub(super) struct Roll {
    costs: RollCosts,
    /// Cost relayed, with the input at its bound until reported.
    used: RelayedCost,
    /// Output cost at the latest extension.
    extended_at_output: Nanousd,
    extended: Option<Instant>,
    /// Time of the latest failed extension ahead of use.
    failed: Option<Instant>,
    pace: StreamPace,
}

impl Roll {
    /// The growth of the hold of `admitted`, whose answer begins to stream; `None` for one that holds
    /// all that the call can cost.
    pub(super) fn begin(admitted: &AdmittedRequest, framing: Framing) -> Option<Self> {
        let Holding::Slice { output_tokens } = admitted.holding else { return None };
        if !admitted.payment.is_held() {
            return None;
        }
        let output = |tokens| admitted.dearest(&Usage { output_tokens: tokens, ..Usage::ZERO });
        let beside = Usage { output_tokens: 0, requests: 1, ..admitted.call.max_usage() };
        let bound = admitted.bound;
        // A document shows its output at its end only: all of its bound is to be held before that. A lead is
        // half a slice.
        let is_stream = framing.for_customers() == Framing::Sse;
        let slice = if is_stream { output(output_tokens) } else { times(bound, 2) };
        let (step, input) = (output(STEP_TOKENS), admitted.dearest(&beside));
        Some(Self::new(RollCosts { bound, slice, step, input }, Instant::now()))
    }

    pub(super) fn new(costs: RollCosts, now: Instant) -> Self {
        let RollCosts { slice, step, input, .. } = costs;
        let least = Nanousd::new(1);
        Self {
            costs: RollCosts { slice: slice.max(least), step: step.min(slice).max(least), ..costs },
            used: RelayedCost { total: input, output: Nanousd::ZERO },
            extended_at_output: Nanousd::ZERO,
            extended: None,
            failed: None,
            pace: StreamPace::new(now),
        }
    }

    /// Record the cost relayed so far.
    pub(super) fn note(&mut self, relayed: RelayedCost, has_input: bool, now: Instant) {
        let RelayedCost { total, output } = relayed;
        // Until the upstream has reported the input, an estimate of it may be too low: what it leaves of the
        // input's bound must not be spent on output.
        let bound = || total.max(self.costs.input.saturating_add(output));
        self.used = RelayedCost { total: if has_input { total } else { bound() }, output };
        self.pace.note(output, now);
    }

    /// Extend the hold ahead of use if due. Returns true if a durable hold pays for everything relayed.
    pub(super) fn covers(&mut self, funds: &mut impl GrowthFunds, now: Instant) -> bool {
        let left = funds.amount().saturating_sub(self.used.total);
        if left <= self.lead()
            && funds.amount() < self.costs.bound
            && self.wait(now).is_zero()
            && self.failed.is_none_or(|failed| now.saturating_duration_since(failed) >= RETRY)
        {
            self.extend_ahead(funds, left, now);
        }
        self.used.total <= funds.durable_amount()
    }

    /// Relayed cost beyond `held`.
    pub(super) fn lacks(&self, held: Nanousd) -> Nanousd {
        self.used.total.saturating_sub(held)
    }

    /// Time until the next extension is allowed: one journal record per [`SPACING`].
    pub(super) fn wait(&self, now: Instant) -> Duration {
        let since = |extended| now.saturating_duration_since(extended);
        self.extended.map_or(Duration::ZERO, |extended| SPACING.saturating_sub(since(extended)))
    }

    /// Amount of the next extension.
    pub(super) fn next_extension(&self, funds: &impl GrowthFunds, now: Instant) -> Nanousd {
        let rest = self.costs.bound.saturating_sub(funds.amount());
        if funds.available() >= times(rest, PLENTY) {
            return rest;
        }
        let since = self.used.output.saturating_sub(self.extended_at_output);
        let by_pace = times(self.pace.a_second(now), EXTENSION_SECONDS);
        self.costs.slice.max(times(since, 2)).max(by_pace).min(rest)
    }

    /// Record the time of an extension.
    pub(super) fn note_extension(&mut self, now: Instant) {
        self.extended = Some(now);
        self.extended_at_output = self.used.output;
        self.failed = None;
    }

    fn extend_ahead(&mut self, funds: &mut impl GrowthFunds, left: Nanousd, now: Instant) {
        let extension = self.next_extension(funds, now);
        let Err(refusal) = funds.extend(extension) else { return self.note_extension(now) };
        // Money of a fleet arrives within a fraction of a second. A small extension now would have it wait
        // for the next.
        let is_coming = funds.fetches(extension) && left > self.costs.step;
        let part = part_of(&refusal, extension);
        if !is_coming && part >= self.costs.step.min(extension) && funds.extend(part).is_ok() {
            return self.note_extension(now);
        }
        self.failed = Some(now);
    }

    /// Amount to hold ahead of the relayed cost.
    fn lead(&self) -> Nanousd {
        let half = Nanousd::new(self.costs.slice.get() / 2);
        half.max(times(self.pace.fastest, LEAD_SECONDS))
    }
}

/// Part of an amount that can be held when the whole cannot.
pub(super) fn part_of(refusal: &Refusal, amount: Nanousd) -> Nanousd {
    let part = match refusal {
        Refusal::Insufficient { available } | Refusal::Held { available, .. } => *available,
        Refusal::Capped(SpendLimitStatus { limit, spent, held, .. }) => {
            limit.saturating_sub(*spent).saturating_sub(*held)
        }
        Refusal::ShareUsed { lacks, .. } => amount.saturating_sub(*lacks),
        Refusal::InDebt { .. }
        | Refusal::UnknownAccount
        | Refusal::DiskFull
        | Refusal::CutOff
        | Refusal::Stopped => Nanousd::ZERO,
    };
    part.min(amount)
}

/// Output cost per second of a stream.
#[derive(Debug)]
struct StreamPace {
    /// Highest pace of recent windows.
    fastest: Nanousd,
    window: Instant,
    /// Output at the start of the window.
    before: Nanousd,
    output: Nanousd,
}

impl StreamPace {
    fn new(now: Instant) -> Self {
        Self { fastest: Nanousd::ZERO, window: now, before: Nanousd::ZERO, output: Nanousd::ZERO }
    }

    fn note(&mut self, output: Nanousd, now: Instant) {
        self.output = output;
        if now.saturating_duration_since(self.window) < PACE_WINDOW {
            return;
        }
        // It falls by an eighth a window: a stream that stood still goes on at its old pace.
        let before = Nanousd::new(self.fastest.get() / 8 * 7);
        self.fastest = before.max(self.of_window(now, PACE_WINDOW));
        (self.window, self.before) = (now, output);
    }

    fn a_second(&self, now: Instant) -> Nanousd {
        let shortest = if self.fastest.is_zero() { FIRST_WINDOW } else { PACE_WINDOW };
        self.fastest.max(self.of_window(now, shortest))
    }

    fn of_window(&self, now: Instant, shortest: Duration) -> Nanousd {
        let elapsed = now.saturating_duration_since(self.window).max(shortest).as_millis();
        let output = self.output.saturating_sub(self.before);
        let elapsed = i64::try_from(elapsed).unwrap_or(i64::MAX);
        Nanousd::new(output.get().saturating_mul(1_000) / elapsed)
    }
}

fn times(amount: Nanousd, factor: i64) -> Nanousd {
    Nanousd::new(amount.get().saturating_mul(factor))
}

/// The part of a usage that an answer has shown, without the input.
pub(super) fn without_input(usage: &Usage) -> Usage {
    let mut made = *usage;
    for info in UNITS {
        if info.side == Side::Input {
            made[info.unit] = 0;
        }
    }
    made
}

/// Background transfer of money to this node of a fleet, aborted on drop.
#[derive(Debug)]
pub(super) struct FundsFetch(JoinHandle<()>);

impl Drop for FundsFetch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Ledger-backed funds of one payment.
pub(super) struct LedgerFunds<'a> {
    pub(super) payment: &'a mut Payment,
    pub(super) fetch: &'a mut Option<FundsFetch>,
}

impl GrowthFunds for LedgerFunds<'_> {
    fn amount(&self) -> Nanousd {
        self.payment.amount()
    }

    fn durable_amount(&self) -> Nanousd {
        self.payment.durable_amount()
    }

    fn available(&self) -> Nanousd {
        self.payment.available()
    }

    fn extend(&mut self, amount: Nanousd) -> Result<(), Refusal> {
        self.payment.extend(amount)
    }

    fn fetches(&mut self, amount: Nanousd) -> bool {
        if let Some(fetch) = self.fetch {
            let is_under_way = !fetch.0.is_finished();
            if !is_under_way {
                // It has brought too little, or other calls took it: a part has to do.
                *self.fetch = None;
            }
            return is_under_way;
        }
        let Some(fetch) = self.payment.fetch(amount) else { return false };
        *self.fetch = Some(FundsFetch(tokio::spawn(async move {
            // The next attempt to extend sees what has come of it.
            fetch.await.ok();
        })));
        true
    }
}

#[cfg(test)]
mod tests;
