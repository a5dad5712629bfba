//! The two YAML files: what is shipped, what is documented, and what is wrong in how many ways.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use proptest::prelude::*;
use tollgate::config::snapshot::{Credential, Snapshot};
use tollgate::config::{self, ConfigHandle, Diagnostic, Overrides, Severity, Sources};
use tollgate::money::Nanousd;
use tollgate::options::holds::{HoldRules, Means};
use tollgate::price::Usage;
use tollgate::protocols::{Dialect, Operation};

type Loaded = Result<(Snapshot, Vec<Diagnostic>), Vec<Diagnostic>>;

const MINIMAL_ROUTES: &str = "upstreams:
  openai:
    protocol: openai
    base_url: https://api.openai.com/v1
    credential: ${OPENAI_API_KEY}
";

const MINIMAL_MODELS: &str = "models:
  m:
    operations: [chat]
    targets: [{ upstream: openai }]
    prices: { input_per_1m_tokens: 0.15, output_per_1m_tokens: 0.60 }
    limits: { context_tokens_max: 1000, output_tokens_max: 100 }
";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// An environment in which every variable whose name ends as those of keys and tokens do is set,
/// `TEST_TLS` names the directory of certificates, and there is a key file of Google's.
fn env(name: &str) -> Option<String> {
    if name == "TEST_TLS" {
        return Some(root().join("tests/config/tls").display().to_string());
    }
    if name == "GOOGLE_SERVICE_ACCOUNT_KEY" {
        return fs::read_to_string(root().join("tests/fixtures/google/service_account.json")).ok();
    }
    let endings =
        ["_KEY", "_KEY_ID", "_TOKEN", "_SECRET", "_EXTERNAL_ID", "_PG_PASSWORD", "PROXY_PASSWORD"];
    let is_set = endings.iter().any(|ending| name.ends_with(ending));
    is_set.then(|| format!("value-of-{name}"))
}

/// True if the expected texts are written instead of compared.
#[expect(clippy::disallowed_methods, reason = "a switch of this test, not of the gateway")]
pub(crate) fn renews_expectations() -> bool {
    std::env::var_os("UPDATE_EXPECTED").is_some()
}

/// Loads two texts as `routes.yaml` and `models.yaml`.
fn load(routes: &[u8], models: &[u8]) -> Loaded {
    let directory = tempfile::tempdir().expect("a directory");
    let file = |name: &str, text: &[u8]| {
        let path = directory.path().join(name);
        fs::write(&path, text).expect("the file is written");
        path
    };
    let sources =
        Sources::Files { routes: file("routes.yaml", routes), models: file("models.yaml", models) };
    let mut loaded = config::load_with(&sources, &Overrides::default(), &env);
    // Diagnostics name the files as the operator did; the directory changes with every run.
    let diagnostics = match &mut loaded {
        Ok((_, diagnostics)) | Err(diagnostics) => diagnostics,
    };
    let prefix = format!("{}/", directory.path().display());
    for diagnostic in diagnostics {
        diagnostic.file = diagnostic.file.replace(&prefix, "");
        diagnostic.message = diagnostic.message.replace(&prefix, "");
    }
    loaded
}

fn loads(routes: &str, models: &str) -> Snapshot {
    match load(routes.as_bytes(), models.as_bytes()) {
        Ok((snapshot, _)) => snapshot,
        Err(errors) => panic!("expected no errors:\n{}", rendered(&errors)),
    }
}

fn rendered(diagnostics: &[Diagnostic]) -> String {
    let texts: Vec<String> = diagnostics.iter().map(Diagnostic::render).collect();
    texts.join("\n\n")
}

/// The two files of a case: `routes.yaml`, a line `=== models.yaml`, `models.yaml`. Either half may
/// be empty, which stands for the minimal file.
fn split(case: &str) -> (&str, &str) {
    let (routes, models) = case.split_once("=== models.yaml\n").unwrap_or((case, ""));
    let or_minimal = |text, minimal| if str::is_empty(text) { minimal } else { text };
    (or_minimal(routes, MINIMAL_ROUTES), or_minimal(models, MINIMAL_MODELS))
}

fn cases(directory: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join("tests/config").join(directory)).expect("a directory");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    paths.sort();
    paths
}

#[test]
fn the_shipped_files_are_in_order() {
    let shipped =
        Sources::Files { routes: root().join("routes.yaml"), models: root().join("models.yaml") };
    let loaded = config::load_with(&shipped, &Overrides::default(), &env);
    let (snapshot, warnings) = loaded.unwrap_or_else(|errors| panic!("{}", rendered(&errors)));
    assert!(warnings.is_empty(), "nothing to note:\n{}", rendered(&warnings));
    let first = snapshot.models.first().expect("a model");
    assert_eq!(&*first.id, "gpt-4o-mini", "the first model of the list");
    assert_eq!(first.operations, [Operation::Chat, Operation::Responses]);
    let million = Usage { input_tokens: 1_000_000, output_tokens: 1_000_000, ..Usage::default() };
    assert_eq!(first.prices.list.base.cost(&million), Nanousd::new(750_000_000), "$0.15 and $0.60");
    assert!(snapshot.model("text-embedding-3-small").is_some(), "embeddings are listed");
    let id_of = |name: &str| snapshot.model(name).map(|model| &*model.id);
    assert_eq!(id_of("claude-haiku-4-5"), Some("claude-haiku-4-5"), "an exact id goes first");
    assert_eq!(id_of("claude-haiku-4-5-20251001"), Some("claude-haiku-4-5-20*"));
    assert_eq!(id_of("claude-haiku-4-5-20*"), None, "a pattern is no name");
    assert_eq!(id_of("claude-haiku-9"), None, "what nobody has a price for is not listed");
}

#[test]
fn the_shipped_models_are_all_those_of_the_contract() {
    let text = fs::read_to_string(root().join("models.yaml")).expect("the shipped file");
    let ids: HashSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("  ")?.strip_suffix(':'))
        .filter(|id| !id.starts_with([' ', '#']))
        .collect();
    let contract = [
        "qf-image-2.0",
        "qf-image-2.0-pro",
        "qf-image-max",
        "qf-image-edit",
        "qf-image-edit-plus",
        "qf-image-edit-max",
        "pimg-2",
        "pimg-1",
        "dle-2",
        "vf2.6-t2v",
        "vf2.7-t2v",
        "vf2.7-t2v-2026-04-25",
        "vf2.5-t2v-preview",
        "vf2.6-i2v",
        "vf2.6-i2v-flash",
        "vf2.7-i2v",
        "vf2.7-i2v-2026-04-25",
        "vf2.5-i2v-preview",
        "vf2.6-r2v",
        "vf2.6-r2v-flash",
        "vf2.7-r2v",
        "df-sf-2-0-260128",
        "df-sf-2-0-fast-260128",
        "df-sf-2-0-mini-260615",
        "sf-1-5-pro-251215",
        "sf-1-0-pro-250528",
        "sf-1-0-pro-fast-251015",
        "gif-video",
        "gif-video-1.5-preview",
        "text-embedding-v4",
        "text-embedding-004",
        "gmn-embedding-001",
        "gmn-embedding-2-preview",
        "vyg-4-large",
        "vyg-4",
        "vyg-4-lite",
        "qf3-tts-flash",
        "qf3-tts-instruct-flash",
    ];
    let missing: Vec<_> = contract.iter().filter(|id| !ids.contains(*id)).collect();
    assert!(missing.is_empty(), "models.yaml lacks {missing:?}");
}

#[test]
fn nothing_in_the_environment_switches_every_shipped_upstream_off() {
    let loaded = config::load_with(&Sources::Embedded, &Overrides::default(), &|_| None);
    let (snapshot, warnings) = loaded.unwrap_or_else(|errors| panic!("{}", rendered(&errors)));
    assert!(snapshot.upstreams.is_empty() && snapshot.models.is_empty());
    let off: Vec<_> = warnings.iter().filter(|w| w.message.contains("switched off")).collect();
    assert_eq!(off.len(), 1, "one warning for all upstreams:\n{}", rendered(&warnings));
    assert!(off[0].message.starts_with("15 upstreams are switched off: "), "{}", off[0].message);
    let named = off[0].message.matches(" is not set").count();
    assert_eq!(named, 15, "each with its variable: {}", off[0].message);
    assert!(snapshot.admin.token.is_none(), "an empty token is none");
}

#[test]
fn one_simulated_server_stands_for_every_upstream_and_needs_no_environment() {
    let address = "127.0.0.1:4321".parse().expect("an address");
    let overrides = Overrides {
        listen: Some("127.0.0.1:0".parse().expect("an address")),
        data_dir: Some(PathBuf::from("/tmp/elsewhere")),
        every_upstream_at: Some(address),
        ..Overrides::default()
    };
    let loaded = config::load_with(&Sources::Embedded, &overrides, &|_| None);
    let (snapshot, warnings) = loaded.unwrap_or_else(|errors| panic!("{}", rendered(&errors)));
    assert!(warnings.is_empty(), "the demo begins with warnings:\n{}", rendered(&warnings));
    assert_eq!(snapshot.upstreams.len(), 15, "none is switched off");
    let qwen = &snapshot.upstreams["qwen"];
    let to = &qwen.destination;
    assert_eq!((qwen.is_tls(), to.host.as_str(), to.port), (false, "127.0.0.1", 4321));
    assert_eq!(qwen.path_prefix, "/compatible-mode/v1", "the path prefix is kept");
    let secrets: Vec<&str> = qwen.credentials.iter().flat_map(Credential::secrets).collect();
    assert_eq!(secrets, ["simulated-upstream-credential"]);
    assert_eq!(snapshot.store.data_dir, Path::new("/tmp/elsewhere"));
    assert_eq!(snapshot.listeners.len(), 1, "one listener replaces those of the file");
}

/// A model passes what its own entry and all of its upstreams pass.
#[test]
fn a_model_lets_through_what_all_of_its_upstreams_do() {
    let upstream = |name: &str, rest: &str| {
        format!("  {name}: {{ protocol: openai, base_url: \"http://{name}/v1\", {rest} }}\n")
    };
    let routes = format!(
        "upstreams:\n{}{}",
        upstream("a", "pass_fields: [x, y], pass_tools: [t], pass_headers: [X-A]"),
        upstream("b", "pass_fields: [y, z], pass_content: [c]"),
    );
    let model = |targets: &str, rest: &str| {
        format!(
            "    operations: [chat]\n    targets: [{targets}]\n    free: true\n    limits: {{ context_tokens_max: 9, output_tokens_max: 9 }}\n{rest}"
        )
    };
    let both = "{ upstream: a }, { upstream: b }";
    let own = "    pass_fields: [own]\n    pass_headers: [x-own, \"anthropic-beta: b-1\"]\n    reasoning: false\n";
    let models =
        format!("models:\n  m:\n{}  n:\n{}", model(both, own), model("{ upstream: a }", ""));
    let snapshot = loads(&routes, &models);
    let limits = |name: &str| snapshot.model(name).expect("listed").limits.clone();
    let (m, n) = (limits("m"), limits("n"));
    assert_eq!(m.pass.fields, ["own", "y"]);
    assert!(m.pass.tools.is_empty() && m.pass.content.is_empty() && !m.reasoning, "{m:?}");
    assert_eq!(
        (n.pass.fields.as_slice(), n.pass.tools.as_slice()),
        (&["x", "y"].map(str::to_owned)[..], &["t".to_owned()][..])
    );
    assert!(n.reasoning, "unless it is said");
    let targets = &snapshot.model("m").expect("listed").targets;
    let headers: Vec<_> =
        targets.iter().map(|target| target.pass_headers.names.join(" ")).collect();
    assert_eq!(headers, ["x-own x-a", "x-own"], "each upstream gets its own");
    assert_eq!(targets[1].pass_headers.betas, ["b-1"]);
}

/// An entry that is accepted has its effect; one that can have none, or must not have it, is told of.
#[test]
fn entries_of_what_is_let_through_are_checked_with_their_stars() {
    let model = |operations: &str, target: &str, more: &str| {
        format!(
            "models:\n  m:\n    operations: [{operations}]\n    targets: [{{ upstream: {target} }}]\n    free: true\n{more}"
        )
    };
    let tokens = "    limits: { context_tokens_max: 9, output_tokens_max: 9 }\n";
    let seconds = "    limits: { seconds_max: 9 }\n";
    let upstreams = "upstreams:
  openai: { protocol: openai, base_url: 'http://a/v1' }
  dashscope: { protocol: dashscope, base_url: 'http://b' }
  google: { protocol: gemini, base_url: 'http://c/v1beta' }\n";
    let outcome = |routes: &str, models: &str| match load(routes.as_bytes(), models.as_bytes()) {
        Ok((_, notes)) if notes.is_empty() => "ok".to_owned(),
        Ok((_, notes)) => format!("warned: {}", rendered(&notes)),
        Err(notes) => format!("refused: {}", rendered(&notes)),
    };
    for (operations, target, limits, entry, expected) in [
        ("video", "dashscope", seconds, "parameters.*", "ok"),
        ("video", "dashscope", seconds, "parameters.x_*", "ok"),
        ("video", "dashscope", seconds, "style", "ok"),
        ("generate_content", "google", tokens, "generationConfig.*", "ok"),
        ("chat", "openai", tokens, "x_*", "ok"),
        ("chat", "openai", tokens, "parameters.*", "warned: "),
        ("chat", "openai", tokens, "stream_options.x", "warned: "),
        ("chat", "openai", tokens, "background", "refused: "),
        ("chat", "openai", tokens, "back*", "refused: "),
        ("chat", "openai", tokens, "d*", "refused: "),
        ("chat", "openai", tokens, "*", "refused: "),
        ("chat", "openai", tokens, "a*b", "refused: "),
        ("video", "dashscope", seconds, "parameters.", "refused: "),
        ("video", "dashscope", seconds, ".x", "refused: "),
        ("video", "dashscope", seconds, "parameters..x", "refused: "),
    ] {
        let models = model(operations, target, &format!("{limits}    pass_fields: ['{entry}']\n"));
        let found = outcome(upstreams, &models);
        assert!(found.starts_with(expected), "{entry} of {operations}: {found}");
    }
    let chat = model("chat", "openai", tokens);
    for (list, entry, expected) in [
        ("pass_tools", "web_search*", "ok"),
        ("pass_tools", "*", "refused: "),
        ("pass_content", "video*", "ok"),
        ("pass_content", "a b", "refused: "),
        ("pass_headers", "x-vendor-*", "ok"),
        ("pass_headers", "x-*", "refused: "),
        ("pass_headers", "a*", "refused: "),
        ("pass_headers", "'anthropic-beta: x-1'", "ok"),
        ("pass_headers", "'anthropic-beta: x*'", "refused: "),
        ("pass_response_headers", "x-vendor-*", "ok"),
        ("pass_response_headers", "x-toll*", "refused: "),
        ("pass_response_headers", "x-tollgate-model", "refused: "),
        ("pass_response_headers", "x-acc*", "refused: "),
        ("leave_out_fields", "seed", "ok"),
        ("leave_out_fields", "see*", "refused: "),
        ("leave_out_fields", "stream_options.x", "refused: "),
    ] {
        let listed = format!("base_url: 'http://a/v1', {list}: [{entry}]");
        let found = outcome(&upstreams.replacen("base_url: 'http://a/v1'", &listed, 1), &chat);
        assert!(found.starts_with(expected), "{list}: {entry}: {found}");
    }
}

/// Several upstreams together pass the intersection of their lists, however it is written.
#[test]
fn of_two_entries_the_narrower_one_is_in_both_lists() {
    let upstream = |name: &str, fields: &str| {
        format!(
            "  {name}: {{ protocol: openai, base_url: 'http://{name}/v1', pass_fields: [{fields}] }}\n"
        )
    };
    let routes = format!(
        "upstreams:\n{}{}",
        upstream("a", "x_*, y_one, z_*, 'p.*'"),
        upstream("b", "x_one, y_*, q, 'p*'"),
    );
    let models = "models:
  m:
    operations: [chat]
    targets: [{ upstream: a }, { upstream: b }]
    free: true
    limits: { context_tokens_max: 9, output_tokens_max: 9 }\n";
    let snapshot = loads(&routes, models);
    assert_eq!(snapshot.model("m").expect("listed").limits.pass.fields, ["y_one", "x_one"]);
}

#[test]
fn the_committed_schemas_are_those_of_the_code() {
    for (name, schema) in [("routes", config::routes_schema()), ("models", config::models_schema())]
    {
        let path = root().join(format!("docs/schema/{name}.schema.json"));
        let current = format!("{}\n", serde_json::to_string_pretty(&schema).expect("JSON"));
        if renews_expectations() {
            fs::write(&path, &current).expect("the schema is written");
        }
        let committed = fs::read_to_string(&path).expect("a committed schema");
        assert_eq!(committed, current, "run this test with UPDATE_EXPECTED=1 to renew {name}");
    }
}

#[test]
fn every_valid_case_loads() {
    let cases = cases("valid");
    for path in &cases {
        let case = fs::read_to_string(path).expect("text");
        let (routes, models) = split(&case);
        if let Err(errors) = load(routes.as_bytes(), models.as_bytes()) {
            panic!("{}:\n{}", path.display(), rendered(&errors));
        }
    }
    assert_eq!(cases.len(), 7, "the number of files in tests/config/valid");
}

/// Each case of `tests/config/invalid` is refused with exactly the text beside it.
#[test]
fn every_invalid_case_is_refused_as_expected() {
    let cases = cases("invalid");
    let mut differing = Vec::new();
    for path in &cases {
        let case = fs::read(path).expect("bytes");
        let text = String::from_utf8_lossy(&case);
        // A case that is not text is one file, not two.
        let (routes, models) = match std::str::from_utf8(&case) {
            Ok(_) => {
                let (routes, models) = split(&text);
                (routes.as_bytes(), models.as_bytes())
            }
            Err(_) => (case.as_slice(), MINIMAL_MODELS.as_bytes()),
        };
        let Err(errors) = load(routes, models) else { panic!("{} was accepted", path.display()) };
        let found = format!("{}\n", rendered(&errors));
        let expected_path = path.with_extension("stderr");
        if renews_expectations() {
            fs::write(&expected_path, &found).expect("the expectation is written");
        }
        let expected = fs::read_to_string(&expected_path).unwrap_or_default();
        if found != expected {
            differing.push(format!("{}:\n{found}\nexpected:\n{expected}", path.display()));
        }
    }
    let hint = "UPDATE_EXPECTED=1 renews what is expected";
    assert!(differing.is_empty(), "{hint}\n{}", differing.join("\n"));
    assert_eq!(cases.len(), 53, "the number of files in tests/config/invalid");
}

#[test]
fn ten_errors_in_ten_places_are_ten_diagnostics() {
    let routes = "listners: []
admin: { address: localhost:9090 }
limits: { body_max: 64MB, body_timeout: 60 }
upstreams:
  openai: { protocol: opnai, base_url: 'https://u:p@x' }
  other: { protocol: openai, base_url: 'https://x', credential: '${NOT_SET}' }
";
    let models = "models:
  a: { operations: [chta], targets: [{ upstream: other }] }
  b:
    operations: [chat]
    targets: [{ upstream: otter }]
    prices: { input_per_1m_tokens: -1, output_per_1m_tokens: 1 }
  c:
    operations: [chat]
    targets: [{ upstream: otter }]
    prices: { input_per_1m_tokens: 1, output_per_1m_tokens: 1 }
    limits: { context_tokens_max: 0, output_tokens_max: 100 }
  d:
    operations: [chat]
    targets: [{ upstream: otter }]
    limits: { context_tokens_max: 1000, output_tokens_max: 100 }
";
    let errors = load(routes.as_bytes(), models.as_bytes()).expect_err("ten errors and more");
    let text = rendered(&errors);
    for expected in [
        "unknown field `listners`",
        "127.0.0.1:9090",
        "MiB",
        "`60s`",
        "did you mean `openai`",
        "holds no credentials",
        "`NOT_SET` is not set",
        "did you mean `chat`",
        "negative",
        "`0` is out of range",
        "there is no upstream `otter`",
        "no price for `chat`",
    ] {
        assert!(text.contains(expected), "{expected:?} is not in\n{text}");
    }
    assert!(errors.iter().all(|error| error.place.is_some()), "each has its place:\n{text}");
}

#[test]
fn secrets_are_masked_wherever_they_could_be_printed() {
    let routes = "admin: { token: canary-admin-token }
upstreams:
  openai:
    protocol: openai
    base_url: https://api.openai.com/v1
    credential: ${CANARY_KEY}
";
    let snapshot = loads(routes, MINIMAL_MODELS);
    let shown = format!("{snapshot:?}");
    assert!(!shown.contains("canary-admin-token") && !shown.contains("value-of-CANARY"), "{shown}");

    let wrong = "admin: { token: canary-one, adress: 1 }
upstreams:
  openai: { protocol: openai, base_url: 'https://u:canary-two@x', credential: canary-three four }
  other: { protocol: openai, base_url: 'https://x?key=canary-four', credential: 'canary\\tfive' }
";
    let unparsable = "upstreams:\n  openai:\n    credential: \"sk-canary-six\n";
    let same_line = "upstreams: { openai: { credential: canary-seven, credential: canary-eight } }";
    for (wrong, expected) in [(wrong, 3), (unparsable, 1), (same_line, 1)] {
        let errors = load(wrong.as_bytes(), MINIMAL_MODELS.as_bytes()).expect_err("errors");
        let text = format!("{}\n{errors:?}", rendered(&errors));
        assert!(!text.contains("canary"), "a diagnostic shows a secret:\n{text}");
        assert_eq!(errors.len(), expected, "{text}");
    }
}

#[test]
fn a_model_overrides_rules_of_holds_one_by_one() {
    let case = fs::read_to_string(root().join("tests/config/valid/holds.yaml")).expect("the case");
    let (routes, models) = split(&case);
    let snapshot = loads(routes, models);
    let rules = snapshot.holds.with(&snapshot.models[0].holds);
    assert_eq!(snapshot.holds.means, [Means::Count, Means::Rolling]);
    assert_eq!(snapshot.holds.wait, Duration::from_secs(30));
    assert_eq!((rules.means.len(), rules.wait, rules.output_floor), (0, Duration::ZERO, 256));
    assert_eq!((rules.slice, rules.count_timeout), (2048, Duration::from_millis(500)));
    assert_eq!(loads(MINIMAL_ROUTES, MINIMAL_MODELS).holds, HoldRules::default());
}

#[test]
fn numbers_are_read_without_a_float() {
    for (typed, nanousd) in [
        ("0.1", 100_000_000),
        ("0.0375", 37_500_000),
        ("1e-3", 1_000_000),
        ("0.00000001", 10),
        ("12.3456789", 12_345_678_900),
        ("'12.3456789'", 12_345_678_900),
        ("'${PRICE:-0.3}'", 300_000_000),
        ("3", 3_000_000_000),
        ("0.000000001", 1),
    ] {
        let models = MINIMAL_MODELS.replace("0.15", typed);
        let input = loads(MINIMAL_ROUTES, &models).models[0].prices.list.base.input;
        assert_eq!(
            input.femtousd(),
            nanousd,
            "{typed} dollars a million, in femto-dollars for one"
        );
    }
}

#[test]
fn a_cached_token_costs_what_a_plain_one_does_unless_the_file_says_otherwise() {
    let plain = loads(MINIMAL_ROUTES, MINIMAL_MODELS).models[0].prices.list.base;
    assert_eq!((plain.cache_read, plain.cache_write_1h), (plain.input, plain.input));
    let models = MINIMAL_MODELS.replace("{ input", "{ cache_write_per_1m_tokens: 0.2, input");
    let prices = loads(MINIMAL_ROUTES, &models).models[0].prices.list.base;
    assert_eq!(prices.cache_write.femtousd(), 200_000_000);
    assert_eq!(prices.cache_write_1h, prices.cache_write, "an hour costs what five minutes do");
}

#[test]
fn targets_that_cost_least_come_first_where_that_is_preferred() {
    let targets = "[
      { upstream: openai, model: unknown },
      { upstream: openai, model: dear, cost: { of: list, times: 2 } },
      { upstream: openai, model: cheap, cost: { input_per_1m_tokens: 0.1, output_per_1m_tokens: 0.6 } },
      { upstream: openai, model: cheap-too, cost: { input_per_1m_tokens: 0.1, output_per_1m_tokens: 0.6 } },
      { upstream: openai, model: reserve, priority: 1, cost: { of: list, times: 0 } },
    ]";
    let models = MINIMAL_MODELS.replace("[{ upstream: openai }]", targets);
    let ranks = |routes: &str| -> Vec<(u32, String)> {
        let snapshot = loads(routes, &models);
        let targets = snapshot.models[0].targets.iter();
        targets.map(|one| (one.priority, one.model.clone().unwrap_or_default())).collect()
    };
    let routes = format!("{MINIMAL_ROUTES}balancing: {{ prefer: least_cost }}\n");
    let expected = [(0, "cheap"), (0, "cheap-too"), (1, "dear"), (2, "unknown"), (3, "reserve")];
    assert_eq!(ranks(&routes), expected.map(|(rank, name)| (rank, name.to_owned())));
    let typed = ranks(MINIMAL_ROUTES).into_iter().map(|(priority, _)| priority);
    assert_eq!(typed.collect::<Vec<_>>(), [0, 0, 0, 0, 1], "else they stay as they are");
}

#[test]
fn a_byte_order_mark_and_line_ends_of_other_systems_are_read() {
    let routes = format!("\u{feff}{}", MINIMAL_ROUTES.replace('\n', "\r\n"));
    assert_eq!(loads(&routes, MINIMAL_MODELS).models.len(), 1);
}

#[test]
fn a_reload_is_whole_or_not_at_all() {
    let directory = tempfile::tempdir().expect("a directory");
    let (routes, models) = (directory.path().join("r.yaml"), directory.path().join("m.yaml"));
    let plain = MINIMAL_ROUTES.replace("${OPENAI_API_KEY}", "sk-literal");
    fs::write(&routes, &plain).expect("written");
    fs::write(&models, MINIMAL_MODELS).expect("written");
    let sources = Sources::Files { routes: routes.clone(), models: models.clone() };
    let (snapshot, _) = config::load(&sources, &Overrides::default()).expect("in order");
    let handle = ConfigHandle::new(snapshot, sources, Overrides::default());
    let first = handle.load();

    fs::write(&models, MINIMAL_MODELS.replace("0.15", "abc")).expect("written");
    let errors = handle.reload().expect_err("a price that is none");
    assert_eq!(errors.len(), 1, "{}", rendered(&errors));
    assert_eq!(handle.load().hash, first.hash, "the last good configuration stays");

    fs::write(&models, MINIMAL_MODELS.replace("  m:", "  n:")).expect("written");
    fs::write(&routes, format!("{plain}admin: {{ address: 127.0.0.1:1 }}\n")).expect("written");
    let reloaded = handle.reload().expect("in order");
    assert_eq!(reloaded.restart_only, ["admin.address"], "named, since it has no effect yet");
    assert!(handle.load().model("n").is_some() && first.model("n").is_none());

    fs::write(&routes, &plain).expect("written");
    let again = handle.reload().expect("in order");
    assert!(again.restart_only.is_empty(), "it is what the process started with again");
}

#[test]
fn a_certificate_is_looked_for_beside_the_file_that_names_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let (routes, models) = (directory.path().join("r.yaml"), directory.path().join("m.yaml"));
    let tls =
        "listeners: [{ address: 127.0.0.1:0, tls: { certificate: tls/c.pem, key: tls/k.pem } }]";
    fs::write(&routes, format!("{tls}\n{MINIMAL_ROUTES}")).expect("written");
    fs::write(&models, MINIMAL_MODELS).expect("written");
    fs::create_dir(directory.path().join("tls")).expect("a directory");
    let sources = Sources::Files { routes, models };
    let errors = config::load_with(&sources, &Overrides::default(), &env).expect_err("no files");
    assert_eq!(errors.len(), 2, "one of each file: {}", rendered(&errors));
    for (from, to) in [("server.pem", "c.pem"), ("server-key.pem", "k.pem")] {
        let from = root().join("tests/config/tls").join(from);
        fs::copy(from, directory.path().join("tls").join(to)).expect("copied");
    }
    let (snapshot, _) = config::load_with(&sources, &Overrides::default(), &env).expect("in order");
    let shown = format!("{:?}", snapshot.listeners[0].tls);
    assert!(shown.contains("tls/c.pem") && shown.contains("not_after"), "{shown}");
}

#[test]
fn both_missing_files_are_reported() {
    let missing = |name: &str| PathBuf::from("no/such").join(name);
    let both = (missing("routes.yaml"), missing("models.yaml"));
    let sources = Sources::Files { routes: both.0, models: both.1 };
    let errors = config::load(&sources, &Overrides::default()).expect_err("no files");
    assert_eq!(errors.len(), 2, "{}", rendered(&errors));
    assert!(errors.iter().all(|error| error.message.contains("cannot be read")));
}

/// A list of prompts that lacks one leads an operator to a model that refuses its customers.
#[test]
fn lists_of_prompts_in_the_reference_are_whole() {
    let page = fs::read_to_string(root().join("docs/configuration.md")).expect("the reference");
    let row = |begin: &str| {
        let row = page.lines().find(|line| line.starts_with(begin));
        row.unwrap_or_else(|| panic!("no row {begin}"))
    };
    // What is said of prompts is said of all of them.
    // Those that can be translated over Bedrock, which is nobody's own.
    let is_prompt = |operation: &Operation| {
        tollgate::protocols::bridge(*operation, Dialect::Bedrock, &[Operation::Chat]).is_some()
    };
    let prompts: Vec<Operation> = Operation::ALL.into_iter().filter(is_prompt).collect();
    assert_eq!(prompts.len(), 4, "{prompts:?}");
    for begin in ["| `input_tokens_above` |", "| `thinking` |", "| `context_tokens_max` |"] {
        for operation in &prompts {
            let row = row(begin);
            assert!(row.contains(&format!("`{operation}`")), "{operation} is not in {row}");
        }
    }
}

/// Every YAML block of the reference is a configuration, with the minimal file for the other half.
#[test]
fn every_example_of_the_reference_loads() {
    let read = |page: &str| fs::read_to_string(root().join(page)).expect("the reference");
    let text = read("docs/configuration.md")
        + &read("docs/translation.md")
        + &read("docs/how-to/small-balances.md");
    let blocks: Vec<&str> =
        text.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    let tls = root().join("tests/config/tls");
    let (certificate, key) = (tls.join("server.pem"), tls.join("server-key.pem"));
    let (certificate, key) = (certificate.to_string_lossy(), key.to_string_lossy());
    for block in &blocks {
        let block = ["tls/tls.crt", "client.pem", "corp-ca.pem"]
            .iter()
            .fold((*block).to_owned(), |block, file| {
                block.replace(&format!("/etc/tollgate/{file}"), &certificate)
            });
        let block = ["tls/tls.key", "client-key.pem"]
            .iter()
            .fold(block, |block, file| block.replace(&format!("/etc/tollgate/{file}"), &key));
        if block.contains("models:\n") {
            let upstreams = "
  anthropic: { protocol: anthropic, base_url: 'https://x' }
  azure: { protocol: openai, base_url: 'https://x' }
  xai: { protocol: xai, base_url: 'https://x' }
  bedrock: { protocol: bedrock, base_url: 'https://x' }
";
            loads(&format!("{}{}", MINIMAL_ROUTES.trim_end(), upstreams), &block);
        } else if block.contains("upstreams:\n") {
            let name = block.split("upstreams:\n").nth(1).and_then(|rest| rest.split(':').next());
            let models = MINIMAL_MODELS.replace("openai", name.expect("a name").trim());
            loads(&block, &models);
        } else {
            loads(&format!("{block}{MINIMAL_ROUTES}"), MINIMAL_MODELS);
        }
    }
    assert_eq!(blocks.len(), 47, "the number of examples in the pages");
}

/// The loader must come to an end without a panic, whatever the bytes; proptest prints its seed.
mod hostile {
    use super::*;

    fn yaml_like() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            "[ -~\n\t]{0,6}",
            prop::sample::select(vec![
                "upstreams",
                "models",
                "openai",
                ": ",
                "\n",
                "\n  ",
                "- ",
                "{",
                "}",
                "[",
                "]",
                "&a ",
                "*a",
                "<<: ",
                "!!str ",
                "? ",
                "|",
                ">-\n",
                "\"",
                "'",
                "#",
                "---\n",
                "...\n",
                "${",
                "$",
                "%",
                "\u{feff}",
                "\u{85}",
                "\0",
                "é",
                "1e999",
                ".inf",
                "~",
                "\r",
                "\r\n",
                "{file: ",
                "credential",
                "prices",
                "input_per_1m_tokens",
                "targets",
            ])
            .prop_map(str::to_owned),
        ];
        prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..Default::default() })]

        #[test]
        fn no_bytes_make_the_loader_panic(
            routes in prop::collection::vec(any::<u8>(), 0..200),
            models in yaml_like(),
        ) {
            drop(load(&routes, models.as_bytes()));
            drop(load(models.as_bytes(), &routes));
        }

        #[test]
        fn no_edit_of_a_good_file_makes_the_loader_panic(
            at in any::<prop::sample::Index>(),
            length in 0..12_usize,
            put in yaml_like(),
        ) {
            for (text, is_routes) in [(MINIMAL_ROUTES, true), (MINIMAL_MODELS, false)] {
                let start = at.index(text.len());
                let end = (start + length).min(text.len());
                let edited = format!("{}{put}{}", &text[..start], &text[end..]);
                let result = if is_routes {
                    load(edited.as_bytes(), MINIMAL_MODELS.as_bytes())
                } else {
                    load(MINIMAL_ROUTES.as_bytes(), edited.as_bytes())
                };
                if let Err(errors) = result {
                    let errors = errors.iter().filter(|e| e.severity == Severity::Error).count();
                    prop_assert!(errors > 0, "refused without an error:\n{edited}");
                }
            }
        }
    }
}
