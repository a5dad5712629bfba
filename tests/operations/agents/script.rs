//! The session: what the scripted model does in each turn, by the tools that the agent offers.

use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tollgate::sim::{ModelRequest, ModelScript, ModelTurn, ScriptedToolCall, TurnUsage};

/// The session as a file has it.
#[derive(Clone, Debug)]
pub(crate) struct Session(Value);

/// The tools without which an agent's kit is not the one of a request.
const KINDS: [&str; 4] = ["shell", "read", "picture", "edit"];

/// A request with the usage that was reported for it.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    pub(crate) request: ModelRequest,
    pub(crate) usage: TurnUsage,
    /// True if the request is one of the session, and not one for a title or the like.
    pub(crate) in_session: bool,
}

/// A call of the script, with the text that its result must contain.
#[derive(Clone, Debug)]
pub(crate) struct ExpectedCall {
    pub(crate) call: ScriptedToolCall,
    pub(crate) shows: Vec<String>,
}

impl Session {
    pub(crate) fn load() -> Self {
        let text = include_str!("../../clients/session.json");
        Self(serde_json::from_str(text).expect("the session is JSON"))
    }

    /// The text that the user writes.
    pub(crate) fn prompt(&self) -> &str {
        self.0["prompt"].as_str().expect("a prompt")
    }

    /// The text of the last turn.
    pub(crate) fn last(&self) -> &str {
        self.0["last"].as_str().expect("a last text")
    }

    /// The number of turns.
    pub(crate) fn turns(&self) -> usize {
        self.0["turns"].as_array().expect("turns").len()
    }

    /// The files of the directory in which the agent works, before or after the session.
    pub(crate) fn files(&self, when: &str) -> Vec<(String, String)> {
        let files = self.0[when].as_object().expect("files");
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        files.iter().map(|(name, content)| (name.clone(), text(content))).collect()
    }

    /// The calls of each turn with the tools of a request; `None` where these are no agent's.
    pub(crate) fn plan(
        &self,
        request: &ModelRequest,
        work: &Path,
    ) -> Option<Vec<Vec<ExpectedCall>>> {
        let kits = self.0["kits"].as_array().expect("kits");
        let offers = |kit: &&Value| {
            KINDS
                .iter()
                .all(|kind| kit[kind]["tool"].as_str().is_some_and(|it| request.tool(it).is_some()))
        };
        let kit = kits.iter().find(offers)?;
        let turns = self.0["turns"].as_array().expect("turns");
        Some(turns.iter().map(|turn| calls(kit, work, turn)).collect())
    }

    /// A script that leads an agent through the session, and where its requests are noted.
    pub(crate) fn script(&self, work: &Path) -> (ModelScript, Arc<Mutex<Vec<Answered>>>) {
        let answered = Arc::new(Mutex::new(Vec::new()));
        let (session, work, log) = (self.clone(), work.to_owned(), Arc::clone(&answered));
        let script = ModelScript::new(move |request| {
            let plan = session.plan(request, &work);
            let in_session = plan.is_some();
            let calls = plan.map(|plan| next(plan, request.calls.len())).unwrap_or_default();
            let mut log = log.lock().expect("no poison");
            let number = u64::try_from(log.len()).expect("few requests");
            let usage =
                TurnUsage { input: 2000 + 100 * number, cached: 500, output: 60, reasoning: 20 };
            log.push(Answered { request: request.clone(), usage, in_session });
            let text = if calls.is_empty() { session.last() } else { "Next step." };
            Some(ModelTurn {
                thoughts: "Considering the next step.".to_owned(),
                text: text.to_owned(),
                calls: calls.into_iter().map(|expected| expected.call).collect(),
                usage,
            })
        });
        (script, answered)
    }
}

/// The calls of the turn behind so many calls.
fn next(plan: Vec<Vec<ExpectedCall>>, past: usize) -> Vec<ExpectedCall> {
    let mut seen = 0;
    for turn in plan {
        if seen == past {
            return turn;
        }
        seen += turn.len();
    }
    Vec::new()
}

fn calls(kit: &Value, work: &Path, turn: &Value) -> Vec<ExpectedCall> {
    let steps = turn.as_array().expect("steps");
    let path = |step: &Value, kind: &str| {
        work.join(step[kind].as_str().expect("a name")).display().to_string()
    };
    let shows = |step: &Value| step["shows"].as_str().map(str::to_owned);
    let call = |kind: &str, with: &[(&str, String)], shows: Vec<String>| ExpectedCall {
        call: ScriptedToolCall {
            name: kit[kind]["tool"].as_str().expect("a tool").to_owned(),
            input: filled(&kit[kind]["input"], with),
        },
        shows,
    };
    // An agent that calls its tools from code reads side by side within one call.
    if steps.len() == 2 && kit["reads"].is_object() {
        let with = [("first", path(&steps[0], "read")), ("second", path(&steps[1], "read"))];
        return vec![call("reads", &with, steps.iter().filter_map(shows).collect())];
    }
    let of_step = |step: &Value| {
        let kind = KINDS.into_iter().find(|kind| step[*kind].is_string()).expect("a kind");
        let text = |key: &str| step[key].as_str().unwrap_or_default().to_owned();
        let patch = format!(
            "*** Begin Patch\n*** Update File: {}\n@@\n-{}\n+{}\n*** End Patch\n",
            text("edit"),
            text("old"),
            text("new")
        );
        let with = [
            ("command", text("shell")),
            ("path", path(step, kind)),
            ("old", text("old")),
            ("new", text("new")),
            ("patch", patch),
        ];
        call(kind, &with, shows(step).into_iter().collect())
    };
    steps.iter().map(of_step).collect()
}

/// A template with `{name}` and `{name:json}` replaced.
fn filled(template: &Value, with: &[(&str, String)]) -> Value {
    match template {
        Value::String(text) => {
            let replaced = with.iter().fold(text.clone(), |text, (name, value)| {
                text.replace(&format!("{{{name}:json}}"), &json!(value).to_string())
                    .replace(&format!("{{{name}}}"), value)
            });
            json!(replaced)
        }
        Value::Object(members) => {
            let members = members.iter().map(|(key, value)| (key.clone(), filled(value, with)));
            Value::Object(members.collect())
        }
        other => other.clone(),
    }
}
