//! Files that are made to take long: what is read, said and shown of them grows with their length.

use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, Instant};

use super::*;

/// A shape of hostile files.
struct Shape {
    name: &'static str,
    routes: Generator,
    models: Generator,
    entries: usize,
}

const ROUTES: &str = "\
listeners: [{ address: '127.0.0.1:0' }]
routes: [{ path: /v1/chat/completions, operation: chat }]
upstreams: { a: { base_url: 'https://a.example.com/v1', protocol: openai, credential: x } }
";

fn sound_routes(_: usize) -> String {
    ROUTES.to_owned()
}

fn no_models(_: usize) -> String {
    "models: {}\n".to_owned()
}

/// `count` entries, one after the other.
fn many(before: &str, count: usize, entry: impl Fn(usize) -> String, after: &str) -> String {
    let mut text = before.to_owned();
    (0..count).for_each(|number| text.push_str(&entry(number)));
    text + after
}

const SHAPES: [Shape; 16] = [
    Shape {
        name: "unknown fields on one line",
        routes: |n| many("{", n, |i| format!("f{i}: 1, "), "}\n"),
        models: no_models,
        entries: 8_000,
    },
    Shape {
        name: "upstreams at fault on one line",
        routes: |n| many("upstreams: {", n, |i| format!("u{i}: {{ base_url: 5 }}, "), "}\n"),
        models: no_models,
        entries: 1_600,
    },
    Shape {
        name: "multibyte characters before each fault",
        routes: |n| many("{", n, |i| format!("é日🦀{i}: 1, "), "}\n"),
        models: no_models,
        entries: 1_600,
    },
    Shape {
        name: "models at fault, a line each",
        routes: sound_routes,
        models: |n| {
            many("models:\n", n, |i| format!("  m{i}: {{ operations: [chta], nothing: 1 }}\n"), "")
        },
        entries: 1_600,
    },
    Shape {
        name: "models of misspelt upstreams",
        routes: |n| {
            many(
                "upstreams:\n",
                n,
                |i| {
                    format!(
                        "  up{i}: {{ base_url: 'https://a.example.com/v1', protocol: openai, credential: x }}\n"
                    )
                },
                "listeners: [{ address: '127.0.0.1:0' }]\n\
                 routes: [{ path: /v1/chat/completions, operation: chat }]\n",
            )
        },
        models: |n| {
            many(
                "models:\n",
                n,
                |i| {
                    format!(
                        "  m{i}: {{ operations: [chat], targets: [{{ upstream: pu{i}, model: m }}] }}\n"
                    )
                },
                "",
            )
        },
        entries: 800,
    },
    Shape {
        name: "anchors and aliases",
        routes: |n| many("a: &a [1]\nb: [", n, |_| "*a, ".to_owned(), "]\n"),
        models: no_models,
        entries: 1_600,
    },
    Shape {
        name: "a bomb of aliases",
        routes: |n| {
            let mut text = "a0: &a0 [x, x]\n".to_owned();
            for i in 1..n.min(60) {
                writeln!(text, "a{i}: &a{i} [*a{0}, *a{0}, *a{0}]", i - 1).expect("written");
            }
            text
        },
        models: no_models,
        entries: 60,
    },
    Shape {
        name: "duplicate keys on one line",
        routes: |n| many("{", n, |_| "a: 1, ".to_owned(), "}\n"),
        models: no_models,
        entries: 1_600,
    },
    Shape {
        name: "deep nesting",
        routes: |n| "[".repeat(n) + &"]".repeat(n),
        models: no_models,
        entries: 20_000,
    },
    Shape {
        name: "a huge key with many values below it",
        routes: |n| {
            format!("? {}\n: {}", "k".repeat(n * 10), many("[", n, |_| "1, ".to_owned(), "]\n"))
        },
        models: no_models,
        entries: 1_600,
    },
    Shape {
        name: "long keys as deep as may be",
        routes: |n| {
            let before = many("", 30, |_| format!("{{ {}: ", "k".repeat(500)), "[");
            many(&before, n, |_| "1, ".to_owned(), &("]".to_owned() + &"}".repeat(30)))
        },
        models: no_models,
        entries: 1_600,
    },
    Shape {
        name: "a huge value that is no word",
        routes: |n| format!("upstreams: {{ a: {{ protocol: {} }} }}\n", "v".repeat(n * 100)),
        models: no_models,
        entries: 1_600,
    },
    Shape {
        name: "number signs on one line",
        routes: |n| many("{", n, |i| format!("'# {i}': 'a # b', "), "}\n"),
        models: no_models,
        entries: 1_600,
    },
    Shape {
        name: "blanks on one line",
        routes: |n| many("{", n, |i| format!("f{i}:             1 ,     "), "}\n"),
        models: no_models,
        entries: 1_600,
    },
    Shape {
        name: "variables that are not set",
        routes: |n| {
            many(
                "upstreams:\n",
                n,
                |i| {
                    format!(
                        "  u{i}: {{ optional: true, base_url: 'https://a.example.com/v1', protocol: openai, credential: '${{K{i}}}' }}\n"
                    )
                },
                "",
            )
        },
        models: no_models,
        entries: 1_600,
    },
    Shape {
        name: "models that are in order",
        routes: sound_routes,
        models: |n| {
            many(
                "models:\n",
                n,
                |i| {
                    format!(
                        "  m{i}: {{ operations: [chat], targets: [{{ upstream: a, model: m{i} }}], prices: {{ input_per_1m_tokens: 1, output_per_1m_tokens: 2 }}, limits: {{ context_tokens_max: 1000, output_tokens_max: 100 }} }}\n"
                    )
                },
                "",
            )
        },
        entries: 800,
    },
];

/// Diagnostics of a shape with so many entries, and the time to find them.
fn check(shape: &Shape, entries: usize) -> (Vec<Diagnostic>, Duration) {
    let dir = tempfile::tempdir().expect("a directory");
    let (routes, models) = (dir.path().join("routes.yaml"), dir.path().join("models.yaml"));
    fs::write(&routes, (shape.routes)(entries)).expect("written");
    fs::write(&models, (shape.models)(entries)).expect("written");
    let begun = Instant::now();
    let loaded = load_with(&Sources::Files { routes, models }, &Overrides::default(), &|_| None);
    let diagnostics = match loaded {
        Ok((_, diagnostics)) | Err(diagnostics) => diagnostics,
    };
    let rendered: usize = diagnostics.iter().map(|diagnostic| diagnostic.render().len()).sum();
    assert!(rendered < 4 << 20, "{}: {rendered} bytes are said", shape.name);
    (diagnostics, begun.elapsed())
}

/// Writes a file with so many entries.
type Generator = fn(usize) -> String;

/// Litellm's configurations that are made to take long.
const MIGRATIONS: [(&str, Generator); 5] = [
    ("deployments on one line", |n| {
        let entry = |i| {
            format!(
                "{{ model_name: m{i}, litellm_params: {{ model: openai/m{i}, nothing: 1, api_key: sk-{i} }} }}, "
            )
        };
        many("model_list: [", n, entry, "]\n")
    }),
    ("deployments of one model", |n| {
        let entry = |i| {
            format!("  - {{ model_name: m, litellm_params: {{ model: openai/m{i}, rpm: {i} }} }}\n")
        };
        many("model_list:\n", n, entry, "")
    }),
    ("fields that nobody knows", |n| {
        many(
            "model_list: [{ model_name: m, litellm_params: { model: openai/m",
            n,
            |i| format!(", f{i}: x"),
            "} }]\n",
        )
    }),
    ("merge keys", |n| {
        let before = many("base: &base { z: 1", n, |i| format!(", a{i}: 1"), " }\nmore: {");
        many(
            &before,
            n,
            |i| format!("b{i}: 1, "),
            "<<: *base, <<: *base }\nmodel_list: [{ model_name: m, litellm_params: { model: openai/m } }]\n",
        )
    }),
    ("a bomb of aliases", |n| {
        let mut text = "a0: &a0 [x, x]\n".to_owned();
        for i in 1..n.min(60) {
            writeln!(text, "a{i}: &a{i} [*a{0}, *a{0}, *a{0}]", i - 1).expect("written");
        }
        text
    }),
];

/// Has `work` done with some entries and with eight times as many, which may take three times what that
/// is in a row: work that grows with the square takes sixty-four times as long. Other processes take
/// time as well, so there are several tries.
fn grows_with_its_input(name: &str, entries: usize, work: impl Fn(usize) -> Duration) {
    const FEWER: usize = 8;
    const TIMES_MAX: u32 = 24;
    let shortest = Duration::from_millis(40);
    let mut tries = Vec::new();
    let is_linear = (0..3).any(|_| {
        let (few, many) = (work(entries / FEWER).max(shortest), work(entries));
        tries.push((few, many));
        many < few * TIMES_MAX
    });
    assert!(is_linear, "{name}: eight times the entries took {tries:?}");
}

#[test]
fn what_a_check_does_grows_with_the_file_and_not_with_its_square() {
    for shape in &SHAPES {
        let diagnostics = check(shape, shape.entries / 2).0;
        assert!(diagnostics.len() <= 2 * 1_001, "{}: {} problems", shape.name, diagnostics.len());
        let excerpts = diagnostics.iter().filter_map(|found| found.place.as_ref());
        let longest = excerpts.map(|place| place.text.chars().count()).max().unwrap_or(0);
        assert!(longest <= 202, "{}: {longest} characters of a line are shown", shape.name);
        grows_with_its_input(shape.name, shape.entries, |entries| check(shape, entries).1);
    }
}

#[test]
fn what_a_migration_does_grows_with_the_file_and_not_with_its_square() {
    for (name, text) in MIGRATIONS {
        let migrate = |entries: usize| {
            let (text, begun) = (text(entries), Instant::now());
            let (found, written) = match litellm("config.yaml", text.as_bytes()) {
                Ok(MigratedConfig { found, routes, models }) => {
                    (found, routes.len() + models.len())
                }
                Err(error) => (vec![*error], 0),
            };
            let rendered: usize = found.iter().map(|found| found.render().len()).sum();
            assert!(rendered < 64 * text.len() + 4096, "{name}: {rendered} bytes are said");
            assert!(written < 64 * text.len(), "{name}: {written} bytes are written");
            begun.elapsed()
        };
        grows_with_its_input(name, 1_600, migrate);
    }
}

/// A problem far into a long line is shown where it is, with what stands around it.
#[test]
fn a_long_line_is_cut_around_the_problem() {
    let before = "é".repeat(5_000);
    let routes = format!(
        "{{ console: {{ path: '{before}' }}, listeners: 5, mcp: {{ path: '{before}' }} }}\n"
    );
    let file = SourceFile { name: "routes.yaml", bytes: routes.as_bytes() };
    let overrides = Overrides::default();
    let diagnostics =
        compile_text(file, None, &overrides, &|_| None).expect_err("it is not in order");
    let found = diagnostics.iter().find(|found| found.message.contains("a list")).expect("that");
    let place = found.place.as_ref().expect("a place");
    let (before_it, _) = routes.split_once("5, mcp").expect("there");
    let column = before_it.chars().count() + 1;
    assert_eq!((place.line, place.column), (1, column));
    let rendered = found.render();
    assert!(rendered.contains(&format!("--> routes.yaml:1:{column}")), "{rendered}");
    let (source, marks) = rendered
        .lines()
        .zip(rendered.lines().skip(1))
        .find(|(line, _)| line.contains("listeners"))
        .expect("the line");
    let at = |line: &str, what: char| line.chars().position(|c| c == what);
    assert_eq!(at(source, '*'), at(marks, '^'), "{rendered}");
}

/// No text of a file steers the terminal of whoever checks it.
#[test]
fn nothing_of_a_file_steers_the_terminal() {
    let routes = "\"\\e[2J\\u202e\": 1\nlisteners: \"\\e]0;x\\a\"\n# \u{202e}\n";
    let file = SourceFile { name: "routes\u{1b}[2J.yaml", bytes: routes.as_bytes() };
    let overrides = Overrides::default();
    let diagnostics =
        compile_text(file, None, &overrides, &|_| None).expect_err("it is not in order");
    assert!(diagnostics.iter().any(|found| found.message.contains("\u{1b}[2J")), "{diagnostics:?}");
    for found in diagnostics {
        let text = found.render();
        let steering = text
            .chars()
            .filter(|c| *c != '\n')
            .find(|c| tollgate_types::printable::is_steering(*c));
        assert_eq!(steering, None, "{text:?}");
    }
}
