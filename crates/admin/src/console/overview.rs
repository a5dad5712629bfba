//! The first page: how the gateway is doing. A script asks for its figures again every few seconds.

use askama::Template;
use axum::response::{IntoResponse as _, Response};

use super::access::LoggedInOperator;
use super::series::{self, DayTotal, Hour};
use crate::upstreams::{self, TargetState};
use tollgate_fleet::HasFleet;
use tollgate_ledger::{LedgerError, Totals};
use tollgate_money::money::Nanousd;
use tollgate_telemetry::metrics::Minute;
use tollgate_types::clock::UnixMs;
use tollgate_web_kit::{HtmlPage, PageFrame, show};

#[derive(Template)]
#[template(path = "operator_overview.html")]
struct OverviewPage {
    frame: PageFrame,
    figures: OverviewFigures,
    requests_chart: String,
    ttfb_chart: String,
    /// Data of the charts by hour, newest first.
    hours: Vec<Hour>,
    spend_chart: String,
    days: Vec<DayTotal>,
}

/// The part of the overview page that is refreshed.
#[derive(Template)]
#[template(path = "operator_figures.html")]
struct OverviewFragment {
    base: &'static str,
    figures: OverviewFigures,
}

struct OverviewFigures {
    at: UnixMs,
    version: &'static str,
    hash: String,
    loaded_at: UnixMs,
    now: Option<Minute>,
    spent_hour: Nanousd,
    spent_today: Nanousd,
    in_flight: u64,
    open_holds: u64,
    totals: Totals,
    /// The fleet in a line; `None` in a single gateway.
    fleet: Option<String>,
    upstreams: Vec<UpstreamSummary>,
    warnings: Vec<Warning>,
}

struct UpstreamSummary {
    name: String,
    healthy: bool,
    in_flight: u32,
    open: usize,
    targets: usize,
}

/// A problem that needs attention, with a link.
struct Warning {
    text: String,
    path: &'static str,
}

/// `GET /operator`
pub(super) async fn page(operator: LoggedInOperator) -> Response {
    match overview(&operator).await {
        Ok(page) => HtmlPage(page).into_response(),
        Err(error) => operator.failed(error),
    }
}

async fn overview(operator: &LoggedInOperator) -> Result<OverviewPage, LedgerError> {
    let minutes = operator.admin().metrics.recent().minutes;
    let now = UnixMs::now();
    let days = series::days(operator.ledger(), now).await?;
    Ok(OverviewPage {
        frame: operator.frame(""),
        figures: figures(operator).await?,
        requests_chart: series::requests(&minutes),
        ttfb_chart: series::ttfb(&minutes),
        hours: series::hours(&minutes),
        spend_chart: series::spend(&days, now),
        days,
    })
}

/// `GET /operator/figures`
pub(super) async fn refreshed(operator: LoggedInOperator) -> Response {
    match figures(&operator).await {
        Ok(figures) => HtmlPage(OverviewFragment { base: super::BASE, figures }).into_response(),
        Err(error) => operator.failed(error),
    }
}

async fn figures(operator: &LoggedInOperator) -> Result<OverviewFigures, LedgerError> {
    let admin = operator.admin();
    let totals = admin.ledger.totals().await?;
    let at = UnixMs::now();
    let (spent_hour, spent_today) = series::spent(&admin.ledger, at).await?;
    let upstreams = upstreams(operator);
    let warnings = warnings(operator, &upstreams).await?;
    Ok(OverviewFigures {
        at,
        now: admin.metrics.recent().now,
        spent_hour,
        spent_today,
        version: env!("CARGO_PKG_VERSION"),
        hash: admin.config.load().hash.clone(),
        loaded_at: admin.config.loaded_at(),
        in_flight: admin.metrics.in_flight(),
        open_holds: admin.ledger.open_holds(),
        totals,
        fleet: fleet(operator).await,
        upstreams,
        warnings,
    })
}

/// The fleet in a line, as it was seen in the last seconds.
async fn fleet(operator: &LoggedInOperator) -> Option<String> {
    // The node's copy of the last seconds: every open tab asks for it again and again, and the database is
    // shared.
    let seen = operator.ledger().fleet()?.overview().await;
    let unseen = || "The database of the fleet has not answered yet".to_owned();
    Some(seen.map_or_else(unseen, |overview| super::fleet::line(&overview)))
}

fn upstreams(operator: &LoggedInOperator) -> Vec<UpstreamSummary> {
    let seen = upstreams::seen(operator.admin()).upstreams;
    let one = |upstream: upstreams::UpstreamView| {
        let is_open = |target: &&upstreams::TargetView| matches!(target.state, TargetState::Open);
        UpstreamSummary {
            open: upstream.targets.iter().filter(is_open).count(),
            targets: upstream.targets.len(),
            name: upstream.name,
            healthy: upstream.healthy,
            in_flight: upstream.in_flight,
        }
    };
    seen.into_iter().map(one).collect()
}

async fn warnings(
    operator: &LoggedInOperator,
    upstreams: &[UpstreamSummary],
) -> Result<Vec<Warning>, LedgerError> {
    let admin = operator.admin();
    let holds = admin.ledger.in_doubt().await?.len();
    let tasks = admin.ledger.tasks_in_doubt().await?.len();
    let open = upstreams.iter().filter(|one| one.open > 0).count();
    let unhealthy = upstreams.iter().filter(|one| !one.healthy).count();
    let counted = |count: usize, one: &str, many: &str, path| {
        let text = if count == 1 { format!("1 {one}") } else { format!("{count} {many}") };
        (count > 0).then_some(Warning { text, path })
    };
    let reload = admin.config.last_reload();
    let reload = reload.filter(|last| last.result.is_err()).map(|_| Warning {
        text: "The last reload was refused: the files are not in order.".to_owned(),
        path: "/configuration",
    });
    let all = [
        counted(holds, "call is in doubt", "calls are in doubt", "/in-doubt"),
        counted(tasks, "task is in doubt", "tasks are in doubt", "/in-doubt"),
        counted(
            open,
            "upstream has a target that gets no calls",
            "upstreams have targets that get no calls",
            "/upstreams",
        ),
        counted(
            unhealthy,
            "upstream fails its health check",
            "upstreams fail their health checks",
            "/upstreams",
        ),
        reload,
        admin.ledger.projection_state().away.map(|cause| Warning {
            text: format!(
                "Statements, usage and ended tasks cannot be read at the moment: {cause}."
            ),
            path: "",
        }),
        admin.reason_against().map(|reason| Warning {
            text: format!("This process is {reason}: it wants no requests."),
            path: "",
        }),
    ];
    Ok(all.into_iter().flatten().collect())
}

/// Requests per second, with a useful number of digits.
#[expect(clippy::cast_precision_loss, reason = "requests of a minute are far below 2^53")]
fn rate(minute: &Minute) -> String {
    let rate = minute.requests() as f64 / minute.seconds.max(1.0);
    if rate < 10.0 { format!("{rate:.2}") } else { format!("{rate:.0}") }
}
