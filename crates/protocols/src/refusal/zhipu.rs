//! Zhipu, which is Z.ai abroad: its codes are numbers in strings.
//!
//! Source: <https://docs.bigmodel.cn/cn/api/api-code>.

use super::RefusalFault::{Account, Busy, Credential, Customer, Model};
use super::rule::{Rule, code, says};

pub(super) const RULES: &[Rule] = &[
    code("1000", Credential),
    code("1001", Credential),
    code("1002", Credential),
    code("1003", Credential),
    code("1004", Credential),
    code("1110", Account),
    code("1111", Account),
    code("1112", Account),
    code("1113", Account),
    code("1121", Account),
    code("1304", Account),
    code("1308", Account),
    code("1309", Account),
    code("1310", Account),
    code("1313", Account),
    code("1211", Model),
    code("1220", Model),
    code("1222", Model),
    code("1311", Model),
    code("1302", Busy),
    code("1303", Busy),
    code("1305", Busy),
    code("1312", Busy),
    code("1210", Customer),
    code("1213", Customer),
    code("1214", Customer),
    code("1261", Customer),
    code("1301", Customer),
    says("余额不足", Account),
    says("您的账户已欠费", Account),
    says("账户余额不足", Account),
    says("您的账户余额不足", Account),
    says("insufficient balance or no resource package", Account),
];
