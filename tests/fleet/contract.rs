//! The contract of a treasury: the rules and the database give the same answers and have the same
//! rows after the same operations, and the database's own faults make no difference.
//!
//! `TOLLGATE_PROOF_PERCENT` says how many seeds run, `TOLLGATE_CONTRACT_SEED` repeats one.

mod both;

use std::time::Duration;

use crate::harness::fleet::options;
use crate::harness::postgres::{Cut, Postgres};
use both::{Both, Doings, TERM, account, loan_request, usd};
use tollgate::fleet::lease::{Loan, SyncRequest, SyncResponse};
use tollgate::fleet::postgres::{Db, DbError};
use tollgate::ledger::{FleetHistory, NodeId};
use tollgate::ledger::{LeaseReport, LeaseSettlement};

/// Seeds of a usual run, and operations in each.
const SEEDS: u64 = 60;
const OPERATIONS: usize = 40;
/// COMMITs that are lost, or whose answer is.
const LOST: u64 = 50;

#[expect(clippy::disallowed_methods, reason = "a test is told how long to run, and what to repeat")]
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn seeds() -> std::ops::Range<u64> {
    match number("TOLLGATE_CONTRACT_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..crate::harness::rounds(SEEDS),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_database_does_what_the_rules_say() {
    let (_, url) = Postgres::shared().database("contract");
    let mut both = Both::new(both::schema(&url).await);
    let mut did = Doings::default();
    for seed in seeds() {
        println!("TOLLGATE_CONTRACT_SEED={seed}");
        both.begin(seed).await;
        for _ in 0..OPERATIONS {
            both.step(&mut did).await;
        }
    }
    println!("{did:?}");
    if seeds().count() > 10 {
        did.are_all_there();
    }
}

/// Sends an exchange by way of a wire, and again without, until it is answered.
async fn sent_until_answered(wire: &Db, straight: &Db, sync: &SyncRequest) -> SyncResponse {
    let outcome = match wire.sync(sync, TERM).await {
        Ok(answered) => return answered.expect("taken"),
        Err(error) => error,
    };
    assert!(!matches!(outcome, DbError::Failed(_)), "{outcome}");
    let again = straight.sync(sync, TERM).await.expect("an answer");
    again.expect("taken, or answered as it was")
}

/// Connections break before, in and behind COMMIT: every exchange takes effect once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_exchange_takes_effect_once_wherever_its_connection_breaks() {
    let (_, url) = Postgres::shared().database("lost");
    let straight = both::schema(&url).await;
    let cut = Cut::before(Postgres::shared().port());
    let wire = Db::connect(&options(&cut.url(&url)), None).await.expect("the database");
    let mut both = Both::new(straight.clone());
    both.begin(1).await;
    let node = both.add_node().await;
    let (mut lost, mut cuts) = (0, 0);
    for round in 0..LOST {
        let sync = both.good_sync(node);
        match round % 4 {
            0 => cut.lose_commit(),
            1 | 2 => cut.lose_answer_to_commit(),
            _ => {}
        }
        let sending = sent_until_answered(&wire, &straight, &sync);
        let answer = if round % 4 == 3 {
            // Somewhere in it, whenever that is.
            let wait = Duration::from_micros(both.rng.u64(0..4_000));
            let cutting = async {
                tokio::time::sleep(wait).await;
                cut.cut();
                tokio::time::sleep(Duration::from_millis(5)).await;
                cut.resume();
            };
            cuts += 1;
            tokio::join!(sending, cutting).0
        } else {
            let answer = sending.await;
            assert!(cut.has_lost(), "round {round} lost nothing");
            lost += 1;
            answer
        };
        let expected = both.rules.sync(&sync, both.now, TERM).expect("taken");
        assert_eq!(answer, expected, "round {round}");
        both.took(node, &sync, &answer);
        both.compare(&format!("round {round}")).await;
    }
    println!("{lost} COMMITs or their answers were lost, {cuts} connections were cut anywhere");
}

/// One of many exchanges of a node, about the accounts in its own order.
fn of_many(
    node: NodeId,
    epoch: u64,
    turn: u64,
    leases: &[i64],
    rng: &mut fastrand::Rng,
) -> SyncRequest {
    let from = node.begin() + (turn - 1) * 10;
    let settled = leases.iter().zip(1..).filter(|(lease, _)| **lease > 1).map(|(lease, number)| {
        let charged = rng.i64(0..*lease);
        let returned = usd(rng.i64(0..=*lease - charged));
        let (account, charged, owed) = (account(number), usd(charged), usd(0));
        LeaseSettlement { account, charged, owed, written_off: usd(0), returned }
    });
    let settled: Vec<_> = settled.collect();
    let report =
        Some(LeaseReport { from, to: from + 10, settled, history: FleetHistory::default() });
    let mut requests: Vec<_> =
        (1..=leases.len() as u64).map(|number| loan_request(number, 0, 1_000)).collect();
    requests.retain(|_| rng.bool());
    SyncRequest { node, epoch, turn, report, is_clear: false, requests }
}

async fn spends(db: Db, node: NodeId, syncs: u64, accounts: usize) -> (Vec<i64>, Vec<i64>) {
    let joined = db.join(node, "test", "test").await.expect("joins").expect("a node");
    let mut rng = fastrand::Rng::with_seed(u64::from(node.number()));
    let (mut leases, mut charged) = (vec![0; accounts], vec![0; accounts]);
    for turn in 1..=syncs {
        let sync = of_many(node, joined.epoch, turn, &leases, &mut rng);
        let mut tries = 0;
        let answer = loop {
            match db.sync(&sync, TERM).await {
                Ok(answer) => break answer.expect("taken"),
                Err(error) => assert!(!matches!(error, DbError::Failed(_)), "{error}"),
            }
            tries += 1;
            assert!(tries < 20, "an exchange was tried {tries} times");
        };
        let place = |id| (1..).position(|number| account(number) == id).expect("an account");
        for settled in sync.report.iter().flat_map(|report| &report.settled) {
            let at = place(settled.account);
            charged[at] += settled.charged.get();
            leases[at] -= settled.charged.get() + settled.returned.get();
        }
        for (id, loan) in answer.loans {
            if let Loan::Lent(amount) = loan {
                leases[place(id)] += amount.get();
            }
        }
    }
    (leases, charged)
}

/// Locks accounts against the order of the rest, for ever, until it is dropped.
async fn locks_backwards(db: Db) {
    loop {
        let lock = "UPDATE tollgate.accounts SET name = name WHERE id = $1";
        let (last, first) = (account(6).to_string(), account(1).to_string());
        let (last, first) = (last.as_str(), first.as_str());
        let locks = db.transact(|tx| {
            Box::pin(async move {
                tx.execute(lock, &[&last]).await?;
                tokio::time::sleep(Duration::from_millis(3)).await;
                tx.execute(lock, &[&first]).await
            })
        });
        // It is the one that gives way, or not; both are right.
        drop(locks.await);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Two nodes, and someone who locks the other way round, on the same accounts.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn exchanges_get_through_deadlocks_and_serialization_failures() {
    const EXCHANGES: u64 = 200;
    const ACCOUNTS: usize = 6;
    let (name, url) = Postgres::shared().database("deadlocks");
    let db = both::schema(&url).await;
    let mut both = Both::new(db.clone());
    both.begin(2).await;
    for number in 1..=ACCOUNTS as u64 {
        both.grant(number, 1_000_000).await;
    }
    // One change of an account in forty fails as an engine does that serializes.
    Postgres::shared().sql(
        &name,
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
            IF random() < 0.025 THEN RAISE EXCEPTION 'try again' USING ERRCODE = '40001'; END IF;
            RETURN NEW;
         END $$;
         CREATE TRIGGER refuse BEFORE UPDATE ON tollgate.accounts
         FOR EACH ROW EXECUTE FUNCTION refuse()",
    );
    let against = tokio::spawn(locks_backwards(db.clone()));
    let nodes = [both.add_node().await, both.add_node().await];
    let [first, second] =
        nodes.map(|node| tokio::spawn(spends(db.clone(), node, EXCHANGES, ACCOUNTS)));
    let ended = tokio::time::timeout(Duration::from_secs(120), async {
        (first.await.expect("no panic"), second.await.expect("no panic"))
    });
    let (one, two) = ended.await.expect("nobody waits for ever");
    against.abort();
    let deadlocks = Postgres::shared().log().matches("deadlock detected").count();
    let conflicts = Postgres::shared().log().matches("try again").count();
    println!("{deadlocks} deadlocks, {conflicts} serialization failures");
    assert!(deadlocks > 0 && conflicts > 0, "there were none: {deadlocks} and {conflicts}");
    for number in 0..ACCOUNTS {
        let funds = both::funds(&db, account(number as u64 + 1)).await.expect("an account");
        assert!(funds.is_sound(), "{funds:?}");
        assert_eq!(funds.leased.get(), one.0[number] + two.0[number], "what nodes have out");
        assert_eq!(funds.spent.get(), one.1[number] + two.1[number], "what they have charged");
    }
}

/// Every account that ever ran dry had a row, which each exchange of every node would look at.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recalls_that_are_long_over_are_removed() {
    let (name, url) = Postgres::shared().database("recalls");
    let db = both::schema(&url).await;
    let sql = "INSERT INTO tollgate.recalls (account, until)
        SELECT 'old' || n, now() - interval '2 minutes' FROM generate_series(1, 1500) n
        UNION ALL SELECT 'new', now() - interval '2 seconds'";
    Postgres::shared().sql(&name, sql);
    for _ in 0..2 {
        db.sweep().await.expect("an answer");
    }
    let left = Postgres::shared().sql(&name, "SELECT account FROM tollgate.recalls");
    assert_eq!(left, "new");
}

/// A large ledger moves: what is compared between two statements takes longer than a node may hang.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_moves_may_take_its_time_between_two_statements() {
    let (_, url) = Postgres::shared().database("slow_move");
    let db = Db::for_migrations(&options(&url)).await.expect("the database");
    let moved = db.transact(|tx| {
        Box::pin(async move {
            tx.query("SELECT 1", &[]).await?;
            tokio::time::sleep(Duration::from_millis(1500)).await;
            tx.query("SELECT 1", &[]).await.map(drop)
        })
    });
    assert_eq!(moved.await, Ok(()));
}
