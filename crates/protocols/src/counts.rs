//! Reads the counts in a `usage` that is written as nearly all are: whole numbers, and objects of whole
//! numbers. Whatever is written otherwise is left to a parser.

use super::json::{plain_text_end, short_string_end};
use super::json_cursor::Cursor;

/// An object in a `usage` that has counts: its key, empty for `usage` itself, and their keys in the order
/// in which they are mostly written.
pub(super) type CountsObject = (&'static str, &'static [&'static str]);

/// Digits that every number of so many can have and still be one of 64 bits.
const DIGITS_MAX: usize = 19;

/// The counts of the `objects`, one behind the other, each `None` where it is not there. The first object
/// is the `usage` itself. `None` for all of it where a parser may see anything else than that: numbers
/// with a sign, a point or an exponent, known keys that are there twice or have other values, escapes,
/// lists, and what is not JSON.
pub(super) fn read_counts<const COUNTS: usize>(
    usage: &[u8],
    objects: &[CountsObject],
) -> Option<[Option<u64>; COUNTS]> {
    let cursor = Cursor::new(usage);
    let mut reader = CountReader { cursor, objects, counts: [None; COUNTS], seen: 0 };
    reader.cursor.space();
    reader.object(Some(0))?;
    reader.cursor.space();
    reader.cursor.rest().is_empty().then_some(reader.counts)
}

struct CountReader<'a, const COUNTS: usize> {
    cursor: Cursor<'a>,
    objects: &'a [CountsObject],
    counts: [Option<u64>; COUNTS],
    /// Objects that were read, as a bit set.
    seen: u64,
}

impl<'a, const COUNTS: usize> CountReader<'a, COUNTS> {
    /// Reads one of the objects; `None` if it has no counts.
    fn object(&mut self, index: Option<usize>) -> Option<()> {
        let names =
            index.and_then(|index| self.objects.get(index)).map_or(&[][..], |object| object.1);
        let before = self.objects.get(..index.unwrap_or(0))?.iter();
        let before: usize = before.map(|object| object.1.len()).sum();
        let is_top = index == Some(0);
        self.cursor.eat(b'{')?;
        self.cursor.space();
        if self.cursor.eat(b'}').is_some() {
            return Some(());
        }
        // The place of the count that is likely to come next.
        let mut likely = 0;
        loop {
            self.cursor.space();
            let key = self.string()?;
            self.cursor.space();
            self.cursor.eat(b':')?;
            self.cursor.space();
            match place(key, names, likely) {
                Some(place) => {
                    likely = place + 1;
                    self.count(before + place)?;
                }
                None if is_top => self.inner(key)?,
                None => self.other(key, false)?,
            }
            self.cursor.space();
            if self.cursor.eat(b',').is_none() {
                return self.cursor.eat(b'}');
            }
        }
    }

    /// Reads a selected count.
    fn count(&mut self, index: usize) -> Option<()> {
        let count = self.number()?;
        let place = self.counts.get_mut(index)?;
        let is_first = place.is_none();
        *place = Some(count);
        is_first.then_some(())
    }

    /// A member of the `usage` itself that is no count: one of the objects, unless it is not there.
    fn inner(&mut self, key: &[u8]) -> Option<()> {
        let mut inner = self.objects.iter().skip(1);
        let Some(index) = inner.position(|object| object.0.as_bytes() == key) else {
            return self.other(key, true);
        };
        let bit = 1_u64.checked_shl(u32::try_from(index).ok()?)?;
        let is_repeated = self.seen & bit != 0;
        self.seen |= bit;
        match self.cursor.peek()? {
            _ if is_repeated => None,
            b'{' => self.object(Some(index + 1)),
            _ => self.null(),
        }
    }

    /// Skips a member that is not selected.
    fn other(&mut self, key: &[u8], is_top: bool) -> Option<()> {
        if !key.is_ascii() {
            return None;
        }
        match self.cursor.peek()? {
            b'0'..=b'9' => self.number().map(|_| ()),
            b'"' => self.string().filter(|text| text.is_ascii()).map(|_| ()),
            b'{' if is_top => self.object(None),
            _ => self.null(),
        }
    }

    /// The text of a string without escapes.
    fn string(&mut self) -> Option<&'a [u8]> {
        self.cursor.eat(b'"')?;
        let begin = self.cursor.at;
        let end = match short_string_end(self.cursor.text, begin) {
            Some(end) => end,
            None => plain_text_end(self.cursor.text, begin),
        };
        self.cursor.at = end;
        self.cursor.eat(b'"')?;
        self.cursor.text.get(begin..end)
    }

    fn number(&mut self) -> Option<u64> {
        let begin = self.cursor.at;
        let mut number = 0_u64;
        while let Some(digit @ b'0'..=b'9') = self.cursor.peek() {
            // More digits than fit are refused below.
            number = number.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
            self.cursor.at += 1;
        }
        let digits = self.cursor.at - begin;
        let is_whole = !matches!(self.cursor.peek(), Some(b'.' | b'e' | b'E'));
        let is_written_plainly =
            digits == 1 || (digits > 1 && self.cursor.text.get(begin) != Some(&b'0'));
        (is_whole && is_written_plainly && digits <= DIGITS_MAX).then_some(number)
    }

    fn null(&mut self) -> Option<()> {
        let is_null = self.cursor.rest().starts_with(b"null");
        self.cursor.at += 4;
        is_null.then_some(())
    }
}

/// Index of a key in `names`; `likely` is tried first.
fn place(key: &[u8], names: &[&str], likely: usize) -> Option<usize> {
    let is_it = |name: &&str| name.as_bytes() == key;
    if names.get(likely).is_some_and(is_it) {
        return Some(likely);
    }
    names.iter().position(is_it)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    const OBJECTS: [CountsObject; 2] = [("", &["a", "b"]), ("in", &["a", "c"])];

    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    struct WireSample {
        a: u64,
        b: Option<u64>,
        r#in: Option<WireInside>,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    struct WireInside {
        a: Option<u64>,
        c: Option<u64>,
    }

    /// The counts as a JSON parser reads them, with 0 for missing ones.
    fn parsed(usage: &[u8]) -> Option<[u64; 4]> {
        let wire: WireSample = serde_json::from_slice(usage).ok()?;
        let inside = wire.r#in.unwrap_or_default();
        Some([Some(wire.a), wire.b, inside.a, inside.c].map(|count| count.unwrap_or(0)))
    }

    fn read(usage: &[u8]) -> Option<[u64; 4]> {
        let counts = read_counts::<4>(usage, &OBJECTS)?;
        Some(counts.map(|count| count.unwrap_or(0)))
    }

    #[test]
    fn counts_are_read_at_every_listed_place() {
        for (usage, counts) in [
            ("{}", [0; 4]),
            (r#" { "a" : 1 , "in" : { "c" : 40 , "a":3 } , "b":2 } "#, [1, 2, 3, 40]),
            (r#"{"in":null,"x":null,"y":"text","z":{"a":5,"in":6},"c":7,"a":0}"#, [0; 4]),
            (r#"{"x":1,"x":2,"a":9999999999999999999}"#, [9_999_999_999_999_999_999, 0, 0, 0]),
        ] {
            assert_eq!(read(usage.as_bytes()), Some(counts), "{usage}");
            assert_eq!(parsed(usage.as_bytes()), Some(counts), "{usage}");
        }
    }

    #[test]
    fn what_is_written_otherwise_is_left_to_a_parser() {
        for usage in [
            "",
            "[]",
            "{",
            "{}}",
            "{} {}",
            "{,}",
            r#"{"a":1,}"#,
            r#"{"a" 1}"#,
            r#"{"a":1 "b":2}"#,
            r#"{"a":-1}"#,
            r#"{"a":1.0}"#,
            r#"{"a":1e3}"#,
            r#"{"a":01}"#,
            r#"{"a":"1"}"#,
            r#"{"a":null}"#,
            r#"{"a":1,"a":1}"#,
            r#"{"a":18446744073709551615}"#,
            r#"{"a":1x}"#,
            r#"{"\u0061":1}"#,
            r#"{"x":"\n"}"#,
            r#"{"x":[1]}"#,
            r#"{"x":true}"#,
            r#"{"x":nul}"#,
            r#"{"in":1}"#,
            r#"{"in":{},"in":{}}"#,
            r#"{"in":null,"in":{}}"#,
            r#"{"in":{"x":{}}}"#,
            r#"{"x":{"y":{}}}"#,
            "{\"x\":\"\n\"}",
            "{\"é\":1}",
            "{\"a\":1}\0",
        ] {
            assert_eq!(read_counts::<4>(usage.as_bytes(), &OBJECTS), None, "{usage:?}");
        }
        assert_eq!(read_counts::<4>(b"{\"\xFF\":1}", &OBJECTS), None);
    }

    fn any_usage() -> impl Strategy<Value = String> {
        let key = "(a|b|c|in|x|in|a|)";
        let plain = "(0|7|41|1234567|18446744073709551616|null|\"t\"|1.5|-3|true|\\[\\])";
        let member = |value: BoxedStrategy<String>| {
            (key, value, " {0,1}")
                .prop_map(|(key, value, space)| format!("{space}\"{key}\":{value}{space}"))
        };
        let object = move |value: BoxedStrategy<String>| {
            prop::collection::vec(member(value), 0..5)
                .prop_map(|members| format!("{{{}}}", members.join(",")))
                .boxed()
        };
        let number = "(0|7|41|1234567)".boxed();
        let inside = object(prop_oneof![8 => number.clone(), 1 => plain].boxed());
        let deep = object(prop_oneof![4 => number.clone(), 1 => inside.clone()].boxed());
        object(prop_oneof![6 => number, 1 => plain, 4 => inside, 1 => deep].boxed())
    }

    proptest! {
        /// Reads the same as a parser, also from damaged text.
        #[test]
        fn it_reads_what_a_parser_reads(
            usage in any_usage(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
            replacements in prop::collection::vec(prop::sample::select(b"{}:,\"0a \\".as_slice()), 3),
        ) {
            let mut usage = usage.into_bytes();
            for ((place, byte), replacement) in changes.into_iter().zip(replacements) {
                let place = place.index(usage.len());
                usage[place] = if byte < 64 { byte } else { replacement };
            }
            if let Some(counts) = read(&usage) {
                prop_assert_eq!(Some(counts), parsed(&usage), "{:?}", String::from_utf8_lossy(&usage));
            }
        }
    }
}
