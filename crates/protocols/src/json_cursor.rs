//! Reads a few fields of JSON that is relayed whatever it says: one pass, no tree, nothing copied.
//!
//! An upstream's stream is parsed event by event, thousands of times a second. What is skipped is
//! not checked; text that makes no sense where it is looked at ends the reading with `None`.

use super::estimate::TextSize;
use super::json::{
    Object, SkipReader, SkipTable, Value, quote_or_backslash, short_string_end, structure,
};

/// The bytes that stand behind a number, a boolean or a `null`.
static ENDS_SCALAR: [bool; 256] = {
    let mut ends = [false; 256];
    let mut bytes: &[u8] = b",]} \t\n\r";
    while let [byte, rest @ ..] = bytes {
        ends[*byte as usize] = true;
        bytes = rest;
    }
    ends
};

impl<'a> Value<'a> {
    /// The values of the last members with these keys; `None` for those that are not there, and for all of
    /// a value that is no object. It was checked as a part of a document and is not checked again: no key
    /// of that has an escape, as [`super::json::Object::has_escaped_keys`] tells.
    #[must_use]
    pub fn members<const N: usize>(&self, keys: [&str; N]) -> [Option<Value<'a>>; N] {
        let mut found = [None; N];
        let _is_whole = Cursor::new(self.text()).object(|name, cursor| {
            let value = cursor.raw()?;
            if let Some(index) = keys.iter().position(|key| key.as_bytes() == name) {
                found.get_mut(index)?.replace(value);
            }
            Some(())
        });
        found.map(|value| value.map(Self::new))
    }

    /// The first element; `None` for a value that has none. It was checked as a part of a document and is
    /// not checked again.
    #[must_use]
    pub fn first_element(&self) -> Option<Value<'a>> {
        let mut first = None;
        let _is_whole = Cursor::new(self.text()).array(|cursor| {
            first = Some(cursor.raw()?);
            None
        });
        first.map(Self::new)
    }
}

/// A value as it is written, with what is known about where values in it end.
#[derive(Clone, Copy)]
pub(super) struct WrittenValue<'a> {
    /// The text around it, up to its end.
    text: &'a [u8],
    start: usize,
    skips: SkipReader<'a>,
}

impl<'a> WrittenValue<'a> {
    /// The text of the value.
    pub(super) fn text(&self) -> &'a [u8] {
        self.text.get(self.start..).unwrap_or_default()
    }

    /// The value, unless it is `null`.
    pub(super) fn non_null(self) -> Option<Self> {
        (self.text() != b"null").then_some(self)
    }

    /// A cursor before the value.
    pub(super) fn cursor(&self) -> Cursor<'a> {
        Cursor { text: self.text, at: self.start, skips: self.skips }
    }
}

impl<'a> From<&'a [u8]> for WrittenValue<'a> {
    fn from(text: &'a [u8]) -> Self {
        Self { text, start: 0, skips: SkipReader::default() }
    }
}

/// A position in JSON text, before a value.
pub(super) struct Cursor<'a> {
    pub(super) text: &'a [u8],
    pub(super) at: usize,
    /// Ends of long values in the text, if they were noted.
    skips: SkipReader<'a>,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0, skips: SkipReader::default() }
    }

    /// A cursor before a text, the ends of some of whose values are known.
    pub(super) fn with_skips(text: &'a [u8], skips: &'a SkipTable) -> Self {
        Self { text, at: 0, skips: skips.reader(0) }
    }

    /// A cursor before the value of a member of a document, which was checked: it passes over long values in
    /// one step.
    pub(super) fn of_member(document: &'a Object<'_>, value: &Value<'_>) -> Self {
        let (start, end) = (value.range.start, value.range.end);
        let text = document.text().get(..end).unwrap_or_default();
        Self { text, at: start, skips: document.skips(start) }
    }

    /// Reads an object: `member` gets each key as it is written, and must read or skip the value.
    /// Anything but an object is skipped.
    pub(super) fn object(
        &mut self,
        mut member: impl FnMut(&'a [u8], &mut Self) -> Option<()>,
    ) -> Option<()> {
        self.each(b'{', b'}', |cursor| {
            let key = cursor.string()?;
            cursor.space();
            cursor.eat(b':')?;
            member(key, cursor)
        })
    }

    /// Reads an array: `element` must read or skip one value. Anything but an array is skipped.
    pub(super) fn array(&mut self, element: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.each(b'[', b']', element)
    }

    /// The size of a string without its escapes; nothing for a value that is none.
    pub(super) fn text_size(&mut self) -> Option<TextSize> {
        let value = self.raw()?;
        let Some(inner) = value.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\""))
        else {
            return Some(TextSize::default());
        };
        if memchr::memchr(b'\\', inner).is_none() {
            return Some(TextSize::measure(inner));
        }
        // Half of a pair of surrogates cannot be unescaped.
        // Only here a text is copied: escapes are rare in events of a few letters.
        let unescaped: Option<String> = serde_json::from_slice(value).ok();
        Some(TextSize::measure(unescaped.as_deref().map_or(inner, str::as_bytes)))
    }

    /// The first byte of the value.
    pub(super) fn next_byte(&mut self) -> Option<u8> {
        self.space();
        self.peek()
    }

    /// The text from here on.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// The text of the value.
    pub(super) fn raw(&mut self) -> Option<&'a [u8]> {
        self.space();
        let start = self.at;
        self.skip()?;
        self.text.get(start..self.at)
    }

    /// The value, to be read again.
    pub(super) fn written(&mut self) -> Option<WrittenValue<'a>> {
        self.space();
        let (start, skips) = (self.at, self.skips);
        self.skip()?;
        Some(WrittenValue { text: self.text.get(..self.at)?, start, skips })
    }

    /// The text of the value, unless it is `null`.
    pub(super) fn non_null(&mut self) -> Option<Option<&'a [u8]>> {
        let value = self.raw()?;
        Some(Some(value).filter(|value| *value != b"null"))
    }

    /// Leaves the value behind.
    pub(super) fn skip(&mut self) -> Option<()> {
        self.space();
        match self.peek()? {
            b'"' => self.skip_string(),
            b'{' | b'[' => match self.skips.end_of(self.at) {
                Some(end) => {
                    self.at = end;
                    Some(())
                }
                None => self.skip_nested(),
            },
            _ => {
                let rest = self.text.get(self.at..)?;
                let ends = |byte: &u8| ENDS_SCALAR[usize::from(*byte)];
                let length = rest.iter().position(ends).unwrap_or(rest.len());
                self.at += length;
                (length > 0).then_some(())
            }
        }
    }

    #[inline(always)]
    fn skip_string(&mut self) -> Option<()> {
        let end = short_string_end(self.text, self.at + 1).map(|end| end + 1);
        if let Some(end) = end.or_else(|| self.skips.end_of(self.at)) {
            self.at = end;
            return Some(());
        }
        self.string().map(|_| ())
    }

    fn skip_nested(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.peek()? {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                _ => {
                    self.at = structure(self.text, self.at + 1);
                    continue;
                }
            }
            self.at += 1;
            if depth == 0 {
                return Some(());
            }
        }
    }

    fn each(
        &mut self,
        open: u8,
        close: u8,
        mut one: impl FnMut(&mut Self) -> Option<()>,
    ) -> Option<()> {
        self.space();
        if self.peek() != Some(open) {
            return self.skip();
        }
        self.at += 1;
        self.space();
        if self.eat(close).is_some() {
            return Some(());
        }
        loop {
            self.space();
            one(self)?;
            self.space();
            if self.eat(b',').is_none() {
                return self.eat(close);
            }
        }
    }

    /// The text between the quotes.
    #[inline(always)]
    fn string(&mut self) -> Option<&'a [u8]> {
        self.eat(b'"')?;
        let start = self.at;
        let end = match short_string_end(self.text, start) {
            Some(end) => end,
            None => self.long_string_end(start)?,
        };
        self.at = end + 1;
        self.text.get(start..end)
    }

    /// The position of the quote that ends the string.
    fn long_string_end(&self, start: usize) -> Option<usize> {
        let mut end = quote_or_backslash(self.text, start);
        while *self.text.get(end)? == b'\\' {
            end = quote_or_backslash(self.text, end + 2);
        }
        Some(end)
    }

    pub(super) fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    pub(super) fn eat(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::super::json::{self, Object};
    use super::*;

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::vec(("[a-z\"\\\\]{0,4}", inner), 0..6)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    fn rebuilt(cursor: &mut Cursor<'_>) -> Option<Value> {
        cursor.space();
        match cursor.peek()? {
            b'{' => {
                let mut members = serde_json::Map::new();
                cursor.object(|key, cursor| {
                    let quoted = [b"\"", key, b"\""].concat();
                    let key = serde_json::from_slice(&quoted).ok()?;
                    members.insert(key, rebuilt(cursor)?);
                    Some(())
                })?;
                Some(Value::Object(members))
            }
            b'[' => {
                let mut elements = Vec::new();
                cursor.array(|cursor| {
                    elements.push(rebuilt(cursor)?);
                    Some(())
                })?;
                Some(Value::Array(elements))
            }
            _ => serde_json::from_slice(cursor.raw()?).ok(),
        }
    }

    proptest! {
        #[test]
        fn it_sees_what_a_parser_sees(value in json()) {
            for text in [value.to_string(), format!("{value:#}")] {
                prop_assert_eq!(rebuilt(&mut Cursor::new(text.as_bytes())), Some(value.clone()));
                let mut cursor = Cursor::new(text.as_bytes());
                prop_assert_eq!(cursor.raw(), Some(text.as_bytes()), "skipped as a whole");
            }
        }

        #[test]
        fn no_text_makes_it_run_on(text in "[\\[\\]{}\",:\\\\a1 ]{0,40}") {
            let mut cursor = Cursor::new(text.as_bytes());
            rebuilt(&mut cursor);
            Cursor::new(text.as_bytes()).skip();
        }
    }

    #[test]
    fn parts_of_a_document_are_found_without_checking_them_again() {
        let text = br#"{"a": [ {"b" : 1,"c":"]}","b":{"d":[2]}} , 3],"e":[],"f":4}"#;
        let object = Object::parse(text).expect("valid");
        let text_of = |value: Option<json::Value<'static>>| value.map(|value| value.text());
        let get = |key| object.get(key).expect(key);
        let first = get("a").first_element().expect("an element");
        let [c, b, none] = first.members(["c", "b", "x"]).map(text_of);
        assert_eq!((c, b), (Some(&br#""]}""#[..]), Some(&br#"{"d":[2]}"#[..])));
        assert_eq!(none, None);
        assert_eq!(text_of(get("e").first_element()), None);
        assert_eq!(text_of(get("f").first_element()), None, "no array");
        assert_eq!(get("f").members(["b"]).map(text_of), [None], "no object");
    }

    #[test]
    fn sizes_are_those_of_the_text_without_its_escapes() {
        let size = |json: &str| Cursor::new(json.as_bytes()).text_size();
        assert_eq!(size(r#""a\nbcd""#), Some(TextSize::measure(b"a\nbcd")));
        assert_eq!(size(r#""\u4f60\u597d""#), Some(TextSize::measure("你好".as_bytes())));
        assert_eq!(size(r#""\ud83d!""#), Some(TextSize::measure(b"\\ud83d!")), "half a pair");
        assert_eq!(size("null"), Some(TextSize::default()));
        assert_eq!(size(r#"["x"]"#), Some(TextSize::default()));
        assert_eq!(size(r#""cut"#), None);
    }
}
