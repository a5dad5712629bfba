//! Deployment files: the systemd unit, the container file and the Kubernetes manifest match this build.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::harness::tool;
use serde::Deserialize as _;
use serde_yaml::Value;
use tollgate::config::snapshot::Snapshot;
use tollgate::config::{self, Overrides, Sources};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn text(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The configuration in two texts; what they take from the environment is there.
fn load(routes: &str, models: &str) -> Snapshot {
    let directory = tempfile::tempdir().expect("a directory");
    let file = |name: &str, text: &str| -> PathBuf {
        let path = directory.path().join(name);
        fs::write(&path, text).expect("written");
        path
    };
    let sources =
        Sources::Files { routes: file("routes.yaml", routes), models: file("models.yaml", models) };
    let set = |name: &str| Some(format!("value-of-{name}"));
    let loaded = config::load_with(&sources, &Overrides::default(), &set);
    loaded.unwrap_or_else(|errors| panic!("{errors:#?}")).0
}

/// How long a drain may take with the configuration that is shipped.
fn drain_max(snapshot: &Snapshot) -> Duration {
    // What is cut at the end of the grace gets a few seconds more.
    snapshot.shutdown_delay + snapshot.shutdown_grace + Duration::from_secs(10)
}

/// The values of a directive in the unit.
fn directives(unit: &str, name: &str) -> Vec<String> {
    let values = unit.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    values.map(str::to_owned).collect()
}

#[test]
fn the_unit_is_in_order_and_leaves_a_drain_its_time() {
    let unit = text("deploy/systemd/tollgate.service");
    let shipped = load(&text("routes.yaml"), &text("models.yaml"));
    for (name, expected) in [
        ("Type", "notify"),
        ("WatchdogSec", "30s"),
        ("ExecReload", "/bin/kill -HUP $MAINPID"),
        ("User", "tollgate"),
        ("NoNewPrivileges", "yes"),
        ("ProtectSystem", "strict"),
        ("StateDirectory", "tollgate"),
        ("LimitNOFILE", "1048576"),
    ] {
        assert_eq!(directives(&unit, name), [expected], "{name}");
    }
    let stop = directives(&unit, "TimeoutStopSec").concat();
    let minutes: u64 = stop.strip_suffix("min").and_then(|n| n.parse().ok()).expect("minutes");
    assert!(Duration::from_secs(minutes * 60) > drain_max(&shipped), "{stop}");

    let started = directives(&unit, "ExecStart").concat();
    let words: Vec<&str> = started.split(' ').collect();
    let (command, arguments) = words.split_first().expect("a command");
    takes_arguments(arguments);
    // systemd looks whether the program is there; the one of this build stands for it.
    let here = unit.replace(command, env!("CARGO_BIN_EXE_tollgate"));
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("tollgate.service");
    fs::write(&path, here).expect("written");
    for arguments in [&["verify"][..], &["security", "--offline=yes", "--threshold=20"]] {
        let output = tool("systemd-analyze").args(arguments).arg(&path).output();
        let output = output.expect("systemd-analyze runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && errors.is_empty(), "{arguments:?}: {output:?}");
    }
}

/// True if the binary takes these arguments: an unknown one is refused before files are opened.
fn takes_arguments(arguments: &[&str]) {
    let request = [arguments, &["--help"]].concat();
    let output = Command::new(env!("CARGO_BIN_EXE_tollgate")).args(&request).output();
    let output = output.expect("the binary runs");
    assert!(output.status.success(), "{request:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The instructions of the container file, without comments, lines joined.
fn instructions() -> Vec<(String, String)> {
    let file = text("deploy/container/Containerfile");
    let lines =
        file.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (instruction, rest) =
                line.split_once(' ').expect("an instruction and its arguments");
            (instruction.to_owned(), rest.to_owned())
        })
        .collect()
}

fn arguments_of<'a>(instructions: &'a [(String, String)], name: &str) -> Vec<&'a str> {
    instructions.iter().filter(|(found, _)| found == name).map(|(_, rest)| rest.as_str()).collect()
}

/// The arguments of an instruction in its JSON form.
fn exec_form(arguments: &str) -> Vec<String> {
    serde_json::from_str(arguments).unwrap_or_else(|error| panic!("{arguments}: {error}"))
}

#[test]
fn the_container_has_no_root_and_a_check_of_its_health() {
    let instructions = instructions();
    let one = |name: &str| match arguments_of(&instructions, name)[..] {
        [one] => one.to_owned(),
        ref several => panic!("{name}: {several:?}"),
    };
    assert_eq!(arguments_of(&instructions, "FROM").len(), 2, "a stage that builds, one that runs");
    assert_eq!(one("USER"), "10001:10001", "by number, so that runAsNonRoot can tell");
    assert_eq!(one("STOPSIGNAL"), "SIGTERM");
    let (_, check) = one("HEALTHCHECK")
        .split_once("CMD ")
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .expect("a command");
    assert_eq!(exec_form(&check), ["tollgate", "healthcheck"]);
    takes_arguments(&["healthcheck"]);
    assert_eq!(exec_form(&one("ENTRYPOINT")), ["tollgate"]);
    let command = exec_form(&one("CMD"));
    takes_arguments(&command.iter().map(String::as_str).collect::<Vec<_>>());
    let volume = one("VOLUME");
    assert_eq!(command.last(), Some(&volume), "the ledger is on the volume: the root is read-only");
}

/// The image's build context is sufficient: cargo and the compiler find every file. The command is the
/// README's.
#[test]
fn the_container_builds_from_what_it_copies() {
    let instructions = instructions();
    let copied: Vec<&str> = arguments_of(&instructions, "COPY");
    let context = tempfile::tempdir().expect("a directory");
    let mut from_context = 0;
    for arguments in copied.iter().filter(|arguments| !arguments.starts_with("--from")) {
        let mut sources: Vec<&str> = arguments.split(' ').collect();
        let target = sources.pop().expect("a target");
        for source in sources {
            let path = root().join(source);
            assert!(path.exists(), "COPY {source}: no such file");
            if !target.starts_with('/') {
                let status = Command::new("cp").arg("-r").arg(path).arg(context.path()).status();
                assert!(status.is_ok_and(|status| status.success()), "{source} is copied");
            }
            from_context += 1;
        }
    }
    assert!(from_context >= 7, "{copied:?}");
    // With a name that is no program's, cargo reads the manifest as for a build and goes no further.
    let output = Command::new(env!("CARGO"))
        .args(["check", "--offline", "--locked", "--bin", "none"])
        .current_dir(context.path())
        .output()
        .expect("cargo runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("no bin target named `none`"), "{errors}");
    let sources = ["src", "crates"].map(|directory| context.path().join(directory));
    let files = sources.iter().map(|directory| included(directory)).sum::<usize>();
    assert!(files >= 2, "files in the binary");

    let run = arguments_of(&instructions, "RUN");
    let build = run.iter().find(|command| command.starts_with("cargo build")).expect("a build");
    let shown = build.strip_suffix(" --locked").expect("the versions of Cargo.lock");
    assert!(
        text("docs/operations.md").contains(&format!("\n{shown}\n")),
        "the guide builds otherwise"
    );
    let from_build = copied.iter().find(|arguments| arguments.starts_with("--from=build"));
    assert!(from_build.expect("a copy").contains("/build/target/dist/tollgate "), "{copied:?}");
    // Rust's image has a C compiler, and the build needs nothing else.
    let builder = run.iter().take_while(|command| !command.starts_with("cargo build"));
    assert_eq!(builder.count(), 0, "{run:?} installs something before the build");
}

/// CMake is no part of a fresh machine with Rust and a C compiler (docs/adr/0030-crates-and-build.md).
#[test]
fn no_build_script_runs_cmake() {
    let packages = text("Cargo.lock");
    assert!(packages.contains("name = \"libz-ng-sys\""), "the lock file lists what is built");
    assert!(!packages.contains("name = \"cmake\""), "cargo tree -i cmake says what needs it");
    assert!(!text("README.md").contains("CMake") && !text(".ci/install").contains("cmake"));
}

/// How many files the sources below `directory` take into the binary; each must be in the context.
fn included(directory: &Path) -> usize {
    let mut found = 0;
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found += included(&path);
            continue;
        }
        // Tests are not part of the binary.
        if path.ends_with("tests.rs") {
            continue;
        }
        let code = fs::read_to_string(&path).unwrap_or_default();
        let code = code.split("#[cfg(test)]").next().unwrap_or_default();
        for mark in ["include_str!(\"", "include_bytes!(\""] {
            for rest in code.split(mark).skip(1) {
                let name = rest.split('"').next().unwrap_or_default();
                let file = path.parent().expect("a directory").join(name);
                assert!(file.exists(), "{} includes {name}, which is not copied", path.display());
                found += 1;
            }
        }
    }
    found
}

/// The documents of the manifest by kind and name.
fn manifest() -> Vec<Value> {
    let text = text("deploy/kubernetes/tollgate.yaml");
    let documents = serde_yaml::Deserializer::from_str(&text);
    documents.map(|one| Value::deserialize(one).expect("YAML")).collect()
}

fn find<'a>(documents: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let is_it = |one: &&Value| one["kind"] == kind && one["metadata"]["name"] == name;
    documents.iter().find(is_it).unwrap_or_else(|| panic!("no {kind} {name}"))
}

#[test]
fn the_manifest_runs_this_build_with_a_configuration_that_it_accepts() {
    let documents = manifest();
    assert_eq!(documents.len(), 6, "documents");
    assert!(documents.iter().all(|one| one["kind"] != "Secret"), "a secret in a file is none");
    for document in &documents {
        let namespaced = document["kind"] != "Namespace";
        assert!(document["apiVersion"].is_string(), "{document:?}");
        assert_eq!(document["metadata"]["namespace"] == "tollgate", namespaced, "{document:?}");
    }
    let data = &find(&documents, "ConfigMap", "tollgate")["data"];
    let file = |name: &str| data[name].as_str().unwrap_or_else(|| panic!("no {name}"));
    let snapshot = load(file("routes.yaml"), file("models.yaml"));
    assert!(!snapshot.models.is_empty(), "a model");

    let set = find(&documents, "StatefulSet", "tollgate");
    assert_eq!(set["spec"]["replicas"], 1, "the ledger belongs to one process");
    let pod = &set["spec"]["template"]["spec"];
    let grace = pod["terminationGracePeriodSeconds"].as_u64().expect("seconds");
    assert!(Duration::from_secs(grace) > drain_max(&snapshot), "{grace} s are less than a drain");
    let probe = &pod["containers"][0]["readinessProbe"];
    let noticed_after =
        probe["periodSeconds"].as_u64().zip(probe["failureThreshold"].as_u64()).expect("a probe");
    let noticed_after = Duration::from_secs(noticed_after.0 * noticed_after.1);
    assert!(snapshot.shutdown_delay > noticed_after, "the Service must look elsewhere first");
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["securityContext"]["runAsUser"], 10001, "the user of the image");
    let container = &pod["containers"][0];
    assert_eq!(container["envFrom"][0]["secretRef"]["name"], "tollgate");
    assert!(container["envFrom"][0]["secretRef"]["optional"].is_null(), "it must be there");
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    assert_eq!(container["securityContext"]["capabilities"]["drop"][0], "ALL");
    assert_eq!(container["image"], format!("tollgate:{}", env!("CARGO_PKG_VERSION")));
    let arguments = container["args"].as_sequence().expect("arguments");
    takes_arguments(&arguments.iter().map(|it| it.as_str().expect("text")).collect::<Vec<_>>());

    let port = |name: &str| {
        let ports = container["ports"].as_sequence().expect("ports");
        let found = ports.iter().find(|port| port["name"] == name).expect("the port");
        found["containerPort"].as_u64().and_then(|port| u16::try_from(port).ok())
    };
    let customers = snapshot.listeners[0].address;
    assert_eq!(
        (port("http"), port("admin")),
        (Some(customers.port()), Some(snapshot.admin.address.port()))
    );
    for (probe, path) in
        [("startupProbe", "/readyz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")]
    {
        assert_eq!(container[probe]["httpGet"]["path"], path, "{probe}");
        assert_eq!(container[probe]["httpGet"]["port"], "admin", "{probe}");
    }
    assert!(snapshot.admin.address.ip().is_unspecified(), "the kubelet must reach the probes");
}

#[test]
fn the_parts_of_the_manifest_fit_together() {
    let documents = manifest();
    let set = find(&documents, "StatefulSet", "tollgate");
    let labels = &set["spec"]["template"]["metadata"]["labels"];
    assert_eq!(&set["spec"]["selector"]["matchLabels"], labels);
    for service in ["tollgate", "tollgate-admin"] {
        assert_eq!(&find(&documents, "Service", service)["spec"]["selector"], labels, "{service}");
    }
    let policy = &find(&documents, "NetworkPolicy", "tollgate")["spec"];
    assert_eq!(&policy["podSelector"]["matchLabels"], labels);
    assert_eq!(set["spec"]["serviceName"], "tollgate-admin");

    let pod = &set["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let mounts = container["volumeMounts"].as_sequence().expect("mounts");
    let mounted_at = |name: &str| {
        let mount = mounts.iter().find(|mount| mount["name"] == name).expect("the mount");
        assert!(mount["subPath"].is_null(), "a file by subPath never changes");
        mount["mountPath"].as_str().expect("a path").to_owned()
    };
    let ledger = &set["spec"]["volumeClaimTemplates"][0];
    let data = &find(&documents, "ConfigMap", "tollgate")["data"];
    let (routes, models) =
        (data["routes.yaml"].as_str().expect("text"), data["models.yaml"].as_str().expect("text"));
    let data_dir = load(routes, models).store.data_dir;
    let claim = ledger["metadata"]["name"].as_str().expect("a name");
    assert_eq!(Path::new(&mounted_at(claim)), data_dir, "the ledger is on the volume");
    let volume = &pod["volumes"][0];
    assert_eq!(volume["configMap"]["name"], "tollgate");
    let at = mounted_at(volume["name"].as_str().expect("a name"));
    let arguments = format!("{:?}", container["args"]);
    for file in ["routes.yaml", "models.yaml"] {
        assert!(arguments.contains(&format!("{at}/{file}")), "{file} is not under {at}");
    }
    // Every variable of the configuration is in the Secret that the operator is told to make.
    let manifest = text("deploy/kubernetes/tollgate.yaml");
    let message = format!("create secret generic {}", container_secret(container));
    assert!(manifest.contains(&message), "{message}");
    let mut variables = 0;
    for rest in routes.split("${").skip(1) {
        let name = rest.split('}').next().expect("a name");
        assert!(manifest.contains(&format!("--from-literal={name}=")), "{name} is in no Secret");
        variables += 1;
    }
    assert_eq!(variables, 2, "variables");
}

fn container_secret(container: &Value) -> String {
    container["envFrom"][0]["secretRef"]["name"].as_str().expect("a Secret").to_owned()
}

/// The table of faults names tests that there are, and shows lines of the files that are shipped.
#[test]
fn the_operators_guide_says_what_is_there() {
    let guide = text("docs/operations.md");
    let faults = guide.split_once("## Faults").expect("the table").1;
    let faults = faults.split("## Runbook").next().unwrap_or_default();
    let mut tests = 0;
    for row in faults.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let cell = row.trim_end_matches(" |").rsplit(" | ").next().expect("a last cell");
        assert!(cell.contains("`: ") || cell.contains("` `"), "no test in {row}");
        for named in cell.split(", ") {
            let mut words = named.split('`').filter(|word| !word.trim().is_empty());
            let (file, test) = (words.next().expect("a file"), words.next().expect("a test"));
            let defined = format!("fn {test}()");
            assert!(text(file).contains(&defined), "{file} has no {test}");
            tests += 1;
        }
    }
    assert!(tests > 30, "only {tests} tests in the table of faults");

    for (language, file) in
        [("nginx", "deploy/nginx/nginx.conf"), ("haproxy", "deploy/haproxy/haproxy.cfg")]
    {
        let shipped = text(file);
        let block = guide.split(&format!("```{language}\n")).nth(1).expect("a block");
        for line in block.split("```").next().unwrap_or_default().lines() {
            let is_there = shipped.lines().any(|shipped| shipped.trim() == line);
            assert!(is_there, "{file} has no line {line:?}");
        }
    }
    // Links lead to sections and files that there are.
    let sections: Vec<String> = guide
        .lines()
        .filter_map(|line| Some(line.trim_start_matches('#').strip_prefix(' ')?.to_lowercase()))
        .collect();
    for link in guide.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
        match link.strip_prefix('#') {
            Some(section) => {
                assert!(sections.iter().any(|it| it.replace(' ', "-") == section), "{link}")
            }
            // Nothing is asked of other sites.
            None if link.starts_with("https://") => {}
            None => {
                let file = link.split('#').next().unwrap_or_default();
                assert!(root().join("docs").join(file).exists(), "{link}: no such file");
            }
        }
    }
}

/// Timeouts increase along the way: SDKs, the gateway, the shipped proxies, and the documents that quote
/// them.
#[test]
fn everybody_waits_longer_than_the_one_before_them() {
    const SDKS: Duration = Duration::from_secs(600);
    let routes = "upstreams:\n  a: { protocol: openai, base_url: 'http://127.0.0.1:1/v1' }\n";
    let models = "models:\n  m: { operations: [chat], targets: [{ upstream: a }], free: true, limits: { \
                  context_tokens_max: 10, output_tokens_max: 10 } }\n";
    let defaults = load(routes, models);
    let read = defaults.upstreams["a"].timeouts.read;
    assert!(read > SDKS, "{read:?}: the customer's own time ends first");
    let seconds = |text: &str| text.trim_end_matches([';', 's']).parse::<u64>().ok();
    let mut waits = 0;
    for file in [
        "deploy/nginx/nginx.conf",
        "deploy/haproxy/haproxy.cfg",
        "deploy/fleet/haproxy.cfg",
        "docs/operations.md",
        "docs/load-balancers.md",
    ] {
        for line in text(file).lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let found = match words.as_slice() {
                ["proxy_read_timeout", time] | ["timeout", "server" | "client", time] => *time,
                _ => continue,
            };
            let found = seconds(found).unwrap_or_else(|| panic!("{file}: {line}"));
            assert!(Duration::from_secs(found) > read, "{file}: {line}, and {read:?} here");
            waits += 1;
        }
    }
    assert!(waits >= 8, "{waits} times");
    // The shortest time of a load balancer that documents name.
    let keepalive = defaults.limits.sse_keepalive.expect("streams are kept alive");
    assert!(keepalive * 2 <= Duration::from_secs(30), "{keepalive:?}");
    let (read, keepalive) = (read.as_secs(), keepalive.as_secs());
    for (file, message) in [
        ("docs/operations.md", format!("the gateway for {read} seconds (`timeouts.read`)")),
        ("docs/operations.md", format!("a comment every {keepalive} seconds")),
        ("docs/configuration.md", format!("| `timeouts.read` | `{read}s` |")),
        ("docs/configuration.md", format!("| `sse_keepalive` | `{keepalive}s` |")),
        ("docs/configuration.md", format!("{read} s of silence")),
    ] {
        assert!(text(file).contains(&message), "{file}: {message}");
    }
}
