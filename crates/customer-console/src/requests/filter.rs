//! Filter of the request list: the submitted text, and its meaning.

use serde::Deserialize;

use crate::key_names::KeyNames;
use tollgate_ledger::KeyId;
use tollgate_telemetry::request_log::{Query, RingPosition, StatusFilter};
use tollgate_web_kit::request_list;

/// The longest model id, in bytes.
const MODEL_BYTES_MAX: usize = 256;

/// The fields of the form, as they were typed.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct TypedFilter {
    #[serde(default)]
    model: String,
    #[serde(default)]
    key: String,
    #[serde(default)]
    status: String,
    #[serde(default)]
    errors: String,
    before: Option<String>,
}

/// The filter that the fields of the form mean, and what is wrong with them.
#[derive(Debug, Default)]
pub(super) struct Filter {
    pub(super) model: String,
    /// Error of the field for the model.
    pub(super) model_wrong: &'static str,
    pub(super) key: Option<KeyId>,
    /// Error of the field for the key.
    pub(super) key_wrong: &'static str,
    pub(super) status: String,
    /// Error of the field for the status.
    pub(super) status_wrong: &'static str,
    status_filter: Option<StatusFilter>,
    pub(super) errors_only: bool,
    pub(super) before: Option<RingPosition>,
    before_wrong: bool,
}

impl Filter {
    /// Parses the filter for an account with these keys.
    pub(super) fn from_typed(typed: TypedFilter, keys: &KeyNames) -> Self {
        let mut filter = Self {
            errors_only: !typed.errors.is_empty(),
            model: typed.model.trim().to_owned(),
            status: typed.status.trim().to_owned(),
            ..Self::default()
        };
        if filter.model.len() > MODEL_BYTES_MAX {
            filter.model_wrong = "A model's name has at most 256 bytes.";
        }
        if !typed.key.is_empty() {
            // Another account's key is like none.
            filter.key = typed.key.parse().ok().filter(|key| keys.has(*key));
            if filter.key.is_none() {
                filter.key_wrong = "There is no such key.";
            }
        }
        match request_list::status_filter(&filter.status) {
            Ok(status) => filter.status_filter = status,
            Err(text) => filter.status_wrong = text,
        }
        let before = typed.before.map(|before| before.parse().ok());
        // A wrong cursor is an error of the request; the other fields have a place beside them.
        filter.before_wrong = matches!(before, Some(None));
        filter.before = before.flatten();
        filter
    }

    /// True if any field has an error.
    pub(super) fn is_wrong(&self) -> bool {
        let texts = [self.model_wrong, self.key_wrong, self.status_wrong];
        self.before_wrong || texts.iter().any(|text| !text.is_empty())
    }

    /// True if the filter excludes anything.
    pub(super) fn is_set(&self) -> bool {
        !self.model.is_empty()
            || self.key.is_some()
            || self.status_filter.is_some()
            || self.errors_only
    }

    /// Query of the request log; `None` if a field has an error.
    pub(super) fn query(&self, limit: usize) -> Option<Query> {
        (!self.is_wrong()).then(|| Query {
            before: self.before,
            limit,
            model: Some(self.model.clone()).filter(|model| !model.is_empty()),
            key: self.key,
            status: self.status_filter,
            errors_only: self.errors_only,
        })
    }

    /// The query of the next page's address.
    pub(super) fn older(&self, next: RingPosition) -> String {
        let key = self.key.map_or_else(String::new, |key| key.to_string());
        let filter = [
            ("model", self.model.as_str()),
            ("status", &self.status),
            ("key", &key),
            ("errors", if self.errors_only { "1" } else { "" }),
        ];
        request_list::query_before(&filter, next)
    }
}
