//! Small balances: random schedules of parallel calls through the loop that makes calls fit, on a real
//! ledger, with upstreams that think in secret, ignore limits, or count wrong.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tollgate::holds::{Desk, Funds, HoldKind, Needs, NotHeld, TightCall, Unfit, fit};
use tollgate::ledger::{AccountId, Hold, Ledger, Options, Refusal, VoidReason};
use tollgate::money::Nanousd;
use tollgate::options::holds::{HoldRules, Means};

use crate::harness::fleet::{cost, money, reserve};
use crate::harness::ledger::close_and_verify;
use crate::harness::rounds;

/// Schedules that a full run plays.
const SCHEDULES: u64 = 100_000;
/// The loop's own waits, beside what the rules allow: to gather, and to look again.
const SLACK: Duration = Duration::from_secs(1);

/// What is random about a call, and the same in each run of its seed.
#[derive(Clone, Debug)]
struct Script {
    arrives: Duration,
    /// The prompt's tokens, and the bytes that bound them.
    input: i64,
    bytes: i64,
    /// What the counter says, after so long; `None` where there is none.
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
    fn random(rng: &mut Rng) -> Self {
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

    fn cost(&self, input: i64, output: i64) -> Nanousd {
        money(input * self.input_price + output * self.output_price)
    }
}

/// The account of a schedule: all of its money but for a budget is held by somebody else.
#[derive(Clone)]
struct Purse {
    ledger: Arc<Ledger>,
    account: AccountId,
    ballast: Nanousd,
}

impl Purse {
    fn funds(&self) -> Funds {
        let balance = self.ledger.account(self.account).expect("an account").balance;
        assert!(balance.is_sound(), "{balance:?}");
        let held = balance.held.saturating_sub(self.ballast);
        Funds { available: balance.available, held, unused_credit: Nanousd::ZERO }
    }
}

struct SimulatedCall<'a> {
    purse: &'a Purse,
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
        Ok(self.purse.funds())
    }

    fn needs(&self) -> Needs {
        let of = |output| self.script.cost(self.input, output);
        let (floor, slice) = (tokens(self.rules.output_floor), tokens(self.rules.slice));
        let can_clamp = floor < self.script.output_max;
        let slice = self.script.is_shown.then(|| of(slice.min(self.script.output_max)));
        Needs { whole: of(self.script.output_max), at_floor: can_clamp.then(|| of(floor)), slice }
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

    async fn hold(&mut self, kind: HoldKind) -> Result<Held, NotHeld<Refusal>> {
        let (script, needs) = (self.script, self.needs());
        let (amount, limit) = match kind {
            HoldKind::Whole => (needs.whole, script.output_max),
            HoldKind::Slice => (needs.slice.expect("all is shown"), script.output_max),
            HoldKind::Clamped(funds) => {
                let input = script.cost(self.input, 0);
                let limit = funds.saturating_sub(input).get() / script.output_price;
                let limit = limit.min(script.output_max);
                if limit < tokens(self.rules.output_floor) {
                    return Err(NotHeld::Unclampable);
                }
                (script.cost(self.input, limit), limit)
            }
        };
        assert!(amount <= needs.whole, "{kind:?} of {needs:?} would hold {amount}");
        match self.purse.ledger.reserve(reserve(self.purse.account, amount.get())) {
            Ok(hold) => Ok(Held { hold, kind, limit }),
            Err(Refusal::Insufficient { .. } | Refusal::Held { .. }) => {
                Err(NotHeld::Short(self.purse.funds()))
            }
            Err(refusal) => Err(NotHeld::Refused(refusal)),
        }
    }
}

/// What became of a call.
#[derive(Debug, Default, Clone, Copy)]
struct Outcome {
    served: u64,
    refused: u64,
    clamped: u64,
    rolled: u64,
    cut: u64,
    charged: i64,
    owed: i64,
    held: i64,
    /// What the upstream billed beyond the hold, through a limit ignored or a wrong count.
    beyond: i64,
}

async fn play(purse: Purse, desk: Arc<Desk>, rules: HoldRules, script: Script) -> Outcome {
    sleep(script.arrives).await;
    let mut call =
        SimulatedCall { purse: &purse, script: &script, rules: &rules, input: script.bytes };
    let began = Instant::now();
    let served = fit(&desk, purse.account, &rules, &mut call);
    let leaves = script.leaves.unwrap_or(Duration::from_secs(3_600));
    let Ok(fitted) = timeout(leaves, served).await else { return Outcome::default() };
    let longest = rules.wait + rules.count_timeout + SLACK;
    assert!(began.elapsed() <= longest, "{:?} is longer than may be waited", began.elapsed());
    let (held, seat) = match fitted {
        Ok(fitted) => fitted,
        Err(Unfit::Short { .. } | Unfit::Refused(Refusal::InDebt { .. })) => {
            return Outcome { refused: 1, ..Outcome::default() };
        }
        Err(Unfit::Refused(refusal)) => panic!("{refusal:?}"),
    };
    let Held { mut hold, kind, limit } = held;
    let limit = if script.ignores_limits { i64::MAX } else { limit };
    let mut outcome = Outcome { served: 1, ..Outcome::default() };
    outcome.clamped = u64::from(matches!(kind, HoldKind::Clamped(_)));
    let mut output = script.output.min(limit);
    let is_gone = script.leaves.is_some();
    if kind == HoldKind::Slice {
        outcome.rolled = 1;
        let steps = 10;
        let mut shown = 0;
        for step in 1..=steps {
            sleep(script.answer_takes / steps).await;
            let next = output * i64::from(step) / i64::from(steps);
            let lacks = script.cost(call.input, next).saturating_sub(hold.amount());
            if lacks > Nanousd::ZERO && hold.extend(lacks).is_err() {
                outcome.cut = 1;
                break;
            }
            shown = next;
        }
        output = shown;
    } else {
        sleep(script.answer_takes).await;
    }
    outcome.held = hold.amount().get();
    if is_gone && !script.is_shown && output == 0 {
        hold.void(VoidReason::ClientGone);
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

fn random_rules(rng: &mut Rng) -> HoldRules {
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

/// Plays a schedule on an account with a random budget, and checks it.
async fn schedule(ledger: &Arc<Ledger>, account: AccountId, seed: u64) -> Outcome {
    let mut rng = Rng::with_seed(seed);
    let before = ledger.account(account).expect("an account").balance;
    let budget = money(rng.i64(1_000_000..5_000_000_000));
    let rest = before.available.saturating_sub(budget);
    let ballast = ledger.reserve(reserve(account, rest.get())).expect("it is there");
    let purse = Purse { ledger: Arc::clone(ledger), account, ballast: rest };
    let (desk, rules) = (Arc::<Desk>::default(), random_rules(&mut rng));
    let mut calls = JoinSet::new();
    for _ in 0..rng.u8(1..=10) {
        let script = Script::random(&mut rng);
        calls.spawn(play(purse.clone(), Arc::clone(&desk), rules.clone(), script));
    }
    let mut sum = Outcome::default();
    while let Some(outcome) = calls.join_next().await {
        let outcome = outcome.expect("no panic");
        sum.served += outcome.served;
        sum.refused += outcome.refused;
        sum.clamped += outcome.clamped;
        sum.rolled += outcome.rolled;
        sum.cut += outcome.cut;
        sum.charged += outcome.charged;
        sum.owed += outcome.owed;
        sum.held += outcome.held;
        sum.beyond += outcome.beyond;
    }
    let after = ledger.account(account).expect("an account").balance;
    assert_eq!(after.held, rest, "seed {seed}: a hold was left open");
    // Only what upstreams bill beyond what was held is ever owed, and nothing else is overspent.
    assert!(sum.charged <= budget.get(), "seed {seed}: {sum:?} of {budget}");
    assert!(sum.owed <= sum.beyond, "seed {seed}: {sum:?}");
    // A debt may have been paid meanwhile, by what other calls did not need.
    let paid = sum.owed - after.debt.get();
    assert!(paid >= 0, "seed {seed}: {sum:?}, {after:?}");
    assert_eq!(
        after.available.get(),
        budget.get() - sum.charged - paid,
        "seed {seed}: {sum:?}, {after:?}"
    );
    // Pays what is owed.
    ballast.void(VoidReason::Unreached);
    sum
}

/// `TOLLGATE_PROOF_PERCENT` says how many schedules are played, and the seed of the first is printed.
#[test]
fn no_schedule_of_parallel_calls_overspends_or_waits_for_ever() {
    let dir = TempDir::new().expect("directory");
    let ledger = Ledger::open(Options::new(dir.path())).expect("opens").0;
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().build().expect("a runtime");
    let account = runtime.block_on(async {
        let account = ledger.create_account("test").await.expect("account").id;
        ledger.grant(account, "all", money(i64::MAX / 4)).await.expect("grant");
        account
    });
    let first = fastrand::u64(..) >> 1;
    let schedules = rounds(SCHEDULES / 20);
    println!("{schedules} schedules from seed {first}");
    let mut sum = Outcome::default();
    runtime.block_on(async {
        tokio::time::pause();
        for seed in first..first + schedules {
            let outcome = schedule(&ledger, account, seed).await;
            sum.served += outcome.served;
            sum.refused += outcome.refused;
            sum.clamped += outcome.clamped;
            sum.rolled += outcome.rolled;
            sum.cut += outcome.cut;
        }
    });
    println!("{sum:?}");
    let kinds = [sum.served, sum.refused, sum.clamped, sum.rolled, sum.cut];
    assert!(schedules < 500 || kinds.iter().all(|count| *count > 0), "{sum:?} shows too little");
    close_and_verify(ledger, dir.path());
}
