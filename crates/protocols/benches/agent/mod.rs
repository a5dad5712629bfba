//! Requests of coding agents, made by a generator: the same conversation as Claude Code, Codex, opencode and
//! Gemini CLI would send it.
//!
//! Some 30 tools with nested schemas, a long system prompt and 40 calls of tools with their results, which are
//! code with its quotes, tabs and line ends: 105 to 120 KB. With a screenshot, a picture of 1 MiB stands in the
//! last result. A seed decides the words, so the bytes are the same in each run and on each machine. Needs
//! nothing but `serde_json`, which quotes the strings: other benchmarks include this file by its path.

use std::fmt::Write as _;

/// Number of tools that a request defines.
const TOOLS: usize = 30;
/// Number of calls of tools, each with its result.
const TURNS: usize = 40;
/// Bytes of a screenshot as base64: a picture of 768 KiB.
const PICTURE_LETTERS: usize = 1024 * 1024;
/// Head of a PNG of 1,600 by 1,000 pixels, as base64.
const PICTURE_HEAD: &str = "iVBORw0KGgoAAAANSUhEUgAABkAAAAPoCAYAAACmdr3z";

/// Protocol in which an agent speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgentDialect {
    /// Chat completions, as opencode sends them.
    Chat,
    /// Messages, as Claude Code sends them.
    Messages,
    /// Responses, as Codex sends them.
    Responses,
    /// `generateContent`, as Gemini CLI sends it.
    Gemini,
}

/// A request of an agent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AgentRequest {
    pub(crate) dialect: AgentDialect,
    /// The name of the model; Gemini's stands in the path.
    pub(crate) model: &'static str,
    /// True if the answer is requested as events; Gemini's says so in the path.
    pub(crate) is_streamed: bool,
    /// True if the last result is a screenshot of 1 MiB.
    pub(crate) has_picture: bool,
    pub(crate) seed: u64,
}

impl AgentRequest {
    /// The body of the request.
    #[must_use]
    pub(crate) fn body(&self) -> String {
        let mut words = Words(self.seed);
        let system = system_prompt(&mut words);
        let tools: Vec<AgentTool> = (0..TOOLS).map(|at| AgentTool::new(at, &mut words)).collect();
        let turns: Vec<AgentTurn> = (0..TURNS).map(|at| AgentTurn::new(at, &mut words)).collect();
        let picture = self.has_picture.then(|| picture(&mut words));
        let parts = AgentParts { system, tools, turns, picture };
        match self.dialect {
            AgentDialect::Chat => parts.chat(self),
            AgentDialect::Messages => parts.messages(self),
            AgentDialect::Responses => parts.responses(self),
            AgentDialect::Gemini => parts.gemini(),
        }
    }
}

/// What an agent has to say, in no dialect yet.
struct AgentParts {
    system: String,
    tools: Vec<AgentTool>,
    turns: Vec<AgentTurn>,
    /// Base64 of a screenshot.
    picture: Option<String>,
}

struct AgentTool {
    name: String,
    description: String,
    /// A JSON schema, as its text.
    schema: String,
}

struct AgentTurn {
    /// Text before the call.
    text: String,
    id: String,
    name: String,
    /// Arguments of the call, as the text of an object.
    arguments: String,
    /// Output of the tool.
    result: String,
    /// Reasoning that only the provider can read.
    sealed: String,
}

const QUESTION: &str =
    "Find out why `cargo test` hangs in \"relay::late_answer\", fix it, and add a test.";

impl AgentParts {
    fn chat(&self, request: &AgentRequest) -> String {
        let mut body = String::from("{\"model\":");
        push_text(&mut body, request.model);
        body.push_str(",\"max_tokens\":16000,\"temperature\":0.55,\"messages\":[{\"role\":\"system\",\"content\":");
        push_text(&mut body, &self.system);
        body.push_str("},{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":");
        push_text(&mut body, QUESTION);
        body.push_str("}]}");
        for turn in &self.turns {
            body.push_str(",{\"role\":\"assistant\",\"content\":");
            push_text(&mut body, &turn.text);
            let _written = write!(
                body,
                ",\"tool_calls\":[{{\"id\":\"call_{}\",\"type\":\"function\",",
                turn.id
            );
            let _written = write!(body, "\"function\":{{\"name\":\"{}\",\"arguments\":", turn.name);
            push_text(&mut body, &turn.arguments);
            let _written = write!(
                body,
                "}}}}]}},{{\"role\":\"tool\",\"tool_call_id\":\"call_{}\",\"content\":",
                turn.id
            );
            push_text(&mut body, &turn.result);
            body.push('}');
        }
        if let Some(picture) = &self.picture {
            body.push_str(",{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:image/png;base64,");
            body.push_str(picture);
            body.push_str("\"}}]}");
        }
        body.push_str("],\"tools\":[");
        self.push_tools(&mut body, "{\"type\":\"function\",\"function\":{", "parameters", "}}");
        let _written =
            write!(body, "],\"tool_choice\":\"auto\",\"stream\":{}", request.is_streamed);
        if request.is_streamed {
            body.push_str(",\"stream_options\":{\"include_usage\":true}");
        }
        body + "}"
    }

    fn messages(&self, request: &AgentRequest) -> String {
        const MARK: &str = ",\"cache_control\":{\"type\":\"ephemeral\"}";
        let mut body = String::from("{\"model\":");
        push_text(&mut body, request.model);
        body.push_str(
            ",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":",
        );
        push_text(&mut body, QUESTION);
        body.push_str("}]}");
        let last = self.turns.len() - 1;
        for (at, turn) in self.turns.iter().enumerate() {
            body.push_str(",{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":");
            push_text(&mut body, &turn.text);
            let _written = write!(
                body,
                "}},{{\"type\":\"tool_use\",\"id\":\"toolu_{}\",\"name\":\"{}\",\"input\":{}}}]}},",
                turn.id, turn.name, turn.arguments
            );
            let _written = write!(
                body,
                "{{\"role\":\"user\",\"content\":[{{\"tool_use_id\":\"toolu_{}\",\"type\":\"tool_result\",\"content\":",
                turn.id
            );
            match self.picture.as_ref().filter(|_| at == last) {
                Some(picture) => {
                    let _written = write!(
                        body,
                        "[{{\"type\":\"image\",\"source\":{{\"type\":\"base64\",\"media_type\":\"image/png\",\"data\":\"{picture}\"}}}}]"
                    );
                }
                None => push_text(&mut body, &turn.result),
            }
            let _written = write!(body, "{}}}]}}", if at + 2 > last { MARK } else { "" });
        }
        body.push_str("],\"system\":[{\"type\":\"text\",\"text\":\"You are a coding agent.\"},{\"type\":\"text\",\"text\":");
        push_text(&mut body, &self.system);
        let _written = write!(body, "{MARK}}}],\"tools\":[");
        self.push_tools(&mut body, "{", "input_schema", "}");
        body.push_str("],\"metadata\":{\"user_id\":\"user_5f1c2e_account__session_0b7c\"},\"max_tokens\":16000,");
        let _written = write!(
            body,
            "\"thinking\":{{\"type\":\"enabled\",\"budget_tokens\":8000}},\"stream\":{}}}",
            request.is_streamed
        );
        body
    }

    fn responses(&self, request: &AgentRequest) -> String {
        let mut body = String::from("{\"model\":");
        push_text(&mut body, request.model);
        body.push_str(",\"instructions\":");
        push_text(&mut body, &self.system);
        body.push_str(",\"input\":[{\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":");
        push_text(&mut body, QUESTION);
        body.push_str("}]}");
        let last = self.turns.len() - 1;
        for (at, turn) in self.turns.iter().enumerate() {
            let _written = write!(
                body,
                ",{{\"type\":\"reasoning\",\"summary\":[],\"content\":null,\"encrypted_content\":\"{}\"}}",
                turn.sealed
            );
            body.push_str(",{\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":");
            push_text(&mut body, &turn.text);
            let _written = write!(
                body,
                "}}]}},{{\"type\":\"function_call\",\"name\":\"{}\",\"arguments\":",
                turn.name
            );
            push_text(&mut body, &turn.arguments);
            let _written = write!(
                body,
                ",\"call_id\":\"call_{0}\"}},{{\"type\":\"function_call_output\",\"call_id\":\"call_{0}\",\"output\":",
                turn.id
            );
            match self.picture.as_ref().filter(|_| at == last) {
                Some(picture) => {
                    let _written = write!(
                        body,
                        "[{{\"type\":\"input_image\",\"image_url\":\"data:image/png;base64,{picture}\"}}]"
                    );
                }
                None => push_text(&mut body, &turn.result),
            }
            body.push('}');
        }
        body.push_str("],\"tools\":[");
        self.push_tools(&mut body, "{\"type\":\"function\",\"strict\":false,", "parameters", "}");
        body.push_str("],\"tool_choice\":\"auto\",\"parallel_tool_calls\":false,\"reasoning\":{\"effort\":\"medium\",\"summary\":\"auto\"},");
        let _written = write!(
            body,
            "\"store\":false,\"stream\":{},\"include\":[\"reasoning.encrypted_content\"],\"prompt_cache_key\":\"0199c2f0-1b7a-7d21\"}}",
            request.is_streamed
        );
        body
    }

    fn gemini(&self) -> String {
        let mut body = String::from("{\"contents\":[{\"role\":\"user\",\"parts\":[{\"text\":");
        push_text(&mut body, QUESTION);
        body.push_str("}]}");
        for turn in &self.turns {
            body.push_str(",{\"role\":\"model\",\"parts\":[{\"text\":");
            push_text(&mut body, &turn.text);
            let _written = write!(
                body,
                "}},{{\"functionCall\":{{\"name\":\"{}\",\"args\":{}}}}}]}},",
                turn.name, turn.arguments
            );
            let _written = write!(
                body,
                "{{\"role\":\"user\",\"parts\":[{{\"functionResponse\":{{\"id\":\"{}\",\"name\":\"{}\",\"response\":{{\"output\":",
                turn.id, turn.name
            );
            push_text(&mut body, &turn.result);
            body.push_str("}}}]}");
        }
        if let Some(picture) = &self.picture {
            let _written = write!(
                body,
                ",{{\"role\":\"user\",\"parts\":[{{\"inlineData\":{{\"mimeType\":\"image/png\",\"data\":\"{picture}\"}}}}]}}"
            );
        }
        body.push_str("],\"systemInstruction\":{\"role\":\"user\",\"parts\":[{\"text\":");
        push_text(&mut body, &self.system);
        body.push_str("}]},\"tools\":[{\"functionDeclarations\":[");
        self.push_tools(&mut body, "{", "parametersJsonSchema", "}");
        body.push_str(
            "]}],\"generationConfig\":{\"temperature\":0,\"topP\":1,\"maxOutputTokens\":16000}}",
        );
        body
    }

    /// Adds the tools, each between `start` and `end`, with its schema behind the key `schema`.
    fn push_tools(&self, body: &mut String, start: &str, schema: &str, end: &str) {
        for (at, tool) in self.tools.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let _written =
                write!(body, "{comma}{start}\"name\":\"{}\",\"description\":", tool.name);
            push_text(body, &tool.description);
            let _written = write!(body, ",\"{schema}\":{}{end}", tool.schema);
        }
    }
}

impl AgentTool {
    fn new(at: usize, words: &mut Words) -> Self {
        let lines = 3 + words.below(5);
        let description: Vec<String> = (0..lines).map(|_| words.sentence(9, 14)).collect();
        let mut schema = String::from(
            "{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"type\":\"object\",\"properties\":{",
        );
        let properties = 3 + words.below(3);
        for property in 0..properties {
            let comma = if property == 0 { "" } else { "," };
            let (name, about) = (words.word(), words.sentence(6, 12));
            let _written =
                write!(schema, "{comma}\"{name}_{property}\":{{\"description\":\"{about}\",");
            schema.push_str(match property % 3 {
                0 => "\"type\":\"string\"}",
                1 => "\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\",\"description\":\"The absolute path\"},\"line\":{\"type\":\"integer\",\"minimum\":0},\"state\":{\"type\":\"string\",\"enum\":[\"pending\",\"in_progress\",\"completed\"]}},\"required\":[\"path\",\"state\"],\"additionalProperties\":false}}",
                _ => "\"anyOf\":[{\"type\":\"number\",\"exclusiveMinimum\":0},{\"type\":\"null\"}],\"default\":120000}",
            });
        }
        schema.push_str("},\"required\":[],\"additionalProperties\":false}");
        Self { name: format!("{}_{at}", words.word()), description: description.join("\n"), schema }
    }
}

impl AgentTurn {
    fn new(at: usize, words: &mut Words) -> Self {
        let mut arguments = String::from("{\"file_path\":\"/home/me/src/relay/");
        let _written = write!(
            arguments,
            "{}.rs\",\"offset\":{},\"limit\":200,\"why\":",
            words.word(),
            40 * at
        );
        push_text(&mut arguments, &words.code_line(1));
        arguments.push('}');
        let first = words.below(400);
        let lines = 12 + words.below(9);
        let mut result = String::new();
        for line in first..first + lines {
            // The arrow is how Claude Code numbers lines: three bytes that no ASCII path takes.
            let _written = writeln!(result, "{line:>6}→{}", words.code_line(line % 4));
        }
        Self {
            text: words.sentence(12, 30),
            id: format!("{at:02}{:016x}", words.next()),
            name: format!("{}_{}", words.word(), at % TOOLS),
            arguments,
            result,
            sealed: words.base64(160),
        }
    }
}

fn system_prompt(words: &mut Words) -> String {
    let mut system = String::from("You are a coding agent.\n\n# Tone and style\n");
    for section in 0..6 {
        let _written = write!(system, "\n## {}\n", words.sentence(3, 5));
        for _ in 0..14 {
            let _written = writeln!(
                system,
                "- {} Use `{}` for \"{}\".",
                words.sentence(10, 18),
                words.word(),
                section
            );
        }
    }
    system
}

fn picture(words: &mut Words) -> String {
    let mut picture = String::with_capacity(PICTURE_LETTERS);
    picture.push_str(PICTURE_HEAD);
    picture.push_str(&words.base64(PICTURE_LETTERS - PICTURE_HEAD.len()));
    picture
}

fn push_text(body: &mut String, text: &str) {
    body.push_str(&serde_json::Value::from(text).to_string());
}

/// Words by chance: SplitMix64, from its seed.
struct Words(u64);

impl Words {
    const ALL: [&'static str; 40] = [
        "relay",
        "answer",
        "stream",
        "buffer",
        "ledger",
        "account",
        "settle",
        "timeout",
        "upstream",
        "the",
        "a",
        "of",
        "when",
        "must",
        "never",
        "file",
        "path",
        "search",
        "pattern",
        "result",
        "before",
        "after",
        "which",
        "command",
        "directory",
        "output",
        "with",
        "without",
        "only",
        "read",
        "write",
        "edit",
        "list",
        "absolute",
        "content",
        "lines",
        "match",
        "and",
        "or",
        "glob",
    ];

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap_or(0)
    }

    fn word(&mut self) -> &'static str {
        Self::ALL[self.below(Self::ALL.len())]
    }

    /// Between `least` and `most` words.
    fn sentence(&mut self, least: usize, most: usize) -> String {
        let count = least + self.below(most - least + 1);
        let words: Vec<&str> = (0..count).map(|_| self.word()).collect();
        words.join(" ") + "."
    }

    fn code_line(&mut self, depth: usize) -> String {
        let (one, other) = (self.word(), self.word());
        let indent = "\t".repeat(depth);
        match self.below(5) {
            0 => format!(
                "{indent}let {one}_{other} = map.get(\"{one}\").copied().unwrap_or_default();"
            ),
            1 => format!(
                "{indent}if {one}.len() > {} {{ return Err(\"{other}\\n\".into()); }}",
                self.below(4096)
            ),
            2 => format!("{indent}// {}", self.sentence(5, 9)),
            3 => format!("{indent}assert_eq!({one}.{other}(), Some(&b\"{one}\\t{other}\"[..]));"),
            _ => format!("{indent}}}"),
        }
    }

    fn base64(&mut self, letters: usize) -> String {
        const LETTERS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut text = String::with_capacity(letters + 10);
        while text.len() < letters {
            let mut bits = self.next();
            for _ in 0..10 {
                text.push(char::from(LETTERS[(bits & 63) as usize]));
                bits >>= 6;
            }
        }
        text.truncate(letters);
        text
    }
}
