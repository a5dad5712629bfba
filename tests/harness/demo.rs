//! `tollgate demo` as a child process.

use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::thread::JoinHandle;

use serde_json::Value;

use super::child::Running;

/// Starts a demo on free ports over the ledger in `data`, with more in its environment. Gives what it
/// says when it is ready, and what comes after.
pub(crate) fn spawn_demo(
    data: &Path,
    environment: &[(&str, &str)],
) -> (Running, Value, Lines<BufReader<ChildStdout>>) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["demo", "--json", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data"])
        .arg(data)
        .envs(environment.iter().copied())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut lines = BufReader::new(child.stdout.take().expect("stdout")).lines();
    let line = lines.next().expect("a line when it is ready").expect("text");
    (Running(child), serde_json::from_str(&line).expect("JSON"), lines)
}

/// A running demo with an account of $10; ended on drop.
pub(crate) struct Demo {
    /// The customers' address without a path.
    pub(crate) base_url: String,
    /// The admin API's address without a path.
    pub(crate) admin_url: String,
    /// The admin API's bearer token.
    pub(crate) admin_token: String,
    /// A key of the demo account.
    pub(crate) api_key: String,
    /// The process.
    pub(crate) process: Running,
    /// Standard output after the first line.
    more: Option<JoinHandle<Vec<String>>>,
    _data: Option<tempfile::TempDir>,
}

impl Demo {
    /// Starts a demo on free ports with a ledger of its own.
    pub(crate) fn start() -> Self {
        let data = tempfile::tempdir().expect("a directory");
        let mut demo = Self::on(data.path());
        demo._data = Some(data);
        demo
    }

    /// Starts a demo on free ports over the ledger in `data`.
    pub(crate) fn on(data: &Path) -> Self {
        let (process, ready, lines) = spawn_demo(data, &[]);
        let field = |name: &str| {
            ready[name].as_str().unwrap_or_else(|| panic!("{name} in {ready}")).to_owned()
        };
        Self {
            base_url: field("base_url"),
            admin_url: field("admin_url"),
            admin_token: field("admin_token"),
            api_key: field("api_key"),
            process,
            more: Some(std::thread::spawn(|| lines.map_while(Result::ok).collect())),
            _data: None,
        }
    }
}

impl Demo {
    /// A JSON request to the customers' address, with settings of the simulator: `name:value`,
    /// separated by blanks.
    pub(crate) fn post(
        &self,
        path: &str,
        body: &serde_json::Value,
        sim: &str,
    ) -> reqwest::RequestBuilder {
        let mut call = super::http().post(format!("{}{path}", self.base_url)).json(body);
        for pair in sim.split_whitespace() {
            let (name, value) = pair.split_once(':').expect("name:value");
            call = call.header(format!("x-sim-{name}"), value);
        }
        call
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        self.process.kill();
        let more = self.more.take().map(|more| more.join().expect("standard output is read"));
        if !std::thread::panicking() {
            assert_eq!(more, Some(Vec::new()), "one line on standard output, and nothing else");
        }
    }
}
