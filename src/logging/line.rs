//! One JSON object on one line, written field by field without a tree in between.

use std::cell::RefCell;
use std::fmt::{self, Write as _};
use std::time::Duration;

use log::Level;

use crate::clock::UnixMs;

/// A line longer than this gives its memory back after it was written, so that one long line does
/// not stay with every thread.
const KEPT_BYTES_MAX: usize = 16 * 1024;

thread_local! {
    static REUSED: RefCell<Line> = const { RefCell::new(Line::new()) };
}

/// The line being written by a thread. Its memory is used again for the next one.
#[derive(Debug)]
pub(super) struct Line {
    json: String,
    /// Whether the next field is the first one of its object.
    first: bool,
    /// The last whole second that was printed, and its text up to the second.
    second: u64,
    second_text: String,
}

impl Line {
    pub(super) const fn new() -> Self {
        Self { json: String::new(), first: true, second: u64::MAX, second_text: String::new() }
    }

    /// Begins a line with its time, level and target, and lets `write` do the rest.
    pub(super) fn with(level: Level, target: &str, write: impl FnOnce(&mut Self)) {
        let begin = |line: &mut Self| {
            line.begin(UnixMs::now(), level, target);
            write(line);
        };
        REUSED.with(|reused| match reused.try_borrow_mut() {
            Ok(mut line) => begin(&mut line),
            // A value that logs while it is being printed.
            Err(_) => begin(&mut Self::new()),
        });
    }

    pub(super) fn begin(&mut self, now: UnixMs, level: Level, target: &str) {
        self.json.clear();
        self.json.shrink_to(KEPT_BYTES_MAX);
        self.json.push('{');
        self.first = true;
        self.name("ts");
        self.timestamp(now);
        self.text(
            "level",
            match level {
                Level::Error => "error",
                Level::Warn => "warn",
                Level::Info => "info",
                Level::Debug => "debug",
                Level::Trace => "trace",
            },
        );
        self.text("target", target);
    }

    /// Ends the line and gives it, with its newline.
    pub(super) fn finish(&mut self) -> &[u8] {
        self.json.push_str("}\n");
        self.json.as_bytes()
    }

    pub(super) fn text(&mut self, name: &str, value: &str) {
        self.name(name);
        self.json.push('"');
        escape(&mut self.json, value);
        self.json.push('"');
    }

    pub(super) fn text_if_some(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.text(name, value);
        }
    }

    pub(super) fn display(&mut self, name: &str, value: impl fmt::Display) {
        self.name(name);
        self.json.push('"');
        let begin = self.json.len();
        if write!(self.json, "{value}").is_err() {
            self.json.truncate(begin);
            self.json.push_str("(could not be printed)");
        }
        let written = self.json.get(begin..).unwrap_or_default();
        if !is_plain(written) {
            let written = written.to_owned();
            self.json.truncate(begin);
            escape(&mut self.json, &written);
        }
        self.json.push('"');
    }

    pub(super) fn number(&mut self, name: &str, value: u64) {
        self.name(name);
        self.json.push_str(itoa::Buffer::new().format(value));
    }

    pub(super) fn truth(&mut self, name: &str, value: bool) {
        self.name(name);
        self.json.push_str(if value { "true" } else { "false" });
    }

    /// Milliseconds with three decimals.
    pub(super) fn milliseconds(&mut self, name: &str, value: Duration) {
        let micros = u64::try_from(value.as_micros()).unwrap_or(u64::MAX);
        self.number(name, micros / 1000);
        self.json.push('.');
        self.three_digits(micros % 1000);
    }

    /// Begins an object as the value of `name`.
    pub(super) fn open(&mut self, name: &str) {
        self.name(name);
        self.json.push('{');
        self.first = true;
    }

    /// Ends what [`Line::open`] began.
    pub(super) fn close(&mut self) {
        self.json.push('}');
        self.first = false;
    }

    /// Begins a field. A name that is not a literal of ours has gone through [`escape`].
    fn name(&mut self, name: &str) {
        // Single characters are cheaper than texts, and there are two dozen names in a line.
        if !std::mem::take(&mut self.first) {
            self.json.push(',');
        }
        self.json.push('"');
        self.json.push_str(name);
        self.json.push('"');
        self.json.push(':');
    }

    /// Like [`UnixMs::to_rfc3339`], but the date is worked out once a second.
    fn timestamp(&mut self, now: UnixMs) {
        if self.second != now.seconds() {
            self.second = now.seconds();
            let whole = UnixMs(self.second.saturating_mul(1000)).to_rfc3339();
            self.second_text.clear();
            self.second_text.push_str(whole.trim_end_matches('Z'));
        }
        self.json.push('"');
        self.json.push_str(&self.second_text);
        self.json.push('.');
        self.three_digits(now.0 % 1000);
        self.json.push_str("Z\"");
    }

    fn three_digits(&mut self, number: u64) {
        for place in [100, 10, 1] {
            let digit = u32::try_from(number / place % 10).unwrap_or(0);
            self.json.push(char::from_digit(digit, 10).unwrap_or('0'));
        }
    }
}

/// Appends `text` as the inside of a JSON string. Beside what JSON asks for, the rest of the control
/// characters is escaped: some terminals obey them.
pub(super) fn escape(json: &mut String, text: &str) {
    if is_plain(text) {
        json.push_str(text);
        return;
    }
    for character in text.chars() {
        match character {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            control if control.is_control() => {
                // The last control character is U+009F.
                let code = u32::from(control);
                json.push_str("\\u00");
                for digit in [code >> 4, code & 0xf] {
                    json.push(char::from_digit(digit, 16).unwrap_or('0'));
                }
            }
            other => json.push(other),
        }
    }
}

/// Whether `text` is the inside of a JSON string as it is.
fn is_plain(text: &str) -> bool {
    let plain = |byte: u8| (0x20..0x7f).contains(&byte) && byte != b'"' && byte != b'\\';
    // Without an early end the compiler looks at many bytes at a time.
    text.bytes().fold(true, |all, byte| all & plain(byte))
}
