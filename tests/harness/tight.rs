//! Simulated calls of accounts with little money, through the loop that makes calls fit.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tokio::time::{Instant, sleep, timeout};
use tollgate::holds::{FitError, Funds, HoldFailure, HoldKind, HoldQueue, Needs, TightCall, fit};
use tollgate::ledger::{AccountId, Hold, Ledger, Refusal, VoidReason};
use tollgate::money::Nanousd;
use tollgate::options::holds::{HoldRules, Means};

use super::fleet::{cost, money, reserve};

/// The loop's own waits, beside what the rules allow: to gather, and to look again.
const SLACK: Duration = Duration::from_secs(1);
/// The time that a treasury may take to lend, for each try.
const PATIENCE: Duration = Duration::from_secs(20);

/// Random parameters of a call, the same in each run of a seed.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    arrives: Duration,
    /// The prompt's tokens, and the bytes that bound them.
    input: i64,
    bytes: i64,
    /// The counter's answer and its delay; `None` without a counter.
    counted: Option<i64>,
    count_takes: Duration,
    /// The output limit, and what the model would put out without any.
    output_max: i64,
    output: i64,
    /// All output is shown while it arrives.
    is_shown: bool,
    /// The upstream knows no limits.
    ignores_limits: bool,
    answer_takes: Duration,
    /// The customer leaves after so long, wherever the call is by then.
    leaves: Option<Duration>,
    input_price: i64,
    output_price: i64,
}

impl Script {
    /// A call as `rng` has it.
    pub(crate) fn random(rng: &mut Rng) -> Self {
        let ms = |rng: &mut Rng, max: u64| Duration::from_millis(rng.u64(0..=max));
        let input = rng.i64(5..60_000);
        let output_max = *rng.choice(&[1_000_i64, 8_192, 32_000, 64_000, 128_000]).expect("some");
        // A counter that lies has the call cost more than was held for it.
        let counted = match rng.u8(0..10) {
            0 => None,
            1 => Some(input / 2),
            _ => Some(input + input / 50 + 64),
        };
        Self {
            arrives: if rng.bool() { Duration::ZERO } else { ms(rng, 8_000) },
            input,
            bytes: input * rng.i64(2..6),
            counted,
            count_takes: ms(rng, 1_500),
            output_max,
            output: rng.i64(0..=output_max),
            is_shown: rng.bool(),
            ignores_limits: rng.u8(0..10) == 0,
            answer_takes: ms(rng, 20_000),
            leaves: (rng.u8(0..6) == 0).then(|| ms(rng, 10_000)),
            input_price: rng.i64(100..10_000),
            output_price: rng.i64(500..60_000),
        }
    }

    /// The same call in a fiftieth of the time, for clocks that cannot be wound forward.
    pub(crate) fn hurried(self) -> Self {
        Self {
            arrives: self.arrives / 50,
            count_takes: self.count_takes / 50,
            answer_takes: self.answer_takes / 50,
            leaves: self.leaves.map(|after| after / 50),
            ..self
        }
    }

    fn cost(&self, input: i64, output: i64) -> Nanousd {
        money(input * self.input_price + output * self.output_price)
    }
}

/// The account of a schedule: all of its money but for a budget is held by somebody else.
#[derive(Clone)]
pub(crate) struct TightAccount {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) account: AccountId,
    /// Money that a hold of the test keeps away from the calls.
    pub(crate) ballast: Nanousd,
}

impl TightAccount {
    async fn funds(&self) -> Funds {
        let own = self.ledger.account(self.account).expect("an account").balance;
        assert!(own.is_sound(), "{own:?}");
        let balance = match self.ledger.shared_funds() {
            None => own,
            Some(funds) => {
                let all = funds.balances(&[self.account]).await.unwrap_or_default();
                all.get(&self.account).map_or(own, |(balance, _)| *balance)
            }
        };
        let held = balance.held.saturating_sub(self.ballast);
        Funds { available: balance.available, held, unused_credit: Nanousd::ZERO }
    }
}

struct SimulatedCall<'a> {
    tight: &'a TightAccount,
    script: &'a Script,
    rules: &'a HoldRules,
    /// The bound of the input.
    input: i64,
}

/// A hold, and the output limit that goes upstream.
struct Held {
    hold: Hold,
    kind: HoldKind,
    limit: i64,
}

fn tokens(count: u64) -> i64 {
    i64::try_from(count).expect("few")
}

impl TightCall for SimulatedCall<'_> {
    type Held = Held;
    type Refused = Refusal;

    async fn funds(&self) -> Result<Funds, Refusal> {
        Ok(self.tight.funds().await)
    }

    fn needs(&self) -> Needs {
        let of = |output| self.script.cost(self.input, output);
        let (floor, slice) = (tokens(self.rules.output_floor), tokens(self.rules.slice));
        let can_clamp = floor < self.script.output_max;
        let slice = self.script.is_shown.then(|| of(slice.min(self.script.output_max)));
        Needs { whole: of(self.script.output_max), at_floor: can_clamp.then(|| of(floor)), slice }
    }

    fn gateways(&self) -> u64 {
        self.tight.ledger.shared_funds().map_or(1, |funds| funds.nodes().max(1).into())
    }

    async fn count(&mut self) {
        let counts = async {
            sleep(self.script.count_takes).await;
            self.script.counted
        };
        if let Ok(Some(counted)) = timeout(self.rules.count_timeout, counts).await {
            self.input = self.input.min(counted);
        }
    }

    async fn hold(&mut self, kind: HoldKind) -> Result<Held, HoldFailure<Refusal>> {
        let (script, needs) = (self.script, self.needs());
        let (amount, limit) = match kind {
            HoldKind::Whole => (needs.whole, script.output_max),
            HoldKind::Slice => (needs.slice.expect("all is shown"), script.output_max),
            HoldKind::Clamped(funds) => {
                let input = script.cost(self.input, 0);
                let limit = funds.saturating_sub(input).get() / script.output_price;
                let limit = limit.min(script.output_max);
                if limit < tokens(self.rules.output_floor) {
                    return Err(HoldFailure::Unclampable);
                }
                (script.cost(self.input, limit), limit)
            }
        };
        assert!(amount <= needs.whole, "{kind:?} of {needs:?} would hold {amount}");
        match self.tight.ledger.admit(reserve(self.tight.account, amount.get())).await {
            Ok(hold) => Ok(Held { hold, kind, limit }),
            Err(Refusal::Insufficient { available }) => {
                Err(HoldFailure::Short(Funds { available, ..Funds::default() }))
            }
            Err(Refusal::Held { available, held }) => {
                let held = held.saturating_sub(self.tight.ballast);
                Err(HoldFailure::Short(Funds { available, held, ..Funds::default() }))
            }
            Err(refusal) => Err(HoldFailure::Refused(refusal)),
        }
    }
}

/// Outcome of a call.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Outcome {
    pub(crate) served: u64,
    pub(crate) refused: u64,
    pub(crate) clamped: u64,
    pub(crate) rolled: u64,
    pub(crate) cut: u64,
    pub(crate) charged: i64,
    pub(crate) owed: i64,
    /// Amount billed beyond the hold, because of an ignored limit or a wrong count.
    pub(crate) beyond: i64,
}

impl Outcome {
    /// Both together.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            served: self.served + other.served,
            refused: self.refused + other.refused,
            clamped: self.clamped + other.clamped,
            rolled: self.rolled + other.rolled,
            cut: self.cut + other.cut,
            charged: self.charged + other.charged,
            owed: self.owed + other.owed,
            beyond: self.beyond + other.beyond,
        }
    }
}

/// Plays a call from its arrival to the end of its hold.
pub(crate) async fn play(
    tight: TightAccount,
    queue: Arc<HoldQueue>,
    rules: HoldRules,
    script: Script,
) -> Outcome {
    sleep(script.arrives).await;
    let mut call =
        SimulatedCall { tight: &tight, script: &script, rules: &rules, input: script.bytes };
    let began = Instant::now();
    let served = fit(&queue, tight.account, &rules, &mut call);
    let leaves = script.leaves.unwrap_or(Duration::from_secs(3_600));
    let Ok(fitted) = timeout(leaves, served).await else { return Outcome::default() };
    let longest = rules.wait + rules.count_timeout + SLACK;
    let took = began.elapsed();
    let longest = if tight.ledger.shared_funds().is_some() { longest + PATIENCE } else { longest };
    assert!(took <= longest, "{took:?} is longer than may be waited");
    let (held, seat) = match fitted {
        Ok(fitted) => fitted,
        Err(FitError::Short { .. } | FitError::Refused(Refusal::InDebt { .. })) => {
            return Outcome { refused: 1, ..Outcome::default() };
        }
        Err(FitError::Refused(refusal)) => panic!("{refusal:?}"),
    };
    let Held { mut hold, kind, limit } = held;
    let limit = if script.ignores_limits { i64::MAX } else { limit };
    let mut outcome = Outcome { served: 1, ..Outcome::default() };
    outcome.clamped = u64::from(matches!(kind, HoldKind::Clamped(_)));
    let mut output = script.output.min(limit);
    let is_lost = script.leaves.is_some();
    if kind == HoldKind::Slice {
        outcome.rolled = 1;
        let steps = 10;
        let mut shown = 0;
        for step in 1..=steps {
            sleep(script.answer_takes / steps).await;
            let next = output * i64::from(step) / i64::from(steps);
            let lacks = script.cost(call.input, next).saturating_sub(hold.amount());
            if lacks > Nanousd::ZERO && hold.enlarge(lacks).await.is_err() {
                outcome.cut = 1;
                break;
            }
            shown = next;
        }
        output = shown;
    } else {
        sleep(script.answer_takes).await;
    }
    if is_lost && !script.is_shown && output == 0 {
        hold.void(VoidReason::ClientDisconnected);
    } else {
        let bill = script.cost(script.input, output);
        outcome.beyond = bill.saturating_sub(hold.amount()).get().max(0);
        let posted = hold.post(cost(bill.get()));
        (outcome.charged, outcome.owed) = (posted.charged.get(), posted.owed.get());
        assert_eq!(posted.charged.get() + posted.owed.get(), bill.get());
    }
    drop(seat);
    outcome
}

/// Any means, in any order, with any wait.
pub(crate) fn random_rules(rng: &mut Rng) -> HoldRules {
    let mut means = Means::ALL.to_vec();
    rng.shuffle(&mut means);
    means.truncate(rng.usize(0..=means.len()));
    HoldRules {
        means,
        output_floor: *rng.choice(&[256_u64, 1_024, 4_096]).expect("some"),
        slice: *rng.choice(&[256_u64, 1_024, 4_096]).expect("some"),
        wait: Duration::from_millis(*rng.choice(&[0_u64, 0, 500, 5_000, 30_000]).expect("some")),
        count_timeout: Duration::from_secs(1),
    }
}
