//! Sessions in a fleet: a log-out at one node holds at all of them, also after a restart.

use std::time::{Duration, Instant};

use super::place::{Fleet, shared};
use crate::harness::nodes::{ADMIN_TOKEN, Node, Nodes};
use crate::harness::{Pages, Visitor, within_async};

/// Time that docs/fleet.md promises, as for revoked keys.
const WITHIN: Duration = Duration::from_secs(1);
/// Longer than a new account takes to be known everywhere on a busy machine.
const SPREAD_WITHIN: Duration = Duration::from_secs(20);

fn console(node: &Node) -> String {
    format!("http://{}/console", node.listen)
}

fn admin(node: &Node) -> String {
    format!("http://{}", node.admin)
}

/// Status of a customers' console for this cookie.
async fn customer_at(node: &Node, cookie: &str) -> u16 {
    let visitor = Visitor::new(console(node));
    visitor.keep(cookie);
    visitor.get("").await.status
}

/// Status of the operators' console for this cookie.
async fn operator_at(node: &Node, cookie: &str) -> u16 {
    let pages = Pages::at(&admin(node));
    pages.set_cookie(Some(cookie));
    pages.get("/operator").await.status
}

/// Waits until each node answers so, and says how long it took.
async fn all_answer(nodes: &Nodes, status: u16, status_at: impl AsyncFn(&Node) -> u16) -> Duration {
    let begun = Instant::now();
    for (node, number) in nodes.nodes.iter().zip(0..) {
        let time = SPREAD_WITHIN.saturating_sub(begun.elapsed());
        let message = format!("node {number} answers {status}");
        within_async(time, &message, async || status_at(node).await == status).await;
    }
    begun.elapsed()
}

/// Restarts the second node in good order, and kills the third.
fn restart(nodes: &mut Nodes) {
    let [_, second, third] = &mut nodes.nodes[..] else { panic!("three nodes") };
    second.signal("TERM");
    assert!(second.wait().success(), "exit 0: {}", second.log());
    third.kill();
    for node in [second, third] {
        node.start();
        node.await_ready();
    }
}

async fn signed_up(nodes: &Nodes, email: &str) -> Visitor {
    let visitor = Visitor::new(console(&nodes.nodes[0]));
    assert_eq!(visitor.get("/signup").await.status, 200);
    let password = "correct horse battery";
    let fields = [("name", "Ann"), ("email", email), ("password", password), ("code", "")];
    let answer = visitor.post("/signup", &fields).await;
    assert_eq!((answer.status, answer.location()), (303, "/console"), "{answer:?}");
    assert_eq!(visitor.get("").await.status, 200);
    visitor
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "puts a fleet under load and breaks it"]
async fn a_customer_who_logs_out_at_one_node_is_logged_out_at_all() {
    let (_, _, url) = shared("customers_out");
    let mut fleet = Fleet::start(&url, None, "2s");
    let ann = signed_up(&fleet.nodes, "ann@a.example").await;
    let bob = signed_up(&fleet.nodes, "bob@a.example").await;
    let (out, stays) = (ann.cookie(), bob.cookie());
    for cookie in [&out, &stays] {
        all_answer(&fleet.nodes, 200, async |node| customer_at(node, cookie).await).await;
    }
    assert_eq!(ann.post("/logout", &[]).await.status, 303);
    let took = all_answer(&fleet.nodes, 303, async |node| customer_at(node, &out).await).await;
    assert!(took < WITHIN, "{took:?}");
    restart(&mut fleet.nodes);
    for node in &fleet.nodes.nodes {
        assert_eq!(customer_at(node, &out).await, 303, "refused after a start");
        assert_eq!(customer_at(node, &stays).await, 200, "another session goes on");
    }
    fleet.nodes.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "puts a fleet under load and breaks it"]
async fn an_operator_who_logs_out_at_one_node_is_logged_out_at_all() {
    let (_, _, url) = shared("operators_out");
    let mut fleet = Fleet::start(&url, None, "2s");
    let mut sessions = Vec::new();
    for _ in 0..2 {
        let pages = Pages::at(&admin(&fleet.nodes.nodes[0]));
        let page = pages.get("/operator/login").await;
        let answer = pages.fill(&page, "/operator/login", &[("token", ADMIN_TOKEN)]).await;
        assert_eq!((answer.status, answer.location()), (303, "/operator"), "{answer:?}");
        sessions.push((pages.cookie().expect("a cookie"), pages));
    }
    let [(out, pages), (stays, _)] = &sessions[..] else { panic!("two sessions") };
    for node in &fleet.nodes.nodes {
        assert_eq!(operator_at(node, out).await, 200, "logged in at each node");
    }
    let overview = pages.get("/operator").await;
    let answer = pages.fill(&overview, "/operator/logout", &[]).await;
    assert_eq!((answer.status, answer.location()), (303, "/operator/login"), "{answer:?}");
    let took = all_answer(&fleet.nodes, 303, async |node| operator_at(node, out).await).await;
    assert!(took < WITHIN, "{took:?}");
    restart(&mut fleet.nodes);
    for node in &fleet.nodes.nodes {
        assert_eq!(operator_at(node, out).await, 303, "refused after a start");
        assert_eq!(operator_at(node, stays).await, 200, "another session goes on");
    }
    fleet.nodes.stop();
}
