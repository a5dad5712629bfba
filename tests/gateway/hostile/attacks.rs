//! Hostile accounts that begin calls through one door after the other, with 256 descriptors, and an honest
//! one that pays. `tests/proofs/attacks.rs` has the whole matrix.

use std::time::Duration;

use crate::harness::attack::door::Door;
use crate::harness::attack::upstream::Pace;
use crate::harness::attack::{Arena, Attack, Standing, table};

const TIME: Duration = Duration::from_millis(1_500);

async fn through_every_door(attack: Attack) {
    let mut faults = Vec::new();
    table();
    for door in Door::ALL {
        let mut arena = Arena::start(Standing::Descriptors(256), Pace::Silent, 2, "10000.00").await;
        if door == Door::Playground {
            arena.use_playground().await;
        }
        let seen = arena.play(attack, door, "m", TIME).await;
        faults.extend(arena.report(&format!("{attack:?}"), &format!("{door:?}"), &seen));
        assert!(seen.calls >= 5, "{door:?}: an honest call through each door");
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_are_begun_and_left_harm_nobody_through_any_door() {
    through_every_door(Attack::HangUps).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_are_begun_and_kept_harm_nobody_through_any_door() {
    through_every_door(Attack::UnderWay).await;
}
