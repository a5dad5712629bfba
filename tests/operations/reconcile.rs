//! `tollgate reconcile`: a provider's files against a journal that was exported.

use std::path::Path;
use std::process::{Command, Output};

use crate::harness::{Gateway, Recorder, ask, chat_model, eventually};
use serde_json::{Value, json};

const JOURNAL: &str = r#"{"seq":3,"at":"2026-01-01T10:00:00.000Z","account_id":"acct_1","kind":"grant","id":"g","amount":"10.00"}
{"seq":4,"at":"2026-01-01T10:00:01.000Z","account_id":"acct_1","kind":"cost","key_id":"key_1","request_id":"req_1","model":"m","upstream":"openai","credential":"main","upstream_model":"gpt-5","cost_kind":"answer","usage":{"input_tokens":1000,"cache_read_tokens":400,"output_tokens":30},"usage_source":"upstream","charged":"0.01","cost":"0.00205"}
{"seq":5,"at":"2026-01-02T10:00:01.000Z","account_id":"acct_1","kind":"cost","key_id":"key_1","request_id":"req_2","model":"m","upstream":"openai","credential":"main","upstream_model":"gpt-5","cost_kind":"answer","usage":{"input_tokens":500,"output_tokens":10},"usage_source":"estimated","charged":"0.01","cost":"0.000725"}
"#;

const USAGE: &str = r#"{"object": "page", "data": [
  {"object": "bucket", "start_time": 1767225600, "end_time": 1767312000, "results": [
    {"object": "organization.usage.completions.result", "model": "gpt-5-2025-08-07",
     "api_key_id": "key_abc", "input_tokens": 1400, "input_cached_tokens": 400, "output_tokens": 30,
     "num_model_requests": 1}]},
  {"object": "bucket", "start_time": 1767312000, "end_time": 1767398400, "results": [
    {"object": "organization.usage.completions.result", "model": "gpt-5-2025-08-07",
     "api_key_id": "key_abc", "input_tokens": 500, "output_tokens": 10, "num_model_requests": 1}]}
], "has_more": false}"#;

const COSTS: &str = r#"{"object": "page", "data": [
  {"object": "bucket", "start_time": 1767225600, "end_time": 1767312000, "results": [
    {"object": "organization.costs.result", "line_item": "gpt-5-2025-08-07, input",
     "amount": {"value": 0.00205, "currency": "usd"}}]},
  {"object": "bucket", "start_time": 1767312000, "end_time": 1767398400, "results": [
    {"object": "organization.costs.result", "line_item": "gpt-5-2025-08-07, output",
     "amount": {"value": 7.25e-4, "currency": "usd"}}]}
], "has_more": false}"#;

fn write(directory: &Path, name: &str, text: &str) {
    std::fs::write(directory.join(name), text).expect("a file");
}

fn run(directory: &Path, provider: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    let command = command.args(["reconcile", "--provider", provider]).args(arguments);
    command.current_dir(directory).output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

#[test]
fn a_statement_is_held_against_a_journal() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    write(directory, "journal.jsonl", JOURNAL);
    write(directory, "usage.json", USAGE);
    write(directory, "costs.json", COSTS);
    let files =
        ["--journal", "journal.jsonl", "--from", "usage.json", "--from", "costs.json"].as_slice();
    let named = ["--credential", "key_abc=main"].as_slice();
    let output = run(directory, "openai", &[files, named].concat());
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{printed}{}", text(&output.stderr));
    assert!(printed.contains("the statement is what the journal says"), "{printed}");
    assert!(printed.contains("amounts are not told apart by credential"), "{printed}");

    // On the second day the answer went on behind what the gateway saw, and the price has changed on
    // the first.
    write(
        directory,
        "usage.json",
        &USAGE.replace("\"output_tokens\": 10,", "\"output_tokens\": 90,"),
    );
    write(
        directory,
        "costs.json",
        &COSTS.replace("7.25e-4", "0.001525").replace("0.00205", "0.0030"),
    );
    let output = run(directory, "openai", &[files, named].concat());
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{printed}{}", text(&output.stderr));
    let words: Vec<Vec<&str>> =
        printed.lines().map(|line| line.split_whitespace().collect()).collect();
    for row in [
        ["price", "2026-01-01", "gpt-5", "(all)", "amount", "0.003", "0.00205", "0.00095"],
        ["tail", "2026-01-02", "gpt-5", "main", "output_tokens", "90", "10", "80"],
        ["tail", "2026-01-02", "gpt-5", "(all)", "amount", "0.001525", "0.000725", "0.0008"],
    ] {
        assert!(words.iter().any(|words| words == &row), "{row:?} is not in {printed}");
    }
    let output = run(directory, "openai", &[files, named, &["--json"]].concat());
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(text(&output.stdout).lines().count(), 1, "one document a line");
    assert_eq!((output.status.code(), &report["different"]), (Some(1), &Value::Bool(true)));
    assert_eq!(report["classes"]["tail"]["lines"], 2, "{report}");
    assert_eq!(report["classes"]["price"]["amount"], "0.00095", "{report}");
    assert_eq!(report["quantities"][0]["difference"], 80, "{report}");
}

#[test]
fn what_cannot_be_compared_is_trouble() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    write(directory, "journal.jsonl", JOURNAL);
    let other = JOURNAL.replace("\"openai\"", "\"azure\"").replace("\"seq\":", "\"seq\":1");
    write(directory, "two.jsonl", &format!("{JOURNAL}{other}"));
    write(directory, "none.jsonl", JOURNAL.lines().next().expect("a line"));
    write(directory, "garbled.jsonl", &JOURNAL.replace("\"answer\"", "\"\""));
    write(directory, "usage.json", USAGE);
    write(directory, "garbled.json", &USAGE.replacen("1400", "-1400", 1));
    for (from, journal, message) in [
        ("usage.json", "two.jsonl", "costs at azure, openai: name those"),
        ("usage.json", "none.jsonl", "no records of costs"),
        ("usage.json", "garbled.jsonl", "line 2 of the journal has a cost_kind"),
        ("garbled.json", "journal.jsonl", "garbled.json.data[0].results[0].input_tokens is not"),
        ("nowhere.json", "journal.jsonl", "cannot read nowhere.json"),
        ("usage.json", "nowhere.jsonl", "cannot read nowhere.jsonl"),
    ] {
        let output = run(directory, "openai", &["--from", from, "--journal", journal]);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{from}, {journal}: {errors}");
        assert!(errors.contains(message), "{message}: {errors}");
    }
    let again = ["--from", "usage.json", "--journal", "journal.jsonl", "--journal", "two.jsonl"];
    let output = run(directory, "openai", &again);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("line 2 of the journal has the seq 4 of req_1, which"), "{errors}");
    let both = ["--from", "usage.json", "--journal", "two.jsonl", "--upstream", "azure"];
    assert_eq!(run(directory, "openai", &both).status.code(), Some(0), "one of two");
    for wrong in
        [&["--journal", "journal.jsonl"][..], &["--from", "usage.json", "--credential", "a"]]
    {
        assert_eq!(run(directory, "openai", wrong).status.code(), Some(2), "{wrong:?}");
    }
}

/// The records of a gateway that runs, and of one that has stopped.
#[test]
fn the_records_of_a_gateway_are_held_against_a_statement() {
    let recorder = Recorder::start();
    let address = recorder.address;
    let upstreams = format!("  u: {{ protocol: openai, base_url: 'http://{address}/v1' }}\n");
    let target = "{ upstream: u, cost: { input_per_1m_tokens: 0.5, output_per_1m_tokens: 4 } }";
    let model = chat_model("own", "u").replace("{ upstream: u }", target);
    let mut gateway = Gateway::serving(&upstreams, &format!("models:\n{model}"));
    let body = json!({"model": "own", "messages": [{"role": "user", "content": "hi"}]});
    let answer = ask(gateway.address, &gateway.chat_json(body.to_string()));
    assert_eq!(answer.status(), 200, "{answer:?}");
    gateway.settled();

    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let margins = || gateway.admin("GET", "/admin/v1/margins?by=day", &Value::Null);
    eventually("the cost", || margins()["data"][0]["day"].is_string());
    let day = margins()["data"][0]["day"]
        .as_str()
        .and_then(|day| day.get(..10))
        .expect("a date")
        .to_owned();
    // As the simulated upstream answers: 5 tokens of input and 1 of output.
    let invoice = format!(
        "day,model,credential,unit,quantity,amount\n{day},own,key_1,input_tokens,5,0.0000025\n\
         {day},own,key_1,output_tokens,1,0.000004\n{day},own,key_1,calls,1,\n"
    );
    write(directory, "invoice.csv", &invoice);
    write(directory, "stolen.csv", &format!("{invoice}{day},own,key_2,output_tokens,900,0.0036\n"));
    let admin = gateway.admin_address().to_string();
    let routes = gateway.path("routes.yaml");
    let running = ["--admin", &admin, "--routes", routes.to_str().expect("text")];
    let data = gateway.path("data");
    let stopped = ["--data", data.to_str().expect("text")];
    for (round, place) in [running.as_slice(), stopped.as_slice()].into_iter().enumerate() {
        for (file, code, message) in [
            ("invoice.csv", 0, "the statement is what the journal says"),
            ("stolen.csv", 1, "elsewhere"),
        ] {
            let statement = ["--from", file, "--credential", "key_1=u"];
            let output = run(directory, "csv", &[&statement, place].concat());
            let printed = text(&output.stdout);
            assert_eq!(output.status.code(), Some(code), "{printed}{}", text(&output.stderr));
            assert!(printed.contains(message), "round {round}, {file}: {printed}");
        }
        gateway.kill();
    }
}
