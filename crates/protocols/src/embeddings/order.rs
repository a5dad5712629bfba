//! The vectors of an answer, each of which says by its `index` which input it is of.
//!
//! Callers read them by their place in `data` (spec section 2.8: in `index` order), so an answer in
//! another order is put in order, and one in which an input has no vector or several is no answer.

use std::ops::Range;

use bytes::Bytes;

use crate::json::{SkipTable, Value};
use crate::json_cursor::Cursor;
use crate::splice::Splice;

/// Elements of `data`.
pub(super) struct Vectors<'a> {
    /// Position of the array in the answer.
    pub(super) array: Range<usize>,
    /// Its elements, by their `index`.
    pub(super) items: Vec<&'a [u8]>,
    /// The elements are in order.
    is_ordered: bool,
}

impl<'a> Vectors<'a> {
    /// Reads the vectors of `count` inputs; `None` where not each index from 0 is there once, as a whole
    /// number, or something cannot be read. Passes over `lists` of numbers in the answer in one step each.
    pub(super) fn read(answer: &'a [u8], count: u64, lists: &'a SkipTable) -> Option<Self> {
        let count = usize::try_from(count).ok()?;
        let mut array: Option<Range<usize>> = None;
        // An answer can have as many elements as it has bytes: no more are read than there are inputs.
        let mut items: Vec<Option<&[u8]>> = vec![None; count];
        let (mut found, mut is_ordered) = (0, true);
        let mut cursor = Cursor::with_skips(answer, lists);
        (cursor.next_byte()? == b'{').then_some(())?;
        cursor.object(|key, value| {
            if key != b"data" {
                return value.skip();
            }
            let is_list = value.next_byte()? == b'[';
            // Of two lists nobody knows which one counts.
            (is_list && array.is_none()).then_some(())?;
            let start = value.at;
            value.array(|item| {
                let (index, item) = indexed(item)?;
                is_ordered &= index == found;
                found += 1;
                items.get_mut(index)?.replace(item).is_none().then_some(())
            })?;
            array = Some(start..value.at);
            Some(())
        })?;
        let array = array?;
        let items = items.into_iter().collect::<Option<Vec<_>>>()?;
        Some(Self { array, items, is_ordered })
    }
}

/// An element, and the number of the input that it is of.
fn indexed<'a>(item: &mut Cursor<'a>) -> Option<(usize, &'a [u8])> {
    (item.next_byte()? == b'{').then_some(())?;
    let start = item.at;
    let mut found = None;
    item.object(|key, value| {
        if key != b"index" {
            return value.skip();
        }
        let index = Value::new(value.raw()?).as_u64()?;
        found.replace(index).is_none().then_some(())
    })?;
    Some((usize::try_from(found?).ok()?, item.text.get(start..item.at)?))
}

/// The answer with its vectors in the order of the inputs: byte for byte the same where they are. `lists` are
/// vectors whose ends are known.
pub(super) fn in_order(answer: &Bytes, count: u64, lists: &SkipTable) -> Option<Bytes> {
    let vectors = Vectors::read(answer, count, lists)?;
    if vectors.is_ordered {
        return Some(answer.clone());
    }
    let list = [&b"["[..], &vectors.items.join(&b","[..]), b"]"].concat();
    let mut splice = Splice::default();
    splice.replace(vectors.array.clone(), String::from_utf8(list).ok()?);
    Some(splice.apply(answer))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::json_scan::UsageScan;

    use super::*;

    fn in_order(answer: &Bytes, count: u64) -> Option<Bytes> {
        let mut scan = UsageScan::noting_lists(100);
        scan.feed(answer);
        let found = super::in_order(answer, count, scan.lists());
        assert_eq!(found, super::in_order(answer, count, &SkipTable::NONE), "{answer:?}");
        found
    }

    fn item(index: &str, vector: u64) -> String {
        format!(r#"{{"object":"embedding","index":{index}, "embedding":[{vector}]}}"#)
    }

    fn answer(items: &[String]) -> Bytes {
        format!(r#"{{"object":"list", "data" : [{}],"usage":{{}}}}"#, items.join(", ")).into()
    }

    #[test]
    fn an_answer_that_does_not_have_each_index_once_is_none() {
        let good = [item("0", 7), item("1", 8)];
        assert_eq!(in_order(&answer(&good), 2), Some(answer(&good)), "byte for byte");
        for indices in [
            &["0"][..],
            &["0", "0"],
            &["1", "1"],
            &["1", "2"],
            &["0", "2"],
            &["0", "-1"],
            &["0", "1.0"],
            &["0", "1e0"],
            &["0", "\"1\""],
            &["0", "null"],
            &["0", "18446744073709551616"],
            &["0", "1", "2"],
            &["0", "1", "1"],
            &[],
        ] {
            let items: Vec<String> = indices.iter().map(|index| item(index, 1)).collect();
            assert_eq!(in_order(&answer(&items), 2), None, "{indices:?}");
        }
        let [first, second] = good;
        for (list, why) in [
            (second.replace("index", "place"), "without an index"),
            (second.replace("\"index\":1", "\"index\":1,\"index\":1"), "with two"),
            ("[1]".to_owned(), "a bare vector"),
            ("null".to_owned(), "nothing"),
        ] {
            assert_eq!(in_order(&answer(&[first.clone(), list]), 2), None, "{why}");
        }
        for whole in [
            "{}",
            "[]",
            r#"{"data":null}"#,
            r#"{"data":{"index":0}}"#,
            r#"{"data":[{"index":0}],"data":[{"index":0}]}"#,
            r#"{"error":{"message":"no"}}"#,
        ] {
            assert_eq!(in_order(&Bytes::from(whole), 1), None, "{whole}");
        }
    }

    proptest! {
        /// In whatever order vectors come, they go on in that of the inputs, and nothing else changes.
        #[test]
        fn any_order_is_put_in_order(order in (1_usize..12).prop_flat_map(|count| {
            Just((0..count).collect::<Vec<_>>()).prop_shuffle()
        })) {
            let count = order.len() as u64;
            let written = |index: &usize| item(&index.to_string(), 100 + *index as u64);
            let shuffled: Vec<String> = order.iter().map(written).collect();
            let sorted: Vec<String> = (0..order.len()).map(|index| written(&index)).collect();
            let sent = in_order(&answer(&shuffled), count).expect("whole");
            let list = sorted.join(if sorted == shuffled { ", " } else { "," });
            let expected = format!(r#"{{"object":"list", "data" : [{list}],"usage":{{}}}}"#);
            prop_assert_eq!(sent, expected);
            prop_assert_eq!(in_order(&answer(&shuffled), count + 1), None, "one is missing");
            prop_assert_eq!(in_order(&answer(&shuffled[1..]), count), None, "one was lost");
        }
    }
}
