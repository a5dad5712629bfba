//! Values as bytes, in the format of postcard 1: for what is encoded at every call.
//!
//! The bytes are those of the crate `postcard`, which reads them. It writes through a trait that takes a
//! slice at a time, so that each number goes through a buffer of its own and a copy of a length that the
//! compiler does not know: a record of a dozen small numbers takes three times as long. This writes into
//! memory that is there. A test holds the two against each other.
//!
//! ```text
//! numbers       from 16 bits on seven bits a byte, the lowest first; with a sign, zigzag before
//! bool, u8, i8  one byte
//! f32, f64      as they are, little-endian
//! text, bytes   length | bytes; a character is a text
//! option        0, or 1 | value
//! sequence, map length | elements, or keys and values in turn
//! enum          number of the variant | its content
//! others        one field after the other, without anything between
//! ```

use std::fmt::{self, Write as _};
use std::io;

use serde::{Serialize, ser};

/// Value that cannot be encoded: its length is unknown, or its `Serialize` fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodeError(String);

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a value cannot be encoded: {}", self.0)
    }
}

impl std::error::Error for EncodeError {}

impl ser::Error for EncodeError {
    fn custom<T: fmt::Display>(cause: T) -> Self {
        Self(cause.to_string())
    }
}

impl From<EncodeError> for io::Error {
    fn from(error: EncodeError) -> Self {
        Self::other(error)
    }
}

/// Appends the bytes of `value`.
///
/// # Errors
/// [`EncodeError`]; `bytes` may have a part of the value then.
pub fn encode<T: Serialize + ?Sized>(bytes: &mut Vec<u8>, value: &T) -> Result<(), EncodeError> {
    value.serialize(&mut Encoder { bytes })
}

/// Encoder into existing memory.
struct Encoder<'a> {
    bytes: &'a mut Vec<u8>,
}

/// The upper bit of a byte of seven bits: another follows.
const MORE: u8 = 0x80;
/// The bits of a number that eight such bytes have.
const WORD_BITS: u32 = 56;

impl Encoder<'_> {
    #[inline]
    fn number(&mut self, number: u64) {
        match u8::try_from(number) {
            // Most counts are zero.
            Ok(byte) if byte < MORE => self.bytes.push(byte),
            _ => self.large(number),
        }
    }

    fn large(&mut self, number: u64) {
        if number >> WORD_BITS > 0 {
            self.word(number);
            // What remains are eight bits, of which the last has a byte of its own.
            let [.., rest] = number.to_le_bytes();
            return match rest < MORE {
                true => self.bytes.push(rest),
                false => self.bytes.extend_from_slice(&[rest, 1]),
            };
        }
        let groups = spread(number);
        // Where the last byte begins that has a bit, of eight of them.
        let last = (u64::BITS - 1).saturating_sub(groups.leading_zeros()) & !7;
        let more = u64::from_le_bytes([MORE; 8]) & ((1 << last) - 1);
        // Eight bytes are copied faster than as many as there are.
        let end = self.bytes.len() + last as usize / 8 + 1;
        self.bytes.extend_from_slice(&(groups | more).to_le_bytes());
        self.bytes.truncate(end);
    }

    fn wide(&mut self, number: u128) {
        let mut rest = number;
        while rest >> WORD_BITS > 0 {
            self.word(u64::try_from(rest & u128::from(u64::MAX)).unwrap_or(0));
            rest >>= WORD_BITS;
        }
        self.number(u64::try_from(rest).unwrap_or(0));
    }

    /// Eight bytes that others follow.
    fn word(&mut self, number: u64) {
        let groups = spread(number) | u64::from_le_bytes([MORE; 8]);
        self.bytes.extend_from_slice(&groups.to_le_bytes());
    }

    fn length(&mut self, length: Option<usize>) -> Result<(), EncodeError> {
        let length = length.ok_or_else(|| EncodeError("its length is not known".to_owned()))?;
        self.number(length as u64);
        Ok(())
    }
}

/// The lower 56 bits, seven to a byte: two halves are parted, then each of them, and each of these.
fn spread(number: u64) -> u64 {
    let halves = number & 0x0fff_ffff | (number & 0x00ff_ffff_f000_0000) << 4;
    let quarters = halves & 0x0000_3fff_0000_3fff | (halves & 0x0fff_c000_0fff_c000) << 2;
    quarters & 0x007f_007f_007f_007f | (quarters & 0x3f80_3f80_3f80_3f80) << 1
}

/// The numbers 0, -1, 1, -2 … as 0, 1, 2, 3 …
fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

impl<'a, 'b> ser::Serializer for &'a mut Encoder<'b> {
    type Ok = ();
    type Error = EncodeError;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    fn is_human_readable(&self) -> bool {
        false
    }

    fn serialize_bool(self, value: bool) -> Result<(), EncodeError> {
        self.bytes.push(value.into());
        Ok(())
    }

    fn serialize_i8(self, value: i8) -> Result<(), EncodeError> {
        self.bytes.push(value.cast_unsigned());
        Ok(())
    }

    fn serialize_i16(self, value: i16) -> Result<(), EncodeError> {
        self.serialize_i64(value.into())
    }

    fn serialize_i32(self, value: i32) -> Result<(), EncodeError> {
        self.serialize_i64(value.into())
    }

    #[inline]
    fn serialize_i64(self, value: i64) -> Result<(), EncodeError> {
        self.number(zigzag(value));
        Ok(())
    }

    fn serialize_i128(self, value: i128) -> Result<(), EncodeError> {
        self.wide(((value << 1) ^ (value >> 127)).cast_unsigned());
        Ok(())
    }

    fn serialize_u8(self, value: u8) -> Result<(), EncodeError> {
        self.bytes.push(value);
        Ok(())
    }

    fn serialize_u16(self, value: u16) -> Result<(), EncodeError> {
        self.serialize_u64(value.into())
    }

    fn serialize_u32(self, value: u32) -> Result<(), EncodeError> {
        self.serialize_u64(value.into())
    }

    #[inline]
    fn serialize_u64(self, value: u64) -> Result<(), EncodeError> {
        self.number(value);
        Ok(())
    }

    fn serialize_u128(self, value: u128) -> Result<(), EncodeError> {
        self.wide(value);
        Ok(())
    }

    fn serialize_f32(self, value: f32) -> Result<(), EncodeError> {
        self.bytes.extend_from_slice(&value.to_le_bytes());
        Ok(())
    }

    fn serialize_f64(self, value: f64) -> Result<(), EncodeError> {
        self.bytes.extend_from_slice(&value.to_le_bytes());
        Ok(())
    }

    fn serialize_char(self, value: char) -> Result<(), EncodeError> {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    #[inline]
    fn serialize_str(self, value: &str) -> Result<(), EncodeError> {
        self.serialize_bytes(value.as_bytes())
    }

    #[inline]
    fn serialize_bytes(self, value: &[u8]) -> Result<(), EncodeError> {
        self.number(value.len() as u64);
        self.bytes.extend_from_slice(value);
        Ok(())
    }

    fn serialize_none(self) -> Result<(), EncodeError> {
        self.serialize_u8(0)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), EncodeError> {
        self.bytes.push(1);
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), EncodeError> {
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), EncodeError> {
        Ok(())
    }

    #[inline]
    fn serialize_unit_variant(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
    ) -> Result<(), EncodeError> {
        self.serialize_u32(index)
    }

    #[inline]
    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), EncodeError> {
        value.serialize(self)
    }

    #[inline]
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), EncodeError> {
        self.number(index.into());
        value.serialize(self)
    }

    fn serialize_seq(self, length: Option<usize>) -> Result<Self, EncodeError> {
        self.length(length)?;
        Ok(self)
    }

    #[inline]
    fn serialize_tuple(self, _: usize) -> Result<Self, EncodeError> {
        Ok(self)
    }

    #[inline]
    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, EncodeError> {
        Ok(self)
    }

    #[inline]
    fn serialize_tuple_variant(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, EncodeError> {
        self.number(index.into());
        Ok(self)
    }

    fn serialize_map(self, length: Option<usize>) -> Result<Self, EncodeError> {
        self.length(length)?;
        Ok(self)
    }

    #[inline]
    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, EncodeError> {
        Ok(self)
    }

    #[inline]
    fn serialize_struct_variant(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, EncodeError> {
        self.number(index.into());
        Ok(self)
    }

    fn collect_str<T: fmt::Display + ?Sized>(self, value: &T) -> Result<(), EncodeError> {
        let begin = self.bytes.len();
        // Room for the length of a short text: nearly all are.
        self.bytes.push(0);
        write!(DisplayWriter(self.bytes), "{value}")
            .map_err(|_| EncodeError("it cannot be printed".to_owned()))?;
        let length = self.bytes.len() - begin - 1;
        match (u8::try_from(length), self.bytes.get_mut(begin)) {
            (Ok(length), Some(place)) if length < MORE => *place = length,
            _ => {
                // Rare enough for a copy: printing twice, once for the length, would cost every text.
                let text = self.bytes.split_off(begin + 1);
                self.bytes.truncate(begin);
                self.number(length as u64);
                self.bytes.extend_from_slice(&text);
            }
        }
        Ok(())
    }
}

/// Sink for formatted text.
struct DisplayWriter<'a>(&'a mut Vec<u8>);

impl fmt::Write for DisplayWriter<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// Implements serializers of consecutive values; the names of fields, where a trait has them, are left out.
macro_rules! in_order {
    ($($trait:ident: $method:ident $(($name:ty))?),+) => {
        $(impl ser::$trait for &mut Encoder<'_> {
            type Ok = ();
            type Error = EncodeError;

            #[inline]
            fn $method<T: Serialize + ?Sized>(
                &mut self,
                $(_: $name,)?
                value: &T,
            ) -> Result<(), EncodeError> {
                value.serialize(&mut **self)
            }

            #[inline]
            fn end(self) -> Result<(), EncodeError> {
                Ok(())
            }
        })+
    };
}

in_order!(
    SerializeSeq: serialize_element,
    SerializeTuple: serialize_element,
    SerializeTupleStruct: serialize_field,
    SerializeTupleVariant: serialize_field,
    SerializeStruct: serialize_field(&'static str),
    SerializeStructVariant: serialize_field(&'static str)
);

impl ser::SerializeMap for &mut Encoder<'_> {
    type Ok = ();
    type Error = EncodeError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), EncodeError> {
        key.serialize(&mut **self)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), EncodeError> {
        value.serialize(&mut **self)
    }

    fn end(self) -> Result<(), EncodeError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Serializer;
    use serde::ser::SerializeSeq as _;

    use super::*;

    #[derive(Clone, Debug, Serialize)]
    struct UnitStruct;

    #[derive(Clone, Debug, Serialize)]
    struct Newtype(u64);

    #[derive(Clone, Debug, Serialize)]
    struct Pair(i64, String);

    #[derive(Clone, Debug, Serialize)]
    enum Choice {
        Nothing,
        One(u128),
        Two(i16, u16),
        Fields { text: String, inner: Option<Box<Choice>> },
    }

    /// A text that is printed where it is encoded.
    #[derive(Clone, Debug)]
    struct PrintedPair(String, u64);

    impl Serialize for PrintedPair {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_str(&format_args!("{}{}", self.0, self.1))
        }
    }

    /// One value of each kind.
    #[derive(Clone, Debug, Serialize)]
    struct SampleValues {
        truth: bool,
        bytes: (u8, i8),
        small: (u16, i16, u32, i32),
        large: (u64, i64, u128, i128),
        fractions: (f32, f64),
        character: char,
        text: String,
        shown: PrintedPair,
        units: ((), UnitStruct),
        newtype: Newtype,
        pair: Pair,
        options: (Option<u64>, Option<String>),
        list: Vec<u64>,
        fixed: [u64; 3],
        map: BTreeMap<String, i64>,
        choices: Vec<Choice>,
    }

    fn bits(random: &mut fastrand::Rng) -> u128 {
        // The edges of each number of seven bits, and those of all types.
        match random.u32(..4) {
            0 => (1_u128 << random.u32(..128)).wrapping_sub(random.u128(..3)),
            1 => u128::MAX >> random.u32(..128),
            2 => 0,
            _ => random.u128(..) >> random.u32(..128),
        }
    }

    fn text(random: &mut fastrand::Rng) -> String {
        let length = if random.u32(..8) == 0 { random.usize(..300) } else { random.usize(..20) };
        (0..length).map(|_| random.char(..)).collect()
    }

    fn choice(random: &mut fastrand::Rng, depth: u32) -> Choice {
        match random.u32(..4) {
            0 => Choice::Nothing,
            1 => Choice::One(bits(random)),
            2 => Choice::Two(random.i16(..), random.u16(..)),
            _ => Choice::Fields {
                text: text(random),
                inner: (depth > 0).then(|| Box::new(choice(random, depth - 1))),
            },
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "any bits will do")]
    fn each(random: &mut fastrand::Rng) -> SampleValues {
        let n = |random: &mut fastrand::Rng| bits(random);
        SampleValues {
            truth: random.bool(),
            bytes: (n(random) as u8, n(random) as i8),
            small: (n(random) as u16, n(random) as i16, n(random) as u32, n(random) as i32),
            large: (n(random) as u64, n(random) as i64, n(random), n(random).cast_signed()),
            fractions: (f32::from_bits(n(random) as u32), f64::from_bits(n(random) as u64)),
            character: random.char(..),
            text: text(random),
            shown: PrintedPair(text(random), n(random) as u64),
            units: ((), UnitStruct),
            newtype: Newtype(n(random) as u64),
            pair: Pair(n(random) as i64, text(random)),
            options: (random.bool().then(|| n(random) as u64), random.bool().then(|| text(random))),
            list: (0..random.usize(..200)).map(|_| n(random) as u64).collect(),
            fixed: std::array::from_fn(|_| n(random) as u64),
            map: (0..random.usize(..5)).map(|_| (text(random), n(random) as i64)).collect(),
            choices: (0..random.usize(..4)).map(|_| choice(random, 3)).collect(),
        }
    }

    #[test]
    fn the_bytes_are_those_of_postcard() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..20_000 {
            let value = each(&mut random);
            let before = random.usize(..20);
            let mut bytes = vec![7; before];
            encode(&mut bytes, &value).expect("encodes");
            assert_eq!(bytes[..before], vec![7; before], "what stood there stays");
            let expected = postcard::to_stdvec(&value).expect("encodes");
            assert_eq!(bytes[before..], expected, "{value:?}");
        }
    }

    #[test]
    fn every_length_of_a_number_is_that_of_postcard() {
        for bit in 0..128 {
            for number in [1_u128 << bit, (1 << bit) - 1, u128::MAX >> bit] {
                let of = |value: &dyn Fn(&mut Vec<u8>)| {
                    let mut bytes = Vec::new();
                    value(&mut bytes);
                    bytes
                };
                let signed = number.cast_signed();
                let wide = of(&|bytes| encode(bytes, &(number, signed)).expect("encodes"));
                assert_eq!(wide, postcard::to_stdvec(&(number, signed)).expect("encodes"));
                let Ok(number) = u64::try_from(number) else { continue };
                let signed = number.cast_signed();
                let word = of(&|bytes| encode(bytes, &(number, signed)).expect("encodes"));
                assert_eq!(word, postcard::to_stdvec(&(number, signed)).expect("encodes"));
            }
        }
    }

    /// A sequence that does not say how long it is.
    struct Endless;

    impl Serialize for Endless {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_seq(None)?.end()
        }
    }

    #[test]
    fn what_postcard_refuses_is_refused() {
        encode(&mut Vec::new(), &Endless).expect_err("without a length");
        postcard::to_stdvec(&Endless).expect_err("postcard neither");
    }
}
