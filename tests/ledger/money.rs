//! The ledger as its callers see it: what is promised of money, keys and statements.

use std::sync::Arc;

use tempfile::TempDir;
use tollgate::clock::UnixMs;
use tollgate::ledger::{
    AccountId, Actor, CallName, EntryKind, Grain, Hold, KeyId, KeyPatch, Ledger, LedgerError, Loss,
    LossCause, NewKey, Options, PostedCharge, Refusal, RequestId, VoidReason, verify,
};
use tollgate::money::Nanousd;
use tollgate::price::UsageSource;
use tollgate::secret::KeyHash;

use crate::harness::fleet::{cost, money, reserve};
use crate::harness::ledger::close_and_verify;

fn open(dir: &TempDir) -> Arc<Ledger> {
    Ledger::open(Options::new(dir.path())).expect("opens").0
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

#[tokio::test]
async fn a_call_is_held_and_settled() {
    let dir = TempDir::new().expect("directory");
    let ledger = open(&dir);
    let account = account_with(&ledger, 1000).await;
    let hold = ledger.reserve(reserve(account, 300)).expect("hold");
    assert_eq!(balance(&ledger, account), [1000, 700, 300, 0], "while it is open");
    assert_eq!(ledger.open_holds(), 1, "open holds");
    hold.durable().await.expect("durable");
    assert!(hold.is_durable(), "a hold that was waited for must be durable");
    assert_eq!(hold.post(cost(120)), PostedCharge { charged: money(120), owed: money(0) });
    assert_eq!(balance(&ledger, account), [1000, 880, 0, 120], "once it is settled");
    let hold = ledger.reserve(reserve(account, 880)).expect("all that is left can be held");
    hold.void(VoidReason::Unreached);
    assert_eq!(balance(&ledger, account), [1000, 880, 0, 120], "a void costs nothing");
    close_and_verify(ledger, dir.path());
}

#[tokio::test]
async fn a_refusal_says_whether_money_is_missing_or_held() {
    let dir = TempDir::new().expect("directory");
    let ledger = open(&dir);
    let account = account_with(&ledger, 1000).await;
    let first = ledger.reserve(reserve(account, 600)).expect("hold");
    let refusal = ledger.reserve(reserve(account, 600)).expect_err("more than is available");
    assert_eq!(refusal, Refusal::Held { available: money(400), held: money(600) });
    let refusal = ledger.reserve(reserve(account, 1001)).expect_err("more than there is");
    assert_eq!(refusal, Refusal::Insufficient { available: money(400) });
    let unknown = AccountId::from_number(1);
    assert_eq!(ledger.reserve(reserve(unknown, 1)).expect_err("unknown"), Refusal::UnknownAccount);
    first.void(VoidReason::ClientDisconnected);
    close_and_verify(ledger, dir.path());
}

#[tokio::test]
async fn a_charge_above_the_hold_takes_what_is_there_and_the_rest_is_owed() {
    let dir = TempDir::new().expect("directory");
    let ledger = open(&dir);
    let account = account_with(&ledger, 1000).await;
    let posted = ledger.reserve(reserve(account, 100)).expect("hold").post(cost(150));
    assert_eq!(posted, PostedCharge { charged: money(150), owed: money(0) }, "50 were available");
    let posted = ledger.reserve(reserve(account, 800)).expect("hold").post(cost(1000));
    assert_eq!(posted, PostedCharge { charged: money(850), owed: money(150) }, "50 were left");
    assert_eq!(balance(&ledger, account), [1000, 0, 0, 1000]);
    assert_eq!((ledger.debt(), ledger.written_off()), (money(150), money(0)));
    let refusal = ledger.reserve(reserve(account, 0)).expect_err("it owes");
    assert_eq!(refusal, Refusal::InDebt { debt: money(150), available: money(0) });

    // A part of it is paid, a part is given up, and the last grant leaves something over.
    ledger.grant(account, "second", money(30)).await.expect("granted");
    assert_eq!(balance(&ledger, account), [1030, 0, 0, 1030]);
    assert_eq!(ledger.debt(), money(120));
    let actor = Actor::Gateway;
    let by = ledger.by(&actor);
    let too_much = by.write_off(account, "w", money(121), "too much").await;
    assert!(matches!(too_much, Err(LedgerError::NotOwed)), "{too_much:?}");
    let given_up = by.write_off(account, "w", money(20), "agreed").await.expect("given up");
    let again = by.write_off(account, "w", money(20), "agreed").await.expect("given up before");
    assert_eq!((again.seq, again.repeated), (given_up.seq, true));
    assert!(matches!(by.write_off(account, "w", money(1), "x").await, Err(LedgerError::Conflict)));
    assert_eq!((ledger.debt(), ledger.written_off()), (money(100), money(20)));
    let granted = ledger.grant(account, "third", money(150)).await.expect("granted");
    let again = ledger.grant(account, "third", money(150)).await.expect("granted before");
    assert_eq!((again.seq, again.repeated), (granted.seq, true));
    assert_eq!(balance(&ledger, account), [1180, 50, 0, 1130]);
    assert_eq!(ledger.debt(), money(0));
    let entries = ledger.entries(account, None, 100).await.expect("entries");
    assert_eq!(
        entries.iter().find(|entry| entry.seq == granted.seq).map(|entry| &entry.kind),
        Some(&EntryKind::Grant { id: "third".to_owned(), amount: money(150) })
    );
    let sum: i64 = entries
        .iter()
        .map(|entry| match &entry.kind {
            EntryKind::Grant { amount, .. } => amount.get(),
            EntryKind::Settlement { charged, .. } => -charged.get(),
            EntryKind::DebtPayment { amount } => -amount.get(),
            EntryKind::WriteOff { .. } => 0,
            other => panic!("{other:?}"),
        })
        .sum();
    assert_eq!(sum, 50, "the lines add up to what is available");
    let owed: i64 = entries
        .iter()
        .map(|entry| match &entry.kind {
            EntryKind::Settlement { owed, .. } => owed.get(),
            EntryKind::DebtPayment { amount } | EntryKind::WriteOff { amount, .. } => -amount.get(),
            _ => 0,
        })
        .sum();
    assert_eq!(owed, 0, "and to what is owed");
    ledger.reserve(reserve(account, 50)).expect("what is left").void(VoidReason::Unreached);
    close_and_verify(ledger, dir.path());
}

/// Money released by other calls pays an earlier call's debt, and so does a refund.
#[tokio::test]
async fn whatever_becomes_available_pays_the_debt_first() {
    let dir = TempDir::new().expect("directory");
    let ledger = open(&dir);
    let account = account_with(&ledger, 1000).await;
    let [one, two, three] = [300, 300, 400].map(|amount| ledger.reserve(reserve(account, amount)));
    let (one, two, three) = (one.expect("hold"), two.expect("hold"), three.expect("hold"));
    let id = one.id();
    assert_eq!(one.post(cost(800)), PostedCharge { charged: money(300), owed: money(500) });
    assert_eq!(balance(&ledger, account), [1000, 0, 700, 300]);
    two.void(VoidReason::Unreached);
    assert_eq!(balance(&ledger, account), [1000, 0, 400, 600]);
    assert_eq!(ledger.debt(), money(200));
    assert_eq!(three.post(cost(300)), PostedCharge { charged: money(300), owed: money(0) });
    assert_eq!(balance(&ledger, account), [1000, 0, 0, 1000]);
    assert_eq!(ledger.debt(), money(100));
    ledger.refund(account, "r", id, money(130)).await.expect("refunded");
    assert_eq!(balance(&ledger, account), [1000, 30, 0, 970]);
    assert_eq!(ledger.debt(), money(0));
    close_and_verify(ledger, dir.path());
}

/// Many calls that cost more than was held for them end at one time, while money is given: what is
/// paid and what is owed add up to the bills, to the nano-dollar.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn bills_beyond_their_holds_are_exact_at_one_time() {
    const CALLS: i64 = 40;
    let dir = TempDir::new().expect("directory");
    let ledger = open(&dir);
    let account = account_with(&ledger, 100 * CALLS).await;
    let holds: Vec<_> =
        (0..CALLS).map(|_| ledger.reserve(reserve(account, 100)).expect("hold")).collect();
    let mut ends = tokio::task::JoinSet::new();
    for (hold, number) in holds.into_iter().zip(0..) {
        ends.spawn(async move {
            if number % 5 == 0 {
                hold.void(VoidReason::Unreached);
                return 0;
            }
            let charge = 50 + number * 13;
            let posted = hold.post(cost(charge));
            assert_eq!(posted.charged.get() + posted.owed.get(), charge);
            charge
        });
    }
    for grant in 0..10 {
        ledger.grant(account, &format!("more-{grant}"), money(70)).await.expect("granted");
    }
    let billed: i64 = ends.join_all().await.iter().sum();
    let found = ledger.account(account).expect("account").balance;
    assert_eq!(found.spent.get() + found.debt.get(), billed, "{found:?}");
    assert_eq!(found.granted.get(), 100 * CALLS + 700);
    assert!(found.debt > money(0) && found.available.is_zero(), "{found:?}");
    ledger.grant(account, "the rest", money(found.debt.get() + 1)).await.expect("granted");
    let found = ledger.account(account).expect("account").balance;
    assert_eq!((found.spent.get(), found.available, found.debt), (billed, money(1), money(0)));
    close_and_verify(ledger, dir.path());
}

#[tokio::test]
async fn losses_are_counted_by_cause_and_move_nothing() {
    let dir = TempDir::new().expect("directory");
    let ledger = open(&dir);
    let account = account_with(&ledger, 1000).await;
    let loss = |cause, amount| Loss {
        account,
        key: KeyId::from_number(1),
        model: "m".into(),
        upstream: "u".to_owned(),
        request: RequestId::new(),
        cause,
        amount: money(amount),
    };
    ledger.record_loss(loss(LossCause::Retry, 30));
    ledger.record_loss(loss(LossCause::ConnectionLost, 5));
    ledger.record_loss(loss(LossCause::Retry, 12));
    ledger.record_loss(loss(LossCause::Untold, 0));
    ledger.record_loss(Loss { account: AccountId::from_number(1), ..loss(LossCause::Retry, 1) });
    let check = async |ledger: &Ledger| {
        let losses = ledger.losses(2).await.expect("losses");
        let sums: Vec<_> = losses
            .sums
            .iter()
            .map(|(cause, sum)| (cause.as_str(), sum.count, sum.amount.get()))
            .collect();
        assert_eq!(sums, [("connection_lost", 1, 5), ("retry", 2, 42)]);
        let last: Vec<_> = losses.last.iter().map(|loss| loss.lost.amount.get()).collect();
        assert_eq!(last, [12, 5], "newest first");
    };
    check(&ledger).await;
    assert_eq!(balance(&ledger, account), [1000, 1000, 0, 0]);
    ledger.close();
    drop(ledger);
    let report = verify(dir.path()).expect("verifies");
    assert_eq!((report.violations, report.losses["retry"].count), (vec![], 2));
    std::fs::remove_dir_all(dir.path().join("sled")).expect("removed");
    let ledger = open(&dir);
    check(&ledger).await;
    close_and_verify(ledger, dir.path());
}

#[tokio::test]
async fn a_hold_can_be_extended() {
    let dir = TempDir::new().expect("directory");
    let ledger = open(&dir);
    let account = account_with(&ledger, 1000).await;
    let mut hold = ledger.reserve(reserve(account, 100)).expect("hold");
    hold.durable().await.expect("durable");
    hold.extend(money(200)).expect("extends");
    assert_eq!(hold.amount(), money(300));
    let refusal = hold.extend(money(701)).expect_err("more than is available");
    assert_eq!(refusal, Refusal::Held { available: money(700), held: money(300) });
    hold.durable().await.expect("the extension is durable");
    assert_eq!(hold.post(cost(250)).charged, money(250));
    assert_eq!(balance(&ledger, account), [1000, 750, 0, 250]);
    close_and_verify(ledger, dir.path());
}

#[tokio::test]
async fn a_hold_moves_to_another_model_while_nobody_else_can_take_its_money() {
    let dir = TempDir::new().expect("directory");
    let ledger = open(&dir);
    let account = account_with(&ledger, 1000).await;
    let mut hold = ledger.reserve(reserve(account, 900)).expect("hold");
    hold.extend(money(100)).expect("the rest");
    let first = hold.id();
    let owing = ledger.reserve(reserve(account, 0)).expect("a hold of nothing");
    let owed = owing.post(cost(50));
    assert_eq!(
        owed,
        PostedCharge { charged: money(0), owed: money(50) },
        "it cost more than was left"
    );
    let hold = hold.move_to("other".into(), None, money(5000)).expect("the ledger is open");
    assert_ne!(hold.id(), first, "another hold");
    assert_eq!(hold.amount(), money(1000));
    assert_eq!(balance(&ledger, account), [1000, 0, 1000, 0], "all is held, whatever is owed");
    assert_eq!(ledger.open_holds(), 1, "open holds");
    hold.durable().await.expect("durable");
    assert_eq!(hold.post(cost(120)), PostedCharge { charged: money(120), owed: money(0) });
    assert_eq!(balance(&ledger, account), [1000, 830, 0, 170], "the debt is paid behind it");
    close_and_verify(ledger, dir.path());
}

#[tokio::test]
async fn a_dropped_hold_is_voided() {
    let dir = TempDir::new().expect("directory");
    let ledger = open(&dir);
    let account = account_with(&ledger, 1000).await;
    drop(ledger.reserve(reserve(account, 100)).expect("hold"));
    assert_eq!(balance(&ledger, account), [1000, 1000, 0, 0]);
    let entries = ledger.entries(account, None, 1).await.expect("entries");
    assert_eq!(entries[0].kind, EntryKind::Void { reason: VoidReason::Abandoned });
    close_and_verify(ledger, dir.path());
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
                let hold = ledger.reserve(reserve(account, 7)).ok()?;
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
    close_and_verify(ledger, dir.path());
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
    close_and_verify(ledger, dir.path());
}

#[tokio::test]
async fn refunds_stay_within_the_charge() {
    let dir = TempDir::new().expect("directory");
    let ledger = open(&dir);
    let account = account_with(&ledger, 1000).await;
    let hold = ledger.reserve(reserve(account, 300)).expect("hold");
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
    close_and_verify(ledger, dir.path());
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
    close_and_verify(ledger, dir.path());
}

/// Sled does not flush its blob files: a value in one can be lost.
#[tokio::test]
async fn the_largest_rows_stay_out_of_blob_files() {
    let dir = TempDir::new().expect("directory");
    let ledger = open(&dir);
    let account = account_with(&ledger, 1_000_000).await;
    let models: Vec<String> = (0..100).map(|number| format!("{number:0>128}")).collect();
    let creations = (0..60).map(|number| {
        let (name, models) = (format!("{number:0>256}"), Some(models.clone()));
        ledger.create_key(account, NewKey { name, models, ..NewKey::default() })
    });
    futures_util::future::try_join_all(creations).await.expect("keys");
    for _ in 0..20_000 {
        ledger.reserve(reserve(account, 2)).expect("hold").post(cost(1));
    }
    close_and_verify(ledger, dir.path());
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
        ledger.reserve(reserve(account, 100)).expect("hold").post(cost(n));
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
    let open = ledger.reserve(reserve(account, 5)).expect("hold");
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
    close_and_verify(ledger, dir.path());
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
    let refusal = ledger.reserve(reserve(account, 1)).expect_err("no room for holds");
    assert_eq!(refusal, Refusal::DiskFull);
    close_and_verify(ledger, dir.path());
}

#[tokio::test]
async fn a_closed_ledger_takes_nothing() {
    let dir = TempDir::new().expect("directory");
    let ledger = open(&dir);
    let account = account_with(&ledger, 100).await;
    ledger.close();
    assert_eq!(ledger.reserve(reserve(account, 1)).expect_err("closed"), Refusal::Stopped);
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
        let query = reserve(account, 10);
        let request = query.request;
        let began = UnixMs::now();
        let hold = ledger.reserve(query).expect("hold");
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
    let query = reserve(account, 10);
    let (request, began) = (query.request, UnixMs::now());
    let mut hold = ledger.reserve(query).expect("hold");
    hold.extend(money(5)).expect("extended");
    let name = CallName::Request(request, began);
    let found = ledger.call_money(account, name).await.expect("read").expect("open");
    assert_eq!((found.reserved, found.call.held), (money(10), money(15)));
    assert_eq!((found.end, found.refunds), (None, Vec::new()), "it is open");
    assert_eq!(ledger.call_money(other, name).await.expect("read"), None, "another's");
    hold.void(VoidReason::ClientDisconnected);
    close_and_verify(ledger, dir.path());
}
