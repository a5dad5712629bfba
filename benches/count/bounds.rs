//! Bounds of a request's cost. A change that needs more says why where it raises a bound.

use crate::rig::counters::Counts;

/// The most of each that a request may take.
pub(crate) struct Bounds {
    instructions: f64,
    allocations: f64,
    system_calls: f64,
}

/// The bounds of a work, if it has any. Instructions depend on how this was built, and on the compiler: they
/// and allocations have a tenth to spare, also where others use the machine meanwhile and what goes on beside
/// requests is shared by fewer. Of system calls, those that wake threads and flush depend on how fast requests
/// come: they have twice as many to spare as there are.
pub(crate) fn of(work: &str) -> Option<Bounds> {
    let (optimized, as_it_is, allocations, system_calls) = match work {
        // Steps that are over are freed while an answer runs, so that an open stream keeps half the memory: they
        // are four allocations of each request.
        "1 KiB" => (108_000.0, 1_200_000.0, 62.0, 8.5),
        // Each event is looked at for usage and failures where fourteen providers put them, and for
        // thoughts: 8,000 instructions more an event without optimization.
        "100 events" => (1_470_000.0, 10_000_000.0, 140.0, 360.0),
        // 110 KB with 30 tools: the JSON is checked once and looked through for what is priced.
        "agent, chat" => (5_450_000.0, 80_500_000.0, 3_500.0, 85.0),
        // The request is read, written for the upstream, and read again by its codec.
        "agent, messages over chat" => (17_250_000.0, 199_500_000.0, 7_600.0, 105.0),
        _ => return None,
    };
    let instructions = if cfg!(debug_assertions) { as_it_is } else { optimized };
    Some(Bounds { instructions, allocations, system_calls })
}

impl Bounds {
    /// True if the counts are within the bounds; prints those that are not.
    pub(crate) fn hold(&self, work: &str, counts: &Counts) -> bool {
        let mut holds = true;
        for (name, count, most) in [
            ("instructions", counts.instructions, self.instructions),
            ("allocations", counts.allocations, self.allocations),
            ("system calls", counts.calls, self.system_calls),
        ] {
            let Some(count) = count else { continue };
            if count > most {
                println!("{work}: {count:.1} {name} a request, and {most} is the most it may take");
                holds = false;
            }
        }
        holds
    }
}
