//! The README is run: the commands that the demo prints, and the YAML that it shows.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::harness::child::Running;
use crate::harness::{Demo, python};

const README: &str = include_str!("../../README.md");

/// The demo's text up to its last line.
fn welcome(data: &Path) -> (Running, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data"])
        .arg(data)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut text = String::new();
    for line in BufReader::new(child.stdout.take().expect("stdout")).lines() {
        let line = line.expect("text");
        text.push_str(&line);
        text.push('\n');
        if line.starts_with("Stop with Ctrl-C") {
            break;
        }
    }
    (Running(child), text)
}

/// The commands in the demo's text: each follows a comment and ends at an empty line.
fn commands(text: &str) -> Vec<String> {
    let paste = text.split_once("Paste into another terminal:").expect("commands to paste").1;
    let unindented: Vec<&str> =
        paste.lines().map(|line| line.strip_prefix("  ").unwrap_or(line)).collect();
    let joined = unindented.join("\n");
    let blocks = joined.split("\n\n").filter(|block| block.trim_start().starts_with('#'));
    blocks.map(str::to_owned).collect()
}

#[test]
fn the_commands_that_the_demo_prints_work_when_pasted() {
    let data = tempfile::tempdir().expect("a directory");
    let (_running, text) = welcome(data.path());
    let venv = python::environment();
    // What each command's output shows when it worked.
    let expected = ["data: [DONE]", "\"available\":\"9.99", " ", "\"name\":\"demo\""];
    let commands = commands(&text);
    assert_eq!(commands.len(), expected.len(), "the demo's commands:\n{text}");
    for (command, expected) in commands.iter().zip(expected) {
        let in_venv = format!("PATH={}:$PATH\n{command}", venv.join("bin").display());
        let output = Command::new("bash")
            .args(["-euo", "pipefail", "-c", &in_venv])
            .output()
            .expect("bash runs");
        let printed = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command}\n{printed}{errors}");
        assert!(printed.contains(expected), "{command}\nexpected {expected:?} in:\n{printed}");
        assert!(!printed.contains("\"error\""), "{command}\n{printed}");
    }
}

#[test]
fn the_readme_shows_the_two_commands() {
    for command in ["\ncargo run --release -- demo\n", "\ncargo test\n"] {
        assert!(README.contains(command), "{command:?} is not in the README");
    }
}

/// The README shows what the demo prints, but for its secrets.
#[test]
fn the_readme_shows_what_the_demo_prints() {
    let data = tempfile::tempdir().expect("a directory");
    let (_running, text) = welcome(data.path());
    let word_behind = |mark: &str| {
        let rest = text.split_once(mark).unwrap_or_else(|| panic!("no {mark:?} in:\n{text}")).1;
        rest.split([' ', '\n', ')']).next().unwrap_or_default().to_owned()
    };
    let (base, admin) = (word_behind("base URL     http://"), word_behind("admin API    http://"));
    let shown = text
        .replace(&word_behind("API key      "), "sk-…")
        .replace(&word_behind("(token "), "…")
        .replace(base.trim_end_matches("/v1"), "127.0.0.1:8080")
        .replace(&admin, "127.0.0.1:9090");
    assert!(README.contains(&format!("```text\n{shown}```\n")), "the README lacks:\n{shown}");
}

/// The README shows what `tollgate check` says of the pair in `tests/readme/`.
#[test]
fn the_readme_shows_what_check_prints() {
    let output = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .arg("check")
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/readme"))
        .env_remove("OPENAI_KEY")
        .output()
        .expect("the binary runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(README.contains(&format!("```text\n{text}```\n")), "the README lacks:\n{text}");
}

/// One address, and what SDKs want of it.
#[test]
fn the_demo_says_the_same_to_people_and_programs() {
    let data = tempfile::tempdir().expect("a directory");
    let (_running, ready, _) = crate::harness::spawn_demo(data.path(), &[]);
    let base = ready["base_url"].as_str().expect("an address");
    assert_eq!(ready["openai_base_url"], format!("{base}/v1"), "{ready}");
    assert_eq!(ready["anthropic_base_url"], base, "{ready}");
    let data = tempfile::tempdir().expect("a directory");
    let (_running, text) = welcome(data.path());
    let line = text.lines().find(|line| line.contains("base URL")).expect("the line");
    let address = line.split_whitespace().nth(2).and_then(|url| url.strip_suffix("/v1"));
    let address = address.expect("the version");
    assert!(line.ends_with(&format!("{address}/v1 for OpenAI's SDKs, {address} for Anthropic's")));
}

#[test]
fn the_command_of_every_endpoint_works_against_the_demo() {
    let section = README.split_once("## Endpoints").expect("the section").1;
    let block = section.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next());
    let demo = Demo::start();
    let downloads = tempfile::tempdir().expect("a directory");
    let mut ran = 0;
    for command in block.expect("a block").lines().filter(|line| line.starts_with("curl")) {
        let output = Command::new("bash")
            .args(["-euo", "pipefail", "-c", command])
            .current_dir(downloads.path())
            .env("BASE", &demo.base_url)
            .env("KEY", &demo.api_key)
            .output()
            .expect("bash runs");
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && !printed.is_empty(), "{command}\n{printed}");
        ran += 1;
    }
    assert_eq!(ran, 20, "commands");
}

/// Ids in the documentation that stand for a model and are none: what they are for.
const NO_MODELS: [(&str, &str); 7] = [
    ("video-1", "an operator's own name, in an answer of the admin API"),
    ("NAME", "a word of a command's synopsis"),
    ("qwen3-coder", "an operator's name for a model of others, in the sessions of agents"),
    ("openai/NAME", "the same behind the prefix that aider wants"),
    ("no-such-model", "a request that is refused"),
    ("<129>", "a name that is too long"),
    ("gpt-5-2026-01-01", "a name that an upstream could have"),
];
/// How the ids of models that are shipped begin.
const FAMILIES: [&str; 27] = [
    "gpt-",
    "claude-",
    "gemini-",
    "deepseek-",
    "qwen",
    "kimi-",
    "mistral-",
    "grok-",
    "glm-",
    "text-embedding-",
    "whisper-",
    "rerank-",
    "omni-",
    "codex-",
    "o1",
    "o3",
    "o4-",
    "vf2",
    "sf-",
    "df-",
    "gif-",
    "happyhorse-",
    "qf",
    "pimg-",
    "dle-",
    "vyg-",
    "voyage-",
];

/// Texts between each of these marks and the next of the ends.
fn between<'a>(text: &'a str, mark: &'a str, ends: &'a [char]) -> impl Iterator<Item = &'a str> {
    text.split(mark).skip(1).filter_map(move |rest| rest.split(ends).next())
}

/// Every model of a documented example exists.
#[test]
fn every_model_that_the_documents_name_is_shipped() {
    let shipped = fs::read_to_string("models.yaml").expect("models.yaml");
    let is_shipped = |id: &str| shipped.contains(&format!("\n  {id}:\n"));
    let documents = fs::read_dir("docs").expect("docs").map(|entry| entry.expect("one").path());
    let documents = documents.filter(|path| path.extension().is_some_and(|kind| kind == "md"));
    let mut named = 0;
    for path in documents.chain(["README.md".into()]) {
        let text = fs::read_to_string(&path).expect("text");
        let marks =
            ["\"model\": \"", "\"model\":\"", "model = \"", "model=\"", "--model ", "MODEL="];
        let examples =
            marks.iter().flat_map(|mark| between(&text, mark, &['"', ' ', '`', '\n', '\\']));
        // In prose: one word between backticks.
        let words = between(&text, "`", &['`']).filter(|word| {
            let is_id = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            let is_model = FAMILIES.iter().any(|family| word.starts_with(family));
            is_model && word.bytes().all(is_id) && word.bytes().any(|byte| byte.is_ascii_digit())
        });
        for id in examples.chain(words) {
            let is_none = NO_MODELS.iter().any(|(none, _)| *none == id);
            let path = path.display();
            assert!(is_none || is_shipped(id), "{path} names `{id}`, which is not in models.yaml");
            named += 1;
        }
    }
    assert!(named > 50, "only {named} were found");
}

/// The YAML blocks of the README, in pairs, are configurations that `tollgate check` accepts.
#[test]
fn the_yaml_of_the_readme_is_accepted() {
    let directory = tempfile::tempdir().expect("a directory");
    let blocks: Vec<&str> = README
        .split("```yaml\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap_or_default())
        .collect();
    assert_eq!(blocks.len(), 4, "two pairs, a block for each file");
    for pair in blocks.chunks(2) {
        for (name, block) in ["routes.yaml", "models.yaml"].iter().zip(pair) {
            fs::write(directory.path().join(name), block).expect("written");
        }
        accepted(directory.path());
    }
}

fn accepted(directory: &Path) {
    let output = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["check", "--routes", "routes.yaml", "--models", "models.yaml"])
        .current_dir(directory)
        .env("OPENAI_API_KEY", "sk-test")
        .output()
        .expect("the binary runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
}
