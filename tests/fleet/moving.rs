//! A single gateway's ledger moves into a fleet, is served by three nodes, and moves back: all of it,
//! once, whatever ends the move in between.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::harness::child::kill_after;
use crate::harness::fleet::{self, InProcess, cost, money, node_options, options};
use crate::harness::let_pass_async;
use crate::harness::postgres::Postgres;
use tempfile::TempDir;
use tollgate::clock::UnixMs;
use tollgate::fleet::moving::{self, MoveError, MoveReport};
use tollgate::fleet::postgres::Db;
use tollgate::fleet::{Fleet, node};
use tollgate::ledger::{
    AccountId, AccountPatch, Actor, CodeKind, DoubtRefund, EntryKind, HoldsPatch, IfMatch, Intent,
    KeyId, KeyPatch, Ledger, Loss, LossCause, NewCode, NewKey, OpenError, Options, REPEATED_WITHIN,
    RecoveryPolicy, RepeatKey, RepeatLookup, RequestId, Reserve, SignUp, Task, TaskId, TaskPhase,
    TaskSettlement, VoidReason, Webhook, verify,
};
use tollgate::money::Factor;
use tollgate::price::{PriceRule, PriceTerms, Prices};

/// Password hash that callers pass.
const PASSWORD: &str = "$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHQ$aGFzaGhhc2g";
/// A configuration must have a model.
const MODELS: &str = "models:
  m:
    operations: [chat]
    targets: [{ upstream: one }]
    limits: { context_tokens_max: 1000, output_tokens_max: 100 }
    free: true
";
/// Moves that are killed.
const KILLS: usize = 20;

fn admin() -> Actor {
    Actor::operator("ada")
}

fn open(dir: &Path, recovery: RecoveryPolicy) -> Arc<Ledger> {
    let options = Options { disk_free_bytes_min: 0, recovery, ..Options::new(dir) };
    Ledger::open(options).expect("opens").0
}

async fn database(name: &str) -> (String, String, Db) {
    let (name, url) = fleet::database(name).await;
    let db = Db::for_moving(&options(&url)).await.expect("a database");
    (name, url, db)
}

/// Files that a crash does not leave, but a copy of the directory has.
const OF_THE_ORIGINAL: [&str; 3] = ["ballast", "head.json", "identity.json"];

fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("made");
    for entry in std::fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy_all(&entry.path(), &target);
        } else if !OF_THE_ORIGINAL.iter().any(|name| entry.file_name() == *name) {
            // What sled is writing just now can be gone by then.
            drop(std::fs::copy(entry.path(), target));
        }
    }
}

fn copy_of(dir: &Path) -> TempDir {
    let copy = TempDir::new().expect("a directory");
    copy_all(dir, copy.path());
    copy
}

/// One more call of a key, which ends somehow. Gives its hold if it was charged.
fn call(
    ledger: &Arc<Ledger>,
    (account, key): (AccountId, KeyId),
    random: &mut fastrand::Rng,
) -> Option<tollgate::ledger::HoldId> {
    let amount = random.i64(1..500);
    let mut hold = ledger
        .reserve(Reserve {
            account,
            key,
            model: ["model-a", "model-b"][random.usize(..2)].into(),
            request: RequestId::new(),
            amount: money(amount),
            floor: money(amount / 2),
            price: None,
        })
        .ok()?;
    let id = hold.id();
    if random.u8(..5) == 0 {
        hold.extend(money(random.i64(1..100))).ok();
    }
    match random.u8(..6) {
        0 => hold.void(VoidReason::UpstreamError),
        // More than the hold, and sometimes more than the account has.
        1 => drop(hold.post(cost(amount + random.i64(1..2000)))),
        _ => {
            return (hold.post(cost(random.i64(0..amount))).charged > money(1)).then_some(id);
        }
    }
    None
}

/// Tasks at every stage.
async fn tasks(ledger: &Arc<Ledger>, (account, key): (AccountId, KeyId)) {
    for number in 0..5_u8 {
        let reserve = Reserve { key, ..crate::harness::fleet::reserve(account, 100) };
        let hold = ledger.reserve(reserve).expect("a hold");
        let url = (number > 2).then(|| "https://customer.example/hook".to_owned());
        let intent = Intent {
            id: TaskId::random(),
            account,
            key,
            hold: hold.id(),
            model: "video".into(),
            protocol: "xai".to_owned(),
            prices: Prices::default(),
            facts: vec![number],
            webhook_url: url.clone(),
            repeat: Some(RepeatKey { key: [number; 32], body: [9; 32] }),
            at: UnixMs::now(),
            expires_at: UnixMs(u64::MAX),
        };
        let task = Arc::new(Task {
            intent: Arc::new(intent),
            upstream: "xai".to_owned(),
            upstream_model: "grok".to_owned(),
            stage: TaskPhase::Submitting,
            webhook: match url {
                Some(_) => Webhook::Due { tries: 0, at: UnixMs(u64::MAX >> 2) },
                None => Webhook::None,
            },
        });
        let id = (account, task.id());
        ledger.open_task(hold, task, REPEATED_WITHIN).await.expect("opened");
        if number == 0 {
            continue;
        }
        let stage = match number {
            1 => TaskPhase::InDoubt,
            _ => TaskPhase::Submitted { upstream_id: format!("native-{number}").as_str().into() },
        };
        let change = |task: &Task| Task { stage: stage.clone(), ..task.clone() };
        ledger.change_task(id, change).await.expect("open").expect("changed");
        let settlement = match number {
            3 => TaskSettlement::Post(cost(40)),
            4 => TaskSettlement::Void,
            _ => continue,
        };
        ledger.end_task(id, ("completed", "{}".to_owned()), settlement).await.expect("ends");
    }
}

/// Tasks of a ledger without the names of their holds.
async fn tasks_of(ledger: &Ledger) -> Vec<String> {
    let mut messages = Vec::new();
    for account in ledger.accounts() {
        for number in 0..5_u8 {
            let repeat = RepeatKey { key: [number; 32], body: [9; 32] };
            let at = (UnixMs::now(), REPEATED_WITHIN);
            let found = ledger.repeated(account.id, &repeat, at).await.expect("asked");
            let RepeatLookup::Same(id) = found else { continue };
            let task = ledger.task(account.id, &id.to_string()).await.expect("asked");
            let task = task.expect("a task");
            let Intent { key, at, facts, webhook_url, .. } = &*task.intent;
            messages.push(format!(
                "{id} {key} {at:?} {facts:?} {webhook_url:?} {:?} {:?}",
                task.stage, task.webhook
            ));
        }
    }
    messages
}

/// Accounts with grants, keys, logins and codes.
async fn customers(
    ledger: &Arc<Ledger>,
    random: &mut fastrand::Rng,
    seed: u64,
) -> Vec<(AccountId, KeyId)> {
    let by = ledger.by(&admin());
    let invite = NewCode {
        kind: CodeKind::Invite,
        amount: Some(money(70)),
        uses_max: 3,
        expires_at: None,
        note: "friends".to_owned(),
    };
    let secret = by.create_code(invite.clone()).await.expect("a code").value.0.expect("shown");
    let credit = NewCode { kind: CodeKind::Credit, ..invite.clone() };
    let credit = by.create_code(credit).await.expect("a code").value.0.expect("shown");
    let unused = by.create_code(invite).await.expect("a code").value.1;
    by.revoke_code(unused.code.id).await.expect("revoked");
    let mut keys = Vec::new();
    for number in 0..random.usize(3..6) {
        let account = match number {
            0 => {
                let sign_up = SignUp {
                    name: "someone".to_owned(),
                    email: format!("someone-{seed}@example.com"),
                    password: PASSWORD.to_owned(),
                    invite: Some(secret.expose().to_owned()),
                    trial: Some(money(50)),
                };
                by.sign_up(&sign_up).await.expect("an account").id
            }
            _ => ledger.create_account(&format!("customer {number}")).await.expect("one").id,
        };
        for grant in 0..random.usize(1..4) {
            let amount = money(random.i64(5_000..40_000));
            ledger.grant(account, &format!("g{grant}"), amount).await.expect("a grant");
        }
        for name in ["one", "two", "three"] {
            let new = NewKey { name: name.to_owned(), ..NewKey::default() };
            let (_, key) = ledger.create_key(account, new).await.expect("a key");
            keys.push((account, key.id));
        }
        let (_, revoked) = keys[keys.len() - 1];
        let patch = KeyPatch {
            disabled: Some(true),
            expires_at: Some(Some(UnixMs::now())),
            ..KeyPatch::default()
        };
        ledger.update_key(revoked, patch).await.expect("revoked");
    }
    let (one, two) = (keys[0].0, keys[keys.len() - 1].0);
    by.redeem(two, credit.expose()).await.expect("redeemed");
    by.end_session(one, [7; 16], UnixMs(UnixMs::now().0 + 1_000_000)).await.expect("ended");
    let suspended = AccountPatch { suspended: Some(true), ..AccountPatch::default() };
    by.update_account(two, suspended).await.expect("suspended");
    keys
}

/// Another credit line, and hold rules.
fn lent(limit: i64) -> AccountPatch {
    let output_floor = Some(Some(u64::try_from(limit).expect("positive") + 1));
    let holds = HoldsPatch { output_floor, ..HoldsPatch::default() };
    AccountPatch { credit_limit: Some(money(limit)), holds, ..AccountPatch::default() }
}

/// A ledger with something of everything, made by a seeded run of `calls` calls, and closed.
async fn made(seed: u64, calls: usize) -> TempDir {
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let first = TempDir::new().expect("a directory");
    let ledger = open(first.path(), RecoveryPolicy::Void);
    let keys = customers(&ledger, &mut random, seed).await;
    let mut paid = Vec::new();
    for number in 0..calls {
        let (account, key) = keys[random.usize(..keys.len())];
        if number % 40 == 0 {
            // Some are refused while calls hold the line.
            drop(ledger.by(&admin()).update_account(account, lent(random.i64(0..500))).await);
        }
        paid.extend(call(&ledger, (account, key), &mut random).map(|hold| (account, hold)));
    }
    for number in 0..paid.len().min(5) {
        let (account, hold) = paid[random.usize(..paid.len())];
        // Some were given back before.
        drop(ledger.refund(account, &format!("r{number}"), hold, money(1)).await);
    }
    for account in ledger.accounts() {
        let debt = account.balance.debt.get();
        if debt > 1 {
            let given_up = ledger.by(&admin());
            given_up.write_off(account.id, "w", money(debt / 2), "agreed").await.expect("given up");
        }
        ledger.record_loss(Loss {
            account: account.id,
            key: keys[0].1,
            model: "model-a".into(),
            upstream: "u".to_owned(),
            request: RequestId::new(),
            cause: LossCause::Retry,
            amount: money(7),
        });
        // What it owes is paid first.
        let amount = money(1000 + debt);
        ledger.grant(account.id, "for the crash", amount).await.expect("a grant");
    }
    tasks(&ledger, (keys[0].0, keys[0].1)).await;
    let holds: Vec<_> = (0..4)
        .filter_map(|n| {
            let (account, key) = keys[n % keys.len()];
            let reserve = crate::harness::fleet::reserve(account, 10);
            ledger.reserve(Reserve { key, ..reserve }).ok()
        })
        .collect();
    for hold in &holds {
        hold.durable().await.expect("on disk");
    }
    // What a crash leaves.
    let dir = copy_of(first.path());
    drop(holds);
    ledger.close();
    let ledger = open(dir.path(), RecoveryPolicy::Floor);
    let doubts = ledger.in_doubt().await.expect("doubts");
    assert!(doubts.len() >= 2, "the crash left {} calls in doubt", doubts.len());
    let (account, hold) = (doubts[0].account, doubts[0].call.hold);
    let refund = Some(DoubtRefund { id: "doubt".to_owned(), amount: money(1) });
    let by = ledger.by(&admin());
    by.resolve_doubt((account, hold), "looked into", refund).await.expect("resolved");
    ledger.close();
    dir
}

/// A moment, what it is, and which call it is about.
type Line = (u64, String);

/// Everything that people see of a ledger but its balances, which nodes know only in part.
#[derive(Debug, PartialEq)]
struct Seen {
    accounts: BTreeMap<AccountId, String>,
    statements: BTreeMap<AccountId, Vec<Line>>,
    doubts: Vec<(AccountId, u64, String)>,
    tasks: Vec<String>,
    codes: Vec<String>,
    acts: Vec<String>,
}

/// Removes the names of holds, which differ after a way back.
fn line(entry: tollgate::ledger::StatementEntry) -> Line {
    let call = entry.call.map(|call| (call.request, call.key, call.model));
    let kind = match entry.kind {
        EntryKind::Refund { id, amount, .. } => format!("refund {id} {amount}"),
        kind => format!("{kind:?}"),
    };
    (entry.at.0, format!("{kind} {call:?}"))
}

async fn seen(ledger: &Ledger) -> Seen {
    let mut seen = Seen {
        accounts: BTreeMap::new(),
        statements: BTreeMap::new(),
        doubts: Vec::new(),
        tasks: tasks_of(ledger).await,
        codes: Vec::new(),
        acts: Vec::new(),
    };
    for account in ledger.accounts() {
        let id = account.id;
        let keys = ledger.keys_of(id);
        for key in &keys {
            assert_eq!(ledger.key(&key.hash).map(|key| key.id), Some(key.id), "authenticates");
        }
        let limits: Vec<_> = keys.iter().map(|key| ledger.key_limits(key.id)).collect();
        let about = (&account.name, account.created_at, account.suspended);
        let login = ledger.login(id).map(|login| (login.email.clone(), login.password.clone()));
        let over = ledger.is_session_over(id, &[7; 16], UnixMs::now());
        let message = format!(
            "{about:?} {keys:?} {limits:?} {:?} {login:?} {over:?}",
            ledger.account_rates(id)
        );
        seen.accounts.insert(id, message);
        let (mut lines, mut before) = (Vec::new(), None);
        loop {
            let page = ledger.entries(id, before, 1000).await.expect("a statement");
            let Some(last) = page.last() else { break };
            before = Some(last.seq);
            // Only the node that has an open hold knows it.
            let ended = page.into_iter().filter(|entry| entry.kind != EntryKind::Hold);
            lines.extend(ended.map(line));
        }
        lines.sort();
        seen.statements.insert(id, lines);
    }
    for doubt in ledger.in_doubt().await.expect("doubts") {
        seen.doubts.push((doubt.account, doubt.reserved_at.0, doubt.charged.to_string()));
    }
    seen.doubts.sort();
    let codes = ledger.codes();
    seen.codes = codes.iter().map(|code| format!("{code:?}")).collect();
    let acts = ledger.acts(None, None, 1000).await.expect("acts");
    seen.acts = acts.iter().map(|listed| format!("{:?}", listed.act)).collect();
    seen
}

fn alike(one: &Seen, other: &Seen) {
    assert_eq!(one.accounts, other.accounts);
    assert_eq!(one.statements, other.statements);
    assert_eq!(one.doubts, other.doubts);
    assert_eq!(one.tasks, other.tasks);
    assert_eq!(one.codes, other.codes);
    assert_eq!(one.acts, other.acts);
}

/// Sums of money in the database, as text.
fn sums(name: &str) -> String {
    Postgres::shared().sql(
        name,
        "SELECT id, granted, available, leased, held, spent, suspense, debt, written_off, credit
         FROM tollgate.accounts ORDER BY id",
    )
}

/// The same of a single gateway's ledger.
fn sums_of(ledger: &Ledger) -> String {
    let mut accounts = ledger.accounts();
    accounts.sort_by_key(|account| account.id);
    let row = |account: &tollgate::ledger::Account| {
        let balance = account.balance;
        format!(
            "{}|{}|{}|0|{}|{}|0|{}|{}|{}",
            account.id,
            balance.granted.get(),
            balance.available.get(),
            balance.held.get(),
            balance.spent.get(),
            balance.debt.get(),
            account.written_off.get(),
            balance.credit.get()
        )
    };
    accounts.iter().map(row).collect::<Vec<_>>().join("\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_ledger_moves_in_is_served_and_moves_back() {
    let seed = fastrand::u64(..);
    let dir = made(seed, 400).await;
    let mut random = fastrand::Rng::with_seed(seed);
    let single = open(dir.path(), RecoveryPolicy::Void);
    let (before, money_before) = (seen(&single).await, sums_of(&single));
    single.close();
    drop(single);
    let (name, url, db) = database("there_and_back").await;

    let surveyed = moving::survey(&db, dir.path()).await.expect("it can move");
    assert_eq!(sums(&name), "", "nothing was changed");
    let moved = moving::move_in(&db, dir.path()).await.expect("moves");
    assert_eq!((&moved.tallies, moved.was_done), (&surveyed.tallies, false));
    assert_eq!(sums(&name), money_before);
    let again = moving::move_in(&db, dir.path()).await.expect("moves once");
    assert_eq!(again, MoveReport { was_done: true, ..moved });
    assert_eq!(sums(&name), money_before);
    let opened = Ledger::open(Options::new(dir.path()));
    assert!(matches!(opened, Err(OpenError::Moved { .. })), "{:?}", opened.err());

    let nodes = InProcess::start(&url, 3).await;
    for ledger in &nodes.ledgers {
        ledger.catch_up().await.expect("follows");
        alike(&seen(ledger).await, &before);
    }
    serve(&nodes, &mut random).await;
    let running = moving::move_out(&db, TempDir::new().expect("one").path()).await;
    assert!(matches!(running, Err(MoveError::NotStopped(_))), "{running:?}");
    let_pass_async(Duration::from_secs(2), "each node reports what was charged within a second")
        .await;
    nodes.ledgers[0].catch_up().await.expect("follows");
    let after = seen(&nodes.ledgers[0]).await;
    assert_ne!(after.statements, before.statements);
    nodes.stop().await;
    let money_after = sums(&name);

    let back = TempDir::new().expect("a directory");
    let moved = moving::move_out(&db, back.path()).await.expect("moves back");
    let again = moving::move_out(&db, back.path()).await.expect("it has moved");
    assert_eq!(again, MoveReport { was_done: true, ..moved });
    let report = verify(back.path()).expect("readable");
    assert_eq!((report.violations, report.open_holds), (vec![], 2), "of tasks");
    let single = open(back.path(), RecoveryPolicy::Void);
    assert_eq!(sums_of(&single), money_after);
    alike(&seen(&single).await, &after);
    single.close();
    nobody_joins(&url).await;
    let elsewhere = TempDir::new().expect("a directory");
    let twice = moving::move_out(&db, elsewhere.path()).await;
    assert!(matches!(twice, Err(MoveError::MovedOut)), "{twice:?}");
}

/// Calls, and writes about what was there before.
async fn serve(nodes: &InProcess, random: &mut fastrand::Rng) {
    let first = &nodes.ledgers[0];
    for account in first.accounts() {
        let keys = first.keys_of(account.id);
        first.grant(account.id, "later", money(100_000)).await.expect("a grant");
        for n in 0..40 {
            let reserve = Reserve {
                key: keys[random.usize(..keys.len())].id,
                ..crate::harness::fleet::reserve(account.id, 300)
            };
            let hold = nodes.ledgers[n % 3].admit(reserve).await.expect("there is money");
            match random.u8(..4) {
                0 => hold.void(VoidReason::Unreached),
                _ => drop(hold.post(cost(random.i64(0..300)))),
            }
        }
    }
    let id = first.accounts()[0].id;
    let entries = first.entries(id, None, 1000).await.expect("a statement");
    let settled = entries.iter().find_map(|entry| match &entry.kind {
        EntryKind::Settlement { charged, .. } if *charged > money(50) => {
            entry.call.as_ref().map(|call| call.hold)
        }
        _ => None,
    });
    let hold = settled.expect("a call from before the move");
    nodes.ledgers[1].refund(id, "after the move", hold, money(3)).await.expect("given back");
    for account in first.accounts() {
        let repeat = RepeatKey { key: [2; 32], body: [9; 32] };
        let at = (UnixMs::now(), REPEATED_WITHIN);
        if first.repeated(account.id, &repeat, at).await.expect("asked") != RepeatLookup::New {
            end_task(nodes, account.id).await;
        }
    }
    let doubts = first.in_doubt().await.expect("doubts");
    let (account, hold) = (doubts[0].account, doubts[0].call.hold);
    let by = nodes.ledgers[2].by(&admin());
    by.resolve_doubt((account, hold), "no trace", None).await.expect("resolved");
}

/// Ends a task that came with the ledger, on a node.
async fn end_task(nodes: &InProcess, account: AccountId) {
    let repeat = RepeatKey { key: [2; 32], body: [9; 32] };
    let at = (UnixMs::now(), REPEATED_WITHIN);
    let ledger = &nodes.ledgers[1];
    let found = ledger.repeated(account, &repeat, at).await.expect("asked");
    let RepeatLookup::Same(id) = found else { panic!("{found:?}") };
    let end = ("completed", "{}".to_owned());
    let ended = ledger.end_task((account, id), end, TaskSettlement::Post(cost(30))).await;
    assert!(ended.expect("ends").is_some());
}

async fn nobody_joins(url: &str) {
    let dir = TempDir::new().expect("a directory");
    let fleet =
        Fleet::open(node_options(url, "late", dir.path()), None).await.expect("the database");
    let options = Options::with_funds(dir.path(), Arc::clone(&fleet));
    let (ledger, _) = Ledger::open(options).expect("the ledger");
    let joined = node::join(&fleet, &ledger, RecoveryPolicy::Void).await;
    let refused = joined.err().expect("refused").to_string();
    assert!(refused.contains("moved out"), "{refused}");
}

/// Everything in the database that a move has made, but for times and for the order in which chunks
/// came.
fn dump(name: &str) -> String {
    let queries = [
        "SELECT * FROM tollgate.accounts ORDER BY id",
        "SELECT seq, write_id, md5(records) FROM tollgate.directory ORDER BY seq",
        "SELECT * FROM tollgate.grants ORDER BY account, id",
        "SELECT * FROM tollgate.refunds ORDER BY account, id",
        "SELECT account, first_seq, last_seq, last_at, md5(bytes) FROM tollgate.entries
         ORDER BY account, first_seq",
        "SELECT * FROM tollgate.usage ORDER BY account, hour, key, model",
        "SELECT * FROM tollgate.usage_units ORDER BY account, hour, key, model, unit",
        "SELECT * FROM tollgate.keys_used ORDER BY key",
        "SELECT hold, account, md5(bytes) FROM tollgate.in_doubt ORDER BY hold",
        "SELECT * FROM tollgate.tasks ORDER BY id",
        "SELECT * FROM tollgate.submits ORDER BY account, key",
        "SELECT ledger, last_seq, parts, proof, finished_at IS NOT NULL FROM tollgate.moved_in",
        "SELECT count(*) FROM tollgate.moving",
        "SELECT seq FROM tollgate.head",
    ];
    queries.map(|sql| Postgres::shared().sql(name, sql)).join("\n--\n")
}

/// The command, on a database.
fn command(directory: &Path, url: &str, more: &[&str]) -> Command {
    let routes = format!(
        "listeners: [{{ address: '127.0.0.1:0' }}]\n\
         store: {{ postgres: {{ url: '{url}' }} }}\n\
         upstreams:\n  one: {{ protocol: openai, base_url: 'http://127.0.0.1:1/v1', credential: x }}\n\
         routes:\n  - {{ path: /v1/chat/completions, operation: chat }}\n"
    );
    std::fs::write(directory.join("routes.yaml"), routes).expect("written");
    std::fs::write(directory.join("models.yaml"), MODELS).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.current_dir(directory).args(["migrate", "ledger"]).args(more);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the command until it has succeeded, killing it at random moments `kills` times.
fn killed(mut run: impl FnMut() -> Command, kills: u32, within: Duration, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    println!("seed {seed}");
    for _ in 0..kills {
        let mut child = run().spawn().expect("runs");
        kill_after(&mut child, within.mul_f64(random.f64()));
    }
    let output = run().output().expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Killed at any moment and begun again, a move comes to the same as one that was left alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_killed_move_goes_on() {
    let ledger = made(fastrand::u64(..), 6_000).await;
    let files = TempDir::new().expect("a directory");
    let (plain, url, _db) = database("plain").await;
    let alone = copy_of(ledger.path());
    let begun = Instant::now();
    let data = |dir: &Path| dir.display().to_string();
    let output = command(files.path(), &url, &["--to", "postgres", "--data", &data(alone.path())])
        .output()
        .expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.contains("total"), "{printed}");
    let took = begun.elapsed();
    let expected = dump(&plain);
    let back = TempDir::new().expect("a directory");
    let begun = Instant::now();
    let way_back = ["--from", "postgres", "--data", &data(back.path())].map(str::to_owned);
    let way_back: Vec<&str> = way_back.iter().map(String::as_str).collect();
    let output = command(files.path(), &url, &way_back).output().expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let took_back = begun.elapsed();
    let whole = verify(back.path()).expect("readable");
    for _ in 0..KILLS {
        let seed = fastrand::u64(..);
        let (name, url, _db) = database("killed").await;
        let dir = copy_of(ledger.path());
        let dir = data(dir.path());
        let run = || command(files.path(), &url, &["--to", "postgres", "--data", &dir]);
        killed(run, 2, took, seed);
        assert_eq!(dump(&name), expected, "seed {seed}");
        let back = TempDir::new().expect("a directory");
        let to = data(back.path());
        let run = || command(files.path(), &url, &["--from", "postgres", "--data", &to]);
        killed_on_the_way_back(run, (&name, back.path()), took_back, seed);
        let report = verify(back.path()).expect("readable");
        assert_eq!((report.violations, report.total), (vec![], whole.total), "seed {seed}");
    }
}

/// The same, where at every moment either the fleet or the new ledger can be used, and never both.
fn killed_on_the_way_back(
    run: impl Fn() -> Command,
    (name, dir): (&str, &Path),
    within: Duration,
    seed: u64,
) {
    let mut child = run().spawn().expect("runs");
    kill_after(&mut child, within.mul_f64(fastrand::Rng::with_seed(seed).f64()));
    let left = Postgres::shared().sql(name, "SELECT moved_out IS NOT NULL FROM tollgate.head");
    let can_be_opened = dir.join("journal").exists() && !dir.join("moved.json").exists();
    assert!(!can_be_opened || left == "t", "two copies, seed {seed}");
    let output = run().output().expect("runs");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    assert_eq!(errors.contains("nothing was done now"), can_be_opened, "seed {seed}: {errors}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_moves_at_once_are_one() {
    let dir = made(fastrand::u64(..), 300).await;
    let (plain, _, db) = database("one_move").await;
    let copy = copy_of(dir.path());
    moving::move_in(&db, copy.path()).await.expect("moves");
    let expected = dump(&plain);
    for _ in 0..3 {
        let (name, url, _db) = database("two_moves").await;
        let copies = [copy_of(dir.path()), copy_of(dir.path())];
        let moves = copies.iter().map(|copy| {
            let (url, dir) = (url.clone(), copy.path().to_owned());
            tokio::spawn(async move {
                let db = Db::for_moving(&options(&url)).await.expect("a database");
                moving::move_in(&db, &dir).await.map(|moved| moved.tallies)
            })
        });
        let mut tallies = Vec::new();
        for moved in moves.collect::<Vec<_>>() {
            tallies.push(moved.await.expect("no panic").expect("moves"));
        }
        assert_eq!(tallies[0], tallies[1]);
        assert_eq!(dump(&name), expected);
    }
}

/// Moves that are refused change neither side.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_cannot_move_stays() {
    let dir = made(fastrand::u64(..), 50).await;
    let (name, _, db) = database("stays").await;
    let files = |dir: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(dir).expect("a directory");
        let mut files: Vec<_> = entries.map(|entry| entry.expect("one").path()).collect();
        files.sort();
        files
    };
    let before = dump(&name);

    let damaged = copy_of(dir.path());
    let segment = files(&damaged.path().join("journal"))[0].clone();
    let mut bytes = std::fs::read(&segment).expect("a segment");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&segment, bytes).expect("written");
    let refused = moving::move_in(&db, damaged.path()).await;
    assert!(matches!(refused, Err(MoveError::Unsound(_))), "{refused:?}");

    let in_use = copy_of(dir.path());
    let ledger = open(in_use.path(), RecoveryPolicy::Void);
    let refused = moving::move_in(&db, in_use.path()).await;
    assert!(matches!(refused, Err(MoveError::Ledger(OpenError::InUse(_)))), "{refused:?}");
    let account = ledger.accounts()[0].id;
    let hold = ledger.reserve(crate::harness::fleet::reserve(account, 5)).expect("a hold");
    hold.durable().await.expect("on disk");
    let crashed = copy_of(in_use.path());
    let refused = moving::move_in(&db, crashed.path()).await;
    assert!(matches!(refused, Err(MoveError::LeftOpen(1))), "{refused:?}");
    drop(hold);
    ledger.close();
    drop(ledger);

    for dir in [&damaged, &in_use, &crashed] {
        assert!(!dir.path().join("moved.json").exists());
    }
    assert_eq!(dump(&name), before);

    let copy = copy_of(dir.path());
    moving::move_in(&db, dir.path()).await.expect("moves");
    let before = dump(&name);
    // The same ledger after it has gone on, and another with an account of the same name.
    let ledger = open(copy.path(), RecoveryPolicy::Void);
    ledger.create_account("more").await.expect("an account");
    ledger.close();
    drop(ledger);
    let refused = moving::move_in(&db, copy.path()).await;
    assert!(matches!(refused, Err(MoveError::WentOn)), "{refused:?}");
    assert_eq!(dump(&name), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn another_ledger_moves_in_unless_it_collides() {
    let (name, _, db) = database("another").await;
    let (one, two) = (made(1, 40).await, made(2, 40).await);
    moving::move_in(&db, one.path()).await.expect("moves");
    let accounts = Postgres::shared().sql(&name, "SELECT count(*) FROM tollgate.accounts");
    // Doubts have the places of a single gateway's journal, so those of two may be the same; then
    // nothing moves before they are looked into.
    match moving::move_in(&db, two.path()).await {
        Ok(_) => {
            let more = Postgres::shared().sql(&name, "SELECT count(*) FROM tollgate.accounts");
            assert!(more > accounts);
        }
        Err(MoveError::Collides(found)) => {
            assert!(found.iter().all(|found| found.starts_with("the hold")), "{found:?}");
        }
        Err(error) => panic!("{error}"),
    }
    // An address opens one account.
    let three = made(1, 10).await;
    let before = dump(&name);
    let refused = moving::move_in(&db, three.path()).await;
    let Err(MoveError::Collides(found)) = refused else { panic!("{refused:?}") };
    assert!(found.contains(&"someone-1@example.com".to_owned()), "{found:?}");
    assert_eq!(dump(&name), before);
    assert!(!three.path().join("moved.json").exists());
}

/// A ledger with an account, and with a price group in which all models cost so many times the list.
async fn with_group(factor: &str) -> TempDir {
    let dir = TempDir::new().expect("a directory");
    let ledger = open(dir.path(), RecoveryPolicy::Void);
    ledger.create_account("A").await.expect("an account");
    let terms = PriceTerms::Factor(Factor::parse(factor).expect("a factor"));
    let rule = PriceRule { models: "*".to_owned(), terms, from: None, until: None };
    let by = ledger.by(&Actor::operator("ada"));
    by.set_price_group("resellers", vec![rule], IfMatch::Anything).await.expect("a group");
    ledger.close();
    dir
}

/// Customers of the fleet go on paying what its group says.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_price_group_of_the_same_name_collides() {
    let (name, _, db) = database("groups").await;
    let (one, two) = (with_group("0.9").await, with_group("2").await);
    moving::move_in(&db, one.path()).await.expect("moves");
    let before = dump(&name);
    let refused = moving::move_in(&db, two.path()).await;
    let Err(MoveError::Collides(found)) = refused else { panic!("{refused:?}") };
    assert_eq!(found, ["the price group resellers"]);
    assert_eq!(dump(&name), before);
}

#[tokio::test]
async fn an_unreachable_database_is_reported() {
    let dir = made(fastrand::u64(..), 10).await;
    let files = TempDir::new().expect("a directory");
    let data = dir.path().display().to_string();
    let url = "postgres://tollgate@127.0.0.1:1/tollgate";
    let output = command(files.path(), url, &["--to", "postgres", "--data", &data]).output();
    let output = output.expect("runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{errors}");
    assert!(errors.contains("127.0.0.1:1"), "{errors}");
    assert!(!dir.path().join("moved.json").exists());
    open(dir.path(), RecoveryPolicy::Void).close();
}
