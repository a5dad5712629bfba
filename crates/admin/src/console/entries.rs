//! Statement of a customer's account, and refunds of calls.

use askama::Template;
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;

use super::access::{LenientQuery, LoggedInOperator, Visit};
use super::customer::{CustomerHead, HERE, movement_id};
use super::done;
use super::form::{self, FormResult};
use crate::error::ApiError;
use tollgate_ledger::{Account, AccountId, EntryKind, HoldId, Seq, StatementCall, StatementEntry};
use tollgate_money::money::Nanousd;
use tollgate_money::price::{Side, Usage};
use tollgate_types::clock::UnixMs;
use tollgate_web_kit::{Form, HtmlPage, PageFrame, cut_page, new_submit_token, show};

/// Entries on one page.
const PAGE: usize = 50;

/// Position in the statement: before this record.
#[derive(Default, Deserialize)]
pub(super) struct StatementQuery {
    before: Option<Seq>,
}

#[derive(Template)]
#[template(path = "operator_entries.html")]
struct EntriesPage {
    frame: PageFrame,
    head: CustomerHead,
    form: Form,
    once: String,
    /// The hold of the form that was sent.
    sent: String,
    rows: Vec<EntryRow>,
    older: Option<String>,
}

struct EntryRow {
    at: UnixMs,
    what: &'static str,
    /// A class of the style sheet.
    badge_class: &'static str,
    detail: String,
    call: Option<StatementCall>,
    amount: Option<String>,
    /// Maximum amount of a refund.
    charged: Option<Nanousd>,
}

impl From<StatementEntry> for EntryRow {
    fn from(entry: StatementEntry) -> Self {
        let plain = |what, badge_class, detail: String, amount| Self {
            at: entry.at,
            what,
            badge_class,
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
            EntryKind::Settlement { charged, owed, written_off, usage, .. } => Self {
                charged: Some(charged),
                ..plain("settled", "", spent(&usage, owed, written_off), minus(&charged))
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
            EntryKind::DebtPayment { amount } => {
                plain("debt paid", "", "what was owed".to_owned(), minus(&amount))
            }
            EntryKind::CreditLine { limit, lent, withdrawn, owed } => {
                let mut text = format!("set to {}", show::money(&limit));
                if !owed.is_zero() {
                    text.push_str(&format!(", {} owed", show::money(&owed)));
                }
                let moved = if lent.is_zero() { minus(&withdrawn) } else { plus(&lent) };
                plain("credit line", "", text, moved)
            }
            EntryKind::WriteOff { id, amount, note } => {
                let text = format!("{} not owed any more: {note} ({id})", show::money(&amount));
                plain("written off", "warn", text, None)
            }
            EntryKind::SuspenseCharged { node, amount } => {
                plain("suspense", "bad", format!("node {node} was lost"), minus(&amount))
            }
            EntryKind::SuspenseReturned { node, amount } => {
                plain("suspense", "good", format!("node {node} came back"), plus(&amount))
            }
        }
    }
}

fn spent(usage: &Usage, owed: Nanousd, written_off: Nanousd) -> String {
    let mut text = used(usage);
    for (amount, what) in [(owed, "owed"), (written_off, "written off")] {
        if !amount.is_zero() {
            text.push_str(&format!(", {} {what}", show::money(&amount)));
        }
    }
    text
}

/// Usage of a call, in a few words.
pub(super) fn used(usage: &Usage) -> String {
    let tokens =
        [(usage.total(Side::Input), "input tokens"), (usage.total(Side::Output), "output tokens")];
    let made = usage.shown().filter(|(unit, _)| unit.side == Side::Made);
    let parts = tokens.into_iter().chain(made.map(|(unit, count)| (count, unit.name)));
    let used = parts.filter(|(count, _)| *count > 0);
    let used: Vec<_> =
        used.map(|(count, what)| format!("{} {what}", show::count(&count))).collect();
    if used.is_empty() { "nothing".to_owned() } else { used.join(", ") }
}

/// `GET /operator/customers/{account}/entries`
pub(super) async fn page(
    Visit { operator, account }: Visit,
    LenientQuery(query): LenientQuery<StatementQuery>,
) -> Response {
    render(&operator, operator.frame(HERE), Form::default(), account, query).await
}

async fn render(
    operator: &LoggedInOperator,
    frame: PageFrame,
    form: Form,
    account: Account,
    query: StatementQuery,
) -> Response {
    let entries = operator.ledger().entries(account.id, query.before, PAGE + 1).await;
    let mut entries = match entries {
        Ok(entries) => entries,
        Err(error) => return operator.failed(error),
    };
    let last = cut_page(&mut entries, PAGE, |last| last.seq);
    HtmlPage(EntriesPage {
        frame,
        head: CustomerHead::new(operator.ledger(), &account, "/entries"),
        sent: form.text("hold").to_owned(),
        form,
        once: new_submit_token(),
        rows: entries.into_iter().map(EntryRow::from).collect(),
        older: last.map(|seq| format!("?before={seq}")),
    })
    .into_response()
}

/// `POST /operator/customers/{account}/refunds`
pub(super) async fn refund(Visit { operator, account }: Visit, form: Form) -> Response {
    match submit_refund(&operator, account.id, &form).await {
        Ok(()) => done::redirect(&format!("/customers/{}/entries", account.id), "refunded"),
        Err(error) => {
            let (status, form, frame) = form::refuse(form, error, operator.frame(HERE));
            let page = render(&operator, frame, form, account, StatementQuery::default()).await;
            (status, page).into_response()
        }
    }
}

async fn submit_refund(
    operator: &LoggedInOperator,
    account: AccountId,
    form: &Form,
) -> FormResult<()> {
    let unknown = || ApiError::invalid("hold", "There is no such call.");
    let hold: HoldId = form.text("hold").parse().map_err(|_| unknown())?;
    let amount = form.amount_above_zero("amount")?;
    // The form's token is the id of the refund, so that a form sent twice refunds once.
    let id = movement_id("", form::require_token(form)?);
    let given = operator.by(form)?.refund(account, &id, hold, amount).await;
    given.map_err(|error| form::refuse_amount("amount", error))?;
    Ok(())
}
