//! One request: its context, the stages that it goes through, and the services that all requests share.

pub(super) mod services;
pub(super) mod hosted;
pub(super) mod response;
pub(super) mod context;
pub(super) mod relay_stage;
pub(super) mod filters;
pub(super) mod content_path;
pub(super) mod mark;
pub(super) mod sending;
pub(super) mod progress;
pub(super) mod failure;
pub(super) mod refusal;
pub(super) mod peer;
pub(super) mod orphan;
pub(super) mod slots;
pub(super) mod status;
pub(super) mod stamp;
pub(super) mod envelope;
pub(super) mod array;
pub(super) mod record;
