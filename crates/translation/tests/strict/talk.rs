//! Conversations as agents lead them, in the words of no dialect: rich, and odd in the ways of which
//! public reports tell.

use fastrand::Rng;
use serde_json::{Value, json};

/// The first bytes of a picture in each format, in base64.
pub(crate) const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ";
const JPEG: &str = "/9j/4AAQSkZJRgABAQEAYABgAAD/2wBDAAgGBgcGBQgH";
const GIF: &str = "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAAB";
const WEBP: &str = "UklGRiQAAABXRUJQVlA4IBgAAAAwAQCdASoBAAEAAwA0";
/// The beginning of a PDF file in base64.
const PDF: &str = "JVBERi0xLjQKJcOkw7zDtsOfCjIgMCBvYmoK";

/// One conversation, with its tools and settings.
pub(crate) struct Talk {
    pub(crate) system: Vec<String>,
    pub(crate) turns: Vec<TalkTurn>,
    pub(crate) tools: Vec<ToolDef>,
    pub(crate) choice: Choice,
    pub(crate) is_single: bool,
    pub(crate) output_max: Option<u64>,
    pub(crate) stops: Vec<&'static str>,
    pub(crate) temperature: Option<f64>,
    pub(crate) top_p: Option<f64>,
    pub(crate) effort: Option<&'static str>,
    pub(crate) budget: Option<u64>,
    pub(crate) format: TalkFormat,
    pub(crate) user: Option<String>,
    pub(crate) streams: bool,
}

pub(crate) enum TalkTurn {
    /// An instruction in the middle.
    System(String),
    User(Vec<UserContent>),
    Assistant(AssistantTurn),
    /// Results of calls, and the user's content behind them.
    Results(Vec<ResultDef>, Vec<UserContent>),
}

#[derive(Default)]
pub(crate) struct AssistantTurn {
    pub(crate) thought: Option<Thought>,
    pub(crate) texts: Vec<String>,
    pub(crate) calls: Vec<CallDef>,
    /// It repeats citations, searches and the like of an earlier answer.
    pub(crate) echoes: bool,
}

#[derive(Clone)]
pub(crate) enum UserContent {
    Text(String),
    Picture { media_type: &'static str, data: &'static str },
    PictureUrl(&'static str),
    Document { media_type: &'static str, data: &'static str, name: Option<&'static str> },
}

pub(crate) struct Thought {
    pub(crate) text: String,
    /// A token that only its maker reads: bare in the customer's own dialect, else wrapped.
    pub(crate) seal: Option<String>,
    pub(crate) is_hidden: bool,
}

#[derive(Clone)]
pub(crate) struct CallDef {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) input: Value,
}

pub(crate) struct ResultDef {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) content: Vec<UserContent>,
    pub(crate) is_error: bool,
}

pub(crate) struct ToolDef {
    pub(crate) name: String,
    pub(crate) description: Option<&'static str>,
    pub(crate) schema: Option<Value>,
    pub(crate) is_strict: Option<bool>,
}

pub(crate) enum Choice {
    Unset,
    Auto,
    None,
    Any,
    Named(String),
}

pub(crate) enum TalkFormat {
    Text,
    Json,
    Schema(Value, bool),
}

/// A client whose habits a conversation follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Customer {
    Chat,
    Messages,
    Responses,
    Gemini,
}

impl Customer {
    pub(crate) const ALL: [Self; 4] = [Self::Chat, Self::Messages, Self::Responses, Self::Gemini];
}

fn chance(rng: &mut Rng, one_in: u32) -> bool {
    rng.u32(0..one_in) == 0
}

fn pick<T: Copy>(rng: &mut Rng, all: &[T]) -> T {
    all[rng.usize(0..all.len())]
}

fn text(rng: &mut Rng) -> String {
    const ODD: [&str; 8] = [
        "",
        " ",
        "\n\n",
        "\t",
        "Ends in blanks \n",
        "漢字 é \u{1f600}",
        "\"\\{}\u{0}",
        "{\"a\":1}",
    ];
    if chance(rng, 8) {
        return pick(rng, &ODD).to_owned();
    }
    const WORDS: [&str; 10] = [
        "Please",
        "read",
        "the file",
        "and",
        "run the tests.",
        "Then",
        "answer as JSON",
        "with a plan.",
        "Thanks!",
        "`code`",
    ];
    let count = rng.usize(1..6);
    let words: Vec<&str> = (0..count).map(|_| pick(rng, &WORDS)).collect();
    words.join(" ")
}

fn picture(rng: &mut Rng) -> UserContent {
    match rng.u32(0..30) {
        0 => UserContent::PictureUrl("https://example.com/a.png"),
        1 => UserContent::Picture { media_type: "image/jpeg", data: JPEG },
        2 => UserContent::Picture { media_type: "image/gif", data: GIF },
        3 => UserContent::Picture { media_type: "image/webp", data: WEBP },
        // Agents guess the type by the name of the file.
        4 => UserContent::Picture { media_type: "image/jpeg", data: PNG },
        5 => UserContent::Picture { media_type: "image/jpg", data: JPEG },
        _ => UserContent::Picture { media_type: "image/png", data: PNG },
    }
}

fn document(rng: &mut Rng) -> UserContent {
    let name = pick(
        rng,
        &[None, Some("report.pdf"), Some("Q3 (final).pdf"), Some("日本.pdf"), Some("a/b.pdf")],
    );
    match rng.u32(0..6) {
        0 => UserContent::Document { media_type: "text/plain", data: "SGVsbG8gdGhlcmU=", name },
        _ => UserContent::Document { media_type: "application/pdf", data: PDF, name },
    }
}

fn user_content(rng: &mut Rng) -> Vec<UserContent> {
    let count = rng.usize(1..4);
    let mut all: Vec<UserContent> = (0..count)
        .map(|_| match rng.u32(0..12) {
            0 => picture(rng),
            1 => document(rng),
            _ => UserContent::Text(text(rng)),
        })
        .collect();
    if chance(rng, 20) {
        all = vec![document(rng)];
    }
    all
}

fn tool_name(rng: &mut Rng, customer: Customer) -> String {
    const PLAIN: [&str; 8] = [
        "read_file",
        "shell",
        "Bash",
        "apply-patch",
        "web_search",
        "mcp__github__list_issues",
        "f",
        "Task",
    ];
    match (rng.u32(0..16), customer) {
        (0, Customer::Messages) => format!(
            "mcp__{}__{}",
            "server_with_a_long_name".repeat(2),
            "a_tool_with_a_long_name_too".repeat(2)
        ),
        (0, _) => format!("mcp__{}__list_pull_requests", "enterprise_server".repeat(3)),
        (1, _) => format!("mcp__{}", "a".repeat(59)),
        (2, Customer::Gemini) => "fs.read:v2".to_owned(),
        (3, Customer::Chat) => "fs.read".to_owned(),
        (4, Customer::Gemini) => "_private".to_owned(),
        (5, _) => "7zip".to_owned(),
        _ => pick(rng, &PLAIN).to_owned(),
    }
}

/// An id of a call, as the customer's own provider makes it or as others did before.
fn call_id(rng: &mut Rng, customer: Customer, number: usize) -> String {
    let own = match customer {
        Customer::Messages => format!("toolu_01A09q90qw90lq9178{number:04}"),
        Customer::Chat => format!("call_{number:04}abcdefghijklmnopqrst"),
        Customer::Responses => format!("call_{number:04}ABCDEFGHIJKLMNOPQRST"),
        Customer::Gemini => format!("{number:04}xyz"),
    };
    match rng.u32(0..20) {
        0 => format!("functions.read_file:{number}"),
        1 => format!("chatcmpl-tool-{number:04}{}", "0123456789abcdef".repeat(2)),
        2 => format!("fc_{number:04}{}|call_{}", "0".repeat(24), "1".repeat(40)),
        3 => format!("tooluse_{number:04}-{}", "Kz".repeat(9)),
        4 => format!("call {number}/é"),
        5 => "call_0".to_owned(),
        6 => format!("D681PevK{}", number % 10),
        _ => own,
    }
}

fn input(rng: &mut Rng) -> Value {
    match rng.u32(0..4) {
        0 => json!({}),
        1 => json!({"path": "/tmp/a b", "lines": [1, 2], "deep": {"a": null}}),
        _ => json!({"command": text(rng)}),
    }
}

fn schema(rng: &mut Rng) -> Value {
    let constrained = json!({"type": "object", "properties": {
        "count": {"type": "integer", "minimum": 1, "maximum": 10, "default": 3},
        "name": {"type": "string", "minLength": 1, "maxLength": 9, "pattern": "^a"},
        "kind": {"enum": ["a", "b"]},
        "list": {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 3},
        "one": {"anyOf": [{"type": "string", "format": "uri"}, {"type": "null"}]}},
        "required": ["name"]});
    match rng.u32(0..14) {
        0 => json!({}),
        1 => json!({"type": "object"}),
        2 => json!({"properties": {"a": {"type": "string"}}}),
        3 => {
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {}, "additionalProperties": false})
        }
        4 => json!({"type": "object", "properties": {"a": {"type": "array"}}}),
        5 => {
            json!({"type": "object", "properties": {"a": {"type": ["string", "null"]}}, "required": ["a"], "additionalProperties": false})
        }
        6 => {
            json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/X"}}, "$defs": {"X": {"type": "object", "properties": {"y": {"type": "number", "exclusiveMinimum": 0}}}}})
        }
        7 => {
            json!({"type": "object", "properties": {"a": {"oneOf": [{"type": "string"}, {"type": "object", "properties": {"b": {"type": "integer"}}}]}}})
        }
        8 | 9 => constrained,
        10 => {
            json!({"type": "object", "properties": {"path": {"description": "Any", "title": "Path"}}, "title": "Args"})
        }
        _ => {
            json!({"type": "object", "properties": {"command": {"type": "string", "description": "What to run"}}, "required": ["command"]})
        }
    }
}

fn tools(rng: &mut Rng, customer: Customer) -> Vec<ToolDef> {
    if chance(rng, 4) {
        return Vec::new();
    }
    let count = rng.usize(1..5);
    let mut names: Vec<String> = Vec::new();
    for _ in 0..count {
        let name = tool_name(rng, customer);
        // Two tools of one name come from two servers; rarely, as most agents see to it.
        if !names.contains(&name) || chance(rng, 8) {
            names.push(name);
        }
    }
    let mut make = |name| ToolDef {
        name,
        description: pick(rng, &[None, Some(""), Some("What it does."), Some("Runs a command.")]),
        schema: (!chance(rng, 8)).then(|| schema(rng)),
        is_strict: pick(rng, &[None, None, None, Some(true), Some(false)]),
    };
    names.into_iter().map(&mut make).collect()
}

/// A seal of the customer's own maker, raw, or of another, wrapped; or none.
fn seal(rng: &mut Rng, customer: Customer) -> Option<String> {
    const ITEM: &str =
        r#"tg1.r.{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAAAABo"}"#;
    let own = match customer {
        Customer::Messages => "EqQBCgIYAhIM1gbcDa9GJwZA2b3h",
        Customer::Responses => "gAAAAABoZW5jcnlwdGVk",
        Customer::Gemini => "CpkBAVSoXO4wqZ2yc3JzaWduZWQ=",
        Customer::Chat => return None,
    };
    match rng.u32(0..9) {
        0 => None,
        1 => Some("tg1.m.EqQBCgIYAhIM1gbcDa9GJwZA2b3h".to_owned()),
        2 => Some(ITEM.to_owned()),
        3 => Some("tg1.g.CpkBAVSoXO4wqZ2yc3JzaWduZWQ=".to_owned()),
        4 => Some("tg1.b.c2lnbmF0dXJl".to_owned()),
        5 => Some("tg1.c.think:\"\"".to_owned()),
        _ => Some(own.to_owned()),
    }
}

fn thought(rng: &mut Rng, customer: Customer) -> Thought {
    Thought { text: text(rng), seal: seal(rng, customer), is_hidden: chance(rng, 6) }
}

fn assistant(
    rng: &mut Rng,
    customer: Customer,
    tools: &[ToolDef],
    number: &mut usize,
) -> AssistantTurn {
    let mut turn = AssistantTurn { echoes: chance(rng, 10), ..AssistantTurn::default() };
    turn.thought = chance(rng, 3).then(|| thought(rng, customer));
    if !chance(rng, 3) {
        turn.texts = (0..rng.usize(1..3)).map(|_| text(rng)).collect();
    }
    if chance(rng, 2) {
        for _ in 0..rng.usize(1..4) {
            *number += 1;
            let offered = tools.get(rng.usize(0..tools.len() + 1)).map(|tool| tool.name.clone());
            // A tool of an earlier request may be gone.
            let name = offered.unwrap_or_else(|| "gone_tool".to_owned());
            turn.calls.push(CallDef {
                id: call_id(rng, customer, *number),
                name,
                input: input(rng),
            });
        }
    }
    if turn.texts.is_empty() && turn.calls.is_empty() && !chance(rng, 10) {
        turn.texts.push("Done.".to_owned());
    }
    turn
}

fn results(rng: &mut Rng, calls: &[CallDef]) -> Vec<ResultDef> {
    let make = |call: &CallDef| ResultDef {
        id: call.id.clone(),
        name: call.name.clone(),
        content: match rng.u32(0..10) {
            0 => Vec::new(),
            1 => vec![UserContent::Text(String::new())],
            2 => vec![UserContent::Text("See:".to_owned()), picture(rng)],
            3 => vec![picture(rng)],
            4 => vec![UserContent::Text(text(rng)), UserContent::Text(text(rng))],
            _ => vec![UserContent::Text(text(rng))],
        },
        is_error: chance(rng, 8),
    };
    let mut all: Vec<ResultDef> = calls.iter().map(make).collect();
    if chance(rng, 6) {
        all.reverse();
    }
    all
}

fn turns(rng: &mut Rng, customer: Customer, tools: &[ToolDef]) -> Vec<TalkTurn> {
    let (mut turns, mut number) = (Vec::new(), 0);
    if !chance(rng, 30) {
        turns.push(TalkTurn::User(user_content(rng)));
    }
    for _ in 0..rng.usize(0..5) {
        if chance(rng, 8) {
            turns.push(TalkTurn::System(text(rng)));
        }
        let turn = assistant(rng, customer, tools, &mut number);
        let calls = turn.calls.clone();
        turns.push(TalkTurn::Assistant(turn));
        // An interrupted turn leaves a call, or its thought, alone.
        let is_interrupted = chance(rng, 40);
        if !calls.is_empty() && !is_interrupted {
            let behind = if chance(rng, 3) { user_content(rng) } else { Vec::new() };
            turns.push(TalkTurn::Results(results(rng, &calls), behind));
            if chance(rng, 2) {
                continue;
            }
        }
        if calls.is_empty() || is_interrupted || chance(rng, 3) {
            turns.push(TalkTurn::User(user_content(rng)));
        }
    }
    // Most conversations end with the user; some ask to go on.
    let ends_with_assistant = matches!(turns.last(), None | Some(TalkTurn::Assistant(_)));
    if ends_with_assistant && !chance(rng, 30) {
        turns.push(TalkTurn::User(user_content(rng)));
    }
    turns
}

impl Talk {
    pub(crate) fn new(rng: &mut Rng, customer: Customer) -> Self {
        let tools = tools(rng, customer);
        let choice = match rng.u32(0..24) {
            0 => Choice::Auto,
            1 => Choice::None,
            2 => Choice::Any,
            3 if !tools.is_empty() => Choice::Named(tools[0].name.clone()),
            4 => Choice::Auto,
            _ => Choice::Unset,
        };
        let format = match rng.u32(0..64) {
            0 => TalkFormat::Json,
            1..=8 => TalkFormat::Schema(schema(rng), rng.bool()),
            _ => TalkFormat::Text,
        };
        Self {
            system: (0..rng.usize(0..3)).map(|_| text(rng)).collect(),
            turns: turns(rng, customer, &tools),
            tools,
            choice,
            is_single: chance(rng, 12),
            output_max: pick(rng, &[None, Some(1), Some(16), Some(1000), Some(4096), Some(32_000)]),
            stops: pick(
                rng,
                &[
                    &[][..],
                    &[],
                    &[],
                    &["END"],
                    &["", "END"],
                    &["\n"],
                    &["a", "b", "c", "d"],
                    &[" ", "\n\nHuman:"],
                ],
            )
            .to_vec(),
            temperature: pick(rng, &[None, None, Some(0.0), Some(0.7), Some(1.0), Some(1.5)]),
            top_p: pick(rng, &[None, None, None, Some(0.95), Some(0.5), Some(1.0)]),
            effort: pick(
                rng,
                &[
                    None,
                    None,
                    Some("none"),
                    Some("minimal"),
                    Some("low"),
                    Some("medium"),
                    Some("high"),
                    Some("xhigh"),
                    Some("max"),
                ],
            ),
            budget: pick(rng, &[None, None, Some(1024), Some(8000), Some(31_999)]),
            format,
            user: pick(rng, &[None, Some("u".to_owned()), Some("user_".repeat(20))].each_ref())
                .clone(),
            streams: rng.bool(),
        }
    }
}
