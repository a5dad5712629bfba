//! The agents: how each is started against a gateway.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::json;

use crate::harness::child::Running;
use crate::harness::node;

use super::upstream::Upstream;

/// The longest that a session may take: many times what it takes on two busy cores.
const LONGEST: Duration = Duration::from_secs(240);

/// An agent, and the door of the gateway that it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Agent {
    ClaudeCode,
    CodexHttp,
    CodexWebsocket,
    /// opencode, with the provider package of a dialect.
    OpencodeChat,
    OpencodeResponses,
    OpencodeMessages,
    GeminiCli,
}

/// The end of an agent's process.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) is_success: bool,
    pub(crate) output: String,
    pub(crate) errors: String,
}

impl Agent {
    /// The name in `tests/clients/versions.json`.
    pub(crate) fn client(self) -> &'static str {
        match self {
            Self::ClaudeCode => "Claude Code",
            Self::CodexHttp | Self::CodexWebsocket => "Codex",
            Self::OpencodeChat | Self::OpencodeResponses | Self::OpencodeMessages => "opencode",
            Self::GeminiCli => "gemini-cli",
        }
    }

    /// The door in the page of results.
    pub(crate) fn door(self) -> &'static str {
        match self {
            Self::ClaudeCode | Self::OpencodeMessages => "messages",
            Self::CodexHttp | Self::OpencodeResponses => "responses",
            Self::CodexWebsocket => "responses, WebSocket",
            Self::OpencodeChat => "chat completions",
            Self::GeminiCli => "Gemini",
        }
    }

    /// The dialect that is relayed byte for byte.
    pub(crate) fn native(self) -> Upstream {
        match self {
            Self::ClaudeCode | Self::OpencodeMessages => Upstream::Messages,
            Self::CodexHttp | Self::CodexWebsocket | Self::OpencodeResponses => Upstream::Responses,
            Self::OpencodeChat => Upstream::Chat,
            Self::GeminiCli => Upstream::Gemini,
        }
    }

    /// The names of models that the agent knows, and behaves differently with.
    pub(crate) fn models(self) -> &'static [&'static str] {
        match self {
            Self::ClaudeCode => {
                &["claude-opus-4-8", "claude-sonnet-5", "claude-haiku-4-5", "claude-opus-5"]
            }
            Self::CodexHttp | Self::CodexWebsocket => &["gpt-5.6-sol", "gpt-5.5", "gpt-6-astra"],
            Self::OpencodeChat => &["qwen3-coder", "claude-sonnet-5", "gpt-5.5"],
            Self::OpencodeResponses => &["gpt-5.5", "gpt-5.6-sol"],
            Self::OpencodeMessages => &["claude-opus-4-8", "claude-sonnet-5"],
            Self::GeminiCli => &["gemini-2.5-pro", "gemini-3.1-pro-preview"],
        }
    }

    /// True if the agent asks for thinking by itself.
    pub(crate) fn thinks(self) -> bool {
        !matches!(self, Self::OpencodeChat | Self::OpencodeMessages)
    }

    /// Runs the agent of these commands in `work` with one prompt, until it ends by itself. The gateway is a
    /// base URL with a key.
    pub(crate) fn run(
        self,
        commands: &[PathBuf; 2],
        (base_url, key): (&str, &str),
        model: &str,
        work: &Path,
        prompt: &str,
    ) -> Ended {
        let home = tempfile::tempdir().expect("a directory");
        let mut command = match self {
            Self::ClaudeCode => claude_code(&commands[0], base_url, key, model, prompt),
            Self::CodexHttp => codex(&commands[0], base_url, model, prompt, false),
            Self::CodexWebsocket => codex(&commands[0], base_url, model, prompt, true),
            Self::OpencodeChat => {
                opencode(&commands[0], home.path(), base_url, model, prompt, "openai-compatible")
            }
            Self::OpencodeResponses => {
                opencode(&commands[0], home.path(), base_url, model, prompt, "openai")
            }
            Self::OpencodeMessages => {
                opencode(&commands[0], home.path(), base_url, model, prompt, "anthropic")
            }
            Self::GeminiCli => gemini_cli(&commands[0], home.path(), base_url, key, model, prompt),
        };
        command
            .current_dir(work)
            .env("PATH", node::path(commands))
            .env("HOME", home.path())
            .env("CODEX_HOME", home.path())
            .env("KEY", key);
        ended(command)
    }
}

/// A command without the environment of the tests, which may hold keys.
fn bare(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear();
    command
}

fn claude_code(bin: &Path, base_url: &str, key: &str, model: &str, prompt: &str) -> Command {
    let mut command = bare(&bin.join("claude"));
    command
        .args(["-p", prompt, "--dangerously-skip-permissions"])
        // It refuses to run so as root, unless in a sandbox.
        .env("IS_SANDBOX", "1")
        .env("ANTHROPIC_BASE_URL", base_url)
        .env("ANTHROPIC_AUTH_TOKEN", key)
        .env("ANTHROPIC_MODEL", model)
        .env("ANTHROPIC_DEFAULT_HAIKU_MODEL", model)
        .env("MAX_THINKING_TOKENS", "4000")
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        .env("DISABLE_AUTOUPDATER", "1");
    command
}

fn codex(bin: &Path, base_url: &str, model: &str, prompt: &str, over_websocket: bool) -> Command {
    let provider = format!(
        "model_providers.tollgate={{name=\"tollgate\", base_url=\"{base_url}/v1\", env_key=\"KEY\", \
         wire_api=\"responses\", supports_websockets={over_websocket}}}"
    );
    let mut command = bare(&bin.join("codex"));
    command
        .args(["exec", "--json", "--skip-git-repo-check"])
        .arg("--dangerously-bypass-approvals-and-sandbox")
        .args(["-c", "model_provider=tollgate", "-c", &provider])
        .args(["-c", "model_reasoning_summary=\"auto\"", "-m", model, prompt]);
    command
}

fn opencode(
    bin: &Path,
    home: &Path,
    base_url: &str,
    model: &str,
    prompt: &str,
    package: &str,
) -> Command {
    let directory = home.join(".config/opencode");
    std::fs::create_dir_all(&directory).expect("a directory");
    let name = format!("tollgate/{model}");
    let settings = json!({
        "autoupdate": false, "share": "disabled", "permission": {"*": "allow"},
        "model": name, "small_model": name,
        "provider": {"tollgate": {
            "npm": format!("@ai-sdk/{package}"),
            "options": {"baseURL": format!("{base_url}/v1"), "apiKey": "{env:KEY}"},
            "models": {model: {
                "reasoning": true, "attachment": true, "tool_call": true,
                "modalities": {"input": ["text", "image"], "output": ["text"]},
                "limit": {"context": 200_000, "output": 32_000},
            }},
        }},
    });
    std::fs::write(directory.join("opencode.json"), settings.to_string()).expect("its settings");
    let mut command = bare(&bin.join("opencode"));
    command
        .args(["run", "--format", "json", "-m", &name, prompt])
        .env("OPENCODE_DISABLE_MODELS_FETCH", "1")
        .env("OPENCODE_DISABLE_AUTOUPDATE", "1")
        .env("OPENCODE_DISABLE_LSP_DOWNLOAD", "1");
    command
}

fn gemini_cli(
    bin: &Path,
    home: &Path,
    base_url: &str,
    key: &str,
    model: &str,
    prompt: &str,
) -> Command {
    let directory = home.join(".gemini");
    std::fs::create_dir(&directory).expect("a directory");
    let settings = json!({
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": false},
        "general": {"disableAutoUpdate": true},
    });
    std::fs::write(directory.join("settings.json"), settings.to_string()).expect("its settings");
    let mut command = bare(&bin.join("gemini"));
    command
        .args(["-m", model, "--yolo", "-p", prompt])
        .env("GOOGLE_GEMINI_BASE_URL", base_url)
        .env("GEMINI_API_KEY", key)
        .env("GEMINI_CLI_TRUST_WORKSPACE", "true");
    command
}

/// Waits for the end of a command, which is ended where it takes too long. Its output goes to files, since a
/// pipe that nobody empties would stop it.
fn ended(mut command: Command) -> Ended {
    let kept = tempfile::tempdir().expect("a directory");
    let file = |name: &str| std::fs::File::create(kept.path().join(name)).expect("a file");
    let read = |name: &str| {
        let bytes = std::fs::read(kept.path().join(name)).expect("the file");
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let streams = command.stdin(Stdio::null()).stdout(file("out")).stderr(file("errors"));
    let mut child = Running(streams.spawn().expect("it starts"));
    let is_success = child.wait_for(LONGEST).is_some_and(|status| status.success());
    // What it has started may write on where it is still running.
    child.kill();
    Ended { is_success, output: read("out"), errors: read("errors") }
}
