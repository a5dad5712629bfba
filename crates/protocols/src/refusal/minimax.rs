//! MiniMax, which says so in `base_resp` beside an answer or in its place, with a status of success.
//!
//! Source: <https://platform.minimax.io/docs/api-reference/errorcode>.

use super::RefusalFault::{Account, Busy, Credential, Customer, Model, Upstream};
use super::rule::{Rule, code, says};

pub(super) const RULES: &[Rule] = &[
    code("base_resp.1004", Credential),
    code("base_resp.2049", Credential),
    code("base_resp.1008", Account),
    code("base_resp.2061", Model),
    code("base_resp.1002", Busy),
    code("base_resp.1039", Busy),
    code("base_resp.1041", Busy),
    code("base_resp.2045", Busy),
    code("base_resp.2056", Busy),
    code("base_resp.1000", Upstream),
    code("base_resp.1001", Upstream),
    code("base_resp.1013", Upstream),
    code("base_resp.1024", Upstream),
    code("base_resp.1033", Upstream),
    code("base_resp.1026", Customer),
    code("base_resp.1027", Customer),
    code("base_resp.1042", Customer),
    code("base_resp.2013", Customer),
    code("base_resp.2037", Customer),
    code("base_resp.2039", Customer),
    code("base_resp.2042", Customer),
    code("base_resp.2048", Customer),
    says("insufficient balance (1008)", Account),
    says("invalid api key (2049)", Credential),
];
