//! Stages of a request, one file each: authenticate → resolve → validate → limit → admit → rewrite →
//! meter → settle.
//!
//! Each stage consumes the result of the previous one, so money cannot be settled that was not reserved.
//! Nothing here knows HTTP statuses or Pingora.

mod authenticate;
mod resolve;
mod affinity;
mod validate;
mod prompt_count;
mod limit;
mod payment;
mod try_cost;
mod quote;
mod admitted;
mod affordable;
mod shortfall;
mod priced;
mod admit;
mod rolling;
mod upstream_request;
mod rewrite;
mod meter;
mod settle;
mod cost;

pub use admit::{AdmitOutcome, admit};
pub use admitted::{AdmittedRequest, AnsweredParts};
pub use affinity::{affinity, binding, stored_object_lost};
pub use affordable::{OutputCost, affordable_output, cost_at};
pub use authenticate::authenticate;
pub use limit::limit;
pub use meter::{CoverageError, RelayStep, Relaying};
pub use payment::Payment;
pub use priced::PricedRequest;
pub use prompt_count::{CountRequest, PromptCount};
pub use quote::Holding;
pub use resolve::{ResolvedRequest, bad_json, resolve};
pub use rewrite::{read_collected, rewrite, rewrite_collected, rewrite_submit};
pub use settle::{Bill, Ending, SettlementOutcome};
pub use try_cost::{TryCost, TryTarget};
pub use upstream_request::UpstreamRequest;
pub use validate::{ValidatedRequest, validate};
