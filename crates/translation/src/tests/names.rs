//! Names of tools and ids of calls that an upstream does not take, and how answers restore them.

use std::collections::HashSet;
use std::collections::hash_map::{HashMap, RandomState};
use std::hash::BuildHasher;

use super::*;
use crate::Converse;
use crate::names::{CallIds, Naming, in_namespace};

/// Codex' namespace and tool of codex 46188, which is 67 letters long with the namespace before it.
const CODEX: (&str, &str) =
    ("mcp__codex_apps__google_calendar_workspace", "list_upcoming_calendar_events");
/// A name as Claude Code makes it of a plugin, a server and a tool.
const CLAUDE_CODE: &str = "mcp__plugin_example-engineering-toolkit_atlassian-jira-confluence-cloud__getConfluencePageDescendants";

fn upstreams() -> [(&'static dyn UpstreamDialect, TranslationTarget, &'static str, usize); 6] {
    const WORD: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    const DOTTED: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    let common = TranslationTarget::default();
    let mistral = TranslationTarget { call_ids: CallIds::Nine, ..common };
    [
        (&Chat, target(), WORD, 64),
        (&Chat, mistral, WORD, 64),
        (&Responses, common, WORD, 64),
        (&Messages, common, WORD, 128),
        (&Converse, common, WORD, 64),
        (&Gemini, common, DOTTED, 64),
    ]
}

/// A generator of numbers that a seed repeats.
struct Random(u64);

impl Random {
    /// `TOLLGATE_NAMES_SEED`, or another seed each time, which a failing test shows.
    #[expect(clippy::disallowed_methods, reason = "the seed of a test is no configuration")]
    fn seeded() -> Self {
        let given = std::env::var("TOLLGATE_NAMES_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| RandomState::new().hash_one(0));
        println!("TOLLGATE_NAMES_SEED={seed}");
        Self(seed)
    }

    fn below(&mut self, limit: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % limit as u64).expect("below")
    }

    fn pick<'t>(&mut self, all: &[&'t str]) -> &'t str {
        all[self.below(all.len())]
    }

    /// A name with what is awkward in one: long, alike up to its end, with other letters, joined.
    fn name(&mut self) -> String {
        let mut name = String::new();
        for _ in 0..=self.below(4) {
            let long = "a_very_long_part_of_a_name_".repeat(self.below(4));
            let odd = ["get", "mcp__", ".", "/", " ", "é", "漢", "9", "-", "_", ":", "\u{1f}"];
            name.push_str(if self.below(3) == 0 { &long } else { self.pick(&odd) });
        }
        match self.below(4) {
            0 => in_namespace(&name, self.pick(&["a", "b__c", "read.file"])),
            1 => name + self.pick(&["__a", "__b__c", "1", "2"]),
            _ => name,
        }
    }

    fn id(&mut self) -> String {
        let long = "x".repeat(self.below(140));
        let odd =
            ["", "call_1", "call_2", "toolu_01A", "functions.read:0", "é", "a|b", "D681PevKs"];
        let id = self.pick(&odd).to_owned();
        if self.below(2) == 0 { id + &long } else { id }
    }
}

fn tool(name: &str) -> PromptPart<'static> {
    let (name, schema) =
        (Cow::Owned(name.to_owned()), Some(crate::tool_schema::EMPTY_SCHEMA.into()));
    let (description, is_strict) = (None, None);
    PromptPart::Tool(Tool { name, description, schema, is_strict, is_free: false, cache: None })
}

fn call(id: &str, name: &str) -> PromptPart<'static> {
    let (id, name) = (Cow::Owned(id.to_owned()), Cow::Owned(name.to_owned()));
    let input = "{}".into();
    PromptPart::ToolCall(ToolCall { id, name, input, is_free: false, seal: None, cache: None })
}

fn result(id: &str, output: &str) -> PromptPart<'static> {
    let content = vec![text(output.to_owned())];
    let id = Cow::Owned(id.to_owned());
    PromptPart::ToolResult(ToolResult { id, content, is_error: false, cache: None })
}

/// Tools, and turns in which they are called and answered by the number of the call.
fn conversation(random: &mut Random) -> Vec<PromptPart<'static>> {
    let names: Vec<String> = (0..=random.below(8)).map(|_| random.name()).collect();
    let mut parts: Vec<PromptPart<'static>> = names.iter().map(|name| tool(name)).collect();
    parts.push(PromptPart::ToolChoice(ToolChoice::Named(names[0].clone().into())));
    let mut count = 0;
    for _ in 0..=random.below(6) {
        parts.extend([PromptPart::Turn(Speaker::User), PromptPart::Content(text("go"))]);
        parts.push(PromptPart::Turn(Speaker::Assistant));
        let ids: Vec<String> = (0..=random.below(3)).map(|_| random.id()).collect();
        for id in &ids {
            parts.push(call(id, &names[random.below(names.len())]));
        }
        parts.push(PromptPart::Turn(Speaker::User));
        for id in &ids {
            parts.push(result(id, &count.to_string()));
            count += 1;
        }
    }
    parts
}

fn names_of(parts: &[PromptPart<'_>]) -> Vec<String> {
    let names = parts.iter().filter_map(|part| match part {
        PromptPart::Tool(tool) => Some(&tool.name),
        PromptPart::ToolChoice(ToolChoice::Named(name)) => Some(name),
        PromptPart::ToolCall(call) => Some(&call.name),
        _ => None,
    });
    names.map(|name| name.clone().into_owned()).collect()
}

/// The ids of calls, and those of results by what they say: the number of their call.
fn ids_of(parts: &[PromptPart<'_>]) -> (Vec<String>, Vec<(usize, String)>) {
    let (mut calls, mut results) = (Vec::new(), Vec::new());
    for part in parts {
        match part {
            PromptPart::ToolCall(call) => calls.push(call.id.clone().into_owned()),
            PromptPart::ToolResult(result) => {
                let ContentPart::Text(output) = &result.content[0] else { panic!("a text") };
                results
                    .push((output.text.parse().expect("a number"), result.id.clone().into_owned()));
            }
            _ => {}
        }
    }
    (calls, results)
}

fn called(name: &str) -> [AnswerPart<'static>; 5] {
    let (id, name) = ("call_1".into(), Cow::Owned(name.to_owned()));
    [
        AnswerPart::Begin { id: "up".into(), counts: Counts::default() },
        AnswerPart::ToolCall { id, name, seal: None },
        AnswerPart::Input(r#"{"a":1}"#.into()),
        AnswerPart::Stop(Stop::Tools),
        AnswerPart::End(Counts::default()),
    ]
}

#[test]
fn every_name_is_taken_differs_and_comes_back() {
    let mut random = Random::seeded();
    for _ in 0..300 {
        let parts = conversation(&mut random);
        for (upstream, target, letters, length) in upstreams() {
            let naming = upstream.naming(&target);
            let mut written = parts.clone();
            let aliases = naming.apply(&mut written);
            let (names, sent) = (names_of(&parts), names_of(&written));
            let pairs: HashMap<&String, &String> = names.iter().zip(&sent).collect();
            let distinct: HashSet<&&String> = pairs.values().collect();
            assert_eq!(distinct.len(), pairs.len(), "one name for two tools: {pairs:?}");
            for ((name, sent), original) in
                names.iter().zip(&sent).zip(names.iter().map(|it| pairs[it]))
            {
                assert_eq!(sent, original, "the same in declarations and calls: {name}");
                assert!((1..=length).contains(&sent.len()), "{upstream:?}: {sent}");
                assert!(
                    sent.chars().all(|letter| letters.contains(letter)),
                    "{upstream:?}: {sent}"
                );
                let restored = aliases.restore(called(sent)[1].clone());
                assert_eq!(restored, called(name)[1], "{upstream:?}");
            }
            let mut again = written.clone();
            assert_eq!(naming.apply(&mut again), crate::names::Aliases::default());
            assert_eq!(again, written, "what is taken stays");
        }
    }
}

#[test]
fn every_id_is_taken_differs_and_finds_its_result_again_in_every_later_turn() {
    let mut random = Random::seeded();
    for _ in 0..300 {
        let parts = conversation(&mut random);
        for (upstream, target, _, _) in upstreams() {
            let naming = upstream.naming(&target);
            let mut written = parts.clone();
            naming.apply(&mut written);
            assert!(naming.fits(&written));
            let (calls, results) = ids_of(&written);
            let distinct: HashSet<&String> = calls.iter().collect();
            assert_eq!(distinct.len(), calls.len(), "{upstream:?}: {calls:?}");
            for (number, id) in results {
                assert_eq!(id, calls[number], "{upstream:?}: the result of call {number}");
            }
            let (is_nine, most) =
                match (upstream.naming(&target) == Naming::chat(CallIds::Nine), target.chat) {
                    (true, _) => (true, 9),
                    (false, ChatStyle::Openai) => (false, 40),
                    (false, ChatStyle::Common) => (false, 64),
                };
            assert!(calls.iter().all(|id| id.len() <= most && (!is_nine || id.len() == 9)));
            // The conversation goes on with another turn.
            let mut longer = parts.clone();
            longer.extend([PromptPart::Turn(Speaker::Assistant), call("call_new", "get")]);
            naming.apply(&mut longer);
            assert_eq!(ids_of(&longer).0[..calls.len()], calls[..], "{upstream:?}");
        }
    }
}

#[test]
fn long_names_go_through_documents_and_streams_of_every_dialect() {
    let (namespace, name) = CODEX;
    let joined = in_namespace(namespace, name);
    let namespaced = crate::dialect::NamespacedTool {
        joined: joined.clone(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    for upstream in DIALECTS {
        for (original, shown) in [(joined.as_str(), name), (CLAUDE_CODE, CLAUDE_CODE)] {
            let mut parts = vec![tool(original), PromptPart::Turn(Speaker::User)];
            parts.push(PromptPart::Content(text("hi")));
            let aliases = upstream.naming(&target()).apply(&mut parts);
            let body = String::from_utf8(write(upstream, &parts)).expect("text");
            let sent = names_of(&parts).remove(0);
            assert!(body.contains(&sent) && sent.len() <= 128, "{body}");
            let document = upstream.write_answer(&called(&sent), &frame());
            let whole = upstream.read_answer(&document).expect("an answer");
            let whole: Vec<_> = whole.into_iter().map(|piece| aliases.restore(piece)).collect();
            let events = write_events(upstream, &called(&sent));
            let streamed: Vec<_> =
                read_events(upstream, &events).into_iter().map(|it| aliases.restore(it)).collect();
            for customer in DIALECTS {
                let frame = AnswerFrame { namespaced: vec![namespaced.clone()], ..frame() };
                let document = customer.write_answer(&whole, &frame);
                let mut writer = customer.stream_writer(&frame);
                let mut events = Vec::new();
                streamed.iter().for_each(|piece| writer.write(piece, &mut events));
                for written in [document, events] {
                    let written = String::from_utf8(written).expect("text");
                    let is_responses = written.contains("call_id");
                    let plain = serde_json::to_string(original).expect("JSON");
                    let expected = if is_responses { shown } else { plain.trim_matches('"') };
                    assert!(
                        written.contains(expected),
                        "{customer:?} over {upstream:?}: {written}"
                    );
                    assert!(sent == original || !written.contains(&sent), "{written}");
                }
            }
        }
    }
}

#[test]
fn aliases_are_the_same_in_every_release() {
    let mut parts = vec![tool(CLAUDE_CODE), tool("get.weather"), tool("9lives"), tool("get")];
    parts.push(tool(&in_namespace(CODEX.0, CODEX.1)));
    parts.push(tool(&in_namespace("agents", "close")));
    Naming::chat(CallIds::Any).apply(&mut parts);
    let expected = [
        "mcp__plugin_example-en_bdacjoo0_ud__getConfluencePageDescendants",
        "get_weather_napabk6b",
        "tool_9lives_axgjz9z1",
        "get",
        "mcp__codex_apps__googl_zi4r1a1y_ce_list_upcoming_calendar_events",
        "agents__close",
    ];
    assert_eq!(names_of(&parts), expected);
}

#[test]
fn what_is_taken_costs_no_copy() {
    let parts = [tool("get"), PromptPart::Turn(Speaker::Assistant), call("call_1", "get")];
    let written = Naming::RESPONSES.applied(&parts);
    assert!(matches!(written, Cow::Borrowed(_)));
}
