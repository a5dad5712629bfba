//! The pages and the text of a PDF at most, as far as nothing in the file can hide more of them.
//!
//! A page is an object that an array `Kids` of the tree of pages refers to. Such arrays stand in the file itself, or
//! in streams that are compressed: all streams that can hold any are inflated, up to a limit. What could
//! spell them otherwise has no bound: encryption, unknown filters, escapes in names, an array
//! that is elsewhere, and a node that two others refer to, which doubles what is below it.

use std::collections::HashSet;

use flate2::{Decompress, FlushDecompress, Status};

/// Bytes that all streams of a file may have together, inflated. Pictures and fonts are not inflated.
const INFLATED_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Bytes of an object's dictionary at most: those of forms name their fonts, and no data.
const DICTIONARY_BYTES_MAX: usize = 64 * 1024;
/// Bytes that objects may have together where they overlap.
const PASSED_BYTES_MAX: usize = 4 * PdfBound::FILE_BYTES_MAX;
/// The longest name that is looked at for escapes: those that matter are shorter, each letter escaped.
const NAME_BYTES_MAX: usize = 64;

/// Names that lead to pages, or change how a stream is read.
const WATCHED_NAMES: [&[u8]; 8] =
    [b"Kids", b"Type", b"Page", b"Pages", b"ObjStm", b"Filter", b"Encrypt", b"FlateDecode"];

/// Maximum number of pages of a PDF, and of bytes that draw them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PdfBound {
    pub(crate) pages: u64,
    /// Bytes of what draws the pages, inflated: each letter of a page is one of them at least.
    pub(crate) content_bytes: u64,
}

impl PdfBound {
    /// Maximum number of examined bytes of a file.
    pub(crate) const FILE_BYTES_MAX: usize = 16 * 1024 * 1024;

    /// `None` for a file whose pages cannot be counted.
    pub(crate) fn read(file: &[u8]) -> Option<Self> {
        (file.starts_with(b"%PDF") && file.len() <= Self::FILE_BYTES_MAX).then_some(())?;
        let mut reader = PdfReader::default();
        reader.file(file)?;
        let pages = reader.kids.len() as u64;
        let pages = pages.max(reader.typed_pages);
        (pages > 0).then_some(Self { pages, content_bytes: reader.content_bytes })
    }
}

/// Pages and sizes found in a file so far.
#[derive(Default)]
struct PdfReader {
    /// Objects that an array `Kids` refers to: pages, and nodes of trees.
    kids: HashSet<(u32, u32)>,
    typed_pages: u64,
    content_bytes: u64,
    inflated_bytes: usize,
    /// Number of bytes visited by objects that may overlap.
    passed_bytes: usize,
}

/// The contents of a stream, by its dictionary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PdfStream {
    /// Bytes as they are.
    Plain,
    /// A picture or a font.
    Binary,
    /// Objects, or the table of them, compressed.
    Objects,
    /// Operators that draw a page, compressed.
    Content,
}

impl PdfReader {
    fn file(&mut self, file: &[u8]) -> Option<()> {
        self.objects(file)?;
        for at in memchr::memmem::find_iter(file, b"obj") {
            let (before, behind) = file.split_at_checked(at)?;
            // Readers go to an object by its offset, so each place that looks like one is read by itself.
            let is_object = before.trim_ascii_end().last().is_some_and(u8::is_ascii_digit)
                && before.last().is_some_and(u8::is_ascii_whitespace);
            if !is_object {
                continue;
            }
            let behind = behind.get(b"obj".len()..)?.trim_ascii_start();
            if !behind.starts_with(b"<<") {
                continue;
            }
            let (dictionary, behind) = behind.split_at_checked(dictionary_bytes(behind)?)?;
            self.pass(dictionary.len())?;
            if let Some(data) = behind.trim_ascii_start().strip_prefix(b"stream") {
                self.stream(dictionary, data)?;
            }
        }
        Some(())
    }

    /// Notes that so many bytes were read, which nothing makes more than a few times the file.
    fn pass(&mut self, bytes: usize) -> Option<()> {
        self.passed_bytes = self.passed_bytes.saturating_add(bytes);
        (self.passed_bytes <= PASSED_BYTES_MAX).then_some(())
    }

    fn stream(&mut self, dictionary: &[u8], data: &[u8]) -> Option<()> {
        match stream_of(dictionary)? {
            PdfStream::Binary => {}
            PdfStream::Plain => {
                let end = memchr::memmem::find(data, b"endstream").unwrap_or(data.len());
                self.pass(end)?;
                self.content_bytes = self.content_bytes.saturating_add(end as u64);
            }
            PdfStream::Objects => {
                let objects = self.inflated(data)?;
                self.objects(&objects)?;
            }
            PdfStream::Content => {
                let content = self.inflated(data)?;
                self.objects(&content)?;
                self.content_bytes = self.content_bytes.saturating_add(content.len() as u64);
            }
        }
        Some(())
    }

    /// Counts the pages in a part of the file or an inflated stream.
    fn objects(&mut self, text: &[u8]) -> Option<()> {
        for at in memchr::memchr_iter(b'/', text) {
            let Some(rest) = text.get(at..at.saturating_add(NAME_BYTES_MAX).min(text.len())) else {
                continue;
            };
            match name_at(rest)? {
                b"Kids" => self.kids(text.get(at + b"/Kids".len()..)?)?,
                b"Type" => {
                    let value = rest.get(b"/Type".len()..)?.trim_ascii_start();
                    self.typed_pages += u64::from(name_at(value) == Some(b"Page"));
                }
                b"Encrypt" => return None,
                name if is_watched(name) => return None,
                _ => {}
            }
        }
        Some(())
    }

    /// Reads the references of an array: `[1 0 R 2 0 R]`.
    fn kids(&mut self, text: &[u8]) -> Option<()> {
        let array = text.trim_ascii_start().strip_prefix(b"[")?;
        let array = array.get(..memchr::memchr(b']', array)?)?;
        let words = array.split(|byte| byte.is_ascii_whitespace() || *byte == 0);
        let mut words = words.filter(|word| !word.is_empty());
        while let Some(number) = words.next() {
            let reference = (decimal(number)?, decimal(words.next()?)?);
            (words.next()? == b"R" && self.kids.insert(reference)).then_some(())?;
        }
        Some(())
    }

    /// A stream without its compression. Behind the keyword is the end of a line.
    fn inflated(&mut self, data: &[u8]) -> Option<Vec<u8>> {
        let data = data.strip_prefix(b"\r").unwrap_or(data);
        let data = data.strip_prefix(b"\n").unwrap_or(data);
        let room = INFLATED_BYTES_MAX.checked_sub(self.inflated_bytes)?;
        let mut inflate = Decompress::new(true);
        let mut text = Vec::with_capacity(data.len().saturating_mul(4).min(room).max(1024));
        loop {
            let read = usize::try_from(inflate.total_in()).ok()?;
            let before = inflate.total_out();
            let status =
                inflate.decompress_vec(data.get(read..)?, &mut text, FlushDecompress::Finish);
            match status.ok()? {
                Status::StreamEnd => break,
                _ if text.len() == text.capacity() && text.len() < room => {
                    text.reserve(text.len().min(room - text.len()).max(1));
                }
                // It is longer than the limit, or cut.
                _ if inflate.total_out() == before || text.len() >= room => return None,
                _ => {}
            }
        }
        self.inflated_bytes = self.inflated_bytes.saturating_add(text.len());
        (self.inflated_bytes <= INFLATED_BYTES_MAX).then_some(text)
    }
}

/// The bytes of the dictionary at the beginning of a text; `None` where it does not end soon.
fn dictionary_bytes(text: &[u8]) -> Option<usize> {
    let text = text.get(..text.len().min(DICTIONARY_BYTES_MAX))?;
    let (mut depth, mut at) = (0_usize, 0);
    loop {
        match (*text.get(at)?, text.get(at + 1)) {
            (b'<', Some(b'<')) => {
                depth += 1;
                at += 2;
            }
            (b'>', Some(b'>')) => {
                depth = depth.checked_sub(1)?;
                at += 2;
                if depth == 0 {
                    return Some(at);
                }
            }
            (b'<', _) => at += memchr::memchr(b'>', text.get(at..)?)? + 1,
            (b'%', _) => at += memchr::memchr2(b'\r', b'\n', text.get(at..)?)?,
            (b'(', _) => at += string_bytes(text.get(at..)?)?,
            _ => at += 1,
        }
    }
}

/// The bytes of the string at the beginning of a text, whose parentheses may be nested.
fn string_bytes(text: &[u8]) -> Option<usize> {
    let (mut depth, mut at) = (0_usize, 0);
    loop {
        match *text.get(at)? {
            b'\\' => at += 1,
            b'(' => depth += 1,
            b')' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            return Some(at);
        }
    }
}

/// The contents of a stream; `None` where its dictionary leaves them open.
fn stream_of(dictionary: &[u8]) -> Option<PdfStream> {
    let mut filters = values(dictionary, b"Filter");
    let Some(filter) = filters.next() else { return Some(PdfStream::Plain) };
    // Of two entries for it nobody knows which one counts, and a second filter changes what the first gives.
    filters.next().is_none().then_some(())?;
    let list = filter.strip_prefix(b"[").map(<[u8]>::trim_ascii_start);
    let name = name_at(list.unwrap_or(filter))?;
    let behind = list.unwrap_or(filter).get(name.len() + 1..)?.trim_ascii_start();
    (list.is_none() || behind.starts_with(b"]")).then_some(())?;
    let is_of = |key: &[u8], kinds: &[&[u8]]| {
        values(dictionary, key)
            .any(|value| name_at(value).is_some_and(|name| kinds.contains(&name)))
    };
    let is_picture = is_of(b"Subtype", &[b"Image"]);
    let is_table = is_of(b"Type", &[b"XRef"]);
    let is_font = is_of(b"Subtype", &[b"Type1C", b"CIDFontType0C", b"OpenType"])
        || values(dictionary, b"Length1").next().is_some();
    match name {
        b"DCTDecode" | b"JPXDecode" | b"CCITTFaxDecode" | b"JBIG2Decode" => Some(PdfStream::Binary),
        b"FlateDecode" | b"Fl" if is_of(b"Type", &[b"ObjStm"]) => {
            // What a predictor has changed cannot be searched.
            values(dictionary, b"Predictor").next().is_none().then_some(PdfStream::Objects)
        }
        b"FlateDecode" | b"Fl" if is_picture || is_table || is_font => Some(PdfStream::Binary),
        b"FlateDecode" | b"Fl" => {
            values(dictionary, b"Predictor").next().is_none().then_some(PdfStream::Content)
        }
        _ => None,
    }
}

/// The text behind each entry of this name in a dictionary, at whatever depth.
fn values<'a>(dictionary: &'a [u8], name: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    memchr::memchr_iter(b'/', dictionary).filter_map(move |at| {
        let found = dictionary.get(at..).filter(|text| name_at(text) == Some(name))?;
        found.get(name.len() + 1..).map(<[u8]>::trim_ascii_start)
    })
}

/// The name at the beginning of a text, without its slash.
fn name_at(text: &[u8]) -> Option<&[u8]> {
    let name = text.strip_prefix(b"/")?;
    let ends = |byte: &u8| byte.is_ascii_whitespace() || b"/[]<>(){}%\0".contains(byte);
    name.get(..name.iter().position(ends).unwrap_or(name.len()))
}

/// True for a watched name that is spelled with escapes: `Ki#64s`.
fn is_watched(name: &[u8]) -> bool {
    if memchr::memchr(b'#', name).is_none() {
        return false;
    }
    let mut letters = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&letter, behind)) = rest.split_first() {
        let code = behind.get(..2).filter(|_| letter == b'#');
        let code = code.and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(letter) => {
                letters.push(letter);
                rest = behind.get(2..).unwrap_or_default();
            }
            None => {
                letters.push(letter);
                rest = behind;
            }
        }
    }
    WATCHED_NAMES.contains(&&*letters)
}

fn decimal(word: &[u8]) -> Option<u32> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
