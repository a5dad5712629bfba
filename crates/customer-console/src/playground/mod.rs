//! The playground: calls to the gateway's own public endpoints from a page, with a key for an hour.
//!
//! The page's script makes the calls, as any program of the customer's would: they are authenticated,
//! limited and billed by the same code. The page asks the console for two things: a key, and what a
//! call was billed.

mod models;

use askama::Template;
use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::address::GatewayUrl;
use super::customer::{LoggedInCustomer, PageResult};
use super::playground_keys::{self, KEY_LIFETIME_MS, KEY_NAME};
use super::{CustomerConsole, keys};
use tollgate_ledger::{CallMoney, CallName, EntryKind, LedgerError, NewKey, RequestId};
use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;
use tollgate_web_kit::{Form, HtmlPage, PageFrame, ShowsMedia};

#[derive(Template)]
#[template(path = "customer_playground.html")]
struct Playground {
    frame: PageFrame,
    /// Configuration of the page's script, as JSON.
    setup: String,
    has_models: bool,
    suspended: bool,
    script: String,
}

/// `GET /playground`
pub(super) async fn page(
    State(console): State<CustomerConsole>,
    customer: LoggedInCustomer,
    url: GatewayUrl,
) -> Response {
    let frame = customer.frame(&console, "/playground");
    let models = models::all(&console.config.load());
    let setup = json!({
        "url": url.0,
        "csrf": frame.csrf,
        "account": customer.account.id,
        "key": console.at("/playground/key"),
        "cost": console.at("/playground/cost"),
        "models": models,
    });
    let page = Playground {
        script: format!("{}/playground.js", frame.assets),
        has_models: !models.is_empty(),
        suspended: customer.is_suspended(),
        setup: setup.to_string(),
        frame,
    };
    let mut response = HtmlPage(page).into_response();
    // Pictures and videos come from providers: the content policy of this page allows their origins.
    response.extensions_mut().insert(ShowsMedia);
    response
}

/// `POST /playground/key`: another key; those from before are switched off.
pub(super) async fn key(
    State(console): State<CustomerConsole>,
    customer: LoggedInCustomer,
) -> PageResult {
    if let Some(why) = keys::why_no_key(&console, &customer) {
        return Ok(refused(StatusCode::FORBIDDEN, why));
    }
    // The ledger holds every key for ever: a page that is reloaded in a loop must not fill it.
    if !console.key_makings.take(customer.account.id) {
        let text = "These are many keys in a short time. Wait half a minute and try again.";
        return Ok(refused(StatusCode::TOO_MANY_REQUESTS, text));
    }
    let failed = |error: LedgerError| {
        log::error!("the playground got no key: {error}");
        refused(StatusCode::SERVICE_UNAVAILABLE, "The gateway could not make a key.")
    };
    playground_keys::end(&console, &customer).await.map_err(failed)?;
    let until = UnixMs(UnixMs::now().0.saturating_add(KEY_LIFETIME_MS));
    let new = NewKey { name: KEY_NAME.to_owned(), expires_at: Some(until), ..NewKey::default() };
    let secret = customer.create_key(&console, new, &Form::default()).await.map_err(failed)?;
    let secret = secret.as_ref().map(tollgate_types::secret::Secret::expose);
    Ok(Json(json!({"key": secret, "until": until.0})).into_response())
}

fn refused(status: StatusCode, message: &str) -> Response {
    (status, Json(json!({"error": {"message": message}}))).into_response()
}

/// Id of the call.
#[derive(Deserialize)]
pub(super) struct CostQuery {
    request: String,
}

/// `GET /playground/cost?request=req_…`: the charge of a call of this account.
pub(super) async fn cost(
    State(console): State<CustomerConsole>,
    customer: LoggedInCustomer,
    Query(call): Query<CostQuery>,
) -> PageResult {
    let Ok(request) = call.request.parse::<RequestId>() else {
        return Ok(refused(StatusCode::NOT_FOUND, "There is no such call."));
    };
    let name = CallName::Request(request, request.began_at());
    let money = console.ledger.call_money(customer.account.id, name).await;
    match money.map_err(|error| customer.failed(&console, &error))? {
        Some(money) => Ok(Json(billed(&money)).into_response()),
        None => Ok(refused(StatusCode::NOT_FOUND, "There is no such call.")),
    }
}

/// Hold and charge of a call.
fn billed(money: &CallMoney) -> Value {
    let (charged, held) = match money.end.as_ref().map(|end| &end.kind) {
        None => (Nanousd::ZERO, money.call.held),
        Some(EntryKind::Settlement { charged, .. } | EntryKind::InDoubt { charged }) => {
            (*charged, Nanousd::ZERO)
        }
        Some(_) => (Nanousd::ZERO, Nanousd::ZERO),
    };
    json!({"charged": charged, "held": held, "settled": money.end.is_some()})
}
