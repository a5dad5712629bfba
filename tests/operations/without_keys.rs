//! Commands in a shell that has none of the service's variables: each needs those alone that it names.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use clap::CommandFactory as _;
use serde_json::Value;
use tollgate::cli::Cli;

use crate::harness::child::Running;
use crate::harness::postgres::Postgres;
use crate::harness::{Demo, eventually};

/// Variables of the file that no shell here has.
const UNSET: [&str; 4] = ["FIRST_PROVIDER_KEY", "SECOND_PROVIDER_URL", "EVE_TOKEN", "NODE_NAME"];

/// The service itself, which needs all of them, and commands that read no files and run until they are
/// stopped.
const WHOLE: [&str; 3] = ["demo", "serve", "sim"];

/// Sample values of arguments, by their name in the help.
fn samples<'a>(account: &'a str, key: &'a str, directory: &'a Path) -> HashMap<&'a str, String> {
    let file = |name: &str| directory.join(name).display().to_string();
    HashMap::from([
        ("account", account.to_owned()),
        ("key", key.to_owned()),
        ("name", "sample".to_owned()),
        ("node", "2".to_owned()),
        ("email", "ada@example.com".to_owned()),
        ("amount", "0.01".to_owned()),
        ("note", "sample".to_owned()),
        ("hold", "hold_0000000000000001".to_owned()),
        ("task", "task_019c1402a1f0d3b2c4a5000000000007".to_owned()),
        ("code", "code_0000000000000001".to_owned()),
        ("request", "req_0000000000000001".to_owned()),
        ("model", "gpt-4o-mini".to_owned()),
        ("kind", "invite".to_owned()),
        ("of", "routes".to_owned()),
        ("shell", "bash".to_owned()),
        ("provider", "csv".to_owned()),
        ("config", file("litellm.yaml")),
        ("data", file("ledger")),
        ("to", file("copy")),
        ("from", file("ledger")),
    ])
}

/// Requirements of a command that clap does not know of.
fn beside(command: &str, directory: &Path) -> Vec<String> {
    let file = |name: &str| directory.join(name).display().to_string();
    match command {
        "check" => vec!["--allow-unset".to_owned()],
        "accounts limit" => vec!["--requests-per-minute".to_owned(), "60".to_owned()],
        "accounts holds" => vec!["--wait-ms".to_owned(), "5000".to_owned()],
        "accounts login" => vec!["--password-file".to_owned(), file("password")],
        "keys update" => vec!["--all-models".to_owned()],
        "tasks resolve" => vec!["--void".to_owned()],
        "fleet suspense resolve" => vec!["--release".to_owned()],
        "prices group" => vec!["--rule".to_owned(), "*=0.9".to_owned()],
        "models sync" => vec!["--from".to_owned(), file("prices.json")],
        "reconcile" => vec![
            "--from".to_owned(),
            file("invoice.csv"),
            "--journal".to_owned(),
            file("costs.jsonl"),
        ],
        "restore" => vec!["--data".to_owned(), file("restored")],
        "migrate up" | "migrate status" => vec!["--routes".to_owned(), file("fleet.yaml")],
        "migrate ledger" => ["--to", "postgres", "--dry-run", "--data"]
            .map(str::to_owned)
            .into_iter()
            .chain([file("ledger"), "--routes".to_owned(), file("fleet.yaml")])
            .collect(),
        _ => Vec::new(),
    }
}

/// Every command without commands below it.
fn leaves(command: &clap::Command, above: &str, to: &mut Vec<(String, clap::Command)>) {
    let mut below = command.get_subcommands().filter(|one| one.get_name() != "help").peekable();
    if below.peek().is_none() {
        to.push((above.to_owned(), command.clone()));
    }
    for one in below {
        leaves(one, format!("{above} {}", one.get_name()).trim(), to);
    }
}

/// The command line of a command: what it requires, and [`beside`].
fn line(path: &str, command: &clap::Command, samples: &HashMap<&str, String>) -> Vec<String> {
    let mut words: Vec<String> = path.split(' ').map(str::to_owned).collect();
    let beside = beside(path, Path::new("."));
    for argument in command.get_arguments().filter(|argument| argument.is_required_set()) {
        let id = argument.get_id().as_str();
        let flag = argument.get_long().map(|long| format!("--{long}"));
        if flag.as_ref().is_some_and(|flag| beside.contains(flag)) {
            continue;
        }
        let sample = samples.get(id);
        let sample = sample.unwrap_or_else(|| panic!("`{path}` needs a sample of `{id}`"));
        words.extend(flag);
        words.push(sample.clone());
    }
    words
}

fn run(directory: &Path, words: &[String]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(words).current_dir(directory).env_clear();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("the binary runs");
    if words.iter().any(|word| word == "tail") {
        let mut child = Running(child);
        let ended = child.wait_for(Duration::from_secs(1));
        assert_eq!(ended, None, "it runs on");
        child.0.kill().expect("it runs on");
        let status = child.0.wait().expect("it ends");
        return Output { status, stdout: Vec::new(), stderr: Vec::new() };
    }
    child.wait_with_output().expect("it ends")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A file that names variables which are not set, beside what leads to a gateway.
fn routes(demo: &Demo, more: &str) -> String {
    let address = demo.admin_url.strip_prefix("http://").expect("an address");
    let token = &demo.admin_token;
    let [key, url, eve, node] = UNSET;
    format!(
        "listeners: [{{ address: '${{{node}}}' }}]\n\
         admin:\n  address: {address}\n  token: {token}\n  operators:\n    \
         - {{ name: eve, token: '${{{eve}}}' }}\n\
         {more}upstreams:\n  one: {{ protocol: openai, base_url: https://api.openai.com/v1, \
         credential: '${{{key}}}' }}\n  two: {{ protocol: openai, base_url: '${{{url}}}' }}\n"
    )
}

#[test]
fn every_command_runs_without_the_variables_of_the_service() {
    let demo = Demo::start();
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let write = |name: &str, content: &str| {
        std::fs::write(directory.join(name), content).expect("a file");
    };
    write("routes.yaml", &routes(&demo, ""));
    let (_, database) = Postgres::shared().database("without_keys");
    let node = UNSET[3];
    let store = format!("store: {{ postgres: {{ url: '{database}', node: '${{{node}}}' }} }}\n");
    write("fleet.yaml", &routes(&demo, &store));
    let models = "models:\n  gpt-4o-mini:\n    operations: [chat]\n    targets: [{ upstream: one, \
                  model: '${SECOND_PROVIDER_URL}' }]\n    prices: { input_per_1m_tokens: 0.15, \
                  output_per_1m_tokens: 0.60 }\n    limits: { context_tokens_max: 128000, \
                  output_tokens_max: 16384 }\n";
    write("models.yaml", models);
    write("password", "correct horse battery staple");
    write("prices.json", include_str!("../../crates/catalogue/fixtures/litellm.json"));
    write("invoice.csv", include_str!("../../crates/reconcile/fixtures/invoice.csv"));
    write("costs.jsonl", include_str!("../../crates/reconcile/fixtures/journal.jsonl"));
    write("litellm.yaml", include_str!("../fixtures/litellm/priced.yaml"));
    drop(Demo::on(&directory.join("ledger")));
    let words = |line: &[&str]| line.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let made = |line: &[&str]| {
        let output = run(directory, &words(line));
        assert_eq!(output.status.code(), Some(0), "{line:?}: {}", text(&output.stderr));
        text(&output.stdout).trim().to_owned()
    };
    let account = made(&["accounts", "create", "Example Ltd", "--quiet"]);
    made(&["keys", "create", &account, "--name", "first", "--quiet"]);
    let key = made(&["keys", "list", &account, "--quiet"]);
    made(&["migrate", "up", "--routes", "fleet.yaml"]);

    let samples = samples(&account, &key, directory);
    let mut all = Vec::new();
    let mut root = Cli::command();
    root.build();
    leaves(&root, "", &mut all);
    assert!(all.len() > 60, "{} commands", all.len());
    for (path, command) in &all {
        if WHOLE.contains(&path.as_str()) {
            continue;
        }
        let mut words = line(path, command, &samples);
        words.extend(beside(path, directory));
        let output = run(directory, &words);
        let errors = text(&output.stderr);
        for variable in UNSET {
            // A model of which something is not known is left out, and the others are compared.
            let is_left_out = errors.contains("`gpt-4o-mini` is left out") || path == "check";
            let is_missed = errors.contains(&format!("`{variable}` is not set")) && !is_left_out;
            assert!(!is_missed, "{words:?}: {errors}");
        }
        // 2 is invalid usage: then this test needs a sample, or something beside it.
        assert_ne!(output.status.code(), Some(2), "{words:?}: {errors}");
        assert!(!errors.contains("cannot be used"), "{words:?}: {errors}");
        assert!(path != "check" || output.status.success(), "{errors}");
    }
}

/// A missing variable is reported once, in one line, with the alternatives.
#[test]
fn a_missing_variable_is_reported_once() {
    let demo = Demo::start();
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let token = &demo.admin_token;
    let file = routes(&demo, "").replace(token, "${ADMIN_TOKEN}");
    std::fs::write(directory.join("routes.yaml"), file).expect("a file");
    std::fs::write(directory.join("models.yaml"), "models: {}\n").expect("a file");
    std::fs::write(directory.join("token"), token).expect("a file");
    for (line, code) in [
        (&["accounts", "list"][..], 1),
        (&["upstreams"], 1),
        (&["config", "show"], 1),
        (&["config", "diff"], 2),
    ] {
        let words: Vec<String> = line.iter().map(|word| (*word).to_owned()).collect();
        let output = run(directory, &words);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{line:?}: {errors}");
        let message =
            "error: routes.yaml:4: the environment variable `ADMIN_TOKEN` is not set\nhelp: ";
        assert!(errors.starts_with(message), "{line:?}: {errors}");
        assert!(errors.contains("--token-file"), "{line:?}: {errors}");
        assert_eq!(errors.lines().count(), 2, "{line:?}: {errors}");
        let words = [words, vec!["--token-file".to_owned(), "token".to_owned()]].concat();
        let output = run(directory, &words);
        let found = output.status.code();
        assert!(found == Some(0) || found == Some(1) && code == 2, "{}", text(&output.stderr));
    }
}

/// Step 3 of docs/fleet.md, with the file of step 2 and the password alone.
#[test]
fn the_schema_is_made_from_anywhere_with_the_file_of_the_page() {
    let page = include_str!("../../docs/fleet.md");
    let (_, rest) = page.split_once("```yaml\n").expect("the file of step 2");
    let (block, _) = rest.split_once("```").expect("its end");
    let block: String = block
        .lines()
        .map(|line| format!("{}\n", line.strip_prefix("   ").unwrap_or(line)))
        .collect();
    let (_, database) = Postgres::shared().database("page_of_fleets");
    let shown = "postgres://tollgate@db.internal:5432/tollgate";
    assert!(block.contains(shown) && block.contains("${TOLLGATE_NODE}"), "{block}");
    let [key, ..] = UNSET;
    let file = block.replace(shown, &database)
        + &format!(
            "listeners: [{{ address: 0.0.0.0:8080 }}]\nupstreams:\n  openai: {{ protocol: openai, \
             base_url: https://api.openai.com/v1, credential: '${{{key}}}' }}\n"
        );
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("routes.yaml"), file).expect("a file");
    let migrate = |word: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.args(["migrate", word]).current_dir(directory.path()).env_clear();
        command.env("TOLLGATE_PG_PASSWORD", "no-database-of-these-tests-asks-for-one");
        let output = command.output().expect("the binary runs");
        (output.status.code(), text(&output.stderr))
    };
    let (code, errors) = migrate("up");
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(migrate("status").0, Some(0), "the schema is there");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(["migrate", "up"]).current_dir(directory.path()).env_clear();
    let output = command.output().expect("the binary runs");
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{errors}");
    assert!(errors.contains("`TOLLGATE_PG_PASSWORD` is not set"), "{errors}");
    assert_eq!(errors.lines().count(), 2, "{errors}");
}

/// Container engines ask with the file that the gateway was started with, and nothing else.
#[test]
fn the_healthcheck_asks_where_the_file_says() {
    let demo = Demo::start();
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let healthy = |more: &[&str]| {
        let mut words: Vec<String> = vec!["healthcheck".to_owned()];
        words.extend(more.iter().map(|word| (*word).to_owned()));
        let output = run(directory, &words);
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    // Without a file the default is asked, where nobody listens here, or somebody who is no gateway of
    // this test.
    let (_, _, errors) = healthy(&["--admin", "127.0.0.1:1"]);
    assert!(errors.contains("127.0.0.1:1"), "{errors}");
    let (_, message, errors) = healthy(&[]);
    assert!(message.contains("ready") || errors.contains("127.0.0.1:9090"), "{errors}");

    std::fs::write(directory.join("routes.yaml"), routes(&demo, "")).expect("a file");
    eventually("the gateway is ready", || healthy(&[]).0 == Some(0));
    let (code, message, errors) = healthy(&["--routes", "routes.yaml"]);
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    let message: Value = serde_json::from_str(&message).expect("JSON");
    assert_eq!(message["ready"], true);
    assert_eq!(healthy(&["--routes", "no-such.yaml"]).0, Some(1));
    // A file that is being edited makes no running gateway ill: the default is asked, and that is said.
    std::fs::write(directory.join("routes.yaml"), "admin: [").expect("a file");
    let (_, _, errors) = healthy(&[]);
    assert!(errors.starts_with("warning: ") && errors.contains("using 127.0.0.1:9090"), "{errors}");
}
