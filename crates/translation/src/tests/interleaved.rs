//! Blocks that an upstream sends side by side: the answer is the same in whatever order their pieces come.

use serde_json::{Value, json};

use super::{DIALECTS, answer_contents, frame};
use crate::dialect::UpstreamDialect;
use crate::part::AnswerPart;
use crate::{Chat, Converse, Messages, Responses};

/// Random numbers from a seed: xorshift, which is enough to shuffle.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).expect("small")
    }
}

/// A block of an answer, in pieces.
#[derive(Clone, Debug)]
enum ScriptedBlock {
    Thought(Vec<String>),
    Text(Vec<String>),
    Call { id: String, name: String, input: Vec<String> },
}

fn any_pieces(random: &mut Random) -> Vec<String> {
    let words = ["Hm", "é漢 ", "a\n\n", "\"b\" ", "{}", "data: "];
    (0..=random.below(3)).map(|_| words[random.below(words.len())].to_owned()).collect()
}

fn any_blocks(random: &mut Random) -> Vec<ScriptedBlock> {
    let mut blocks = vec![];
    if random.below(2) == 0 {
        blocks.push(ScriptedBlock::Thought(any_pieces(random)));
    }
    if random.below(4) > 0 {
        blocks.push(ScriptedBlock::Text(any_pieces(random)));
    }
    for place in 0..=random.below(3) {
        let input = match random.below(4) {
            // A call without input beside others with one.
            0 => String::new(),
            _ => json!({"q": any_pieces(random).concat(), "n": [place, {"x": "}"}]}).to_string(),
        };
        let (mut rest, mut pieces) = (input.as_str(), vec![]);
        while !rest.is_empty() {
            let mut at = 1 + random.below(rest.len());
            while !rest.is_char_boundary(at) {
                at += 1;
            }
            let (piece, more) = rest.split_at(at);
            pieces.push(piece.to_owned());
            rest = more;
        }
        let (id, name) = (format!("call_{place}"), format!("f{}", random.below(2)));
        blocks.push(ScriptedBlock::Call { id, name, input: pieces });
    }
    blocks
}

/// The events of each block, and those before and behind all, in an upstream's dialect.
struct ScriptedStream {
    begin: Vec<Value>,
    blocks: Vec<Vec<Value>>,
    end: Vec<Value>,
}

fn chat(blocks: &[ScriptedBlock]) -> ScriptedStream {
    let chunk = |delta: Value| json!({"id": "c", "choices": [{"index": 0, "delta": delta}]});
    let mut index = 0;
    let of_block = |block: &ScriptedBlock| match block {
        ScriptedBlock::Thought(pieces) => {
            pieces.iter().map(|it| chunk(json!({"reasoning_content": it}))).collect()
        }
        ScriptedBlock::Text(pieces) => {
            pieces.iter().map(|it| chunk(json!({"content": it}))).collect()
        }
        ScriptedBlock::Call { id, name, input } => {
            let call = |mut call: Value| {
                call["index"] = json!(index);
                chunk(json!({"tool_calls": [call]}))
            };
            let function = json!({"name": name, "arguments": ""});
            let mut events = vec![call(json!({"id": id, "function": function}))];
            events.extend(input.iter().map(|it| call(json!({"function": {"arguments": it}}))));
            index += 1;
            events
        }
    };
    let blocks = blocks.iter().map(of_block).collect();
    let mut end = chunk(json!({}));
    end["choices"][0]["finish_reason"] = json!("tool_calls");
    ScriptedStream {
        begin: vec![chunk(json!({"role": "assistant", "content": ""}))],
        blocks,
        end: vec![end],
    }
}

fn messages(blocks: &[ScriptedBlock]) -> ScriptedStream {
    let of_block = |(index, block): (usize, &ScriptedBlock)| {
        let start = |block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
        let delta =
            |delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
        let mut events = match block {
            ScriptedBlock::Thought(pieces) => {
                let mut events = vec![start(json!({"type": "thinking", "thinking": ""}))];
                let more = |it| delta(json!({"type": "thinking_delta", "thinking": it}));
                events.extend(pieces.iter().map(more));
                events.push(delta(json!({"type": "signature_delta", "signature": "c2ln"})));
                events
            }
            ScriptedBlock::Text(pieces) => {
                let mut events = vec![start(json!({"type": "text", "text": ""}))];
                events.extend(
                    pieces.iter().map(|it| delta(json!({"type": "text_delta", "text": it}))),
                );
                events
            }
            ScriptedBlock::Call { id, name, input } => {
                let tool = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
                let mut events = vec![start(tool)];
                let more = |it| delta(json!({"type": "input_json_delta", "partial_json": it}));
                events.extend(input.iter().map(more));
                events
            }
        };
        events.push(json!({"type": "content_block_stop", "index": index}));
        events
    };
    let stop = json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}});
    ScriptedStream {
        begin: vec![json!({"type": "message_start", "message": {"id": "m"}})],
        blocks: blocks.iter().enumerate().map(of_block).collect(),
        end: vec![stop, json!({"type": "message_stop"})],
    }
}

fn responses(blocks: &[ScriptedBlock]) -> ScriptedStream {
    let of_block = |(index, block): (usize, &ScriptedBlock)| {
        let event = |kind: &str, mut event: Value| {
            event["type"] = json!(format!("response.{kind}"));
            event["output_index"] = json!(index);
            event
        };
        let delta = |kind: &str, text: &String| {
            event(
                &format!("{kind}.delta"),
                json!({"delta": text, "content_index": 0, "summary_index": 0}),
            )
        };
        let (begun, kind, pieces, whole) = match block {
            ScriptedBlock::Thought(pieces) => {
                let summary = json!([{"type": "summary_text", "text": pieces.concat()}]);
                (
                    json!({"type": "reasoning", "summary": []}),
                    "reasoning_summary_text",
                    pieces,
                    json!({"type": "reasoning", "summary": summary, "encrypted_content": "g"}),
                )
            }
            ScriptedBlock::Text(pieces) => {
                let content = json!([{"type": "output_text", "text": pieces.concat()}]);
                (
                    json!({"type": "message", "content": []}),
                    "output_text",
                    pieces,
                    json!({"type": "message", "content": content}),
                )
            }
            ScriptedBlock::Call { id, name, input } => (
                json!({"type": "function_call", "call_id": id, "name": name, "arguments": ""}),
                "function_call_arguments",
                input,
                json!({"type": "function_call", "call_id": id, "name": name,
                    "arguments": input.concat()}),
            ),
        };
        let mut events = vec![event("output_item.added", json!({"item": begun}))];
        events.extend(pieces.iter().map(|it| delta(kind, it)));
        events.push(event("output_item.done", json!({"item": whole})));
        events
    };
    let end = json!({"type": "response.completed", "response": {"status": "completed"}});
    ScriptedStream {
        begin: vec![json!({"type": "response.created", "response": {"id": "r"}})],
        blocks: blocks.iter().enumerate().map(of_block).collect(),
        end: vec![end],
    }
}

fn converse(blocks: &[ScriptedBlock]) -> ScriptedStream {
    let event =
        |name: &str, payload: Value| json!({"kind": "event", "name": name, "payload": payload});
    let of_block = |(index, block): (usize, &ScriptedBlock)| {
        let delta = |delta: Value| {
            event("contentBlockDelta", json!({"contentBlockIndex": index, "delta": delta}))
        };
        let mut events: Vec<Value> = match block {
            ScriptedBlock::Thought(pieces) => {
                let signed = delta(json!({"reasoningContent": {"signature": "c2ln"}}));
                let thoughts =
                    pieces.iter().map(|it| delta(json!({"reasoningContent": {"text": it}})));
                thoughts.chain([signed]).collect()
            }
            ScriptedBlock::Text(pieces) => {
                pieces.iter().map(|it| delta(json!({"text": it}))).collect()
            }
            ScriptedBlock::Call { id, name, input } => {
                let tool = json!({"toolUse": {"toolUseId": id, "name": name}});
                let start = json!({"contentBlockIndex": index, "start": tool});
                let input = input.iter().map(|it| delta(json!({"toolUse": {"input": it}})));
                [event("contentBlockStart", start)].into_iter().chain(input).collect()
            }
        };
        events.push(event("contentBlockStop", json!({"contentBlockIndex": index})));
        events
    };
    ScriptedStream {
        begin: vec![event("messageStart", json!({"role": "assistant"}))],
        blocks: blocks.iter().enumerate().map(of_block).collect(),
        end: vec![event("messageStop", json!({"stopReason": "tool_use"}))],
    }
}

/// One order of the events in which each block begins behind the one before it, as upstreams number them.
fn interleaved(streamed: &ScriptedStream, random: &mut Random) -> Vec<Value> {
    let mut queues: Vec<_> = streamed.blocks.iter().map(|block| block.iter()).collect();
    let mut begun = 0;
    let mut events = streamed.begin.clone();
    while queues.iter().any(|queue| queue.len() > 0) {
        let place = random.below(queues.len().min(begun + 1));
        if let Some(event) = queues[place].next() {
            begun = begun.max(place + 1);
            events.push(event.clone());
        } else if place == begun {
            begun += 1;
        }
    }
    events.extend(streamed.end.clone());
    events
}

fn sequential(streamed: &ScriptedStream) -> Vec<Value> {
    let blocks = streamed.blocks.iter().flatten();
    streamed.begin.iter().chain(blocks).chain(&streamed.end).cloned().collect()
}

/// Reads events, and returns the parts.
pub(super) fn read(
    upstream: &dyn UpstreamDialect,
    events: &[Value],
) -> Result<Vec<AnswerPart<'static>>, String> {
    let mut reader = upstream.stream_reader();
    let mut read = Vec::new();
    for event in events {
        let keep = &mut |piece: AnswerPart<'_>| read.push(piece.into_owned());
        reader.read(event.to_string().as_bytes(), keep).map_err(|error| error.to_string())?;
    }
    reader.finish(&mut |piece| read.push(piece.into_owned()));
    assert_eq!(reader.held_bytes() / 100_000, 0, "nothing waits at the end");
    Ok(read)
}

/// A stream assembled as a customer's SDK does: text, reasoning, and calls with their inputs.
#[derive(Debug, Default, PartialEq)]
pub(super) struct StreamedAnswer {
    pub(super) text: String,
    pub(super) thoughts: String,
    pub(super) calls: Vec<(String, String, String)>,
}

/// Reads an answer as customers of the dialect at `place` of [`DIALECTS`] do, by the rules of its official
/// SDKs.
pub(super) fn read_as_customer(place: usize, answer: &[AnswerPart<'_>]) -> StreamedAnswer {
    let mut writer = DIALECTS[place].stream_writer(&frame());
    let mut events = Vec::new();
    answer.iter().for_each(|piece| writer.write(piece, &mut events));
    let text = String::from_utf8(events).expect("text");
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Value> = data.filter_map(|data| serde_json::from_str(data).ok()).collect();
    match place {
        0 => read_chat(&events),
        1 => read_messages(&events),
        2 => read_responses(&events),
        _ => read_gemini(&events),
    }
}

fn push(text: &mut String, value: &Value) {
    text.push_str(value.as_str().unwrap_or_default());
}

fn word(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

fn read_chat(events: &[Value]) -> StreamedAnswer {
    let mut read = StreamedAnswer::default();
    for event in events {
        let delta = &event["choices"][0]["delta"];
        push(&mut read.text, &delta["content"]);
        push(&mut read.thoughts, &delta["reasoning_content"]);
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let index = usize::try_from(call["index"].as_u64().expect("an index")).expect("small");
            if index == read.calls.len() {
                let begun = (word(&call["id"]), word(&call["function"]["name"]), String::new());
                read.calls.push(begun);
            }
            push(&mut read.calls[index].2, &call["function"]["arguments"]);
        }
    }
    read
}

fn read_messages(events: &[Value]) -> StreamedAnswer {
    let (mut read, mut open, mut begun) = (StreamedAnswer::default(), None, 0);
    for event in events {
        let index = event["index"].as_u64();
        match event["type"].as_str().expect("a type") {
            "content_block_start" => {
                assert_eq!((open, index), (None, Some(begun)), "one block at a time: {events:?}");
                (open, begun) = (index, begun + 1);
                let block = &event["content_block"];
                if block["type"] == "tool_use" {
                    read.calls.push((word(&block["id"]), word(&block["name"]), String::new()));
                }
            }
            "content_block_delta" => {
                assert_eq!(index, open, "of the open block: {events:?}");
                push(&mut read.text, &event["delta"]["text"]);
                push(&mut read.thoughts, &event["delta"]["thinking"]);
                if let Some(call) = read.calls.last_mut() {
                    push(&mut call.2, &event["delta"]["partial_json"]);
                }
            }
            "content_block_stop" => {
                assert_eq!(open.take(), index, "{events:?}");
            }
            _ => {}
        }
    }
    // Their SDKs take a call without pieces for one with an empty object.
    for call in &mut read.calls {
        if call.2.is_empty() {
            call.2.push_str("{}");
        }
    }
    read
}

fn read_responses(events: &[Value]) -> StreamedAnswer {
    let mut items: Vec<Value> = Vec::new();
    for event in events {
        let index = event["output_index"].as_u64().and_then(|index| usize::try_from(index).ok());
        match event["type"].as_str().expect("a type") {
            "response.output_item.added" => {
                assert_eq!(index, Some(items.len()), "{events:?}");
                items.push(json!({"said": ""}));
            }
            "response.output_text.delta"
            | "response.reasoning_summary_text.delta"
            | "response.function_call_arguments.delta" => {
                let item = &mut items[index.expect("an index")];
                item["said"] = json!(format!("{}{}", word(&item["said"]), word(&event["delta"])));
            }
            "response.output_item.done" => {
                let item = &mut items[index.expect("an index")];
                let text = word(&item["said"]);
                *item = event["item"].clone();
                item["said"] = json!(text);
            }
            _ => {}
        }
    }
    let last = &events.last().expect("an end")["response"]["output"];
    let mut read = StreamedAnswer::default();
    for (item, repeated) in items.iter().zip(last.as_array().expect("items")) {
        let text = word(&item["said"]);
        match repeated["type"].as_str().expect("a type") {
            "message" => {
                assert_eq!(repeated["content"][0]["text"], text.as_str());
                read.text += &text;
            }
            "reasoning" => read.thoughts += &text,
            _ => {
                let input = word(&repeated["arguments"]);
                assert!(text == input || text.is_empty() && input == "{}", "{item} {repeated}");
                read.calls.push((word(&repeated["call_id"]), word(&repeated["name"]), input));
            }
        }
    }
    read
}

fn read_gemini(events: &[Value]) -> StreamedAnswer {
    let mut read = StreamedAnswer::default();
    for event in events {
        let parts = event["candidates"][0]["content"]["parts"].as_array();
        for part in parts.into_iter().flatten() {
            let text = if part["thought"] == true { &mut read.thoughts } else { &mut read.text };
            push(text, &part["text"]);
            if let Some(call) = part.get("functionCall") {
                read.calls.push((word(&call["id"]), word(&call["name"]), call["args"].to_string()));
            }
        }
    }
    read
}

fn expected(blocks: &[ScriptedBlock]) -> StreamedAnswer {
    let mut read = StreamedAnswer::default();
    for block in blocks {
        match block {
            ScriptedBlock::Thought(pieces) => read.thoughts += &pieces.concat(),
            ScriptedBlock::Text(pieces) => read.text += &pieces.concat(),
            ScriptedBlock::Call { id, name, input } => {
                let input = if input.is_empty() { "{}".to_owned() } else { input.concat() };
                read.calls.push((id.clone(), name.clone(), input));
            }
        }
    }
    read
}

/// Inputs as values: dialects that have objects write them anew.
fn by_value(read: StreamedAnswer) -> (String, String, Vec<(String, String, Value)>) {
    let value = |input: &str| serde_json::from_str(input).unwrap_or_else(|_| panic!("{input}"));
    let calls = read.calls.into_iter().map(|(id, name, input)| (id, name, value(&input)));
    (read.text, read.thoughts, calls.collect())
}

#[test]
fn pieces_belong_to_their_block_in_whatever_order_they_come() {
    type Write = fn(&[ScriptedBlock]) -> ScriptedStream;
    let upstreams: [(&dyn UpstreamDialect, Write); 4] =
        [(&Chat, chat), (&Messages, messages), (&Responses, responses), (&Converse, converse)];
    for seed in 1..400_u64 {
        let random = &mut Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let blocks = any_blocks(random);
        for (upstream, write) in upstreams {
            let streamed = write(&blocks);
            let order = interleaved(&streamed, random);
            let what = format!("seed {seed}, {upstream:?}: {blocks:?}\n{order:?}");
            let answer = read(upstream, &order).unwrap_or_else(|error| panic!("{error}: {what}"));
            let plain = read(upstream, &sequential(&streamed)).expect("in order");
            if format!("{upstream:?}") != "Chat" {
                // The blocks of a chat completion have no order but that of the calls.
                assert_eq!(
                    answer_contents(answer.clone()),
                    answer_contents(plain.clone()),
                    "{what}"
                );
            }
            for (place, dialect) in DIALECTS.into_iter().enumerate() {
                let (one, other) =
                    (read_as_customer(place, &answer), read_as_customer(place, &plain));
                let expected = by_value(expected(&blocks));
                assert_eq!(by_value(one), expected, "{:?} over {what}", dialect);
                assert_eq!(by_value(other), expected, "{:?} over {what}", dialect);
            }
        }
    }
}

#[test]
fn the_open_block_is_handed_on_at_once_and_the_others_are_counted() {
    let tool = |index: u64| {
        json!({"type": "content_block_start", "index": index,
            "content_block": {"type": "tool_use", "id": "t", "name": "f", "input": {}}})
    };
    let input = |index: u64| {
        json!({"type": "content_block_delta", "index": index,
            "delta": {"type": "input_json_delta", "partial_json": "x".repeat(1000)}})
    };
    let mut reader = Messages.stream_reader();
    let mut count = 0;
    for event in [tool(0), tool(1), input(0), input(1), input(0)] {
        reader.read(event.to_string().as_bytes(), &mut |_| count += 1).expect("an event");
    }
    assert_eq!(count, 3, "the first call and its input");
    assert!((1000..2000).contains(&reader.held_bytes()), "{}", reader.held_bytes());
    let stop = json!({"type": "content_block_stop", "index": 0}).to_string();
    reader.read(stop.as_bytes(), &mut |_| count += 1).expect("an event");
    assert_eq!(count, 5, "the second call and its input");
    assert!(reader.held_bytes() < 300, "{}", reader.held_bytes());
}

/// Chunks of a chat completion whose calls are numbered, named and split in unusual ways.
#[test]
#[expect(clippy::too_many_lines, reason = "a table of streams")]
fn calls_of_chat_completions_are_found_by_what_names_them() {
    let chunk = |choice: u64, delta: Value| json!({"id": "c", "choices": [{"index": choice, "delta": delta}]});
    let call = |index: Value, id: Value, name: Value, arguments: &str| {
        json!({"tool_calls": [{"index": index, "id": id,
            "function": {"name": name, "arguments": arguments}}]})
    };
    let none = Value::Null;
    let rows: Vec<(&str, Vec<Value>)> = vec![
        (
            "in turn, by number",
            vec![
                chunk(0, call(json!(0), json!("a"), json!("f"), "")),
                chunk(0, call(json!(1), json!("b"), json!("g"), "")),
                chunk(0, call(json!(0), none.clone(), none.clone(), "{\"q\":")),
                chunk(0, call(json!(1), none.clone(), none.clone(), "{\"q\":")),
                chunk(0, call(json!(0), none.clone(), none.clone(), "1}")),
                chunk(0, call(json!(1), none.clone(), none.clone(), "2}")),
            ],
        ),
        (
            "in turn, by id, all numbered 0",
            vec![
                chunk(0, call(json!(0), json!("a"), json!("f"), "{\"q\":")),
                chunk(0, call(json!(0), json!("b"), json!("g"), "{\"q\":")),
                chunk(0, call(json!(0), json!("a"), json!("f"), "1}")),
                chunk(0, call(json!(0), json!("b"), none.clone(), "2}")),
            ],
        ),
        (
            "text between the pieces",
            vec![
                chunk(0, call(json!(0), json!("a"), json!("f"), "")),
                chunk(0, json!({"content": "\n"})),
                chunk(0, call(json!(0), none.clone(), none.clone(), "{\"q\":1}")),
                chunk(0, json!({"content": "\n"})),
                chunk(0, call(json!(1), json!("b"), json!("g"), "{\"q\":")),
                chunk(0, json!({"content": "\n"})),
                chunk(0, call(json!(1), none.clone(), none.clone(), "2}")),
            ],
        ),
        (
            "a choice for each call",
            vec![
                chunk(1, call(json!(0), json!("a"), json!("f"), "{\"q\":")),
                chunk(2, call(json!(0), json!("b"), json!("g"), "{\"q\":2}")),
                chunk(1, call(json!(0), none.clone(), none.clone(), "1}")),
            ],
        ),
        (
            "an id for each piece",
            vec![
                chunk(0, call(json!(0), json!("a"), json!("f"), "")),
                chunk(0, call(json!(0), json!("x"), none.clone(), "{\"q\":1}")),
                chunk(0, call(json!(1), json!("b"), json!("g"), "")),
                chunk(0, call(json!(1), json!("y"), none.clone(), "{\"q\":2}")),
            ],
        ),
    ];
    let expected = [("a", "f", "{\"q\":1}"), ("b", "g", "{\"q\":2}")];
    let expected =
        expected.map(|(id, name, input)| (id.to_owned(), name.to_owned(), input.to_owned()));
    for (what, mut chunks) in rows {
        for word in [json!("tool_calls"), json!("stop"), json!(""), Value::Null] {
            chunks.push(json!({"choices": [{"index": 0, "delta": {}, "finish_reason": word}]}));
            let mut reader = Chat.stream_reader();
            let mut answer = Vec::new();
            let mut keep = |piece: AnswerPart<'_>| answer.push(piece.into_owned());
            for chunk in &chunks {
                reader.read(chunk.to_string().as_bytes(), &mut keep).expect(what);
            }
            reader.read(b"[DONE]", &mut keep).expect(what);
            chunks.pop();
            assert!(
                answer.contains(&AnswerPart::Stop(crate::part::Stop::Tools)),
                "{what}: {answer:?}"
            );
            for place in 0..DIALECTS.len() {
                let read = read_as_customer(place, &answer);
                assert_eq!(
                    (read.calls.as_slice(), &*read.text),
                    (&expected[..], ""),
                    "{what} {place}"
                );
            }
        }
    }
    // Two calls without ids, all numbered 0: a name behind a whole input begins another one.
    let chunks = [
        chunk(0, call(json!(0), none.clone(), json!("f"), "{}")),
        chunk(0, call(json!(0), none.clone(), json!("f"), "{}")),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
    ];
    let answer = read(&Chat, &chunks).expect("calls");
    let calls = answer.iter().filter(|piece| matches!(piece, AnswerPart::ToolCall { .. }));
    assert_eq!(calls.count(), 2, "{answer:?}");
}

/// Items that are there as a whole, and parts of them that are open side by side.
#[test]
#[expect(clippy::too_many_lines, reason = "a table of streams")]
fn a_complete_item_supplies_pieces_that_did_not_come() {
    let event = |kind: &str, mut event: Value| {
        event["type"] = json!(format!("response.{kind}"));
        event
    };
    let completed = |output: Value| {
        event("completed", json!({"response": {"status": "completed", "output": output}}))
    };
    let call = |arguments: &str| json!({"type": "function_call", "call_id": "a", "name": "f", "arguments": arguments});
    let message = json!({"type": "message", "content": [
        {"type": "output_text", "text": "one"}, {"type": "output_text", "text": "two"}]});
    let called = vec!["ToolCall { id: \"a\", name: \"f\", seal: None }", "input {\"q\":1}"];
    let rows: Vec<(&str, Vec<Value>, Vec<&str>)> = vec![
        (
            "only the end of an item",
            vec![event("output_item.done", json!({"output_index": 0, "item": call("{\"q\":1}")}))],
            called.clone(),
        ),
        ("only the last event", vec![completed(json!([call("{\"q\":1}")]))], called.clone()),
        (
            "only the end of its input",
            vec![
                event("output_item.added", json!({"output_index": 0, "item": call("")})),
                event(
                    "function_call_arguments.done",
                    json!({"output_index": 0, "arguments": "{\"q\":1}"}),
                ),
                event("output_item.done", json!({"output_index": 0, "item": call("{\"q\":1}")})),
            ],
            called.clone(),
        ),
        (
            "the beginning in pieces",
            vec![
                event("output_item.added", json!({"output_index": 0, "item": call("")})),
                event(
                    "function_call_arguments.delta",
                    json!({"output_index": 0, "delta": "{\"q\""}),
                ),
                event("output_item.done", json!({"output_index": 0, "item": call("{\"q\":1}")})),
            ],
            called.clone(),
        ),
        (
            "a whole that is written otherwise",
            vec![
                event("output_item.added", json!({"output_index": 0, "item": call("")})),
                event(
                    "function_call_arguments.delta",
                    json!({"output_index": 0, "delta": "{\"q\":1}"}),
                ),
                event("output_item.done", json!({"output_index": 0, "item": call("{ \"q\": 1 }")})),
            ],
            called,
        ),
        (
            "texts side by side",
            vec![
                event(
                    "output_item.added",
                    json!({"output_index": 0, "item": {"type": "message", "id": "m"}}),
                ),
                event(
                    "output_text.delta",
                    json!({"item_id": "m", "content_index": 0, "delta": "o"}),
                ),
                event(
                    "output_text.delta",
                    json!({"item_id": "m", "content_index": 1, "delta": "tw"}),
                ),
                event(
                    "output_text.delta",
                    json!({"item_id": "m", "content_index": 0, "delta": "n"}),
                ),
                event("output_item.done", json!({"output_index": 0, "item": message})),
            ],
            vec!["text onetwo"],
        ),
        (
            "parts of a summary are paragraphs",
            vec![
                event(
                    "output_item.added",
                    json!({"output_index": 0, "item": {"type": "reasoning"}}),
                ),
                event(
                    "reasoning_summary_text.delta",
                    json!({"output_index": 0, "summary_index": 0, "delta": "a"}),
                ),
                event(
                    "reasoning_summary_text.delta",
                    json!({"output_index": 0, "summary_index": 1, "delta": "b"}),
                ),
            ],
            vec!["thought a\n\nb"],
        ),
    ];
    for (what, mut events, expected) in rows {
        if events.last().is_none_or(|last| last["type"] != "response.completed") {
            events.push(completed(json!([])));
        }
        let answer_parts = answer_contents(read(&Responses, &events).expect(what));
        let contents: Vec<&str> =
            answer_parts.iter().map(String::as_str).filter(|it| !it.starts_with("Stop")).collect();
        assert_eq!(contents, expected, "{what}");
    }
    let ended = [
        event("output_item.added", json!({"output_index": 0, "item": call("")})),
        event("output_item.done", json!({"output_index": 0, "item": call("{}")})),
        event("function_call_arguments.delta", json!({"output_index": 0, "delta": "1"})),
    ];
    assert!(read(&Responses, &ended).is_err(), "more of a call that has ended is a guess");
}
