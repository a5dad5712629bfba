//! Schedule of the journal's thread: its writes, and when it must be woken. Reads no clock.

use std::time::{Duration, Instant};

use crate::urgency::Urgency;

/// The least time from the beginning of one group to that of the next where no answer waits for a flush:
/// it costs the disk and the processor the same whatever it flushes. The first group after a pause begins at
/// once.
pub(crate) const GROUP_INTERVAL: Duration = Duration::from_millis(2);
/// Maximum time that records without a waiter gather before they are written. A crash in this time
/// loses them.
pub(crate) const GATHER_MAX: Duration = Duration::from_millis(50);
/// Where answers wait for flushes, groups begin this many durations of the last one apart, at most
/// [`GROUP_INTERVAL`]: the thread rests for half of the time, in which others join.
const INTERVAL_PER_WRITE: u32 = 2;

/// The dates of groups, and what the thread that writes them does meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    /// Highest urgency of the gathered records; `None` without any.
    gathered: Option<Urgency>,
    /// Number of open groups. Nothing is written while one is open.
    open: u32,
    stopping: bool,
    rest: Rest,
    /// Start of the last group; `None` before the first one.
    began: Option<Instant>,
    /// True from the start of a group until the thread checks the schedule again.
    is_writing: bool,
    /// The least time between groups where answers wait, by the duration of the last one.
    short_interval: Duration,
    /// Answers that wait for records of the last group, or were ready soon after it.
    waiters: u32,
    /// Answers that wait for records that gather.
    next_waiters: u32,
    /// Urgent records that have gathered.
    urgent: u32,
    /// True if answers waited for the group before the last.
    had_waiters: bool,
    /// By when what gathers is written, also if it comes while the thread rests; `None` once the thread
    /// rests without a date.
    gathers_until: Option<Instant>,
    /// True if the gathering group must wait for its date.
    waits: bool,
    /// True if the last group had to wait: the next one probably arrives too early as well.
    is_busy: bool,
    wakes: u64,
}

/// Sleep of the thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Rest {
    /// The thread works or was woken, and will check the schedule next.
    #[default]
    None,
    /// The thread sleeps until this deadline of the schedule.
    Until(Instant),
    /// It sleeps until it is woken.
    Idle,
}

/// Next step of the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// Write what has gathered.
    Write,
    /// Sleep until this date, or until somebody wakes it.
    RestUntil(Instant),
    /// Sleep until woken.
    Rest,
    /// End: nothing has gathered and nothing will come.
    Stop,
}

impl Schedule {
    /// Something has gathered, or somebody waits for what has. True if the thread is to be woken.
    pub(crate) fn gathered(&mut self, urgency: Urgency) -> bool {
        self.gathered = self.gathered.max(Some(urgency));
        if urgency == Urgency::AtOnce {
            self.urgent = self.urgent.saturating_add(1);
        }
        self.is_late()
    }

    /// An answer waits for a record that gathers. True if the thread is to be woken.
    pub(crate) fn wait_for_next(&mut self) -> bool {
        self.gathered = self.gathered.max(Some(Urgency::AtOnce));
        self.next_waiters = self.next_waiters.saturating_add(1);
        self.is_late()
    }

    /// An answer waits for a record of the last group, or is ready soon after it: the caller may come again
    /// as soon, and would wait. True if the thread is to be woken.
    pub(crate) fn wait_for_last(&mut self) -> bool {
        self.waiters = self.waiters.saturating_add(1);
        self.is_late()
    }

    /// The earliest start of the next group; `None` if it may begin at once.
    fn next_from(&self) -> Option<Instant> {
        // Whoever the last group answered is back: nobody else is expected to join.
        if self.waiters > 0 && self.urgent >= self.waiters && !self.is_writing {
            return None;
        }
        // Answers of slow upstreams come long after their flush: they gain nothing by more of them.
        let waits = self.waiters > 0 || self.had_waiters;
        let interval = if waits { self.short_interval } else { GROUP_INTERVAL };
        self.began.map(|began| began + interval)
    }

    /// Nothing is written until [`Schedule::close_group`] was called as often as this.
    pub(crate) fn open_group(&mut self) {
        self.open = self.open.saturating_add(1);
    }

    /// The end of [`Schedule::open_group`]. True if the thread is to be woken.
    pub(crate) fn close_group(&mut self) -> bool {
        self.open = self.open.saturating_sub(1);
        self.is_late()
    }

    /// True while a group is held open.
    pub(crate) fn is_open(&self) -> bool {
        self.open > 0
    }

    /// Writes the gathered records without further waiting. True if the thread must be woken.
    pub(crate) fn stop(&mut self) -> bool {
        self.stopping = true;
        self.is_late()
    }

    /// True once stopped.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// Number of wake-ups.
    pub(crate) fn wakes(&self) -> u64 {
        self.wakes
    }

    /// Next step of the thread at `now`. With [`NextStep::Write`] it takes the gathered records.
    pub(crate) fn next(&mut self, now: Instant) -> NextStep {
        self.rest = Rest::None;
        if let (true, Some(began)) = (std::mem::take(&mut self.is_writing), self.began) {
            let took = now.saturating_duration_since(began);
            self.short_interval = took.saturating_mul(INTERVAL_PER_WRITE).min(GROUP_INTERVAL);
        }
        if self.open > 0 {
            return self.rest_until(None);
        }
        let date = match self.gathered {
            None if self.stopping => return NextStep::Stop,
            None => {
                self.gathers_until = self.gathers_until.filter(|until| *until > now);
                let soon = self.next_from().filter(|from| self.is_busy && *from > now);
                return self.rest_until(soon.or(self.gathers_until));
            }
            Some(_) if self.stopping => now,
            Some(Urgency::AtOnce) => {
                let from = self.next_from().filter(|from| *from > now);
                self.waits |= from.is_some();
                from.unwrap_or(now)
            }
            Some(Urgency::Gather) => *self.gathers_until.get_or_insert(now + GATHER_MAX),
        };
        if date > now {
            return self.rest_until(Some(date));
        }
        self.gathered = None;
        self.began = Some(now);
        self.is_writing = true;
        self.short_interval = GROUP_INTERVAL;
        self.had_waiters = self.waiters > 0;
        self.waiters = std::mem::take(&mut self.next_waiters);
        self.urgent = 0;
        self.gathers_until = Some(now + GATHER_MAX);
        self.is_busy = std::mem::take(&mut self.waits);
        NextStep::Write
    }

    fn rest_until(&mut self, date: Option<Instant>) -> NextStep {
        self.rest = date.map_or(Rest::Idle, Rest::Until);
        date.map_or(NextStep::Rest, NextStep::RestUntil)
    }

    /// True if the thread sleeps too long; it counts as woken then.
    fn is_late(&mut self) -> bool {
        let is_late = match (self.rest, self.gathered) {
            (Rest::None, _) => false,
            (_, _) if self.open > 0 => false,
            (_, _) if self.stopping => true,
            (_, None) => false,
            (Rest::Idle, Some(_)) => true,
            // No date is later than that of what gathers.
            (Rest::Until(_), Some(Urgency::Gather)) => false,
            (Rest::Until(date), Some(Urgency::AtOnce)) => {
                self.next_from().is_none_or(|from| date > from)
            }
        };
        if is_late {
            self.rest = Rest::None;
            self.wakes = self.wakes.saturating_add(1);
        }
        is_late
    }
}

#[cfg(test)]
mod tests;
