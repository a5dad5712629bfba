//! Record of a task, the document that `GET /v1/videos/generations/{id}` returns, as far as a page shows it.
//! Its texts come from an upstream and are not trusted.

use serde_json::Value;
use url::Url;

use tollgate_ledger::{Task, TaskPhase};
use tollgate_tasks::Tasks;
use tollgate_web_kit::show;

/// The longest address of a video that a page leads to; those of the providers, with their signatures,
/// have some hundreds of bytes.
const URL_BYTES_MAX: usize = 8 << 10;

/// The parts of a record that a page shows.
pub(super) struct VideoRecord {
    /// State of the task for customers; `in doubt` where it is unknown.
    pub(super) state: String,
    /// Time at which the state was last seen to change, in seconds since 1970.
    pub(super) updated_at: u64,
    /// URL of the video, if a browser may be sent there.
    pub(super) video_url: Option<String>,
    /// Properties of the request or the video, and the prompt as the upstream rewrote it.
    pub(super) facts: Vec<(&'static str, String)>,
    /// Error of a failed task: a code and a message.
    pub(super) error: Option<(String, String)>,
}

impl VideoRecord {
    /// Loads the current record of a task without asking its upstream.
    pub(super) async fn load(tasks: &Tasks, task: &Task) -> Self {
        let record: Value = serde_json::from_str(&tasks.shown(task).await).unwrap_or_default();
        let state = match task.stage {
            TaskPhase::InDoubt => "in doubt".to_owned(),
            _ => text(&record["status"]).unwrap_or_else(|| "processing".to_owned()),
        };
        let facts = [
            ("Seconds", &record["duration"]),
            ("Resolution", &record["resolution"]),
            ("Aspect ratio", &record["aspect_ratio"]),
            ("Seed", &record["seed"]),
            ("Prompt", &record["orig_prompt"]),
            ("Prompt as it was used", &record["actual_prompt"]),
        ];
        let facts = facts.into_iter().filter_map(|(name, value)| Some((name, text(value)?)));
        let error = &record["error"];
        Self {
            state,
            updated_at: record["updated_at"].as_u64().unwrap_or(task.intent.at.seconds()),
            video_url: video_url(&record),
            facts: facts.collect(),
            error: (!error.is_null()).then(|| {
                let part = |name: &str| text(&error[name]).unwrap_or_default();
                (part("code"), part("message"))
            }),
        }
    }

    /// The class of the state's badge.
    pub(super) fn badge_class(&self) -> &'static str {
        match self.state.as_str() {
            "succeeded" => "good",
            "failed" | "expired" | "cancelled" => "bad",
            _ => "warn",
        }
    }
}

/// A text, a number or a truth as a text; nothing else.
fn text(value: &Value) -> Option<String> {
    match value {
        // Bounded and without control characters; askama escapes the rest.
        Value::String(text) if !text.is_empty() => Some(show::text(text).into_owned()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        _ => None,
    }
}

/// The address of the video: in a list for families V, H and G, alone for family S. Only what is
/// fetched over HTTP: an upstream could name anything.
fn video_url(record: &Value) -> Option<String> {
    let content = &record["content"];
    let url_text = content[0]["video_url"].as_str().or_else(|| content["video_url"].as_str())?;
    // Parsed and written again: the page has a normalised address, not the upstream's text.
    let url = Url::parse(url_text).ok().filter(|_| url_text.len() <= URL_BYTES_MAX)?;
    matches!(url.scheme(), "http" | "https").then(|| url.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_is_fetched_over_http_is_played() {
        for (url_text, expected) in [
            (json!("https://cdn.example/a.mp4?x=1&y=2"), Some("https://cdn.example/a.mp4?x=1&y=2")),
            (json!("http://127.0.0.1:1/a.mp4"), Some("http://127.0.0.1:1/a.mp4")),
            (json!("javascript:alert(1)"), None),
            (json!("data:text/html,<script>alert(1)</script>"), None),
            (json!("file:///etc/passwd"), None),
            (json!("/relative.mp4"), None),
            (json!(""), None),
            (json!(null), None),
            (json!(7), None),
        ] {
            for record in [
                json!({"content": [{"video_url": url_text.clone()}]}),
                json!({"content": {"video_url": url_text}}),
            ] {
                assert_eq!(video_url(&record).as_deref(), expected, "{record}");
            }
        }
        let quoted = json!({"content": [{"video_url": "https://x.example/\"><script>"}]});
        let url = video_url(&quoted).expect("a URL");
        assert!(!url.contains(['"', '<', '>']), "{url}");
    }
}
