//! Reads what callgrind writes. Needs nothing but the standard library: other benchmarks include this file by its
//! path.

use std::collections::HashMap;

/// Entry points of the allocator. Its calls of itself are not counted.
const ALLOCATING: [&str; 8] = [
    "mi_malloc",
    "mi_zalloc",
    "mi_calloc",
    "mi_realloc",
    "mi_malloc_aligned",
    "mi_zalloc_aligned",
    "mi_calloc_aligned",
    "mi_realloc_aligned",
];

/// Counts of a run below callgrind.
pub(crate) struct CallgrindCounts {
    pub(crate) instructions: u64,
    /// Calls of the allocator.
    pub(crate) allocations: u64,
}

impl CallgrindCounts {
    /// Reads a file of callgrind's; `None` where nothing was counted, or a line cannot be read.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let mut names: HashMap<&str, &str> = HashMap::new();
        let (mut caller, mut callee) = ("", "");
        let (mut instructions, mut allocations) = (0_u64, 0_u64);
        for line in text.lines() {
            let Some((field, value)) = line.split_once(['=', ':']) else { continue };
            match field {
                "fn" | "cfn" => {
                    // A name is written with its number once, and is the number from there on.
                    let (number, name) = value.split_once(' ').unwrap_or((value, ""));
                    if !name.is_empty() {
                        names.insert(number, name);
                    }
                    let name = names.get(number).copied().unwrap_or_default();
                    *(if field == "fn" { &mut caller } else { &mut callee }) = name;
                }
                "calls" if ALLOCATING.contains(&callee) && !caller.contains("mi_") => {
                    allocations += value.split(' ').next()?.parse::<u64>().ok()?;
                }
                "summary" | "totals" => {
                    instructions = instructions.max(value.trim().parse().ok()?);
                }
                _ => {}
            }
        }
        (instructions > 0).then_some(Self { instructions, allocations })
    }
}
