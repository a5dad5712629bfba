//! The last day by the minute, for people who look at the gateway: rates, errors, times and spend.
//!
//! It is read off the metrics that there are every few seconds, so a request pays nothing for it.
//! Memory is bounded: some 150 KB for a day.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use prometheus::core::Collector;
use prometheus::proto::Metric;
use tokio::time::MissedTickBehavior;

use super::{LATENCY_BUCKETS, Metrics};
use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;

/// Interval of reading the metrics. With a thousand models a reading takes some milliseconds.
const INTERVAL: Duration = Duration::from_secs(10);
/// Readings in a minute.
const PER_MINUTE: usize = 6;
/// Number of retained minutes: a day.
const MINUTES_MAX: usize = 24 * 60;
/// The buckets, and one for what is longer.
const BUCKETS: usize = LATENCY_BUCKETS.len() + 1;

/// Figures of a span of time, a minute as a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Minute {
    /// End of the period.
    pub end: UnixMs,
    /// Length of the span, in seconds.
    pub seconds: f64,
    /// Requests that ended well.
    pub succeeded: u64,
    /// Requests that were refused: statuses from 400 to 499.
    pub refused: u64,
    /// Requests that failed: statuses from 500.
    pub failed: u64,
    /// Requests that broke off: without an answer, or in the midst of one.
    pub broken: u64,
    /// The time to the first byte that half of the requests kept to; `None` without any.
    pub ttfb_p50: Option<Duration>,
    /// The time to the first byte that 19 of 20 requests kept to.
    pub ttfb_p95: Option<Duration>,
    /// Charges, rounded through a float: the ledger has the exact figure.
    pub spend: Nanousd,
    /// Amount held for the charged requests, rounded in the same way.
    pub held: Nanousd,
    /// Requests being served when it ended.
    pub in_flight: u64,
}

impl Minute {
    /// Requests that ended, however.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.succeeded + self.refused + self.failed + self.broken
    }
}

/// Figures of the last day.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecentFigures {
    /// The last minute, as of a few seconds ago; `None` in the first seconds.
    pub now: Option<Minute>,
    /// Complete minutes, oldest first, at most a day.
    pub minutes: Vec<Minute>,
}

/// All totals since the start, at one moment.
#[derive(Clone, Copy, Debug, Default)]
struct CounterReading {
    at: UnixMs,
    succeeded: u64,
    refused: u64,
    failed: u64,
    broken: u64,
    /// Counts per bucket, not cumulative.
    ttfb: [u64; BUCKETS],
    spend_dollars: f64,
    held_dollars: f64,
    in_flight: u64,
}

/// Recent readings, and the minutes computed from them.
#[derive(Debug, Default)]
pub(super) struct MinuteHistory {
    /// The readings of the last minute, and the one before.
    readings: VecDeque<CounterReading>,
    minutes: VecDeque<Minute>,
    /// Number of readings since the last complete minute.
    since: usize,
}

impl MinuteHistory {
    fn add(&mut self, reading: CounterReading) {
        self.readings.push_back(reading);
        // A figure is the difference of two readings, so a minute needs one more than it has intervals.
        while self.readings.len() > PER_MINUTE + 1 {
            self.readings.pop_front();
        }
        if self.readings.len() > 1 {
            self.since += 1;
        }
        if self.since == PER_MINUTE {
            self.since = 0;
            self.minutes.extend(self.now());
            while self.minutes.len() > MINUTES_MAX {
                self.minutes.pop_front();
            }
        }
    }

    /// The time between the oldest reading and the newest.
    fn now(&self) -> Option<Minute> {
        let (first, last) = (self.readings.front()?, self.readings.back()?);
        (last.at > first.at).then(|| last.since(first))
    }
}

impl CounterReading {
    fn since(&self, before: &Self) -> Minute {
        let mut ttfb = self.ttfb;
        for (count, before) in ttfb.iter_mut().zip(before.ttfb) {
            *count = count.saturating_sub(before);
        }
        Minute {
            end: self.at,
            seconds: Duration::from_millis(self.at.0.saturating_sub(before.at.0)).as_secs_f64(),
            succeeded: self.succeeded.saturating_sub(before.succeeded),
            refused: self.refused.saturating_sub(before.refused),
            failed: self.failed.saturating_sub(before.failed),
            broken: self.broken.saturating_sub(before.broken),
            ttfb_p50: quantile(&ttfb, 0.5),
            ttfb_p95: quantile(&ttfb, 0.95),
            spend: nanousd(self.spend_dollars - before.spend_dollars),
            held: nanousd(self.held_dollars - before.held_dollars),
            in_flight: self.in_flight,
        }
    }
}

/// The time that this share of the requests kept to, as Prometheus would estimate it: evenly spread
/// within a bucket, and not above the last bound.
#[expect(clippy::cast_precision_loss, reason = "requests of a minute are far below 2^53")]
fn quantile(counts: &[u64; BUCKETS], share: f64) -> Option<Duration> {
    let total: u64 = counts.iter().sum();
    let rank = share * total as f64;
    let (mut below, mut bound_below) = (0, 0.0);
    for (count, bound) in counts.iter().zip(LATENCY_BUCKETS) {
        let within = rank - below as f64;
        if *count > 0 && within <= *count as f64 {
            let seconds = bound_below + (bound - bound_below) * (within / *count as f64);
            return Duration::try_from_secs_f64(seconds).ok();
        }
        (below, bound_below) = (below + count, bound);
    }
    (total > 0).then(|| Duration::try_from_secs_f64(bound_below).ok()).flatten()
}

#[expect(clippy::cast_possible_truncation, reason = "the spend of a minute is far below 2^63")]
fn nanousd(dollars: f64) -> Nanousd {
    Nanousd::new((dollars.max(0.0) * 1e9).round() as i64)
}

impl Metrics {
    /// Reads the metrics every few seconds for [`Metrics::recent`], for ever.
    pub async fn watch_recent(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(INTERVAL);
        // After a pause of the process one reading follows, not one for each that was missed.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let metrics = Arc::clone(&self);
            // It is no work for a thread that serves requests.
            if tokio::task::spawn_blocking(move || metrics.read_recent()).await.is_err() {
                return;
            }
        }
    }

    /// The last day by the minute, and the last minute.
    #[must_use]
    pub fn recent(&self) -> RecentFigures {
        let history = self.history.lock();
        RecentFigures { now: history.now(), minutes: history.minutes.iter().copied().collect() }
    }

    pub(super) fn read_recent(&self) {
        let reading = self.reading(UnixMs::now());
        self.history.lock().add(reading);
    }

    fn reading(&self, at: UnixMs) -> CounterReading {
        let mut reading =
            CounterReading { at, in_flight: self.in_flight(), ..CounterReading::default() };
        each(&self.requests, |metric| {
            let (status, code) = (label(metric, "status"), label(metric, "code"));
            let count = whole(metric.get_counter().get_value());
            *match status {
                "4xx" => &mut reading.refused,
                "5xx" => &mut reading.failed,
                "2xx" | "3xx" if code.is_empty() => &mut reading.succeeded,
                _ => &mut reading.broken,
            } += count;
        });
        each(&self.ttfb, |metric| {
            let histogram = metric.get_histogram();
            let mut below = 0;
            for (sum, bucket) in reading.ttfb.iter_mut().zip(histogram.get_bucket()) {
                // Prometheus' buckets are cumulative, and quantiles are taken of single ones.
                *sum += bucket.cumulative_count().saturating_sub(below);
                below = bucket.cumulative_count();
            }
            if let Some(longer) = reading.ttfb.last_mut() {
                *longer += histogram.get_sample_count().saturating_sub(below);
            }
        });
        each(&self.spend, |metric| reading.spend_dollars += metric.get_counter().get_value());
        each(&self.held, |metric| reading.held_dollars += metric.get_counter().get_value());
        reading
    }
}

fn each(collector: &impl Collector, mut look: impl FnMut(&Metric)) {
    for family in collector.collect() {
        family.get_metric().iter().for_each(&mut look);
    }
}

fn label<'a>(metric: &'a Metric, name: &str) -> &'a str {
    let found = metric.get_label().iter().find(|pair| pair.name() == name);
    found.map_or("", |pair| pair.value())
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a counter of whole things, which is never below zero"
)]
fn whole(value: f64) -> u64 {
    value as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finished::tests::finished;
    use tollgate_money::price::UsageSource;

    fn reading_at(metrics: &Metrics, second: u64) {
        let reading = metrics.reading(UnixMs(second * 1000));
        metrics.history.lock().add(reading);
    }

    #[test]
    fn a_minute_is_what_was_counted_within_it() {
        let metrics = Metrics::new();
        assert_eq!(metrics.recent(), RecentFigures::default());
        for _ in 0..100 {
            // Before the first reading: not of the minute.
            metrics.record(&finished());
        }
        reading_at(&metrics, 1_000);
        assert_eq!(metrics.recent().now, None, "one reading is no time");
        for (status, error_code, count) in
            [(200, "", 19), (200, "cut", 1), (429, "rate", 3), (502, "bad", 2), (0, "", 1)]
        {
            for _ in 0..count {
                metrics.record(&crate::finished::FinishedRequest {
                    status,
                    error_code,
                    ttfb: Some(Duration::from_millis(if status == 200 { 30 } else { 400_000 })),
                    held: Nanousd::new(if status == 200 { 3_000_000 } else { 0 }),
                    settled: (status == 200).then_some(crate::finished::RequestSettlement {
                        usage: tollgate_money::price::Usage::ZERO,
                        source: UsageSource::Upstream,
                        cost: Nanousd::new(1_000_000),
                        owed: Nanousd::ZERO,
                    }),
                    ..finished()
                });
            }
        }
        metrics.in_flight_begin();
        for second in [1_010, 1_020, 1_030, 1_040, 1_050] {
            reading_at(&metrics, second);
        }
        assert_eq!(metrics.recent().minutes, []);
        reading_at(&metrics, 1_060);
        let recent = metrics.recent();
        let [minute] = recent.minutes.as_slice() else { panic!("{recent:?}") };
        assert_eq!(recent.now, Some(*minute));
        assert_eq!((minute.end, minute.seconds), (UnixMs(1_060_000), 60.0));
        assert_eq!((minute.succeeded, minute.refused, minute.failed, minute.broken), (19, 3, 2, 2));
        assert_eq!((minute.requests(), minute.in_flight), (26, 1));
        assert_eq!(
            (minute.spend, minute.held),
            (Nanousd::new(20_000_000), Nanousd::new(60_000_000))
        );
        // 20 of 26 between 25 and 50 ms; the others beyond the last bound of 300 s.
        assert_eq!(minute.ttfb_p50.map(|it| it.as_millis()), Some(41));
        assert_eq!(minute.ttfb_p95, Some(Duration::from_secs(300)));
        for second in 107..107 + 6 {
            reading_at(&metrics, second * 10);
        }
        let recent = metrics.recent();
        let (Some(now), [_, quiet]) = (recent.now, recent.minutes.as_slice()) else {
            panic!("{recent:?}")
        };
        assert_eq!((now, quiet.requests(), quiet.ttfb_p50), (*quiet, 0, None));
    }

    #[test]
    fn no_more_than_a_day_is_kept() {
        let metrics = Metrics::new();
        for tenth in 0..(MINUTES_MAX as u64 + 10) * 6 {
            reading_at(&metrics, 1_000 + tenth * 10);
        }
        let recent = metrics.recent();
        assert_eq!(recent.minutes.len(), MINUTES_MAX);
        assert!(recent.minutes.windows(2).all(|pair| pair[0].end.0 + 60_000 == pair[1].end.0));
    }
}
