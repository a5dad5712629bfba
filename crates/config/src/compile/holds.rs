//! Compiles the rules of holds.

use std::time::Duration;

use tollgate_options::holds::{HoldOverrides, HoldRules, Means};

use crate::document::{Document, Fault};
use crate::names::MeansName;
use crate::raw;
use crate::spans::DocumentPath;
use crate::window::OptionalDuration;

/// Longest permitted wait for an answer that has not begun.
const WAIT_MAX: Duration = Duration::from_secs(600);

/// Compiles the rules for all models and accounts.
pub(super) fn compile(document: &mut Document, raw: &raw::HoldsSection) -> HoldRules {
    let at = DocumentPath::root().key("holds");
    check_tokens(document, &at, raw.output_floor, raw.slice);
    HoldRules {
        means: means(document, &at, &raw.means),
        output_floor: raw.output_floor,
        slice: raw.slice,
        wait: wait(document, &at, raw.wait),
        count_timeout: raw.count_timeout.0,
    }
}

/// The rules of one model.
pub(super) fn of_model(
    document: &mut Document,
    at: &DocumentPath,
    raw: &raw::ModelHoldsSection,
) -> HoldOverrides {
    let HoldRules { output_floor, slice, .. } = HoldRules::default();
    let floor = raw.output_floor.unwrap_or(output_floor);
    check_tokens(document, at, floor, raw.slice.unwrap_or(slice));
    HoldOverrides {
        means: raw.means.as_deref().map(|listed| means(document, at, listed)),
        output_floor: raw.output_floor,
        slice: raw.slice,
        wait: raw.wait.map(|typed| wait(document, at, typed)),
    }
}

fn check_tokens(document: &mut Document, at: &DocumentPath, output_floor: u64, slice: u64) {
    for (key, value, range) in [
        ("output_floor", output_floor, 1..=10_000_000),
        // A smaller slice would be extended for every few words.
        ("slice", slice, 256..=1_000_000),
    ] {
        if !range.contains(&value) {
            let fault = Fault::at_value(&at.key(key), "this many tokens are out of range");
            document.note(fault.help(format!("from {} to {}", range.start(), range.end())));
        }
    }
}

fn means(document: &mut Document, at: &DocumentPath, listed: &[MeansName]) -> Vec<Means> {
    for (index, name) in listed.iter().enumerate() {
        if listed.iter().take(index).any(|earlier| earlier == name) {
            let path = at.key("means").index(index);
            document.note(Fault::at_value(&path, format!("`{}` is here twice", name.0)));
        }
    }
    listed.iter().map(|name| name.0).collect()
}

fn wait(document: &mut Document, at: &DocumentPath, typed: OptionalDuration) -> Duration {
    let wait = typed.0.unwrap_or(Duration::ZERO);
    if wait > WAIT_MAX {
        let fault = Fault::at_value(&at.key("wait"), "customers' clients give up before that");
        document.note(fault.help("at most `10m`"));
    }
    wait
}
