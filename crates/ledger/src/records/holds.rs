//! Journal encoding of an account's hold rules: numbers that stay the same if the options are
//! extended.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::sync::Arc;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use tollgate_options::holds::{HoldOverrides, Means};
use tollgate_types::ids::AccountId;

/// The overrides in the order in which they are written.
#[derive(Serialize, Deserialize)]
struct WrittenHolds {
    means: Option<Vec<u8>>,
    output_floor: Option<u64>,
    slice: Option<u64>,
    wait_ms: Option<u64>,
}

/// The hold rules of an account, as a row of a store has them.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HoldsRow {
    /// Account with the rules.
    pub(crate) account: AccountId,
    /// All its hold rules.
    #[serde(with = "crate::records::holds")]
    pub(crate) holds: Arc<HoldOverrides>,
}

/// The number of a means in the journal. It never changes.
fn code(means: Means) -> u8 {
    match means {
        Means::Credit => 0,
        Means::Count => 1,
        Means::Clamp => 2,
        Means::Rolling => 3,
    }
}

fn means_of(code: u8) -> Option<Means> {
    Means::ALL.iter().copied().find(|means| self::code(*means) == code)
}

/// Writes the overrides of an account.
///
/// # Errors
/// Those of the serializer.
pub(crate) fn serialize<S: Serializer>(
    holds: &HoldOverrides,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let HoldOverrides { means, output_floor, slice, wait: _ } = holds;
    let means = means.as_ref().map(|means| means.iter().copied().map(code).collect());
    let (output_floor, slice, wait_ms) = (*output_floor, *slice, holds.wait_ms());
    WrittenHolds { means, output_floor, slice, wait_ms }.serialize(serializer)
}

/// Reads the overrides of an account.
///
/// # Errors
/// For a means that this version does not have, and those of the deserializer.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Arc<HoldOverrides>, D::Error> {
    let WrittenHolds { means, output_floor, slice, wait_ms } =
        WrittenHolds::deserialize(deserializer)?;
    let read = |codes: Vec<u8>| codes.into_iter().map(means_of).collect::<Option<Vec<_>>>();
    let means = means
        .map(|codes| read(codes).ok_or_else(|| D::Error::custom("a means of a later version")))
        .transpose()?;
    let wait = wait_ms.map(Duration::from_millis);
    Ok(Arc::new(HoldOverrides { means, output_floor, slice, wait }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::record::Record;
    use tollgate_types::clock::UnixMs;

    fn record(holds: HoldOverrides) -> Record {
        let account = AccountId::from_number(3);
        Record::AccountHolds { account, holds: Arc::new(holds), at: UnixMs(9) }
    }

    #[test]
    fn the_bytes_of_hold_rules_stay_as_they_are() {
        let all = HoldOverrides {
            means: Some(vec![Means::Rolling, Means::Credit]),
            output_floor: Some(7),
            slice: None,
            wait: Some(Duration::from_millis(5)),
        };
        let bytes = postcard::to_stdvec(&record(all.clone())).expect("encoded");
        assert_eq!(bytes, [39, 3, 1, 2, 3, 0, 1, 7, 0, 1, 5, 9]);
        assert_eq!(postcard::from_bytes::<Record>(&bytes).expect("decoded"), record(all));
        let none = record(HoldOverrides::default());
        let bytes = postcard::to_stdvec(&none).expect("encoded");
        assert_eq!(postcard::from_bytes::<Record>(&bytes).expect("decoded"), none);
    }

    #[test]
    fn an_unknown_means_is_an_error() {
        let bytes = [39, 3, 1, 1, 99, 0, 0, 0, 9];
        assert!(postcard::from_bytes::<Record>(&bytes).is_err());
    }
}
