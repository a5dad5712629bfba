//! Only the digits of a limit change, or one field is added, however a body is spelled.

use bytes::Bytes;
use serde_json::Value as Tree;
use tollgate_translation::dialect::TranslationTarget;

use super::*;
use crate::{Dialect, ModelInPath, codec};

const MAX: u64 = 64_000;

fn limits(chat: ChatStyle) -> ModelLimits {
    ModelLimits {
        input_tokens_max: 200_000,
        output_tokens_max: MAX,
        translation: Some(TranslationTarget { chat, ..TranslationTarget::default() }),
        ..ModelLimits::default()
    }
}

fn request(operation: Operation, body: &str) -> Request<'_> {
    let object = Object::parse(body.as_bytes()).unwrap_or_else(|error| panic!("{error}: {body}"));
    match operation.names_model_in_path() {
        true => Request::JsonAt(object, ModelInPath { model: "m", streams: false }),
        false => Request::Json(object),
    }
}

fn read_with(chat: ChatStyle, operation: Operation, body: &str) -> OutputLimit {
    let limit = OutputLimit::read(operation, &request(operation, body), &limits(chat));
    limit.unwrap_or_else(|| panic!("no limit: {body}"))
}

fn lowered(operation: Operation, body: &str, tokens: u64) -> Option<String> {
    lowered_with(ChatStyle::Common, operation, body, tokens)
}

fn lowered_with(chat: ChatStyle, operation: Operation, body: &str, tokens: u64) -> Option<String> {
    let splice = read_with(chat, operation, body).lowered(tokens)?;
    let edited = splice.apply(&Bytes::copy_from_slice(body.as_bytes()));
    Some(String::from_utf8(edited.into()).expect("text"))
}

use Operation::{Chat, GenerateContent, Messages, Responses};

/// Asserts that lowering to 4,096 tokens replaces the text `from`, which stands there once, by `to`.
#[track_caller]
fn changes(operation: Operation, body: &str, from: &str, to: &str) {
    assert_eq!(body.matches(from).count(), 1, "{body}");
    assert_eq!(lowered(operation, body, 4_096).as_deref(), Some(&*body.replacen(from, to, 1)));
}

#[test]
fn chat_changes_the_digits_of_its_limit() {
    changes(
        Chat,
        "{ \"model\" : \"m\",\n\t\"max_tokens\" :\r 32000 ,\"messages\":[{\"max_tokens\":32001}]}\n",
        " 32000 ",
        " 4096 ",
    );
    changes(Chat, r#"{"max\u005ftokens":32000,"messages":[]}"#, "32000", "4096");
    changes(Chat, r#"{"messages":[],"\u006dax_completion_tokens":32000,"n":3}"#, "32000", "4096");
    // Of two limits those that are higher are lowered.
    changes(Chat, r#"{"max_tokens":100,"max_completion_tokens":32000}"#, "32000", "4096");
    changes(Chat, r#"{"max_tokens":null,"max_completion_tokens":32000}"#, "32000", "4096");
    let both = r#"{"max_tokens":5000,"max_completion_tokens":32000}"#;
    let low = r#"{"max_tokens":4096,"max_completion_tokens":4096}"#;
    assert_eq!(lowered(Chat, both, 4_096).as_deref(), Some(low));
    // What a model thinks beyond its limit is no part of it.
    let beyond = r#"{"thinking_budget":30000,"prediction":{"max_tokens":7},"max_tokens":32000}"#;
    changes(Chat, beyond, "32000", "4096");
    let limit = read_with(ChatStyle::Common, Chat, r#"{"max_tokens":9,"n":3}"#);
    assert_eq!((limit.tokens(), limit.choices()), (9, 3));
    assert!(limit.is_lowered_by(8) && !limit.is_lowered_by(9));
    assert!(limit.lowered(9).is_none() && limit.lowered(0).is_none(), "nothing lower is asked");
}

#[test]
fn chat_without_a_limit_gets_the_field_that_its_model_knows() {
    let body = "{\"messages\":[{\"role\":\"user\"}]\n}";
    for (style, field) in
        [(ChatStyle::Common, "max_tokens"), (ChatStyle::Openai, "max_completion_tokens")]
    {
        let added = format!("{{\"messages\":[{{\"role\":\"user\"}}],\"{field}\":4096\n}}");
        assert_eq!(lowered_with(style, Chat, body, 4_096).as_deref(), Some(&*added));
        let null = format!("{{\"messages\":[], \"{field}\" : null }}");
        let number = null.replace("null", "4096");
        assert_eq!(lowered_with(style, Chat, &null, 4_096).as_deref(), Some(&*number));
        assert_eq!(read_with(style, Chat, body).tokens(), MAX);
    }
    let other = r#"{"max_tokens":null}"#;
    let added = r#"{"max_tokens":null,"max_completion_tokens":4096}"#;
    assert_eq!(lowered_with(ChatStyle::Openai, Chat, other, 4_096).as_deref(), Some(added));
    assert_eq!(lowered(Chat, " { } ", 4_096).as_deref(), Some(" { \"max_tokens\":4096} "));
}

#[test]
fn messages_change_the_digits_of_their_limit_and_of_a_budget_that_is_too_large() {
    changes(
        Messages,
        "{\"max_tokens\":\t64000\n,\"metadata\":{\"max_tokens\":1}}",
        "\t64000\n",
        "\t4096\n",
    );
    changes(Messages, r#"{"messages":[]}"#, "[]", r#"[],"max_tokens":4096"#);
    let with = |max: u64, budget: &str| {
        format!(
            r#"{{"max_tokens":{max},"thinking":{{"type":"enabled","budget\u005ftokens":{budget}}}}}"#
        )
    };
    for (max, budget, tokens, expected) in [
        // A quarter is for the answer, and 1,024 tokens at least.
        (64_000, "32000", 20_000, Some("15000")),
        (64_000, "32000", 4_096, Some("3072")),
        (64_000, "32000", 2_048, Some("1024")),
        // No budget is below 1,024.
        (64_000, "32000", 2_047, None),
        (64_000, "1024", 1_500, None),
        // Where enough is left, it stays, and so does one that was too large before.
        (64_000, "2000", 4_096, Some("2000")),
        (64_000, "64000", 4_096, Some("64000")),
        (8_000, "16000", 4_096, Some("16000")),
        // The answer gets no more than it had.
        (10_000, "9900", 8_000, Some("7900")),
        (64_000, "null", 4_096, Some("null")),
    ] {
        let expected = expected.map(|budget| with(tokens, budget));
        assert_eq!(lowered(Messages, &with(max, budget), tokens), expected, "{budget} of {max}");
    }
}

#[test]
fn responses_change_the_digits_of_their_limit() {
    changes(Responses, "{\"input\":\"hi\" , \"max_output_tokens\":32000}", "32000", "4096");
    changes(
        Responses,
        r#"{"input":[{"max_output_tokens":5}],"stream":true }"#,
        "true",
        r#"true,"max_output_tokens":4096"#,
    );
    changes(Responses, r#"{"max_output_tokens": null}"#, "null", "4096");
    assert_eq!(lowered(Responses, "{}", 15), None, "OpenAI takes none below 16");
}

#[test]
fn gemini_changes_the_digits_of_its_limit_in_either_spelling() {
    for (body, from, to) in [
        (r#"{"contents":[],"generationConfig":{"maxOutputTokens": 32000 }}"#, "32000", "4096"),
        (r#"{"generation_config": {"max_output_tokens":32000},"contents":[]}"#, "32000", "4096"),
        (r#"{"generationConfig" : null}"#, "null", r#"{"maxOutputTokens":4096}"#),
        (r#"{"generationConfig":{"maxOutputTokens":null}}"#, "null", "4096"),
        (r#"{"generationConfig":{ }}"#, "{ }", r#"{ "maxOutputTokens":4096}"#),
        (r#"{"generation_config":{"topP":1},"contents":[]}"#, "1", r#"1,"maxOutputTokens":4096"#),
        (
            r#"{"contents":[{"maxOutputTokens":9}] }"#,
            "] ",
            r#"],"generationConfig":{"maxOutputTokens":4096} "#,
        ),
    ] {
        changes(GenerateContent, body, from, to);
    }
    let with = |max: u64, budget: &str| {
        format!(
            r#"{{"generationConfig":{{"thinkingConfig":{{"thinking_budget":{budget}}},"candidateCount":2,"maxOutputTokens":{max}}}}}"#
        )
    };
    for (budget, expected) in [
        ("24576", Some("3072")),
        ("-1", Some("-1")),
        ("0", Some("0")),
        ("512", Some("512")),
        ("70000", Some("70000")),
    ] {
        let expected = expected.map(|budget| with(4_096, budget));
        assert_eq!(lowered(GenerateContent, &with(32_000, budget), 4_096), expected, "{budget}");
    }
    assert_eq!(lowered(GenerateContent, &with(32_000, "24576"), 1_200), None, "too little is left");
    let limit = read_with(ChatStyle::Common, GenerateContent, &with(32_000, "0"));
    assert_eq!((limit.tokens(), limit.choices()), (32_000, 2));
}

/// Such numbers are refused by the codecs before anybody could lower them.
#[test]
fn numbers_that_are_no_plain_integers_are_refused_and_not_lowered() {
    for number in ["32000.0", "3.2e4", "-5", "\"32000\"", "1e999999"] {
        for (operation, body) in [
            (Chat, format!(r#"{{"messages":[{{}}],"max_tokens":{number}}}"#)),
            (Messages, format!(r#"{{"messages":[{{}}],"max_tokens":{number}}}"#)),
            (Responses, format!(r#"{{"input":"hi","max_output_tokens":{number}}}"#)),
            (
                GenerateContent,
                format!(r#"{{"contents":[],"generationConfig":{{"maxOutputTokens":{number}}}}}"#),
            ),
        ] {
            let Ok(object) = Object::parse(body.as_bytes()) else { continue };
            drop(object);
            let request = request(operation, &body);
            let limits = limits(ChatStyle::Common);
            assert!(native(operation).read(&request, &limits).is_err(), "{body}");
            assert!(OutputLimit::read(operation, &request, &limits).is_none(), "{body}");
        }
    }
    let limits = limits(ChatStyle::Common);
    let others = Operation::ALL.iter().filter(|operation| {
        OutputLimit::read(**operation, &request(Operation::Embeddings, "{}"), &limits).is_some()
    });
    assert_eq!(others.collect::<Vec<_>>(), [&Chat, &Messages, &Responses, &GenerateContent]);
}

fn native(operation: Operation) -> &'static dyn crate::Codec {
    let dialects = [Dialect::Openai, Dialect::Anthropic, Dialect::Gemini];
    dialects.iter().find_map(|dialect| codec(operation, *dialect)).expect("a codec")
}

/// Numbers that follow from a seed: SplitMix64, by Sebastiano Vigna.
struct SeededNumbers(u64);

impl SeededNumbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % end
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[usize::try_from(self.below(from.len() as u64)).expect("a place")]
    }

    fn blank(&mut self) -> &'static str {
        self.pick(&["", "", "", " ", "\n", "\r\n\t", "  "])
    }

    /// A key, with one of its letters escaped now and then.
    fn key(&mut self, key: &str) -> String {
        let at = self.below(3 * key.len() as u64);
        let letters = key.chars().zip(0..).map(|(letter, place)| match place == at {
            true => format!("\\u{:04x}", u32::from(letter)),
            false => letter.to_string(),
        });
        format!("\"{}\"", letters.collect::<String>())
    }

    /// An object of these members in any order, with white space anywhere.
    fn object(&mut self, mut members: Vec<(&str, String)>) -> String {
        let mut written = Vec::new();
        while !members.is_empty() {
            let at = usize::try_from(self.below(members.len() as u64)).expect("a place");
            let (key, value) = members.swap_remove(at);
            let [a, b, c, d] = [(); 4].map(|()| self.blank());
            written.push(format!("{a}{}{b}:{c}{value}{d}", self.key(key)));
        }
        let inner = if written.is_empty() { self.blank().to_owned() } else { written.join(",") };
        format!("{{{inner}}}")
    }

    /// A number that is a limit, `null`, or nothing.
    fn limit(&mut self) -> Option<String> {
        match self.below(5) {
            0 => None,
            1 => Some("null".to_owned()),
            _ => Some((1 + self.below(MAX)).to_string()),
        }
    }

    fn body(&mut self, operation: Operation) -> String {
        let decoy =
            r#"{"max_tokens":7,"max_output_tokens":8,"generationConfig":{"maxOutputTokens":9}}"#;
        let text = self.pick(&["hi", "Gr\\u00fc\\u00dfe \\\"max_tokens\\\":5", "日本 {\\n}"]);
        let mut members: Vec<(&str, String)> = Vec::new();
        let budget = [1_024, 2_000, 9_000, 30_000, 60_000, 64_000]
            [usize::try_from(self.below(6)).expect("a place")];
        match operation {
            Chat => {
                members.push(("model", "\"m\"".to_owned()));
                members.push(("messages", format!(r#"[{{"role":"user","content":"{text}"}}]"#)));
                members.push(("metadata", decoy.to_owned()));
                members.extend(self.limit().map(|limit| ("max_tokens", limit)));
                members.extend(self.limit().map(|limit| ("max_completion_tokens", limit)));
                if self.below(3) == 0 {
                    members.push(("n", (1 + self.below(4)).to_string()));
                }
            }
            Messages => {
                members.push(("model", "\"m\"".to_owned()));
                members.push(("messages", format!(r#"[{{"role":"user","content":"{text}"}}]"#)));
                members.extend(self.limit().map(|limit| ("max_tokens", limit)));
                if self.below(2) == 0 {
                    let thinking = vec![
                        ("type", "\"enabled\"".to_owned()),
                        ("budget_tokens", budget.to_string()),
                    ];
                    let thinking = self.object(thinking);
                    members.push(("thinking", thinking));
                }
            }
            Responses => {
                members.push(("model", "\"m\"".to_owned()));
                members.push(("input", format!("\"{text}\"")));
                members.push(("metadata", decoy.to_owned()));
                members.extend(self.limit().map(|limit| ("max_output_tokens", limit)));
            }
            _ => {
                members.push(("contents", format!(r#"[{{"parts":[{{"text":"{text}"}}]}}]"#)));
                let mut config: Vec<(&str, String)> = Vec::new();
                let key = self.pick(&["maxOutputTokens", "max_output_tokens"]);
                config.extend(self.limit().map(|limit| (key, limit)));
                if self.below(2) == 0 {
                    config.push(("temperature", "1.0e0".to_owned()));
                    config.push(("candidateCount", (1 + self.below(8)).to_string()));
                    config.push(("thinkingConfig", format!("{{\"thinkingBudget\":{budget}}}")));
                }
                let key = self.pick(&["generationConfig", "generation_config"]);
                match self.below(4) {
                    0 => {}
                    1 => members.push((key, "null".to_owned())),
                    _ => {
                        let config = self.object(config);
                        members.push((key, config));
                    }
                }
            }
        }
        let (before, object, after) = (self.blank(), self.object(members), self.blank());
        format!("{before}{object}{after}")
    }
}

/// The runs of digits in a text, and what stands between them.
fn split(text: &str) -> (Vec<String>, Vec<String>) {
    let (mut runs, mut rest) = (vec![String::new()], vec![String::new()]);
    let mut was_digit = false;
    for letter in text.chars() {
        let is_digit = letter.is_ascii_digit();
        if was_digit && !is_digit {
            rest.push(String::new());
        } else if is_digit && !was_digit {
            runs.push(String::new());
        }
        let all = if is_digit { &mut runs } else { &mut rest };
        all.last_mut().expect("one").push(letter);
        was_digit = is_digit;
    }
    (runs, rest)
}

/// The numbers of a document that may change, which are taken out of it.
fn take_numbers(operation: Operation, tree: &mut Tree) -> Vec<Option<Tree>> {
    let paths: &[&[&str]] = match operation {
        Chat => &[&["max_tokens"], &["max_completion_tokens"]],
        Messages => &[&["max_tokens"], &["thinking", "budget_tokens"]],
        Responses => &[&["max_output_tokens"]],
        _ => &[
            &["generationConfig", "maxOutputTokens"],
            &["generationConfig", "max_output_tokens"],
            &["generationConfig", "thinkingConfig", "thinkingBudget"],
            &["generation_config", "maxOutputTokens"],
            &["generation_config", "max_output_tokens"],
            &["generation_config", "thinkingConfig", "thinkingBudget"],
        ],
    };
    let taken = paths.iter().map(|path| {
        let (last, above) = path.split_last().expect("a name");
        let object = above.iter().try_fold(&mut *tree, |tree, name| tree.get_mut(*name))?;
        object.as_object_mut()?.remove(*last)
    });
    let taken = taken.collect();
    for name in ["generationConfig", "generation_config"] {
        let is_empty = |config: &Tree| config.is_null() || config == &serde_json::json!({});
        if tree.get(name).is_some_and(is_empty) {
            tree.as_object_mut().expect("an object").remove(name);
        }
    }
    taken
}

fn check(operation: Operation, style: ChatStyle, chance: &mut SeededNumbers) -> bool {
    let body = chance.body(operation);
    let before = read_with(style, operation, &body);
    let tokens = 1 + chance.below(MAX);
    let Some(edited) = lowered_with(style, operation, &body, tokens) else {
        let can_be_too_low = operation == Messages && tokens < 2_048
            || operation == GenerateContent && tokens < 1_536
            || operation == Responses && tokens < 16;
        assert!(tokens >= before.tokens() || can_be_too_low, "not lowered to {tokens}: {body}");
        return false;
    };
    let what = format!("to {tokens}:\n{body}\n{edited}");
    // It is read again, by whoever lowers it and by the codec, with exactly this limit.
    let after = read_with(style, operation, &edited);
    assert_eq!((after.tokens(), after.choices()), (tokens, before.choices()), "{what}");
    let limits = limits(style);
    let call = native(operation).read(&request(operation, &edited), &limits).expect(&what);
    assert_eq!(call.output_bound().limit, tokens, "{what}");
    assert_eq!(call.max_usage().output_tokens, tokens * before.choices(), "{what}");
    // All else has the same meaning.
    let parse = |text: &str| serde_json::from_str::<Tree>(text).expect("JSON");
    let (mut old, mut new) = (parse(&body), parse(&edited));
    take_numbers(operation, &mut old);
    take_numbers(operation, &mut new);
    assert_eq!(old, new, "{what}");
    // And the same bytes.
    let budgets = &before.budgets;
    match &before.place {
        LimitPlace::Numbers(_) => {
            let ((old, old_rest), (new, new_rest)) = (split(&body), split(&edited));
            assert_eq!(old_rest, new_rest, "{what}");
            let changed = old.iter().zip(&new).filter(|(old, new)| old != new).count();
            assert!((1..=2).contains(&changed) && old.len() == new.len(), "{what}");
        }
        LimitPlace::Nowhere { at, before, after } => {
            let inserted = format!("{before}{tokens}{after}").len();
            // A budget before it may have lost digits.
            let is_first = budgets.iter().any(|budget| budget.range.start < at.start);
            let lost = (body.len() + inserted) - (edited.len() + at.len());
            let start = if is_first { at.start - lost } else { at.start };
            let (mut rest, mut new) = (body.clone(), edited.clone());
            rest.replace_range(at.clone(), "\0");
            new.replace_range(start..start + inserted, "\0");
            let ((_, old_rest), (_, new_rest)) = (split(&rest), split(&new));
            assert_eq!(old_rest, new_rest, "{what}");
        }
    }
    true
}

#[test]
fn whatever_the_body_only_its_limit_is_lowered() {
    for operation in [Chat, Messages, Responses, GenerateContent] {
        let mut lowered = 0;
        for seed in 0..4_000 {
            let style = if seed % 2 == 0 { ChatStyle::Common } else { ChatStyle::Openai };
            let run =
                std::panic::catch_unwind(|| check(operation, style, &mut SeededNumbers(seed)));
            match run {
                Ok(is_lowered) => lowered += u32::from(is_lowered),
                Err(_) => panic!("seed {seed} of {operation}"),
            }
        }
        assert!(lowered > 1_500, "{lowered} of {operation} were lowered at all");
    }
}
