//! Arrays of inputs that are longer than an upstream takes: sent in parts, answered as one.

use std::ops::Range;

use bytes::Bytes;

use super::order::Vectors;
use super::read_element;
use crate::json::{Object, SkipTable, Value};
use crate::splice::Splice;
use tollgate_money::price::{Usage, UsageSource};

/// Division of an array of inputs into calls.
#[derive(Debug)]
pub(super) struct InputSplit {
    /// The array in the body.
    array: Range<usize>,
    batches: Vec<InputBatch>,
}

#[derive(Debug)]
struct InputBatch {
    /// Its elements in the body, with the commas between them.
    elements: Range<usize>,
    /// The number of the first.
    first: u64,
    count: u64,
    /// Estimated tokens.
    tokens: u64,
}

impl InputSplit {
    /// Cuts `input`, unless it fits one call.
    pub(super) fn new(input: &Value<'_>, batch_inputs_max: Option<u32>) -> Option<Self> {
        let max = batch_inputs_max? as usize;
        // An array of numbers is one input in token ids; of others there are not many.
        if input.elements()?.next()?.as_u64().is_some() {
            return None;
        }
        let elements: Vec<Value<'_>> = input.elements()?.collect();
        if elements.len() <= max {
            return None;
        }
        let mut first = 0;
        let mut batches = Vec::with_capacity(elements.len().div_ceil(max));
        for batch in elements.chunks(max) {
            let (Some(head), Some(tail)) = (batch.first(), batch.last()) else { continue };
            let at = input.range.start;
            let elements = at + head.range.start..at + tail.range.end;
            let count = batch.len() as u64;
            let tokens = batch.iter().map(|element| read_element(element).about).sum();
            batches.push(InputBatch { elements, first, count, tokens });
            first += count;
        }
        Some(Self { array: input.range.clone(), batches })
    }

    /// The bodies of the calls, each `body` with `edits` and a part of the array.
    pub(super) fn bodies(&self, body: &Bytes, edits: impl Fn() -> Splice) -> Vec<Bytes> {
        let one = |batch: &InputBatch| {
            let elements = body.get(batch.elements.clone()).unwrap_or_default();
            let mut splice = edits();
            let text = String::from_utf8_lossy(elements);
            splice.replace(self.array.clone(), format!("[{text}]"));
            splice.apply(body)
        };
        self.batches.iter().map(one).collect()
    }

    /// Usage of these answers, in any order and possibly incomplete: the reported usage, and estimates of the
    /// largest parts for answers with vectors and no report. `None` without an answer of either kind.
    pub(super) fn used(&self, answers: &[Bytes]) -> Option<(Usage, UsageSource)> {
        let (mut input_tokens, mut reported_count, mut unreported_count) =
            (0_u64, 0_usize, 0_usize);
        for answer in answers {
            let Ok(object) = Object::parse(answer) else { continue };
            match reported(&object) {
                Some(usage) => {
                    reported_count += 1;
                    input_tokens = input_tokens.saturating_add(usage.input_tokens);
                }
                None if has_vectors(&object) => unreported_count += 1,
                None => {}
            }
        }
        if reported_count + unreported_count == 0 {
            return None;
        }
        let mut estimates: Vec<u64> = self.batches.iter().map(|batch| batch.tokens).collect();
        estimates.sort_unstable_by(|one, other| other.cmp(one));
        let estimated =
            estimates.iter().take(unreported_count).copied().fold(0, u64::saturating_add);
        let usage = Usage { input_tokens: input_tokens.saturating_add(estimated), ..Usage::ZERO };
        let source =
            if unreported_count == 0 { UsageSource::Upstream } else { UsageSource::Estimated };
        Some((usage, source))
    }

    /// Combines all answers into the first: all vectors in the order of the inputs, and the summed usage.
    /// `None` if the answers do not match the request.
    pub(super) fn merge(&self, answers: &[Bytes]) -> Option<Bytes> {
        let template = answers.first()?;
        let mut vectors = vec![b'['];
        let mut used: Vec<TokenTotals> = Vec::with_capacity(answers.len());
        for (batch, answer) in self.batches.iter().zip(answers) {
            let object = Object::parse(answer).ok()?;
            used.push(TokenTotals::read(&object));
            for item in Vectors::read(answer, batch.count, &SkipTable::NONE)?.items {
                if vectors.len() > 1 {
                    vectors.push(b',');
                }
                vectors.extend_from_slice(&renumbered(&Value::new(item), batch.first)?);
            }
        }
        if used.len() != self.batches.len() {
            return None;
        }
        let object = Object::parse(template).ok()?;
        let mut splice = Splice::default();
        vectors.push(b']');
        splice.replace(object.get("data")?.range, String::from_utf8(vectors).ok()?);
        TokenTotals::overwrite(&object, &used, &mut splice);
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
struct TokenTotals([Option<u64>; 2]);

impl TokenTotals {
    fn read(answer: &Object<'_>) -> Self {
        let usage = answer.get_non_null("usage");
        let usage = usage.as_ref().and_then(|usage| usage.as_object().ok());
        Self(TOTALS.map(|field| usage.as_ref()?.get(field)?.as_u64()))
    }

    /// Writes the sums into the first answer. A count that is missing in one answer is dropped, and the usage
    /// is then estimated.
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

/// The usage that an answer reports; an answer with vectors and no tokens reports none.
fn reported(answer: &Object<'_>) -> Option<Usage> {
    let TokenTotals([prompt, total]) = TokenTotals::read(answer);
    let input_tokens = prompt.max(total).filter(|tokens| *tokens > 0)?;
    Some(Usage { input_tokens, ..Usage::ZERO })
}

/// True if an answer has vectors.
fn has_vectors(answer: &Object<'_>) -> bool {
    let data = answer.get("data").and_then(|data| data.elements());
    data.is_some_and(|mut items| items.next().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &[u8] = br#"{"input": ["a" , "b", "]c"],"model":"m"}"#;

    fn split() -> InputSplit {
        let object = Object::parse(BODY).expect("JSON");
        InputSplit::new(&object.get("input").expect("input"), Some(2)).expect("it is too long")
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
        let seven = Usage { input_tokens: 7, ..Usage::ZERO };
        assert_eq!(split().used(&answers), Some((seven, UsageSource::Upstream)));
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
        assert!(split().merge(&unreported).is_some(), "they are an answer all the same");
    }

    #[test]
    fn parts_are_put_in_order_each_and_none_may_lack_an_index() {
        let of = |indices: &[u64]| {
            let item = |index: &u64| format!(r#"{{"index":{index},"embedding":[{index}]}}"#);
            let data: Vec<String> = indices.iter().map(item).collect();
            Bytes::from(format!(r#"{{"data":[{}]}}"#, data.join(",")))
        };
        let merged = split().merge(&[of(&[1, 0]), of(&[0])]).expect("one answer");
        let expected = r#"{"data":[{"index":0,"embedding":[0]},{"index":1,"embedding":[1]},{"index":2,"embedding":[0]}]}"#;
        assert_eq!(std::str::from_utf8(&merged), Ok(expected));
        for first in [&[0, 0][..], &[1, 2], &[0, 2], &[0, 1, 2], &[0]] {
            assert_eq!(split().merge(&[of(first), of(&[0])]), None, "{first:?}");
        }
        assert_eq!(split().merge(&[of(&[0, 1]), of(&[2])]), None, "parts count from 0");
    }

    #[test]
    fn the_answers_that_came_are_counted_each_by_its_report_or_by_its_part() {
        let object = br#"{"input":["abcdefgh","ijklmnop","q"],"model":"m"}"#;
        let object = Object::parse(object).expect("JSON");
        let split =
            InputSplit::new(&object.get("input").expect("input"), Some(2)).expect("too long");
        let reported = |tokens: u64| answer(&["[1]"], &format!(r#"{{"prompt_tokens":{tokens}}}"#));
        let (silent, zero) = (answer(&["[1]"], "null"), reported(0));
        let of =
            |tokens: u64, source| Some((Usage { input_tokens: tokens, ..Usage::ZERO }, source));
        let refused = Bytes::from(r#"{"error":{"message":"no"}}"#);
        let largest = split.batches.iter().map(|batch| batch.tokens).max().expect("parts");
        let all: u64 = split.batches.iter().map(|batch| batch.tokens).sum();
        assert!(largest >= 4 && all > largest, "{largest} of {all}");
        for (answers, expected) in [
            (vec![], None),
            (vec![refused.clone(), Bytes::from("<html>")], None),
            (vec![reported(9)], of(9, UsageSource::Upstream)),
            (vec![reported(9), refused], of(9, UsageSource::Upstream)),
            (vec![reported(900), reported(900)], of(1800, UsageSource::Upstream)),
            (vec![silent.clone()], of(largest, UsageSource::Estimated)),
            (vec![reported(9), zero.clone()], of(9 + largest, UsageSource::Estimated)),
            (vec![silent, zero], of(all, UsageSource::Estimated)),
        ] {
            assert_eq!(split.used(&answers), expected, "{answers:?}");
        }
    }

    #[test]
    fn what_fits_is_not_cut() {
        let object = Object::parse(br#"{"a":["a","b"],"b":"abc","c":[1,2,3]}"#).expect("JSON");
        for field in ["a", "b", "c"] {
            assert!(
                InputSplit::new(&object.get(field).expect(field), Some(2)).is_none(),
                "{field}"
            );
        }
    }
}
