//! Reading a request anew with a lower output limit.

use std::sync::Arc;

use bytes::Bytes;

use crate::config::snapshot::{Route, Snapshot};
use crate::gateway::receive::content_path::AskedAt;
use crate::ledger::Key;
use crate::pipeline::{self, Validated};
use crate::protocols::Request;
use crate::protocols::json::Object;
use crate::protocols::limits::ModelLimits;
use crate::protocols::output_limit::OutputLimit;

/// What a request's body is read by, as when it came.
pub(super) struct Rereading {
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) key: Arc<Key>,
    pub(super) route: Arc<Route>,
    pub(super) asked_at: Option<Arc<AskedAt>>,
}

impl Rereading {
    /// The request in these bytes; `None` for a form, and for what is no longer valid.
    fn request<'a>(&'a self, body: &'a [u8]) -> Option<Request<'a>> {
        if self.route.operation.takes_form() {
            return None;
        }
        let object = Object::parse_within(body, self.route.json_values_max).ok()?;
        Some(match &self.asked_at {
            Some(asked) => Request::JsonAt(object, asked.named()),
            None => Request::Json(object),
        })
    }

    /// The output limit of the request, where it has one that may be lowered to `floor`.
    pub(super) fn limit(
        &self,
        body: &Bytes,
        limits: &ModelLimits,
        floor: u64,
    ) -> Option<OutputLimit> {
        let limit = OutputLimit::read(self.route.operation, &self.request(body)?, limits)?;
        limit.lowered(floor).is_some().then_some(limit)
    }

    /// The body with the limit lowered, and the request that it is then. Native and translated targets
    /// follow from it alike.
    pub(super) fn lowered(
        &self,
        body: &Bytes,
        limit: &OutputLimit,
        tokens: u64,
    ) -> Option<(Bytes, Validated)> {
        let body = limit.lowered(tokens)?.apply(body);
        let request = self.request(&body)?;
        let key = Arc::clone(&self.key);
        let resolved =
            pipeline::resolve(&self.snapshot, key, self.route.operation, &request).ok()?;
        let validated = pipeline::validate(resolved, &request).ok()?;
        drop(request);
        Some((body, validated))
    }
}
