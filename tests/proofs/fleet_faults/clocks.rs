//! Clocks that are wrong, by up to five seconds and in both directions.

use std::time::Instant;

use super::books::Books;
use super::place::{Fleet, PLENTY, Rounds, Tally, pass};
use crate::harness::load::Load;
use crate::harness::nodes::Node;
use crate::harness::postgres::{Postgres, Stop};
use crate::harness::{eventually, fake_clock};

const OFFSETS: [&str; 5] = ["-5s", "-2s", "+0s", "+2s", "+5s"];

#[test]
#[ignore = "puts a fleet under load and breaks it"]
fn wrong_clocks_change_nothing() {
    let server = Postgres::start();
    let books = Books { server: &server, database: "tollgate" };
    let mut fleet = Fleet::start(&server.url(), Some(server.port()), "2s");
    Rounds::of("clocks", 1).play(|random| {
        for node in &mut fleet.nodes.nodes {
            node.signal("TERM");
            assert!(node.wait().success(), "exit 0: {}", node.log());
        }
        server.stop(Stop::Fast);
        let mut offset = || OFFSETS[random.usize(..OFFSETS.len())];
        let (of_database, of_nodes) = (offset(), [offset(), offset(), offset()]);
        println!("the database {of_database}, the nodes {of_nodes:?}");
        server.start_with_environment(&fake_clock(of_database));
        for (node, offset) in fleet.nodes.nodes.iter_mut().zip(of_nodes) {
            node.set_clock(offset);
            node.start();
        }
        fleet.nodes.nodes.iter().for_each(|node| node.await_ready());
        let customer = fleet.nodes.customer(PLENTY);
        let load = Load::start(&fleet.calling(&[&customer.key]));
        pass(1500);
        // No term ends early: nobody is in suspense, everybody serves.
        assert_eq!(books.account(&customer.account).suspense, 0);
        fleet.wire().cut();
        pass(3000);
        eventually("suspense", || books.account(&customer.account).suspense > 0);
        fleet.wire().resume();
        let back = Instant::now();
        eventually("calls at the node again", || {
            load.so_far().iter().any(|call| call.node == 0 && call.status == 200 && call.at > back)
        });
        let calls = load.stop();
        let odd =
            calls.iter().find(|call| call.status != 200 && !(call.node == 0 && call.status == 503));
        let logs = fleet.nodes.nodes.iter().map(Node::warnings).collect::<Vec<_>>().join("\n---\n");
        assert!(odd.is_none(), "{odd:?} of {}\n{logs}\n{}", Tally(&calls), server.log());
        books.balanced(&fleet.nodes, &customer.account, &calls);
    });
    fleet.nodes.stop();
    books.all_is_back();
}
