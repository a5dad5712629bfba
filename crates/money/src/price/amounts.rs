//! Encoding of amounts per unit in records, tasks and rows.
//!
//! Amounts of the units that have a place of their own stand one after the other, as they ever did. As soon
//! as there is an amount of another unit, all that are not zero stand as pairs of a unit's number and its
//! amount, behind a number that no amount can be. So what was written before there were numbers is read
//! as it is, what needs no later unit is written as it was, byte for byte, and a unit that is added
//! changes no format.
//!
//! ```text
//! by place   amount | amount | … (eight)
//! by number  2^64 | count of pairs | number u8 | amount | number u8 | amount | …
//! ```

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, Error as _, SeqAccess, Visitor};
use serde::ser::{SerializeSeq as _, SerializeTuple as _};
use serde::{Deserializer, Serialize, Serializer};

use super::units::{PLACED, Unit};
use crate::money::Rate;

/// A quantity per unit.
pub(super) trait Amount: Copy + Default + PartialEq + Serialize + DeserializeOwned {
    /// A number with more bits. A small one is written as the amount is.
    type Wide: Serialize + DeserializeOwned + PartialEq;
    /// Stands where the first amount would. It is written as 2^64 is, which no version that knows
    /// amounts by place alone can read: such a version refuses the record.
    const BY_NUMBER: Self::Wide;

    /// The amount that a number is; `None` for one that is out of range.
    fn from_wide(wide: Self::Wide) -> Option<Self>;
}

impl Amount for u64 {
    type Wide = u128;
    const BY_NUMBER: u128 = 1 << 64;

    fn from_wide(wide: u128) -> Option<Self> {
        Self::try_from(wide).ok()
    }
}

impl Amount for Rate {
    type Wide = i128;
    // Numbers with a sign are written twice as large.
    const BY_NUMBER: i128 = 1 << 63;

    fn from_wide(wide: i128) -> Option<Self> {
        i64::try_from(wide).ok().map(Self::from_femtousd)
    }
}

/// Writes the amounts of all units.
pub(super) fn write<A: Amount, S: Serializer>(
    amounts: [A; Unit::COUNT],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let (placed, later) = amounts.split_at(PLACED);
    if later.iter().all(|amount| *amount == A::default()) {
        let mut by_place = serializer.serialize_tuple(PLACED)?;
        placed.iter().try_for_each(|amount| by_place.serialize_element(amount))?;
        return by_place.end();
    }
    let mut by_number = serializer.serialize_tuple(2)?;
    by_number.serialize_element(&A::BY_NUMBER)?;
    by_number.serialize_element(&NonZeroAmounts(&amounts))?;
    by_number.end()
}

/// Amounts that are not zero, each with its unit's number.
struct NonZeroAmounts<'a, A>(&'a [A]);

impl<A: Amount> Serialize for NonZeroAmounts<'_, A> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let used = || Unit::ALL.iter().zip(self.0).filter(|(_, amount)| **amount != A::default());
        let mut pairs = serializer.serialize_seq(Some(used().count()))?;
        used().try_for_each(|(unit, amount)| pairs.serialize_element(&(unit.number(), amount)))?;
        pairs.end()
    }
}

/// Reads what [`write`] wrote, in this version or an earlier one.
///
/// # Errors
/// For a unit of a later version, and for bytes that are no amounts.
pub(super) fn read<'de, A: Amount, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<[A; Unit::COUNT], D::Error> {
    deserializer.deserialize_tuple(PLACED, Amounts(PhantomData))
}

struct Amounts<A>(PhantomData<A>);

impl<'de, A: Amount> Visitor<'de> for Amounts<A> {
    type Value = [A; Unit::COUNT];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("amounts of units, by their places or by their numbers")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<Self::Value, S::Error> {
        let mut amounts = [A::default(); Unit::COUNT];
        let missing = |place: usize| S::Error::invalid_length(place, &"eight amounts");
        let first: A::Wide = seq.next_element()?.ok_or_else(|| missing(0))?;
        if first == A::BY_NUMBER {
            let pairs: Vec<(u8, A)> = seq.next_element()?.ok_or_else(|| missing(1))?;
            for (number, amount) in pairs {
                let unknown = "a unit that this version does not know: a later one wrote it";
                let unit = Unit::from_number(number).ok_or_else(|| S::Error::custom(unknown))?;
                amounts[unit as usize] = amount;
            }
            return Ok(amounts);
        }
        let (head, others) = amounts.split_at_mut(1);
        let first =
            A::from_wide(first).ok_or_else(|| S::Error::custom("an amount is too large"))?;
        head.fill(first);
        for (amount, place) in others.iter_mut().zip(1..PLACED) {
            *amount = seq.next_element()?.ok_or_else(|| missing(place))?;
        }
        Ok(amounts)
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::price::{Prices, Usage};

    /// Encoding by place, as versions before units had numbers wrote and read it.
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct ByPlace<A> {
        amounts: [A; PLACED],
    }

    fn encoded(value: &impl Serialize) -> Vec<u8> {
        postcard::to_stdvec(value).expect("encodes")
    }

    /// A number of any length.
    fn any(random: &mut fastrand::Rng) -> u64 {
        random.u64(..) >> random.u32(..64)
    }

    /// Usage of some units, and prices of some.
    fn random(random: &mut fastrand::Rng) -> (Usage, Prices) {
        let (mut usage, mut prices) = (Usage::ZERO, Prices::default());
        for unit in Unit::ALL {
            if random.bool() {
                usage[*unit] = any(random);
                prices[*unit] = Rate::from_femtousd(any(random).cast_signed());
            }
        }
        (usage, prices)
    }

    #[test]
    fn what_is_written_is_read_and_places_are_what_they_were() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        for _ in 0..10_000 {
            let (usage, prices) = random(&mut rng);
            // Something behind it, as in a record.
            let (behind, bytes) = (rng.u64(..), |value: &(_, _, u64)| encoded(value));
            let written = bytes(&(usage, prices, behind));
            assert_eq!(postcard::from_bytes(&written), Ok((usage, prices, behind)));
            let placed = |unit: &&Unit| unit.is_placed();
            let mut amounts = ByPlace { amounts: [0; PLACED] };
            for unit in Unit::ALL.iter().filter(placed) {
                amounts.amounts[*unit as usize] = usage[*unit];
            }
            let of_before = encoded(&amounts);
            let read: Usage = postcard::from_bytes(&of_before).expect("of before");
            assert!(Unit::ALL.iter().filter(placed).all(|unit| read[*unit] == usage[*unit]));
            let is_placed = Unit::ALL.iter().all(|unit| unit.is_placed() || usage[*unit] == 0);
            if is_placed {
                assert_eq!((read, encoded(&usage)), (usage, of_before), "byte for byte");
            } else {
                let written = encoded(&usage);
                postcard::from_bytes::<ByPlace<u64>>(&written).expect_err("it is refused");
            }
        }
    }

    /// By number as a later version writes it, whatever units this one has.
    #[test]
    fn amounts_by_number_are_read_here_and_refused_by_who_knows_places_alone() {
        let usage = Usage { output_tokens: 7, characters: u64::MAX, ..Usage::ZERO };
        let written = encoded(&(<u64 as Amount>::BY_NUMBER, vec![(4_u8, 7), (7_u8, u64::MAX)]));
        assert_eq!(postcard::from_bytes(&written), Ok(usage));
        postcard::from_bytes::<ByPlace<u64>>(&written).expect_err("no number of 64 bits");
        let rate = Rate::from_femtousd;
        let prices = Prices { input: rate(3), second: rate(i64::MAX), ..Prices::default() };
        let pairs = vec![(0_u8, rate(3)), (6, rate(i64::MAX))];
        let written = encoded(&(<Rate as Amount>::BY_NUMBER, pairs));
        assert_eq!(postcard::from_bytes(&written), Ok(prices));
        postcard::from_bytes::<ByPlace<Rate>>(&written).expect_err("no number of 64 bits");
        let unknown = encoded(&(<u64 as Amount>::BY_NUMBER, vec![(u8::MAX, 7_u64)]));
        postcard::from_bytes::<Usage>(&unknown).expect_err("a unit of a later version");
        let large = encoded(&(1_u128 << 65, [0_u64; PLACED]));
        postcard::from_bytes::<Usage>(&large).expect_err("no amount");
    }
}
