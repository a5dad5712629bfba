//! Objects of a JSON document, read by their members and not made a tree.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::text::Text;

/// An object, and never an array of its members' values.
pub(super) struct AsObject<T>(pub(super) T);

/// What is read of an object that somebody else has written: of members that are not looked for, and of
/// values of other types, nothing but whether they are JSON.
pub(super) trait ReadMembers<'de>: Default {
    /// Reads the value of the member `name`, or leaves it; true when it was read.
    ///
    /// # Errors
    /// What is no JSON.
    fn read<A: MapAccess<'de>>(&mut self, name: &str, members: &mut A) -> Result<bool, A::Error>;
}

/// The [`ReadMembers`] of an object; of any other value, what an empty one has.
#[derive(Default)]
pub(super) struct ByMembers<T>(pub(super) T);

/// The first element of an array; of any other value, and of an empty array, nothing.
pub(super) struct First<T>(pub(super) Option<T>);

/// A value of which nothing is kept. Unlike with `IgnoredAny`, its texts and numbers are looked at.
#[derive(Default)]
struct Skipped;

impl<T> Default for First<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for AsObject<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AsObjectVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for AsObjectVisitor<T> {
            type Value = AsObject<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(members)).map(AsObject)
            }
        }
        deserializer.deserialize_map(AsObjectVisitor(PhantomData))
    }
}

/// The part of a visitor that skips plain values: it gives what `Default` makes of them.
macro_rules! skips_plain_values {
    () => {
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("any value")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }

        fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }

        fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }

        fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }

        fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }

        fn visit_str<E: Error>(self, _: &str) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
    };
}

fn skip_elements<'de, A: SeqAccess<'de>>(elements: &mut A) -> Result<(), A::Error> {
    while elements.next_element::<Skipped>()?.is_some() {}
    Ok(())
}

fn skip_members<'de, A: MapAccess<'de>>(members: &mut A) -> Result<(), A::Error> {
    while members.next_entry::<Skipped, Skipped>()?.is_some() {}
    Ok(())
}

impl<'de, T: ReadMembers<'de>> Deserialize<'de> for ByMembers<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ByMembersVisitor<T>(PhantomData<T>);

        impl<'de, T: ReadMembers<'de>> Visitor<'de> for ByMembersVisitor<T> {
            type Value = ByMembers<T>;

            skips_plain_values!();

            fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Self::Value, A::Error> {
                skip_elements(&mut all)?;
                Ok(ByMembers(T::default()))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
                let mut read = T::default();
                while let Some(name) = members.next_key::<Text<'de>>()? {
                    if !read.read(&name, &mut members)? {
                        members.next_value::<Skipped>()?;
                    }
                }
                Ok(ByMembers(read))
            }
        }
        deserializer.deserialize_any(ByMembersVisitor(PhantomData))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for First<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FirstVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for FirstVisitor<T> {
            type Value = First<T>;

            skips_plain_values!();

            fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Self::Value, A::Error> {
                let first = all.next_element()?;
                skip_elements(&mut all)?;
                Ok(First(first))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
                skip_members(&mut members)?;
                Ok(First(None))
            }
        }
        deserializer.deserialize_any(FirstVisitor(PhantomData))
    }
}

impl<'de> Deserialize<'de> for Skipped {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Skipping)
    }
}

struct Skipping;

impl<'de> Visitor<'de> for Skipping {
    type Value = Skipped;

    skips_plain_values!();

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        skip_elements(&mut elements).map(|()| Skipped)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        skip_members(&mut members).map(|()| Skipped)
    }
}
