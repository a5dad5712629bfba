//! The fleet that this gateway is a node of: where its money is, its nodes, and money of nodes that
//! have fallen silent, of which an operator says what becomes of it.

use std::time::Duration;

use askama::Template;
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;

use super::access::{LenientQuery, LoggedInOperator};
use super::done;
use super::form::{self, FormRejection, FormResult};
use crate::error::ApiError;
use crate::fleet;
use tollgate_fleet::Fleet;
use tollgate_fleet::postgres::{FleetOverview, LeaseFilter, LeaseOut, NodeOverview, NodeState};
use tollgate_ledger::{AccountId, LedgerError, NodeId, NodeStatus, SuspenseEnd};
use tollgate_web_kit::{Form, HtmlPage, PageFrame, new_submit_token, show};

/// Entry of the navigation.
pub(super) const HERE: &str = "/fleet";
/// Leases on one page, of each kind.
const PAGE: u32 = 50;

/// The node whose leases are listed, and where their list goes on.
#[derive(Default, Deserialize)]
pub(super) struct LeasePosition {
    node: Option<u16>,
    after: Option<AccountId>,
}

#[derive(Template)]
#[template(path = "operator_fleet.html")]
struct FleetPage {
    frame: PageFrame,
    form: Form,
    once: String,
    /// The node and account of the form that was sent.
    sent: String,
    standing: NodeStatus,
    overview: FleetOverview,
    suspense: Vec<LeaseOut>,
    more_suspense: bool,
    /// Leases of one node, if the address selects one.
    of_node: Option<NodeLeases>,
}

struct NodeLeases {
    node: u16,
    leases: Vec<LeaseOut>,
    more: Option<String>,
}

/// `GET /operator/fleet`
pub(super) async fn page(
    operator: LoggedInOperator,
    LenientQuery(filter): LenientQuery<LeasePosition>,
) -> Response {
    render(&operator, operator.frame(HERE), Form::default(), filter).await
}

async fn render(
    operator: &LoggedInOperator,
    frame: PageFrame,
    form: Form,
    filter: LeasePosition,
) -> Response {
    let (fleet, standing) =
        match (fleet::require_fleet(operator.admin()), operator.ledger().node_status()) {
            (Ok(fleet), Some(standing)) => (fleet, standing),
            (Err(error), _) => return operator.failed(error),
            (_, None) => {
                return operator.failed(ApiError::not_found(crate::error::NO_FLEET));
            }
        };
    match read(&fleet, filter).await {
        Ok((overview, (suspense, more_suspense), of_node)) => HtmlPage(FleetPage {
            frame,
            sent: form.text("about").to_owned(),
            form,
            once: new_submit_token(),
            standing,
            overview,
            suspense,
            more_suspense,
            of_node,
        })
        .into_response(),
        Err(error) => operator.failed(error),
    }
}

type FleetReading = (FleetOverview, (Vec<LeaseOut>, bool), Option<NodeLeases>);

async fn read(fleet: &Fleet, filter: LeasePosition) -> Result<FleetReading, LedgerError> {
    let overview = fleet.db().overview().await?;
    let suspended = LeaseFilter { only_suspended: true, ..LeaseFilter::default() };
    let suspense = leases(fleet, suspended).await?;
    let of_node = match filter.node.and_then(NodeId::from_number) {
        None => None,
        Some(node) => {
            let after = filter.after.map(|account| (node, account));
            let of_node = LeaseFilter { node: Some(node), after, ..LeaseFilter::default() };
            let (leases, has_more) = leases(fleet, of_node).await?;
            let node = node.number();
            let last = leases.last().filter(|_| has_more);
            let more = last.map(|last| format!("?node={node}&after={}#leases", last.account));
            Some(NodeLeases { node, leases, more })
        }
    };
    Ok((overview, suspense, of_node))
}

/// A page of leases, and whether there are more.
async fn leases(fleet: &Fleet, filter: LeaseFilter) -> Result<(Vec<LeaseOut>, bool), LedgerError> {
    // One more than is shown tells whether there are more.
    let limit = PAGE.saturating_add(1);
    let mut leases = fleet.db().leases(LeaseFilter { limit, ..filter }).await?;
    let has_more = leases.len() > PAGE as usize;
    leases.truncate(PAGE as usize);
    Ok((leases, has_more))
}

/// `POST /operator/fleet/suspense`: resolves the money that a silent node has leased from an account.
pub(super) async fn resolve(operator: LoggedInOperator, form: Form) -> Response {
    match submit_resolution(&operator, &form).await {
        Ok(()) => done::redirect(HERE, "suspense-resolved"),
        Err(error) => {
            let (status, form, frame) = form::refuse(form, error, operator.frame(HERE));
            let page = render(&operator, frame, form, LeasePosition::default()).await;
            (status, page).into_response()
        }
    }
}

async fn submit_resolution(operator: &LoggedInOperator, form: &Form) -> FormResult<()> {
    let unknown = || ApiError::not_found("Nothing of this is in suspense.");
    let node = form.text("node").parse().ok().and_then(NodeId::from_number);
    let node = node.ok_or_else(unknown)?;
    let account: AccountId = form.text("account").parse().map_err(|_| unknown())?;
    let note = form::note(form, "note")?;
    // The audit log is the only place that tells later why money was released or charged.
    if note.is_empty() {
        return Err(FormRejection::at("note", "Say what was found out."));
    }
    let end = match form.text("how") {
        "release" => SuspenseEnd::Release,
        "charge" => SuspenseEnd::Charge,
        _ => return Err(FormRejection::at("how", "Give it back, or count it as spent.")),
    };
    operator.by(form)?.resolve_suspense((node, account), end, note).await?;
    Ok(())
}

/// Identity of a lease's form among others on the page.
fn about(lease: &LeaseOut) -> String {
    format!("{}-{}", lease.node.number(), lease.account)
}

/// Duration of `ms` milliseconds.
fn took(ms: &u64) -> String {
    show::took(&Duration::from_millis(*ms))
}

/// State of a node, with its class of the style sheet.
fn state(node: &NodeOverview) -> (&'static str, &'static str) {
    let badge_class = match node.state {
        NodeState::Alive => "good",
        NodeState::Joining => "warn",
        NodeState::Silent => "bad",
        NodeState::Gone => "",
    };
    (node.state.as_str(), badge_class)
}

/// The fleet in a line, for the overview: `3 of 3 nodes alive, $0.00 in suspense`. Nodes that were
/// stopped in order are not missed.
pub(super) fn line(overview: &FleetOverview) -> String {
    let count =
        |is_so: fn(&NodeOverview) -> bool| overview.nodes.iter().filter(|node| is_so(node)).count();
    let alive = count(|node| node.state == NodeState::Alive);
    let all = count(|node| node.state != NodeState::Gone);
    let suspense = show::money(&overview.sums.money.suspense);
    format!("{alive} of {all} nodes alive, {suspense} in suspense")
}
