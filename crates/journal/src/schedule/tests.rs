//! The schedule of groups in simulated time.

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

    /// Advances the time, in microseconds since the start.
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

/// A caller that makes one call after another.
#[derive(Clone, Copy, Debug)]
enum SimulatedCaller {
    /// Makes its next call at this time.
    Rests(u64),
    /// Its record came at this time, and its answer is not ready.
    Calls(u64),
    /// Its answer waits for this record.
    Waits(u64),
}

impl SimulatedThread {
    /// Time at which the group with a record is on disk; `None` while it gathers.
    fn durable_at(&self, record: u64) -> Option<u64> {
        let group = self
            .groups
            .iter()
            .rev()
            .find(|(_, records)| records.iter().any(|(came, _)| *came == record));
        group.map(|(began, _)| began + self.write_for)
    }

    /// Plays so many callers for 100 ms, whose answers take `answer` and who rest for `rest` µs. The
    /// longest time from a record to the disk after the first 10 ms, and the number of calls.
    fn play(&mut self, callers: u64, answer: u64, rest: u64) -> (u64, u64) {
        // Records are told apart by their times: one in a microsecond.
        let mut all: Vec<_> = (0..callers).map(SimulatedCaller::Rests).collect();
        let (mut longest, mut calls) = (0, 0);
        for now in 0..100 * MS {
            self.until(now);
            let mut has_recorded = false;
            for caller in &mut all {
                *caller = match *caller {
                    SimulatedCaller::Rests(until) if now >= until && !has_recorded => {
                        has_recorded = true;
                        self.record(Urgency::AtOnce);
                        SimulatedCaller::Calls(now)
                    }
                    SimulatedCaller::Calls(record) if now >= record + answer => {
                        let last = self.groups.last();
                        if self.durable_at(record).is_none() {
                            self.wake(Schedule::wait_for_next);
                        } else if last
                            .is_some_and(|(_, group)| group.iter().any(|(came, _)| *came == record))
                        {
                            self.wake(Schedule::wait_for_last);
                        }
                        SimulatedCaller::Waits(record)
                    }
                    SimulatedCaller::Waits(record)
                        if self.durable_at(record).is_some_and(|at| at <= now) =>
                    {
                        if record > 10 * MS {
                            longest = longest.max(self.durable_at(record).unwrap_or(now) - record);
                        }
                        calls += 1;
                        SimulatedCaller::Rests(now + rest)
                    }
                    same => same,
                };
            }
        }
        (longest, calls)
    }
}

#[test]
fn one_caller_after_another_waits_for_its_own_flush_only() {
    for write_for in [45, 440, 5 * MS] {
        let mut thread = SimulatedThread::new(write_for);
        let (longest, calls) = thread.play(1, 50, 60);
        assert_eq!(longest, write_for);
        let groups = thread.groups.len() as u64;
        assert!((calls..calls + 2).contains(&groups), "{groups} flushes for {calls} calls");
    }
}

#[test]
fn few_callers_wait_for_two_flushes_and_the_rest_between() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..12 {
        let (callers, write_for) = (random.u64(1..40), random.u64(60..4_000));
        let mut thread = SimulatedThread::new(write_for);
        let (longest, calls) = thread.play(callers, random.u64(1..50), random.u64(1..500));
        let interval = (2 * write_for).min(2 * MS).max(write_for);
        assert!(longest <= interval + write_for, "{longest} µs, {callers} callers, {write_for}");
        let groups = thread.groups.len() as u64;
        assert!(groups <= calls + 2, "{groups} flushes for {calls} calls");
    }
}

#[test]
fn answers_of_slow_upstreams_have_no_more_flushes() {
    let mut thread = SimulatedThread::new(45);
    thread.play(80, 20 * MS, 10);
    let groups = thread.groups.len();
    assert!(groups <= 51, "{groups} in 100 ms");
}

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
    let [interval, most] =
        [GROUP_INTERVAL, GATHER_MAX].map(|time| u64::try_from(time.as_micros()).expect("short"));
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
