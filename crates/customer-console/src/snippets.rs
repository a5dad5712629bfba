//! Snippets for a first call.

use tollgate_config::snapshot::Snapshot;
use tollgate_protocols::Operation;

/// Commands that work as they are, each left out where nothing is configured that it could call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Snippets {
    /// A streamed call from a shell.
    pub(super) curl: Option<String>,
    /// A streamed chat call in Python, with OpenAI's SDK.
    pub(super) python: Option<String>,
    /// Claude Code on this gateway.
    pub(super) claude_code: Option<String>,
}

impl Snippets {
    /// Snippets with `key`, for the gateway at `url`.
    pub(super) fn new(config: &Snapshot, url: &str, key: &str) -> Self {
        let chat = path_of(config, Operation::Chat).zip(model_of(config, Operation::Chat));
        let messages =
            path_of(config, Operation::Messages).zip(model_of(config, Operation::Messages));
        Self {
            curl: chat.map(|(path, model)| curl(&format!("{url}{path}"), key, model)),
            python: chat.and_then(|(path, model)| {
                // The SDK adds the rest of the path itself.
                let base = path.strip_suffix("/chat/completions")?;
                Some(python(&format!("{url}{base}"), key, model))
            }),
            claude_code: messages.and_then(|(path, model)| {
                // Claude Code adds the path itself; a route with another ending cannot be reached by it.
                let base = path.strip_suffix("/v1/messages")?;
                Some(claude_code(&format!("{url}{base}"), key, model))
            }),
        }
    }
}

/// Path of an operation.
pub(super) fn path_of(config: &Snapshot, operation: Operation) -> Option<&str> {
    let mut routes = config.routes.iter();
    routes.find(|route| route.operation == operation).map(|route| route.path.as_str())
}

/// The first model for the operation, in the order of `models.yaml`; native ones are preferred to translated
/// ones.
fn model_of(config: &Snapshot, operation: Operation) -> Option<&str> {
    let named = || config.models.iter().filter(|model| !model.is_wildcard());
    let speaks = named().find(|model| model.operations.contains(&operation));
    speaks.or_else(|| named().find(|model| model.serves(operation))).map(|model| &*model.id)
}

fn curl(url: &str, key: &str, model: &str) -> String {
    format!(
        r#"curl -N {url} \
  -H 'Authorization: Bearer {key}' \
  -H 'Content-Type: application/json' \
  -d '{{"model": "{model}", "stream": true,
       "messages": [{{"role": "user", "content": "Hello"}}]}}'"#
    )
}

fn python(url: &str, key: &str, model: &str) -> String {
    format!(
        r#"# pip install openai
from openai import OpenAI

client = OpenAI(base_url="{url}", api_key="{key}")
stream = client.chat.completions.create(
    model="{model}",
    messages=[{{"role": "user", "content": "Hello"}}],
    stream=True,
)
for chunk in stream:
    print(chunk.choices[0].delta.content or "", end="", flush=True)
print()"#
    )
}

fn claude_code(url: &str, key: &str, model: &str) -> String {
    format!(
        "export ANTHROPIC_BASE_URL={url}\nexport ANTHROPIC_AUTH_TOKEN={key}\nclaude --model {model}"
    )
}
