//! The field `mcp` of `routes.yaml`.

use std::time::Duration;

use schemars::JsonSchema;

use crate::scalar::{Period, Size};

/// The server for agents: the Model Context Protocol. Its tools do what the other paths do, with the
/// same keys.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Mcp {
    /// `true` serves MCP. Takes effect at a restart. Default: `true`.
    pub(crate) enabled: bool,
    /// Its path. Takes effect at a restart. Default: `/mcp`.
    pub(crate) path: String,
    /// The names, and ports if need be, by which it may be called. Default: any.
    pub(crate) allowed_hosts: Vec<String>,
    /// The origins of pages that may call it, such as `https://app.example.com`, or
    /// `http://localhost:*` for every port. Default: none.
    pub(crate) allowed_origins: Vec<String>,
    /// The largest request body. Takes effect at a restart. Default: `2MiB`, or what
    /// `body_memory_max` of `limits` leaves.
    pub(crate) body_max: Option<Size>,
    /// The values, of arrays and objects at any depth, that a request body may have. Takes effect at
    /// a restart. Default: 20000.
    #[schemars(range(min = 1_000, max = 10_000_000))]
    pub(crate) json_values_max: usize,
    /// The most media, images and speech, that an answer has in itself, before base64. Default:
    /// `16MiB`.
    pub(crate) media_max: Size,
    /// The longest that one call may wait for a video. Default: `10m`.
    pub(crate) wait_max: Period,
}

impl Default for Mcp {
    fn default() -> Self {
        Self {
            enabled: true,
            path: "/mcp".to_owned(),
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            body_max: None,
            json_values_max: 20_000,
            media_max: Size(16 << 20),
            wait_max: Period(Duration::from_secs(600)),
        }
    }
}
