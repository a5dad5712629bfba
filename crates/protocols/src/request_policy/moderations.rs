//! Allowlist of moderations. The input is read where it is measured.

use super::Allowlist;
use super::Field::Plain;

pub(in super::super) static MODERATIONS: Allowlist = Allowlist {
    fields: &[("input", Plain), ("model", Plain)],
    tools: &[],
    server_tools: &[],
    tool_keys: &[],
};
