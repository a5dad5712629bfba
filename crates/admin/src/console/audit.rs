//! The audit log, newest first: of all writes, or of those to one customer's account.

use askama::Template;
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;

use super::access::{LenientQuery, LoggedInOperator, Visit};
use super::customer::{self, CustomerHead};
use tollgate_ledger::{AccountId, LedgerError, ListedAct, Seq};
use tollgate_web_kit::{HtmlPage, PageFrame, cut_page, show};

/// Acts on one page.
const PAGE: usize = 50;

/// Filter of the audit log, from the address.
#[derive(Default, Deserialize)]
pub(super) struct AuditPosition {
    before: Option<Seq>,
}

#[derive(Template)]
#[template(path = "operator_audit.html")]
struct AuditPage {
    frame: PageFrame,
    acts: Vec<ListedAct>,
    older: Option<String>,
}

#[derive(Template)]
#[template(path = "operator_customer_audit.html")]
struct CustomerAuditPage {
    frame: PageFrame,
    head: CustomerHead,
    acts: Vec<ListedAct>,
    older: Option<String>,
}

/// `GET /operator/audit`
pub(super) async fn page(
    operator: LoggedInOperator,
    LenientQuery(query): LenientQuery<AuditPosition>,
) -> Response {
    match acts(&operator, None, query).await {
        Ok((acts, older)) => {
            HtmlPage(AuditPage { frame: operator.frame("/audit"), acts, older }).into_response()
        }
        Err(error) => operator.failed(error),
    }
}

/// `GET /operator/customers/{account}/audit`
pub(super) async fn of_customer(
    Visit { operator, account }: Visit,
    LenientQuery(query): LenientQuery<AuditPosition>,
) -> Response {
    let head = CustomerHead::new(operator.ledger(), &account, "/audit");
    match acts(&operator, Some(account.id), query).await {
        Ok((acts, older)) => {
            let frame = operator.frame(customer::HERE);
            HtmlPage(CustomerAuditPage { frame, head, acts, older }).into_response()
        }
        Err(error) => operator.failed(error),
    }
}

/// A page of acts, and the way to the next.
async fn acts(
    operator: &LoggedInOperator,
    account: Option<AccountId>,
    query: AuditPosition,
) -> Result<(Vec<ListedAct>, Option<String>), LedgerError> {
    let mut acts = operator.ledger().acts(account, query.before, PAGE + 1).await?;
    let last = cut_page(&mut acts, PAGE, |last| last.seq);
    Ok((acts, last.map(|seq| format!("?before={seq}"))))
}
