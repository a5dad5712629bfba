//! One request: its context, the stages that it goes through, and the services that all requests share.

pub(super) mod services;
pub(super) mod hosted;
pub(super) mod response;
pub(super) mod context;
pub(super) mod relay_stage;
pub(super) mod filters;
pub(super) mod content_path;
pub(super) mod idempotency;
pub(super) mod sending;
pub(super) mod progress;
pub(super) mod failure;
pub(super) mod refusal;
pub(super) mod upstream_error;
pub(super) mod orphan;
pub(super) mod upstream_slots;
pub(super) mod status;
pub(super) mod gateway_headers;
pub(super) mod envelope;
pub(super) mod json_array;
pub(super) mod record;
