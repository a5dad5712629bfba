//! Parsing of behaviour settings, from headers, paths and the command line.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::{
    Behaviour, Break, BreakPoint, DoneMarker, Faults, LineEnd, SimulatedRefusal, UsageDialect,
    UsageFigures, UsageForm, WithheldAnswer, Writes,
};

/// The longest delay or interval that can be asked for: longer than any timeout worth a test.
const WAIT_MS_MAX: u64 = 3_600_000;
/// The most chunks of one stream; a stream's script takes about 40 bytes for each.
const CHUNKS_MAX: u32 = 100_000;
/// The most words of one chunk.
const WORDS_MAX: u32 = 10_000;
/// The longest vector; the largest real models give 4,096 numbers.
const DIMENSIONS_MAX: u32 = 65_536;
/// The largest giant event, in bytes.
const GIANT_BYTES_MAX: u32 = 256 * 1024 * 1024;
/// The most characters of one image in base64.
const IMAGE_BYTES_MAX: u32 = 64 * 1024 * 1024;

/// Error: unknown setting, or invalid value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadSetting {
    name: String,
    value: String,
    expected: &'static str,
}

impl fmt::Display for BadSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}: expected {}", self.name, self.value, self.expected)
    }
}

impl std::error::Error for BadSetting {}

impl Behaviour {
    /// Changes one thing. The module's documentation has the table of settings.
    ///
    /// # Errors
    /// The setting or its value is not one; nothing has changed then.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), BadSetting> {
        let mut next = self.clone();
        match next.apply(name, value.trim()) {
            Ok(()) => {
                *self = next;
                Ok(())
            }
            Err(expected) => {
                Err(BadSetting { name: name.to_owned(), value: value.to_owned(), expected })
            }
        }
    }

    /// Changes one thing by `NAME=VALUE`.
    ///
    /// # Errors
    /// As [`Self::set`]; and a text without `=`.
    pub fn set_pair(&mut self, pair: &str) -> Result<(), BadSetting> {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        self.set(name.trim(), value)
    }

    fn apply(&mut self, name: &str, value: &str) -> Result<(), &'static str> {
        match name {
            "delay-ms" => self.delay = wait(value)?,
            "chunks" => self.chunks = number(value, 0, CHUNKS_MAX, "0 to 100000")?,
            "interval-ms" => self.interval = wait(value)?,
            "words" => self.words_per_chunk = number(value, 0, WORDS_MAX, "0 to 10000")?,
            "max-tokens" => self.ignores_max_tokens = !one_of(value, "honour", "ignore")?,
            "provider" => self.provider = value.parse()?,
            "usage" => self.usage = value.parse()?,
            "dimensions" => {
                self.dimensions = number(value, 1, DIMENSIONS_MAX, "1 to 65536")?;
            }
            "base64" => self.knows_base64 = one_of(value, "on", "off")?,
            "image-bytes" => {
                self.image_bytes = number(value, 0, IMAGE_BYTES_MAX, "0 to 67108864 bytes")?;
            }
            "usage-dialect" => {
                self.usage_dialect = match value {
                    "counted" => UsageDialect::Counted,
                    "output" => UsageDialect::Output,
                    _ => return Err("counted or output"),
                };
            }
            "task-pending-ms" => self.task.pending = wait(value)?,
            "task-running-ms" => self.task.running = wait(value)?,
            "task-end" => self.task.end = value.parse()?,
            "task-query-fault" => self.task.query_fault = query_fault(value)?,
            "count-delay-ms" => self.count.delay = Some(wait(value)?),
            "count-fault" => self.count.fault = query_fault(value)?,
            "count-percent" => self.count.percent = number(value, 0, 1_000, "0 to 1000")?,
            "key" => self.key = text(value),
            "retry-after" => self.retry_after = text(value),
            "error-code" => self.error_code = text(value),
            "blind" => self.blind = one_of(value, "on", "off")?,
            "strict" => self.strict = one_of(value, "on", "off")?,
            "fault" => return value.split(',').try_for_each(|fault| self.faults.add(fault.trim())),
            _ => {
                return Err(
                    "delay-ms, chunks, interval-ms, words, max-tokens, provider, usage, dimensions, \
                            base64, image-bytes, usage-dialect, task-pending-ms, task-running-ms, task-end, \
                            task-query-fault, count-delay-ms, count-fault, count-percent, key, retry-after, error-code, blind, strict or fault",
                );
            }
        }
        Ok(())
    }
}

impl Faults {
    /// Adds one fault, or with `none` takes all away.
    fn add(&mut self, fault: &str) -> Result<(), &'static str> {
        let (name, value) = fault.split_once('=').unwrap_or((fault, ""));
        let mut stop = |how| {
            let after_chunks = number(value, 0, CHUNKS_MAX, "a number of chunks after `=`")?;
            self.stop = Some(BreakPoint { after_chunks, how });
            Ok(())
        };
        match name {
            "none" => *self = Self::default(),
            "status" => self.refusal = Some(parse_status(value)?),
            "error-in-200" => self.refusal = Some(SimulatedRefusal::ErrorIn200),
            "reset" => self.refusal = Some(SimulatedRefusal::Reset),
            "reset-after-body" => self.refusal = Some(SimulatedRefusal::ResetAfterBody),
            "hang" => self.refusal = Some(SimulatedRefusal::Hang),
            "garbage" => self.refusal = Some(SimulatedRefusal::Garbage),
            "cut-after" => return stop(Break::Cut),
            "eof-after" => return stop(Break::Eof),
            "hang-after" => return stop(Break::Hang),
            "error-after" => return stop(Break::ErrorFrame),
            "usage-missing" => self.usage = UsageForm::Missing,
            "usage-string" => self.usage = UsageForm::Text,
            "usage-negative" => self.usage = UsageForm::Negative,
            "usage-huge" => self.usage = UsageForm::Huge,
            "usage-twice" => self.usage = UsageForm::Twice,
            "usage-early" => self.usage = UsageForm::Early,
            "usage-late" => self.usage = UsageForm::Late,
            "done-missing" => self.done = DoneMarker::Missing,
            "done-twice" => self.done = DoneMarker::Twice,
            "crlf" => self.line_end = LineEnd::CrLf,
            "cr" => self.line_end = LineEnd::Cr,
            "split" => self.writes = Writes::Split,
            "utf8-split" => self.writes = Writes::Utf8Split,
            "trickle" => self.writes = Writes::Trickle,
            "checksum" => self.checksum = true,
            "comments" => self.comments = true,
            "giant" => {
                self.giant_bytes = Some(number(value, 1, GIANT_BYTES_MAX, "1 to 268435456 bytes")?);
            }
            "leak" => self.leak = true,
            "submit-hang" => self.submit = Some(WithheldAnswer::Hang),
            "submit-reset" => self.submit = Some(WithheldAnswer::Reset),
            "task-lost" => self.task_lost = true,
            _ => return Err("faults of the table in the documentation of `sim`"),
        }
        Ok(())
    }
}

impl FromStr for UsageFigures {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "prompt=, completion=, cached= and reasoning= with whole numbers";
        let mut figures = Self::default();
        for pair in text.split(',') {
            let (name, value) = pair.split_once('=').ok_or(EXPECTED)?;
            let figure = Some(value.trim().parse().map_err(|_| EXPECTED)?);
            match name.trim() {
                "prompt" => figures.prompt = figure,
                "completion" => figures.completion = figure,
                "cached" => figures.cached = figure,
                "reasoning" => figures.reasoning = figure,
                _ => return Err(EXPECTED),
            }
        }
        Ok(figures)
    }
}

/// The fault of queries, `None` for `none`.
fn query_fault(text: &str) -> Result<Option<SimulatedRefusal>, &'static str> {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    match name {
        "none" => Ok(None),
        "status" => parse_status(value).map(Some),
        "hang" => Ok(Some(SimulatedRefusal::Hang)),
        "reset" => Ok(Some(SimulatedRefusal::Reset)),
        "garbage" => Ok(Some(SimulatedRefusal::Garbage)),
        _ => Err("none, status=N, hang, reset or garbage"),
    }
}

fn parse_status(value: &str) -> Result<SimulatedRefusal, &'static str> {
    number(value, 400, 599, "400 to 599").map(SimulatedRefusal::Status)
}

fn wait(value: &str) -> Result<Duration, &'static str> {
    number(value, 0, WAIT_MS_MAX, "0 to 3600000 milliseconds").map(Duration::from_millis)
}

fn number<N: FromStr + PartialOrd>(
    value: &str,
    min: N,
    max: N,
    expected: &'static str,
) -> Result<N, &'static str> {
    value.parse().ok().filter(|number| (min..=max).contains(number)).ok_or(expected)
}

/// Parse `yes` as true and `no` as false; anything else is an error.
fn one_of(value: &str, yes: &'static str, no: &'static str) -> Result<bool, &'static str> {
    match value {
        _ if value == yes => Ok(true),
        _ if value == no => Ok(false),
        _ if yes == "on" => Err("on or off"),
        _ => Err("honour or ignore"),
    }
}

fn text(value: &str) -> Option<String> {
    (!value.is_empty()).then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::CountSettings;
    use super::*;

    #[test]
    fn settings_change_what_they_name() {
        let mut behaviour = Behaviour::default();
        for pair in ["delay-ms=20", "chunks=3", "usage=prompt=12,cached=-4", "max-tokens=ignore"] {
            behaviour.set_pair(pair).expect("a setting");
        }
        behaviour.set("fault", "cut-after=2, crlf,giant=10").expect("faults");
        let expected = Behaviour {
            delay: Duration::from_millis(20),
            chunks: 3,
            ignores_max_tokens: true,
            usage: UsageFigures { prompt: Some(12), cached: Some(-4), ..UsageFigures::default() },
            faults: Faults {
                stop: Some(BreakPoint { after_chunks: 2, how: Break::Cut }),
                line_end: LineEnd::CrLf,
                giant_bytes: Some(10),
                ..Faults::default()
            },
            ..Behaviour::default()
        };
        assert_eq!(behaviour, expected);
        let fault = |behaviour: &Behaviour| behaviour.task.query_fault;
        behaviour.set_pair("task-query-fault=status=404").expect("a setting");
        assert_eq!(fault(&behaviour), Some(SimulatedRefusal::Status(404)));
        behaviour.set_pair("task-query-fault=none").expect("a setting");
        assert_eq!(fault(&behaviour), None, "`none` takes the fault of queries away");
        for pair in ["count-delay-ms=7", "count-percent=40", "count-fault=status=429"] {
            behaviour.set_pair(pair).expect("a setting");
        }
        let (delay, fault) = (Some(Duration::from_millis(7)), Some(SimulatedRefusal::Status(429)));
        assert_eq!(behaviour.count, CountSettings { delay, fault, percent: 40 });
        behaviour.set("fault", "none").expect("a fault");
        assert_eq!(behaviour.faults, Faults::default(), "`none` takes all faults away");
    }

    #[test]
    fn a_bad_setting_says_what_was_expected_and_changes_nothing() {
        let mut behaviour = Behaviour::default();
        for (pair, expected) in [
            ("delay=20", "delay-ms"),
            ("chunks=-1", "0 to 100000"),
            ("fault=crlf,status=200", "400 to 599"),
            ("fault=cut-after", "number of chunks"),
            ("image-bytes=67108865", "0 to 67108864"),
            ("usage-dialect=both", "counted or output"),
            ("usage=12", "prompt="),
            ("task-pending-ms=3600001", "0 to 3600000"),
            ("task-end=lost", "cancelled or moderated"),
            ("task-query-fault=status=200", "400 to 599"),
            ("task-query-fault=leak", "hang, reset or garbage"),
            ("count-fault=leak", "hang, reset or garbage"),
            ("count-delay-ms=-1", "0 to 3600000"),
            ("count-percent=1001", "0 to 1000"),
            ("blind", "on or off"),
        ] {
            let error = behaviour.set_pair(pair).expect_err(pair).to_string();
            assert!(error.contains(expected), "{pair}: {expected:?} is not in {error:?}");
        }
        assert_eq!(behaviour, Behaviour::default(), "a refused setting must not be half applied");
    }
}
