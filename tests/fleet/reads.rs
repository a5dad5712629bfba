//! Reads of a fleet's money show the whole fleet on every node.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::harness::fleet::{InProcess, Member, copied, cost, money, reserve};
use crate::harness::postgres::{Postgres, Stop};
use crate::harness::within_async;
use tempfile::TempDir;
use tollgate::clock::{MS_PER_DAY, UnixMs};
use tollgate::ledger::{
    AccountId, Actor, Balance, CallName, DoubtRefund, EntryKind, Grain, Hold, HoldId, KeyId,
    Ledger, LedgerError, Options, RecoveryPolicy, Refusal, RequestId, Reserve, Settlement,
    StatementEntry, VoidReason,
};
use tollgate::price::{Usage, UsageSource};

/// Within this, other nodes read what one has done: reports leave every half second.
const REPORTED: Duration = Duration::from_secs(1);
/// The same on a machine that is busy with other things.
const REPORTED_AT_LAST: Duration = Duration::from_secs(10);

fn seeded() -> fastrand::Rng {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    fastrand::Rng::with_seed(seed)
}

/// A hold on a node of an account that has the money. On a busy machine the treasury may take longer
/// to answer than a call waits for it.
async fn held(ledger: &Arc<Ledger>, expected: Reserve) -> Hold {
    let deadline = Instant::now() + REPORTED_AT_LAST;
    loop {
        match ledger.admit(expected.clone()).await {
            Err(Refusal::CutOff) if Instant::now() < deadline => {}
            admitted => return admitted.expect("there is money"),
        }
    }
}

/// Makes a call on a node, and names its hold.
async fn call(ledger: &Arc<Ledger>, account: AccountId, charge: i64) -> HoldId {
    let key = KeyId::from_number(account.number());
    let hold = held(ledger, Reserve { key, ..reserve(account, charge.max(1)) }).await;
    hold.durable().await.expect("durable");
    let id = hold.id();
    if charge == 0 {
        hold.void(VoidReason::Unreached);
    } else {
        assert_eq!(hold.post(cost(charge)).charged, money(charge));
    }
    id
}

async fn all_entries(ledger: &Ledger, account: AccountId) -> Vec<StatementEntry> {
    ledger.entries(account, None, 1000).await.expect("entries")
}

/// Waits until a node reads so many lines of a statement, and says how long that took.
async fn has_entries(ledger: &Ledger, account: AccountId, count: usize) -> Duration {
    within_async(REPORTED_AT_LAST, &format!("{count} lines are readable"), async || {
        let found = all_entries(ledger, account).await.len();
        assert!(found <= count, "{found} lines of {count}");
        found == count
    })
    .await
}

/// The hold that a line is about, or the id of what was given.
fn names(entries: &[StatementEntry]) -> Vec<String> {
    let name = |entry: &StatementEntry| match &entry.kind {
        EntryKind::Grant { id, .. } | EntryKind::Refund { id, .. } => id.clone(),
        _ => entry.call.as_ref().map_or_else(String::new, |call| call.hold.to_string()),
    };
    entries.iter().map(name).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls_of_all_nodes_make_one_statement_without_gap_or_double() {
    let mut random = seeded();
    let (_, url) = Postgres::shared().database("statement");
    let nodes = InProcess::start(&url, 3).await;
    let account = nodes.account_with(1_000_000).await;
    let mut made: HashSet<String> = HashSet::from(["initial".to_owned()]);
    let mut fastest = Duration::MAX;
    for round in 0..5 {
        for _ in 0..20 {
            let ledger = &nodes.ledgers[random.usize(..2)];
            made.insert(call(ledger, account, random.i64(0..50)).await.to_string());
        }
        let id = format!("more-{round}");
        let given = nodes.ledgers[2].grant(account, &id, money(7)).await;
        given.expect("a grant");
        made.insert(id);
        fastest = fastest.min(has_entries(&nodes.ledgers[2], account, made.len()).await);
    }
    println!("reported within {fastest:?} at best");
    assert!(fastest <= REPORTED, "a report took {fastest:?}");

    let all = all_entries(&nodes.ledgers[0], account).await;
    let listed: HashSet<String> = names(&all).into_iter().collect();
    assert_eq!((all.len(), listed), (made.len(), made.clone()), "each once");
    assert!(all.windows(2).all(|pair| pair[0].seq > pair[1].seq), "cursors descend");
    for _ in 0..20 {
        let (mut paged, mut before) = (Vec::new(), None);
        let limit = random.usize(1..40);
        loop {
            // Each page from another node, and more is done between two pages.
            let ledger = &nodes.ledgers[random.usize(..3)];
            let page = ledger.entries(account, before, limit).await.expect("a page");
            let Some(last) = page.last() else { break };
            assert!(page.len() <= limit);
            before = Some(last.seq);
            paged.extend(page);
            if random.u8(..8) == 0 {
                call(&nodes.ledgers[random.usize(..2)], account, 1).await;
            }
        }
        let old: Vec<String> =
            names(&paged).into_iter().filter(|name| made.contains(name)).collect();
        assert_eq!(old, names(&all), "pages of {limit}");
        let once: HashSet<u64> = paged.iter().map(|entry| entry.seq).collect();
        assert_eq!(once.len(), paged.len(), "no line twice");
    }
    nodes.stop().await;
}

/// A call that both kinds of ledger make.
struct Made {
    node: usize,
    key: KeyId,
    model: &'static str,
    settlement: Settlement,
}

impl Made {
    fn random(random: &mut fastrand::Rng) -> Self {
        let usage = Usage {
            input_tokens: random.u64(..1000),
            cache_read_tokens: random.u64(..1000),
            cache_write_tokens: random.u64(..1000),
            cache_write_1h_tokens: random.u64(..1000),
            output_tokens: random.u64(..1000),
            images: random.u64(..3),
            seconds: random.u64(..3),
            characters: random.u64(..9),
            web_searches: random.u64(..3),
            ..Usage::ZERO
        };
        let charge = money(random.i64(1..=100));
        Self {
            node: random.usize(..3),
            key: KeyId::from_number(random.u64(1..4)),
            model: ["a", "b", "Ü"][random.usize(..3)],
            settlement: Settlement { charge, usage, source: UsageSource::Upstream },
        }
    }

    async fn on(&self, ledger: &Arc<Ledger>, account: AccountId) {
        let reserve = Reserve {
            account,
            key: self.key,
            model: self.model.into(),
            price: None,
            request: RequestId::new(),
            amount: money(100),
            floor: money(1),
        };
        held(ledger, reserve).await.post(self.settlement);
    }
}

/// Usage in an order that does not depend on time.
async fn used(ledger: &Ledger, account: AccountId, grain: Grain) -> Vec<String> {
    let now = UnixMs::now();
    let days = UnixMs(now.0 - 2 * MS_PER_DAY)..UnixMs(now.0 + 1);
    let rows = ledger.usage_lately(account, grain, days.clone()).await.expect("usage");
    let mut sums = BTreeMap::new();
    for row in rows {
        // The calls of one ledger may fall into another hour than those of the other.
        assert!(row.begin <= now && row.begin.0 % 3_600_000 == 0, "{row:?}");
        let sum: &mut tollgate::ledger::UsageTotal =
            sums.entry((Some(row.key), row.model)).or_default();
        sum.add(&row.total);
    }
    for row in ledger.usage_of_all(grain, days).await.expect("usage") {
        sums.entry((None, row.model)).or_default().add(&row.total);
    }
    let mut message: Vec<String> = sums.iter().map(|row| format!("{row:?}")).collect();
    let mut keys: Vec<KeyId> =
        ledger.keys_last_used(account).await.expect("keys").into_keys().collect();
    keys.sort();
    message.push(format!("{keys:?}"));
    message
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn usage_is_what_a_single_ledger_counts_of_the_same_calls() {
    let mut random = seeded();
    let (_, url) = Postgres::shared().database("usage");
    let nodes = InProcess::start(&url, 3).await;
    let account = nodes.account_with(1_000_000).await;
    let dir = TempDir::new().expect("a directory");
    let (single, _) = Ledger::open(Options::new(dir.path())).expect("opens");
    let own = single.create_account("test").await.expect("an account").id;
    single.grant(own, "initial", money(1_000_000)).await.expect("a grant");
    let calls = 200;
    for _ in 0..calls {
        let made = Made::random(&mut random);
        made.on(&nodes.ledgers[made.node], account).await;
        made.on(&single, own).await;
    }
    has_entries(&nodes.ledgers[1], account, calls + 1).await;
    // What it counts lately is what it has counted by now.
    all_entries(&single, own).await;
    for grain in [Grain::Hour, Grain::Day] {
        let expected = used(&single, own, grain).await;
        assert!(expected.len() > 9, "keys, models and their sums");
        for ledger in &nodes.ledgers {
            assert_eq!(used(ledger, account, grain).await, expected, "{grain:?}");
        }
    }
    let balance = |account: Option<tollgate::ledger::Account>| {
        let account = account.expect("the account");
        (account.balance, account.written_off)
    };
    let expected = balance(single.durable_account(own).await.expect("figures"));
    for ledger in &nodes.ledgers {
        assert_eq!(balance(ledger.durable_account(account).await.expect("figures")), expected);
        let totals = ledger.totals().await.expect("totals");
        assert_eq!(
            (totals.accounts, totals.balance, totals.written_off),
            (1, expected.0, expected.1)
        );
    }
    nodes.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_call_of_one_node_is_found_and_given_back_on_another() {
    let (_, url) = Postgres::shared().database("refund");
    let nodes = InProcess::start(&url, 3).await;
    let [a, b, c] = [0, 1, 2].map(|node| &nodes.ledgers[node]);
    let account = nodes.account_with(10_000).await;
    for _ in 0..30 {
        call(b, account, 3).await;
    }
    let expected = reserve(account, 500);
    let request = expected.request;
    let by_request = CallName::Request(request, request.began_at());
    let open = held(a, expected).await;
    let found = a.call_money(account, by_request).await.expect("asked").expect("open here");
    assert_eq!((found.call.hold, found.end), (open.id(), None));
    let hold = open.id();
    open.post(cost(400));
    // Its own node knows it before it has reported it.
    let own = a.call_money(account, by_request).await.expect("asked").expect("ended here");
    assert!(own.end.is_some());
    has_entries(c, account, 32).await;
    for name in
        [by_request, CallName::Hold(hold, None), CallName::Hold(hold, own.end.map(|e| e.at))]
    {
        let found = c.call_money(account, name).await.expect("asked").expect("reported");
        let end = found.end.expect("ended").kind;
        assert!(matches!(end, EntryKind::Settlement { charged, .. } if charged == money(400)));
        assert_eq!((found.call.hold, found.call.request), (hold, request));
    }
    let before = c.durable_account(account).await.expect("asked").expect("the account").balance;
    c.refund(account, "sorry", hold, money(150)).await.expect("given back");
    let too_much = c.refund(account, "more", hold, money(251)).await;
    assert!(matches!(too_much, Err(LedgerError::RefundTooLarge { .. })), "{too_much:?}");
    for ledger in &nodes.ledgers {
        let found = ledger.call_money(account, CallName::Hold(hold, None)).await.expect("asked");
        let refunds = found.expect("the call").refunds;
        let given = EntryKind::Refund { id: "sorry".to_owned(), hold, amount: money(150) };
        let [refund] = refunds.as_slice() else { panic!("{refunds:?}") };
        assert_eq!(refund.kind, given);
        let newest = ledger.entries(account, None, 1).await.expect("entries").remove(0);
        assert_eq!(newest.kind, given);
        let now = ledger.durable_account(account).await.expect("asked").expect("the account");
        assert_eq!(now.balance.spent, money(before.spent.get() - 150));
        assert_eq!(now.balance.available, money(before.available.get() + 150));
    }
    let missing = c.call_money(account, CallName::Hold(HoldId::from_number(77), None)).await;
    assert_eq!(missing.expect("asked"), None);
    nodes.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn balances_add_up_on_any_node_while_money_is_out() {
    let mut random = seeded();
    let (_, url) = Postgres::shared().database("balances");
    let nodes = InProcess::start(&url, 3).await;
    let mut accounts = Vec::new();
    for _ in 0..20 {
        accounts.push(nodes.account_with(10_000).await);
    }
    let mut spent: BTreeMap<AccountId, i64> = BTreeMap::new();
    for _ in 0..300 {
        let (account, charge) = (accounts[random.usize(..20)], random.i64(1..60));
        call(&nodes.ledgers[random.usize(..3)], account, charge).await;
        *spent.entry(account).or_default() += charge;
    }
    for (account, spent) in &spent {
        let spent = money(*spent);
        let deadline = Instant::now() + REPORTED_AT_LAST;
        loop {
            let shown = nodes.ledgers[2].durable_account(*account).await.expect("asked");
            let balance = shown.expect("the account").balance;
            assert!(balance.is_sound() && balance.granted == money(10_000), "{balance:?}");
            if balance.spent == spent {
                break;
            }
            assert!(Instant::now() < deadline, "{balance:?}, and {spent} was spent");
        }
    }
    let total: i64 = spent.values().sum();
    for ledger in &nodes.ledgers {
        let shown = ledger.with_figures(ledger.accounts()).await.expect("figures");
        for account in &shown {
            let spent = money(spent.get(&account.id).copied().unwrap_or(0));
            let available = money(10_000 - spent.get());
            let (granted, nothing) = (money(10_000), money(0));
            let expected = Balance {
                granted,
                available,
                held: nothing,
                spent,
                debt: nothing,
                credit: nothing,
            };
            assert_eq!(account.balance, expected);
        }
        let totals = ledger.totals().await.expect("totals");
        assert_eq!((totals.accounts, shown.len()), (20, 20));
        assert_eq!(totals.balance.spent, money(total));
        assert_eq!(totals.balance.available, money(200_000 - total));
    }
    nodes.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_doubt_of_one_node_is_listed_and_resolved_on_another() {
    let (_, url) = Postgres::shared().database("doubt");
    let nodes = InProcess::start(&url, 2).await;
    let account = nodes.account_with(10_000).await;
    let crashing = Member::join(&url, "crashing").await;
    let mut left_open = Vec::new();
    for _ in 0..2 {
        let expected = Reserve { floor: money(40), ..reserve(account, 300) };
        let hold = held(&crashing.ledger, expected).await;
        hold.durable().await.expect("durable");
        left_open.push(hold);
    }
    let ids: Vec<HoldId> = left_open.iter().map(Hold::id).collect();
    let dir = copied(crashing.dir.path());
    let again = Member::join_in(&url, "crashing", dir, RecoveryPolicy::Floor).await;
    let b = &nodes.ledgers[1];
    let are_reported = async || b.in_doubt().await.expect("doubts").len() >= 2;
    within_async(REPORTED_AT_LAST, "the doubts are reported", are_reported).await;
    let doubts = b.in_doubt().await.expect("doubts");
    assert_eq!(doubts.iter().map(|doubt| doubt.call.hold).collect::<Vec<_>>(), ids);
    assert_eq!((doubts[0].account, doubts[0].charged), (account, money(40)));
    let refund = DoubtRefund { id: "doubtful".to_owned(), amount: money(40) };
    let actor = Actor::operator("op");
    let resolved = b.by(&actor).resolve_doubt((account, ids[0]), "looked", Some(refund)).await;
    resolved.expect("resolved");
    for ledger in [&nodes.ledgers[0], b, &again.ledger] {
        let left = ledger.in_doubt().await.expect("doubts");
        assert_eq!(left.iter().map(|doubt| doubt.call.hold).collect::<Vec<_>>(), [ids[1]]);
        let found = ledger.call_money(account, CallName::Hold(ids[0], None)).await.expect("asked");
        let found = found.expect("the call");
        let end = found.end.expect("ended").kind;
        assert_eq!(end, EntryKind::InDoubt { charged: money(40) });
        assert_eq!(found.refunds.len(), 1);
    }
    let twice = nodes.ledgers[0].by(&actor).resolve_doubt((account, ids[0]), "again", None).await;
    assert!(matches!(twice, Err(LedgerError::NotInDoubt(_))), "{twice:?}");
    // The first process has crashed, and says nothing more of these.
    left_open.into_iter().for_each(std::mem::forget);
    drop((crashing, again));
    nodes.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn without_the_database_reads_fail_and_calls_go_on() {
    let postgres = Postgres::start();
    let nodes = InProcess::start(&postgres.url(), 2).await;
    let account = nodes.account_with(10_000).await;
    let ledger = &nodes.ledgers[1];
    let hold = call(ledger, account, 5).await;
    has_entries(ledger, account, 2).await;
    postgres.stop(Stop::Fast);
    let range = UnixMs(0)..UnixMs::now();
    let name = CallName::Hold(hold, None);
    let failed = [
        ledger.entries(account, None, 10).await.map(drop),
        ledger.call_money(account, name).await.map(drop),
        ledger.usage(account, range.clone()).await.map(drop),
        ledger.usage_lately(account, Grain::Day, range.clone()).await.map(drop),
        ledger.usage_of_all(Grain::Day, range).await.map(drop),
        ledger.keys_last_used(account).await.map(drop),
        ledger.in_doubt().await.map(drop),
        ledger.durable_account(account).await.map(drop),
        ledger.with_figures(ledger.accounts()).await.map(drop),
        ledger.totals().await.map(drop),
    ];
    for (read, result) in failed.iter().enumerate() {
        assert!(matches!(result, Err(LedgerError::Unavailable(_))), "read {read}: {result:?}");
    }
    let text = failed[0].as_ref().expect_err("it failed").to_string();
    assert!(text.contains("PostgreSQL at 127.0.0.1"), "{text}");
    // What was lent before is spent, and an account is known.
    call(ledger, account, 5).await;
    assert!(ledger.account(account).is_some());
    postgres.start_again();
    has_entries(&nodes.ledgers[0], account, 3).await;
    nodes.stop().await;
}
