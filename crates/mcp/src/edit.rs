//! `edit_image`: images that are changed as a text says. Over HTTP it is a form (RFC 7578).

use bytes::{Bytes, BytesMut};
use http::HeaderValue;
use rmcp::model::{CallToolResult, JsonObject};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::caller::ToolCaller;
use super::media::{decode, image_type};
use super::tool::ToolEntry;
use super::tool_error::ToolError;
use super::usable_model::UsableModel;
use super::{arguments, images};
use tollgate_protocols::Operation;

/// Tool that edits images.
pub(super) const TOOL: ToolEntry = ToolEntry {
    name: "edit_image",
    title: "Edit images",
    description: "Changes images, given as base64, as a text says.",
    operations: &[Operation::ImageEdit],
    is_read_only: false,
    schema,
    call: |caller, arguments| Box::pin(call(caller, arguments)),
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EditArguments {
    model: String,
    prompt: String,
    images: Vec<String>,
    mask: Option<String>,
    n: Option<u32>,
    size: Option<String>,
    quality: Option<String>,
    output_format: Option<String>,
    extra: Option<Map<String, Value>>,
}

/// Schema of the arguments, and the required ones.
pub(super) fn schema(usable: &[UsableModel<'_>]) -> (Value, &'static [&'static str]) {
    let mut properties = images::common(usable);
    let limits = || usable.iter().map(|usable| &usable.model.limits.images);
    properties["images"] = json!({
        "type": "array",
        "items": {"type": "string", "contentEncoding": "base64"},
        "minItems": 1,
        "maxItems": limits().map(|one| one.references_max).max(),
        "description": "The images: the base64 of PNG, JPEG or WebP files.",
    });
    if limits().any(|one| one.mask) {
        properties["mask"] = json!({
            "type": "string",
            "contentEncoding": "base64",
            "description": "The base64 of a PNG file of the first image's size, transparent where it \
                            may be changed.",
        });
    }
    (properties, &["model", "prompt", "images"])
}

/// Edits the images.
///
/// # Errors
/// What is wrong with the arguments, and what the gateway refuses.
pub(super) async fn call(
    caller: &ToolCaller,
    arguments: JsonObject,
) -> Result<CallToolResult, ToolError> {
    let arguments: EditArguments = arguments::read(arguments)?;
    let (content_type, body) = arguments.form(caller.snapshot.mcp.body_bytes_max)?;
    let mut answer = caller.post_as(Operation::ImageEdit, content_type, body, &[]).await?;
    images::result(caller, &mut answer)
}

impl EditArguments {
    /// The form and its content type.
    fn form(self, bytes_max: usize) -> Result<(HeaderValue, Bytes), ToolError> {
        let mut form = EditForm::new();
        let number = self.n.map(|n| n.to_string());
        for (name, value) in [
            ("model", Some(self.model)),
            ("prompt", Some(self.prompt)),
            ("n", number),
            ("size", self.size),
            ("quality", self.quality),
            ("output_format", self.output_format),
        ] {
            if let Some(value) = value {
                form.text(name, &value);
            }
        }
        for (name, value) in self.extra.into_iter().flatten() {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            // A second field of one name is read differently by different parsers.
            let is_present = form.names.contains(&name);
            if is_present || name.is_empty() || !name.bytes().all(is_plain) {
                continue;
            }
            match value {
                Value::String(text) => form.text(&name, &text),
                other => form.text(&name, &other.to_string()),
            }
        }
        // OpenAI's SDKs name lists with brackets, and single files without.
        let field = if self.images.len() > 1 { "image[]" } else { "image" };
        for (index, image) in self.images.iter().enumerate() {
            // Bounded by the largest body, so that base64 is never decoded into more than could be sent.
            let bytes = decode(image, bytes_max);
            let bytes = bytes.ok_or_else(|| not_base64(&format!("images[{index}]")))?;
            form.file(field, image, &bytes);
        }
        if let Some(mask) = &self.mask {
            let bytes = decode(mask, bytes_max).ok_or_else(|| not_base64("mask"))?;
            form.file("mask", mask, &bytes);
        }
        form.finish()
    }
}

fn not_base64(field: &str) -> ToolError {
    ToolError::arguments(format!("`{field}` must be the base64 of a file."))
}

/// Writer of a form.
struct EditForm {
    boundary: String,
    body: BytesMut,
    names: Vec<String>,
}

impl EditForm {
    fn new() -> Self {
        // Nobody who writes a prompt can guess it.
        let mut random = [0; 16];
        let boundary = match getrandom::fill(&mut random) {
            Ok(()) => u128::from_ne_bytes(random),
            Err(_) => fastrand::u128(..),
        };
        Self { boundary: format!("{boundary:032x}"), body: BytesMut::new(), names: Vec::new() }
    }

    fn text(&mut self, name: &str, value: &str) {
        self.begin(name, "");
        self.body.extend_from_slice(value.as_bytes());
        self.body.extend_from_slice(b"\r\n");
        self.names.push(name.to_owned());
    }

    fn file(&mut self, name: &str, base64: &str, bytes: &[u8]) {
        let base64 = base64.split_once(";base64,").map_or(base64, |(_, data)| data);
        let media_type = image_type(base64);
        let extension = media_type.trim_start_matches("image/");
        let more = format!("; filename=\"image.{extension}\"\r\nContent-Type: {media_type}");
        self.begin(name, &more);
        self.body.extend_from_slice(bytes);
        self.body.extend_from_slice(b"\r\n");
    }

    fn begin(&mut self, name: &str, more: &str) {
        let head = format!(
            "--{}\r\nContent-Disposition: form-data; name=\"{name}\"{more}\r\n\r\n",
            self.boundary
        );
        self.body.extend_from_slice(head.as_bytes());
    }

    fn finish(mut self) -> Result<(HeaderValue, Bytes), ToolError> {
        self.body.extend_from_slice(format!("--{}--\r\n", self.boundary).as_bytes());
        let content_type = format!("multipart/form-data; boundary={}", self.boundary);
        let content_type = HeaderValue::from_str(&content_type)
            .map_err(|_| ToolError::failed("internal_error", "The form could not be written."))?;
        Ok((content_type, self.body.freeze()))
    }
}
