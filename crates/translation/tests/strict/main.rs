//! Conversations as agents lead them, generated, through every cell: what is written is what the
//! provider's validator takes, or the customer reads which field cannot be carried.

// Tests fail by panicking.
#![allow(missing_docs, reason = "a binary of tests")]

mod cells;
mod render;
mod reports;
mod talk;
mod turns;

use std::time::Instant;

use cells::{CellTally, GOES_ELSEWHERE, cells, run};
use tollgate_simulator::strict::StrictDialect;

/// Conversations in a cell with every run of the tests.
const SOME: u64 = 200;
/// Conversations in a cell where it is asked for by name.
const MANY: u64 = 100_000;
/// The most of a hundred conversations that may be refused by name in a cell. Over Gemini half of them are
/// for a 2.5 model, which takes no JSON answer beside tools.
const REFUSED_PERCENT_MAX: usize = 12;

/// Runs each cell with so many conversations, prints what became of them, and fails for each that a
/// provider refuses.
fn converse(count: u64, first_seed: u64) {
    let began = Instant::now();
    let cells = cells();
    assert_eq!(cells.len(), 20);
    println!("seeds {first_seed}..{}", first_seed + count);
    let mut faults = Vec::new();
    for (customer, dialect) in cells {
        let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
        let share = count.div_ceil(threads);
        let mut tally = CellTally::default();
        std::thread::scope(|scope| {
            let shares = (0..threads).map(|thread| {
                let begin = first_seed + thread * share;
                let end = (begin + share).min(first_seed + count);
                scope.spawn(move || run(customer, dialect, begin..end))
            });
            let shares: Vec<_> = shares.collect();
            shares.into_iter().for_each(|share| tally.merge(share.join().expect("a share")));
        });
        let goes_elsewhere =
            |field: &str| dialect == StrictDialect::OpenaiResponses && field == GOES_ELSEWHERE;
        let refused = tally.refused_total(goes_elsewhere);
        println!(
            "{customer:?} over {dialect:?}: {} conversations, {refused} refused by name ({})",
            tally.total,
            tally.reasons()
        );
        if refused * 100 > tally.total * REFUSED_PERCENT_MAX {
            faults.push(format!(
                "{customer:?} over {dialect:?}: {refused} of {} refused",
                tally.total
            ));
        }
        for ((model, rule), (count, example)) in tally.faults {
            faults
                .push(format!("{customer:?} over {dialect:?}: {model} {rule} {count}×, {example}"));
        }
    }
    println!("{:?}", began.elapsed());
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn providers_take_generated_conversations_in_every_cell() {
    converse(SOME, 0);
}

/// Takes minutes: `cargo test -p tollgate-translation --test strict -- --ignored --nocapture`.
#[test]
#[ignore = "a hundred thousand conversations in each cell"]
fn providers_take_a_hundred_thousand_conversations_in_every_cell() {
    converse(MANY, 1_000_000);
}
