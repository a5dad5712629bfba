//! Writes by people in a fleet: three ledgers over one real database decide as one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::harness::fleet::{database, node_options};
use crate::harness::postgres::{Cut, Postgres};
use crate::harness::within_async;
use tempfile::TempDir;
use tokio::task::{JoinHandle, JoinSet};
use tollgate::clock::UnixMs;
use tollgate::fleet::Fleet;
use tollgate::fleet::HasFleet;
use tollgate::fleet::node::follow;
use tollgate::ledger::{
    Account, AccountId, AccountPatch, AccountPrices, Actor, CodeKind, CodeRefusal, DoubtRefund,
    HoldId, IdempotencyKey, IfMatch, JournaledRecord, KeyId, KeyPatch, Ledger, LedgerError,
    NewCode, NewKey, NodeId, OpenHold, Options, Record, RequestId, Reservation, SignUp,
};
use tollgate::money::{Factor, Nanousd};
use tollgate::price::{PriceRule, PriceTerms, Usage, UsageSource};

/// Password hash that callers pass.
const PASSWORD: &str = "$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHQ$aGFzaGhhc2g";
/// Within this, what is written on one node holds on all.
const EVERYWHERE: Duration = Duration::from_secs(1);

/// Result of a query to the database.
fn query_result(database: &str, sql: &str) -> String {
    Postgres::shared().sql(database, sql)
}

/// A node of a fleet, as far as its directory goes.
struct DirectoryNode {
    dir: TempDir,
    ledger: Arc<Ledger>,
    follower: JoinHandle<()>,
}

impl DirectoryNode {
    async fn start(url: &str) -> Self {
        Self::start_in(tempfile::tempdir().expect("a directory"), url).await
    }

    async fn start_in(dir: TempDir, url: &str) -> Self {
        let fleet =
            Fleet::open(node_options(url, "node", dir.path()), None).await.expect("a database");
        let options = Options { disk_free_bytes_min: 0, ..Options::with_funds(dir.path(), fleet) };
        let (ledger, _) = Ledger::open(options).expect("opens");
        ledger.catch_up().await.expect("follows");
        let follower = tokio::spawn(follow::follow(Arc::clone(&ledger)));
        Self { dir, ledger, follower }
    }

    /// Ends it, and gives what it leaves on its disk.
    async fn stop(self) -> TempDir {
        let Self { dir, ledger, mut follower } = self;
        follower.abort();
        // It is cancelled, or has ended.
        drop((&mut follower).await);
        ledger.close();
        dir
    }

    /// The same node after a restart.
    async fn restart(self, url: &str) -> Self {
        Self::start_in(self.stop().await, url).await
    }
}

async fn three(url: &str) -> Vec<DirectoryNode> {
    vec![
        DirectoryNode::start(url).await,
        DirectoryNode::start(url).await,
        DirectoryNode::start(url).await,
    ]
}

/// A new seed, printed so that a failure can be had again.
fn seeded() -> fastrand::Rng {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    fastrand::Rng::with_seed(seed)
}

/// Waits for what should come soon, and says how long it took.
async fn within(limit: Duration, what: &str, holds: impl Fn() -> bool) -> Duration {
    within_async(limit, what, async || holds()).await
}

/// Everything that nodes of a fleet should know alike.
async fn state(ledger: &Ledger) -> Vec<String> {
    let mut messages = vec![format!("followed {}", ledger.followed())];
    for account in ledger.accounts() {
        let keys = ledger.keys_of(account.id);
        let limits: Vec<_> = keys.iter().map(|key| ledger.key_limits(key.id)).collect();
        let (rates, login) = (ledger.account_rates(account.id), ledger.login(account.id));
        let prices = ledger.account_prices(account.id);
        messages.push(format!("{account:?} {keys:?} {limits:?} {rates:?} {login:?} {prices:?}"));
    }
    messages.extend(ledger.price_groups().iter().map(|group| format!("{group:?}")));
    messages.extend(ledger.codes().iter().map(|code| format!("{code:?}")));
    let acts = ledger.acts(None, None, 1000).await.expect("acts");
    messages.extend(acts.iter().map(|listed| format!("{:?}", listed.act)));
    messages
}

/// All nodes know the same, once they have followed to the end.
async fn assert_alike(nodes: &[DirectoryNode]) {
    let mut expected = None;
    for node in nodes {
        node.ledger.catch_up().await.expect("follows");
        let state = state(&node.ledger).await;
        let expected = expected.get_or_insert_with(|| state.clone());
        for (line, expected) in state.iter().zip(expected.iter()) {
            assert_eq!(line, expected, "{:?}", node.ledger.fleet());
        }
        assert_eq!(state.len(), expected.len());
    }
}

fn key(name: &str) -> NewKey {
    NewKey { name: name.to_owned(), ..NewKey::default() }
}

fn sign_up(email: &str) -> SignUp {
    SignUp {
        name: "New".to_owned(),
        email: email.to_owned(),
        password: PASSWORD.to_owned(),
        invite: None,
        trial: Some(Nanousd::new(5)),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_key_holds_on_all_nodes_and_is_refused_by_all_once_it_is_revoked() {
    let (_, url) = database("keys").await;
    let nodes = three(&url).await;
    let account = nodes[0].ledger.create_account("A").await.expect("opens").id;
    let (mut slowest_key, mut slowest_end) = (Duration::ZERO, Duration::ZERO);
    for round in 0..30 {
        let maker = &nodes[round % 3].ledger;
        let (secret, made) = maker.create_key(account, key("k")).await.expect("a key");
        let hash = tollgate::secret::KeyHash::of(secret.expose().as_bytes());
        for node in &nodes {
            let took = within(EVERYWHERE, "the key", || node.ledger.presented(&hash).is_some());
            slowest_key = slowest_key.max(took.await);
        }
        let ender = &nodes[(round + 1) % 3].ledger;
        let patch = KeyPatch {
            disabled: Some(true),
            expires_at: Some(Some(UnixMs::now())),
            ..KeyPatch::default()
        };
        ender.update_key(made.id, patch).await.expect("revokes");
        let ended = Instant::now();
        for node in &nodes {
            let is_refused =
                || node.ledger.presented(&hash).is_some_and(|(key, _)| key.is_revoked());
            within(EVERYWHERE, "the end of the key", is_refused).await;
        }
        slowest_end = slowest_end.max(ended.elapsed());
    }
    println!("known on all nodes within {slowest_key:?}, refused by all within {slowest_end:?}");
    let patch = AccountPatch { suspended: Some(true), ..AccountPatch::default() };
    let by = nodes[2].ledger.by(&Actor::operator("ada"));
    by.update_account(account, patch).await.expect("suspends");
    let (secret, _) = nodes[2].ledger.create_key(account, key("k")).await.expect("a key");
    let hash = tollgate::secret::KeyHash::of(secret.expose().as_bytes());
    let is_suspended = || nodes[0].ledger.presented(&hash).is_some_and(|(_, suspended)| suspended);
    within(EVERYWHERE, "the suspension", is_suspended).await;
    assert_alike(&nodes).await;
}

/// A price group of these tests.
const GROUP: &str = "resellers";

/// Has customers of the group pay so many thousandths of the list for all models.
async fn set_group(ledger: &Arc<Ledger>, thousandths: i64) -> PriceRule {
    let factor = Factor::parse(&format!("0.{thousandths:03}")).expect("a factor");
    let terms = PriceTerms::Factor(factor);
    let rule = PriceRule { models: "*".to_owned(), terms, from: None, until: None };
    let by = ledger.by(&Actor::operator("ada"));
    by.set_price_group(GROUP, vec![rule.clone()], IfMatch::Anything).await.expect("a group");
    rule
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_customers_pay_holds_on_all_nodes() {
    let (_, url) = database("prices").await;
    let nodes = three(&url).await;
    let account = nodes[0].ledger.create_account("A").await.expect("opens").id;
    let paid = |node: &DirectoryNode| node.ledger.price_rule(account, "m", UnixMs::now());
    for round in 0..9 {
        let rule = set_group(&nodes[round % 3].ledger, 100 + 50 * round as i64).await;
        if round == 0 {
            let prices = AccountPrices { group: Some(GROUP.to_owned()), rules: Vec::new() };
            let by = nodes[1].ledger.by(&Actor::operator("ada"));
            nodes[1].ledger.catch_up().await.expect("follows");
            by.set_account_prices(account, prices, IfMatch::Anything).await.expect("prices");
        }
        for node in &nodes {
            let holds = || paid(node).is_some_and(|found| found.rule == rule);
            within(EVERYWHERE, "the rule", holds).await;
        }
    }
    assert_alike(&nodes).await;
}

/// Fifty at once, each on a node of its own choice, and what came of it.
async fn at_once<T: Send + 'static, F>(
    random: &mut fastrand::Rng,
    nodes: &[DirectoryNode],
    count: usize,
    work: impl Fn(Arc<Ledger>, usize) -> F,
) -> Vec<T>
where
    F: Future<Output = T> + Send + 'static,
{
    let mut set = JoinSet::new();
    for number in 0..count {
        let ledger = Arc::clone(&nodes[random.usize(..nodes.len())].ledger);
        set.spawn(work(ledger, number));
    }
    set.join_all().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_writes_that_conflict_one_is_made_whichever_nodes_they_come_to() {
    let (database, url) = database("conflicts").await;
    let (nodes, mut random) = (three(&url).await, seeded());
    let account = nodes[0].ledger.create_account("A").await.expect("opens").id;
    for round in 0..4 {
        let given = at_once(&mut random, &nodes, 50, |ledger, _| async move {
            ledger.grant(account, &format!("g{round}"), Nanousd::new(7)).await
        });
        let given: Vec<_> = given.await.into_iter().map(|given| given.expect("gives")).collect();
        assert_eq!(given.iter().filter(|given| !given.repeated).count(), 1, "{given:?}");
        let signed = at_once(&mut random, &nodes, 50, |ledger, number| async move {
            // The same address, however it is written.
            let email = if number % 2 == 0 { "Ada@" } else { "ada@" };
            let new = sign_up(&format!("{email}{round}.example"));
            ledger.by(&Actor::Customer).sign_up(&new).await
        });
        let signed = signed.await;
        let opened: Vec<Account> = signed.iter().filter_map(|one| one.clone().ok()).collect();
        assert_eq!(opened.len(), 1, "{opened:?}");
        assert!(
            signed.iter().flat_map(|one| one.as_ref().err()).all(|e| *e == LedgerError::EmailTaken)
        );
        let opened = at_once(&mut random, &nodes, 50, |ledger, _| async move {
            let key = IdempotencyKey { id: Some(format!("open {round}")), digest: [1; 32] };
            let by = ledger.by(&Actor::operator("ada")).with_idempotency_key(key);
            by.create_account("B").await.expect("opens").value.id
        });
        let opened = opened.await;
        assert!(opened.iter().all(|id| *id == opened[0]), "one request opens one account");
    }
    let row = format!("SELECT granted, available FROM tollgate.accounts WHERE id = '{account}'");
    assert_eq!(query_result(&database, &row), "28|28");
    assert_eq!(query_result(&database, "SELECT count(*) FROM tollgate.grants"), "8");
    assert_eq!(query_result(&database, "SELECT count(*) FROM tollgate.accounts"), "9");
    let ends = query_result(
        &database,
        "SELECT max(seq), count(*), (SELECT seq FROM tollgate.head) FROM tollgate.directory",
    );
    assert_eq!(ends, "13|13|13", "each write once, and without a gap");
    assert_alike(&nodes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_code_with_ten_uses_is_used_ten_times_across_the_fleet() {
    let (database, url) = database("codes").await;
    let (nodes, mut random) = (three(&url).await, seeded());
    let opened = at_once(&mut random, &nodes, 200, |ledger, number| async move {
        ledger.create_account(&format!("A{number}")).await.expect("opens").id
    });
    let accounts: Arc<[AccountId]> = opened.await.into();
    let new = NewCode {
        kind: CodeKind::Credit,
        amount: Some(Nanousd::new(3)),
        uses_max: 10,
        expires_at: None,
        note: String::new(),
    };
    let made = nodes[1].ledger.by(&Actor::operator("ada")).create_code(new).await.expect("a code");
    let secret: Arc<str> = made.value.0.expect("shown once").expose().into();
    let begun = Instant::now();
    let used = at_once(&mut random, &nodes, 200, |ledger, number| {
        let (account, secret) = (accounts[number], Arc::clone(&secret));
        async move { ledger.by(&Actor::Customer).redeem(account, &secret).await }
    });
    let used = used.await;
    println!("200 redemptions took {:?}", begun.elapsed());
    assert_eq!(used.iter().filter(|used| used.is_ok()).count(), 10);
    let refused = LedgerError::Code(CodeRefusal::UsedUp);
    assert!(used.iter().filter_map(|used| used.as_ref().err()).all(|error| *error == refused));
    let sum = "SELECT sum(granted), sum(available), count(*) FILTER (WHERE granted > 0) FROM tollgate.accounts";
    assert_eq!(query_result(&database, sum), "30|30|10");
    assert_alike(&nodes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_commit_whose_answer_is_lost_gives_once() {
    const ROUNDS: u64 = 50;
    let (database, url) = database("unknown").await;
    let (cut, mut random) = (Cut::before(Postgres::shared().port()), seeded());
    let (node, other) =
        (DirectoryNode::start(&cut.url(&url)).await, DirectoryNode::start(&url).await);
    let account = node.ledger.create_account("A").await.expect("opens").id;
    for round in 0..ROUNDS {
        if random.bool() {
            cut.lose_answer_to_commit()
        } else {
            cut.lose_commit()
        }
        let id = format!("g{round}");
        let beside = format!("o{round}");
        let (given, beside) = tokio::join!(
            node.ledger.grant(account, &id, Nanousd::new(1)),
            // Another node writes at the same time.
            other.ledger.grant(account, &beside, Nanousd::new(1)),
        );
        assert!(!given.expect("gives").repeated, "round {round}");
        // The account may be new to this node.
        assert!(!beside.expect("gives").repeated, "round {round}");
        assert!(cut.has_lost(), "round {round}: a COMMIT was lost on its way or its way back");
    }
    let row = "SELECT granted, available, (SELECT count(*) FROM tollgate.grants),
               (SELECT seq FROM tollgate.head) FROM tollgate.accounts";
    assert_eq!(query_result(&database, row), "100|100|100|101");

    cut.cut();
    let away = node.ledger.grant(account, "last", Nanousd::new(1)).await;
    assert!(matches!(away, Err(LedgerError::Unavailable(_))), "{away:?}");
    cut.resume();
    let given = node.ledger.grant(account, "last", Nanousd::new(1)).await;
    assert!(!given.expect("gives").repeated);
    assert_eq!(query_result(&database, row), "101|101|101|102");
    assert_alike(&[node, other]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_that_was_away_and_a_new_one_learn_all_that_was_written() {
    let (_, url) = database("replay").await;
    let (mut nodes, mut random) = (three(&url).await, seeded());
    let account = nodes[0].ledger.create_account("A").await.expect("opens").id;
    for round in 0..40 {
        let ledger = &nodes[random.usize(..nodes.len())].ledger;
        match random.u8(..7) {
            0 => drop(ledger.create_key(account, key("k")).await.expect("a key")),
            1 => drop(
                ledger.grant(account, &format!("g{round}"), Nanousd::new(1)).await.expect("gives"),
            ),
            2 => {
                let new = sign_up(&format!("{round}@example.com"));
                ledger.by(&Actor::Customer).sign_up(&new).await.expect("opens");
            }
            3 => {
                let name = Some(format!("A{round}"));
                let patch = AccountPatch { name, ..AccountPatch::default() };
                let by = ledger.by(&Actor::operator("ada"));
                by.update_account(account, patch).await.expect("renames");
            }
            4 => drop(ledger.create_account("B").await.expect("opens")),
            5 => drop(set_group(ledger, random.i64(1..900)).await),
            _ => {
                set_group(ledger, 900).await;
                let prices = AccountPrices { group: Some(GROUP.to_owned()), rules: Vec::new() };
                let by = ledger.by(&Actor::operator("ada"));
                by.set_account_prices(account, prices, IfMatch::Anything).await.expect("prices");
            }
        }
        // Each node stops now and then, and misses some of it.
        if round % 8 == 3 {
            let node = nodes.remove(random.usize(..nodes.len()));
            nodes.push(node.restart(&url).await);
        }
    }
    nodes.push(DirectoryNode::start(&url).await);
    assert_alike(&nodes).await;
    let newest = nodes.remove(3);
    let (before, hash) = (state(&newest.ledger).await, newest.ledger.state_hash());
    let again = newest.restart(&url).await;
    assert_eq!(state(&again.ledger).await, before, "what stands in its journal");
    assert_eq!(again.ledger.state_hash(), hash);
    let dir = again.stop().await;
    let report = tollgate::ledger::verify(dir.path()).expect("reads");
    assert_eq!(report.violations, Vec::<String>::new());
}

/// A call of an account that another node has settled, as its report would say.
fn settled(account: AccountId, hold: HoldId, charged: i64) -> Vec<u8> {
    let (amount, at) = (Nanousd::new(charged), UnixMs(1));
    let reservation = Arc::new(Reservation {
        account,
        key: KeyId::from_number(1),
        model: "m".into(),
        price: None,
        request: RequestId::new(),
        amount,
        floor: amount,
        at,
    });
    let record = Record::Posted {
        account,
        hold,
        charged: amount,
        written_off: Nanousd::ZERO,
        usage: Usage::default(),
        source: UsageSource::Upstream,
        at,
    };
    let hold = Some(OpenHold { reservation, amount });
    let seq = hold_number(&record) + 1;
    postcard::to_stdvec(&JournaledRecord { seq, record, hold }).expect("encodes")
}

fn hold_number(record: &Record) -> u64 {
    record.open_hold().expect("a hold").number()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn money_is_given_back_as_far_as_the_treasury_says_that_it_was_charged() {
    let (database, url) = database("refunds").await;
    let nodes = three(&url).await;
    let account = nodes[0].ledger.create_account("A").await.expect("opens").id;
    nodes[0].ledger.grant(account, "g", Nanousd::new(100)).await.expect("gives");
    let place = NodeId::from_number(3).expect("a number").begin() + 5;
    let hold = HoldId::from_number(place);
    let unknown = nodes[1].ledger.refund(account, "r", hold, Nanousd::new(1)).await;
    assert_eq!(unknown.expect_err("not settled"), LedgerError::UnknownHold(hold));
    let chunk = hex(&settled(account, hold, 40));
    query_result(
        &database,
        &format!(
            "UPDATE tollgate.accounts SET available = available - 40, spent = spent + 40;
         INSERT INTO tollgate.entries (account, first_seq, last_seq, last_at, bytes)
         VALUES ('{account}', {first}, {first}, 1, '\\x{chunk}');
         INSERT INTO tollgate.in_doubt VALUES ({place}, '{account}', 1, '')",
            first = place + 1,
        ),
    );
    let too_much = nodes[1].ledger.refund(account, "r", hold, Nanousd::new(41)).await;
    let too_large =
        LedgerError::RefundTooLarge { charged: Nanousd::new(40), refunded: Nanousd::ZERO };
    assert_eq!(too_much.expect_err("more than the charge"), too_large);
    let mut random = seeded();
    let given = at_once(&mut random, &nodes, 10, move |ledger, number| async move {
        ledger.refund(account, &format!("r{number}"), hold, Nanousd::new(10)).await
    });
    let given = given.await;
    assert_eq!(given.iter().filter(|given| given.is_ok()).count(), 4, "{given:?}");
    let resolved = at_once(&mut random, &nodes, 10, move |ledger, number| async move {
        let by = ledger.by(&Actor::operator("ada"));
        let refund =
            (number == 99).then(|| DoubtRefund { id: "d".to_owned(), amount: Nanousd::new(1) });
        by.resolve_doubt((account, hold), "looked into", refund).await
    });
    let resolved = resolved.await;
    assert_eq!(resolved.iter().filter(|resolved| resolved.is_ok()).count(), 1, "{resolved:?}");
    let row = "SELECT granted, available, spent, (SELECT count(*) FROM tollgate.in_doubt), (SELECT sum(amount) FROM tollgate.refunds) FROM tollgate.accounts";
    assert_eq!(query_result(&database, row), "100|100|0|0|40");
    let too_big = nodes[2].ledger.grant(account, "big", Nanousd::MAX).await;
    assert!(matches!(too_big, Err(LedgerError::Invalid(_))), "{too_big:?}");
    assert_alike(&nodes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_stops_following_at_what_it_does_not_know_and_serves_on() {
    let (database, url) = database("unknown_record").await;
    let old = DirectoryNode::start(&url).await;
    let account = old.ledger.create_account("A").await.expect("opens").id;
    let (secret, _) = old.ledger.create_key(account, key("k")).await.expect("a key");
    let hash = tollgate::secret::KeyHash::of(secret.expose().as_bytes());
    // One record, of a kind that no version has.
    query_result(
        &database,
        "UPDATE tollgate.head SET seq = 3;
         INSERT INTO tollgate.directory VALUES (3, 'w', 'x', 'y', 'z', '\\x01ff7f')",
    );
    let directory = Arc::clone(old.ledger.fleet().expect("a node").directory());
    within(Duration::from_secs(5), "the end", || directory.stopped().is_some()).await;
    let why = directory.stopped().expect("stopped");
    assert!(why.contains("at 3") && why.contains("upgrade"), "{why}");
    assert!(old.ledger.presented(&hash).is_some(), "it serves on");
    assert_eq!((old.ledger.followed(), directory.head()), (2, 3));
    let refused = old.ledger.create_account("B").await;
    assert!(matches!(refused, Err(LedgerError::Unavailable(_))), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_that_is_ahead_of_its_database_writes_nothing_into_it() {
    let (database, url) = database("restored").await;
    let node = DirectoryNode::start(&url).await;
    node.ledger.create_account("A").await.expect("opens");
    let account = node.ledger.create_account("B").await.expect("opens").id;
    node.follower.abort();
    // As after a restore of last night's backup.
    query_result(
        &database,
        "UPDATE tollgate.head SET seq = 1;
         DELETE FROM tollgate.directory WHERE seq > 1;",
    );
    let refused = node.ledger.grant(account, "g", Nanousd::new(1)).await;
    assert!(matches!(&refused, Err(LedgerError::Unavailable(_))), "{refused:?}");
    let why = node.ledger.fleet().expect("a node").directory().stopped().expect("stopped");
    assert!(why.contains("restored"), "{why}");
    assert_eq!(query_result(&database, "SELECT seq FROM tollgate.head"), "1");
}

/// A failover loses the last write, and another node writes in its place.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_that_has_followed_what_a_failover_lost_follows_no_further() {
    let (database, url) = database("lost_write").await;
    let [one, other] = [DirectoryNode::start(&url).await, DirectoryNode::start(&url).await];
    one.ledger.create_account("A").await.expect("opens");
    other.ledger.create_account("B").await.expect("opens");
    let followed = || one.ledger.followed() == 2;
    within(EVERYWHERE, "both writes", followed).await;
    assert!(one.ledger.fleet().expect("a node").directory().stopped().is_none());
    query_result(&database, "DELETE FROM tollgate.directory WHERE seq = 2;");
    slip_in(&database, 2, &[]);
    slip_in(&database, 3, &[]);
    for node in [&one, &other] {
        let directory = Arc::clone(node.ledger.fleet().expect("a node").directory());
        within(EVERYWHERE, "the end", || directory.stopped().is_some()).await;
        let why = directory.stopped().expect("why");
        assert!(why.contains("another write stands at 2") && why.contains("failover"), "{why}");
        assert_eq!(node.ledger.followed(), 2, "what stands behind it was not taken over");
    }
}

/// A write as another version might have left it, which nobody announces.
fn slip_in(database: &str, seq: u64, records: &[Record]) {
    let bytes = hex(&postcard::to_stdvec(records).expect("encodes"));
    let row = format!(
        "INSERT INTO tollgate.directory VALUES ({seq}, 'w{seq}', '', '', '', '\\x{bytes}')"
    );
    query_result(database, &format!("UPDATE tollgate.head SET seq = {seq}; {row}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_nobody_announced_is_found_and_what_is_not_allowed_ends_nothing_but_following() {
    let (database, url) = database("polled").await;
    let node = DirectoryNode::start(&url).await;
    let (account, at) = (AccountId::from_number(7), UnixMs(1));
    let mut slowest = Duration::ZERO;
    let created = Record::AccountCreated { account, name: "A".to_owned(), at };
    slip_in(&database, 1, &[created]);
    for seq in 2..6 {
        let suspended = seq % 2 == 0;
        slip_in(&database, seq, &[Record::AccountSuspended { account, suspended, at }]);
        let is_so =
            || node.ledger.account(account).is_some_and(|found| found.suspended == suspended);
        slowest = slowest.max(within(EVERYWHERE, "the poll", is_so).await);
    }
    println!("found within {slowest:?}");
    // Nobody has opened this one.
    let nobody = AccountId::from_number(8);
    slip_in(&database, 6, &[Record::AccountSuspended { account: nobody, suspended: true, at }]);
    let directory = Arc::clone(node.ledger.fleet().expect("a node").directory());
    within(EVERYWHERE, "the end", || directory.stopped().is_some()).await;
    assert!(directory.stopped().expect("why").contains("not allowed"));
    assert_eq!(node.ledger.account(account).map(|found| found.suspended), Some(false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_write_whose_caller_leaves_in_the_middle_is_made_once_or_not_at_all() {
    const ROUNDS: i64 = 50;
    let (database, url) = database("cancelled").await;
    let (nodes, mut random) = (three(&url).await, seeded());
    let account = nodes[0].ledger.create_account("A").await.expect("opens").id;
    let mut left = 0;
    for round in 0..ROUNDS {
        let id = format!("g{round}");
        let ledger = &nodes[random.usize(..nodes.len())].ledger;
        let patience = Duration::from_micros(random.u64(..5_000));
        let grant = ledger.grant(account, &id, Nanousd::new(1));
        left += usize::from(tokio::time::timeout(patience, grant).await.is_err());
        let ledger = &nodes[random.usize(..nodes.len())].ledger;
        ledger.grant(account, &id, Nanousd::new(1)).await.expect("gives");
    }
    println!("{left} of {ROUNDS} callers left");
    assert!(left > 0, "somebody left");
    let row =
        "SELECT granted, (SELECT count(*) FROM tollgate.grants), (SELECT seq FROM tollgate.head)
               FROM tollgate.accounts";
    assert_eq!(query_result(&database, row), format!("{ROUNDS}|{ROUNDS}|{}", ROUNDS + 1));
    assert_alike(&nodes).await;
}
