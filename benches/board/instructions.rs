//! Instructions of a request, which depend neither on the machine nor on what else it does.

use crate::figures::Figures;
use crate::rig::counters::{self, Counts, Load, Trial};
use crate::rig::process::Process;
use crate::rows::{self, Row};
use crate::subjects::{Bench, Subject};
use crate::work::{self, Work};

/// Requests of each kind that are counted, on this many connections.
const REQUESTS: usize = 320;
const CONNECTIONS: usize = 16;
/// Answers of 11 MB take valgrind seconds.
const FEW_REQUESTS: usize = 8;
const FEW_CONNECTIONS: usize = 2;

/// Counts all kinds of requests to all proxies, those of peers if they answer them at all.
pub(crate) async fn count(bench: &Bench, figures: &mut Figures) -> anyhow::Result<()> {
    let kinds: [(&Row, &Work, usize, usize); 4] = [
        (&rows::CHAT_INSTRUCTIONS, &work::INSTANT, CONNECTIONS, REQUESTS * 4),
        (&rows::AGENT_INSTRUCTIONS, &work::AGENT_CHAT, CONNECTIONS, REQUESTS),
        (&rows::SCREENSHOT_INSTRUCTIONS, &work::SCREENSHOT_CHAT, CONNECTIONS, REQUESTS / 4),
        (&rows::EMBEDDINGS_INSTRUCTIONS, &work::EMBEDDINGS, FEW_CONNECTIONS, FEW_REQUESTS),
    ];
    for (row, work, connections, requests) in kinds {
        for subject in bench.order(0) {
            eprintln!("counting: {}, {subject:?}", row.name);
            let running = bench.start(subject).await?;
            let supports = running.supports(work);
            running.process.stop()?;
            if !supports {
                continue;
            }
            let aim = |process: &Process| bench.aim(subject, process, work);
            let start = |tool: &[&str]| bench.spawn(subject, tool);
            let load = Load::Closed { connections };
            let trial = Trial { start: &start, aim: &aim, load, requests };
            let mut counts = Counts::default();
            // A peer may end when it is traced: the others' counts are worth keeping.
            match counters::callgrind(&trial, &mut counts).await {
                Err(error) if !matches!(subject, Subject::Peer(_)) => return Err(error),
                Err(error) => eprintln!("{subject:?} was not counted: {error:#}"),
                Ok(_) => {}
            }
            if let Some(instructions) = counts.instructions {
                figures.add(row, subject, instructions / 1e3);
            }
        }
    }
    Ok(())
}
