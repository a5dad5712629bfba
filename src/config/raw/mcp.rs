//! The field `mcp` of `routes.yaml`.

use std::time::Duration;

use schemars::JsonSchema;

use crate::config::scalar::{Period, Size};

/// The server for agents: the Model Context Protocol. Its tools do what the other paths do, with the
/// same keys.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(in crate::config) struct Mcp {
    /// Whether it is there. Takes effect at a restart. Default: `true`.
    pub(in crate::config) enabled: bool,
    /// Its path. Takes effect at a restart. Default: `/mcp`.
    pub(in crate::config) path: String,
    /// The names, and ports if need be, by which it may be called. Default: any.
    pub(in crate::config) allowed_hosts: Vec<String>,
    /// The origins of pages that may call it, such as `https://app.example.com`, or
    /// `http://localhost:*` for every port. Default: none.
    pub(in crate::config) allowed_origins: Vec<String>,
    /// The largest request body. Takes effect at a restart. Default: `16MiB`, or what
    /// `body_memory_max` of `limits` leaves.
    pub(in crate::config) body_max: Option<Size>,
    /// The most media, images and speech, that an answer has in itself, before base64. Default:
    /// `16MiB`.
    pub(in crate::config) media_max: Size,
    /// The longest that one call may wait for a video. Default: `10m`.
    pub(in crate::config) wait_max: Period,
}

impl Default for Mcp {
    fn default() -> Self {
        Self {
            enabled: true,
            path: "/mcp".to_owned(),
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            body_max: None,
            media_max: Size(16 << 20),
            wait_max: Period(Duration::from_secs(600)),
        }
    }
}
