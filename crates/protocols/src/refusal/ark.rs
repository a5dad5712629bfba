//! Volcengine's Ark, which is BytePlus ModelArk abroad.
//!
//! Source: BytePlus ModelArk, "Error codes".

use super::RefusalFault::{Account, Busy, Credential, Customer, Model};
use super::rule::{Rule, code};

pub(super) const RULES: &[Rule] = &[
    code("accountoverdue*", Account),
    code("operationdenied.serviceoverdue*", Account),
    code("operationdenied*", Account),
    code("invalidaccountstatus*", Account),
    code("setlimitexceeded*", Account),
    code("quotaexceeded*", Account),
    code("authenticationerror*", Credential),
    code("invalidapikey*", Credential),
    code("apikeyexpired*", Credential),
    code("modelnotopen*", Model),
    code("modelnotfound*", Model),
    code("invalidendpoint*", Model),
    code("unsupportedmodel*", Model),
    code("ratelimitexceeded*", Busy),
    code("modelaccount*", Busy),
    code("accountratelimit*", Busy),
    code("serveroverloaded*", Busy),
    code("inflightbatchsize*", Busy),
    code("requestburst*", Busy),
    code("sensitivecontent*", Customer),
    code("inputtextsensitivecontent*", Customer),
    code("inputimagesensitivecontent*", Customer),
    code("outputtextsensitivecontent*", Customer),
    code("missingparameter*", Customer),
];
