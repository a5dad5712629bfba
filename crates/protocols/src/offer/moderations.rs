//! Allowlist of moderations. The input is read where it is measured.

use super::Field::Plain;
use super::Offer;

pub(in super::super) static MODERATIONS: Offer = Offer {
    fields: &[("input", Plain), ("model", Plain)],
    tools: &[],
    server_tools: &[],
    tool_keys: &[],
};
