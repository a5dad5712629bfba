//! Answers of upstreams of each dialect, with their own peculiarities.

use serde_json::{Value, json};

/// Numbers that follow from a seed.
pub(super) struct SeededNumbers(pub(super) u64);

impl SeededNumbers {
    /// SplitMix64, by Sebastiano Vigna.
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// A count: often none, often small, now and then as large as no prompt is.
    pub(super) fn count(&mut self) -> u64 {
        match self.below(8) {
            0 | 1 => 0,
            2 | 3 => self.below(10),
            4..=6 => self.below(200_000),
            _ => self.below(1 << 36),
        }
    }

    /// A count, or nothing at all.
    pub(super) fn maybe(&mut self) -> Option<u64> {
        (self.below(3) > 0).then(|| self.count())
    }

    pub(super) fn is(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }
}

/// Writes some counts as imitators do: as floats, or as strings.
pub(super) fn bent(usage: Value, chance: &mut SeededNumbers) -> Value {
    let Value::Object(mut members) = usage else { return usage };
    for value in members.values_mut() {
        if let Some(number) = value.as_u64().filter(|number| *number < 1 << 40) {
            match chance.below(24) {
                0 => *value = json!(number.to_string()),
                1 => *value = serde_json::from_str(&format!("{number}.0")).expect("a number"),
                _ => {}
            }
        }
    }
    Value::Object(members)
}

/// Members that are there, of these.
pub(super) fn present(members: &[(&str, Option<u64>)]) -> Value {
    let given = members.iter().filter_map(|(key, count)| Some((*key, (*count)?)));
    given
        .map(|(key, count)| (key.to_owned(), json!(count)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

pub(super) fn chat_usage(chance: &mut SeededNumbers) -> Value {
    let (prompt, completion) = (chance.count().max(1), chance.count().max(1));
    let mut usage = json!({
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "prompt_tokens_details": present(&[
            ("cached_tokens", chance.maybe()),
            ("cache_write_tokens", chance.maybe()),
            ("audio_tokens", chance.maybe()),
            ("video_tokens", chance.maybe()),
        ]),
        "completion_tokens_details": present(&[
            // More than the output where an imitator counts it beside.
            ("reasoning_tokens", chance.maybe()),
            ("audio_tokens", chance.maybe()),
        ]),
    });
    if chance.is(3) {
        usage["total_tokens"] =
            json!(prompt.saturating_add(completion).saturating_add(chance.count()));
    }
    match chance.below(10) {
        0 => usage["prompt_cache_hit_tokens"] = json!(chance.count()),
        1 => usage["num_sources_used"] = json!(chance.below(30)),
        2 => usage["plugins"] = json!({"search": {"count": chance.below(5)}}),
        3 => {
            usage["prompt_tokens_details"] = Value::Null;
            usage["completion_tokens_details"] = Value::Null;
        }
        4 => {
            usage["prompt_tokens_details"] = json!({"cached_tokens": chance.count(), "cache_creation_input_tokens": chance.count()});
        }
        _ => {}
    }
    bent(usage, chance)
}

pub(super) fn messages_usage(chance: &mut SeededNumbers) -> Value {
    let mut usage = present(&[
        ("input_tokens", Some(chance.count().max(1))),
        ("output_tokens", Some(chance.count().max(1))),
        ("cache_read_input_tokens", chance.maybe()),
        ("cache_creation_input_tokens", chance.maybe()),
    ]);
    if chance.is(2) {
        usage["cache_creation"] = json!({
            "ephemeral_5m_input_tokens": chance.count(),
            "ephemeral_1h_input_tokens": chance.count(),
        });
    }
    if chance.is(8) {
        usage["server_tool_use"] = json!({"web_search_requests": chance.below(9)});
    }
    bent(usage, chance)
}

pub(super) fn responses_usage(chance: &mut SeededNumbers) -> Value {
    let (input, output) = (chance.count().max(1), chance.count().max(1));
    let mut usage = json!({
        "input_tokens": input,
        "output_tokens": output,
        "input_tokens_details": present(&[
            ("cached_tokens", chance.maybe()),
            ("cache_write_tokens", chance.maybe()),
        ]),
        "output_tokens_details": present(&[("reasoning_tokens", chance.maybe())]),
    });
    if chance.is(3) {
        usage["total_tokens"] = json!(input.saturating_add(output).saturating_add(chance.count()));
    }
    bent(usage, chance)
}

pub(super) fn chat_document(usage: &Value) -> String {
    let message = json!({"role": "assistant", "content": "Hi"});
    json!({"id": "c", "object": "chat.completion", "usage": usage,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
    .to_string()
}

pub(super) fn messages_document(usage: &Value) -> String {
    json!({"id": "m", "type": "message", "role": "assistant", "usage": usage,
        "content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn"})
    .to_string()
}

pub(super) fn responses_document(usage: &Value) -> String {
    let content = json!([{"type": "output_text", "text": "Hi"}]);
    json!({"id": "r", "object": "response", "status": "completed", "usage": usage,
        "output": [{"type": "message", "role": "assistant", "content": content}]})
    .to_string()
}

/// Events with only data, as chat completions have them.
fn unnamed(events: &[Value]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

/// Events with their names, by their types.
fn named(events: &[Value]) -> String {
    let write = |event: &Value| {
        format!("event: {}\ndata: {event}\n\n", event["type"].as_str().expect("a type"))
    };
    events.iter().map(write).collect()
}

fn chunk(delta: Value, finish: Value) -> Value {
    json!({"id": "c", "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
}

pub(super) fn chat_stream(usage: &Value) -> String {
    let mut text = unnamed(&[
        chunk(json!({"role": "assistant", "content": "Hi"}), Value::Null),
        chunk(json!({}), json!("stop")),
        json!({"id": "c", "choices": [], "usage": usage}),
    ]);
    text.push_str("data: [DONE]\n\n");
    text
}

pub(super) fn messages_stream(usage: &Value) -> String {
    let mut begun = usage.clone();
    begun["output_tokens"] = json!(1);
    named(&[
        json!({"type": "message_start", "message": {"id": "m", "usage": begun}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage}),
        json!({"type": "message_stop"}),
    ])
}

pub(super) fn responses_stream(usage: &Value) -> String {
    let message = json!({"type": "message", "id": "msg_1", "role": "assistant", "content": []});
    named(&[
        json!({"type": "response.created", "response": {"id": "r", "usage": null}}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": message}),
        json!({"type": "response.output_text.delta", "output_index": 0, "delta": "Hi"}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": message}),
        json!({"type": "response.completed", "response": {"id": "r", "status": "completed", "usage": usage}}),
    ])
}

/// Thoughts, a text with what is awkward in events, two calls, and what was used.
pub(super) fn rich_chat_stream() -> String {
    let call = |index: usize, function: Value| json!({"tool_calls": [{"index": index, "function": function}]});
    let begin = |index: usize, id: &str, name: &str| {
        json!({"tool_calls": [{"index": index, "id": id, "type": "function",
            "function": {"name": name, "arguments": ""}}]})
    };
    let mut text = unnamed(&[
        chunk(json!({"role": "assistant", "content": ""}), Value::Null),
        chunk(json!({"reasoning_content": "Let me "}), Value::Null),
        chunk(json!({"reasoning_content": "see. 漢\n\n"}), Value::Null),
    ]);
    text.push_str(": keep-alive\n\n");
    text += &unnamed(&[
        chunk(json!({"content": "data: \"é\" "}), Value::Null),
        chunk(json!({"content": "\u{1f600}\r\n\r\n[DONE]"}), Value::Null),
        chunk(begin(0, "call_a", "weather"), Value::Null),
        chunk(call(0, json!({"arguments": "{\"city\":\"Zü"})), Value::Null),
        chunk(call(0, json!({"arguments": "rich\"}"})), Value::Null),
        chunk(begin(1, "call_b", "time"), Value::Null),
        chunk(call(1, json!({"arguments": "{}"})), Value::Null),
        chunk(json!({}), json!("tool_calls")),
        json!({"id": "c", "choices": [], "usage": {"prompt_tokens": 90, "completion_tokens": 40,
            "prompt_tokens_details": {"cached_tokens": 64},
            "completion_tokens_details": {"reasoning_tokens": 9}}}),
    ]);
    text.push_str("data: [DONE]\n\n");
    text
}

pub(super) fn rich_messages_stream() -> String {
    let start = |index: usize, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let delta = |index: usize, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let stop = |index: usize| json!({"type": "content_block_stop", "index": index});
    let json_delta = |text: &str| json!({"type": "input_json_delta", "partial_json": text});
    named(&[
        json!({"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 26,
            "cache_read_input_tokens": 64, "cache_creation_input_tokens": 30,
            "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20},
            "output_tokens": 1}}}),
        json!({"type": "ping"}),
        start(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
        delta(0, json!({"type": "thinking_delta", "thinking": "Let me see. 漢\n\n"})),
        delta(0, json!({"type": "signature_delta", "signature": "c2ln"})),
        stop(0),
        start(1, json!({"type": "redacted_thinking", "data": "cmVk"})),
        stop(1),
        start(2, json!({"type": "text", "text": ""})),
        delta(2, json!({"type": "text_delta", "text": "data: \"é\" \u{1f600}\r\n\r\n"})),
        stop(2),
        start(3, json!({"type": "tool_use", "id": "toolu_a", "name": "weather", "input": {}})),
        delta(3, json_delta("{\"city\":\"Zü")),
        delta(3, json_delta("rich\"}")),
        stop(3),
        start(4, json!({"type": "tool_use", "id": "toolu_b", "name": "time", "input": {}})),
        delta(4, json_delta("")),
        stop(4),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 40}}),
        json!({"type": "message_stop"}),
    ])
}

pub(super) fn rich_responses_stream() -> String {
    let item = |kind: &str, place: usize, item: Value| json!({"type": format!("response.output_item.{kind}"), "output_index": place, "item": item});
    let delta = |kind: &str, place: usize, text: &str| json!({"type": format!("response.{kind}.delta"), "output_index": place, "delta": text});
    let thought = json!({"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Let me see. 漢\n\n"}], "encrypted_content": "gAAA"});
    let begun = json!({"type": "reasoning", "id": "rs_1", "summary": []});
    let message = json!({"type": "message", "id": "msg_1", "role": "assistant", "content": []});
    let call = |id: &str, name: &str, input: &str| json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": id, "name": name, "arguments": input});
    named(&[
        json!({"type": "response.created", "response": {"id": "r", "status": "in_progress"}}),
        json!({"type": "response.in_progress", "response": {"id": "r", "status": "in_progress"}}),
        item("added", 0, begun),
        delta("reasoning_summary_text", 0, "Let me see. 漢\n\n"),
        item("done", 0, thought),
        item("added", 1, message.clone()),
        delta("output_text", 1, "data: \"é\" "),
        delta("output_text", 1, "\u{1f600}\r\n\r\n"),
        item("done", 1, message),
        item("added", 2, call("call_a", "weather", "")),
        delta("function_call_arguments", 2, "{\"city\":\"Zü"),
        delta("function_call_arguments", 2, "rich\"}"),
        item("done", 2, call("call_a", "weather", "{\"city\":\"Zürich\"}")),
        item("added", 3, call("call_b", "time", "")),
        item("done", 3, call("call_b", "time", "{}")),
        json!({"type": "response.completed", "response": {"id": "r", "status": "completed", "usage": {
            "input_tokens": 90, "input_tokens_details": {"cached_tokens": 64},
            "output_tokens": 40, "output_tokens_details": {"reasoning_tokens": 9}}}}),
    ])
}

/// Tokens by what they are, in Google's words; some lists are left out.
fn modalities(chance: &mut SeededNumbers) -> Value {
    if chance.is(3) {
        return Value::Null;
    }
    let mut all = Vec::new();
    for modality in ["TEXT", "AUDIO", "IMAGE", "VIDEO"] {
        if let Some(count) = chance.maybe() {
            all.push(json!({"modality": modality, "tokenCount": count}));
        }
    }
    json!(all)
}

pub(super) fn gemini_usage(chance: &mut SeededNumbers) -> Value {
    let mut usage = present(&[
        ("promptTokenCount", Some(chance.count().max(1))),
        ("candidatesTokenCount", Some(chance.count().max(1))),
        ("thoughtsTokenCount", chance.maybe()),
        ("cachedContentTokenCount", chance.maybe()),
        ("toolUsePromptTokenCount", chance.maybe()),
    ]);
    if chance.is(2) {
        usage["totalTokenCount"] = json!(chance.count());
    }
    for key in ["promptTokensDetails", "cacheTokensDetails", "candidatesTokensDetails"] {
        usage[key] = modalities(chance);
    }
    bent(usage, chance)
}

fn candidate(parts: Value, reason: Value) -> Value {
    json!({"candidates": [{"content": {"parts": parts, "role": "model"}, "finishReason": reason,
        "index": 0}], "responseId": "r"})
}

pub(super) fn gemini_document(usage: &Value) -> String {
    let mut document = candidate(json!([{"text": "Hi"}]), json!("STOP"));
    document["usageMetadata"] = usage.clone();
    document.to_string()
}

pub(super) fn gemini_stream(usage: &Value) -> String {
    let mut last = candidate(json!([{"text": ""}]), json!("STOP"));
    last["usageMetadata"] = usage.clone();
    unnamed(&[candidate(json!([{"text": "Hi"}]), Value::Null), last])
}

pub(super) fn rich_gemini_stream() -> String {
    let chunk = |part: Value| candidate(json!([part]), Value::Null);
    let call = |name: &str, args: Value| json!({"functionCall": {"name": name, "args": args}});
    let mut signed = call("weather", json!({"city": "Zürich"}));
    signed["thoughtSignature"] = json!("c2ln");
    let mut last = candidate(json!([{"text": ""}]), json!("STOP"));
    last["usageMetadata"] = json!({"promptTokenCount": 90, "cachedContentTokenCount": 64,
        "candidatesTokenCount": 31, "thoughtsTokenCount": 9, "totalTokenCount": 130});
    let mut text = unnamed(&[
        chunk(json!({"text": ""})),
        chunk(json!({"text": "Let me ", "thought": true})),
        chunk(json!({"text": "see. 漢\n\n", "thought": true})),
    ]);
    text.push_str(": keep-alive\n\n");
    text += &unnamed(&[
        chunk(json!({"text": "data: \"é\" "})),
        chunk(json!({"text": "\u{1f600}\r\n\r\n[DONE]"})),
        chunk(signed),
        chunk(call("time", json!({}))),
        last,
    ]);
    text
}
