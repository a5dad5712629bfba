//! The journal: whether it is in order, and all of it for other programs.

use askama::Template;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;

use super::access::{LenientQuery, LoggedInOperator};
use crate::ledger::{self, JournalReportView};
use crate::request::Params;
use tollgate_ledger::{AccountId, ExportFormat, Seq};
use tollgate_web_kit::{FlashLevel, HtmlPage, PageFrame, new_submit_token, show};

/// Entry of the navigation.
const HERE: &str = "/ledger";
/// Maximum number of listed violations: one is enough to stop and investigate.
const VIOLATIONS_MAX: usize = 50;

#[derive(Template)]
#[template(path = "operator_ledger.html")]
struct LedgerPage {
    frame: PageFrame,
    once: String,
    verified: Option<JournalReportView>,
}

/// `GET /operator/ledger`
pub(super) async fn page(operator: LoggedInOperator) -> Response {
    HtmlPage(LedgerPage { frame: operator.frame(HERE), once: new_submit_token(), verified: None })
        .into_response()
}

/// `POST /operator/ledger/verify`: reads all of it, which takes a while and changes nothing.
pub(super) async fn verify(operator: LoggedInOperator) -> Response {
    let mut verified = match ledger::verify(State(operator.admin().clone())).await {
        Ok(verified) => verified.0,
        Err(error) => return operator.failed(error),
    };
    verified.violations.truncate(VIOLATIONS_MAX);
    let (level, text) = if verified.ok {
        (FlashLevel::Success, "The journal is in order.")
    } else {
        (
            FlashLevel::Error,
            "The journal is not in order. Keep a copy of the data directory, and look.",
        )
    };
    let frame = operator.frame(HERE).with_flash(level, text);
    HtmlPage(LedgerPage { frame, once: new_submit_token(), verified: Some(verified) })
        .into_response()
}

/// Parameters of an export, as typed.
#[derive(Default, Deserialize)]
pub(super) struct TypedExport {
    #[serde(default)]
    format: String,
    #[serde(default)]
    account: String,
    #[serde(default)]
    from_seq: String,
}

/// `GET /operator/ledger/export`: a file to keep.
pub(super) async fn export(
    operator: LoggedInOperator,
    LenientQuery(typed): LenientQuery<TypedExport>,
) -> Response {
    let (account, from_seq) = (typed.account.trim(), typed.from_seq.trim());
    let (account, from_seq) = match (whole::<AccountId>(account), whole::<Seq>(from_seq)) {
        (Ok(account), Ok(from_seq)) => (account, from_seq),
        _ => {
            let text =
                "Nothing was exported: the customer is an id, and the first record a number.";
            let frame = operator.frame(HERE).with_flash(FlashLevel::Error, text);
            let page = HtmlPage(LedgerPage { frame, once: new_submit_token(), verified: None });
            return (StatusCode::UNPROCESSABLE_ENTITY, page).into_response();
        }
    };
    let (format, name) = match typed.format.as_str() {
        "focus" => (ExportFormat::Focus, "attachment; filename=\"focus.csv\""),
        "csv" => (ExportFormat::Csv, "attachment; filename=\"ledger.csv\""),
        // `attachment`: a browser would otherwise render megabytes of records in the tab.
        _ => (ExportFormat::Jsonl, "attachment; filename=\"ledger.jsonl\""),
    };
    let typed = ledger::ExportQuery { from_seq, format: Some(format), account };
    match ledger::export(State(operator.admin().clone()), Params(typed)).await {
        Ok(exported) => ([(header::CONTENT_DISPOSITION, name)], exported).into_response(),
        Err(error) => operator.failed(error),
    }
}

/// A value, or none where nothing was form.
fn whole<T: std::str::FromStr>(text: &str) -> Result<Option<T>, T::Err> {
    if text.is_empty() { Ok(None) } else { text.parse().map(Some) }
}
