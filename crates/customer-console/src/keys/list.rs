//! The list of an account's keys.

use askama::Template;
use axum::extract::{Query, State};
use axum::response::IntoResponse as _;
use serde::Deserialize;

use crate::CustomerConsole;
use crate::customer::{LoggedInCustomer, PageResult};
use crate::playground_keys::is_playground_key;
use tollgate_ledger::{Key, KeyId};
use tollgate_types::clock::UnixMs;
use tollgate_web_kit::{HtmlPage, PageFrame, show};

/// Keys on one page of the list.
const PAGE_KEYS: usize = 50;

/// State of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyState {
    Works,
    Off,
    Ended,
}

impl KeyState {
    pub(super) fn from_key(key: &Key, now: UnixMs) -> Self {
        match (key.is_expired(now), key.disabled) {
            (true, _) => Self::Ended,
            (false, true) => Self::Off,
            (false, false) => Self::Works,
        }
    }

    /// Label of the state.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Works => "works",
            Self::Off => "switched off",
            Self::Ended => "ended",
        }
    }

    /// The class of the state's badge.
    pub(super) fn badge_class(self) -> &'static str {
        match self {
            Self::Works => "good",
            Self::Off => "warn",
            Self::Ended => "bad",
        }
    }
}

/// One key in the list.
pub(super) struct KeyRow {
    pub(super) id: KeyId,
    pub(super) name: String,
    pub(super) models: String,
    pub(super) limits: Vec<String>,
    pub(super) created: String,
    pub(super) ends: String,
    pub(super) used: String,
    pub(super) standing: KeyState,
}

impl KeyRow {
    /// The row of a key that was used last at `used_at`.
    pub(super) fn new(
        console: &CustomerConsole,
        key: &Key,
        used_at: Option<&UnixMs>,
        now: UnixMs,
    ) -> Self {
        let limits = console.ledger.key_limits(key.id);
        Self {
            id: key.id,
            name: key.name.clone(),
            models: match key.models.as_deref() {
                None => "all".to_owned(),
                Some([]) => "none".to_owned(),
                Some([one]) => one.clone(),
                Some([one, rest @ ..]) => format!("{one} and {} more", rest.len()),
            },
            limits: show::limits(&limits.rates, limits.spend_per_day, limits.spend_per_month),
            created: show::day(&key.created_at),
            ends: key.expires_at.as_ref().map_or("never".to_owned(), show::time),
            used: used_at.map_or("never".to_owned(), |at| show::ago(at, &now)),
            standing: KeyState::from_key(key, now),
        }
    }
}

#[derive(Template)]
#[template(path = "customer_keys.html")]
struct KeysPage {
    frame: PageFrame,
    rows: Vec<KeyRow>,
    older: Option<String>,
    suspended: bool,
}

/// Position in the list, and result of the previous form.
#[derive(Default, Deserialize)]
pub(crate) struct KeysQuery {
    /// Only keys created before this one.
    before: Option<String>,
}

/// `GET /keys`, newest first.
pub(crate) async fn page(
    State(console): State<CustomerConsole>,
    customer: LoggedInCustomer,
    Query(query): Query<KeysQuery>,
) -> PageResult {
    let now = UnixMs::now();
    let mut keys = console.ledger.keys_of(customer.account.id);
    // A key of the playground that has ended is of no use to anybody.
    keys.retain(|key| !(is_playground_key(key) && key.is_expired(now)));
    keys.reverse();
    if let Some(before) = &query.before {
        let place = before.parse().ok().and_then(|id| keys.iter().position(|key| key.id == id));
        // Not the first page: whoever pages through the list would begin again.
        let place = place.ok_or_else(|| customer.nowhere(&console))?;
        keys.drain(..=place);
    }
    let has_older = keys.len() > PAGE_KEYS;
    keys.truncate(PAGE_KEYS);
    let used = console.ledger.keys_last_used(customer.account.id).await;
    let used = used.map_err(|error| customer.failed(&console, &error))?;
    let rows: Vec<KeyRow> =
        keys.iter().map(|key| KeyRow::new(&console, key, used.get(&key.id), now)).collect();
    let older = rows.last().filter(|_| has_older);
    let older = older.map(|row| console.at(&format!("/keys?before={}", row.id)));
    let suspended = customer.is_suspended();
    Ok(HtmlPage(KeysPage { frame: customer.frame(&console, "/keys"), rows, older, suspended })
        .into_response())
}
