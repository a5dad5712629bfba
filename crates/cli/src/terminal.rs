//! Terminal output of commands: text from files, upstreams, the ledger or the admin API cannot send
//! control sequences to the terminal.
//!
//! Every command prints through this module; `tests/operations/tidy.rs` enforces it. Line breaks and
//! tabs pass here, since tables and documents contain them: foreign text that belongs on one line is
//! escaped with [`one_line`] where it is inserted.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Stderr, StdoutLock, Write};

use tollgate_config::Diagnostic;
use tollgate_types::printable::{self, escaped_but};

/// Largest number of characters of one text in a table or a report. Ids, hashes and amounts are shorter.
pub(super) const TEXT_CHARS_MAX: usize = 200;
/// Largest number of configuration errors printed.
const DIAGNOSTICS_MAX: usize = 100;
/// Length of the longest UTF-8 character, in bytes.
const CHARACTER_BYTES_MAX: usize = 4;

/// Standard output for people.
pub(super) type CommandOutput = Printable<StdoutLock<'static>>;

/// Writer that escapes control characters as `\u001b`, so that JSON stays equal.
#[derive(Debug)]
pub(super) struct Printable<W: Write> {
    inner: W,
    /// True to pass everything unchanged.
    is_raw: bool,
    /// Incomplete character at the end of the last write.
    begun: Vec<u8>,
}

/// Standard output, escaped.
pub(super) fn out() -> CommandOutput {
    Printable { inner: io::stdout().lock(), is_raw: false, begun: Vec::new() }
}

/// Standard output for data that other programs read byte by byte, such as CSV. Escaped on a terminal
/// only.
pub(super) fn data() -> CommandOutput {
    // A CSV field may contain any character, and a program wants it unchanged.
    let is_raw = !io::stdout().is_terminal();
    Printable { inner: io::stdout().lock(), is_raw, begun: Vec::new() }
}

/// Standard error, escaped.
pub(super) fn err() -> Printable<Stderr> {
    Printable { inner: io::stderr(), is_raw: false, begun: Vec::new() }
}

/// Print a line on standard output, ignoring a closed pipe.
macro_rules! outln {
    ($($text:tt)*) => {
        drop(std::io::Write::write_fmt(
            &mut $crate::terminal::out(),
            format_args!("{}\n", format_args!($($text)*)),
        ))
    };
}

/// Print a line on standard error.
macro_rules! errln {
    ($($text:tt)*) => {
        drop(std::io::Write::write_fmt(
            &mut $crate::terminal::err(),
            format_args!("{}\n", format_args!($($text)*)),
        ))
    };
}

pub(super) use {errln, outln};

/// Foreign text as part of a line: escaped and truncated.
pub(super) fn one_line(text: &str) -> Cow<'_, str> {
    printable::one_line(text, TEXT_CHARS_MAX)
}

/// Print configuration errors on standard error, in colour on a terminal: the first ones, and the number
/// of the others.
pub(super) fn diagnostics(found: &[Diagnostic]) {
    let in_colour = io::stderr().is_terminal();
    let mut err = io::stderr();
    for diagnostic in found.iter().take(DIAGNOSTICS_MAX) {
        // What is rendered is printable but for the colours.
        let text = if in_colour { diagnostic.render_in_colour() } else { diagnostic.render() };
        drop(writeln!(err, "{text}\n"));
    }
    if let Some(more) = found.len().checked_sub(DIAGNOSTICS_MAX).filter(|more| *more > 0) {
        errln!("and {more} more; mend these first, or print all as JSON\n");
    }
}

impl<W: Write> Printable<W> {
    /// Write the complete characters of `bytes`, and keep an incomplete one at the end.
    fn write_printable(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            let text = escaped_but(chunk.valid(), |c| matches!(c, '\n' | '\t'));
            self.inner.write_all(text.as_bytes())?;
            let invalid = chunk.invalid();
            let is_last = chunks.peek().is_none();
            // The pieces of a streamed response end anywhere, also within a character.
            if is_last && is_beginning(invalid) {
                self.begun = invalid.to_vec();
            } else if !invalid.is_empty() {
                self.inner.write_all("\u{fffd}".as_bytes())?;
            }
        }
        Ok(())
    }
}

/// True if invalid UTF-8 may become a character with the bytes that follow.
fn is_beginning(bytes: &[u8]) -> bool {
    !bytes.is_empty()
        && bytes.len() < CHARACTER_BYTES_MAX
        && std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

impl<W: Write> Write for Printable<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_raw {
            return self.inner.write(bytes);
        }
        if self.begun.is_empty() {
            self.write_printable(bytes)?;
        } else {
            let mut whole = std::mem::take(&mut self.begun);
            whole.extend_from_slice(bytes);
            self.write_printable(&whole)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<W: Write> Drop for Printable<W> {
    fn drop(&mut self) {
        if !self.begun.is_empty() {
            // What was begun is never completed now.
            drop(self.inner.write_all("\u{fffd}".as_bytes()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(pieces: &[&[u8]]) -> String {
        let mut bytes = Vec::new();
        let mut out = Printable { inner: &mut bytes, is_raw: false, begun: Vec::new() };
        pieces.iter().for_each(|piece| out.write_all(piece).expect("written"));
        drop(out);
        String::from_utf8(bytes).expect("text")
    }

    #[test]
    fn nothing_that_is_printed_steers_the_terminal() {
        let text = "name \u{1b}]0;owned\u{7}\tünï🦀\n\u{9b}2J\u{202e}\u{2066}\r\u{7f}";
        let expected = "name \\u001b]0;owned\\u0007\tünï🦀\n\\u009b2J\\u202e\\u2066\\u000d\\u007f";
        assert_eq!(printed(&[text.as_bytes()]), expected);
        // However it is cut into pieces.
        for at in 0..=text.len() {
            let (one, other) = text.as_bytes().split_at(at);
            assert_eq!(printed(&[one, other]), expected, "cut at {at}");
        }
        let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(printed(&bytes), expected);
        assert_eq!(printed(&[b"a\xffb\xc3"]), "a\u{fffd}b\u{fffd}");
        assert_eq!(printed(&[b"\xc3", b"\x28"]), "\u{fffd}(");
    }

    #[test]
    fn json_is_the_same_json() {
        let document = serde_json::json!({"a\u{7f}\u{9b}\\": ["\u{1b}[8m\"\\\u{2028}", "\n", 5]});
        let text = serde_json::to_string_pretty(&document).expect("JSON");
        let read: serde_json::Value =
            serde_json::from_str(&printed(&[text.as_bytes()])).expect("JSON");
        assert_eq!(read, document);
    }

    #[test]
    fn a_text_of_others_is_no_line_of_its_own_and_no_page() {
        assert_eq!(one_line("a\nerror: b"), "a\\u000aerror: b");
        let long = one_line(&"x".repeat(30_000_000)).into_owned();
        assert!(long.ends_with("… (29999800 more characters)"), "{}", long.len());
        assert!(long.len() < 300, "{}", long.len());
    }
}
