//! Arrays of inputs that are longer than an upstream takes: sent in parts, answered as one.

use std::ops::Range;

use bytes::Bytes;

use crate::price::Usage;
use crate::protocols::json::{Object, Value};
use crate::protocols::splice::Splice;

/// How an array of inputs is cut.
#[derive(Debug)]
pub(super) struct Split {
    /// The array in the body.
    array: Range<usize>,
    batches: Vec<Batch>,
}

#[derive(Debug)]
struct Batch {
    /// Its elements in the body, with the commas between them.
    elements: Range<usize>,
    /// The number of the first.
    first: u64,
    count: u64,
}

impl Split {
    /// Cuts `input`, unless it fits one call.
    pub(super) fn of(input: &Value<'_>, batch_inputs_max: Option<u32>) -> Option<Self> {
        let max = batch_inputs_max? as usize;
        let elements = input.as_array()?;
        // An array of numbers is one input in token ids.
        let is_one = elements.iter().all(|element| element.as_u64().is_some());
        if elements.len() <= max || is_one {
            return None;
        }
        let mut first = 0;
        let mut batches = Vec::with_capacity(elements.len().div_ceil(max));
        for batch in elements.chunks(max) {
            let (Some(head), Some(tail)) = (batch.first(), batch.last()) else { continue };
            let at = input.range.start;
            let elements = at + head.range.start..at + tail.range.end;
            let count = batch.len() as u64;
            batches.push(Batch { elements, first, count });
            first += count;
        }
        Some(Self { array: input.range.clone(), batches })
    }

    /// The bodies of the calls, each `body` with `edits` and a part of the array.
    pub(super) fn bodies(&self, body: &Bytes, edits: impl Fn() -> Splice) -> Vec<Bytes> {
        let one = |batch: &Batch| {
            let elements = body.get(batch.elements.clone()).unwrap_or_default();
            let mut splice = edits();
            let text = String::from_utf8_lossy(elements);
            splice.replace(self.array.clone(), format!("[{text}]"));
            splice.apply(body)
        };
        self.batches.iter().map(one).collect()
    }

    /// One answer out of all: the first, with everyone's vectors and everyone's usage. `None` when
    /// they are not what was asked for.
    pub(super) fn merge(&self, answers: &[Bytes]) -> Option<Bytes> {
        let template = answers.first()?;
        let mut vectors = Vec::new();
        let mut used: Vec<Totals> = Vec::with_capacity(answers.len());
        for (batch, answer) in self.batches.iter().zip(answers) {
            let object = Object::parse(answer).ok()?;
            used.push(Totals::of(&object));
            let data = object.get("data")?;
            let items = data.as_array().filter(|items| items.len() as u64 == batch.count)?;
            for item in items {
                if !vectors.is_empty() {
                    vectors.push(b',');
                }
                vectors.extend_from_slice(&renumbered(&item, batch.first)?);
            }
        }
        if used.len() != self.batches.len() {
            return None;
        }
        let object = Object::parse(template).ok()?;
        let mut splice = Splice::default();
        let vectors = String::from_utf8(vectors).ok()?;
        splice.replace(object.get("data")?.range, format!("[{vectors}]"));
        Totals::overwrite(&object, &used, &mut splice);
        Some(splice.apply(template))
    }
}

/// An element of `data`, counted on from `first`.
fn renumbered(item: &Value<'_>, first: u64) -> Option<Bytes> {
    let members = item.as_object().ok()?;
    let index = members.get("index")?;
    let mut splice = Splice::default();
    splice.replace(index.range.clone(), (first + index.as_u64()?).to_string());
    Some(splice.apply(&Bytes::copy_from_slice(item.text())))
}

/// The fields of a usage that add up.
const TOTALS: [&str; 2] = ["prompt_tokens", "total_tokens"];

/// The figures of one answer, in the order of [`TOTALS`].
struct Totals([Option<u64>; 2]);

impl Totals {
    fn of(answer: &Object<'_>) -> Self {
        let usage = answer.get_non_null("usage");
        let usage = usage.as_ref().and_then(|usage| usage.as_object().ok());
        Self(TOTALS.map(|field| usage.as_ref()?.get(field)?.as_u64()))
    }

    /// Puts the sums into the first answer. A figure that one of them lacks is none: what is left of
    /// a usage without it is estimated.
    fn overwrite(answer: &Object<'_>, all: &[Self], splice: &mut Splice) {
        let Some(usage) = answer.get_non_null("usage") else { return };
        let Ok(members) = usage.as_object() else { return };
        for (at, field) in TOTALS.iter().enumerate() {
            let Some(value) = members.get(field) else { continue };
            let figures = all.iter().map(|totals| totals.0.get(at).copied().flatten());
            let sum = figures.sum::<Option<u64>>();
            let text = sum.map_or_else(|| "null".to_owned(), |sum| sum.to_string());
            let start = usage.range.start;
            splice.replace(start + value.range.start..start + value.range.end, text);
        }
    }
}

/// What the merged answer reports.
pub(super) fn reported(answer: &Object<'_>) -> Option<Usage> {
    let Totals([prompt, total]) = Totals::of(answer);
    prompt.or(total).map(|input_tokens| Usage { input_tokens, ..Usage::ZERO })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &[u8] = br#"{"input": ["a" , "b", "]c"],"model":"m"}"#;

    fn split() -> Split {
        let object = Object::parse(BODY).expect("JSON");
        Split::of(&object.get("input").expect("input"), Some(2)).expect("it is too long")
    }

    fn answer(items: &[&str], usage: &str) -> Bytes {
        let item = |(index, vector): (usize, &&str)| {
            format!(r#"{{"index":{index},"embedding":{vector}}}"#)
        };
        let data: Vec<String> = items.iter().enumerate().map(item).collect();
        format!(r#"{{"object":"list","data":[{}],"usage":{usage}}}"#, data.join(", ")).into()
    }

    #[test]
    fn each_call_has_its_part_and_all_else() {
        let bodies = split().bodies(&Bytes::from_static(BODY), Splice::default);
        let expected =
            [&br#"{"input": ["a" , "b"],"model":"m"}"#[..], br#"{"input": ["]c"],"model":"m"}"#];
        assert_eq!(bodies, expected);
    }

    #[test]
    fn the_answer_is_one_in_order_with_one_total() {
        let usage = |tokens| format!(r#"{{"prompt_tokens":{tokens},"total_tokens":{tokens}}}"#);
        let answers = [answer(&["[1]", "[2]"], &usage(3)), answer(&["[3]"], &usage(4))];
        let merged = split().merge(&answers).expect("one answer");
        let expected = r#"{"object":"list","data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[2]},{"index":2,"embedding":[3]}],"usage":{"prompt_tokens":7,"total_tokens":7}}"#;
        assert_eq!(std::str::from_utf8(&merged), Ok(expected));
        let merged = Object::parse(&merged).expect("JSON");
        assert_eq!(reported(&merged), Some(Usage { input_tokens: 7, ..Usage::ZERO }));
    }

    #[test]
    fn answers_that_are_none_or_too_few_are_no_answer() {
        let good = answer(&["[1]", "[2]"], "{}");
        for second in [answer(&[], "{}"), answer(&["[1]", "[2]"], "{}"), Bytes::from("<html>")] {
            assert_eq!(split().merge(&[good.clone(), second.clone()]), None, "{second:?}");
        }
        assert_eq!(split().merge(std::slice::from_ref(&good)), None, "one of two");
        let unreported =
            [answer(&["[1]", "[2]"], r#"{"prompt_tokens":3}"#), answer(&["[3]"], "{}")];
        let merged = split().merge(&unreported).expect("one answer");
        let merged = Object::parse(&merged).expect("JSON");
        assert_eq!(reported(&merged), None, "half a usage is none");
    }

    #[test]
    fn what_fits_is_not_cut() {
        let object = Object::parse(br#"{"a":["a","b"],"b":"abc","c":[1,2,3]}"#).expect("JSON");
        for field in ["a", "b", "c"] {
            assert!(Split::of(&object.get(field).expect(field), Some(2)).is_none(), "{field}");
        }
    }
}
