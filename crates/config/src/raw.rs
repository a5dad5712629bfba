//! The raw fields of the two files, with their defaults. Doc comments here are the descriptions in the JSON
//! Schema.

mod admin;
mod auth;
mod console;
mod holds;
mod limits;
mod listeners;
mod mcp;
mod models;
mod routes;
mod store;
mod upstreams;

use std::marker::PhantomData;

use schemars::JsonSchema;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

pub(super) use admin::*;
pub(super) use auth::*;
pub(super) use console::*;
pub(super) use holds::*;
pub(super) use limits::*;
pub(super) use listeners::*;
pub(super) use mcp::*;
pub(super) use models::*;
pub(super) use routes::*;
pub(super) use store::*;
pub(super) use upstreams::*;

/// A mapping from names to values that keeps the order of the file.
#[derive(Debug)]
pub(super) struct OrderedMap<T>(pub(super) Vec<(String, T)>);

impl<T> Default for OrderedMap<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OrderedMap<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CollectVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for CollectVisitor<T> {
            type Value = OrderedMap<T>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a mapping")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(OrderedMap(entries))
            }
        }
        deserializer.deserialize_map(CollectVisitor(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for OrderedMap<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("EntriesOf{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        std::collections::BTreeMap::<String, T>::json_schema(generator)
    }
}
