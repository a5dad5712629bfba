//! From a call that does not fit its account to a hold, or to the reason why there is none.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tollgate_money::money::Nanousd;
use tollgate_options::holds::{HoldRules, Means};
use tollgate_types::ids::AccountId;

use crate::funds::{Allowance, Funds};
use crate::plan::{MeansProgress, Needs, PlanStep};
use crate::queue::{HoldQueue, RunningCall};

/// Time a call waits for others of the same account before any takes money. Parallel agents start
/// within a few milliseconds, and none should get only the rest of another.
const GATHER: Duration = Duration::from_millis(30);
/// Number of new decisions of a call whose money was taken meanwhile, before it waits or fails.
const RETRIES_MAX: u32 = 8;

/// Extent of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldKind {
    /// The maximum cost of the call.
    Whole,
    /// The maximum cost of the call with a lowered output limit, so that it is at most this amount.
    Clamped(Nanousd),
    /// Its input and a first slice of its output.
    Slice,
}

/// Reason why a hold was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldFailure<E> {
    /// Less is available than was to be held.
    Short(Funds),
    /// The request cannot be clamped so far.
    Unclampable,
    /// The ledger refuses it for another reason.
    Refused(E),
}

/// A call for which money is tight, as the gateway serves it.
pub trait TightCall {
    /// Hold of the call.
    type Held;
    /// A refusal that no means can change.
    type Refused;

    /// Reads the account's current money.
    ///
    /// # Errors
    /// A refusal that no means can change, such as that of an account that owes.
    fn funds(&self) -> impl Future<Output = Result<Funds, Self::Refused>> + Send;

    /// Number of gateways that share the account's money, each with its own queue.
    fn gateways(&self) -> u64 {
        1
    }

    /// Compute what it would be held at in each way.
    fn needs(&self) -> Needs;

    /// Ask the provider how many tokens its prompt has. Its needs may be smaller then.
    fn count(&mut self) -> impl Future<Output = ()> + Send;

    /// Hold money for it.
    fn hold(
        &mut self,
        holding: HoldKind,
    ) -> impl Future<Output = Result<Self::Held, HoldFailure<Self::Refused>>> + Send;
}

/// Reason why a call cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FitError<E> {
    /// The account has too little at the moment, or at all.
    Short {
        /// Allowance of the call.
        allowance: Allowance,
        /// Amounts of the possible holds.
        needs: Needs,
    },
    /// The ledger refuses it for another reason.
    Refused(E),
}

/// Makes a call fit its account, by the means of `rules` in their order. It may wait for the calls
/// before it; dropping the future leaves the line at once.
///
/// # Errors
/// [`FitError`]; nothing is held then.
pub async fn fit<C: TightCall>(
    queue: &Arc<HoldQueue>,
    account: AccountId,
    rules: &HoldRules,
    call: &mut C,
) -> Result<(C::Held, RunningCall), FitError<C::Refused>> {
    let ticket = queue.enqueue(account);
    let began = Instant::now();
    let deadline = began.checked_add(rules.wait).unwrap_or(began);
    // Calls that come together must be counted together: the first alone would take the whole balance as
    // its share.
    sleep(GATHER).await;
    let with_credit = rules.allows(Means::Credit);
    let mut plan = MeansProgress::default();
    let mut newer = None;
    let mut retries = 0_u32;
    loop {
        let funds = match newer.take() {
            Some(funds) => funds,
            None => call.funds().await.map_err(FitError::Refused)?,
        };
        let (parallel, deciding) = ticket.shares();
        // Other gateways' queues cannot be seen from here; each is taken to be as busy as this one.
        let parallel = parallel.saturating_mul(call.gateways());
        let own = funds.allowance(parallel, deciding, false);
        let all = funds.allowance(parallel, deciding, true);
        let needs = call.needs();
        let step = match ticket.is_behind_others() {
            // Before any means is tried: a small call would pass larger ones that wait for the same
            // money, for ever.
            true => PlanStep::Wait,
            false => plan.next(rules, &needs, &own, &all),
        };
        let holding = match step {
            PlanStep::HoldWhole => HoldKind::Whole,
            PlanStep::Clamp(amount) => HoldKind::Clamped(amount),
            PlanStep::Roll => HoldKind::Slice,
            PlanStep::Count => {
                call.count().await;
                continue;
            }
            PlanStep::Wait if ticket.turn(deadline).await => {
                (plan, retries) = (plan.anew(), 0);
                continue;
            }
            PlanStep::Wait | PlanStep::Refuse => {
                let allowance = if with_credit { all } else { own };
                return Err(FitError::Short { allowance, needs });
            }
        };
        match call.hold(holding).await {
            Ok(held) => return Ok((held, ticket.start())),
            Err(HoldFailure::Refused(reason)) => return Err(FitError::Refused(reason)),
            // Only the try shows it: the output limit stands in the request's own body.
            Err(HoldFailure::Unclampable) => plan.skip_clamp(),
            // Others have taken the money since it was looked at; the ledger has said what is left.
            Err(HoldFailure::Short(funds)) if retries < RETRIES_MAX => {
                retries = retries.saturating_add(1);
                newer = Some(funds);
            }
            Err(HoldFailure::Short(_)) if ticket.turn(deadline).await => {
                (plan, retries) = (plan.anew(), 0);
            }
            Err(HoldFailure::Short(funds)) => {
                let allowance = funds.allowance(parallel, deciding, with_credit);
                return Err(FitError::Short { allowance, needs });
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::arithmetic_side_effects, reason = "a test adds small figures")]
mod tests {
    use std::sync::Mutex;

    use super::*;

    const ACCOUNT: AccountId = AccountId::from_number(7);

    fn money(nanousd: i64) -> Nanousd {
        Nanousd::new(nanousd)
    }

    /// An account without a ledger.
    #[derive(Clone, Default)]
    struct FakeAccount(Arc<Mutex<Funds>>);

    impl FakeAccount {
        fn with_available(available: i64) -> Self {
            Self(Arc::new(Mutex::new(Funds { available: money(available), ..Funds::default() })))
        }

        fn take(&self, amount: Nanousd) -> Result<Nanousd, HoldFailure<()>> {
            let mut funds = self.0.lock().expect("no panic");
            if amount > funds.available {
                return Err(HoldFailure::Short(*funds));
            }
            funds.available = funds.available.saturating_sub(amount);
            funds.held = funds.held.checked_add(amount).expect("small");
            Ok(amount)
        }

        /// Ends a hold with a charge.
        fn end(&self, held: Nanousd, charged: Nanousd) {
            let mut funds = self.0.lock().expect("no panic");
            funds.held = funds.held.saturating_sub(held);
            let rest = held.saturating_sub(charged);
            funds.available = funds.available.checked_add(rest).expect("small");
        }
    }

    /// A prompt held at so much, and so many tokens of output at one each.
    struct FakeCall {
        account: FakeAccount,
        input: i64,
        counted: i64,
        output: i64,
    }

    impl TightCall for FakeCall {
        type Held = (Nanousd, HoldKind);
        type Refused = ();

        async fn funds(&self) -> Result<Funds, ()> {
            Ok(*self.account.0.lock().expect("no panic"))
        }

        fn needs(&self) -> Needs {
            let of = |output: i64| money(self.input + output);
            Needs { whole: of(self.output), at_floor: Some(of(10)), slice: Some(of(5)) }
        }

        async fn count(&mut self) {
            sleep(Duration::from_millis(100)).await;
            self.input = self.counted;
        }

        async fn hold(&mut self, holding: HoldKind) -> Result<Self::Held, HoldFailure<()>> {
            let needs = self.needs();
            let amount = match holding {
                HoldKind::Whole => needs.whole,
                HoldKind::Clamped(amount) => amount,
                HoldKind::Slice => needs.slice.expect("it can be rolled"),
            };
            Ok((self.account.take(amount)?, holding))
        }
    }

    fn rules(means: &[Means], wait_s: u64) -> HoldRules {
        let wait = Duration::from_secs(wait_s);
        HoldRules { means: means.to_vec(), wait, ..HoldRules::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn eight_parallel_calls_share_what_one_would_take() {
        let (queue, account) = (Arc::<HoldQueue>::default(), FakeAccount::with_available(500));
        let calls = (0..8).map(|_| {
            let (queue, account) = (Arc::clone(&queue), account.clone());
            tokio::spawn(async move {
                let mut call = FakeCall { account, input: 100, counted: 30, output: 320 };
                fit(&queue, ACCOUNT, &rules(Means::ALL, 0), &mut call).await
            })
        });
        let mut seats = Vec::new();
        for call in calls.collect::<Vec<_>>() {
            let ((held, holding), running_call) = call.await.expect("no panic").expect("served");
            assert_eq!((held, holding), (money(62), HoldKind::Clamped(money(62))));
            seats.push(running_call);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lone_call_has_all_there_is_and_is_not_counted() {
        let (queue, account) = (Arc::<HoldQueue>::default(), FakeAccount::with_available(500));
        let mut call = FakeCall { account, input: 100, counted: 30, output: 320 };
        let began = Instant::now();
        let (held, _seat) =
            fit(&queue, ACCOUNT, &rules(Means::ALL, 0), &mut call).await.expect("served");
        assert_eq!((held, began.elapsed()), ((money(420), HoldKind::Whole), GATHER));
    }

    #[tokio::test(start_paused = true)]
    async fn who_may_wait_is_served_when_another_ends_and_else_refused() {
        let (queue, account) = (Arc::<HoldQueue>::default(), FakeAccount::with_available(100));
        let call = |account: &FakeAccount| FakeCall {
            account: account.clone(),
            input: 90,
            counted: 90,
            output: 9,
        };
        let (held, running_call) =
            fit(&queue, ACCOUNT, &rules(&[], 0), &mut call(&account)).await.expect("served");
        let refused = fit(&queue, ACCOUNT, &rules(&[], 0), &mut call(&account)).await;
        assert!(matches!(refused, Err(FitError::Short { .. })), "{refused:?}");
        let waits = {
            let (queue, account) = (Arc::clone(&queue), account.clone());
            tokio::spawn(async move {
                let mut call = call(&account);
                fit(&queue, ACCOUNT, &rules(&[], 10), &mut call).await.map(|_| Instant::now())
            })
        };
        sleep(Duration::from_secs(3)).await;
        account.end(held.0, money(1));
        let ended = Instant::now();
        drop(running_call);
        let served = waits.await.expect("no panic").expect("served");
        assert_eq!(served, ended, "it is woken at once");
        // What is spent for good is not waited for.
        let began = Instant::now();
        let poor = FakeAccount::with_available(50);
        let refused = fit(&queue, ACCOUNT, &rules(&[], 10), &mut call(&poor)).await;
        assert!(refused.is_err() && began.elapsed() == GATHER);
    }
}
