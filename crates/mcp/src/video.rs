//! `submit_video` and `get_video`: a task is begun, and looked after.

use std::time::Duration;

use http::{HeaderName, HeaderValue};
use rmcp::model::{
    CallToolResult, ContentBlock, JsonObject, ProgressNotificationParam, ProgressToken,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::caller::{GatewayAnswer, ToolCaller};
use super::media::{MediaKind, ResultMedia};
use super::tool::ToolEntry;
use super::tool_error::ToolError;
use super::usable_model::UsableModel;
use super::{arguments, images, schema};
use tollgate_protocols::Operation;
use tollgate_protocols::plain::PlainVideo;

/// Interval of looking at a task while a caller waits for it. The gateway itself polls upstreams less often.
const LOOKED_AT_EVERY: Duration = Duration::from_secs(2);
/// The longest id of a task, in bytes. Real ones are below 64.
const ID_BYTES_MAX: usize = 128;

/// Tool that submits a video task.
pub(super) const SUBMIT: ToolEntry = ToolEntry {
    name: "submit_video",
    title: "Begin a video",
    description: "Begins to make a video and returns the id of its task at once. Making it takes \
                  minutes: ask for it with `get_video`.",
    operations: &[Operation::Video],
    is_read_only: false,
    schema: submit_schema,
    call: |caller, arguments| Box::pin(submit(caller, arguments)),
};

/// Tool that polls a video task.
pub(super) const GET: ToolEntry = ToolEntry {
    name: "get_video",
    title: "Look after a video",
    description: "Tells how far a video is, and where it is to be had once it is made. Waits for \
                  its end if asked to.",
    operations: &[Operation::Video],
    is_read_only: true,
    schema: get_schema,
    call: |caller, arguments| Box::pin(get(caller, arguments)),
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct VideoArguments {
    model: String,
    prompt: String,
    duration: Option<u32>,
    resolution: Option<String>,
    aspect_ratio: Option<String>,
    #[serde(default)]
    image_urls: Vec<String>,
    webhook_url: Option<String>,
    idempotency_key: Option<String>,
    extra: Option<Map<String, Value>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Get {
    id: String,
    #[serde(default)]
    wait_seconds: u64,
}

/// The arguments of `submit_video`, and those that are needed.
pub(super) fn submit_schema(usable: &[UsableModel<'_>]) -> (Value, &'static [&'static str]) {
    let properties = json!({
        "model": schema::model(usable),
        "prompt": {"type": "string", "description": "What is to happen."},
        "duration": schema::duration(usable),
        "resolution": schema::resolution(usable),
        "aspect_ratio": {"type": "string", "pattern": "^[0-9]+:[0-9]+$", "examples": ["16:9", "9:16"]},
        "image_urls": {
            "type": "array",
            "items": {"type": "string", "format": "uri"},
            "description": "Public https URLs of images: of the one to begin with, or of some to go by.",
        },
        "webhook_url": {
            "type": "string",
            "format": "uri",
            "description": "Where to announce the end, for models whose tasks can be announced.",
        },
        "idempotency_key": {
            "type": "string",
            "minLength": 1,
            "maxLength": 255,
            "description": "Makes it safe to call again after a lost answer: the same key begins one \
                            video.",
        },
        "extra": schema::extra(),
    });
    (properties, &["model", "prompt"])
}

/// The arguments of `get_video`, and those that are needed.
pub(super) fn get_schema(_: &[UsableModel<'_>]) -> (Value, &'static [&'static str]) {
    let properties = json!({
        "id": {"type": "string", "minLength": 1, "description": "The task's id, of `submit_video`."},
        "wait_seconds": {
            "type": "integer",
            "minimum": 0,
            "description": "How long to wait for the end, at most. Progress is told meanwhile to \
                            clients that ask for it.",
        },
    });
    (properties, &["id"])
}

/// Submits a video.
///
/// # Errors
/// What is wrong with the arguments, and what the gateway refuses.
pub(super) async fn submit(
    caller: &ToolCaller,
    arguments: JsonObject,
) -> Result<CallToolResult, ToolError> {
    let arguments: VideoArguments = arguments::read(arguments)?;
    let dialect = images::dialect(caller, &arguments.model);
    let plain = PlainVideo {
        model: &arguments.model,
        prompt: &arguments.prompt,
        seconds: arguments.duration,
        resolution: arguments.resolution.as_deref(),
        aspect_ratio: arguments.aspect_ratio.as_deref(),
        image_urls: &arguments.image_urls,
    };
    let limits = caller.snapshot.model(&arguments.model).map(|model| model.limits.clone());
    let mut body = plain.body(dialect, &limits.unwrap_or_default());
    if let Some(url) = arguments.webhook_url {
        body["webhook_url"] = json!(url);
    }
    // Who wants to wait does so with the other tool, which tells how it goes on.
    body["wait"] = json!(false);
    arguments::add(&mut body, arguments.extra);
    let mut more = Vec::new();
    if let Some(key) = &arguments.idempotency_key {
        let key = HeaderValue::from_str(key)
            .map_err(|_| ToolError::arguments("`idempotency_key` must be plain text."))?;
        more.push((HeaderName::from_static("idempotency-key"), key));
    }
    let json_type = HeaderValue::from_static("application/json");
    let text = bytes::Bytes::from(body.to_string());
    let mut answer = caller.post_as(Operation::Video, json_type, text, &more).await?;
    let document = answer.json()?;
    let id = document["id"].as_str().unwrap_or_default().to_owned();
    let text = format!("The video is being made. Its task is {id}; ask for it with `get_video`.");
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    let status = document["status"].as_str().unwrap_or("processing");
    let structured = json!({"id": id, "status": status, "model": arguments.model});
    result.structured_content = Some(answer.with_cost(structured));
    Ok(result)
}

/// Returns the state of a video.
///
/// # Errors
/// What is wrong with the arguments, and what the gateway refuses.
pub(super) async fn get(
    caller: &ToolCaller,
    arguments: JsonObject,
) -> Result<CallToolResult, ToolError> {
    let Get { id, wait_seconds } = arguments::read(arguments)?;
    // It becomes a part of a path.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if id.is_empty() || id.len() > ID_BYTES_MAX || !id.bytes().all(is_plain) {
        return Err(ToolError::arguments("`id` is not the id of a task."));
    }
    let path = format!("{}/{id}", caller.path(Operation::Video)?);
    // The most that a call may wait bounds how long an idle agent holds a connection.
    let wait = Duration::from_secs(wait_seconds).min(caller.snapshot.mcp.wait_max);
    let begun = Instant::now();
    loop {
        let mut answer = caller.get(path.clone()).await?;
        let record = answer.json()?;
        let waited = begun.elapsed();
        if has_ended(&record) || waited >= wait {
            return Ok(result(&answer, record));
        }
        caller.tell(|token| progress(token, &record, waited, wait)).await;
        tokio::select! {
            () = tokio::time::sleep(LOOKED_AT_EVERY.min(wait - waited)) => {}
            // Polling goes on in the gateway: only this call ends.
            () = caller.cancelled() => {
                return Err(ToolError::failed("cancelled", "The call was cancelled."));
            }
        }
    }
}

fn has_ended(record: &Value) -> bool {
    matches!(record["status"].as_str(), Some("succeeded" | "failed" | "expired" | "cancelled"))
}

/// Progress of a client's wait.
fn progress(
    token: ProgressToken,
    record: &Value,
    waited: Duration,
    wait: Duration,
) -> ProgressNotificationParam {
    let status = record["status"].as_str().unwrap_or("processing");
    ProgressNotificationParam::new(token, waited.as_secs_f64())
        .with_total(wait.as_secs_f64())
        .with_message(format!("The video is {status}."))
}

/// The record, and the video if there is one.
fn result(answer: &GatewayAnswer, record: Value) -> CallToolResult {
    let status = record["status"].as_str().unwrap_or("processing").to_owned();
    let mut media = ResultMedia::new(0);
    // Each of the dialects puts the URL elsewhere.
    let urls =
        [&record["content"][0]["video_url"], &record["content"]["video_url"], &record["video_url"]];
    if let Some(url) = urls.into_iter().find_map(Value::as_str) {
        media.add_url(MediaKind::Video, url);
    }
    let text = match record["error"]["message"].as_str() {
        Some(message) => format!("The video is {status}: {message}"),
        None => format!("The video is {status}."),
    };
    let mut content = vec![ContentBlock::text(text)];
    content.extend(media.content);
    let mut result = CallToolResult::success(content);
    result.structured_content = Some(answer.with_cost(json!({"status": status, "record": record})));
    result
}
