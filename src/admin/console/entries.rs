//! What happened to a customer's money, and giving back what a call has cost.

use askama::Template;
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;

use super::access::{Asked, Operator, Visit};
use super::customer::{HERE, Head, noted};
use super::done;
use super::form::{Fit, Typed, at_amount, new_once};
use crate::admin::error::ApiError;
use crate::clock::UnixMs;
use crate::ledger::{Account, AccountId, Call, Entry, EntryKind, HoldId, Seq};
use crate::money::Nanousd;
use crate::price::Usage;
use crate::web::{Frame, Page, show};

/// Entries on one page.
const PAGE: usize = 50;

/// Which of them.
#[derive(Default, Deserialize)]
pub(super) struct Wanted {
    before: Option<Seq>,
}

#[derive(Template)]
#[template(path = "operator_entries.html")]
struct Entries {
    frame: Frame,
    head: Head,
    typed: Typed,
    once: String,
    /// The hold of the form that was sent.
    sent: String,
    rows: Vec<Row>,
    older: Option<String>,
}

struct Row {
    at: UnixMs,
    what: &'static str,
    /// A class of the style sheet.
    tone: &'static str,
    detail: String,
    call: Option<Call>,
    amount: Option<String>,
    /// What a refund may give back.
    charged: Option<Nanousd>,
}

impl From<Entry> for Row {
    fn from(entry: Entry) -> Self {
        let plain = |what, tone, detail: String, amount| Self {
            at: entry.at,
            what,
            tone,
            detail,
            call: entry.call.clone(),
            amount,
            charged: None,
        };
        let plus = |amount: &Nanousd| Some(format!("+{}", show::money(amount)));
        let minus = |amount: &Nanousd| {
            Some(if amount.is_zero() {
                show::money(amount)
            } else {
                format!("−{}", show::money(amount))
            })
        };
        match entry.kind {
            EntryKind::Grant { id, amount } => plain("grant", "good", id, plus(&amount)),
            EntryKind::Hold => {
                let held = entry.call.as_ref().map(|call| call.held).unwrap_or_default();
                plain("held", "", format!("{} set aside", show::money(&held)), None)
            }
            EntryKind::Settlement { charged, written_off, usage, .. } => Self {
                charged: Some(charged),
                ..plain("settled", "", spent(&usage, written_off), minus(&charged))
            },
            EntryKind::Void { reason } => {
                plain("void", "warn", reason.as_str().to_owned(), Some(show::money(&Nanousd::ZERO)))
            }
            EntryKind::Refund { id, hold, amount } => {
                plain("refund", "good", format!("{id}, of {hold}"), plus(&amount))
            }
            EntryKind::InDoubt { charged } => Self {
                charged: Some(charged),
                ..plain("in doubt", "bad", "a crash ended it".to_owned(), minus(&charged))
            },
            EntryKind::SuspenseCharged { node, amount } => {
                plain("suspense", "bad", format!("node {node} was lost"), minus(&amount))
            }
            EntryKind::SuspenseReturned { node, amount } => {
                plain("suspense", "good", format!("node {node} came back"), plus(&amount))
            }
        }
    }
}

fn spent(usage: &Usage, written_off: Nanousd) -> String {
    if written_off.is_zero() {
        return used(usage);
    }
    format!("{}, {} written off", used(usage), show::money(&written_off))
}

/// What a call has used, in a few words.
pub(super) fn used(usage: &Usage) -> String {
    let input = usage.input_tokens.saturating_add(usage.cache_read_tokens);
    let input = input.saturating_add(usage.cache_write_tokens);
    let input = input.saturating_add(usage.cache_write_1h_tokens);
    let parts = [
        (input, "input tokens"),
        (usage.output_tokens, "output tokens"),
        (usage.images, "images"),
        (usage.seconds, "seconds"),
        (usage.characters, "characters"),
    ];
    let used = parts.iter().filter(|(count, _)| *count > 0);
    let used: Vec<_> = used.map(|(count, what)| format!("{} {what}", show::count(count))).collect();
    if used.is_empty() { "nothing".to_owned() } else { used.join(", ") }
}

/// `GET /operator/customers/{account}/entries`
pub(super) async fn page(
    Visit { operator, account }: Visit,
    Asked(wanted): Asked<Wanted>,
) -> Response {
    shown(&operator, operator.frame(HERE), Typed::default(), (account, wanted)).await
}

async fn shown(
    operator: &Operator,
    frame: Frame,
    typed: Typed,
    (account, wanted): (Account, Wanted),
) -> Response {
    let entries = operator.ledger().entries(account.id, wanted.before, PAGE + 1).await;
    let mut entries = match entries {
        Ok(entries) => entries,
        Err(error) => return operator.failed(error),
    };
    let has_more = entries.len() > PAGE;
    entries.truncate(PAGE);
    let last = entries.last().filter(|_| has_more).map(|last| last.seq);
    Page(Entries {
        frame,
        head: Head::of(operator.ledger(), &account, "/entries"),
        sent: typed.text("hold").to_owned(),
        typed,
        once: new_once(),
        rows: entries.into_iter().map(Row::from).collect(),
        older: last.map(|seq| format!("?before={seq}")),
    })
    .into_response()
}

/// `POST /operator/customers/{account}/refunds`
pub(super) async fn refund(Visit { operator, account }: Visit, typed: Typed) -> Response {
    match refunded(&operator, account.id, &typed).await {
        Ok(()) => done::then(&format!("/customers/{}/entries", account.id), "refunded"),
        Err(unfit) => {
            let (status, typed, frame) = typed.refused(unfit, operator.frame(HERE));
            let page = shown(&operator, frame, typed, (account, Wanted::default())).await;
            (status, page).into_response()
        }
    }
}

async fn refunded(operator: &Operator, account: AccountId, typed: &Typed) -> Fit<()> {
    let unknown = || ApiError::invalid("hold", "There is no such call.");
    let hold: HoldId = typed.text("hold").parse().map_err(|_| unknown())?;
    let amount = typed.amount("amount")?;
    let id = noted("", typed.once()?);
    let given = operator.by(typed)?.refund(account, &id, hold, amount).await;
    given.map_err(|error| at_amount("amount", error))?;
    Ok(())
}
