//! Hostile accounts and an honest one that pays: through every door, with few descriptors and many, and
//! where the kernel kills what takes too much memory. Each attack prints what the honest account saw.

use std::time::Duration;

use crate::harness::attack::door::{self, Door};
use crate::harness::attack::upstream::{CountAnswer, Pace};
use crate::harness::attack::{Arena, Attack, HonestCalls, Standing, table};
use crate::harness::container::Container;
use crate::harness::rounds;

const FEW: Standing = Standing::Descriptors(256);
const SOME: Standing = Standing::Descriptors(1024);
const MANY: Standing = Standing::Descriptors(65_536);
const CONTAINER: Standing = Standing::Container;
/// No honest call may take longer, on a machine that does everything at one time.
const SLOWEST: Duration = Duration::from_secs(5);

/// The duration of one attack.
fn time() -> Duration {
    Duration::from_millis(2_000 + rounds(8_000))
}

/// All of them; in a short run those with the least room.
fn standings() -> Vec<Standing> {
    let all =
        if rounds(100) < 50 { vec![FEW, CONTAINER] } else { vec![FEW, SOME, MANY, CONTAINER] };
    all.into_iter().filter(|standing| can_be_had(*standing)).collect()
}

/// True where a gateway can stand like that. A container needs root, and control groups that limit memory.
fn can_be_had(standing: Standing) -> bool {
    let can = standing != CONTAINER || Container::can_be_made();
    if !can {
        println!("not tested: {standing:?} needs root and control groups that limit memory");
    }
    can
}

fn judge(mut faults: Vec<String>, cell: &str, seen: &HonestCalls) -> Vec<String> {
    if seen.slowest > SLOWEST {
        faults.push(format!(
            "{cell}: an honest call took {:?} ({:?})",
            seen.slowest, seen.slowest_at
        ));
    }
    assert!(seen.calls > 0, "{cell}: no honest call was made");
    faults
}

fn assert_none(faults: &[String]) {
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

/// Plays an attack through every door.
async fn through_every_door(
    standing: Standing,
    accounts: usize,
    attack: Attack,
    pace: Pace,
    model: &str,
) {
    let mut faults = Vec::new();
    if !can_be_had(standing) {
        return;
    }
    table();
    for door in Door::ALL {
        let mut arena = Arena::start(standing, pace, accounts, "10000.00").await;
        if door == Door::Playground {
            arena.use_playground().await;
        }
        let seen = arena.play(attack, door, model, time()).await;
        let (attack, door) = (format!("{attack:?}, {pace:?}, {model}"), format!("{door:?}"));
        let found = arena.report(&attack, &door, &seen);
        // Few connections are left where many accounts open others all the time.
        if accounts <= 2 && seen.retries > 0 {
            faults.push(format!("{attack}, {door}, {standing:?}: {} retries", seen.retries));
        }
        faults.extend(judge(found, &format!("{attack}, {door}, {standing:?}"), &seen));
    }
    assert_none(&faults);
}

macro_rules! proofs {
    ($($name:ident: $standing:expr, $accounts:literal, $attack:ident, $pace:ident, $model:literal;)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        #[ignore = "floods a gateway for a while"]
        async fn $name() {
            through_every_door($standing, $accounts, Attack::$attack, Pace::$pace, $model).await;
        }
    )*};
}

proofs! {
    attack_of_hang_ups_with_256_descriptors: FEW, 2, HangUps, Silent, "m";
    attack_of_hang_ups_with_1024_descriptors: SOME, 2, HangUps, Silent, "m";
    attack_of_hang_ups_with_65536_descriptors: MANY, 2, HangUps, Dribbling, "m";
    attack_of_hang_ups_in_a_container: CONTAINER, 2, HangUps, Dribbling, "m";
    attack_of_calls_under_way_with_256_descriptors: FEW, 2, UnderWay, Silent, "m";
    attack_of_calls_under_way_with_1024_descriptors: SOME, 2, UnderWay, Dribbling, "m";
    attack_of_calls_under_way_with_65536_descriptors: MANY, 2, UnderWay, Silent, "m";
    attack_of_calls_under_way_in_a_container: CONTAINER, 2, UnderWay, Silent, "m";
    attack_of_unread_answers_with_1024_descriptors: SOME, 2, Unread, Flooding, "m";
    attack_of_unread_answers_in_a_container: CONTAINER, 2, Unread, Flooding, "m";
    attack_of_floods_that_are_left_in_a_container: CONTAINER, 2, HangUps, Flooding, "m";
    attack_on_a_models_concurrent_requests: SOME, 2, HangUps, Silent, "few";
    attack_of_hang_ups_by_eight_accounts: FEW, 8, HangUps, Silent, "m";
    attack_of_calls_under_way_by_eight_accounts: SOME, 8, UnderWay, Silent, "m";
}

/// Ten accounts, more than have a share each, do all of it at one time with bodies of 200 KB: the honest
/// account may find no place, but the process goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "floods a gateway for a while"]
async fn attack_of_everything_at_one_time_in_a_container() {
    if !can_be_had(CONTAINER) {
        return;
    }
    table();
    for pace in [Pace::Silent, Pace::Flooding] {
        let mut arena = Arena::start(CONTAINER, pace, 10, "10000.00").await;
        arena.padding = 200_000;
        let seen = arena.play_everything("m", time() + time()).await;
        let faults = arena.report(&format!("everything, {pace:?}"), "all", &seen);
        assert!(arena.gateway.is_running(), "{faults:?}");
    }
}

/// Counts cost nothing, and their failures are none of messages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "floods a gateway for a while"]
async fn attack_of_counts_that_fail() {
    const MESSAGE: &str =
        r#"{"model":"claude","max_tokens":100,"messages":[{"role":"user","content":"hi"}]}"#;
    const CONTENT: &str = r#"{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}"#;
    let kinds = [
        ("/v1/messages/count_tokens", "/v1/messages", MESSAGE),
        ("/v1beta/models/g:countTokens", "/v1beta/models/g:generateContent", CONTENT),
    ];
    let mut faults = Vec::new();
    table();
    for standing in standings() {
        for (counter, path, body) in kinds {
            for answer in [CountAnswer::Limited, CountAnswer::Failed, CountAnswer::Reset] {
                let mut arena = Arena::start(standing, Pace::Silent, 6, "").await;
                arena.upstream.answer_counts(answer);
                let (attack, name) = (format!("{answer:?} counts"), counter);
                let seen = arena.play_counts(counter, path, body, time() / 2).await;
                let found = arena.report(&attack, name, &seen);
                println!("  {} counts reached the upstream", arena.upstream.count_calls());
                faults.extend(judge(found, &format!("{attack}, {name}, {standing:?}"), &seen));
            }
        }
    }
    assert_none(&faults);
}

/// Free warm-ups and refused messages on sockets that then say nothing. There is little memory for bodies,
/// as in a container.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "floods a gateway for a while"]
async fn attack_of_idle_websockets_with_large_warm_ups() {
    const LIMITS: &str = "  body_max: 4MiB\n  body_memory_max: 32MiB\n";
    let large = "x".repeat(1_000_000);
    let mut faults = Vec::new();
    table();
    for standing in standings() {
        for (name, message) in [
            ("warm-ups", door::turn("m-responses", &large, false)),
            ("refused", door::frame(&format!(r#"{{"type":"none","input":"{large}"}}"#))),
        ] {
            let mut arena = Arena::with_limits(standing, Pace::Silent, 4, "", LIMITS).await;
            let seen = arena.play_idle_websockets(&message, time() + time()).await;
            let found = arena.report(&format!("idle WebSockets, {name}"), "WebSocket", &seen);
            faults.extend(judge(found, &format!("idle WebSockets, {name}, {standing:?}"), &seen));
        }
    }
    assert_none(&faults);
}

/// A process without a free descriptor fails for reasons of its own: its upstreams are as they were.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "floods a gateway for a while"]
async fn attack_without_free_descriptors_opens_no_circuit() {
    table();
    let mut arena = Arena::start(SOME, Pace::Silent, 1, "10.00").await;
    let [refused, served] = arena.play_without_descriptors().await;
    println!("without descriptors: {} of {} failed", refused.failures.len(), refused.calls);
    let faults = arena.report("no free descriptor", "Http1", &served);
    assert!(!refused.failures.is_empty(), "there was a descriptor after all");
    assert_none(&judge(
        faults.into_iter().filter(|fault| !fault.contains("Too many open files")).collect(),
        "no free descriptor",
        &served,
    ));
}
