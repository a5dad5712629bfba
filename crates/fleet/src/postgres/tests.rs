use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::future::join_all;
use parking_lot::Mutex;

use super::*;
use crate::postgres::server::{Cut, Postgres, ReplicatedPair};

/// Settings of a test's connections to the database at `url`.
pub(super) fn options(url: &str) -> PostgresOptions {
    PostgresOptions {
        url: url.to_owned(),
        password: None,
        tls: TlsMode::Disable,
        ca_file: None,
        connections_max: 4,
        application: "tollgate tests".to_owned(),
    }
}

/// A database at `url` with nothing in it but `tollgate.t`, of which row `a` is 0.
async fn opened(url: &str) -> Db {
    let limits = DatabaseTimeouts::USUAL;
    let db = Db::open(&options(url), None, limits).await.expect("a database");
    let made = db.transact(|tx| {
        Box::pin(tx.batch(
            "CREATE SCHEMA IF NOT EXISTS tollgate;
             CREATE TABLE IF NOT EXISTS tollgate.t (id TEXT PRIMARY KEY, n BIGINT NOT NULL);
             INSERT INTO tollgate.t VALUES ('a', 0), ('b', 0) ON CONFLICT DO NOTHING",
        ))
    });
    made.await.expect("a table");
    db
}

const ADD: &str = "UPDATE tollgate.t SET n = n + 1 WHERE id = $1";

async fn add(db: &Db, id: &str) -> Result<u64, DbError> {
    db.transact(|tx| Box::pin(async move { tx.execute(ADD, &[&id]).await })).await
}

async fn value(db: &Db, id: &str) -> i64 {
    let rows = db.query("SELECT n FROM tollgate.t WHERE id = $1", &[&id]).await.expect("rows");
    rows[0].get(0)
}

#[tokio::test]
async fn what_fails_is_rolled_back_whatever_the_work_makes_of_it() {
    let (_, url) = Postgres::shared().database("rolled_back");
    let db = opened(&url).await;
    assert_eq!(add(&db, "a").await, Ok(1));
    // PostgreSQL would answer COMMIT with success here.
    let swallowed = db.transact(|tx| {
        Box::pin(async move {
            tx.execute(ADD, &[&"a"]).await?;
            drop(tx.execute("INSERT INTO tollgate.t VALUES ('a', 1)", &[]).await);
            Ok(())
        })
    });
    let error = swallowed.await.expect_err("a key that is there");
    assert!(matches!(&error, DbError::Failed(message) if message.contains("23505")), "{error:?}");
    let refused = db.transact(|tx| {
        Box::pin(async move {
            tx.execute(ADD, &[&"a"]).await?;
            Err::<(), _>(DbError::Failed("the work says no".to_owned()))
        })
    });
    assert_eq!(refused.await, Err(DbError::Failed("the work says no".to_owned())));
    assert_eq!(value(&db, "a").await, 1, "only what was committed stays");
    assert_eq!(db.shared.pool.status().size, 1, "the connection was kept each time");
}

#[tokio::test]
async fn work_that_is_given_up_leaves_no_transaction_open() {
    let (_, url) = Postgres::shared().database("given_up");
    let db = opened(&url).await;
    let endless = db.transact(|tx| {
        Box::pin(async move {
            tx.execute(ADD, &[&"a"]).await?;
            std::future::pending::<()>().await;
            Ok(())
        })
    });
    let given_up = tokio::time::timeout(Duration::from_millis(300), endless).await;
    assert!(given_up.is_err(), "it does not end by itself");
    assert_eq!(add(&db, "a").await, Ok(1), "nobody holds the row");
    assert_eq!(value(&db, "a").await, 1);
}

#[tokio::test]
async fn transactions_in_each_others_way_are_begun_again() {
    let (_, url) = Postgres::shared().database("conflicts");
    let db = opened(&url).await;
    let tries = AtomicU32::new(0);
    let tries = &tries;
    // Each takes both rows, half of them in one order and half in the other.
    let both = join_all((0..8).map(|i| {
        let (first, second) = if i % 2 == 0 { ("a", "b") } else { ("b", "a") };
        db.transact(move |tx| {
            Box::pin(async move {
                tries.fetch_add(1, Ordering::Relaxed);
                tx.execute(ADD, &[&first]).await?;
                tokio::time::sleep(Duration::from_millis(20)).await;
                tx.execute(ADD, &[&second]).await
            })
        })
    }));
    let done = both.await.into_iter().collect::<Result<Vec<_>, _>>().expect("all done");
    assert_eq!(done, [1; 8]);
    assert!(tries.load(Ordering::Relaxed) > 8, "no deadlock was made");
    assert_eq!((value(&db, "a").await, value(&db, "b").await), (8, 8));
}

#[tokio::test]
async fn a_lost_answer_to_commit_is_unknown_and_nothing_else_is() {
    let server = Postgres::shared();
    let (_, url) = server.database("unknown");
    let wire = Cut::before(server.port());
    let (direct, db) = (opened(&url).await, opened(&wire.url(&url)).await);
    let mut expected = 0;
    for round in 0..50 {
        match round % 5 {
            0 => {
                wire.lose_answer_to_commit();
                let result = add(&db, "a").await;
                assert!(matches!(result, Err(DbError::Unknown(_))), "round {round}: {result:?}");
                expected += 1;
            }
            1 => {
                wire.lose_commit();
                let result = add(&db, "a").await;
                assert!(matches!(result, Err(DbError::Unknown(_))), "round {round}: {result:?}");
            }
            2 => {
                // It breaks between two transactions: the next one takes another connection.
                wire.cut();
                wire.resume();
                assert_eq!(add(&db, "a").await, Ok(1), "round {round}");
                expected += 1;
            }
            3 => {
                // It breaks before COMMIT and stays broken: that is known to be not done.
                let wire = &wire;
                let broken = db.transact(|tx| {
                    Box::pin(async move {
                        tx.execute(ADD, &[&"a"]).await?;
                        wire.cut();
                        tx.execute(ADD, &[&"a"]).await
                    })
                });
                let result = broken.await;
                assert!(
                    matches!(result, Err(DbError::Unavailable(_))),
                    "round {round}: {result:?}"
                );
                wire.resume();
            }
            _ => {
                // It breaks before COMMIT, and the next try gets through.
                let (wire, first) = (&wire, AtomicU32::new(0));
                let first = &first;
                let result = db.transact(|tx| {
                    Box::pin(async move {
                        tx.execute(ADD, &[&"a"]).await?;
                        if first.fetch_add(1, Ordering::Relaxed) == 0 {
                            wire.cut();
                            wire.resume();
                        }
                        tx.query("SELECT 1", &[]).await
                    })
                });
                assert!(result.await.is_ok(), "round {round}");
                expected += 1;
            }
        }
        assert_eq!(value(&direct, "a").await, expected, "after round {round}");
    }
}

#[tokio::test]
async fn a_silent_network_is_noticed_in_seconds() {
    let server = Postgres::shared();
    let (_, url) = server.database("silent");
    let wire = Cut::before(server.port());
    let db = opened(&wire.url(&url)).await;
    wire.stall();
    let begun = Instant::now();
    let error = add(&db, "a").await.expect_err("a silent network");
    assert!(matches!(error, DbError::Unavailable(_)), "{error:?}");
    assert!(begun.elapsed() < Duration::from_secs(7), "{:?}", begun.elapsed());
    let error = db.query("SELECT 1", &[]).await.expect_err("a silent network");
    assert!(matches!(error, DbError::Unavailable(_)), "{error:?}");
    wire.resume();
    assert_eq!(add(&db, "a").await, Ok(1), "it is there again");
}

#[tokio::test]
async fn a_silent_client_does_not_keep_rows_locked() {
    let (_, url) = Postgres::shared().database("silent_client");
    let (db, other) = (opened(&url).await, opened(&url).await);
    let locked = Arc::new(tokio::sync::Notify::new());
    let task = {
        let (locked, tries) = (Arc::clone(&locked), AtomicU32::new(0));
        tokio::spawn(async move {
            let (locked, tries) = (&locked, &tries);
            db.transact(|tx| {
                Box::pin(async move {
                    tx.execute(ADD, &[&"a"]).await?;
                    locked.notify_one();
                    if tries.fetch_add(1, Ordering::Relaxed) == 0 {
                        tokio::time::sleep(SILENCE_TIMEOUT + Duration::from_millis(500)).await;
                    }
                    tx.execute(ADD, &[&"b"]).await
                })
            })
            .await
        })
    };
    locked.notified().await;
    assert_eq!(add(&other, "a").await, Ok(1), "the server ends the silent transaction");
    assert_eq!(task.await.expect("no panic"), Ok(1), "which is begun again");
    assert_eq!((value(&other, "a").await, value(&other, "b").await), (2, 1));
}

#[tokio::test]
async fn states_of_the_database_are_described() {
    let server = Postgres::shared();
    let (name, url) = server.database("states");
    let db = opened(&url).await;
    server.accept_connections(&name, false);
    let refused = add(&db, "a").await.expect_err("no connections");
    server.accept_connections(&name, true);
    server.read_only(&name, true);
    let read_only = add(&db, "a").await.expect_err("no writes");
    assert!(
        matches!(&read_only, DbError::Unavailable(message) if message.contains("takes no writes"))
    );
    server.read_only(&name, false);
    server.sql("postgres", &format!("ALTER DATABASE {name} CONNECTION LIMIT 0"));
    let full = add(&db, "a").await.expect_err("no more connections");
    assert!(matches!(&full, DbError::Unavailable(message) if message.contains("max_connections")));
    server.sql("postgres", &format!("ALTER DATABASE {name} CONNECTION LIMIT -1"));
    assert_eq!(add(&db, "a").await, Ok(1), "after {refused}, {read_only}, {full}");
}

#[tokio::test]
async fn every_operation_is_observed() {
    let (_, url) = Postgres::shared().database("observed");
    opened(&url).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let observer = {
        let seen = Arc::clone(&seen);
        Box::new(move |trip: RoundTrip| seen.lock().push((trip.operation, trip.outcome)))
    };
    let limits = DatabaseTimeouts::USUAL;
    let db = Db::open(&options(&url), Some(observer), limits).await.expect("a database");
    assert_eq!(add(&db, "a").await, Ok(1));
    db.query("SELECT nothing", &[]).await.expect_err("no such column");
    let seen = seen.lock().clone();
    let (transaction, query) = (DbOperation::Transaction, DbOperation::Query);
    let expected = [
        (query, RoundTripOutcome::Done),
        (transaction, RoundTripOutcome::Done),
        (query, RoundTripOutcome::Failed),
    ];
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn notifications_arrive_also_after_a_reconnect() {
    let server = Postgres::shared();
    let (name, url) = server.database("heard");
    let wire = Cut::before(server.port());
    let db = opened(&wire.url(&url)).await;
    let mut receiver = db.listen(&["tollgate_a", "tollgate_b"]);
    let mut next = async || {
        let next = tokio::time::timeout(Duration::from_secs(10), receiver.recv()).await;
        let ChannelNotification { channel, payload } =
            next.expect("in time").expect("an announcement");
        (channel, payload)
    };
    let announced = |channel: &str, payload: &str| (channel.to_owned(), payload.to_owned());
    for round in 0..3 {
        assert_eq!(next().await, announced("tollgate_a", ""), "round {round}: look at everything");
        assert_eq!(next().await, announced("tollgate_b", ""));
        server.sql(&name, "NOTIFY tollgate_b, 'seven'");
        assert_eq!(next().await, announced("tollgate_b", "seven"));
        wire.cut();
        wire.resume();
    }
}

#[tokio::test]
async fn after_a_failover_the_other_server_is_found() {
    let pair = ReplicatedPair::start();
    let db = opened(&pair.url()).await;
    assert_eq!(add(&db, "a").await, Ok(1));
    pair.kill_primary();
    let error = add(&db, "a").await.expect_err("a standby alone takes no writes");
    assert!(matches!(error, DbError::Unavailable(_)), "{error:?}");
    pair.promote();
    assert_eq!(add(&db, "a").await, Ok(1));
    assert_eq!(value(&db, "a").await, 2, "the standby had what was committed");
}

#[tokio::test]
async fn a_server_that_was_killed_is_found_again() {
    let server = Postgres::start();
    let db = opened(&server.url()).await;
    assert_eq!(add(&db, "a").await, Ok(1));
    server.kill();
    let error = add(&db, "a").await.expect_err("no server");
    assert!(matches!(error, DbError::Unavailable(_)), "{error:?}");
    server.start_again();
    assert_eq!(add(&db, "a").await, Ok(1));
    assert_eq!(value(&db, "a").await, 2);
}
