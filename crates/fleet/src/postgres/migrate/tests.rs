use std::path::Path;

use super::*;
use crate::postgres::server::Postgres;
use crate::postgres::tests::options;
use crate::postgres::usage::put_usage;
use tollgate_ledger::{AccountId, Grain, KeyId, UsageCell, UsageTotal};
use tollgate_money::money::Nanousd;
use tollgate_money::price::{PLACED, Unit};

const ONE: Migration = Migration {
    version: 1,
    name: "one",
    sql: "CREATE TABLE tollgate.one (id TEXT PRIMARY KEY, n BIGINT NOT NULL);
          INSERT INTO tollgate.one VALUES ('a', 1);",
};
const TWO: Migration = Migration {
    version: 2,
    name: "two",
    sql: "CREATE TABLE tollgate.two (id TEXT PRIMARY KEY);
          UPDATE tollgate.one SET n = n + 1;",
};

async fn opened(name: &str) -> (Db, String) {
    let (name, url) = Postgres::shared().database(name);
    (Db::for_migrations(&options(&url)).await.expect("a database"), name)
}

#[tokio::test]
async fn each_step_is_taken_once() {
    let (db, name) = opened("steps").await;
    assert_eq!(standing_for(&db, &[ONE]).await, Ok(SchemaState::Missing));
    assert_eq!(up_to(&db, &[ONE]).await, Ok(vec!["one"]));
    assert_eq!(standing_for(&db, &[ONE]).await, Ok(SchemaState::Current));
    let behind = SchemaState::Behind { at: 1, needs: 2 };
    assert_eq!(standing_for(&db, &[ONE, TWO]).await, Ok(behind));
    assert_eq!(up_to(&db, &[ONE, TWO]).await, Ok(vec!["two"]));
    assert_eq!(up_to(&db, &[ONE, TWO]).await, Ok(vec![]));
    assert_eq!(Postgres::shared().sql(&name, "SELECT n FROM tollgate.one"), "2");
}

#[tokio::test]
async fn what_does_not_fit_is_refused_and_left_alone() {
    let (db, name) = opened("misfits").await;
    up_to(&db, &[ONE, TWO]).await.expect("both");
    let ahead = SchemaState::Ahead { at: 2, knows: 1 };
    assert_eq!(standing_for(&db, &[ONE]).await, Ok(ahead));
    let error = up_to(&db, &[ONE]).await.expect_err("from the future");
    assert!(error.message().contains("from the future"), "{error}");
    let other = Migration { sql: "CREATE TABLE tollgate.other (id TEXT)", ..ONE };
    assert_eq!(standing_for(&db, &[other, TWO]).await, Ok(SchemaState::Changed { version: 1 }));
    up_to(&db, &[other, TWO]).await.expect_err("another program's");
    Postgres::shared().sql(&name, "DROP TABLE tollgate.one");
    let table = "one".to_owned();
    assert_eq!(standing_for(&db, &[ONE, TWO]).await, Ok(SchemaState::Incomplete { table }));
    let error = check_for(&db, &[ONE, TWO]).await.expect_err("a table is gone");
    assert!(error.message().contains("tollgate.one is missing"), "{error}");
}

#[tokio::test]
async fn a_step_that_fails_leaves_nothing_behind() {
    let (db, name) = opened("failing").await;
    let broken = Migration { sql: "CREATE TABLE tollgate.half (id TEXT); SELECT 1 / 0", ..TWO };
    let error = up_to(&db, &[ONE, broken]).await.expect_err("a division by zero");
    assert!(error.message().contains("step 2 (two)"), "{error}");
    assert_eq!(standing_for(&db, &[ONE]).await, Ok(SchemaState::Current), "the first stays");
    let half = "SELECT count(*) FROM information_schema.tables WHERE table_name = 'half'";
    assert_eq!(Postgres::shared().sql(&name, half), "0");
    assert_eq!(up_to(&db, &[ONE, TWO]).await, Ok(vec!["two"]), "and the next can be taken");
}

#[tokio::test]
async fn processes_that_migrate_at_once_take_each_step_once() {
    for round in 0..10 {
        let (first, name) = opened("at_once").await;
        let options = options(&Postgres::shared().url_of(&name));
        let second = Db::for_migrations(&options).await.expect("a database");
        let third = Db::for_migrations(&options).await.expect("a database");
        let steps = [ONE, TWO];
        let (a, b, c) =
            tokio::join!(up_to(&first, &steps), up_to(&second, &steps), up_to(&third, &steps));
        let all = [a, b, c].into_iter().flat_map(|done| done.expect("all succeed"));
        let mut applied = all.collect::<Vec<_>>();
        applied.sort_unstable();
        assert_eq!(applied, ["one", "two"], "round {round}");
        assert_eq!(Postgres::shared().sql(&name, "SELECT n FROM tollgate.one"), "2");
    }
}

#[test]
fn the_list_has_every_file_and_no_gap() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/postgres/migrations");
    let files = std::fs::read_dir(directory).expect("files").map(|entry| {
        let path = entry.expect("an entry").path();
        (path.file_name().expect("a name").to_string_lossy().into_owned(), path)
    });
    let mut files = files.filter(|(name, _)| !name.starts_with("0000")).collect::<Vec<_>>();
    files.sort();
    assert_eq!(files.len(), MIGRATIONS.len(), "a file is not in the list, or the other way round");
    for (at, (step, (file, path))) in MIGRATIONS.iter().zip(&files).enumerate() {
        assert_eq!(step.version, i64::try_from(at + 1).expect("a number"), "{}", step.name);
        assert_eq!(*file, format!("{:04}_{}.sql", step.version, step.name));
        assert_eq!(std::fs::read_to_string(path).expect("text"), step.sql, "{file}");
    }
}

#[test]
fn tables_are_read_from_the_steps() {
    assert_eq!(tables(&[ONE, TWO]), ["one", "two"]);
    let dropped = Migration { sql: "DROP TABLE tollgate.one;", ..TWO };
    assert!(tables(&[ONE, dropped]).is_empty());
}

/// The statement of a node that knows only the first seven steps.
const COUNTED_BEFORE: &str = "INSERT INTO tollgate.usage AS u
    (account, hour, key, model, calls, charged, owed, written_off, input_tokens, cache_read_tokens,
     cache_write_tokens, cache_write_1h_tokens, output_tokens, images, seconds, characters)
    VALUES ('acct_0000000000000001', 480000, 'key_0000000000000002', 'm',
            1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
    ON CONFLICT (account, hour, key, model) DO UPDATE SET
        calls = u.calls + EXCLUDED.calls, charged = u.charged + EXCLUDED.charged,
        owed = u.owed + EXCLUDED.owed, written_off = u.written_off + EXCLUDED.written_off,
        input_tokens = u.input_tokens + EXCLUDED.input_tokens,
        cache_read_tokens = u.cache_read_tokens + EXCLUDED.cache_read_tokens,
        cache_write_tokens = u.cache_write_tokens + EXCLUDED.cache_write_tokens,
        cache_write_1h_tokens = u.cache_write_1h_tokens + EXCLUDED.cache_write_1h_tokens,
        output_tokens = u.output_tokens + EXCLUDED.output_tokens,
        images = u.images + EXCLUDED.images, seconds = u.seconds + EXCLUDED.seconds,
        characters = u.characters + EXCLUDED.characters";

/// Usage counted before there were rows of units, or by a node without them, adds up with the usage of this
/// version; and a unit of a later version is never dropped.
#[tokio::test]
async fn nodes_of_before_the_units_count_into_the_same_sums() {
    let (account, key) = (AccountId::from_number(1), KeyId::from_number(2));
    let (db, name) = opened("units").await;
    up_to(&db, &MIGRATIONS[..7]).await.expect("the schema of before");
    Postgres::shared().sql(&name, COUNTED_BEFORE);
    assert_eq!(up_to(&db, &MIGRATIONS[..8]).await, Ok(vec!["units"]));
    Postgres::shared().sql(&name, COUNTED_BEFORE);
    let mut total = UsageTotal { calls: 1, charged: Nanousd::new(2), ..UsageTotal::default() };
    (total.owed, total.written_off) = (Nanousd::new(3), Nanousd::new(4));
    for (unit, count) in Unit::ALL.iter().zip(5..) {
        total.usage[*unit] = count;
    }
    let cell = UsageCell { account, time: 480_000, key, model: "m".into() };
    let counted = [(cell.clone(), total)];
    db.transact(|tx| Box::pin(put_usage(tx, &counted))).await.expect("written");
    let mut expected = total;
    let mut of_before = total;
    Unit::ALL.iter().skip(PLACED).for_each(|later| of_before.usage[*later] = 0);
    expected.add(&of_before);
    expected.add(&of_before);
    let found = db.usage(account, Grain::Hour, 480_000..480_001).await;
    assert_eq!(found, Ok(vec![(cell, expected)]));
    let later = "INSERT INTO tollgate.usage_units VALUES
        ('acct_0000000000000001', 480000, 'key_0000000000000002', 'm', 'dreams', 7)";
    Postgres::shared().sql(&name, later);
    let error = db.usage(account, Grain::Hour, 480_000..480_001).await.expect_err("unknown");
    assert!(
        error.message().contains("\"dreams\" was counted by a node of a later version"),
        "{error}"
    );
}
