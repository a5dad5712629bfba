//! The ledger as its callers see it: what is promised of money, keys and statements.

use std::sync::Arc;

use tempfile::TempDir;
use tollgate::clock::UnixMs;
use tollgate::ledger::{
    AccountId, CallName, EntryKind, Grain, Hold, KeyId, KeyPatch, Ledger, LedgerError, NewKey,
    Options, Posted, Refusal, RequestId, Reserve, Settlement, VoidReason, verify,
};
use tollgate::money::Nanousd;
use tollgate::price::{Usage, UsageSource};
use tollgate::secret::KeyHash;

fn open(dir: &TempDir) -> Arc<Ledger> {
    Ledger::open(Options::new(dir.path())).expect("opens").0
}

fn money(nanousd: i64) -> Nanousd {
    Nanousd::new(nanousd)
}

fn ask(account: AccountId, amount: i64) -> Reserve {
    Reserve {
        account,
        key: KeyId::from_number(7),
        model: "model-a".into(),
        request: RequestId::new(),
        amount: money(amount),
        floor: money(1),
    }
}

fn cost(nanousd: i64) -> Settlement {
    let usage = Usage { input_tokens: 3, output_tokens: 5, ..Usage::default() };
    Settlement { charge: money(nanousd), usage, source: UsageSource::Upstream }
}

async fn account_with(ledger: &Ledger, nanousd: i64) -> AccountId {
    let account = ledger.create_account("test").await.expect("account").id;
    if nanousd > 0 {
        ledger.grant(account, "initial", money(nanousd)).await.expect("grant");
    }
    account
}

/// Granted, available, held, spent.
fn balance(ledger: &Ledger, account: AccountId) -> [i64; 4] {
    let balance = ledger.account(account).expect("account").balance;
    [balance.granted, balance.available, balance.held, balance.spent].map(Nanousd::get)
}

async fn is_sound(ledger: Arc<Ledger>, dir: &TempDir) {
    let hash = ledger.state_hash();
    ledger.close();
    drop(ledger);
    let report = verify(dir.path()).expect("verifies");
    assert_eq!(report.violations, Vec::<String>::new(), "violations of the invariants");
    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(report.state_hash, hash, "replay gives another state than memory had");
    assert_eq!(report.sled_hash, Some(hash), "sled gives another state than memory had");
}

#[tokio::test]
async fn a_call_is_held_and_settled() {
    let dir = TempDir::new().expect("directory");
    let ledger = open(&dir);
    let account = account_with(&ledger, 1000).await;
    let hold = ledger.reserve(ask(account, 300)).expect("hold");
    assert_eq!(balance(&ledger, account), [1000, 700, 300, 0], "while it is open");
    assert_eq!(ledger.open_holds(), 1, "open holds");
    hold.durable().await.expect("durable");
    assert!(hold.is_durable(), "a hold that was waited for must be durable");
    assert_eq!(hold.post(cost(120)), Posted { charged: money(120), written_off: money(0) });
    assert_eq!(balance(&ledger, account), [1000, 880, 0, 120], "once it is settled");
    let hold = ledger.reserve(ask(account, 880)).expect("all that is left can be held");
    hold.void(VoidReason::Unreached);
    assert_eq!(balance(&ledger, account), [1000, 880, 0, 120], "a void costs nothing");
    is_sound(ledger, &dir).await;
}

#[tokio::test]
async fn a_refusal_says_whether_money_is_missing_or_held() {
    let dir = TempDir::new().expect("directory");
    let ledger = open(&dir);
    let account = account_with(&ledger, 1000).await;
    let first = ledger.reserve(ask(account, 600)).expect("hold");
    let refusal = ledger.reserve(ask(account, 600)).expect_err("more than is available");
    assert_eq!(refusal, Refusal::Held { available: money(400), held: money(600) });
    let refusal = ledger.reserve(ask(account, 1001)).expect_err("more than there is");
    assert_eq!(refusal, Refusal::Insufficient { available: money(400) });
    let unknown = AccountId::from_number(1);
    assert_eq!(ledger.reserve(ask(unknown, 1)).expect_err("unknown"), Refusal::UnknownAccount);
    first.void(VoidReason::ClientGone);
    is_sound(ledger, &dir).await;
}

#[tokio::test]
async fn a_charge_above_the_hold_takes_what_is_there_and_the_rest_is_written_off() {
    let dir = TempDir::new().expect("directory");
    let ledger = open(&dir);
    let account = account_with(&ledger, 1000).await;
    let posted = ledger.reserve(ask(account, 100)).expect("hold").post(cost(150));
    assert_eq!(posted, Posted { charged: money(150), written_off: money(0) }, "50 were available");
    let posted = ledger.reserve(ask(account, 800)).expect("hold").post(cost(1000));
    assert_eq!(posted, Posted { charged: money(850), written_off: money(150) }, "50 were left");
    assert_eq!(balance(&ledger, account), [1000, 0, 0, 1000]);
    assert_eq!(ledger.written_off(), money(150));
    is_sound(ledger, &dir).await;
}

#[tokio::test]
async fn a_hold_can_be_extended() {
    let dir = TempDir::new().expect("directory");
    let ledger = open(&dir);
    let account = account_with(&ledger, 1000).await;
    let mut hold = ledger.reserve(ask(account, 100)).expect("hold");
    hold.durable().await.expect("durable");
    hold.extend(money(200)).expect("extends");
    assert_eq!(hold.amount(), money(300));
    let refusal = hold.extend(money(701)).expect_err("more than is available");
    assert_eq!(refusal, Refusal::Held { available: money(700), held: money(300) });
    hold.durable().await.expect("the extension is durable");
    assert_eq!(hold.post(cost(250)).charged, money(250));
    assert_eq!(balance(&ledger, account), [1000, 750, 0, 250]);
    is_sound(ledger, &dir).await;
}

#[tokio::test]
async fn a_dropped_hold_is_voided() {
    let dir = TempDir::new().expect("directory");
    let ledger = open(&dir);
    let account = account_with(&ledger, 1000).await;
    drop(ledger.reserve(ask(account, 100)).expect("hold"));
    assert_eq!(balance(&ledger, account), [1000, 1000, 0, 0]);
    let entries = ledger.entries(account, None, 1).await.expect("entries");
    assert_eq!(entries[0].kind, EntryKind::Void { reason: VoidReason::Abandoned });
    is_sound(ledger, &dir).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_thousand_parallel_calls_on_a_balance_for_ten() {
    let dir = TempDir::new().expect("directory");
    let ledger = open(&dir);
    let account = account_with(&ledger, 10 * 7).await;
    let calls: Vec<_> = (0..1000)
        .map(|_| {
            let ledger = Arc::clone(&ledger);
            tokio::spawn(async move {
                let hold = ledger.reserve(ask(account, 7)).ok()?;
                hold.durable().await.expect("durable");
                Some(hold)
            })
        })
        .collect();
    let mut holds: Vec<Hold> = Vec::new();
    for call in calls {
        holds.extend(call.await.expect("the task ends"));
    }
    assert_eq!(holds.len(), 10, "calls that got a hold");
    assert_eq!(balance(&ledger, account), [70, 0, 70, 0]);
    for hold in holds {
        hold.post(cost(7));
    }
    assert_eq!(balance(&ledger, account), [70, 0, 0, 70]);
    is_sound(ledger, &dir).await;
}

#[tokio::test]
async fn a_grant_is_made_once_per_id() {
    let dir = TempDir::new().expect("directory");
    let ledger = open(&dir);
    let account = account_with(&ledger, 0).await;
    let first = ledger.grant(account, "order-1", money(50)).await.expect("grant");
    assert!(!first.repeated, "the first of its id is new");
    for _ in 0..2 {
        let again = ledger.grant(account, "order-1", money(50)).await.expect("grant");
        assert_eq!((again.seq, again.repeated), (first.seq, true), "the same id and body");
    }
    let other = ledger.grant(account, "order-1", money(51)).await;
    assert_eq!(other, Err(LedgerError::Conflict), "the same id, another body");
    for wrong in [0, -1] {
        let refused = ledger.grant(account, "order-2", money(wrong)).await;
        assert!(matches!(refused, Err(LedgerError::Invalid(_))), "a grant of {wrong}: {refused:?}");
    }
    assert_eq!(balance(&ledger, account), [50, 50, 0, 0]);
    ledger.close();
    drop(ledger);
    let ledger = open(&dir);
    let again = ledger.grant(account, "order-1", money(50)).await.expect("grant");
    assert_eq!((again.seq, again.repeated), (first.seq, true), "after a restart");
    is_sound(ledger, &dir).await;
}

#[tokio::test]
async fn refunds_stay_within_the_charge() {
    let dir = TempDir::new().expect("directory");
    let ledger = open(&dir);
    let account = account_with(&ledger, 1000).await;
    let hold = ledger.reserve(ask(account, 300)).expect("hold");
    let id = hold.id();
    let open_yet = ledger.refund(account, "r0", id, money(1)).await;
    assert_eq!(open_yet, Err(LedgerError::UnknownHold(id)), "an open hold has no charge");
    hold.post(cost(200));
    let first = ledger.refund(account, "r1", id, money(150)).await.expect("refund");
    let again = ledger.refund(account, "r1", id, money(150)).await.expect("refund");
    assert_eq!((again.seq, again.repeated), (first.seq, true), "the same id and body");
    assert_eq!(ledger.refund(account, "r1", id, money(10)).await, Err(LedgerError::Conflict));
    let too_much = ledger.refund(account, "r2", id, money(51)).await;
    let expected = LedgerError::RefundTooLarge { charged: money(200), refunded: money(150) };
    assert_eq!(too_much, Err(expected));
    ledger.refund(account, "r3", id, money(50)).await.expect("the rest");
    assert_eq!(balance(&ledger, account), [1000, 1000, 0, 0]);
    let stranger = account_with(&ledger, 5).await;
    let refused = ledger.refund(stranger, "r1", id, money(1)).await;
    assert_eq!(refused, Err(LedgerError::UnknownHold(id)), "another account's hold");
    is_sound(ledger, &dir).await;
}

#[tokio::test]
async fn keys_are_found_by_their_hash_and_changed() {
    let dir = TempDir::new().expect("directory");
    let ledger = open(&dir);
    let account = account_with(&ledger, 0).await;
    let new = NewKey { name: "ci".into(), models: Some(vec!["m".into()]), ..NewKey::default() };
    let (secret, key) = ledger.create_key(account, new).await.expect("key");
    let hash = KeyHash::of(secret.expose().as_bytes());
    assert_eq!(ledger.key(&hash).expect("found").id, key.id);
    assert!(ledger.key(&KeyHash::of(b"sk-other")).is_none(), "an unknown key was found");
    let patch = KeyPatch {
        disabled: Some(true),
        models: Some(None),
        expires_at: Some(Some(UnixMs(5))),
        ..KeyPatch::default()
    };
    ledger.update_key(key.id, patch).await.expect("changed");
    let changed = ledger.key(&hash).expect("found");
    assert!(changed.disabled && changed.models.is_none() && changed.name == "ci", "{changed:?}");
    ledger.close();
    drop(ledger);
    for entry in walk(dir.path()) {
        let bytes = std::fs::read(&entry).expect("readable");
        let found = bytes.windows(3).any(|window| window == b"sk-");
        assert!(!found, "{} holds a key's text", entry.display());
    }
    let ledger = open(&dir);
    assert_eq!(ledger.key(&hash), Some(Arc::clone(&changed)), "after a restart");
    assert_eq!(ledger.keys_of(account), vec![changed]);
    let unknown = KeyId::from_number(1);
    let refused = ledger.update_key(unknown, KeyPatch::default()).await;
    assert_eq!(refused, Err(LedgerError::UnknownKey(unknown)));
    is_sound(ledger, &dir).await;
}

/// Sled does not flush its blob files: a value in one can be lost.
#[tokio::test]
async fn the_largest_rows_stay_out_of_blob_files() {
    let dir = TempDir::new().expect("directory");
    let ledger = open(&dir);
    let account = account_with(&ledger, 1_000_000).await;
    let models: Vec<String> = (0..100).map(|number| format!("{number:0>256}")).collect();
    let creations = (0..60).map(|number| {
        let (name, models) = (format!("{number:0>256}"), Some(models.clone()));
        ledger.create_key(account, NewKey { name, models, ..NewKey::default() })
    });
    futures_util::future::try_join_all(creations).await.expect("keys");
    for _ in 0..20_000 {
        ledger.reserve(ask(account, 2)).expect("hold").post(cost(1));
    }
    is_sound(ledger, &dir).await;
    let blobs = walk(dir.path()).into_iter().filter(|path| path.to_string_lossy().contains("blob"));
    assert_eq!(blobs.collect::<Vec<_>>(), Vec::<std::path::PathBuf>::new());
}

fn walk(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).expect("readable") {
        let path = entry.expect("readable").path();
        if path.is_dir() { files.extend(walk(&path)) } else { files.push(path) }
    }
    files
}

#[tokio::test]
async fn a_statement_has_everything_newest_first_and_in_pages() {
    let dir = TempDir::new().expect("directory");
    let ledger = open(&dir);
    let account = account_with(&ledger, 1_000_000).await;
    let begin = UnixMs::now();
    for n in 0..400 {
        ledger.reserve(ask(account, 100)).expect("hold").post(cost(n));
        if n % 100 == 0 {
            assert_eq!(ledger.entries(account, None, 1).await.expect("entries").len(), 1);
        }
    }
    let (mut pages, mut before) = (Vec::new(), None);
    loop {
        let page = ledger.entries(account, before, 70).await.expect("entries");
        let Some(last) = page.last() else { break };
        before = Some(last.seq);
        pages.extend(page);
    }
    assert_eq!(pages.len(), 1 + 400, "the grant and the ends of all holds");
    assert!(pages.windows(2).all(|pair| pair[0].seq > pair[1].seq), "newest must come first");
    let EntryKind::Settlement { charged, usage_source, .. } = pages[0].kind else {
        panic!("the newest entry is a settlement, not {:?}", pages[0]);
    };
    assert_eq!((charged, usage_source), (money(399), UsageSource::Upstream));
    let call = pages[0].call.as_ref().expect("its call");
    assert_eq!((&*call.model, call.held), ("model-a", money(399)));
    let open = ledger.reserve(ask(account, 5)).expect("hold");
    let newest = &ledger.entries(account, None, 2).await.expect("entries");
    assert_eq!(newest[0].kind, EntryKind::Hold, "an open hold is listed");
    assert_eq!(newest[0].call.as_ref().map(|call| call.hold), Some(open.id()));
    assert_eq!(newest[1], pages[0], "in its place among the others");
    open.void(VoidReason::UpstreamError);
    let newest = &ledger.entries(account, None, 2).await.expect("entries");
    assert!(
        matches!(newest[0].kind, EntryKind::Void { .. }),
        "its end takes its place: {newest:?}"
    );
    assert_eq!(newest[1], pages[0]);
    let usage = ledger.usage(account, begin..UnixMs::now()).await.expect("usage");
    let (calls, charged) = usage
        .iter()
        .fold((0, 0), |sum, row| (sum.0 + row.total.calls, sum.1 + row.total.charged.get()));
    assert_eq!((calls, charged), (400, (0..400).sum::<i64>()), "usage by hour adds up");
    // What is read lately is exact once it was read exactly.
    let range = begin..UnixMs::now();
    let days = ledger.usage_lately(account, Grain::Day, range.clone()).await.expect("usage");
    let calls: u64 = days.iter().map(|row| row.total.calls).sum();
    assert_eq!(calls, 400, "usage by day adds up: {days:?}");
    for grain in [Grain::Hour, Grain::Day] {
        let all = ledger.usage_of_all(grain, range.clone()).await.expect("usage");
        let charged: i64 = all.iter().map(|row| row.total.charged.get()).sum();
        assert_eq!(charged, (0..400).sum::<i64>(), "usage of all adds up: {all:?}");
    }
    let used = ledger.keys_last_used(account).await.expect("keys");
    assert_eq!(used.len(), 1, "one key was used: {used:?}");
    assert!(used.values().all(|at| (begin..=UnixMs::now()).contains(at)), "{used:?}");
    is_sound(ledger, &dir).await;
}

#[tokio::test]
async fn a_nearly_full_disk_refuses_holds_but_takes_settlements() {
    let dir = TempDir::new().expect("directory");
    let ledger = open(&dir);
    let account = account_with(&ledger, 100).await;
    ledger.close();
    drop(ledger);
    let options = Options { disk_free_bytes_min: u64::MAX, ..Options::new(dir.path()) };
    let (ledger, _) = Ledger::open(options).expect("opens");
    ledger.grant(account, "more", money(1)).await.expect("a grant is taken");
    let refusal = ledger.reserve(ask(account, 1)).expect_err("no room for holds");
    assert_eq!(refusal, Refusal::DiskFull);
    is_sound(ledger, &dir).await;
}

#[tokio::test]
async fn a_closed_ledger_takes_nothing() {
    let dir = TempDir::new().expect("directory");
    let ledger = open(&dir);
    let account = account_with(&ledger, 100).await;
    ledger.close();
    assert_eq!(ledger.reserve(ask(account, 1)).expect_err("closed"), Refusal::Stopped);
    assert_eq!(ledger.grant(account, "x", money(1)).await, Err(LedgerError::Stopped));
    assert_eq!(ledger.entries(account, None, 1).await.map(|entries| entries.len()), Ok(1));
}

/// The money of one call is found among many, by its request and by its hold, and nobody else's is.
#[tokio::test]
async fn the_money_of_one_call_is_found_among_many() {
    let dir = TempDir::new().expect("directory");
    let ledger = open(&dir);
    let account = account_with(&ledger, 1_000_000).await;
    let other = account_with(&ledger, 1_000_000).await;
    let mut calls = Vec::new();
    for number in 0..400 {
        let asked = ask(account, 10);
        let request = asked.request;
        let began = UnixMs::now();
        let hold = ledger.reserve(asked).expect("hold");
        calls.push((request, hold.id(), began));
        match number % 3 {
            0 => hold.void(VoidReason::Unreached),
            _ => drop(hold.post(cost(7))),
        }
        if number % 20 == 0 {
            // Another chunk begins behind each window that was asked for.
            ledger.entries(account, None, 1).await.expect("entries");
        }
    }
    for (number, (request, id, began)) in calls.iter().enumerate() {
        let by_request = CallName::Request(*request, *began);
        let found = ledger.call_money(account, by_request).await.expect("read").expect("found");
        let by_hold = ledger.call_money(account, CallName::Hold(*id, None)).await.expect("read");
        assert_eq!(by_hold.as_ref(), Some(&found), "call {number}");
        assert_eq!((found.call.request, found.call.hold), (*request, *id), "call {number}");
        let is_void = matches!(
            found.end.as_ref().map(|end| &end.kind),
            Some(EntryKind::Void { reason: VoidReason::Unreached })
        );
        assert_eq!(is_void, number % 3 == 0, "call {number}: {found:?}");
        for name in [by_request, CallName::Hold(*id, None)] {
            assert_eq!(ledger.call_money(other, name).await.expect("read"), None, "another's");
        }
    }
    let (request, id, began) = calls[1];
    ledger.refund(account, "second", id, money(3)).await.expect("refund");
    ledger.refund(account, "first", id, money(2)).await.expect("refund");
    let name = CallName::Request(request, began);
    let found = ledger.call_money(account, name).await.expect("read").expect("found");
    let refunds: Vec<_> = found.refunds.iter().map(|entry| &entry.kind).collect();
    let refund = |name: &str, amount| EntryKind::Refund {
        id: name.to_owned(),
        hold: id,
        amount: money(amount),
    };
    assert_eq!(refunds, [&refund("second", 3), &refund("first", 2)], "in their order");
    let asked = ask(account, 10);
    let (request, began) = (asked.request, UnixMs::now());
    let mut hold = ledger.reserve(asked).expect("hold");
    hold.extend(money(5)).expect("extended");
    let name = CallName::Request(request, began);
    let found = ledger.call_money(account, name).await.expect("read").expect("open");
    assert_eq!((found.reserved, found.call.held), (money(10), money(15)));
    assert_eq!((found.end, found.refunds), (None, Vec::new()), "it is open");
    assert_eq!(ledger.call_money(other, name).await.expect("read"), None, "another's");
    hold.void(VoidReason::ClientGone);
    is_sound(ledger, &dir).await;
}
