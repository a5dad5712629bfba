//! Objects that upstreams of the Responses API store: their ids in requests that refer to them, and in
//! answers.
//!
//! An id says who may read what is behind it to nobody but the upstream, which knows all customers of
//! the gateway as one. So requests that refer to something are told from those that bring all they
//! need, and the ids of what an answer has left at the upstream are noted with it. Fields: OpenAI's API
//! reference, "Create a model response".

use super::json::{Object, Value, plain_text_end};
use super::json_cursor::Cursor;

/// Items that are complete in themselves, even with an id.
const WHOLE_ITEMS: [&str; 15] = [
    "message",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
    "local_shell_call",
    "local_shell_call_output",
    "shell_call",
    "shell_call_output",
    "apply_patch_call",
    "apply_patch_call_output",
    "computer_call_output",
    // Codex 0.171 gives its tools an id of its own.
    "additional_tools",
    "tool_search_call",
    "tool_search_output",
];
/// Members by which an item refers to something.
const REFERRING_KEYS: [&str; 4] = ["id", "type", "encrypted_content", "content"];
/// The longest id. Those of OpenAI have some 60 characters.
const ID_BYTES_MAX: usize = 256;
/// The most ids of one answer: it can have an item for each call of a tool.
const IDS_MAX: usize = 512;

/// Something that an upstream keeps, as a request names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The field of the request that refers to it.
    pub field: &'static str,
    /// The upstream's id; empty if unknown.
    pub id: String,
}

/// Stored objects that a request refers to.
pub(super) fn references(body: &Object<'_>) -> Vec<Reference> {
    let mut found = Vec::new();
    let mut add = |field, value: Option<&Value<'_>>| {
        let id = value.and_then(|value| value.as_str()).unwrap_or_default().into_owned();
        found.push(Reference { field, id });
    };
    if let Some(previous) = body.get_non_null("previous_response_id") {
        add("previous_response_id", Some(&previous));
    }
    if let Some(conversation) = body.get_non_null("conversation") {
        let id = conversation.as_object().ok().and_then(|object| object.get("id"));
        add("conversation", id.as_ref().or(Some(&conversation)));
    }
    let Some(input) = body.get_non_null("input").filter(Value::is_array) else { return found };
    let read = Cursor::of_member(body, &input).array(|item| {
        let is_object = item.next_byte()? == b'{';
        let start = item.at;
        if !is_object {
            return item.skip();
        }
        // Nearly all bring what they need, and are not read any further.
        if ItemKeys::read(item)?.may_refer() {
            let item = Value::new(item.text.get(start..item.at)?).as_object();
            if let Some(item) = item.ok().filter(refers) {
                add("input", item.get("id").as_ref());
            }
        }
        Some(())
    });
    if read.is_none() {
        // What cannot be read may refer to anything.
        add("input", None);
    }
    found
}

/// Members of an item that say whether it can refer to something, as they are written.
#[derive(Default)]
struct ItemKeys<'a> {
    kind: Option<&'a [u8]>,
    id: Option<&'a [u8]>,
    content: Option<&'a [u8]>,
    sealed: Option<&'a [u8]>,
    /// One of them is there twice, or has an escape or another spelling.
    is_odd: bool,
}

impl<'a> ItemKeys<'a> {
    fn read(item: &mut Cursor<'a>) -> Option<Self> {
        let mut keys = Self::default();
        item.object(|key, value| {
            let member = match key {
                b"type" => &mut keys.kind,
                b"id" => &mut keys.id,
                b"content" => &mut keys.content,
                b"encrypted_content" => &mut keys.sealed,
                _ => {
                    let is_spelling = |name: &&str| name.as_bytes().eq_ignore_ascii_case(key);
                    keys.is_odd |= key.contains(&b'\\') || REFERRING_KEYS.iter().any(is_spelling);
                    return value.skip();
                }
            };
            keys.is_odd |= member.replace(value.raw()?).is_some();
            Some(())
        })?;
        Some(keys)
    }

    /// False only if [`refers`] is.
    fn may_refer(&self) -> bool {
        let kind = self.kind.and_then(|kind| kind.strip_prefix(b"\"")?.strip_suffix(b"\""));
        let kind = kind.unwrap_or_default();
        let has = |value: Option<&[u8]>, nothing: &[&[u8]]| {
            value.is_some_and(|value| value != b"null" && !nothing.contains(&value))
        };
        let is_whole = WHOLE_ITEMS.iter().any(|whole| whole.as_bytes() == kind);
        let has_content = has(self.content, &[b"\"\"", b"[]"]) || has(self.sealed, &[]);
        self.is_odd
            || kind.contains(&b'\\')
            || kind == b"item_reference"
            || has(self.id, &[b"\"\""]) && !is_whole && !has_content
    }
}

/// True if an item refers to one that the upstream stores.
fn refers(item: &Object<'_>) -> bool {
    // A reader that takes another spelling for these sees another item.
    if item.case_variant_of(&REFERRING_KEYS).is_some() {
        return true;
    }
    let kind = item.get_non_null("type").and_then(|kind| kind.as_str());
    if kind.as_deref() == Some("item_reference") {
        return true;
    }
    let has_id = item.get_non_null("id").is_some_and(|id| id.text() != b"\"\"");
    let is_whole = kind.as_deref().is_some_and(|kind| WHOLE_ITEMS.contains(&kind));
    let has_content = || {
        let content = item.get_non_null("content");
        let has_text = content.is_some_and(|content| !matches!(content.text(), b"\"\"" | b"[]"));
        has_text || item.get_non_null("encrypted_content").is_some()
    };
    has_id && !is_whole && !has_content()
}

/// Ids of what an answer has left at the upstream.
#[derive(Clone, Debug, Default)]
pub(super) struct StoredIds(Vec<String>);

impl StoredIds {
    /// Adds an id in its JSON form.
    pub(super) fn add(&mut self, id: &[u8]) {
        if self.0.len() >= IDS_MAX || id.len() > ID_BYTES_MAX {
            return;
        }
        let Ok(id) = serde_json::from_slice::<String>(id) else { return };
        if !id.is_empty() && !self.0.contains(&id) {
            self.0.push(id);
        }
    }

    pub(super) fn all(&self) -> &[String] {
        &self.0
    }
}

/// Finds the ids of a response and of the items in its `output` while it streams past.
#[derive(Debug, Default)]
pub(super) struct IdScan {
    depth: u32,
    in_string: bool,
    escaped: bool,
    /// Inside the list of `output`.
    in_output: bool,
    /// Inside the `container` of a message of Anthropic's.
    in_container: bool,
    /// The member whose value comes next, of the response or of an item.
    member: CurrentMember,
    /// A string that may be a key or an id, with its first quote.
    text: Vec<u8>,
    ids: StoredIds,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CurrentMember {
    /// A key comes first.
    #[default]
    None,
    Id,
    Output,
    Container,
    Other,
}

impl IdScan {
    pub(super) fn ids(&self) -> &StoredIds {
        &self.ids
    }

    pub(super) fn feed(&mut self, piece: &[u8]) {
        let mut at = 0;
        while let Some(&byte) = piece.get(at) {
            if !self.in_string {
                self.outside(byte);
                at += 1;
                continue;
            }
            if std::mem::take(&mut self.escaped) {
                self.keep(&[byte]);
                at += 1;
                continue;
            }
            let end = plain_text_end(piece, at);
            self.keep(piece.get(at..end).unwrap_or_default());
            if let Some(&special) = piece.get(end) {
                self.keep(&[special]);
                match special {
                    b'"' => self.end_string(),
                    b'\\' => self.escaped = true,
                    _ => {}
                }
            }
            at = end + 1;
        }
    }

    /// True if the ids of members at this place count.
    fn is_looked_at(&self) -> bool {
        self.depth == 1 || self.depth == 3 && self.in_output || self.depth == 2 && self.in_container
    }

    fn outside(&mut self, byte: u8) {
        match byte {
            b'"' => {
                self.in_string = true;
                self.text.clear();
                self.keep(b"\"");
            }
            b'{' | b'[' => {
                self.in_output |=
                    self.depth == 1 && self.member == CurrentMember::Output && byte == b'[';
                self.in_container |=
                    self.depth == 1 && self.member == CurrentMember::Container && byte == b'{';
                self.depth = self.depth.saturating_add(1);
                if self.is_looked_at() {
                    self.member = CurrentMember::None;
                }
            }
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                self.in_output &= self.depth > 1;
                self.in_container &= self.depth > 1;
            }
            b',' if self.is_looked_at() => self.member = CurrentMember::None,
            b':' if self.is_looked_at() => {
                self.member = match self.text.as_slice() {
                    b"\"id\"" => CurrentMember::Id,
                    // Of code that was run: a later request can name the container.
                    b"\"container_id\"" if self.depth == 3 => CurrentMember::Id,
                    b"\"output\"" => CurrentMember::Output,
                    b"\"container\"" if self.depth == 1 => CurrentMember::Container,
                    _ => CurrentMember::Other,
                };
            }
            _ => {}
        }
    }

    fn keep(&mut self, text: &[u8]) {
        if self.is_looked_at() {
            let room = (ID_BYTES_MAX + 1).saturating_sub(self.text.len());
            self.text.extend_from_slice(text.get(..room).unwrap_or(text));
        }
    }

    fn end_string(&mut self) {
        self.in_string = false;
        if self.is_looked_at() && self.member == CurrentMember::Id {
            self.ids.add(&self.text);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn referred(body: &str) -> Vec<(&'static str, String)> {
        let found = references(&Object::parse(body.as_bytes()).expect("JSON"));
        found.into_iter().map(|one| (one.field, one.id)).collect()
    }

    #[test]
    fn what_a_request_refers_to_is_found_however_it_is_written() {
        for (body, field, id) in [
            (r#"{"previous_response_id":"resp_1"}"#, "previous_response_id", "resp_1"),
            (r#"{"previous_response_id":"resp\u005f1"}"#, "previous_response_id", "resp_1"),
            (r#"{"previous_response_id":7}"#, "previous_response_id", ""),
            (r#"{"conversation":"conv_1"}"#, "conversation", "conv_1"),
            (r#"{"conversation":{"id":"conv_1"}}"#, "conversation", "conv_1"),
            (r#"{"conversation":{"Id":"conv_1"}}"#, "conversation", ""),
            (r#"{"input":[{"type":"item_reference","id":"msg_1"}]}"#, "input", "msg_1"),
            (r#"{"input":[{"type":"\u0069tem_reference","id":"msg_1"}]}"#, "input", "msg_1"),
            (r#"{"input":[{"type":"item_reference","ID":"msg_1"}]}"#, "input", ""),
            (r#"{"input":[{"id":"msg_1"}]}"#, "input", "msg_1"),
            (r#"{"input":[{"type":"reasoning","id":"rs_1","summary":[]}]}"#, "input", "rs_1"),
            (r#"{"input":[{"type":"image_generation_call","id":"ig_1"}]}"#, "input", "ig_1"),
        ] {
            assert_eq!(referred(body), [(field, id.to_owned())], "{body}");
        }
    }

    #[test]
    fn items_that_bring_all_they_have_refer_to_nothing() {
        for body in [
            r#"{"input":"resp_1"}"#,
            r#"{"previous_response_id":null,"conversation":null,"input":[]}"#,
            r#"{"input":[{"role":"user","content":"item_reference"}]}"#,
            r#"{"input":[{"id":"msg_1","type":"message","role":"assistant","content":[]}]}"#,
            r#"{"input":[{"id":"fc_1","type":"function_call","name":"f","arguments":"{}"}]}"#,
            r#"{"input":[{"id":"rs_1","type":"reasoning","encrypted_content":"x","summary":[]}]}"#,
            r#"{"input":[{"id":"rs_1","type":"reasoning","content":[{"type":"reasoning_text","text":"x"}]}]}"#,
            r#"{"input":[{"type":"reasoning","id":"","summary":[]}]}"#,
            r#"{"input":[{"type":"additional_tools","id":"at_1","role":"developer","tools":[]}]}"#,
            r#"{"input":[{"type":"tool_search_output","id":"ts_1","call_id":"c","tools":[]}]}"#,
        ] {
            assert_eq!(referred(body), [], "{body}");
        }
    }

    /// The references of a list of items, each read as an object whatever it has.
    fn references_by_objects(body: &Object<'_>) -> Vec<Option<String>> {
        let items = body.get_non_null("input").and_then(|input| input.elements());
        let objects = items.into_iter().flatten().filter_map(|item| item.as_object().ok());
        let id = |item: Object<'_>| {
            item.get("id").map(|id| id.as_str().unwrap_or_default().into_owned())
        };
        objects.filter(refers).map(id).collect()
    }

    proptest! {
        #[test]
        fn the_same_items_refer_as_if_each_were_read_as_an_object(
            items in prop::collection::vec(
                prop::collection::vec((0..12_usize, 0..16_usize), 0..5), 0..5,
            ),
            space in "[ \n]{0,2}",
        ) {
            const KEYS: [&str; 12] = [
                "id", "type", "content", "encrypted_content", "id", "type", "ID", "\\u0069d", "Type",
                "summary", "Encrypted_Content", "typ\\u0065",
            ];
            const VALUES: [&str; 16] = [
                "null", "\"\"", "[]", "{}", "\"x\"", "7", "\"item_reference\"",
                "\"\\u0069tem_reference\"", "\"message\"", "\"messag\\u0065\"", "\"reasoning\"",
                "\"function_call\"", "[\"x\"]", "{\"id\":\"no\",\"type\":\"item_reference\"}", "true",
                "\"a\\\"b\"",
            ];
            let item = |members: &Vec<(usize, usize)>| {
                let member = |(key, value): &(usize, usize)| {
                    format!("\"{}\"{space}:{space}{}", KEYS[*key], VALUES[*value])
                };
                let members: Vec<String> = members.iter().map(member).collect();
                format!("{{{}}}", members.join(","))
            };
            let mut items: Vec<String> = items.iter().map(item).collect();
            items.push("7".to_owned());
            let body = format!("{{\"input\":[{space}{}]}}", items.join(&format!("{space},")));
            let object = Object::parse(body.as_bytes()).expect("JSON");
            let found: Vec<String> = references(&object).into_iter().map(|one| one.id).collect();
            let expected = references_by_objects(&object);
            let expected: Vec<String> = expected.into_iter().map(Option::unwrap_or_default).collect();
            prop_assert_eq!(found, expected, "{}", body);
        }
    }

    const ANSWER: &[u8] = br#"{"object":"response","id":"resp_\"1","metadata":{"id":"no"},"tools":[{"id":"no"}],"output":[{"type":"message","id":"msg_1","content":[{"id":"no","text":"\"id\":\"no\""}]},{"id":"fc_1"},{"id":"ci_1","container_id":"cntr_1"},7,["id","no"]],"x":{"output":[{"id":"no"}]},"container":{"x":{"id":"no"},"id":"container_1"},"usage":null}"#;

    proptest! {
        #[test]
        fn ids_of_an_answer_are_found_however_it_is_cut(
            cuts in prop::collection::vec(0..ANSWER.len(), 0..5),
        ) {
            let mut cuts = cuts;
            cuts.extend([0, ANSWER.len()]);
            cuts.sort_unstable();
            let mut scan = IdScan::default();
            for pair in cuts.windows(2) {
                scan.feed(&ANSWER[pair[0]..pair[1]]);
            }
            prop_assert_eq!(scan.ids().all(), ["resp_\"1", "msg_1", "fc_1", "ci_1", "cntr_1", "container_1"]);
        }
    }
}
