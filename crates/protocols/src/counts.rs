//! Reads the counts in a `usage` that is written as nearly all are: whole numbers, and objects of whole
//! numbers. Whatever is written otherwise is left to a parser.

use super::json::plain_text_end;

/// Where a count stands: the key of the object in `usage` that has it, empty for `usage` itself, and
/// its own key.
pub(super) type CountPlace = (&'static str, &'static str);

/// Digits that every number of so many can have and still be one of 64 bits.
const DIGITS_MAX: usize = 19;

/// The counts at `places`, each `None` where it is not there. `None` for all of it where a parser may
/// see anything else than that: numbers with a sign, a point or an exponent, known keys that are there
/// twice or have other values, escapes, lists, and what is not JSON.
pub(super) fn read_counts<const PLACES: usize>(
    usage: &[u8],
    places: &[CountPlace; PLACES],
) -> Option<[Option<u64>; PLACES]> {
    let mut reader = CountReader { text: usage, at: 0, places, counts: [None; PLACES], seen: 0 };
    reader.space();
    reader.object(Some(""))?;
    reader.space();
    (reader.at == usage.len()).then_some(reader.counts)
}

struct CountReader<'a, const PLACES: usize> {
    text: &'a [u8],
    at: usize,
    places: &'a [CountPlace; PLACES],
    counts: [Option<u64>; PLACES],
    /// The first places of the objects that were read, as bits.
    seen: u64,
}

impl<'a, const PLACES: usize> CountReader<'a, PLACES> {
    /// Reads the object that stands behind the key `outer`; `None` for one that has no counts.
    fn object(&mut self, outer: Option<&str>) -> Option<()> {
        self.eat(b'{')?;
        self.space();
        if self.eat(b'}').is_some() {
            return Some(());
        }
        loop {
            self.space();
            self.member(outer)?;
            self.space();
            if self.eat(b',').is_none() {
                return self.eat(b'}');
            }
        }
    }

    fn member(&mut self, outer: Option<&str>) -> Option<()> {
        let key = self.string()?;
        self.space();
        self.eat(b':')?;
        self.space();
        let is_here = |place: &CountPlace| place.1.as_bytes() == key && Some(place.0) == outer;
        if let Some(index) = self.places.iter().position(is_here) {
            let count = self.number()?;
            return match self.counts.get_mut(index)? {
                place @ None => {
                    *place = Some(count);
                    Some(())
                }
                Some(_) => None,
            };
        }
        let is_top = outer == Some("");
        let is_object = |place: &CountPlace| place.0.as_bytes() == key;
        if is_top
            && !key.is_empty()
            && let Some(index) = self.places.iter().position(is_object)
        {
            let bit = 1_u64.checked_shl(u32::try_from(index).ok()?)?;
            let is_repeated = self.seen & bit != 0;
            self.seen |= bit;
            return match self.peek()? {
                _ if is_repeated => None,
                b'{' => self.object(self.places.get(index).map(|place| place.0)),
                _ => self.null(),
            };
        }
        if !key.is_ascii() {
            return None;
        }
        match self.peek()? {
            b'0'..=b'9' => self.number().map(|_| ()),
            b'"' => self.string().filter(|text| text.is_ascii()).map(|_| ()),
            b'{' if is_top => self.object(None),
            _ => self.null(),
        }
    }

    /// The text of a string without escapes.
    fn string(&mut self) -> Option<&'a [u8]> {
        self.eat(b'"')?;
        let end = plain_text_end(self.text, self.at);
        let text = self.text.get(self.at..end)?;
        self.at = end;
        self.eat(b'"')?;
        Some(text)
    }

    fn number(&mut self) -> Option<u64> {
        let rest = self.text.get(self.at..)?;
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, behind) = rest.split_at_checked(digits)?;
        let is_whole = !matches!(behind.first(), Some(b'.' | b'e' | b'E'));
        let is_written_plainly = digits == 1 || (digits > 1 && number.first() != Some(&b'0'));
        if !is_whole || !is_written_plainly || digits > DIGITS_MAX {
            return None;
        }
        self.at += digits;
        Some(number.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
    }

    fn null(&mut self) -> Option<()> {
        let is_null = self.text.get(self.at..)?.starts_with(b"null");
        self.at += 4;
        is_null.then_some(())
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn eat(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    const PLACES: [CountPlace; 4] = [("", "a"), ("", "b"), ("in", "a"), ("in", "c")];

    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    struct Wire {
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

    /// The counts as a parser sees them, where one that is not there is 0.
    fn parsed(usage: &[u8]) -> Option<[u64; 4]> {
        let wire: Wire = serde_json::from_slice(usage).ok()?;
        let inside = wire.r#in.unwrap_or_default();
        Some([Some(wire.a), wire.b, inside.a, inside.c].map(|count| count.unwrap_or(0)))
    }

    fn read(usage: &[u8]) -> Option<[u64; 4]> {
        let counts = read_counts(usage, &PLACES)?;
        Some(counts.map(|count| count.unwrap_or(0)))
    }

    #[test]
    fn counts_are_read_wherever_they_are_known() {
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
            assert_eq!(read_counts(usage.as_bytes(), &PLACES), None, "{usage:?}");
        }
        assert_eq!(read_counts(b"{\"\xFF\":1}", &PLACES), None);
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
        /// What is read is what a parser reads, also of text that was damaged on its way.
        #[test]
        fn it_reads_what_a_parser_reads(
            usage in any_usage(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
            meant in prop::collection::vec(prop::sample::select(b"{}:,\"0a \\".as_slice()), 3),
        ) {
            let mut usage = usage.into_bytes();
            for ((place, byte), meant) in changes.into_iter().zip(meant) {
                let place = place.index(usage.len());
                usage[place] = if byte < 64 { byte } else { meant };
            }
            if let Some(counts) = read(&usage) {
                prop_assert_eq!(Some(counts), parsed(&usage), "{:?}", String::from_utf8_lossy(&usage));
            }
        }
    }
}
