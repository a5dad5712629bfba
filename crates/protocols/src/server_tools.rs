//! Tools that upstreams run themselves: which there are, and how often an answer shows that they ran.
//!
//! Each has a price of its own beside the tokens, so none may be asked for without one. Most answers
//! have no count of them; then the items in it are counted, as providers bill them: of OpenAI's search
//! each `search`, and not what is opened or looked for on a page; of code each container.

use super::json::plain_text_end;
use super::json_cursor::Cursor;
use tollgate_money::price::{Unit, Usage};

/// A tool that the upstream runs.
pub(super) struct ServerTool {
    /// Its type, or how its types begin.
    pub(super) name: &'static str,
    /// True if types have a date behind the name.
    pub(super) is_dated: bool,
    /// Billing unit of its calls in addition to their tokens; `None` if there is none.
    pub(super) unit: Option<Unit>,
    /// Addition of one call to the context; `None` if unknown.
    pub(super) result: Option<ToolContextCost>,
}

/// Addition of a server tool's call to the context, and the cost of reading the context again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ToolContextCost {
    /// Tokens of one result, as its vendor documents or shows them.
    pub(super) tokens: u64,
    /// Tokens of each entry of a result, where requests can say how many it has.
    pub(super) entry_tokens: Option<u64>,
    /// Billing of the prompt in the rounds after the first.
    pub(super) reread: RereadBilling,
    /// Field for a limit, for customers who set none; `None` where the vendor has no such field.
    pub(super) limit: Option<CallLimit>,
}

impl ToolContextCost {
    /// The result where the request says how many entries it has.
    pub(super) fn with_entries(self, entries: Option<u64>) -> Self {
        let tokens = self.entry_tokens.zip(entries).map(|(tokens, entries)| {
            // A vendor may find fewer than it was asked for, and gives at least one.
            tokens.saturating_mul(entries.max(1))
        });
        Self { tokens: tokens.unwrap_or(self.tokens), ..self }
    }

    /// The longer of two results of the same vendor.
    pub(super) fn longer(self, other: Self) -> Self {
        if other.tokens > self.tokens { other } else { self }
    }
}

/// Billing of the prompt and of earlier results in the rounds after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RereadBilling {
    /// It is read from the cache, which the vendor fills unasked.
    Cached,
    /// It is input as any other.
    Input,
    /// Calls are not billed.
    Free,
}

/// Field of a request that limits the upstream's calls of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallLimit {
    /// `max_tool_calls`, for all tools together.
    Request,
    /// In `max_uses` of the tool.
    Tool,
}

impl ServerTool {
    /// True if this entry describes tools of this type.
    pub(super) fn is_named(&self, kind: &str) -> bool {
        kind.strip_prefix(self.name).is_some_and(|date| {
            let is_date = |byte: u8| byte.is_ascii_digit() || byte == b'_';
            date.is_empty() || self.is_dated && date.bytes().all(is_date)
        })
    }
}

/// Longest item that is kept for inspection, in bytes. Longer ones are recognised by their beginning.
const ITEM_BYTES_MAX: usize = 64 * 1024;
/// Longest key that is compared, in bytes.
const KEY_BYTES_MAX: usize = 32;
/// Maximum number of distinguished containers of one answer.
const CONTAINERS_MAX: usize = 64;

/// Calls of tools that an answer has shown.
#[derive(Clone, Debug, Default)]
pub(super) struct ServerToolCalls {
    made: Usage,
    /// The containers, as their ids are written.
    containers: Vec<Vec<u8>>,
}

impl ServerToolCalls {
    /// The calls as billed usage.
    pub(super) fn usage(&self) -> Usage {
        Usage { container_sessions: self.containers.len() as u64, ..self.made }
    }

    /// Counts the calls in a list of items.
    pub(super) fn from_items(items: &[u8]) -> Self {
        let mut server_calls = Self::default();
        // Of a list that is cut, what stands before the cut is read.
        let _is_whole = Cursor::new(items).array(|item| {
            server_calls.count(item.raw()?);
            Some(())
        });
        server_calls
    }

    /// Counts an item of an answer, if the upstream ran something for it.
    pub(super) fn count(&mut self, item: &[u8]) {
        let (mut kind, mut name, mut action, mut container) = (&b""[..], &b""[..], None, None);
        // Of an item that is cut, what stands before the cut is read.
        let _is_whole = Cursor::new(item).object(|key, value| {
            match key {
                b"type" => kind = unquoted(value.raw()?),
                b"name" => name = unquoted(value.raw()?),
                b"container_id" => container = value.non_null()?,
                b"action" => value.object(|key, value| {
                    match key {
                        b"type" => action = value.non_null()?.map(unquoted),
                        _ => value.skip()?,
                    }
                    Some(())
                })?,
                _ => value.skip()?,
            }
            Some(())
        });
        let made = &mut self.made;
        match kind {
            b"web_search_call" | b"x_search_call"
                if action.is_none_or(|action| action == b"search") =>
            {
                made.web_searches += 1;
            }
            b"web_search_call" | b"x_search_call" => {}
            b"file_search_call" => made.file_searches += 1,
            b"image_generation_call" => made.images += 1,
            b"mcp_call" => made.tool_calls += 1,
            b"code_interpreter_call" => self.add_container(container.unwrap_or_default()),
            // All code of a message runs in one.
            b"server_tool_use" if name.ends_with(b"code_execution") => self.add_container(b""),
            _ => {}
        }
    }

    fn add_container(&mut self, id: &[u8]) {
        let is_noted = self.containers.iter().any(|container| container == id);
        if !is_noted && self.containers.len() < CONTAINERS_MAX {
            self.containers.push(id.to_vec());
        }
    }
}

/// The searches that Google has run for an answer, by its `groundingMetadata`.
pub(super) fn count_queries(grounding: &[u8]) -> u64 {
    let mut scan = QueryScan::default();
    scan.feed(grounding);
    scan.queries
}

/// Counts the texts in each `webSearchQueries` of a JSON document while it streams past, wherever that
/// stands. It holds a key at most.
#[derive(Debug, Default)]
pub(super) struct QueryScan {
    in_string: bool,
    escaped: bool,
    /// The string that was read last, as far as a key can be.
    last: Vec<u8>,
    place: QueryPlace,
    queries: u64,
}

/// Position of a [`QueryScan`] in its document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum QueryPlace {
    #[default]
    Elsewhere,
    /// After the key and its colon.
    BehindKey,
    /// Inside of the list of queries.
    InList,
}

impl QueryScan {
    /// Usage of the calls found so far.
    fn usage(&self) -> Usage {
        Usage { web_searches: self.queries, ..Usage::ZERO }
    }

    /// Processes the next piece.
    pub(super) fn feed(&mut self, piece: &[u8]) {
        let mut at = 0;
        while let Some(&byte) = piece.get(at) {
            if !self.in_string {
                self.outside(byte);
                at += 1;
                continue;
            }
            if std::mem::take(&mut self.escaped) {
                at += 1;
                continue;
            }
            let end = plain_text_end(piece, at);
            let text = piece.get(at..end).unwrap_or_default();
            let room = KEY_BYTES_MAX.saturating_sub(self.last.len());
            self.last.extend_from_slice(text.get(..room).unwrap_or(text));
            if let Some(&special) = piece.get(end) {
                self.in_string = special != b'"';
                self.escaped = special == b'\\';
            }
            at = end + 1;
        }
    }

    fn outside(&mut self, byte: u8) {
        self.place = match (byte, self.place) {
            (b'"', place) => {
                self.in_string = true;
                self.last.clear();
                self.queries += u64::from(place == QueryPlace::InList);
                place
            }
            (b':', _) if self.last == b"webSearchQueries" => QueryPlace::BehindKey,
            (b'[', QueryPlace::BehindKey) => QueryPlace::InList,
            (b',' | b' ' | b'\t' | b'\n' | b'\r', place) => place,
            _ => QueryPlace::Elsewhere,
        };
    }
}

/// Counts the calls of server tools in a document.
#[derive(Debug)]
pub(super) enum ServerToolScan {
    /// Items of a list.
    Items(Box<ItemScan>),
    /// Searches in the web that Google ran.
    Queries(QueryScan),
}

impl ServerToolScan {
    /// Usage of the calls found so far.
    pub(super) fn usage(&self) -> Usage {
        match self {
            Self::Items(scan) => scan.usage(),
            Self::Queries(scan) => scan.usage(),
        }
    }

    /// Processes the next piece.
    pub(super) fn feed(&mut self, piece: &[u8]) {
        match self {
            Self::Items(scan) => scan.feed(piece),
            Self::Queries(scan) => scan.feed(piece),
        }
    }
}

fn unquoted(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\"")).unwrap_or(text)
}

/// Counts the items in a list at the top of a JSON document while it streams past, holding one at a time.
#[derive(Debug)]
pub(super) struct ItemScan {
    /// The key of the list.
    list: &'static [u8],
    depth: u32,
    in_string: bool,
    escaped: bool,
    in_list: bool,
    /// The string at the top that was read last.
    key: Vec<u8>,
    item: Vec<u8>,
    server_calls: ServerToolCalls,
}

impl ItemScan {
    /// For the list behind this key.
    pub(super) fn new(list: &'static str) -> Self {
        Self {
            list: list.as_bytes(),
            depth: 0,
            in_string: false,
            escaped: false,
            in_list: false,
            key: Vec::new(),
            item: Vec::new(),
            server_calls: ServerToolCalls::default(),
        }
    }

    /// Usage of the calls found so far.
    pub(super) fn usage(&self) -> Usage {
        self.server_calls.usage()
    }

    /// Processes the next piece.
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
                self.in_string = special != b'"';
                self.escaped = special == b'\\';
                if self.depth > 1 || special != b'"' {
                    self.keep(&[special]);
                }
            }
            at = end + 1;
        }
    }

    fn outside(&mut self, byte: u8) {
        match byte {
            b'"' => {
                self.in_string = true;
                if self.depth == 1 {
                    self.key.clear();
                } else {
                    self.keep(b"\"");
                }
            }
            b'{' | b'[' => {
                self.in_list |= self.depth == 1 && byte == b'[' && self.key == self.list;
                self.depth = self.depth.saturating_add(1);
                if self.depth == 3 {
                    self.item.clear();
                }
                self.keep(&[byte]);
            }
            b'}' | b']' => {
                self.keep(&[byte]);
                self.depth = self.depth.saturating_sub(1);
                if self.in_list && self.depth == 2 {
                    self.server_calls.count(&self.item);
                }
                self.in_list &= self.depth > 1;
            }
            _ => self.keep(&[byte]),
        }
    }

    fn keep(&mut self, text: &[u8]) {
        let (kept, most) = match self.depth {
            1 if self.in_string => (&mut self.key, KEY_BYTES_MAX),
            3.. if self.in_list => (&mut self.item, ITEM_BYTES_MAX),
            _ => return,
        };
        let room = most.saturating_sub(kept.len());
        kept.extend_from_slice(text.get(..room).unwrap_or(text));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ANSWER: &str = r#"{"id":"output","output":[{"type":"reasoning","summary":[]},
        {"id":"ws_1","type":"web_search_call","action":{"type":"search","query":"\"type\":\"x\""}},
        {"type":"web_search_call","action":{"url":"u","type":"open_page"}},{"type":"web_search_call"},
        {"type":"file_search_call","results":null},{"type":"code_interpreter_call","container_id":"c1"},
        {"type":"code_interpreter_call","container_id":"c1"},{"container_id":"c2","type":"code_interpreter_call"},
        {"type":"message","content":[{"text":"{\"type\":\"web_search_call\"}","type":"output_text"}]},
        {"type":"mcp_call"},{"type":"function_call"},{"type":"image_generation_call","result":"AAAA"}],
        "x":{"output":[{"type":"mcp_call"}]},"tools":[{"type":"mcp_call"}]}"#;

    #[test]
    fn items_are_counted_as_they_are_billed() {
        let expected = Usage {
            web_searches: 2,
            file_searches: 1,
            container_sessions: 2,
            tool_calls: 1,
            images: 1,
            ..Usage::ZERO
        };
        let mut scan = ItemScan::new("output");
        scan.feed(ANSWER.as_bytes());
        assert_eq!(scan.usage(), expected);
        let mut scan = ItemScan::new("content");
        scan.feed(
            br#"{"content":[{"type":"server_tool_use","name":"bash_code_execution","input":{}},
            {"type":"server_tool_use","name":"code_execution"},{"type":"server_tool_use","name":"web_search"}]}"#,
        );
        assert_eq!(scan.usage(), Usage { container_sessions: 1, ..Usage::ZERO });
    }

    #[test]
    fn queries_are_counted_wherever_they_stand_and_however_they_are_cut() {
        let answer = r#"{"candidates":[{"content":{"parts":[{"text":"\"webSearchQueries\":[\"x\"]"}]},
            "groundingMetadata":{"webSearchQueries" : [ "a", "b\"]", "c" ], "other":["d"]}},
            {"groundingMetadata":{"webSearchQueries":[]}}]}"#;
        for cut in 0..answer.len() {
            let mut scan = QueryScan::default();
            scan.feed(&answer.as_bytes()[..cut]);
            scan.feed(&answer.as_bytes()[cut..]);
            assert_eq!(scan.usage().web_searches, 3, "{cut}");
        }
        assert_eq!(count_queries(br#"{"webSearchQueries":["a"]}"#), 1);
    }

    #[test]
    fn an_item_that_is_too_long_is_recognized_by_its_beginning() {
        let results = "x".repeat(2 * ITEM_BYTES_MAX);
        let answer =
            format!(r#"{{"output":[{{"type":"file_search_call","results":"{results}"}}]}}"#);
        let mut scan = ItemScan::new("output");
        scan.feed(answer.as_bytes());
        assert_eq!(scan.usage().file_searches, 1);
    }

    proptest! {
        #[test]
        fn items_are_counted_however_an_answer_is_cut(
            cuts in prop::collection::vec(0..ANSWER.len(), 0..6),
        ) {
            let mut whole = ItemScan::new("output");
            whole.feed(ANSWER.as_bytes());
            let mut cuts = cuts;
            cuts.extend([0, ANSWER.len()]);
            cuts.sort_unstable();
            let mut scan = ItemScan::new("output");
            for pair in cuts.windows(2) {
                scan.feed(&ANSWER.as_bytes()[pair[0]..pair[1]]);
            }
            prop_assert_eq!(scan.usage(), whole.usage());
        }
    }
}
