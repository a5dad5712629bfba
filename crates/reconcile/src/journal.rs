//! Costs and losses in the records that `tollgate ledger export` writes as JSON lines.

use std::borrow::Cow;
use std::collections::btree_map::Entry;
use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::BuildHasher;

use serde::Deserialize;
use thiserror::Error;
use tollgate_money::money::Nanousd;
use tollgate_money::price::{UNITS, Usage};
use tollgate_types::clock::{MS_PER_DAY, UnixMs};
use tollgate_types::ids::{RequestId, Seq};

use crate::day::Day;
use crate::own::{OwnKey, OwnKind, OwnLine};

/// Reason why a record is unusable.
#[derive(Debug, Error)]
#[error("line {line} of the journal {why}")]
pub struct JournalError {
    line: u64,
    why: String,
}

/// Records that are read one after the other. They are added up at once: a journal has millions of them.
#[derive(Debug, Default)]
pub struct JournalReading {
    /// Lines of this file so far, of any kind.
    count: u64,
    /// The places of the records that are used, each with a hash of its request: gateways that are no
    /// fleet have places in common, and no requests.
    places: HashSet<(Seq, u64)>,
    hasher: RandomState,
    lines: BTreeMap<OwnKey, OwnLine>,
    /// Line of the latest estimated answer of each request, which its loss is added to.
    estimated: HashMap<String, OwnKey>,
    /// Largest unrecorded cost of a request, from its `loss` record.
    losses: HashMap<String, Nanousd>,
}

#[derive(Deserialize)]
struct RecordTag<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
}

#[derive(Deserialize)]
struct CostRecord {
    seq: Seq,
    at: String,
    request_id: String,
    upstream: String,
    credential: String,
    upstream_model: String,
    cost_kind: String,
    usage: BTreeMap<String, u64>,
    usage_source: String,
    cost: Nanousd,
}

#[derive(Deserialize)]
struct LossRow {
    seq: Seq,
    request_id: String,
    cause: String,
    amount: Nanousd,
}

impl JournalReading {
    /// Start the next file, resetting the line number.
    pub const fn begin_file(&mut self) {
        self.count = 0;
    }

    /// Reads the next record. Other kinds than costs and losses say nothing here.
    ///
    /// # Errors
    /// When it is no record of an export.
    pub fn read(&mut self, line: &str) -> Result<(), JournalError> {
        self.count = self.count.saturating_add(1);
        self.take(line).map_err(|why| JournalError { line: self.count, why })
    }

    fn take(&mut self, line: &str) -> Result<(), String> {
        let wrong = |error: serde_json::Error| format!("is no record as it is exported: {error}");
        if line.trim().is_empty() {
            return Ok(());
        }
        // The kind alone first: most records of a journal are neither costs nor losses.
        let record: RecordTag<'_> = serde_json::from_str(line).map_err(wrong)?;
        match record.kind.as_ref() {
            "cost" => {
                let record: CostRecord = serde_json::from_str(line).map_err(wrong)?;
                let request = record.request_id.clone();
                self.refuse_again(record.seq, &request)?;
                self.add(request, own_line(record)?);
            }
            "loss" => {
                let LossRow { seq, request_id, cause, amount } =
                    serde_json::from_str(line).map_err(wrong)?;
                self.refuse_again(seq, &request_id)?;
                // A try that was followed by another has a record of its cost, at the most it can be.
                if cause != "retry" {
                    let sum = self.losses.entry(request_id).or_default();
                    *sum = sum.saturating_add(amount);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn add(&mut self, request: String, line: OwnLine) {
        let key = line.key();
        if line.is_estimated && line.kind != OwnKind::Retry {
            self.estimated.insert(request, key.clone());
        }
        match self.lines.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(line);
            }
            Entry::Occupied(mut entry) => entry.get_mut().add(&line),
        }
    }

    /// Refuses a record that was there before: a journal that is read twice doubles what calls cost.
    fn refuse_again(&mut self, seq: Seq, request: &str) -> Result<(), String> {
        // With the request: gateways outside of a fleet have seqs in common. Hashed, since a month has
        // millions of ids.
        if self.places.insert((seq, self.hasher.hash_one(request))) {
            Ok(())
        } else {
            Err(format!("has the seq {seq} of {request}, which was read before"))
        }
    }

    /// Finish: the costs read, with the losses of estimated answers.
    #[must_use]
    pub fn finish(mut self) -> Vec<OwnLine> {
        // At the end: the loss of a call may stand before its cost in the journal.
        for (request, loss) in self.losses {
            let key = self.estimated.get(&request);
            if let Some(line) = key.and_then(|key| self.lines.get_mut(key)) {
                line.loss = line.loss.saturating_add(loss);
            }
        }
        self.lines.into_values().collect()
    }
}

/// Longest plausible duration of a request; larger values are invalid.
const DURATION_MS_MAX: u64 = 2 * MS_PER_DAY;

/// The day on which the request of a record began. Records of tasks have the task's number in the place
/// of a request's, which says nothing of a time.
fn day_begun(request: &str, settled_at: UnixMs) -> Option<Day> {
    let began_at = request.parse::<RequestId>().ok()?.began_at();
    let duration = settled_at.0.checked_sub(began_at.0)?;
    Day::at(began_at).filter(|_| duration <= DURATION_MS_MAX)
}

fn own_line(record: CostRecord) -> Result<OwnLine, String> {
    let settled_at = UnixMs::parse_rfc3339(&record.at);
    let settled = settled_at.and_then(|at| Some((at, Day::at(at)?)));
    let (settled_at, day) = settled.ok_or_else(|| format!("has a time {:?}", record.at))?;
    let kind = match record.cost_kind.as_str() {
        "answer" => OwnKind::Answer,
        "unpaid" => OwnKind::Unpaid,
        "retry" => OwnKind::Retry,
        other => {
            return Err(format!("has a cost_kind {other:?}, of which this version knows nothing"));
        }
    };
    let mut usage = Usage::ZERO;
    for (name, count) in record.usage {
        match UNITS.iter().find(|info| info.name == name) {
            Some(info) => usage[info.unit] = count,
            // A newer gateway may list units that this version does not know; zero of them changes nothing.
            None if count == 0 => {}
            None => {
                return Err(format!("has a unit {name:?}, of which this version knows nothing"));
            }
        }
    }
    Ok(OwnLine {
        day,
        // Providers count a call on the day on which it began; ids of requests contain that time.
        began: day_begun(&record.request_id, settled_at).unwrap_or(day),
        upstream: record.upstream,
        credential: record.credential,
        model: record.upstream_model,
        kind,
        is_estimated: record.usage_source == "estimated",
        calls: 1,
        usage,
        cost: record.cost,
        loss: Nanousd::ZERO,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_and_their_losses_are_read() {
        let mut reading = JournalReading::default();
        for line in include_str!("../fixtures/journal.jsonl").lines() {
            reading.read(line).expect(line);
        }
        let lines = reading.finish();
        assert_eq!(lines.len(), 3, "{lines:?}");
        let kinds: Vec<_> =
            lines.iter().map(|line| (line.kind, line.is_estimated, line.loss.get())).collect();
        assert_eq!(
            kinds,
            [
                (OwnKind::Answer, true, 20_000),
                (OwnKind::Retry, true, 0),
                (OwnKind::Answer, false, 0),
            ]
        );
        assert_eq!((lines[0].usage.input_tokens, lines[0].cost.get()), (1000, 3_000_000));
        assert_eq!(lines[2].credential_name(), "openai");
    }

    #[test]
    fn records_that_are_compared_together_are_added_up() {
        let mut reading = JournalReading::default();
        for request in 1..=3 {
            for line in include_str!("../fixtures/journal.jsonl").lines() {
                let line = line.replace("req_1", &format!("req_1{request}"));
                reading.read(&line.replace("req_2", &format!("req_2{request}"))).expect("a record");
            }
        }
        let lines = reading.finish();
        let sums: Vec<_> =
            lines.iter().map(|line| (line.calls, line.cost.get(), line.loss.get())).collect();
        assert_eq!(sums, [(3, 9_000_000, 60_000), (3, 150_000_000, 0), (3, 3, 0)]);
        assert_eq!(lines[0].usage.input_tokens, 3000);
    }

    #[test]
    fn a_request_that_went_over_midnight_began_on_the_day_before() {
        let midnight = UnixMs::parse_rfc3339("2026-01-02T00:00:00Z").expect("a time").0;
        let settled_at = UnixMs(midnight + 10_000);
        let request = |ms: u64| RequestId::from_number(u128::from(ms) << 80 | 7).to_string();
        let begun = |text: &str| day_begun(text, settled_at).map(|day| day.to_string());
        assert_eq!(begun(&request(midnight - 10_000)).as_deref(), Some("2026-01-01"));
        assert_eq!(begun(&request(midnight)).as_deref(), Some("2026-01-02"));
        assert_eq!(begun(&request(midnight - MS_PER_DAY)).as_deref(), Some("2026-01-01"));
        for none in [midnight + 10_001, midnight - 2 * MS_PER_DAY, u64::MAX >> 16] {
            assert_eq!(begun(&request(none)), None, "{none}");
        }
        assert_eq!(begun("req_1"), None, "no id");
        let task = "req_ffffffffffffffffffffffffffffffff";
        let line = include_str!("../fixtures/journal.jsonl").lines().next().expect("a line");
        let mut reading = JournalReading::default();
        for id in [task, request(midnight - 10_000).as_str()] {
            let line = line.replace("req_1", id).replace("2026-01-01T10", "2026-01-02T00");
            reading.read(&line).expect("a record");
        }
        let days = reading.finish().into_iter().map(|line| (line.began, line.day));
        let days: Vec<_> = days.map(|(one, other)| (one.to_string(), other.to_string())).collect();
        let day = |text: &str| format!("2026-01-{text}");
        assert_eq!(days, [(day("01"), day("02")), (day("02"), day("02"))]);
    }

    #[test]
    fn a_record_that_was_read_before_is_refused() {
        let lines: Vec<_> = include_str!("../fixtures/journal.jsonl").lines().collect();
        for again in [lines[0], lines[2], &lines[0].replace("\"0.05\"", "\"0.06\"")] {
            let mut reading = JournalReading::default();
            for line in &lines {
                reading.read(line).expect(line);
            }
            reading.begin_file();
            let other = again.replace("req_1", "req_3");
            reading.read(&other).expect("of another gateway that is in no fleet");
            let error = reading.read(again).expect_err(again).to_string();
            assert!(error.starts_with("line 2 of the journal has the seq "), "{error}");
        }
    }

    #[test]
    fn what_is_no_record_is_refused_with_its_line() {
        let good = include_str!("../fixtures/journal.jsonl").lines().next().expect("a line");
        for (from, to) in [
            ("\"retry\"", "\"gift\""),
            ("\"kind\"", "\"sort\""),
            ("2026-01-01T", "T"),
            ("input_tokens", "input_thoughts"),
            ("\"cost\":\"0.05\"", "\"cost\":-1"),
            ("{", ""),
        ] {
            let mut reading = JournalReading::default();
            reading.read(good).expect("a record");
            let good = good.replacen("\"seq\":7", "\"seq\":8", 1);
            let bad = good.replacen(from, to, 1);
            assert_ne!(bad, good, "{from}");
            let error = reading.read(&bad).expect_err(to).to_string();
            assert!(error.starts_with("line 2 of the journal "), "{error}");
        }
    }
}
