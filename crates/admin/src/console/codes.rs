//! Codes that customers redeem or sign up with: made (a code is shown once), listed, revoked.

use askama::Template;
use axum::extract::Path;
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;

use super::access::{LenientQuery, LoggedInOperator};
use super::done;
use super::form::{self, FormRejection, FormResult};
use crate::error::ApiError;
use tollgate_ledger::{CodeId, CodeKind, IssuedCode, NewCode};
use tollgate_types::clock::UnixMs;
use tollgate_types::secret::Secret;
use tollgate_web_kit::{FlashLevel, Form, HtmlPage, PageFrame, cut_page, new_submit_token, show};

/// Entry of the navigation.
const HERE: &str = "/codes";
/// Codes on one page.
const PAGE: usize = 50;

/// Position in the list of codes.
#[derive(Default, Deserialize)]
pub(super) struct CodesQuery {
    after: Option<CodeId>,
}

#[derive(Template)]
#[template(path = "operator_codes.html")]
struct Codes {
    frame: PageFrame,
    form: Form,
    once: String,
    /// Secret of the new code.
    made: Option<Secret>,
    rows: Vec<IssuedCode>,
    now: UnixMs,
    older: Option<String>,
}

/// `GET /operator/codes`
pub(super) async fn page(
    operator: LoggedInOperator,
    LenientQuery(query): LenientQuery<CodesQuery>,
) -> Response {
    render(&operator, operator.frame(HERE), Form::default(), query, None).into_response()
}

fn render(
    operator: &LoggedInOperator,
    frame: PageFrame,
    form: Form,
    query: CodesQuery,
    made: Option<Secret>,
) -> HtmlPage<Codes> {
    let ledger = operator.ledger();
    // Ids are random, so the cursor's place is found by the time of creation.
    let place = |issued: &IssuedCode| (issued.code.created_at, issued.code.id);
    let after = query.after.and_then(|id| ledger.code(id)).map(|after| place(&after));
    let mut rows = ledger.codes();
    rows.retain(|issued| after.is_none_or(|after| place(issued) < after));
    rows.reverse();
    let last = cut_page(&mut rows, PAGE, |last| last.code.id);
    let older = last.map(|id| format!("?after={id}"));
    HtmlPage(Codes { frame, form, once: new_submit_token(), made, rows, now: UnixMs::now(), older })
}

/// `POST /operator/codes`
pub(super) async fn create(operator: LoggedInOperator, form: Form) -> Response {
    let frame = operator.frame(HERE);
    match submit_code(&operator, &form).await {
        Ok(made) => {
            let frame = match made {
                Some(_) => frame,
                None => frame.with_flash(
                    FlashLevel::Error,
                    "This code was made before. It is not shown again.",
                ),
            };
            let none = CodesQuery::default();
            render(&operator, frame, Form::default(), none, made).into_response()
        }
        Err(error) => {
            let (status, form, frame) = form::refuse(form, error, frame);
            let page = render(&operator, frame, form, CodesQuery::default(), None);
            (status, page).into_response()
        }
    }
}

async fn submit_code(operator: &LoggedInOperator, form: &Form) -> FormResult<Option<Secret>> {
    let kind = match form.text("kind") {
        "credit" => CodeKind::Credit,
        "invite" => CodeKind::Invite,
        _ => return Err(FormRejection::at("kind", "Either credit or an invite.")),
    };
    let amount = match kind {
        CodeKind::Credit => Some(form.amount_above_zero("amount")?),
        // An invite without credit is possible: the field may be empty or zero.
        CodeKind::Invite => form.amount("amount")?.filter(|amount| !amount.is_zero()),
    };
    let new = NewCode {
        kind,
        amount,
        uses_max: form.count("uses_max")?.map_or(1, u32::from),
        expires_at: form.time("expires_at")?,
        note: form::note(form, "code_note")?.to_owned(),
    };
    Ok(operator.by(form)?.create_code(new).await?.value.0)
}

/// `POST /operator/codes/{code}/revoke`
pub(super) async fn revoke(
    operator: LoggedInOperator,
    Path(code): Path<String>,
    form: Form,
) -> Response {
    let Ok(id) = code.parse::<CodeId>() else {
        return operator.failed(ApiError::not_found("There is no such code."));
    };
    match submit_revocation(&operator, id, &form).await {
        Ok(()) => done::redirect(HERE, "revoked"),
        Err(error) => operator.failed(error.into_api_error()),
    }
}

async fn submit_revocation(operator: &LoggedInOperator, id: CodeId, form: &Form) -> FormResult<()> {
    operator.by(form)?.revoke_code(id).await?;
    Ok(())
}

/// State of a code, with its class of the style sheet.
fn state(issued: &IssuedCode, now: UnixMs) -> (&'static str, &'static str) {
    let is_expired = issued.code.expires_at.is_some_and(|at| at <= now);
    let is_used_up = issued.used as u64 >= u64::from(issued.code.uses_max);
    match (issued.revoked_at, is_expired, is_used_up) {
        (Some(_), _, _) => ("revoked", "bad"),
        // Before the expiry: a code that did its work is nothing to worry about.
        (None, _, true) => ("used up", ""),
        (None, true, false) => ("expired", "warn"),
        (None, false, false) => ("usable", "good"),
    }
}
