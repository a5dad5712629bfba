//! A strict reader for `multipart/form-data` that keeps up with a body as it arrives: one pass,
//! byte ranges, nothing rebuilt.
//!
//! Source: RFC 7578, and RFC 2046, section 5.1. It refuses what form parsers disagree on, because a
//! disagreement between the gateway and an upstream is a way past billing: bare CR or LF as a line's
//! end, spaces behind a boundary, headers that fold, repeat or encode, names with escapes, nested
//! multiparts, and anything but UTF-8.
//!
//! A preamble before the first boundary and an epilogue behind the last one are ignored, as RFC 2046
//! says. Some upstreams refuse them, so neither is sent on: [`DiscardedBytes`]. One that has the boundary in
//! it is refused, since a lenient parser could find a part there. Headers of parts beside those that are
//! read, and parameters such as `filename*`, mean something to some parsers: where there are any, the
//! part's header lines are written anew.

use std::fmt;
use std::ops::Range;

use memchr::memmem::{self, Finder};

use super::splice::Splice;

mod error;
mod head;

pub use error::FormError;
use head::{Parameter, PartHead, is_extended, split_parameters};

/// The most parts of a form. Real ones have up to 16 images, a mask and some 12 fields.
pub const PARTS_MAX: usize = 128;
/// The longest headers of a part, in bytes. Real ones have 200; a file name can have a thousand.
pub const HEAD_BYTES_MAX: usize = 8 * 1024;
/// The most headers of a part. Real ones have up to five.
pub const HEADER_LINES_MAX: usize = 16;
const LINE_END: &[u8] = b"\r\n";
/// The longest boundary, in bytes (RFC 2046, section 5.1.1).
const BOUNDARY_BYTES_MAX: usize = 70;

/// The delimiter between the parts of a form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boundary {
    /// With the two dashes that begin each delimiter.
    delimiter: String,
}

impl Boundary {
    /// The boundary that a request's `Content-Type` names.
    ///
    /// # Errors
    /// A media type other than `multipart/form-data`, a charset other than UTF-8, and a boundary
    /// that is missing, repeated or not as RFC 2046 has it.
    pub fn from_content_type(content_type: &[u8]) -> Result<Self, FormError> {
        let (media_type, parameters) = split_parameters(content_type.trim_ascii());
        if !media_type.eq_ignore_ascii_case(b"multipart/form-data") {
            return Err(FormError::NotForm);
        }
        let (mut boundary, mut charset) = (None, None);
        for parameter in parameters {
            let Ok(Parameter { name, value }) = parameter else {
                return Err(FormError::ContentType);
            };
            let before = if name.eq_ignore_ascii_case(b"boundary") {
                boundary.replace(value)
            } else if name.eq_ignore_ascii_case(b"charset") {
                charset.replace(value)
            } else if is_extended(name, b"boundary") || is_extended(name, b"charset") {
                return Err(FormError::ContentType);
            } else {
                None
            };
            if before.is_some() {
                return Err(FormError::ContentType);
            }
        }
        // Some upstreams decode names and fields with it.
        if charset.is_some_and(|charset| !charset.eq_ignore_ascii_case(b"utf-8")) {
            return Err(FormError::Charset);
        }
        let boundary = boundary.ok_or(FormError::BoundaryMissing)?;
        let fits = (1..=BOUNDARY_BYTES_MAX).contains(&boundary.len())
            && boundary.iter().copied().all(is_boundary_byte)
            && !boundary.ends_with(b" ");
        let text = std::str::from_utf8(boundary).ok().filter(|_| fits);
        text.map(|text| Self { delimiter: format!("--{text}") }).ok_or(FormError::Boundary)
    }
}

/// `bchars` of RFC 2046, section 5.1.1.
fn is_boundary_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(&byte)
}

/// Reads a form while it arrives. Each byte is looked at about once, however the form is cut.
pub struct FormScan {
    delimiter: String,
    finder: Finder<'static>,
    parse_state: ParseState,
    /// Everything before this offset needs no second look.
    searched: usize,
    /// Position of the first delimiter.
    first: usize,
    /// The last one has no end yet while the stage is [`ParseState::Content`].
    parts: Vec<Part>,
}

/// State of the parser. An error leaves it unchanged, so that it is found again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParseState {
    /// The preamble, up to the first delimiter.
    Start,
    /// After the delimiter at this offset.
    Delimiter(usize),
    /// The headers of the part whose delimiter stands at this offset.
    Head(usize),
    /// The content of a part.
    Content,
    /// The epilogue behind the closing delimiter, which ends at this offset.
    End(usize),
}

impl FormScan {
    /// A scan of a form with this boundary.
    #[must_use]
    pub fn new(boundary: Boundary) -> Self {
        let delimiter = boundary.delimiter;
        let finder = Finder::new(&delimiter).into_owned();
        Self {
            delimiter,
            finder,
            parse_state: ParseState::Start,
            searched: 0,
            first: 0,
            parts: Vec::new(),
        }
    }

    /// Continues with `whole`, all of the body that has arrived.
    ///
    /// # Errors
    /// The first thing that is wrong. The scan is then over.
    pub fn feed(&mut self, whole: &[u8]) -> Result<(), FormError> {
        while self.step(whole)? {}
        Ok(())
    }

    /// Finishes the form, whose body is `whole`.
    ///
    /// # Errors
    /// The first thing that is wrong, or that the closing delimiter did not come.
    pub fn finish(mut self, whole: &[u8]) -> Result<Form, FormError> {
        self.feed(whole)?;
        let end = match self.parse_state {
            ParseState::End(end) => end,
            ParseState::Start if self.searched > 0 => return Err(FormError::BoundaryAbsent),
            _ => return Err(FormError::Unfinished),
        };
        if whole.get(end..) == Some(b"\r") {
            return Err(FormError::Epilogue);
        }
        // A line end on either side belongs to the boundary's line, and every parser takes it.
        let preamble = if self.first > LINE_END.len() { 0..self.first } else { 0..0 };
        let epilogue = whole.len().min(end + LINE_END.len())..whole.len();
        let heads = self.parts.iter().filter_map(|part| part.rewritten.clone()).collect();
        Ok(Form {
            parts: self.parts,
            delimiter: self.delimiter,
            first: self.first,
            discarded: DiscardedBytes { around: [preamble, epilogue], heads },
        })
    }

    /// Reads one piece. False when more of the body must come first.
    fn step(&mut self, whole: &[u8]) -> Result<bool, FormError> {
        match self.parse_state {
            ParseState::Start => self.start(whole),
            ParseState::Delimiter(begin) => self.delimiter(whole, begin),
            ParseState::Head(begin) => self.head(whole, begin),
            ParseState::Content => self.content(whole),
            ParseState::End(end) => self.epilogue(whole, end),
        }
    }

    fn start(&mut self, whole: &[u8]) -> Result<bool, FormError> {
        let Some(begin) = self.find_delimiter(whole) else { return Ok(false) };
        let preamble = whole.get(..begin).unwrap_or_default();
        if !preamble.is_empty() && !preamble.ends_with(LINE_END) {
            return Err(FormError::Preamble);
        }
        self.first = begin;
        self.parse_state = ParseState::Delimiter(begin);
        Ok(true)
    }

    /// The offset of the next delimiter, wherever in a line it stands. Without one, notes how far it
    /// has been looked for.
    fn find_delimiter(&mut self, whole: &[u8]) -> Option<usize> {
        let found = whole.get(self.searched..).and_then(|rest| self.finder.find(rest));
        if let Some(found) = found {
            return Some(self.searched + found);
        }
        // A delimiter can have come in part.
        let cut = (whole.len() + 1).saturating_sub(self.delimiter.len());
        self.searched = self.searched.max(cut);
        None
    }

    fn epilogue(&mut self, whole: &[u8], end: usize) -> Result<bool, FormError> {
        let behind = whole.get(end..).unwrap_or_default();
        let is_begun = LINE_END.starts_with(behind);
        if !is_begun && !behind.starts_with(LINE_END) || self.find_delimiter(whole).is_some() {
            return Err(FormError::Epilogue);
        }
        Ok(false)
    }

    fn delimiter(&mut self, whole: &[u8], begin: usize) -> Result<bool, FormError> {
        let end = begin + self.delimiter.len();
        match whole.get(end..).unwrap_or_default() {
            [] | b"\r" | b"-" => return Ok(false),
            [b'\r', b'\n', ..] if self.parts.len() == PARTS_MAX => {
                return Err(FormError::TooManyParts);
            }
            [b'\r', b'\n', ..] => {
                self.parse_state = ParseState::Head(begin);
                self.searched = end;
            }
            [b'-', b'-', ..] => {
                self.parse_state = ParseState::End(end + 2);
                self.searched = end + 2;
            }
            _ => return Err(FormError::BoundaryLine),
        }
        Ok(true)
    }

    fn head(&mut self, whole: &[u8], begin: usize) -> Result<bool, FormError> {
        const END: &[u8] = b"\r\n\r\n";
        let start = begin + self.delimiter.len() + 2;
        let furthest = start + HEAD_BYTES_MAX + END.len();
        let there = whole.get(self.searched..whole.len().min(furthest)).unwrap_or_default();
        let Some(found) = memmem::find(there, END) else {
            if whole.len() >= furthest {
                return Err(FormError::HeadTooLong);
            }
            // The blank line can have come in part. Without headers it ends the delimiter's line.
            self.searched = (whole.len() + 1).saturating_sub(END.len()).max(start - 2);
            return Ok(false);
        };
        let end = self.searched + found;
        let block = whole.get(start..end).unwrap_or_default();
        let head = PartHead::read(block, start, self.delimiter.as_bytes())?;
        self.searched = end + END.len();
        self.parts.push(Part {
            name: head.name,
            filename: head.filename,
            content_type: head.content_type,
            content: self.searched..self.searched,
            whole: begin..begin,
            length: head.length,
            rewritten: head.rewritten.map(|lines| (start..end, lines)),
        });
        self.parse_state = ParseState::Content;
        Ok(true)
    }

    fn content(&mut self, whole: &[u8]) -> Result<bool, FormError> {
        let Some(part) = self.parts.last_mut() else { return Ok(false) };
        while let Some(found) = whole.get(self.searched..).and_then(|rest| self.finder.find(rest)) {
            let begin = self.searched + found;
            match whole.get(part.content.start..begin).unwrap_or_default() {
                [] => return Err(FormError::BlankLine),
                [.., b'\r', b'\n'] => {
                    part.end_before(begin)?;
                    self.parse_state = ParseState::Delimiter(begin);
                    return Ok(true);
                }
                [.., b'\r' | b'\n'] => return Err(FormError::LineEnd),
                // In the middle of a line it is content. No line can begin inside a delimiter.
                _ => self.searched = begin + self.delimiter.len(),
            }
        }
        // A delimiter can have come in part.
        let cut = (whole.len() + 1).saturating_sub(self.delimiter.len());
        self.searched = self.searched.max(cut);
        Ok(false)
    }
}

impl fmt::Debug for FormScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FormScan")
            .field("stage", &self.parse_state)
            .field("parts", &self.parts)
            .finish()
    }
}

/// One part of a form, by its position in the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Name of the part as written.
    pub name: String,
    /// Its file name, if it is a file.
    pub filename: Option<String>,
    /// Its content type, if it has one.
    pub content_type: Option<String>,
    /// Position of its content.
    pub content: Range<usize>,
    /// Bytes to cut out so that the rest is a form without this part: its delimiter and everything up to the
    /// next one.
    pub whole: Range<usize>,
    /// The part's `Content-Length` and its position: aiohttp's reader uses it.
    length: Option<(usize, Range<usize>)>,
    /// Position of its header lines, and their replacement for upstreams, if it differs.
    rewritten: Option<(Range<usize>, String)>,
}

impl Part {
    /// The next delimiter stands at `begin`, behind its CRLF.
    fn end_before(&mut self, begin: usize) -> Result<(), FormError> {
        self.content.end = begin.saturating_sub(2);
        self.whole.end = begin;
        match &self.length {
            Some((length, _)) if *length != self.content.len() => {
                Err(FormError::ContentLength(self.name.clone()))
            }
            _ => Ok(()),
        }
    }

    /// Its content in `body`, as text.
    ///
    /// # Errors
    /// When it is a file, or not UTF-8, or states another charset, or has a NUL.
    pub fn text<'a>(&self, body: &'a [u8]) -> Result<&'a str, FormError> {
        if self.filename.is_some() {
            return Err(FormError::FieldIsFile(self.name.clone()));
        }
        let content = body.get(self.content.clone()).unwrap_or_default();
        let content_type = self.content_type.as_deref().unwrap_or_default();
        let is_text = |text: &&str| !text.contains('\0') && head::is_in_charset(text, content_type);
        let text = std::str::from_utf8(content).ok().filter(is_text);
        text.ok_or_else(|| FormError::NotText(self.name.clone()))
    }

    /// Overwrites its content with `text`, and the length that its headers may state. The text is
    /// the gateway's own: one line that does not begin with `--`, so no delimiter comes about.
    pub fn overwrite(&self, text: &str, splice: &mut Splice) {
        if let Some((_, digits)) = &self.length {
            splice.replace(digits.clone(), text.len().to_string());
        }
        splice.replace(self.content.clone(), text.to_owned());
    }
}

/// A form that was read and found acceptable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    /// Its parts, in the order of the body. There may be none.
    pub parts: Vec<Part>,
    delimiter: String,
    first: usize,
    /// Preamble, epilogue and unneeded headers.
    pub(super) discarded: DiscardedBytes,
}

/// Bytes of a form that do not go upstream, by position in the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DiscardedBytes {
    /// The preamble and the epilogue; each can be empty.
    around: [Range<usize>; 2],
    /// Header lines of parts that say more than a name, a file name and a type, with those that go in
    /// their place.
    heads: Vec<(Range<usize>, String)>,
}

impl DiscardedBytes {
    /// Cuts it out of what goes upstream. Contents of parts stay as they are.
    pub(super) fn cut(&self, splice: &mut Splice) {
        for range in self.around.iter().filter(|range| !range.is_empty()) {
            splice.replace(range.clone(), "");
        }
        for (range, lines) in &self.heads {
            splice.replace(range.clone(), lines.clone());
        }
    }
}

impl Form {
    /// The part called `name`, which the form must not have twice.
    ///
    /// # Errors
    /// When the form has it twice: some upstreams take the first, others the last.
    pub fn field(&self, name: &str) -> Result<Option<&Part>, FormError> {
        let mut found = self.parts.iter().filter(|part| part.name == name);
        match (found.next(), found.next()) {
            (_, Some(_)) => Err(FormError::FieldTwice(name.to_owned())),
            (part, None) => Ok(part),
        }
    }

    /// The text of the field `name` in `body`, from which the form was read.
    ///
    /// # Errors
    /// When the form has it twice, or it is no text: see [`Part::text`].
    pub fn text<'a>(&self, body: &'a [u8], name: &str) -> Result<Option<&'a str>, FormError> {
        self.field(name)?.map(|part| part.text(body)).transpose()
    }

    /// All parts with one of `names`, with or without a file name, in the order of the body.
    pub fn files(&self, names: &[&str]) -> impl Iterator<Item = &Part> {
        self.parts.iter().filter(|part| names.contains(&part.name.as_str()))
    }

    /// A name that equals one of `names` but for upper and lower case or the space around it: some
    /// parsers would take it.
    #[must_use]
    pub fn case_variant_of(&self, names: &[&str]) -> Option<&str> {
        let is_variant = |written: &str| {
            let same = |name: &str| name.eq_ignore_ascii_case(written.trim());
            names.iter().any(|name| *name != written && same(name))
        };
        self.parts.iter().map(|part| part.name.as_str()).find(|name| is_variant(name))
    }

    /// Position at which a further part can be inserted: before the first, or before the closing delimiter of
    /// a form without parts.
    #[must_use]
    pub fn insertion_point(&self) -> usize {
        self.first
    }

    /// A part to insert there. Both texts are the gateway's own: a token for the name, and one line
    /// that does not begin with `--` for the value, so no delimiter comes about.
    #[must_use]
    pub fn part_text(&self, name: &str, value: &str) -> String {
        let delimiter = &self.delimiter;
        format!("{delimiter}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    }
}

#[cfg(test)]
mod tests;
