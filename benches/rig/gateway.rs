//! A gateway with files, data and ports of its own.

use std::path::Path;
use std::process::{Command, Stdio};

use super::account::ADMIN_TOKEN;
use super::dialect::Dialect;
use super::process::Process;

/// The model of [`chat_model`].
pub(crate) const MODEL: &str = "m";

/// Writes both files of a gateway into `directory`: `store` is what more there is in that field, and
/// `more` the other fields of `routes.yaml`.
pub(crate) fn write_files(
    directory: &Path,
    store: &str,
    more: &str,
    models: &str,
) -> anyhow::Result<()> {
    let routes = format!(
        "listeners: [{{ address: 127.0.0.1:0 }}]
admin: {{ address: 127.0.0.1:0, token: {ADMIN_TOKEN} }}
store: {{ data_dir: {}{store} }}
{more}",
        directory.join("data").display()
    );
    std::fs::write(directory.join("routes.yaml"), routes)?;
    std::fs::write(directory.join("models.yaml"), models)?;
    Ok(())
}

/// The only upstream, which speaks OpenAI's protocol.
pub(crate) fn openai_upstream(address: &str) -> String {
    format!(
        "upstreams:
  u: {{ protocol: openai, base_url: 'http://{address}/v1', credential: x }}
"
    )
}

/// The only model, at that upstream.
pub(crate) fn chat_model() -> String {
    format!(
        "models:
  {MODEL}:
    operations: [chat]
    targets: [{{ upstream: u }}]
    prices: {{ input_per_1m_tokens: 0.15, output_per_1m_tokens: 0.60 }}
    limits: {{ context_tokens_max: 128000, output_tokens_max: 16384 }}
"
    )
}

/// An upstream called `name` of a dialect. `settings` are the start of its paths.
pub(crate) fn upstream_of(dialect: Dialect, name: &str, address: &str, settings: &str) -> String {
    let (protocol, version) = (dialect.protocol(), dialect.version_path());
    format!(
        "  {name}: {{ protocol: {protocol}, credential: x, base_url: 'http://{address}{settings}{version}' }}
"
    )
}

/// A model called `name` at the upstream of that name.
pub(crate) fn model_of(dialect: Dialect, name: &str) -> String {
    format!(
        "  {name}:
    operations: [{}]
    targets: [{{ upstream: {name} }}]
    prices: {{ input_per_1m_tokens: 0.15, cached_input_per_1m_tokens: 0.075, output_per_1m_tokens: 0.60 }}
    limits: {{ context_tokens_max: 8000000, output_tokens_max: 16384 }}
",
        dialect.operation()
    )
}

/// Output of a command that uses the files in `directory`.
pub(crate) fn command(directory: &Path, arguments: &[&str]) -> Command {
    command_of(Path::new(env!("CARGO_BIN_EXE_tollgate")), directory, arguments)
}

/// The same of another build.
pub(crate) fn command_of(program: &Path, directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).arg("--routes").arg(directory.join("routes.yaml"));
    command.arg("--models").arg(directory.join("models.yaml"));
    command
}

/// Starts it. The access log is written, as in production, and goes nowhere.
pub(crate) fn start(directory: &Path) -> anyhow::Result<Process> {
    Process::start(command(directory, &["serve", "--ready-json"]).stderr(Stdio::null()))
}

/// Starts it without an access log: what is measured is elsewhere.
pub(crate) fn start_quiet(directory: &Path) -> anyhow::Result<Process> {
    Process::start(&mut command(directory, &["serve", "--ready-json", "--log", "warn"]))
}
