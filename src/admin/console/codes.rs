//! Codes that customers redeem or sign up with: made (a code is shown once), listed, revoked.

use askama::Template;
use axum::extract::Path;
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;

use super::access::{Asked, Operator};
use super::done;
use super::form::{Fit, Typed, Unfit, new_once};
use crate::admin::error::ApiError;
use crate::clock::UnixMs;
use crate::ledger::{CodeId, CodeKind, IssuedCode, NewCode};
use crate::secret::Secret;
use crate::web::{Frame, Page, Tone, show};

/// The way through the console.
const HERE: &str = "/codes";
/// Codes on one page.
const PAGE: usize = 50;
/// The longest note, in bytes: that of the ledger.
const NOTE_BYTES_MAX: usize = 256;

/// Which of them.
#[derive(Default, Deserialize)]
pub(super) struct Wanted {
    after: Option<CodeId>,
}

#[derive(Template)]
#[template(path = "operator_codes.html")]
struct Codes {
    frame: Frame,
    typed: Typed,
    once: String,
    /// The code that was just made.
    made: Option<Secret>,
    rows: Vec<IssuedCode>,
    now: UnixMs,
    older: Option<String>,
}

/// `GET /operator/codes`
pub(super) async fn page(operator: Operator, Asked(wanted): Asked<Wanted>) -> Response {
    shown(&operator, operator.frame(HERE), Typed::default(), (wanted, None)).into_response()
}

fn shown(
    operator: &Operator,
    frame: Frame,
    typed: Typed,
    (wanted, made): (Wanted, Option<Secret>),
) -> Page<Codes> {
    let ledger = operator.ledger();
    let place = |issued: &IssuedCode| (issued.code.created_at, issued.code.id);
    let after = wanted.after.and_then(|id| ledger.code(id)).map(|after| place(&after));
    let mut rows = ledger.codes();
    rows.retain(|issued| after.is_none_or(|after| place(issued) < after));
    rows.reverse();
    let has_more = rows.len() > PAGE;
    rows.truncate(PAGE);
    let last = rows.last().filter(|_| has_more).map(|last| last.code.id);
    let older = last.map(|id| format!("?after={id}"));
    Page(Codes { frame, typed, once: new_once(), made, rows, now: UnixMs::now(), older })
}

/// `POST /operator/codes`
pub(super) async fn create(operator: Operator, typed: Typed) -> Response {
    let frame = operator.frame(HERE);
    match made(&operator, &typed).await {
        Ok(made) => {
            let frame = match made {
                Some(_) => frame,
                None => {
                    frame.saying(Tone::Bad, "This code was made before. It is not shown again.")
                }
            };
            let none = Wanted::default();
            shown(&operator, frame, Typed::default(), (none, made)).into_response()
        }
        Err(unfit) => {
            let (status, typed, frame) = typed.refused(unfit, frame);
            let page = shown(&operator, frame, typed, (Wanted::default(), None));
            (status, page).into_response()
        }
    }
}

async fn made(operator: &Operator, typed: &Typed) -> Fit<Option<Secret>> {
    let kind = match typed.text("kind") {
        "credit" => CodeKind::Credit,
        "invite" => CodeKind::Invite,
        _ => return Err(Unfit::Field("kind", "Either credit or an invite.".to_owned())),
    };
    let amount = match kind {
        CodeKind::Credit => Some(typed.amount("amount")?),
        CodeKind::Invite => typed.amount_or_none("amount")?.filter(|amount| !amount.is_zero()),
    };
    let new = NewCode {
        kind,
        amount,
        uses_max: typed.count("uses_max")?.map_or(1, u32::from),
        expires_at: typed.time("expires_at")?,
        note: typed.line("code_note", NOTE_BYTES_MAX)?.to_owned(),
    };
    Ok(operator.by(typed)?.create_code(new).await?.value.0)
}

/// `POST /operator/codes/{code}/revoke`
pub(super) async fn revoke(operator: Operator, Path(code): Path<String>, typed: Typed) -> Response {
    let Ok(id) = code.parse::<CodeId>() else {
        return operator.failed(ApiError::not_found("There is no such code."));
    };
    match revoked(&operator, id, &typed).await {
        Ok(()) => done::then(HERE, "revoked"),
        Err(Unfit::Whole(error)) => operator.failed(error),
        Err(Unfit::Field(_, text)) => operator.failed(ApiError::malformed(text)),
    }
}

async fn revoked(operator: &Operator, id: CodeId, typed: &Typed) -> Fit<()> {
    operator.by(typed)?.revoke_code(id).await?;
    Ok(())
}

/// How a code is doing, and a class of the style sheet.
fn state(issued: &IssuedCode, now: UnixMs) -> (&'static str, &'static str) {
    let is_expired = issued.code.expires_at.is_some_and(|at| at <= now);
    let is_used_up = issued.used as u64 >= u64::from(issued.code.uses_max);
    match (issued.revoked_at, is_expired, is_used_up) {
        (Some(_), _, _) => ("revoked", "bad"),
        (None, _, true) => ("used up", ""),
        (None, true, false) => ("expired", "warn"),
        (None, false, false) => ("usable", "good"),
    }
}
