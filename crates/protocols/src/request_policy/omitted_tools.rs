//! Tools that stay here: searches that a client offers to the model without asking for one.
//!
//! Codex offers a search with every request. An upstream bills each search; where there is no price for
//! that, refusing the request would lock such clients out. So the tool is left out of what goes upstream,
//! unless it has a price, the operator lets it through or the request insists on it, and the answer says
//! so in a header.

use std::ops::Range;

use super::super::json::{Object, Value};
use super::super::limits::ModelLimits;
use super::super::typed_elements::each_typed;
use tollgate_money::price::Unit;

/// First letters of the type of a search.
const SEARCH: &str = "web_search";
/// Prefixes of the names of such tools; a date may follow.
const SEARCHES: [&str; 2] = ["web_search", "web_search_preview"];

/// The tools of a request, as far as they go upstream.
#[derive(Debug)]
pub(in super::super) struct OmittedTools {
    /// Indices of those that stay here, in order.
    pub(super) places: Vec<usize>,
    /// Position of the array of tools in the body, and its replacement for the upstream.
    pub(in super::super) edit: (Range<usize>, String),
}

/// The searches that `body` offers, if there are any and they can be left out.
pub(in super::super) fn searches(body: &Object<'_>, limits: &ModelLimits) -> Option<OmittedTools> {
    if limits.priced.has_unit(Unit::WebSearches) {
        return None;
    }
    let tools = body.get_non_null("tools")?;
    let may_search = memchr::memmem::find(tools.text(), b"\"web_search").is_some()
        || memchr::memmem::find(tools.text(), br"\u").is_some();
    if !may_search {
        return None;
    }
    let insists = body.get_non_null("tool_choice").is_some_and(|choice| insists(&choice));
    if insists {
        return None;
    }
    let stays = |tool: &[u8]| {
        let kind = Value::new(tool).as_object().ok().and_then(|tool| tool.get("type"));
        kind.and_then(|kind| kind.as_str())
            .is_some_and(|kind| is_search(&kind) && !limits.pass.has_tool(&kind))
    };
    let (mut places, mut kept, mut count) = (Vec::new(), Vec::new(), 0);
    each_typed(body, &tools, |tool, kind| {
        if kind.may_begin_with(SEARCH) && stays(tool) {
            places.push(count);
        } else {
            kept.push(std::str::from_utf8(tool).unwrap_or_default());
        }
        count += 1;
        true
    });
    if places.is_empty() {
        return None;
    }
    let edit = (tools.range.clone(), format!("[{}]", kept.join(",")));
    Some(OmittedTools { places, edit })
}

/// True if a choice requires more than that the model may call any tool, or a function.
fn insists(choice: &Value<'_>) -> bool {
    match (choice.as_str(), choice.as_object()) {
        (Some(word), _) => !matches!(&*word, "auto" | "none"),
        (None, Ok(choice)) => {
            let kind = choice.get("type").and_then(|kind| kind.as_str());
            !kind.is_some_and(|kind| matches!(&*kind, "function" | "custom"))
        }
        (None, Err(_)) => true,
    }
}

fn is_search(kind: &str) -> bool {
    SEARCHES.iter().any(|search| {
        let date = kind.strip_prefix(search);
        date.is_some_and(|date| date.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{PassList, PricedFeatures};

    fn edited(fields: &str) -> Option<String> {
        let body = format!(r#"{{"model":"m",{fields}}}"#);
        let object = Object::parse(body.as_bytes()).expect("JSON");
        searches(&object, &ModelLimits::default()).map(|left_out| left_out.edit.1)
    }

    #[test]
    fn very_many_searches_take_no_longer_each() {
        let tools = r#"{"type":"web_search"},"#.repeat(45_000);
        let begun = std::time::Instant::now();
        let edited = edited(&format!(r#""tools":[{tools}{{"type":"function"}}]"#));
        assert_eq!(edited.as_deref(), Some(r#"[{"type":"function"}]"#));
        assert!(begun.elapsed().as_secs() < 5, "it took {:?}", begun.elapsed());
    }

    #[test]
    fn a_search_that_is_only_offered_stays_here() {
        let function = r#"{"type":"function","name":"f"}"#;
        let search = r#"{"type":"web_search","external_web_access":false}"#;
        for (fields, expected) in [
            (format!(r#""tools":[{function}, {search}]"#), Some(format!("[{function}]"))),
            (format!(r#""tools":[{search} ,{function}]"#), Some(format!("[{function}]"))),
            (format!(r#""tools":[{search}],"tool_choice":"auto""#), Some("[]".to_owned())),
            (
                format!(r#""tools":[{{"type":"web_search_preview_2025_03_11"}},{function}]"#),
                Some(format!("[{function}]")),
            ),
            (format!(r#""tools":[{search}],"tool_choice":"required""#), None),
            (format!(r#""tools":[{search}],"tool_choice":{{"type":"web_search"}}"#), None),
            (
                format!(r#""tools":[{function},{{"type":"web\u005fsearch"}}]"#),
                Some(format!("[{function}]")),
            ),
            (format!(r#""tools":[{function}]"#), None),
            (r#""tools":[{"type":"web_searches"}]"#.to_owned(), None),
            (r#""tools":[{"type":"web_search","type":"function"}]"#.to_owned(), None),
        ] {
            assert_eq!(edited(&fields), expected, "{fields}");
        }
        let body = format!(r#"{{"tools":[{search}]}}"#);
        let object = Object::parse(body.as_bytes()).expect("JSON");
        let pass = PassList { tools: vec!["web_search".to_owned()], ..PassList::default() };
        let passed = ModelLimits { pass, ..ModelLimits::default() };
        assert!(searches(&object, &passed).is_none(), "the operator lets it through");
        let priced = PricedFeatures { units: vec![Unit::WebSearches], ..PricedFeatures::default() };
        let priced = ModelLimits { priced, ..ModelLimits::default() };
        assert!(searches(&object, &priced).is_none(), "it has a price");
    }
}
