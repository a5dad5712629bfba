//! Due tasks in the memory of this process.

use std::collections::BinaryHeap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::DueTask;
use tollgate_types::clock::UnixMs;

/// Tasks in the order of their next check.
#[derive(Default)]
pub(super) struct Timetable {
    due: Mutex<BinaryHeap<DueTask>>,
    /// Notified when a task is due earlier than all others.
    earlier: Notify,
}

impl Timetable {
    pub(super) fn push(&self, due: DueTask) {
        let mut all = self.due.lock();
        let is_first = all.peek().is_none_or(|first| due.at < first.at);
        all.push(due);
        drop(all);
        if is_first {
            self.earlier.notify_one();
        }
    }

    /// Number of scheduled tasks.
    pub(super) fn len(&self) -> usize {
        self.due.lock().len()
    }

    /// Wait for the next due task; `None` if there is none within `wait_max`.
    pub(super) async fn next(&self, wait_max: Duration) -> Option<DueTask> {
        tokio::time::timeout(wait_max, async {
            loop {
                let earlier = self.earlier.notified();
                let now = UnixMs::now();
                let first = self.due.lock().peek().map(|first| first.at);
                let wait = first.map(|at| Duration::from_millis(at.0.saturating_sub(now.0)));
                match wait {
                    Some(Duration::ZERO) => {
                        if let Some(due) = self.due.lock().pop() {
                            return due;
                        }
                    }
                    Some(wait) => drop(tokio::time::timeout(wait, earlier).await),
                    None => earlier.await,
                }
            }
        })
        .await
        .ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_ledger::{AccountId, TaskId};

    fn due(task: TaskId, at: u64) -> DueTask {
        DueTask { at: UnixMs(at), account: AccountId::random(), task, has_slot: false }
    }

    #[tokio::test]
    async fn what_is_due_comes_in_the_order_of_its_times() {
        let (agenda, now) = (Timetable::default(), UnixMs::now().0);
        let [early, late, never] = [TaskId::random(), TaskId::random(), TaskId::random()];
        agenda.push(due(never, now + 3_600_000));
        agenda.push(due(late, now + 60));
        agenda.push(due(early, now));
        let wait = Duration::from_secs(10);
        assert_eq!(agenda.next(wait).await.map(|due| due.task), Some(early));
        assert_eq!(agenda.next(wait).await.map(|due| due.task), Some(late));
        assert!(UnixMs::now().0 >= now + 60, "not before its time");
        assert_eq!(agenda.next(Duration::from_millis(20)).await, None);
    }

    #[tokio::test]
    async fn what_is_due_earlier_is_not_waited_past() {
        let (agenda, now) = (Timetable::default(), UnixMs::now().0);
        let [early, never] = [TaskId::random(), TaskId::random()];
        agenda.push(due(never, now + 3_600_000));
        let push = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            agenda.push(due(early, now));
        };
        let (next, ()) = tokio::join!(agenda.next(Duration::from_secs(10)), push);
        assert_eq!(next.map(|due| due.task), Some(early));
    }
}
