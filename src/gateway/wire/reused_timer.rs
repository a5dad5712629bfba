//! Timeouts without a timer for each wait.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// A timer that is reused for successive waits with their own timeouts.
///
/// Making a timer and giving it up again costs more than most waits. So the one of an earlier wait
/// stays, and is set again only when it goes off before its time or would go off too late.
#[derive(Default)]
pub(crate) struct ReusedTimer(Option<Pin<Box<Sleep>>>);

impl ReusedTimer {
    /// Runs `work`; `None` if it takes longer than `limit` from when it first has to wait. It may be dropped
    /// at any time.
    pub(crate) fn within<T>(
        &mut self,
        limit: Duration,
        mut work: Pin<&mut impl Future<Output = T>>,
    ) -> impl Future<Output = Option<T>> {
        let mut until = None;
        poll_fn(move |context| {
            if let Poll::Ready(done) = work.as_mut().poll(context) {
                return Poll::Ready(Some(done));
            }
            let until = *until.get_or_insert_with(|| Instant::now() + limit);
            let timer = self.0.get_or_insert_with(|| Box::pin(sleep_until(until)));
            if timer.deadline() > until {
                timer.as_mut().reset(until);
            }
            while timer.as_mut().poll(context).is_ready() {
                if timer.deadline() >= until {
                    self.0 = None;
                    return Poll::Ready(None);
                }
                timer.as_mut().reset(until);
            }
            Poll::Pending
        })
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::pin::pin;

    use futures_util::FutureExt as _;
    use tokio::time::{advance, sleep};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn paused() -> tokio::runtime::Runtime {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(true).build().expect("a runtime")
    }

    #[test]
    fn each_wait_has_its_own_time_whatever_the_timer_was_set_to() {
        paused().block_on(async {
            let mut timer = ReusedTimer::default();
            // Done before its time, after it, and with others before it that were shorter or longer.
            for (limit, takes) in
                [(10, 5), (10, 9), (2, 1), (2, 3), (60, 59), (5, 6), (60, 61), (1, 0)]
            {
                let began = Instant::now();
                let done = timer.within(SECOND * limit, pin!(sleep(SECOND * takes))).await;
                assert_eq!(done.is_some(), takes < limit, "{takes} of {limit}");
                let took = began.elapsed().as_secs();
                assert_eq!(took, u64::from(takes.min(limit)), "{takes} of {limit}");
            }
        });
    }

    #[test]
    fn a_wait_that_was_dropped_leaves_the_next_one_its_time() {
        paused().block_on(async {
            let mut timer = ReusedTimer::default();
            let dropped = timer.within(SECOND, pin!(pending::<()>())).now_or_never();
            assert!(dropped.is_none());
            advance(SECOND / 2).await;
            assert!(timer.within(SECOND, pin!(sleep(SECOND * 3 / 4))).await.is_some());
            assert!(timer.within(SECOND, pin!(pending::<()>())).await.is_none());
        });
    }
}
