//! The field `mcp` of `routes.yaml`.

use std::time::Duration;

use schemars::JsonSchema;

use crate::scalar::{ByteSize, DurationText};

/// The server for agents: the Model Context Protocol. Its tools do what the other paths do, with the
/// same keys.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename = "Mcp")]
pub(crate) struct McpSection {
    /// `true` serves MCP. Takes effect at a restart. Default: `true`.
    pub(crate) enabled: bool,
    /// Path of the server. Default: `/mcp`. Takes effect after a restart.
    pub(crate) path: String,
    /// Host names, optionally with ports, under which the server may be called. Default: any.
    pub(crate) allowed_hosts: Vec<String>,
    /// Origins of pages that may call the server, such as `https://app.example.com`, or `http://localhost:*`
    /// for every port. Default: none.
    pub(crate) allowed_origins: Vec<String>,
    /// Maximum size of a request body. Default: `2MiB`, or what `body_memory_max` of `limits` leaves. Takes
    /// effect after a restart.
    pub(crate) body_max: Option<ByteSize>,
    /// Maximum number of JSON values in a request body, at any depth. Default: 20000. Takes effect after a
    /// restart.
    #[schemars(range(min = 1_000, max = 10_000_000))]
    pub(crate) json_values_max: usize,
    /// Maximum size of images and speech embedded in an answer, before base64. Default: `16MiB`.
    pub(crate) media_max: ByteSize,
    /// Maximum time for which a request waits for a video. Default: `10m`.
    pub(crate) wait_max: DurationText,
}

impl Default for McpSection {
    fn default() -> Self {
        Self {
            enabled: true,
            path: "/mcp".to_owned(),
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            body_max: None,
            json_values_max: 20_000,
            media_max: ByteSize(16 << 20),
            wait_max: DurationText(Duration::from_secs(600)),
        }
    }
}
