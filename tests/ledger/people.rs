//! People in the ledger: logins, sessions, suspended accounts, codes, and who did what. Each once,
//! also in a crash.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tollgate::clock::UnixMs;
use tollgate::ledger::{
    AccountId, AccountPatch, Actor, CodeKind, CodeRefusal, DoubtRefund, IdempotencyKey, IssuedCode,
    KeyId, KeyPatch, Ledger, LedgerError, NewCode, NewKey, Options, RequestId, Reserve, Settlement,
    SignUp, normal_email, verify,
};
use tollgate::money::Nanousd;
use tollgate::price::{Usage, UsageSource};
use tollgate::secret::{KeyHash, Secret};

use crate::harness;
use crate::harness::child::kill_after;
use crate::harness::eventually_async;
use crate::harness::ledger::{close_and_verify, remove_sled, runtime};
use crate::harness::next_millisecond;

/// Password hash that callers pass.
const PASSWORD: &str = "$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHQ$aGFzaGhhc2g";

fn open(dir: &Path) -> Arc<Ledger> {
    Ledger::open(Options { disk_free_bytes_min: 0, ..Options::new(dir) }).expect("opens").0
}

/// A new seed, printed so that a failure can be had again.
fn seeded() -> fastrand::Rng {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    fastrand::Rng::with_seed(seed)
}

fn admin() -> Actor {
    Actor::operator("ada")
}

fn idempotency_key(id: &str, request: u8) -> IdempotencyKey {
    IdempotencyKey { id: Some(id.to_owned()), digest: [request; 32] }
}

fn credit(amount: i64, uses_max: u32) -> NewCode {
    NewCode {
        kind: CodeKind::Credit,
        amount: Some(Nanousd::new(amount)),
        uses_max,
        expires_at: None,
        note: "spring".to_owned(),
    }
}

fn invite(amount: Option<i64>, uses_max: u32) -> NewCode {
    let amount = amount.map(Nanousd::new);
    NewCode { kind: CodeKind::Invite, amount, ..credit(1, uses_max) }
}

async fn code(ledger: &Ledger, new: NewCode) -> (String, IssuedCode) {
    let (secret, issued) = ledger.by(&admin()).create_code(new).await.expect("a code").value;
    (secret.expect("the first shows it").expose().to_owned(), issued)
}

fn someone(email: &str, invite: Option<&str>) -> SignUp {
    SignUp {
        name: "someone".to_owned(),
        email: email.to_owned(),
        password: PASSWORD.to_owned(),
        invite: invite.map(str::to_owned),
        trial: None,
    }
}

fn granted(ledger: &Ledger, account: AccountId) -> i64 {
    ledger.account(account).expect("the account").balance.granted.get()
}

/// Closes the ledger and checks it: the journal alone, what sled says of it, and sled made anew.
fn sound(ledger: Arc<Ledger>, dir: &Path) {
    let hash: String = ledger.state_hash().iter().map(|byte| format!("{byte:02x}")).collect();
    close_and_verify(ledger, dir);
    remove_sled(dir);
    drop(open(dir));
    let rebuilt = verify(dir).expect("readable");
    assert_eq!((rebuilt.violations, rebuilt.sled_hash), (vec![], Some(hash)), "made anew");
}

#[tokio::test]
async fn keys_of_a_suspended_account_are_recognised() {
    let dir = TempDir::new().expect("a directory");
    let ledger = open(dir.path());
    let account = ledger.create_account("a").await.expect("an account").id;
    let other = ledger.create_account("b").await.expect("an account").id;
    let (secret, _) = ledger
        .create_key(account, NewKey { name: "k".into(), ..NewKey::default() })
        .await
        .expect("a key");
    let (others, _) = ledger
        .create_key(other, NewKey { name: "k".into(), ..NewKey::default() })
        .await
        .expect("a key");
    let suspended = |ledger: &Ledger, secret: &Secret| {
        ledger.presented(&KeyHash::of(secret.expose().as_bytes())).expect("a key").1
    };
    let patch = |suspended| AccountPatch { suspended: Some(suspended), ..AccountPatch::default() };
    let by = ledger.by(&admin());
    let now = by.update_account(account, patch(true)).await.expect("suspended").value;
    assert!(now.suspended && suspended(&ledger, &secret));
    assert!(!suspended(&ledger, &others), "another's keys");
    let renamed = AccountPatch { name: Some("c".into()), ..AccountPatch::default() };
    by.update_account(account, renamed).await.expect("renamed");
    ledger.close();
    drop(ledger);
    let ledger = open(dir.path());
    let now = ledger.account(account).expect("kept");
    assert!(now.suspended && suspended(&ledger, &secret), "after a restart");
    assert_eq!(now.name, "c");
    let now = ledger.by(&admin()).update_account(account, patch(false)).await.expect("resumed");
    assert!(!now.value.suspended && !suspended(&ledger, &secret));
    let acts = ledger.acts(Some(account), None, 10).await.expect("read");
    let words: Vec<&str> = acts.iter().map(|listed| listed.act.what.as_str()).collect();
    let expected =
        ["account.resume", "account.update", "account.suspend", "key.create", "account.create"];
    assert_eq!(words, expected, "newest first");
    assert_eq!((&acts[0].act.by, acts[3].act.by.kind()), (&admin(), "gateway"));
    sound(ledger, dir.path());
}

#[tokio::test]
async fn an_address_opens_one_account() {
    let dir = TempDir::new().expect("a directory");
    let ledger = open(dir.path());
    let one = ledger.create_account("a").await.expect("an account").id;
    let two = ledger.create_account("b").await.expect("an account").id;
    let by = ledger.by(&admin());
    by.set_login(one, "  Ada@Example.COM ", PASSWORD).await.expect("set");
    assert_eq!(ledger.login(one).expect("a login").email, "ada@example.com");
    let found = ledger.login_by_email("ADA@example.com ").expect("found");
    assert_eq!((found.account, found.password.as_str()), (one, PASSWORD));
    let taken = by.set_login(two, "ada@EXAMPLE.com", PASSWORD).await;
    assert_eq!(taken.map(|_| ()), Err(LedgerError::EmailTaken));
    let taken = ledger.by(&Actor::Customer).sign_up(&someone("ada@example.com", None)).await;
    assert_eq!(taken.map(|_| ()), Err(LedgerError::EmailTaken));
    by.set_login(one, "ada@example.org", PASSWORD).await.expect("moved");
    assert!(ledger.login_by_email("ada@example.com").is_none(), "the old one is free");
    by.set_login(two, "ada@example.com", PASSWORD).await.expect("for another");
    for plain in ["hunter2", "$2b$12$abc", "$argon2id$with space"] {
        let refused = by.set_login(one, "x@example.com", plain).await;
        assert!(matches!(refused, Err(LedgerError::Invalid(_))), "{plain} was stored");
    }
    let too_long = format!("{}@example.com", "a".repeat(250));
    for wrong in ["", "a", "@", "a@", "@b", "a@b@c", "a b@c", &too_long] {
        assert!(normal_email(wrong).is_err(), "{wrong} was taken");
    }
    let debug = format!("{:?} {:?}", ledger.login(one), someone("a@b", Some("tg-x")));
    assert!(!debug.contains("argon2id") && !debug.contains("tg-x"), "{debug}");
    ledger.close();
    drop(ledger);
    let ledger = open(dir.path());
    assert_eq!(ledger.login_by_email("ada@example.com").expect("kept").account, two);
    sound(ledger, dir.path());
}

#[tokio::test]
async fn a_session_ends_at_logout_and_when_the_password_changes() {
    let dir = TempDir::new().expect("a directory");
    let ledger = open(dir.path());
    let customer = Actor::Customer;
    let account = ledger.by(&customer).sign_up(&someone("a@b", None)).await.expect("signed up").id;
    let issued = UnixMs::now();
    let (mine, others) = ([1; 16], [2; 16]);
    let far = UnixMs(issued.0 + 3_600_000);
    assert!(!ledger.is_session_over(account, &mine, issued));
    ledger.by(&customer).end_session(account, mine, far).await.expect("ended");
    assert!(ledger.is_session_over(account, &mine, issued), "logged out");
    assert!(!ledger.is_session_over(account, &others, issued), "the other session goes on");
    ledger.close();
    drop(ledger);
    let ledger = open(dir.path());
    assert!(ledger.is_session_over(account, &mine, issued), "after a restart");
    next_millisecond().await;
    let login = ledger.by(&customer).set_login(account, "a@b", PASSWORD).await.expect("set").value;
    assert!(ledger.is_session_over(account, &others, issued), "issued before the password");
    assert!(!ledger.is_session_over(account, &others, login.since), "issued since");
    assert!(ledger.is_session_over(AccountId::random(), &others, far), "of nobody");
    let now = UnixMs::now();
    let soon = UnixMs(now.0 + 20);
    ledger.by(&customer).end_session(account, [3; 16], soon).await.expect("ended");
    eventually_async("the session is over", async || UnixMs::now() > soon).await;
    ledger.forget_tasks(UnixMs(1), 10).await.expect("forgotten");
    assert!(!ledger.is_session_over(account, &[3; 16], now), "it has ended of itself");
    assert!(ledger.is_session_over(account, &mine, now), "this one has not");
    let logouts = (0..1_000_u16).map(|n| {
        let ledger = Arc::clone(&ledger);
        tokio::spawn(async move {
            let mut session = [9; 16];
            session[..2].copy_from_slice(&n.to_be_bytes());
            ledger.by(&Actor::Customer).end_session(account, session, far).await.expect("ended");
        })
    });
    for logout in logouts.collect::<Vec<_>>() {
        logout.await.expect("no panic");
    }
    assert!(ledger.is_session_over(account, &others, now), "so many logouts end all");
    sound(ledger, dir.path());
}

/// An operator's log-out is nobody's account's. It is known over restarts, with and without the store.
#[tokio::test]
async fn an_operator_logs_out_for_good() {
    let dir = TempDir::new().expect("a directory");
    let (mine, others) = ([1; 16], [2; 16]);
    let far = UnixMs(UnixMs::now().0 + 3_600_000);
    let ledger = open(dir.path());
    ledger.by(&admin()).end_operators_session(mine, far).await.expect("ended");
    let soon = UnixMs(UnixMs::now().0 + 20);
    ledger.by(&admin()).end_operators_session([3; 16], soon).await.expect("ended");
    let mut ledger = ledger;
    for start in 0..3 {
        assert!(ledger.is_operators_session_over(&mine), "start {start}");
        assert!(!ledger.is_operators_session_over(&others), "start {start}");
        ledger.close();
        drop(ledger);
        if start == 1 {
            std::fs::remove_dir_all(dir.path().join("sled")).expect("a store");
        }
        ledger = open(dir.path());
    }
    ledger.forget_tasks(UnixMs(1), 10).await.expect("forgotten");
    assert!(!ledger.is_operators_session_over(&[3; 16]), "it has ended of itself");
    assert!(ledger.is_operators_session_over(&mine), "this one has not");
    sound(ledger, dir.path());
}

#[tokio::test]
async fn a_code_gives_what_it_says_and_no_more() {
    let dir = TempDir::new().expect("a directory");
    let ledger = open(dir.path());
    let (by, customer) = (ledger.by(&admin()), ledger.by(&Actor::Customer));
    let mut accounts = Vec::new();
    for name in ["a", "b", "c"] {
        accounts.push(ledger.create_account(name).await.expect("an account").id);
    }
    let (text, issued) = code(&ledger, credit(500, 2)).await;
    assert!(text.starts_with("tg-") && text.len() == 29, "{text}");
    let refused = |refusal| Err(LedgerError::Code(refusal));
    let redeem = |account, text: String| {
        let customer = customer.clone();
        async move { customer.redeem(account, &text).await.map(|written| written.value.get()) }
    };
    assert_eq!(redeem(accounts[0], format!(" {} ", text.to_uppercase())).await, Ok(500));
    assert_eq!(redeem(accounts[0], text.clone()).await, refused(CodeRefusal::UsedBefore));
    assert_eq!(redeem(accounts[1], text.clone()).await, Ok(500));
    assert_eq!(redeem(accounts[2], text.clone()).await, refused(CodeRefusal::UsedUp));
    assert_eq!(redeem(accounts[2], "tg-nothing".into()).await, refused(CodeRefusal::Unknown));
    assert_eq!(ledger.code(issued.code.id).expect("kept").used, 2);
    let (text, revoked) = code(&ledger, credit(500, 2)).await;
    by.revoke_code(revoked.code.id).await.expect("revoked");
    assert_eq!(redeem(accounts[2], text).await, refused(CodeRefusal::Revoked));
    let past = NewCode { expires_at: Some(UnixMs(1)), ..credit(500, 2) };
    let (text, _) = code(&ledger, past).await;
    assert_eq!(redeem(accounts[2], text).await, refused(CodeRefusal::Expired));
    let (invited, _) = code(&ledger, invite(Some(70), 1)).await;
    assert_eq!(redeem(accounts[2], invited.clone()).await, refused(CodeRefusal::Unknown));
    assert_eq!(ledger.check_invite(&invited).expect("good").amount, Some(Nanousd::new(70)));
    let new = customer.sign_up(&someone("n@example.com", Some(&invited))).await.expect("opened");
    assert_eq!((granted(&ledger, new.id), granted(&ledger, accounts[2])), (70, 0));
    let late = customer.sign_up(&someone("m@example.com", Some(&invited))).await;
    assert_eq!(late.map(|_| ()), refused(CodeRefusal::UsedUp).map(|_: i64| ()));
    assert!(ledger.login_by_email("m@example.com").is_none(), "nothing of it was done");
    for wrong in [
        NewCode { amount: None, ..credit(1, 1) },
        credit(0, 1),
        credit(1, 0),
        NewCode { note: "x".repeat(257), ..credit(1, 1) },
    ] {
        let refused = by.create_code(wrong.clone()).await;
        assert!(matches!(refused, Err(LedgerError::Invalid(_))), "{wrong:?}");
    }
    let forged = ledger.grant(accounts[2], &issued.code.id.to_string(), Nanousd::new(1)).await;
    assert!(matches!(forged, Err(LedgerError::Invalid(_))), "a grant in a code's name");
    assert_eq!(ledger.accounts().len(), 4, "the house is not listed");
    assert!(ledger.account(AccountId::OPERATOR).is_none());
    sound(ledger, dir.path());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_thousand_at_once_get_ten_grants() {
    let dir = TempDir::new().expect("a directory");
    let ledger = open(dir.path());
    let (text, issued) = code(&ledger, credit(3, 10)).await;
    let mut accounts = Vec::new();
    for n in 0..200 {
        accounts.push(ledger.create_account(&n.to_string()).await.expect("an account").id);
    }
    let redeemed = (0..1_000).map(|n| {
        let (ledger, text) = (Arc::clone(&ledger), text.clone());
        let account = accounts[n % accounts.len()];
        tokio::spawn(
            async move { ledger.by(&Actor::Customer).redeem(account, &text).await.is_ok() },
        )
    });
    let mut given = 0;
    for one in redeemed.collect::<Vec<_>>() {
        given += i64::from(one.await.expect("no panic"));
    }
    let total: i64 = accounts.iter().map(|account| granted(&ledger, *account)).sum();
    assert_eq!((given, total, ledger.code(issued.code.id).expect("kept").used), (10, 30, 10));
    sound(ledger, dir.path());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_write_under_an_id_happens_once() {
    let dir = TempDir::new().expect("a directory");
    let ledger = open(dir.path());
    let by =
        |id: &str, request| ledger.by(&admin()).with_idempotency_key(idempotency_key(id, request));
    let first = by("1", 1).create_account("a").await.expect("opened");
    let again = by("1", 1).create_account("a").await.expect("the same");
    assert_eq!((first.repeated, again.repeated), (false, true));
    assert_eq!(first.value, again.value);
    let account = first.value.id;
    let other = by("1", 2).create_account("b").await;
    assert_eq!(other.map(|_| ()), Err(LedgerError::OtherRequest), "another body");
    let key = NewKey { name: "k".into(), ..NewKey::default() };
    let elsewhere = by("1", 1).create_key(account, key.clone()).await;
    assert_eq!(elsewhere.map(|_| ()), Err(LedgerError::OtherRequest), "another write");
    let anothers = ledger.by(&Actor::operator("bob")).with_idempotency_key(idempotency_key("1", 2));
    assert!(!anothers.create_account("b").await.expect("opened").repeated, "another operator's id");

    let (secret, made) = by("2", 1).create_key(account, key.clone()).await.expect("made").value;
    let again = by("2", 1).create_key(account, key.clone()).await.expect("the same");
    assert!(secret.is_some() && again.value.0.is_none(), "the key is shown once");
    assert_eq!((made.id, again.repeated), (again.value.1.id, true));
    let off = KeyPatch { disabled: Some(true), ..KeyPatch::default() };
    by("3", 1).update_key(made.id, off.clone()).await.expect("off");
    let on = KeyPatch { disabled: Some(false), ..KeyPatch::default() };
    by("4", 1).update_key(made.id, on).await.expect("on again");
    let late = by("3", 1).update_key(made.id, off).await.expect("repeated");
    assert!(late.repeated && !late.value.disabled, "the key as it is, not switched off again");
    let grants = (0..50).map(|_| {
        let ledger = Arc::clone(&ledger);
        tokio::spawn(async move {
            let by =
                ledger.by(&Actor::operator("ada")).with_idempotency_key(idempotency_key("5", 1));
            by.create_code(credit(5, 5)).await.expect("made").repeated
        })
    });
    let mut firsts = 0;
    for one in grants.collect::<Vec<_>>() {
        firsts += u32::from(!one.await.expect("no panic"));
    }
    assert_eq!((firsts, ledger.codes().len()), (1, 1), "of fifty at once");
    let seq = by("6", 1).grant(account, "g", Nanousd::new(5)).await.expect("given").seq;
    let again = by("6", 1).grant(account, "g", Nanousd::new(5)).await.expect("the same");
    assert_eq!((again.seq, again.repeated), (seq, true));
    let by_its_own = by("7", 1).grant(account, "g", Nanousd::new(5)).await.expect("the same");
    assert_eq!((by_its_own.seq, by_its_own.repeated), (seq, true));
    assert_eq!(granted(&ledger, account), 5);

    ledger.close();
    let count = ledger.accounts().len();
    drop(ledger);
    let ledger = open(dir.path());
    let by =
        |id: &str, request| ledger.by(&admin()).with_idempotency_key(idempotency_key(id, request));
    let again = by("1", 1).create_account("a").await.expect("the same");
    assert_eq!((again.value.id, again.repeated), (account, true), "after a restart");
    let other = by("2", 2).create_account("a").await;
    assert_eq!(other.map(|_| ()), Err(LedgerError::OtherRequest));
    assert_eq!(ledger.accounts().len(), count);
    sound(ledger, dir.path());
}

#[tokio::test]
async fn acts_are_listed_newest_first_by_pages() {
    let dir = TempDir::new().expect("a directory");
    let ledger = open(dir.path());
    let account = ledger.create_account("a").await.expect("an account").id;
    let other = ledger.create_account("b").await.expect("an account").id;
    for n in 0..7 {
        let to = if n % 2 == 0 { account } else { other };
        ledger.by(&admin()).grant(to, &n.to_string(), Nanousd::new(1)).await.expect("given");
    }
    ledger.by(&admin()).note("reload", AccountId::OPERATOR, "hash").await.expect("noted");
    let (mut before, mut subjects) = (None, Vec::new());
    loop {
        let page = ledger.acts(None, before, 3).await.expect("read");
        let Some(last) = page.last() else { break };
        before = Some(last.seq);
        subjects.extend(page.into_iter().map(|listed| listed.act.subject));
    }
    let created = [other.to_string(), account.to_string()];
    let numbers = (0..7).rev().map(|n: i32| n.to_string());
    let expected: Vec<String> =
        ["hash".to_owned()].into_iter().chain(numbers).chain(created).collect();
    assert_eq!(subjects, expected);
    let of_one = ledger.acts(Some(account), None, 100).await.expect("read");
    assert_eq!(of_one.len(), 5);
    assert!(of_one.iter().all(|listed| listed.act.account == account));
    sound(ledger, dir.path());
}

#[tokio::test]
async fn a_doubt_is_taken_off_the_list_with_its_refund() {
    let dir = TempDir::new().expect("a directory");
    let options = || Options {
        disk_free_bytes_min: 0,
        recovery: tollgate::ledger::RecoveryPolicy::Floor,
        ..Options::new(dir.path())
    };
    let account = {
        let ledger = open(dir.path());
        let account = ledger.create_account("a").await.expect("an account").id;
        ledger.grant(account, "g", Nanousd::new(100)).await.expect("given");
        let reserve = |amount: i64| Reserve {
            account,
            key: KeyId::random(),
            model: "m".into(),
            price: None,
            request: RequestId::new(),
            amount: Nanousd::new(amount),
            floor: Nanousd::new(amount),
        };
        let holds = [10, 20].map(|amount| ledger.reserve(reserve(amount)).expect("held"));
        ledger.close();
        // A closed ledger cannot end them, as a dead process cannot.
        let nothing =
            Settlement { charge: Nanousd::ZERO, usage: Usage::ZERO, source: UsageSource::None };
        for hold in holds {
            hold.post(nothing);
        }
        account
    };
    let (ledger, recovery) = Ledger::open(options()).expect("opens");
    let [one, two] = [0, 1].map(|n| recovery.in_doubt[n].call.hold);
    let by = ledger.by(&admin());
    let refund = |amount| Some(DoubtRefund { id: "r".into(), amount: Nanousd::new(amount) });
    let too_much = by.resolve_doubt((account, one), "looked", refund(11)).await;
    assert!(matches!(too_much, Err(LedgerError::RefundTooLarge { .. })), "{too_much:?}");
    assert_eq!(ledger.in_doubt().await.expect("listed").len(), 2, "nothing was done");
    by.resolve_doubt((account, one), "looked", refund(10)).await.expect("resolved");
    by.resolve_doubt((account, two), "", None).await.expect("resolved");
    let twice = by.resolve_doubt((account, two), "", None).await;
    assert_eq!(twice.map(|_| ()), Err(LedgerError::NotInDoubt(two)));
    assert_eq!(ledger.in_doubt().await.expect("listed"), vec![]);
    assert_eq!(ledger.account(account).expect("kept").balance.spent, Nanousd::new(20));
    assert_eq!(ledger.entries(account, None, 10).await.expect("read").len(), 4, "it keeps all");
    sound(ledger, dir.path());
    assert_eq!(open(dir.path()).in_doubt().await.expect("listed"), vec![], "after a restart");
}

/// Random writes of all kinds: journal, sled and a sled made anew say the same.
#[test]
fn random_writes_are_the_same_in_journal_and_sled() {
    let mut random = seeded();
    for _ in 0..6 {
        let dir = TempDir::new().expect("a directory");
        let ledger = open(dir.path());
        runtime().block_on(async {
            let mut accounts = Vec::new();
            let mut codes = Vec::new();
            for n in 0..60_u32 {
                random_write(&ledger, &mut random, (&mut accounts, &mut codes), n).await;
            }
        });
        sound(ledger, dir.path());
    }
}

async fn random_write(
    ledger: &Ledger,
    random: &mut fastrand::Rng,
    (accounts, codes): (&mut Vec<AccountId>, &mut Vec<(String, IssuedCode)>),
    n: u32,
) {
    let id = random.bool().then(|| random.u8(..20).to_string());
    let actor = if random.bool() { admin() } else { Actor::Customer };
    let by =
        ledger.by(&actor).with_idempotency_key(IdempotencyKey { id, digest: [random.u8(..2); 32] });
    let account = *accounts.get(random.usize(..8)).unwrap_or(&AccountId::from_number(5));
    let email = format!("{}@example.com", random.u8(..6));
    let code = codes.get(random.usize(..4)).cloned();
    // Many are refused: what is refused must leave no trace.
    match random.u8(..9) {
        0 => accounts.extend(by.create_account(&n.to_string()).await.map(|new| new.value.id)),
        1 => drop(by.set_login(account, &email, PASSWORD).await),
        2 => {
            let typed = code.map(|(text, _)| text);
            let new = by.sign_up(&someone(&email, typed.as_deref())).await;
            accounts.extend(new.map(|account| account.id));
        }
        3 => {
            let (amount, uses) = (random.i64(0..50), random.u32(..3));
            let new = if random.bool() { credit(amount, uses) } else { invite(Some(amount), uses) };
            if let Ok((Some(secret), issued)) = by.create_code(new).await.map(|new| new.value) {
                codes.push((secret.expose().to_owned(), issued));
            }
        }
        4 | 5 => {
            if let Some((text, _)) = code {
                drop(by.redeem(account, &text).await);
            }
        }
        6 => {
            let patch = AccountPatch {
                name: random.bool().then(|| n.to_string()),
                suspended: random.bool().then(|| random.bool()),
                ..AccountPatch::default()
            };
            drop(by.update_account(account, patch).await);
        }
        7 => {
            if let Some((_, issued)) = code.filter(|_| random.u8(..4) == 0) {
                drop(by.revoke_code(issued.code.id).await);
            }
        }
        _ => drop(by.end_session(account, [random.u8(..); 16], UnixMs(u64::MAX)).await),
    }
}

/// A crash leaves the journal's frames up to some one: whichever that is, no use of a code stands
/// without what it gave, and no account without its login.
#[test]
fn no_frame_of_the_journal_ends_within_a_sign_up_or_a_redemption() {
    let dir = TempDir::new().expect("a directory");
    let ledger = open(dir.path());
    runtime().block_on(async {
        let (credit_text, _) = code(&ledger, credit(7, 10_000)).await;
        let (invite_text, _) = code(&ledger, invite(Some(5), 10_000)).await;
        let workers = (0..16).map(|worker| {
            let (ledger, credit, invite) =
                (Arc::clone(&ledger), credit_text.clone(), invite_text.clone());
            tokio::spawn(async move {
                for n in 0..25 {
                    let by = ledger.by(&Actor::Customer);
                    let new = someone(&format!("{worker}-{n}@example.com"), Some(&invite));
                    let account = by.sign_up(&new).await.expect("signed up").id;
                    by.redeem(account, &credit).await.expect("redeemed");
                }
            })
        });
        for worker in workers.collect::<Vec<_>>() {
            worker.await.expect("no panic");
        }
        ledger.close();
    });
    drop(ledger);
    std::fs::remove_dir_all(dir.path().join("sled")).expect("removed");
    // A crash has noted nothing of how far the journal reached.
    std::fs::remove_file(dir.path().join("head.json")).expect("removed");
    std::fs::remove_file(dir.path().join("journal/identity.json")).expect("removed");
    let mut segments = std::fs::read_dir(dir.path().join("journal")).expect("a directory");
    let segment = segments.next().expect("one").expect("readable").path();
    let whole = std::fs::read(&segment).expect("readable");
    let mut frames = 0;
    // A segment's header has 56 bytes, a frame's 60 with the content's length in the second four.
    let mut end = 56;
    while let Some(length) = whole.get(end + 4..).and_then(|bytes| bytes.first_chunk()) {
        end += 60 + u32::from_le_bytes(*length) as usize + 1;
        std::fs::write(&segment, &whole[..end]).expect("written");
        let report = verify(dir.path()).expect("readable");
        assert_eq!(report.violations, Vec::<String>::new(), "behind frame {frames}");
        let unknown = report.accounts.iter().find(|account| account.balance.granted.is_zero());
        assert_eq!(unknown, None, "behind frame {frames}");
        frames += 1;
    }
    assert!(end == whole.len() && frames > 50, "{frames} frames, {end} of {} bytes", whole.len());
}

/// The variable that makes this test binary the process that is killed.
const VICTIM: &str = "LEDGER_PEOPLE_VICTIM";
const KILLS: usize = 6;
const USES: u32 = 40;

/// Redeems and signs up without a pause, until it is killed.
#[test]
#[expect(clippy::disallowed_methods, reason = "the test tells its own child where to work")]
fn victim() {
    let Ok(dir) = std::env::var(VICTIM) else { return };
    let ledger = open(Path::new(&dir));
    runtime().block_on(async {
        let workers = (0..8).map(|worker| {
            let ledger = Arc::clone(&ledger);
            tokio::spawn(async move {
                for n in 0_u32.. {
                    let (credit_text, _) = code(&ledger, credit(7, USES)).await;
                    let (invite_text, _) = code(&ledger, invite(Some(5), USES)).await;
                    let by = ledger.by(&Actor::Customer);
                    for m in 0..USES {
                        let run = RequestId::new();
                        let email = format!("{worker}-{n}-{m}-{run}@example.com");
                        let new = someone(&email, Some(&invite_text));
                        let account = by.sign_up(&new).await.expect("signed up").id;
                        by.redeem(account, &credit_text).await.expect("redeemed");
                        println!("ack {account}");
                    }
                }
            })
        });
        for worker in workers.collect::<Vec<_>>() {
            worker.await.expect("never ends");
        }
    });
}

#[test]
fn a_kill_parts_no_use_from_its_grant_and_no_account_from_its_login() {
    let dir = TempDir::new().expect("a directory");
    let mut random = seeded();
    let mut acknowledged = BTreeMap::new();
    for round in 0..KILLS {
        let mut child = harness::test_process(module_path!(), "victim")
            .env(VICTIM, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("spawns");
        kill_after(&mut child, Duration::from_millis(random.u64(100..500)));
        let output = child.wait_with_output().expect("gone");
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            // The last line may be cut by the kill.
            if let Some(Ok(account)) = line.split("ack ").nth(1).map(str::parse::<AccountId>) {
                acknowledged.insert(account, round);
            }
        }
        let ledger = open(dir.path());
        for (account, since) in &acknowledged {
            let given = granted(&ledger, *account);
            assert_eq!(given, 12, "round {round}: {account} of round {since} has {given}");
        }
        let mut given = 0;
        for account in ledger.accounts() {
            let login = ledger.login(account.id).expect("an account and its login are one");
            assert_eq!(ledger.login_by_email(&login.email).expect("found").account, account.id);
            let balance = account.balance.granted.get();
            assert!(balance == 5 || balance == 12, "round {round}: {balance} in {}", account.id);
            given += balance;
        }
        let codes = ledger.codes();
        let used: i64 = codes
            .iter()
            .map(|code| code.used as i64 * code.code.amount.expect("an amount").get())
            .sum();
        assert_eq!(used, given, "round {round}: uses and grants");
        sound(ledger, dir.path());
    }
    assert!(acknowledged.len() > 100, "only {} were acknowledged", acknowledged.len());
}
