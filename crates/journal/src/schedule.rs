//! Schedule of the journal's thread: its writes, and when it must be woken. Reads no clock.

use std::time::{Duration, Instant};

use crate::urgency::Urgency;

/// The least time from the beginning of one group to that of the next: a flush costs the disk and the
/// processor the same whatever it flushes. The first group after a pause begins at once.
pub(crate) const GROUP_INTERVAL: Duration = Duration::from_millis(2);
/// Maximum time that records without a waiter gather before they are written. A crash in this time
/// loses them.
pub(crate) const GATHER_MAX: Duration = Duration::from_millis(50);

/// The dates of groups, and what the thread that writes them does meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    /// Highest urgency of the gathered records; `None` without any.
    gathered: Option<Urgency>,
    /// Number of open groups. Nothing is written while one is open.
    open: u32,
    stopping: bool,
    rest: Rest,
    /// From when on the next group may begin; `None` before the first one.
    next_from: Option<Instant>,
    /// By when what gathers is written, also if it comes while the thread rests; `None` once the thread
    /// rests without a date.
    gathers_until: Option<Instant>,
    /// True if the gathering group must wait for [`Schedule::next_from`].
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
        self.is_late()
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
        if self.open > 0 {
            return self.rest_until(None);
        }
        let date = match self.gathered {
            None if self.stopping => return NextStep::Stop,
            None => {
                self.gathers_until = self.gathers_until.filter(|until| *until > now);
                let soon = self.next_from.filter(|from| self.is_busy && *from > now);
                return self.rest_until(soon.or(self.gathers_until));
            }
            Some(_) if self.stopping => now,
            Some(Urgency::AtOnce) => {
                let from = self.next_from.filter(|from| *from > now);
                self.waits |= from.is_some();
                from.unwrap_or(now)
            }
            Some(Urgency::Gather) => *self.gathers_until.get_or_insert(now + GATHER_MAX),
        };
        if date > now {
            return self.rest_until(Some(date));
        }
        self.gathered = None;
        self.next_from = Some(now + GROUP_INTERVAL);
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
                self.next_from.is_none_or(|from| date > from)
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
mod tests {
    use super::*;

    /// A scheduled thread in simulated time.
    struct SimulatedThread {
        schedule: Schedule,
        began: Instant,
        /// Current time in microseconds since the start.
        now: u64,
        /// Time at which the thread wakes by itself.
        looks_at: Option<u64>,
        /// Duration of writing a group.
        write_for: u64,
        /// Records that have gathered: when they came, and how urgent they are.
        records: Vec<(u64, Urgency)>,
        /// Start and contents of the groups.
        groups: Vec<(u64, Vec<(u64, Urgency)>)>,
    }

    impl SimulatedThread {
        fn new(write_for: u64) -> Self {
            let mut thread = Self {
                schedule: Schedule::default(),
                began: Instant::now(),
                now: 0,
                looks_at: None,
                write_for,
                records: Vec::new(),
                groups: Vec::new(),
            };
            thread.look();
            thread
        }

        fn look(&mut self) {
            let now = self.began + Duration::from_micros(self.now);
            self.looks_at = match self.schedule.next(now) {
                NextStep::Write => {
                    self.groups.push((self.now, std::mem::take(&mut self.records)));
                    Some(self.now + self.write_for)
                }
                NextStep::RestUntil(date) => {
                    let date = u64::try_from((date - self.began).as_micros());
                    Some(date.expect("a short time"))
                }
                NextStep::Rest => None,
                NextStep::Stop => panic!("nobody has stopped it"),
            };
        }

        /// Advances the time.
        fn until(&mut self, time: u64) {
            while let Some(at) = self.looks_at.filter(|at| *at <= time) {
                self.now = at;
                self.look();
            }
            self.now = time;
        }

        fn record(&mut self, urgency: Urgency) {
            self.records.push((self.now, urgency));
            self.wake(|schedule| schedule.gathered(urgency));
        }

        fn wake(&mut self, change: impl FnOnce(&mut Schedule) -> bool) {
            if change(&mut self.schedule) {
                self.look();
            }
        }

        fn group_times(&self) -> Vec<u64> {
            self.groups.iter().map(|(at, _)| *at).collect()
        }
    }

    const MS: u64 = 1_000;

    #[test]
    fn what_nobody_waits_for_rides_along_and_wakes_nobody() {
        let mut thread = SimulatedThread::new(MS / 4);
        for call in 0..100 {
            thread.until(call * 5 * MS);
            thread.record(Urgency::AtOnce);
            thread.until(call * 5 * MS + MS);
            thread.record(Urgency::Gather);
        }
        thread.until(1_000 * MS);
        let calls: Vec<_> = (0..100).map(|call| call * 5 * MS).collect();
        assert_eq!(thread.group_times()[..100], calls, "one group for each call, at once");
        let last = (99 * 5 * MS + 50 * MS, vec![(99 * 5 * MS + MS, Urgency::Gather)]);
        assert_eq!(thread.groups[100..], [last], "what comes last is written too");
        assert_eq!(thread.schedule.wakes(), 100, "for each that is urgent");
        assert_eq!(thread.looks_at, None, "it rests in the end");
    }

    #[test]
    fn a_record_that_comes_alone_is_written_without_anybody_who_asks() {
        let mut thread = SimulatedThread::new(MS / 4);
        for alone in 1..=3 {
            thread.until(alone * 1_000 * MS);
            thread.record(Urgency::Gather);
            thread.until(alone * 1_000 * MS + 49 * MS);
            assert_eq!(thread.groups.len() as u64, alone - 1);
            thread.until(alone * 1_000 * MS + 50 * MS);
            assert_eq!(thread.groups.len() as u64, alone);
        }
        assert_eq!(thread.schedule.wakes(), 3);
    }

    #[test]
    fn who_waits_for_what_gathers_has_it_written_now() {
        let mut thread = SimulatedThread::new(MS / 4);
        thread.record(Urgency::Gather);
        thread.until(MS);
        thread.wake(|schedule| schedule.gathered(Urgency::AtOnce));
        assert_eq!(thread.group_times(), [MS]);
        // While a group is written nobody needs to be woken, nor for the date behind it.
        thread.record(Urgency::AtOnce);
        thread.until(2 * MS);
        thread.record(Urgency::AtOnce);
        thread.until(10 * MS);
        assert_eq!(thread.group_times(), [MS, 3 * MS]);
        assert_eq!(thread.schedule.wakes(), 2, "the first, and the one who waits");
    }

    #[test]
    fn a_burst_has_a_group_in_two_milliseconds_and_few_wakes() {
        let mut thread = SimulatedThread::new(MS / 4);
        for record in 0..10_000 {
            thread.until(record * 10);
            thread.record(if record % 2 == 0 { Urgency::AtOnce } else { Urgency::Gather });
        }
        thread.until(200 * MS);
        let times = thread.group_times();
        assert_eq!(times[..50], (0..50).map(|group| group * 2 * MS).collect::<Vec<_>>());
        assert_eq!(times.len(), 51, "for 100 ms of records");
        // The first record, and one behind the first group: from then on it is known to be busy.
        assert!(thread.schedule.wakes() <= 2, "{} wakes", thread.schedule.wakes());
    }

    #[test]
    fn what_belongs_together_is_not_parted_and_is_written_when_it_is_whole() {
        let mut thread = SimulatedThread::new(MS / 4);
        thread.schedule.open_group();
        thread.record(Urgency::AtOnce);
        thread.until(100 * MS);
        thread.record(Urgency::Gather);
        assert_eq!(thread.groups, []);
        thread.wake(Schedule::close_group);
        assert_eq!(thread.group_times(), [100 * MS]);
        assert_eq!(thread.schedule.wakes(), 1);
        // What is open when a date comes is waited for.
        thread.until(110 * MS);
        thread.record(Urgency::Gather);
        thread.schedule.open_group();
        thread.until(400 * MS);
        assert_eq!(thread.groups.len(), 1);
        thread.wake(Schedule::close_group);
        thread.until(450 * MS);
        assert_eq!(thread.groups.len(), 2);
    }

    #[test]
    fn whoever_stops_it_waits_for_nothing() {
        let mut schedule = Schedule::default();
        let now = Instant::now();
        assert_eq!(schedule.next(now), NextStep::Rest);
        assert!(schedule.gathered(Urgency::AtOnce));
        assert_eq!(schedule.next(now), NextStep::Write);
        assert!(!schedule.gathered(Urgency::Gather), "it writes");
        assert_eq!(schedule.next(now), NextStep::RestUntil(now + GATHER_MAX));
        assert!(schedule.stop());
        assert_eq!(schedule.next(now), NextStep::Write);
        assert_eq!(schedule.next(now), NextStep::Stop);
    }

    /// Whatever comes when, and however long the disk takes: what is urgent is written as soon as the
    /// interval of groups allows, the rest within its time, and nobody is woken for nothing.
    #[test]
    fn dates_hold_for_any_records_and_disks() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let [interval, most] = [GROUP_INTERVAL, GATHER_MAX]
            .map(|time| u64::try_from(time.as_micros()).expect("short"));
        for _ in 0..300 {
            let mut thread = SimulatedThread::new(random.u64(50..4_000));
            let pause = 10_u64.pow(random.u32(1..6));
            let mut urgent = 0;
            for _ in 0..200 {
                let next = thread.now + random.u64(..pause);
                thread.until(next);
                let is_urgent = random.bool();
                urgent += u64::from(is_urgent);
                thread.record(if is_urgent { Urgency::AtOnce } else { Urgency::Gather });
            }
            let end = thread.now + 1_000 * MS;
            thread.until(end);
            assert_eq!(thread.records, [], "all of it was written");
            let mut free_from = 0;
            for (began, records) in &thread.groups {
                assert!(*began >= free_from, "{began} is too early");
                for (came, urgency) in records {
                    let latest = match urgency {
                        Urgency::AtOnce => (*came).max(free_from),
                        Urgency::Gather => (*came + most).max(free_from),
                    };
                    assert!(*began <= latest, "{urgency:?} came at {came}, began at {began}");
                }
                free_from = began + interval.max(thread.write_for);
            }
            let alone = thread.groups.len() as u64;
            assert!(thread.schedule.wakes() <= urgent + alone, "woken for what can wait");
        }
    }
}
