//! The request log's files: what was written is read again, in whatever state a crash leaves them,
//! and never another account's.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate::finished::{FinishedRequest, RequestSettlement, TaskEnded};
use tollgate::ledger::{AccountId, KeyId, RequestId, TaskId};
use tollgate::money::Nanousd;
use tollgate::price::{Usage, UsageSource};
use tollgate::protocols::Operation;
use tollgate::request_log::{
    LIST_MAX, Live, Query, ReadError, RequestLog, RequestRecord, RingPosition, SCAN_MAX, SIZE_MIN,
    Scope, StatusFilter,
};

const SIZE: u64 = 64 << 20;

fn directory() -> tempfile::TempDir {
    tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

fn open(dir: &Path) -> Arc<RequestLog> {
    RequestLog::open(dir, SIZE).expect("the log opens")
}

fn account(number: u64) -> AccountId {
    AccountId::from_number(number)
}

fn finished(account_id: Option<AccountId>) -> FinishedRequest<'static> {
    FinishedRequest {
        request_id: RequestId::new(),
        account_id,
        key_id: account_id.map(|account| KeyId::from_number(account.number() + 1)),
        client: None,
        method: "POST",
        route: "/v1/chat/completions",
        operation: Some(Operation::Chat),
        model: "a-model",
        requested_model: None,
        upstream: "openai",
        upstream_request_id: None,
        status: 200,
        error_code: "",
        streamed: true,
        bytes_in: 310,
        bytes_out: 4_821,
        ended_at: tollgate::clock::UnixMs::now(),
        duration: Duration::from_millis(1_200),
        ttfb: Some(Duration::from_millis(200)),
        settled: Some(RequestSettlement {
            usage: Usage { input_tokens: 9, output_tokens: 12, ..Usage::ZERO },
            source: UsageSource::Upstream,
            cost: Nanousd::new(8_600),
            owed: Nanousd::ZERO,
        }),
        held: Nanousd::ZERO,
        max_tokens_clamped: None,
        task_id: None,
        traceparent: None,
    }
}

fn query(limit: usize) -> Query {
    Query { limit, ..Query::default() }
}

/// All records of a scope, page by page.
async fn all(log: &RequestLog, scope: Scope, mut query: Query) -> Vec<RequestRecord> {
    let mut found: Vec<RequestRecord> = Vec::new();
    loop {
        let page = log.list(scope, query.clone()).await.expect("a page");
        assert!(page.records.len() <= query.limit, "a page is longer than its limit");
        found.extend(page.records);
        match page.next {
            Some(next) => query.before = Some(next),
            None => break,
        }
    }
    assert!(found.windows(2).all(|pair| pair[0].position > pair[1].position), "newest first, once");
    found
}

fn ids(records: &[RequestRecord]) -> Vec<RequestId> {
    records.iter().filter_map(|record| record.request_id).collect()
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).expect("the directory");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut files: Vec<_> = paths.filter(|path| path.extension().is_some()).collect();
    files.sort();
    files
}

fn bytes(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).expect("the directory");
    entries.map(|entry| entry.expect("an entry").metadata().expect("its length").len()).sum()
}

#[tokio::test]
async fn what_is_owed_is_kept_beside_what_was_charged() {
    let dir = directory();
    let owing = |owed| {
        let mut finished = finished(Some(account(7)));
        finished.settled =
            finished.settled.map(|it| RequestSettlement { owed: Nanousd::new(owed), ..it });
        finished
    };
    let log = open(dir.path());
    [0, 217_000, 0].iter().for_each(|owed| log.record(&owing(*owed)));
    let page = log.list(Scope::Account(account(7)), query(10)).await.expect("a page");
    let shown = page.records.iter().map(|record| record.settled.expect("it was charged"));
    let shown: Vec<_> = shown.map(|it| (it.cost.get(), it.owed.get())).collect();
    assert_eq!(shown, [(8_600, 0), (8_600, 217_000), (8_600, 0)]);
}

#[tokio::test]
async fn the_requested_model_is_logged_beside_the_serving_one() {
    let dir = directory();
    let log = open(dir.path());
    for (model, requested_model, owed) in [("a", None, 5), ("b", Some("a"), 0), ("c", Some("b"), 5)]
    {
        let mut finished = FinishedRequest { model, requested_model, ..finished(Some(account(7))) };
        finished.settled =
            finished.settled.map(|it| RequestSettlement { owed: Nanousd::new(owed), ..it });
        log.record(&finished);
    }
    for (expected, found) in [
        (None, vec![("c", Some("b"), 5), ("b", Some("a"), 0), ("a", None, 5)]),
        (Some("a"), vec![("b", Some("a"), 0), ("a", None, 5)]),
        (Some("b"), vec![("c", Some("b"), 5), ("b", Some("a"), 0)]),
        (Some("c"), vec![("c", Some("b"), 5)]),
        (Some(""), vec![]),
    ] {
        let query = Query { model: expected.map(str::to_owned), ..query(10) };
        let page = log.list(Scope::Account(account(7)), query).await.expect("a page");
        let shown = page.records.iter().map(|record| {
            let owed = record.settled.map_or(0, |settled| settled.owed.get());
            (record.model.as_str(), record.requested_model.as_deref(), owed)
        });
        assert_eq!(shown.collect::<Vec<_>>(), found, "{expected:?}");
    }
}

#[tokio::test]
async fn a_lowered_output_limit_is_kept() {
    let dir = directory();
    let log = open(dir.path());
    for (requested_model, max_tokens_clamped) in
        [(None, None), (None, Some(4_096)), (Some("a"), Some(70_000)), (Some("a"), None)]
    {
        let finished = finished(Some(account(7)));
        log.record(&FinishedRequest { requested_model, max_tokens_clamped, ..finished });
    }
    let page = log.list(Scope::Account(account(7)), query(10)).await.expect("a page");
    let shown = page.records.iter();
    let shown: Vec<_> =
        shown.map(|it| (it.requested_model.as_deref(), it.max_tokens_clamped)).collect();
    assert_eq!(
        shown,
        [(Some("a"), None), (Some("a"), Some(70_000)), (None, Some(4_096)), (None, None)]
    );
}

#[tokio::test]
async fn a_record_has_the_fields_of_its_stage() {
    let dir = directory();
    let log = open(dir.path());
    let task_id = TaskId::random();
    let began = tollgate::clock::UnixMs::now();
    let submit = FinishedRequest {
        operation: Some(Operation::Video),
        task_id: Some(task_id),
        settled: None,
        ..finished(Some(account(7)))
    };
    log.record(&submit);
    log.record_task(&TaskEnded {
        task_id,
        account_id: account(7),
        key_id: KeyId::from_number(8),
        model: "a-model",
        upstream: "openai",
        state: "failed",
        duration: Duration::from_secs(90),
        settled: None,
        held: Nanousd::ZERO,
    });
    let page = log.list(Scope::Account(account(7)), query(10)).await.expect("a page");
    let [end, request] = page.records.as_slice() else { panic!("{page:?}") };
    assert_eq!(page.next, None);
    assert_eq!(request.request_id, Some(submit.request_id));
    assert_eq!((request.task_id, end.task_id), (Some(task_id), Some(task_id)));
    assert_eq!((request.operation.as_str(), request.status), ("video", 200));
    assert_eq!((request.route.as_str(), request.model.as_str()), (submit.route, "a-model"));
    assert_eq!((request.upstream.as_str(), request.error_code.as_str()), ("openai", ""));
    assert_eq!((request.ttfb, request.duration), (submit.ttfb, submit.duration));
    assert_eq!((request.bytes_in, request.bytes_out, request.streamed), (310, 4_821, true));
    assert_eq!((request.settled, request.key_id), (None, Some(KeyId::from_number(8))));
    assert!(request.ended_at >= began && request.began_at() < request.ended_at);
    assert!(!request.is_error() && end.is_error());
    assert_eq!((end.task_state.as_deref(), end.request_id), (Some("failed"), None));
    let by_id = log.find(Scope::Account(account(7)), submit.request_id).await.expect("a search");
    assert_eq!(by_id.as_ref(), Some(request));
    let others = log.find(Scope::Account(account(6)), submit.request_id).await.expect("a search");
    assert_eq!(others, None, "another account's request");

    let paid = FinishedRequest { ..finished(Some(account(5))) };
    log.record(&paid);
    let found = log.find(Scope::All, paid.request_id).await.expect("a search").expect("a record");
    assert_eq!(found.settled, paid.settled);
    assert_eq!(found.output_tokens_per_second(), Some(12.0));
}

#[tokio::test]
async fn lists_are_paged_filtered_and_of_one_account() {
    let dir = directory();
    let log = open(dir.path());
    let mut of_account: HashMap<u64, Vec<RequestId>> = HashMap::new();
    for number in 0..300_u64 {
        let owner = number % 3 + 1;
        let failed = number % 10 == 0;
        let one = FinishedRequest {
            model: if number % 2 == 0 { "even" } else { "odd" },
            status: if failed { 429 } else { 200 },
            error_code: if failed { "rate_limit_exceeded" } else { "" },
            key_id: Some(KeyId::from_number(number % 6)),
            ..finished(Some(account(owner)))
        };
        log.record(&one);
        of_account.entry(owner).or_default().insert(0, one.request_id);
    }
    for (owner, expected) in &of_account {
        let scope = Scope::Account(account(*owner));
        assert_eq!(ids(&all(&log, scope, query(7)).await), *expected);
        assert_eq!(ids(&all(&log, scope, query(LIST_MAX + 9)).await), *expected);
    }
    assert_eq!(all(&log, Scope::All, query(11)).await.len(), 300);
    let one = Scope::Account(account(1));
    let even = Query { model: Some("even".to_owned()), ..query(4) };
    assert_eq!(all(&log, one, even).await.len(), 50);
    let errors = Query { errors_only: true, ..query(3) };
    assert_eq!(all(&log, one, errors.clone()).await.len(), 10);
    assert_eq!(all(&log, Scope::All, errors).await.len(), 30);
    for (status, expected) in [("429", 10), ("4xx", 10), ("2xx", 90), ("5xx", 0), ("200", 90)] {
        let status: StatusFilter = status.parse().expect("a filter");
        let found = all(&log, one, Query { status: Some(status), ..query(500) }).await;
        assert_eq!(found.len(), expected, "{status:?}");
    }
    let key = Query { key: Some(KeyId::from_number(3)), ..query(500) };
    assert_eq!(all(&log, one, key).await.len(), 50);
    for wrong in ["", "4x", "xx", "9xx", "42", "4290", "+29", "2XX"] {
        assert!(wrong.parse::<StatusFilter>().is_err(), "{wrong:?} was read");
    }
    let nobody = all(&log, Scope::Account(account(99)), query(5)).await;
    assert_eq!(nobody, [], "an account without requests");
}

#[tokio::test]
async fn a_position_is_good_for_its_own_account_only() {
    let dir = directory();
    let log = open(dir.path());
    for _ in 0..20 {
        log.record(&finished(Some(account(1))));
        log.record(&finished(Some(account(2))));
    }
    let theirs = all(&log, Scope::Account(account(2)), query(50)).await;
    let mut positions: Vec<RingPosition> = theirs.iter().map(|record| record.position).collect();
    // Also what is no record's position, wherever it points.
    let last = positions[0];
    positions.extend([1, 15, 17, last + 1, last - 1, u64::MAX, u64::MAX / 2]);
    positions.extend((16..last + 200).filter(|position| position % 7 == 0));
    let own = all(&log, Scope::Account(account(1)), query(50)).await;
    let own: Vec<RingPosition> = own.iter().map(|record| record.position).collect();
    for position in positions.into_iter().filter(|position| !own.contains(position)) {
        let request = Query { before: Some(position), ..query(50) };
        let answer = log.list(Scope::Account(account(1)), request).await;
        assert_eq!(answer, Err(ReadError::UnknownPosition), "at {position}");
    }
}

#[tokio::test]
async fn strangers_cannot_push_out_the_records_of_customers() {
    let dir = directory();
    let log = open(dir.path());
    let refused = FinishedRequest {
        status: 401,
        error_code: "unauthorized",
        settled: None,
        operation: None,
        ..finished(None)
    };
    let began = Instant::now();
    for _ in 0..500 {
        log.record(&refused);
    }
    let seconds = began.elapsed().as_secs() + 1;
    let kept = all(&log, Scope::Unauthenticated, query(500)).await.len() as u64;
    assert!((10..=10 * (seconds + 1)).contains(&kept), "{kept} in {seconds} s");
    assert_eq!(log.figures().dropped.unauthenticated, 500 - kept);
    // What was read and went well is no operation.
    log.record(&FinishedRequest { operation: None, ..finished(Some(account(1))) });
    assert_eq!(all(&log, Scope::Account(account(1)), query(5)).await, []);
}

#[tokio::test]
async fn a_filtered_list_ends_early_and_says_where_to_go_on() {
    let dir = directory();
    let log = open(dir.path());
    let rare = FinishedRequest { model: "rare", ..finished(Some(account(1))) };
    log.record(&rare);
    for number in 0..SCAN_MAX + 100 {
        log.record(&finished(Some(account(1))));
        if number % 5_000 == 0 {
            // The queue is bounded; this waits until it is written.
            log.list(Scope::Account(account(1)), query(1)).await.expect("a page");
        }
    }
    for scope in [Scope::Account(account(1)), Scope::All] {
        let query = Query { model: Some("rare".to_owned()), ..query(10) };
        let page = log.list(scope, query.clone()).await.expect("a page");
        assert_eq!(page.records, []);
        let before = page.next.expect("the list goes on");
        let page = log.list(scope, Query { before: Some(before), ..query }).await.expect("a page");
        assert_eq!((ids(&page.records), page.next), (vec![rare.request_id], None));
    }
    assert_eq!(log.figures().dropped.queue_full, 0);
    let found = log.find(Scope::Account(account(1)), rare.request_id).await.expect("a search");
    assert!(found.is_some(), "the oldest record is found by its id");
}

#[tokio::test]
async fn the_log_stays_within_its_size_and_chains_end_where_it_was_removed() {
    let dir = directory();
    let log = RequestLog::open(dir.path(), SIZE_MIN).expect("the log opens");
    let mut last = Vec::new();
    for round in 0..20_u64 {
        for _ in 0..1_000 {
            let one = finished(Some(account(round % 4 + 1)));
            log.record(&one);
            last.insert(0, one.request_id);
        }
        log.list(Scope::All, query(1)).await.expect("a page");
        let bytes = bytes(dir.path());
        assert!(bytes <= SIZE_MIN, "{bytes} bytes after {round} rounds");
    }
    let kept = ids(&all(&log, Scope::All, query(500)).await);
    assert!(kept.len() > 4_000, "only {} are kept", kept.len());
    assert_eq!(kept, last[..kept.len()], "the newest");
    let mut sum = 0;
    for owner in 1..=4 {
        sum += all(&log, Scope::Account(account(owner)), query(500)).await.len();
    }
    assert_eq!(sum, kept.len());
    let missing = Query { before: Some(16), ..query(5) };
    let page = log.list(Scope::Account(account(1)), missing).await.expect("a page");
    assert_eq!((page.records.len(), page.next), (0, None), "its file was removed");
    let found = log.find(Scope::All, *last.last().expect("the first")).await.expect("a search");
    assert_eq!(found, None);
    log.close();
    let smaller = log.figures().bytes;
    drop(log);
    let log = RequestLog::open(dir.path(), SIZE_MIN).expect("the log opens");
    assert_eq!(all(&log, Scope::All, query(500)).await.len(), kept.len());
    assert_eq!(log.figures().bytes, smaller);
}

#[tokio::test]
async fn followers_get_their_own_records_and_a_count_of_those_missed() {
    let dir = directory();
    let log = open(dir.path());
    let mut own = log.follow(Scope::Account(account(1))).expect("a feed");
    let mut slow = log.follow(Scope::All).expect("a feed");
    assert_eq!(log.followers(), 2);
    let mut expected = Vec::new();
    for number in 0..1_500_u64 {
        let one = finished(Some(account(if number % 500 == 0 { 1 } else { 2 })));
        log.record(&one);
        if number % 500 == 0 {
            expected.push(one.request_id);
        }
        if number % 250 == 0 {
            log.list(Scope::All, query(1)).await.expect("a page");
            while let Ok(Some(live)) =
                tokio::time::timeout(Duration::from_millis(50), own.next()).await
            {
                let Live::Record(record) = live else { panic!("{live:?}") };
                assert_eq!(record.request_id, Some(expected.remove(0)));
            }
        }
    }
    assert_eq!(expected, []);
    log.list(Scope::All, query(1)).await.expect("a page");
    let first = slow.next().await;
    assert!(matches!(first, Some(Live::Missed(missed)) if missed >= 400), "{first:?}");
    assert!(matches!(slow.next().await, Some(Live::Record(_))));
}

/// A log that is off answers, and has nothing.
#[tokio::test]
async fn a_log_that_is_off_keeps_nothing() {
    let log = RequestLog::off();
    log.record(&finished(Some(account(1))));
    assert_eq!(all(&log, Scope::All, query(5)).await, []);
    assert!(log.follow(Scope::All).is_none() && !log.is_on());
}

/// A file that is in the way stands for a disk that refuses.
#[tokio::test]
async fn a_log_that_cannot_be_written_counts_what_it_lost() {
    let dir = directory();
    fs::write(dir.path().join("requests"), "a file").expect("a file");
    let log = open(&dir.path().join("requests"));
    log.record(&finished(Some(account(1))));
    assert_eq!(all(&log, Scope::Account(account(1)), query(5)).await, []);
    log.record(&finished(Some(account(1))));
    let figures = log.figures();
    let lost = figures.dropped.queue_full + figures.dropped.disk;
    assert_eq!((lost, figures.bytes), (2, 0), "{figures:?}");
}

/// After a cut or a flipped byte anywhere, what is read are records that were written, in their order,
/// and of the newest file all those before the damage. New records go on from there.
#[tokio::test]
async fn whatever_a_crash_leaves_is_read_as_far_as_it_is_whole() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..40 {
        let dir = directory();
        let log = open(dir.path());
        let count = random.usize(1..200);
        let mut written = Vec::new();
        for _ in 0..count {
            let owner = random.u64(1..5);
            let one = finished(Some(account(owner)));
            log.record(&one);
            written.insert(0, (owner, one.request_id));
        }
        let before = all(&log, Scope::All, query(500)).await;
        assert_eq!(before.len(), count);
        drop(log);
        let [file] = files(dir.path()).try_into().expect("one file");
        let length = fs::metadata(&file).expect("its length").len();
        let at = random.u64(16..length);
        // With and without the saved heads, which then are ahead of the file.
        if random.bool() {
            fs::remove_file(dir.path().join("heads")).expect("the heads");
        }
        let is_cut = random.bool();
        if is_cut {
            File::options().write(true).open(&file).and_then(|it| it.set_len(at)).expect("a cut");
            if random.bool() {
                let torn: Vec<u8> = (0..random.usize(1..300)).map(|_| random.u8(..)).collect();
                let mut whole = fs::read(&file).expect("the file");
                whole.extend(torn);
                fs::write(&file, whole).expect("a torn tail");
                fs::remove_file(dir.path().join("heads")).ok();
            }
        } else {
            let mut damaged = fs::read(&file).expect("the file");
            damaged[usize::try_from(at).expect("small")] ^= 1 << random.u8(..8);
            fs::write(&file, damaged).expect("a flipped bit");
            fs::remove_file(dir.path().join("heads")).ok();
        }
        let log = open(dir.path());
        let whole: Vec<_> =
            before.iter().filter(|it| ends_before(it, &before, at, length)).collect();
        let found = all(&log, Scope::All, query(50)).await;
        assert_eq!(found.iter().collect::<Vec<_>>(), whole, "round {round}, damage at {at}");
        for owner in 1..5 {
            let own = all(&log, Scope::Account(account(owner)), query(50)).await;
            let expected = whole.iter().filter(|it| it.account_id == Some(account(owner)));
            assert!(own.iter().eq(expected.copied()), "round {round}: account {owner}");
        }
        let next = finished(Some(account(1)));
        log.record(&next);
        let own = all(&log, Scope::Account(account(1)), query(50)).await;
        assert_eq!(own.first().and_then(|it| it.request_id), Some(next.request_id));
        assert_eq!(all(&log, Scope::All, query(50)).await.len(), whole.len() + 1);
    }
}

/// True if a record's last byte is before `at`. Positions and offsets are the same in the first file.
fn ends_before(
    record: &RequestRecord,
    newest_first: &[RequestRecord],
    at: u64,
    length: u64,
) -> bool {
    let ends = newest_first.iter().rev().map(|it| it.position).find(|it| *it > record.position);
    ends.unwrap_or(length) <= at
}
