//! The files of `deploy/recipes/`: `tollgate check` reads each, and they say what `models.yaml` says.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tollgate::config::{self, Overrides, Sources};

/// How many there are.
const RECIPES: usize = 14;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The recipes, by their paths.
fn recipes() -> Vec<PathBuf> {
    let files = fs::read_dir(root().join("deploy/recipes")).expect("the directory");
    let files = files.map(|file| file.expect("a file").path());
    let mut recipes: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|it| it == "yaml")).collect();
    recipes.sort();
    recipes
}

/// Output of `tollgate check` for a file, with its variables set.
fn check(routes: &Path, more: &[&str]) -> Output {
    let text = fs::read_to_string(routes).expect("text");
    let names = text.split("${").skip(1).filter_map(|rest| rest.split(['}', ':']).next());
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.arg("check").arg("--routes").arg(routes).args(more);
    command.envs(names.map(|name| (name.to_owned(), format!("value-of-{name}"))));
    command.output().expect("the binary runs")
}

#[test]
fn check_reads_each_recipe_as_the_only_file() {
    let recipes = recipes();
    assert_eq!(recipes.len(), RECIPES, "{recipes:?}");
    let listed = fs::read_to_string(root().join("deploy/recipes/README.md")).expect("text");
    for recipe in &recipes {
        let checked = check(recipe, &[]);
        let (text_found, errors) =
            (String::from_utf8_lossy(&checked.stdout), String::from_utf8_lossy(&checked.stderr));
        let name = recipe.file_name().expect("a name").to_string_lossy();
        assert!(checked.status.success(), "{name}: {text_found}{errors}");
        assert!(
            text_found.contains("1 upstream,") && text_found.contains("; 0 warnings;"),
            "{name}: {text_found}{errors}"
        );
        assert_eq!(errors, "", "{name}");
        let row = format!("| [{name}]({name}) |");
        assert_eq!(listed.matches(&row).count(), 1, "{name} has one row in the list");
    }
    assert_eq!(listed.matches("\n| [").count(), RECIPES, "every row has a file");
}

#[test]
fn every_price_in_a_recipe_has_its_source_and_its_day() {
    for recipe in recipes() {
        let text = fs::read_to_string(&recipe).expect("text");
        let (_, models) = text.split_once("\nmodels:\n").expect("models");
        let is_free = models.matches("    free: true\n").count() > 0;
        let has_source =
            models.trim_start().starts_with("# Source: https://") && models.contains("2026");
        assert!(is_free != has_source, "{}", recipe.display());
        assert_eq!(is_free, !models.contains("prices"), "{}", recipe.display());
    }
}

#[test]
fn recipes_have_the_prices_and_the_settings_of_the_shipped_files() {
    let (shipped, _) = config::typed_models(&root().join("models.yaml")).expect("in order");
    let shipped: BTreeMap<_, _> =
        shipped.into_iter().map(|model| (model.id.clone(), model)).collect();
    let mut compared = 0;
    for recipe in recipes() {
        for model in config::typed_models(&recipe).expect("in order").0 {
            if let Some(other) = shipped.get(&model.id) {
                assert_eq!(model, *other, "{}", recipe.display());
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 12, "of DeepSeek, Moonshot, Zhipu, MiniMax and Mistral");
    let text = |path: &Path| fs::read_to_string(path).expect("text");
    let left_out = |path: &Path, name: &str| {
        let document: serde_yaml::Value = serde_yaml::from_str(&text(path)).expect("YAML");
        document["upstreams"][name]["leave_out_fields"].clone()
    };
    for name in ["deepseek", "moonshot", "zhipu", "minimax", "mistral"] {
        let recipe = root().join(format!("deploy/recipes/{name}.yaml"));
        let of_recipe = left_out(&recipe, name);
        assert_eq!(of_recipe, left_out(&root().join("routes.yaml"), name), "{name}");
    }
}

#[test]
fn models_are_in_one_of_two_files() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).expect("written");
        path
    };
    let recipe = fs::read_to_string(root().join("deploy/recipes/vllm.yaml")).expect("text");
    let (upstreams, listed) = recipe.split_once("\nmodels:\n").expect("models");
    let routes = file("routes.yaml", &recipe);
    let alone = check(&routes, &[]);
    assert!(alone.status.success(), "{alone:?}");
    let errors = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();

    // One file that is named as both is one file.
    let path = routes.to_str().expect("a path").to_owned();
    assert!(check(&routes, &["--models", &path]).status.success());

    let models = file("models.yaml", &format!("models:\n{listed}"));
    let both = check(&routes, &[]);
    assert!(!both.status.success(), "{both:?}");
    assert!(errors(&both).contains("there are models here and in"), "{}", errors(&both));

    // An error in the models of a recipe is shown where it is.
    let wrong = recipe.replace("free: true", "free: perhaps");
    fs::remove_file(&models).expect("removed");
    let routes = file("routes.yaml", &wrong);
    let output = check(&routes, &[]);
    let line = wrong.lines().position(|line| line == "    free: perhaps").expect("the line") + 1;
    assert!(errors(&output).contains(&format!("routes.yaml:{line}:")), "{}", errors(&output));

    let routes = file("routes.yaml", upstreams);
    let neither = check(&routes, &[]);
    assert!(errors(&neither).contains("models.yaml` cannot be read"), "{}", errors(&neither));
}

#[test]
fn one_file_is_described_and_reloaded_as_two_are() {
    let directory = tempfile::tempdir().expect("a directory");
    let routes = directory.path().join("routes.yaml");
    let models = directory.path().join("models.yaml");
    let recipe = fs::read_to_string(root().join("deploy/recipes/ollama.yaml")).expect("text");
    fs::write(&routes, &recipe).expect("written");
    let sources = Sources::Files { routes: routes.clone(), models: models.clone() };
    let load = || config::load(&sources, &Overrides::default()).expect("in order").0;
    let first = load();
    let (hash, described) = config::describe(&routes, &models).expect("in order");
    assert_eq!(hash, first.hash);
    assert_eq!(described, first.described, "the models are shown too");
    fs::write(&routes, recipe.replace("qwen3-8b:", "qwen3-small:")).expect("written");
    let second = load();
    assert_ne!(second.hash, first.hash);
    assert!(second.models_by_id.contains_key("qwen3-small"), "{:?}", second.models);
    assert_ne!(second.described, first.described);
}

#[test]
fn only_what_changes_nothing_can_be_left_out() {
    let directory = tempfile::tempdir().expect("a directory");
    let recipe = fs::read_to_string(root().join("deploy/recipes/groq.yaml")).expect("text");
    let routes = directory.path().join("routes.yaml");
    for field in ["tools", "n", "max_tokens", "response_format", "messages", "parallel_tool_calls"]
    {
        fs::write(&routes, recipe.replace("[logit_bias]", &format!("[{field}]"))).expect("written");
        let output = check(&routes, &[]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{field}");
        assert!(errors.contains(&format!("`{field}` cannot be left out")), "{errors}");
    }
}
