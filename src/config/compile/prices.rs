//! Prices: what must be there, what has no effect, and what was left out.

use std::fmt::Display;

use crate::config::document::{Document, Fault};
use crate::config::raw;
use crate::config::snapshot::Target;
use crate::config::spans::Path;
use crate::money::Rate;
use crate::price::{PriceList, Prices, Traits};
use crate::protocols::{Dialect, Operation};

/// Fields of a model's prices, as typed.
const INPUT: &str = "input_per_1m_tokens";
const OUTPUT: &str = "output_per_1m_tokens";
const CACHE: [&str; 3] =
    ["cached_input_per_1m_tokens", "cache_write_per_1m_tokens", "cache_write_1h_per_1m_tokens"];
const IMAGE: &str = "per_image";
const SECOND: &str = "per_second";
const CHARACTERS: &str = "per_1m_characters";

/// Which prices cover everything that an operation uses: one of these sets must be whole.
fn ways_to_bill(operation: Operation) -> &'static [&'static [&'static str]] {
    match operation {
        Operation::Chat | Operation::Messages | Operation::Responses => &[&[INPUT, OUTPUT]],
        Operation::CountTokens => &[],
        Operation::Embeddings => &[&[INPUT]],
        Operation::ImageGeneration | Operation::ImageEdit => &[&[IMAGE], &[INPUT, OUTPUT]],
        Operation::Video => &[&[SECOND], &[OUTPUT]],
        Operation::Speech => &[&[CHARACTERS]],
    }
}

/// Compiles a model's prices and notes what is missing, superfluous or contradictory.
pub(super) fn compile(document: &mut Document, at: &Path, raw: &raw::Model) -> PriceList {
    let operations: Vec<Operation> = raw.operations.iter().map(|name| name.0).collect();
    let typed = typed(&raw.prices);
    let prices_at = at.key("prices");
    if raw.free {
        if let Some(first) = typed.first() {
            let message = "a model is either `free` or has prices";
            document.note(Fault::at_key(&prices_at.key(first), message));
        }
        return PriceList::default();
    }
    for operation in &operations {
        let ways = ways_to_bill(*operation);
        if ways.iter().any(|way| way.iter().all(|field| typed.contains(field))) {
            continue;
        }
        let way = |way: &&[&str]| joined(way.iter().map(|field| format!("`{field}`")), " and ");
        let needed = joined(ways.iter().map(way), ", or ");
        let message = format!("no price for `{operation}`: it needs {needed}");
        let help = "add it below `prices`, or say `free: true`";
        document.note(Fault::at_key(&prices_at, message).help(help));
        break;
    }
    without_effect(document, &prices_at, &typed, &operations);
    conditional(document, at, raw, &operations);
    let when = |one: &raw::PricesWhen| (traits(&one.when), prices(&over(&one.prices, &raw.prices)));
    PriceList { base: prices(&raw.prices), when: raw.prices_when.iter().map(when).collect() }
}

/// The prices of `base` with those of `one` in their place.
fn over(one: &raw::Prices, base: &raw::Prices) -> raw::Prices {
    raw::Prices {
        input_per_1m_tokens: one.input_per_1m_tokens.or(base.input_per_1m_tokens),
        cached_input_per_1m_tokens: one
            .cached_input_per_1m_tokens
            .or(base.cached_input_per_1m_tokens),
        cache_write_per_1m_tokens: one.cache_write_per_1m_tokens.or(base.cache_write_per_1m_tokens),
        cache_write_1h_per_1m_tokens: one
            .cache_write_1h_per_1m_tokens
            .or(base.cache_write_1h_per_1m_tokens),
        output_per_1m_tokens: one.output_per_1m_tokens.or(base.output_per_1m_tokens),
        per_image: one.per_image.or(base.per_image),
        per_second: one.per_second.or(base.per_second),
        per_1m_characters: one.per_1m_characters.or(base.per_1m_characters),
    }
}

fn traits(when: &raw::When) -> Traits {
    Traits {
        resolution: when.resolution.map(|name| name.0),
        size: when.size.map(|size| size.0),
        quality: when.quality.map(|name| name.0),
        audio: when.audio,
        draft: when.draft,
        video_input: when.video_input,
    }
}

/// Notes a video that would be billed by tokens over an upstream that reports none: it would be free.
pub(super) fn check_reported(
    document: &mut Document,
    at: &Path,
    prices: &Prices,
    targets: &[Target],
    operations: &[Operation],
) {
    let reports_seconds = |target: &Target| target.upstream.dialect != Dialect::Ark;
    let by_tokens = prices.output > Rate::default() && prices.second == Rate::default();
    if operations.contains(&Operation::Video) && by_tokens && targets.iter().any(reports_seconds) {
        let message = "this upstream reports the seconds of a video, and no tokens";
        document.note(Fault::at_key(at, message).help("price it by `per_second`"));
    }
}

/// Notes prices of units that the model's operations do not use.
fn without_effect(
    document: &mut Document,
    at: &Path,
    typed: &[&'static str],
    operations: &[Operation],
) {
    let used = |field: &str| {
        let billed =
            |operation: &Operation| ways_to_bill(*operation).iter().any(|way| way.contains(&field));
        let is_cache = CACHE.contains(&field);
        operations.iter().any(billed)
            || (is_cache
                && operations
                    .iter()
                    .any(|op| ways_to_bill(*op).iter().any(|way| way.contains(&INPUT))))
    };
    for field in typed.iter().filter(|field| !used(field)) {
        let message = format!("`{field}` has no effect on {}", listed(operations));
        document.note(Fault::at_key(&at.key(field), message).warning());
    }
}

/// Checks `prices_when`: conditions that the model's requests can meet, and prices that it has.
fn conditional(document: &mut Document, at: &Path, raw: &raw::Model, operations: &[Operation]) {
    let at = at.key("prices_when");
    let base = typed(&raw.prices);
    let is_image = |op: &Operation| matches!(op, Operation::ImageGeneration | Operation::ImageEdit);
    for (index, one) in raw.prices_when.iter().enumerate() {
        let at = at.index(index);
        let conditions = conditions(&one.when);
        if conditions.is_empty() {
            document.note(Fault::at_key(&at.key("when"), "there is no condition"));
        }
        for (field, for_images) in conditions {
            let fits =
                |op: &Operation| if for_images { is_image(op) } else { *op == Operation::Video };
            if !operations.iter().any(fits) {
                let message =
                    format!("`{field}` is nothing that {} can ask for", listed(operations));
                document.note(Fault::at_key(&at.key("when").key(field), message));
            }
        }
        let replaced = typed(&one.prices);
        if replaced.is_empty() {
            document.note(Fault::at_key(&at.key("prices"), "there is no price"));
        }
        for field in replaced.iter().filter(|field| !base.contains(field)) {
            let message = format!("`{field}` is not among the model's `prices`");
            let help = "a price for requests that meet no condition is needed too";
            document.note(Fault::at_key(&at.key("prices").key(field), message).help(help));
        }
        let earlier = raw.prices_when.iter().take(index);
        if earlier.into_iter().any(|earlier| earlier.when == one.when) {
            let message = "these conditions are here twice: only the first counts";
            document.note(Fault::at_key(&at.key("when"), message));
        }
    }
}

/// The conditions that were typed, and whether each is about images rather than video.
fn conditions(when: &raw::When) -> Vec<(&'static str, bool)> {
    [
        ("resolution", false, when.resolution.is_some()),
        ("size", true, when.size.is_some()),
        ("quality", true, when.quality.is_some()),
        ("audio", false, when.audio.is_some()),
        ("draft", false, when.draft.is_some()),
        ("video_input", false, when.video_input.is_some()),
    ]
    .into_iter()
    .filter_map(|(field, for_images, typed)| typed.then_some((field, for_images)))
    .collect()
}

/// The fields that were typed.
fn typed(prices: &raw::Prices) -> Vec<&'static str> {
    let [cached, write, write_1h] = CACHE;
    [
        (INPUT, prices.input_per_1m_tokens.is_some()),
        (cached, prices.cached_input_per_1m_tokens.is_some()),
        (write, prices.cache_write_per_1m_tokens.is_some()),
        (write_1h, prices.cache_write_1h_per_1m_tokens.is_some()),
        (OUTPUT, prices.output_per_1m_tokens.is_some()),
        (IMAGE, prices.per_image.is_some()),
        (SECOND, prices.per_second.is_some()),
        (CHARACTERS, prices.per_1m_characters.is_some()),
    ]
    .into_iter()
    .filter_map(|(field, typed)| typed.then_some(field))
    .collect()
}

/// The rates. Input that is read from or written to a cache costs what plain input costs, unless the
/// file says otherwise.
fn prices(raw: &raw::Prices) -> Prices {
    let rate = |price: Option<crate::config::rate::PerMillion>| price.map(|price| price.0);
    let one = |price: Option<crate::config::rate::PerUnit>| price.map_or(Rate::default(), |p| p.0);
    let input = rate(raw.input_per_1m_tokens).unwrap_or_default();
    let cache_write = rate(raw.cache_write_per_1m_tokens).unwrap_or(input);
    Prices {
        input,
        cache_read: rate(raw.cached_input_per_1m_tokens).unwrap_or(input),
        cache_write,
        cache_write_1h: rate(raw.cache_write_1h_per_1m_tokens).unwrap_or(cache_write),
        output: rate(raw.output_per_1m_tokens).unwrap_or_default(),
        image: one(raw.per_image),
        second: one(raw.per_second),
        character: rate(raw.per_1m_characters).unwrap_or_default(),
    }
}

/// `chat`, `embeddings`
pub(super) fn listed(operations: &[Operation]) -> String {
    joined(operations.iter().map(|operation| format!("`{operation}`")), ", ")
}

fn joined(words: impl IntoIterator<Item = impl Display>, between: &str) -> String {
    let words: Vec<String> = words.into_iter().map(|word| word.to_string()).collect();
    words.join(between)
}
