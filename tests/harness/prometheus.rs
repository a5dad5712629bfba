//! Debian's `prometheus` and `promtool`.

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use super::child::Running;
use super::poll_async;
use super::{free_address, http, tool};

/// Runs promtool in `directory` with `input`, and gives what it printed. It must find nothing wrong.
pub(crate) fn promtool(arguments: &[&str], directory: &Path, input: &str) -> String {
    let mut child = tool("promtool")
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool starts");
    let mut stdin = child.stdin.take().expect("standard input is piped");
    stdin.write_all(input.as_bytes()).expect("promtool reads");
    drop(stdin);
    let output = child.wait_with_output().expect("promtool ends");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "promtool {arguments:?}:\n{printed}{errors}");
    printed + &errors
}

/// A running Prometheus with the shipped configuration; ended on drop.
pub(crate) struct Prometheus {
    url: String,
    _process: Running,
    _directory: tempfile::TempDir,
}

impl Prometheus {
    /// Starts one over the files in `shipped`, with `target` for the gateway's address. Time passes
    /// faster: it scrapes twice a second, and alerts do not wait.
    pub(crate) async fn start(target: SocketAddr, shipped: &Path) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let copy = |name: &str, change: &dyn Fn(String) -> String| {
            let text = fs::read_to_string(shipped.join(name)).expect("a shipped file");
            fs::write(directory.path().join(name), change(text)).expect("written");
        };
        copy("prometheus.yml", &|text| {
            assert_eq!(text.matches("_interval: 15s").count(), 2, "two intervals:\n{text}");
            assert_eq!(text.matches("\"127.0.0.1:9090\"").count(), 1, "one target:\n{text}");
            text.replace("_interval: 15s", "_interval: 500ms")
                .replace("127.0.0.1:9090", &target.to_string())
        });
        copy("recording.rules.yml", &|text| text);
        copy("alerts.rules.yml", &|text| {
            let lines = text.lines().filter(|line| !line.trim_start().starts_with("for: "));
            lines.collect::<Vec<_>>().join("\n")
        });
        let address = free_address();
        let log = fs::File::create(directory.path().join("log")).expect("a file for the log");
        let child = tool("prometheus")
            .arg("--config.file=prometheus.yml")
            .arg("--storage.tsdb.path=data")
            .arg(format!("--web.listen-address={address}"))
            .current_dir(directory.path())
            .stderr(log)
            .spawn()
            .expect("prometheus starts");
        let url = format!("http://{address}");
        let started = Self { url, _process: Running(child), _directory: directory };
        poll_async("prometheus is ready", Duration::from_secs(30), async || {
            let ready = started.get("/-/ready").await;
            ready.map_err(|_| fs::read_to_string(started._directory.path().join("log")))
        })
        .await;
        started
    }

    async fn get(&self, path_and_query: &str) -> Result<String, String> {
        let answer = http().get(format!("{}{path_and_query}", self.url)).send().await;
        let answer = answer.map_err(|error| error.to_string())?;
        let is_good = answer.status().is_success();
        let text = answer.text().await.map_err(|error| error.to_string())?;
        if is_good { Ok(text) } else { Err(text) }
    }

    /// The values of an expression now, one a series.
    pub(crate) async fn values(&self, expression: &str) -> Result<Vec<f64>, String> {
        let query: String = url::form_urlencoded::byte_serialize(expression.as_bytes()).collect();
        let answer = self.get(&format!("/api/v1/query?query={query}")).await?;
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        let data = &answer["data"];
        let value = |sample: &Value| sample.as_str().and_then(|text| text.parse::<f64>().ok());
        if data["resultType"] == "scalar" {
            return Ok(value(&data["result"][1]).into_iter().collect());
        }
        let series = data["result"].as_array().expect("series");
        Ok(series.iter().filter_map(|series| value(&series["value"][1])).collect())
    }

    /// The rules that Prometheus could not evaluate, and why.
    pub(crate) async fn sick_rules(&self) -> Vec<String> {
        let answer = self.get("/api/v1/rules").await.expect("the rules");
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        let groups = answer["data"]["groups"].as_array().expect("groups");
        let rules: Vec<&Value> =
            groups.iter().flat_map(|group| group["rules"].as_array().expect("rules")).collect();
        assert_eq!(rules.len(), 52, "rules that Prometheus knows");
        let sick = rules.into_iter().filter(|rule| rule["health"] != "ok");
        sick.map(|rule| format!("{}: {}", rule["name"], rule["lastError"])).collect()
    }
}
