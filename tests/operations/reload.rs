//! Configurations that change under a running gateway: who asks for it, what is seen on disk, and
//! what customers notice.

use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::harness::{Gateway, Recorder, ask, eventually, let_pass};
use serde_json::Value;

const OK: &str = r#"tollgate_config_reloads_total{outcome="ok"}"#;
const REFUSED: &str = r#"tollgate_config_reloads_total{outcome="refused"}"#;

/// The status that a call of `model` gets.
fn call(gateway: &Gateway, model: &str) -> u16 {
    let body = format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"hi"}}]}}"#);
    ask(gateway.address, &gateway.chat_json(body)).status()
}

/// `models.yaml` with the model `m` under another name.
fn renamed(text: &str, model: &str) -> String {
    text.replacen("  m:\n", &format!("  {model}:\n"), 1)
}

fn models(gateway: &Gateway) -> String {
    std::fs::read_to_string(gateway.path("models.yaml")).expect("the file")
}

/// Switches the watch off, so that a test alone says when to reload.
fn without_watch(gateway: &Gateway) {
    let path = gateway.path("routes.yaml");
    let text = std::fs::read_to_string(&path).expect("the file");
    std::fs::write(&path, format!("reload: {{ watch: false }}\n{text}")).expect("written");
    eventually("the last reload by watch", || gateway.metric(OK) == 1.0);
}

fn reload(gateway: &Gateway, query: &str) -> (u16, Value) {
    let answer = gateway.admin_answer("POST", &format!("/admin/v1/reload{query}"), &Value::Null);
    (answer.status(), answer.json())
}

#[test]
fn the_admin_api_reloads_tries_out_and_says_what_is_wrong() {
    let recorder = Recorder::start();
    let gateway = Gateway::start(recorder.address);
    without_watch(&gateway);
    let (path, good) = (gateway.path("models.yaml"), models(&gateway));

    std::fs::write(&path, renamed(&good, "second")).expect("written");
    let (status, report) = reload(&gateway, "?dry_run=true");
    assert_eq!((status, &report["ok"], &report["in_force"]), (200, &true.into(), &false.into()));
    assert_ne!(report["configuration"], report["running"], "{report}");
    assert_eq!(call(&gateway, "m"), 200, "a dry run changes nothing");
    assert_eq!(gateway.metric(OK), 1.0, "and is not counted");

    let (status, report) = reload(&gateway, "");
    assert_eq!((status, &report["in_force"]), (200, &true.into()), "{report}");
    assert_eq!(report["configuration"], report["running"], "{report}");
    assert_eq!((call(&gateway, "second"), call(&gateway, "m")), (200, 404));
    assert_eq!(gateway.metric(OK), 2.0);

    std::fs::write(&path, good.replace("operations: [chat]", "operations: [chatt]")).expect("w");
    let (status, report) = reload(&gateway, "");
    assert_eq!((status, &report["ok"], &report["in_force"]), (422, &false.into(), &false.into()));
    let help = report["diagnostics"][0]["help"].as_str().unwrap_or_default();
    assert!(help.contains("did you mean `chat`?"), "{report}");
    assert_eq!(call(&gateway, "second"), 200, "the last good one stays");
    assert_eq!(gateway.metric(REFUSED), 1.0);
    assert_eq!(gateway.metric("tollgate_config_last_reload_successful"), 0.0);

    let routes = gateway.path("routes.yaml");
    let text = std::fs::read_to_string(&routes).expect("the file");
    std::fs::write(&routes, format!("shutdown: {{ grace: 7s }}\n{text}")).expect("written");
    std::fs::write(&path, &good).expect("written");
    let (status, report) = reload(&gateway, "");
    assert_eq!(status, 200, "{report}");
    assert_eq!(report["restart_only"], serde_json::json!(["shutdown.grace"]));
    assert_eq!(gateway.metric("tollgate_config_last_reload_successful"), 1.0);
    assert_eq!(reload(&gateway, "?dryrun=true").0, 400, "a typing error is no reload");
}

/// A reload's answer equals `check --format json` for the same files, field by field.
#[test]
fn the_answer_of_a_reload_is_that_of_check() {
    let recorder = Recorder::start();
    let gateway = Gateway::start(recorder.address);
    without_watch(&gateway);
    for text in [models(&gateway), "models:\n  m: {}\n".to_owned()] {
        std::fs::write(gateway.path("models.yaml"), text).expect("written");
        let (_, report) = reload(&gateway, "?dry_run=true");
        let checked = std::process::Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .args(["check", "--format", "json", "--routes"])
            .arg(gateway.path("routes.yaml"))
            .arg("--models")
            .arg(gateway.path("models.yaml"))
            .output()
            .expect("the binary runs");
        let checked: Value = serde_json::from_slice(&checked.stdout).expect("JSON");
        assert_eq!(checked.as_object().map(serde_json::Map::len), Some(5), "{checked}");
        for (field, value) in checked.as_object().expect("an object") {
            assert_eq!(&report[field], value, "{field}");
        }
    }
}

#[test]
fn a_file_that_is_replaced_is_taken_and_one_that_is_the_same_is_not() {
    let recorder = Recorder::start();
    let gateway = Gateway::start(recorder.address);
    let (path, good) = (gateway.path("models.yaml"), models(&gateway));
    // As editors and deployment tools do it: a new file, moved over the old one.
    let replace = |text: &str| {
        let new = gateway.path(".models.yaml.new");
        std::fs::write(&new, text).expect("written");
        std::fs::rename(&new, &path).expect("moved");
    };
    replace(&renamed(&good, "second"));
    eventually("the reload", || call(&gateway, "second") == 200);
    assert_eq!(call(&gateway, "m"), 404, "the old name is gone");
    assert_eq!(gateway.metric(OK), 1.0);

    replace(&renamed(&good, "second"));
    let_pass(Duration::from_secs(1), "a watcher that sees no change must not reload");
    assert_eq!(gateway.metric(OK), 1.0, "the same content is not loaded again");
    // A second way to the same content changes nothing either.
    gateway.signal("HUP");
    eventually("the reload by signal", || gateway.metric(OK) == 2.0);
    replace(&good);
    eventually("the second reload by watch", || call(&gateway, "m") == 200);
    assert_eq!(gateway.metric(OK), 3.0);
    assert_eq!(gateway.metric(REFUSED), 0.0);
}

/// A mounted ConfigMap: the file is a link through `..data`, and only that link is ever replaced.
#[test]
fn the_switch_of_a_mounted_configmap_is_seen() {
    let recorder = Recorder::start();
    let gateway = Gateway::start(recorder.address);
    let good = models(&gateway);
    let generation = |name: &str, text: &str| {
        let directory = gateway.path(name);
        std::fs::create_dir(&directory).expect("a directory");
        std::fs::write(directory.join("models.yaml"), text).expect("written");
        let link = gateway.path("..data_tmp");
        symlink(Path::new(name), &link).expect("a link");
        std::fs::rename(&link, gateway.path("..data")).expect("switched");
    };
    generation("..2026_01", &good);
    let link = gateway.path("link");
    symlink(Path::new("..data/models.yaml"), &link).expect("a link");
    std::fs::rename(&link, gateway.path("models.yaml")).expect("moved");
    let_pass(Duration::from_secs(1), "a watcher that sees no change must not reload");
    assert_eq!(gateway.metric(OK), 0.0, "the same content on another way");

    generation("..2026_02", &renamed(&good, "second"));
    eventually("the reload", || call(&gateway, "second") == 200);
    assert_eq!((gateway.metric(OK), gateway.metric(REFUSED)), (1.0, 0.0));
}

#[test]
fn a_file_that_is_written_in_two_halves_is_taken_once() {
    let recorder = Recorder::start();
    let gateway = Gateway::start(recorder.address);
    let (path, good) = (gateway.path("models.yaml"), models(&gateway));
    let text = renamed(&good, "second");
    // The first half breaks off inside a price, and is valid YAML of the wrong shape.
    let (first, second) = text.split_at(text.find("output_per").expect("a price") + 4);
    let write = |pause: Duration| {
        let mut file = std::fs::File::create(&path).expect("the file");
        file.write_all(first.as_bytes()).expect("written");
        std::thread::sleep(pause);
        file.write_all(second.as_bytes()).expect("written");
    };
    write(Duration::from_millis(150));
    eventually("the reload", || call(&gateway, "second") == 200);
    assert_eq!(gateway.metric(OK), 1.0);
    assert_eq!(gateway.metric(REFUSED), 0.0, "the first half alone was not looked at");

    std::fs::write(&path, &good).expect("written");
    eventually("the old name", || call(&gateway, "m") == 200);
    write(Duration::from_secs(3));
    eventually("the whole file", || call(&gateway, "second") == 200);
    assert_eq!(gateway.metric(REFUSED), 1.0, "the first half was looked at, and refused");
}

#[test]
fn a_broken_file_in_the_middle_of_load_fails_no_request() {
    let recorder = Recorder::start();
    let gateway = Gateway::start(recorder.address);
    let (path, good) = (gateway.path("models.yaml"), models(&gateway));
    let (done, request_count, failed) =
        (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    request_count.fetch_add(1, Ordering::Relaxed);
                    failed.fetch_add(usize::from(call(&gateway, "m") != 200), Ordering::Relaxed);
                }
            });
        }
        let broken = ["models: [", "", "models:\n  m:\n    operations: [chatt]\n"];
        for (count, text) in (1_u8..).zip(broken) {
            std::fs::write(&path, text).expect("written");
            eventually("the refusal", || gateway.metric(REFUSED) == f64::from(count));
        }
        std::fs::remove_file(&path).expect("removed");
        eventually("the refusal", || gateway.metric(REFUSED) == 4.0);
        std::fs::write(&path, format!("{good}\n# mended\n")).expect("written");
        eventually("the reload", || gateway.metric(OK) == 1.0);
        done.store(true, Ordering::Relaxed);
    });
    assert!(request_count.load(Ordering::Relaxed) > 50, "there was load: {request_count:?}");
    assert_eq!(failed.load(Ordering::Relaxed), 0, "of {request_count:?} requests");
}

/// Exit code and output of `config diff`.
fn diff(gateway: &Gateway, more: &[&str]) -> (Option<i32>, String) {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["config", "diff", "--admin", &gateway.admin_address().to_string(), "--routes"])
        .arg(gateway.path("routes.yaml"))
        .arg("--models")
        .arg(gateway.path("models.yaml"))
        .args(more)
        .output()
        .expect("the binary runs");
    let errors = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(errors).expect("text"))
}

#[test]
fn a_diff_says_what_the_files_would_change_of_what_runs() {
    let recorder = Recorder::start();
    let gateway = Gateway::start(recorder.address);
    without_watch(&gateway);
    let (code, text_found) = diff(&gateway, &[]);
    assert!(code == Some(0) && text_found.starts_with("the files are what runs\n"), "{text_found}");

    let (models_path, routes_path) = (gateway.path("models.yaml"), gateway.path("routes.yaml"));
    let text = models(&gateway).replacen("output_per_1m_tokens: 10", "output_per_1m_tokens: 12", 1);
    std::fs::write(&models_path, text.replace("  endless:", "  unending:")).expect("written");
    let routes = std::fs::read_to_string(&routes_path).expect("the file");
    let changed = routes
        .replacen(crate::harness::UPSTREAM_KEY, "sk-another-canary", 1)
        .replace("h2c: true", "h2c: false");
    std::fs::write(&routes_path, changed).expect("written");
    let (code, text_found) = diff(&gateway, &[]);
    assert_eq!(code, Some(1), "{text_found}");
    for expected in [
        "~ models.m.prices.output_per_1m_tokens: 10 → 12\n",
        "+ models.unending: {",
        "- models.endless: {",
        "~ upstreams.recorder.credential: \"secret ",
        ".h2c: true → false   (at a restart)\n",
        "5 differences\n",
    ] {
        assert!(text_found.contains(expected), "{expected} in {text_found}");
    }
    assert!(
        !text_found.contains("canary") && !text_found.contains(crate::harness::UPSTREAM_KEY),
        "{text_found}"
    );

    let (code, text_found) = diff(&gateway, &["--format", "json"]);
    // What is warned of comes behind it, on the other stream.
    let mut values = serde_json::Deserializer::from_str(&text_found).into_iter::<Value>();
    let report = values.next().expect("a value").expect("JSON");
    assert_eq!((code, &report["different"]), (Some(1), &true.into()), "{report}");
    assert_ne!(report["running"], report["files"]);
    assert_eq!(report["changes"].as_array().map(Vec::len), Some(5), "{report}");

    // What cannot be said is neither the same nor different.
    let wrong = gateway.path("wrong-token");
    std::fs::write(&wrong, "nobody's").expect("written");
    let (code, text_found) = diff(&gateway, &["--token-file", wrong.to_str().expect("text")]);
    assert_eq!(code, Some(2), "{text_found}");
    assert!(text_found.contains("401"), "{text_found}");
    std::fs::write(&models_path, "models: [").expect("written");
    assert_eq!(diff(&gateway, &[]).0, Some(2));
}

/// Ways to write a secret where no field is known for one. None of them may be repeated by anything
/// that a gateway says of its files.
const MISWRITTEN: [&str; 14] = [
    "credental: sk-live-canary",
    "api_key: sk-live-canary",
    "credentials: [sk-live-canary, sk-other-canary]",
    "credentials: { a: { value: sk-live-canary } }",
    "credentials: sk-live-canary",
    "credentials: {sk-live-canary, sk-other-canary}",
    "credential: [sk-live-canary]",
    "credential: { value: sk-live-canary }",
    "header: { authorization: Bearer sk-live-canary }",
    "tokens: sk-live-canary, sk-other-canary",
    "passwd: \"sk-live-canary\" # it was sk-old-canary",
    "credential: \"${1X:-sk-live-canary}\"",
    "credential: \"${sk-live-canary}\"",
    "credential: \"sk-live canary\"",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_under_a_wrong_name_is_nowhere_repeated() {
    let recorder = Recorder::start();
    let gateway = Gateway::listening("", "", recorder.address);
    without_watch(&gateway);
    let path = gateway.path("routes.yaml");
    let good = std::fs::read_to_string(&path).expect("the file");
    let pages = crate::harness::Pages::at(&format!("http://{}", gateway.admin));
    let login = pages.get("/operator/login").await;
    let token = [("token", "admin-token-of-a-test")];
    assert_eq!(pages.fill(&login, "/operator/login", &token).await.status, 303);
    for miswritten in MISWRITTEN {
        let line = format!("    {miswritten}\n");
        let broken = good.replacen("    credential: sk-upstream-of-a-test\n", &line, 1);
        assert_ne!(broken, good);
        for text in [broken.clone(), broken.replacen("listeners:", "listeners: [", 1)] {
            std::fs::write(&path, text).expect("written");
            let (status, message) = reload(&gateway, "");
            assert_eq!(status, 422, "{miswritten}: {message}");
            assert!(!message.to_string().contains("canary"), "{miswritten}: {message}");
            let checked = std::process::Command::new(env!("CARGO_BIN_EXE_tollgate"))
                .args(["check", "--routes"])
                .arg(&path)
                .arg("--models")
                .arg(gateway.path("models.yaml"))
                .output()
                .expect("the binary starts");
            let message = String::from_utf8_lossy(&checked.stderr).into_owned();
            assert!(!checked.status.success() && !message.is_empty(), "{miswritten}");
            assert!(!message.contains("canary"), "{miswritten}: {message}");
            let page = pages.get("/operator/configuration").await;
            assert!(page.body.contains("error"), "{miswritten}: {}", page.body);
            assert!(!page.body.contains("canary"), "{miswritten}: {}", page.body);
        }
    }
    let log = std::fs::read_to_string(gateway.path("log")).expect("the log");
    assert!(log.contains("configuration") && !log.contains("canary"), "{log}");
}
