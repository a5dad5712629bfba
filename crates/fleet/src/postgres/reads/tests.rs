use std::collections::HashSet;

use super::super::columns::encoded;
use super::super::server::Postgres;
use super::super::tests::options;
use super::super::usage::put_usage;
use super::super::{Param, migrate};
use super::*;
use tollgate_ledger::{RequestId, Reservation, VoidReason};
use tollgate_money::price::{Unit, Usage};

/// A database with the schema, and its name.
async fn database(name: &str) -> (Db, String) {
    let (name, url) = Postgres::shared().database(name);
    let db = Db::for_migrations(&options(&url)).await.expect("a database");
    migrate::up(&db).await.expect("the schema");
    (db, name)
}

/// A call at a random time whose figures are all multiples of its units.
fn random_call(random: &mut fastrand::Rng) -> (UsageCell, u64, UsageTotal) {
    let cell = UsageCell {
        account: AccountId::from_number(random.u64(1..4)),
        time: 480_000 + random.u32(..24 * 5),
        key: KeyId::from_number(random.u64(1..3)),
        model: ["a", "B", "é", "b"][random.usize(..4)].into(),
    };
    let units = random.u64(..1000);
    let money = |times: i64| Nanousd::new(i64::try_from(units).expect("small") * times);
    let mut usage = Usage::ZERO;
    for (unit, times) in Unit::ALL.iter().zip(1..) {
        usage[*unit] = units * times;
    }
    let (charged, owed, written_off) = (money(100), money(101), money(102));
    let total = UsageTotal { calls: 1, charged, owed, written_off, usage };
    (cell, units, total)
}

/// Calls and units, once it is sure that everything counted is so many times the units.
fn sum(total: &UsageTotal) -> (u64, u64) {
    let usage = &total.usage;
    let units = usage.input_tokens;
    let counts = usage.counts();
    assert!(counts.iter().zip(1..).all(|(count, times)| *count == units * times), "{total:?}");
    let money = [total.charged, total.owed, total.written_off].map(|amount| count(amount.get()));
    assert_eq!(money, [units * 100, units * 101, units * 102], "{total:?}");
    (total.calls, units)
}

/// Whatever was reported in whatever parts, hours and days add up to it, also those of all accounts.
#[tokio::test]
async fn usage_adds_up_by_the_hour_and_by_the_day() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let (db, _) = database("reads_usage").await;
    let mut calls: Vec<(UsageCell, u64)> = Vec::new();
    for _ in 0..60 {
        let mut window: BTreeMap<UsageCell, UsageTotal> = BTreeMap::new();
        for _ in 0..random.usize(1..60) {
            let (cell, units, total) = random_call(&mut random);
            window.entry(cell.clone()).or_default().add(&total);
            calls.push((cell, units));
        }
        let window: Vec<_> = window.into_iter().collect();
        db.transact(|tx| Box::pin(put_usage(tx, &window))).await.expect("written");
    }
    for _ in 0..40 {
        let (grain, each, base) =
            if random.bool() { (Grain::Hour, 1, 480_000) } else { (Grain::Day, 24, 20_000) };
        let first = base + random.u32(..120 / each);
        let times = first..first + random.u32(..120 / each);
        let is_in_range = |cell: &UsageCell| times.contains(&(cell.time / each));
        for account in (1..5).map(AccountId::from_number) {
            let mut expected: BTreeMap<UsageCell, (u64, u64)> = BTreeMap::new();
            let own = calls.iter().filter(|(cell, _)| cell.account == account && is_in_range(cell));
            for (cell, units) in own {
                let cell = UsageCell { time: cell.time / each, ..cell.clone() };
                let row = expected.entry(cell).or_default();
                *row = (row.0 + 1, row.1 + units);
            }
            let found = db.usage(account, grain, times.clone()).await.expect("usage");
            let found: Vec<_> =
                found.iter().map(|(cell, total)| (cell.clone(), sum(total))).collect();
            assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{grain:?} {times:?}");
        }
        let mut expected: BTreeMap<(u32, Arc<str>), (u64, u64)> = BTreeMap::new();
        for (cell, units) in calls.iter().filter(|(cell, _)| is_in_range(cell)) {
            let row = expected.entry((cell.time / each, Arc::clone(&cell.model))).or_default();
            *row = (row.0 + 1, row.1 + units);
        }
        let found = db.usage_of_all(grain, times.clone()).await.expect("usage");
        let found: Vec<_> =
            found.into_iter().map(|(time, model, total)| ((time, model), sum(&total))).collect();
        assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{grain:?} {times:?}");
    }
}

/// The end of a call at a place, and its chunk's columns.
fn ended(account: AccountId, place: Seq, at: u64) -> JournaledRecord {
    let (hold, at) = (HoldId::from_number(place - 1), UnixMs(at));
    let reservation = Arc::new(Reservation {
        account,
        key: KeyId::from_number(1),
        model: "m".into(),
        price: None,
        request: RequestId::from_number(place.into()),
        amount: Nanousd::ZERO,
        floor: Nanousd::ZERO,
        at,
    });
    let record = Record::Voided { account, hold, reason: VoidReason::Unreached, at };
    let hold = OpenHold { reservation, amount: Nanousd::ZERO };
    JournaledRecord { seq: place, record, hold: Some(hold) }
}

/// Chunks of one to four lines of two nodes, many of which end at the same time: whatever is looked
/// for is found behind the first query.
#[tokio::test]
async fn calls_are_found_among_more_chunks_than_one_query_gives() {
    let mut random = fastrand::Rng::with_seed(7);
    let (db, _) = database("reads_calls").await;
    let (account, other) = (AccountId::from_number(3), AccountId::from_number(4));
    let nodes = [1, 2].map(|number| NodeId::from_number(number).expect("a node"));
    let (mut made, mut next) = (Vec::new(), [0_u64; 2]);
    for chunk in 0..350_u64 {
        let node = random.usize(..2);
        let lines: Vec<JournaledRecord> = (0..random.usize(1..5))
            .map(|_| {
                next[node] += 2;
                ended(account, nodes[node].begin() + next[node], 1000 + chunk / 130 * 500)
            })
            .collect();
        let mut bytes = Vec::new();
        for line in &lines {
            bytes.extend(encoded(line).expect("encodes"));
        }
        let place = |line: Option<&JournaledRecord>| number(line.map_or(0, |line| line.seq));
        let (first, last) = (place(lines.first()), place(lines.last()));
        let at = lines.last().map_or(0, |line| number(line.record.at().0));
        for account in [account, other] {
            let sql = "INSERT INTO tollgate.entries (account, first_seq, last_seq, last_at, bytes)
                       VALUES ($1, $2, $3, $4, $5)";
            let (name, bytes) = (account.to_string(), &bytes);
            let put = db.transact(|tx| {
                let name = &name;
                Box::pin(async move { tx.execute(sql, &[name, &first, &last, &at, bytes]).await })
            });
            put.await.expect("written");
        }
        made.extend(lines);
    }
    let record = |line: &JournaledRecord| format!("{:?}", line.record);
    let all = db.entries(account, Seq::MAX, usize::MAX).await.expect("entries");
    let expected: Vec<_> = made.iter().rev().map(record).collect();
    assert_eq!(all.iter().map(record).collect::<Vec<_>>(), expected);
    let cursors: HashSet<Seq> = all.iter().map(|line| line.seq).collect();
    assert_eq!(cursors.len(), made.len());
    let some = db.entries(account, all[600].seq, 5).await.expect("entries");
    assert_eq!(some, all[601..606], "a page begins behind its cursor");
    for line in random.choose_multiple(&made, 30) {
        let (hold, open) = (line.record.open_hold(), line.hold.as_ref());
        let (hold, open) = (hold.expect("a hold"), open.expect("a hold"));
        let request = CallName::Request(open.reservation.request, line.record.at());
        for name in [request, CallName::Hold(hold, None)] {
            let found = db.end_of_call(account, name).await.expect("asked").expect("found");
            assert_eq!(found.record, line.record);
        }
        assert_eq!(db.charged(account, hold).await, Ok(None), "it cost nothing");
    }
    let nobody = CallName::Request(RequestId::from_number(1), UnixMs(0));
    assert_eq!(db.end_of_call(account, nobody).await, Ok(None));
}

/// The database's plan for a statement.
async fn plan(db: &Db, sql: &str, params: &[Param<'_>]) -> String {
    let rows = db.query(&format!("EXPLAIN {sql}"), params).await.expect("a plan");
    rows.iter().map(|row| row.get::<_, String>(0) + "\n").collect()
}

/// A year of usage and many statements: nothing that is read looks at all of it.
#[tokio::test]
async fn no_read_looks_at_a_whole_table() {
    let (db, name) = database("reads_plans").await;
    let fill = "
        INSERT INTO tollgate.usage SELECT 'acct_' || n % 1000, 480000 + n % 8760, 'key_' || n % 3000,
            'model', 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 FROM generate_series(1, 100000) n
            ON CONFLICT DO NOTHING;
        INSERT INTO tollgate.usage_units
            SELECT account, hour, key, model, 'searches', 1 FROM tollgate.usage;
        INSERT INTO tollgate.entries (account, first_seq, last_seq, last_at, bytes)
            SELECT 'acct_' || n % 100, n, n, n, 'some lines' FROM generate_series(1, 100000) n;
        INSERT INTO tollgate.keys_used SELECT 'key_' || n, 'acct_' || n % 1000, n
            FROM generate_series(1, 50000) n;
        INSERT INTO tollgate.accounts (id, name, created_at) SELECT 'acct_' || n, '', 0
            FROM generate_series(0, 9999) n;
        INSERT INTO tollgate.refunds SELECT 'acct_' || n % 10, n, n, 1, 1, n
            FROM generate_series(1, 50000) n;
        INSERT INTO tollgate.tasks (id, account, node, epoch, hold, held, stage, is_announced, task,
                open_hold, submitted_at)
            SELECT 'gt_' || n, 'acct_' || n % 100, 1, 1, n, 1, 'submitted', false, '', '', n
            FROM generate_series(1, 20000) n;
        ANALYZE";
    Postgres::shared().sql(&name, fill);
    let account = "acct_7".to_owned();
    let (first, end, day) = (486_000_i32, 486_000 + 30 * 24, 24_i32);
    let (number, limit, hold) = (i64::MAX, 100_i64, 4_007_i64);
    let accounts = vec![account.clone(), "acct_8".to_owned()];
    let reads: [(&str, &[Param<'_>]); 10] = [
        (ENTRIES, &[&account, &number, &limit]),
        (BY_PLACE, &[&account, &number, &50_000_i64, &0_i64, &limit]),
        (BY_TIME, &[&account, &number, &50_000_i64, &0_i64, &limit]),
        (&USAGE, &[&account, &first, &end, &day]),
        (&USAGE_OF_ALL, &[&first, &end, &day]),
        (TASK_OF_HOLD, &[&account, &hold]),
        (TASKS_BEHIND, &[&account, &hold, &limit]),
        (REFUNDS, &[&account, &hold, &limit]),
        (KEYS_USED, &[&account]),
        (BALANCES, &[&accounts]),
    ];
    for (sql, params) in reads {
        let plan = plan(&db, sql, params).await;
        assert!(!plan.contains("Seq Scan"), "{sql}\n{plan}");
    }
}
