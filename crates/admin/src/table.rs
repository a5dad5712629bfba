//! Every path of the admin API. The router and the document at `/openapi.json` are both made from
//! this table: a path that is not in it does not exist, and none is served undescribed.

use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use once_cell::sync::Lazy;
use serde_json::Value;

use super::openapi::document_of;
use super::route::{AdminRoute, Title, get, patch, post, put};
use super::{
    accounts, audit, codes, config, entries, explain, fleet, keys, ledger, login, margins, models,
    prices, probes, requests, resolve, task_list, tasks, upstreams, usage, version,
};

const ACCOUNTS: &str = "Accounts";
const KEYS: &str = "Keys";
const MONEY: &str = "Money";
const CODES: &str = "Codes";
const AUDIT: &str = "Audit";
const TASKS: &str = "Tasks";
const REQUESTS: &str = "Requests";
const CONFIGURATION: &str = "Configuration";
const UPSTREAMS: &str = "Upstreams";
const PROBES: &str = "Probes";

const LEDGER: &str = "Ledger";
const FLEET: &str = "Fleet";

/// The time within which the journal must have been checked: the life of a connection. All of it is
/// read and applied once more.
const VERIFY_TIMEOUT: Duration = Duration::from_secs(600);

/// All entries, in the order in which the document lists them.
pub(super) fn routes() -> Vec<AdminRoute> {
    let mut routes = accounts_and_keys();
    // In the order of the chapters of the OpenAPI document.
    routes.extend(money());
    routes.extend(doubts_and_tasks());
    routes.extend(codes_and_audit());
    routes.extend(logged());
    routes.extend(journal());
    routes.extend(of_fleet());
    routes.extend(gateway());
    routes
}

fn accounts_and_keys() -> Vec<AdminRoute> {
    vec![
        get("/admin/v1/accounts", Title("listAccounts", ACCOUNTS, "List accounts"), accounts::list),
        post(
            "/admin/v1/accounts",
            Title("createAccount", ACCOUNTS, "Create an account"),
            accounts::create,
        ),
        get(
            "/admin/v1/accounts/{account}",
            Title("showAccount", ACCOUNTS, "Get an account"),
            accounts::show,
        ),
        patch(
            "/admin/v1/accounts/{account}",
            Title("updateAccount", ACCOUNTS, "Update an account"),
            accounts::update,
        ),
        put(
            "/admin/v1/accounts/{account}/login",
            Title("setLogin", ACCOUNTS, "Set the log-in of an account's customer"),
            login::put,
        )
        .or(StatusCode::CONFLICT, "Another account has this address."),
        get(
            "/admin/v1/accounts/{account}/keys",
            Title("listKeys", KEYS, "List an account's keys"),
            keys::list,
        ),
        post(
            "/admin/v1/accounts/{account}/keys",
            Title("createKey", KEYS, "Create a key; only this response contains it"),
            keys::create,
        ),
        get("/admin/v1/keys/{key}", Title("showKey", KEYS, "Get a key"), keys::show),
        patch("/admin/v1/keys/{key}", Title("updateKey", KEYS, "Update a key"), keys::update),
    ]
}

fn money() -> Vec<AdminRoute> {
    vec![
        post(
            "/admin/v1/accounts/{account}/grants",
            Title("grant", MONEY, "Grant credit, once for each id"),
            accounts::grant,
        ),
        post(
            "/admin/v1/accounts/{account}/refunds",
            Title("refund", MONEY, "Refund a settled call, fully or in part"),
            accounts::refund,
        ),
        post(
            "/admin/v1/accounts/{account}/write-offs",
            Title("writeOff", MONEY, "Write off the debt of an account, fully or in part"),
            accounts::write_off,
        ),
        get(
            "/admin/v1/accounts/{account}/entries",
            Title("listEntries", MONEY, "Ledger entries of an account, newest first"),
            entries::list,
        ),
        get(
            "/admin/v1/accounts/{account}/prices",
            Title("showPrices", MONEY, "Price rules of an account"),
            prices::show,
        ),
        put(
            "/admin/v1/accounts/{account}/prices",
            Title("setPrices", MONEY, "Set the price rules of an account"),
            prices::put,
        ),
        get(
            "/admin/v1/price-groups",
            Title("listPriceGroups", MONEY, "Price groups, by name"),
            prices::groups,
        ),
        put(
            "/admin/v1/price-groups/{group}",
            Title("setPriceGroup", MONEY, "Set a price group"),
            prices::put_group,
        ),
        get(
            "/admin/v1/prices",
            Title("listPrices", MONEY, "Price versions of charged calls, newest first"),
            prices::charged,
        ),
        get(
            "/admin/v1/accounts/{account}/usage",
            Title("showUsage", MONEY, "Usage of an account, by hour or day, key and model"),
            usage::show,
        ),
    ]
}

fn doubts_and_tasks() -> Vec<AdminRoute> {
    vec![
        get(
            "/admin/v1/holds/in-doubt",
            Title("listHoldsInDoubt", MONEY, "Holds left open by a crash, oldest first"),
            entries::in_doubt,
        ),
        post(
            "/admin/v1/holds/{hold}/resolve",
            Title("resolveHold", MONEY, "Resolve a hold in doubt"),
            resolve::hold,
        ),
        get(
            "/admin/v1/tasks",
            Title("listTasks", TASKS, "Tasks and their webhooks, newest first"),
            task_list::list,
        ),
        get(
            "/admin/v1/tasks/in-doubt",
            Title("listTasksInDoubt", TASKS, "Tasks whose submit is in doubt"),
            tasks::in_doubt,
        ),
        get(
            "/admin/v1/accounts/{account}/webhook-secret",
            Title("showWebhookSecret", TASKS, "Secret of an account's webhook signatures"),
            tasks::webhook_secret,
        ),
        post(
            "/admin/v1/accounts/{account}/tasks/{task}/announce",
            Title("announceTask", TASKS, "Send the webhook of an ended task again"),
            tasks::announce,
        )
        .or(StatusCode::BAD_REQUEST, "The task has not ended, or has no `webhook_url`."),
        get(
            "/admin/v1/accounts/{account}/tasks/{task}",
            Title("showTask", TASKS, "One task, with the customer's view of it"),
            task_list::show,
        ),
        post(
            "/admin/v1/tasks/{task}/resolve",
            Title("resolveTask", TASKS, "Resolve a task in doubt"),
            resolve::task,
        ),
    ]
}

fn codes_and_audit() -> Vec<AdminRoute> {
    vec![
        get("/admin/v1/codes", Title("listCodes", CODES, "List codes"), codes::list),
        post(
            "/admin/v1/codes",
            Title("createCode", CODES, "Create a code; only this response contains it"),
            codes::create,
        ),
        get("/admin/v1/codes/{code}", Title("showCode", CODES, "Get a code"), codes::show),
        post(
            "/admin/v1/codes/{code}/revoke",
            Title("revokeCode", CODES, "Revoke a code"),
            codes::revoke,
        ),
        get("/admin/v1/audit", Title("listActs", AUDIT, "Audit log, newest first"), audit::list),
    ]
}

fn logged() -> Vec<AdminRoute> {
    vec![
        get(
            "/admin/v1/requests",
            Title("listRequests", REQUESTS, "Finished requests, newest first"),
            requests::list,
        )
        .or(StatusCode::NOT_FOUND, "The account does not exist."),
        get(
            "/admin/v1/requests/tail",
            Title("followRequests", REQUESTS, "Finished requests as server-sent events"),
            requests::tail,
        )
        .or(StatusCode::NOT_FOUND, "The account does not exist, or the request log is off.")
        .or(StatusCode::TOO_MANY_REQUESTS, "Too many clients follow requests already."),
        get(
            "/admin/v1/requests/{request}",
            Title("showRequest", REQUESTS, "One finished request"),
            requests::show,
        ),
    ]
}

fn journal() -> Vec<AdminRoute> {
    vec![
        get(
            "/admin/v1/ledger/export",
            Title("exportLedger", LEDGER, "Export the journal's records as JSON lines or CSV"),
            ledger::export,
        ),
        get(
            "/admin/v1/ledger/losses",
            Title("listLosses", LEDGER, "Costs that no customer pays, newest first"),
            ledger::losses,
        ),
        get(
            "/admin/v1/margins",
            Title("listMargins", LEDGER, "Charges and costs by day, account, model and upstream"),
            margins::list,
        ),
        post(
            "/admin/v1/ledger/trial-balance",
            Title("showTrialBalance", LEDGER, "Trial balance of the double-entry books"),
            ledger::trial_balance,
        )
        .or(StatusCode::TOO_MANY_REQUESTS, "Too many requests read the journal already.")
        .within(VERIFY_TIMEOUT),
        post(
            "/admin/v1/ledger/verify",
            Title("verifyLedger", LEDGER, "Verify the journal up to the last record on disk"),
            ledger::verify,
        )
        .or(StatusCode::TOO_MANY_REQUESTS, "Too many requests read the journal already.")
        .within(VERIFY_TIMEOUT),
    ]
}

fn of_fleet() -> Vec<AdminRoute> {
    let none = "This gateway is in no fleet.";
    vec![
        get(
            "/admin/v1/fleet",
            Title("showFleet", FLEET, "Balances and nodes of the fleet"),
            fleet::show,
        )
        .or(StatusCode::NOT_FOUND, none),
        get(
            "/admin/v1/fleet/leases",
            Title("listLeases", FLEET, "Leases by node and account"),
            fleet::leases,
        )
        .or(StatusCode::NOT_FOUND, none),
        get(
            "/admin/v1/fleet/suspense",
            Title("listSuspense", FLEET, "Leases of silent nodes, by node and account"),
            fleet::suspense,
        )
        .or(StatusCode::NOT_FOUND, none),
        post(
            "/admin/v1/fleet/suspense/resolve",
            Title("resolveSuspense", FLEET, "Resolve money in suspense"),
            fleet::resolve,
        )
        .or(StatusCode::NOT_FOUND, "There is no such suspense, or no fleet."),
    ]
}

fn gateway() -> Vec<AdminRoute> {
    vec![
        get("/admin/v1/models", Title("listModels", CONFIGURATION, "List models"), models::list),
        get(
            "/admin/v1/upstreams",
            Title("listUpstreams", UPSTREAMS, "Health of upstreams and their targets"),
            upstreams::list,
        ),
        get(
            "/admin/v1/route",
            Title("explainRoute", UPSTREAMS, "Explain which targets a request would try"),
            explain::route,
        )
        .or(StatusCode::NOT_FOUND, "The model or key does not exist."),
        get(
            "/admin/v1/config",
            Title("showConfig", CONFIGURATION, "The running configuration, as written"),
            config::show,
        ),
        get(
            "/admin/v1/version",
            Title("showVersion", CONFIGURATION, "Versions of the program and the configuration"),
            version::show,
        ),
        post(
            "/admin/v1/reload",
            Title("reload", CONFIGURATION, "Reload the configuration files"),
            config::reload,
        ),
        get("/healthz", Title("healthz", PROBES, "Liveness of the process"), probes::healthz),
        get("/readyz", Title("readyz", PROBES, "Readiness for requests"), probes::readyz),
        get(
            "/metrics",
            Title("metrics", PROBES, "Metrics in the Prometheus text format"),
            probes::metrics,
        ),
        get("/openapi.json", Title("openapi", PROBES, "OpenAPI document"), openapi),
    ]
}

/// The document; it never changes while the process runs.
static DOCUMENT: Lazy<Value> = Lazy::new(|| document_of(&routes()).0);

/// The description of the admin API, as `GET /openapi.json` answers it.
#[must_use]
pub fn document() -> Value {
    DOCUMENT.clone()
}

/// `GET /openapi.json`. Needs no token, since it contains nothing about customers.
async fn openapi() -> Json<Value> {
    Json(document())
}
