//! A loopback request while it is served.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use tokio::runtime::Handle;

/// A request in progress. It continues when this is dropped before its end, so that it is always settled.
pub(super) struct Serving(Option<Pin<Box<dyn Future<Output = ()> + Send>>>);

impl Serving {
    /// `work` serves a request.
    pub(super) fn new(work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(Some(Box::pin(work)))
    }

    /// Serves the rest in its own task.
    pub(super) fn go_on(mut self) {
        self.spawn();
    }

    /// Serves it until something has `come`, which is asked for before and behind each step; `None` when
    /// it has ended without.
    pub(super) async fn until<T>(&mut self, mut come: impl FnMut() -> Option<T>) -> Option<T> {
        poll_fn(|context| {
            if let Some(it) = come() {
                return Poll::Ready(Some(it));
            }
            let is_over = match self.0.take() {
                Some(mut work) => {
                    // What panics here is not put back: it cannot go on, and settles what it holds as it
                    // is dropped.
                    let is_over = work.as_mut().poll(context).is_ready();
                    self.0 = Some(work).filter(|_| !is_over);
                    is_over
                }
                None => true,
            };
            match come() {
                None if !is_over => Poll::Pending,
                come => Poll::Ready(come),
            }
        })
        .await
    }

    fn spawn(&mut self) {
        if let Some(work) = self.0.take()
            && let Ok(runtime) = Handle::try_current()
        {
            drop(runtime.spawn(work));
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.spawn();
    }
}

impl fmt::Debug for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serving").field("is_over", &self.0.is_none()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    /// Work in three steps, and the number of those that were done.
    fn steps() -> (Serving, Arc<AtomicUsize>) {
        let done = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&done);
        let work = async move {
            for _ in 0..3 {
                counted.fetch_add(1, Ordering::SeqCst);
                tokio::task::yield_now().await;
            }
        };
        (Serving::new(work), done)
    }

    #[tokio::test]
    async fn it_is_served_as_far_as_somebody_waits_and_by_itself_from_there_on() {
        let (mut serving, done) = steps();
        let count = Arc::clone(&done);
        let come = serving.until(|| (count.load(Ordering::SeqCst) == 2).then_some(2)).await;
        assert_eq!((come, done.load(Ordering::SeqCst)), (Some(2), 2));
        drop(serving);
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert_eq!(done.load(Ordering::SeqCst), 3, "nobody waits any more");
    }

    #[tokio::test]
    async fn it_goes_on_where_whoever_waits_for_it_panics() {
        let (mut serving, done) = steps();
        let count = Arc::clone(&done);
        let waiting = tokio::spawn(async move {
            let come = || (count.load(Ordering::SeqCst) == 1).then_some(());
            serving.until(come).await.expect("a step");
            panic!("something else");
        });
        assert!(waiting.await.expect_err("ended").is_panic());
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert_eq!(done.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn what_panics_is_dropped_and_never_polled_again() {
        let polled = Arc::new(AtomicUsize::new(0));
        let held = Arc::clone(&polled);
        let mut serving = Serving::new(std::future::poll_fn(move |_| {
            held.fetch_add(1, Ordering::SeqCst);
            panic!("at work")
        }));
        let waiting = tokio::spawn(async move { serving.until(|| None::<()>).await });
        assert!(waiting.await.expect_err("ended").is_panic());
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert_eq!((polled.load(Ordering::SeqCst), Arc::strong_count(&polled)), (1, 1));
    }

    #[tokio::test]
    async fn a_request_that_ends_without_an_answer_gives_none() {
        let (mut serving, done) = steps();
        assert_eq!(serving.until(|| None::<()>).await, None);
        assert_eq!(serving.until(|| None::<()>).await, None, "it is over");
        assert_eq!(done.load(Ordering::SeqCst), 3);
    }
}
