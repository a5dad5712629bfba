//! Azure OpenAI and Azure AI Foundry, which answer in OpenAI's shape with codes of their own.
//!
//! Source: Microsoft Learn, "Azure OpenAI REST API reference" and "Troubleshooting".

use super::RefusalFault::{Account, Busy, Credential, Customer, Model};
use super::rule::{Rule, code, code_says, says};

pub(super) const RULES: &[Rule] = &[
    says("access denied due to invalid subscription key", Credential),
    says("access denied due to missing subscription key", Credential),
    says("the access token is missing, invalid, audience is incorrect", Credential),
    says("unauthorized. access token is missing", Credential),
    says("token contains invalid audience", Credential),
    says("token tenant * does not match", Credential),
    says("ide token is invalid", Credential),
    says("key based authentication is disabled", Credential),
    code("authenticationtypedisabled", Credential),
    code("invalidauthenticationtoken", Credential),
    code("invalidsubscriptionkey", Credential),
    says("access denied due to virtual network/firewall rules", Account),
    says("public access is disabled", Account),
    says("out of call volume quota", Account),
    code("accountdisabled", Account),
    code("subscriptionsuspended", Account),
    code("subscriptionnotfound", Account),
    code("readonlydisabledsubscription", Account),
    code("accountisdisabled", Account),
    code("quotaexceeded", Account),
    says("the subscription is disabled", Account),
    says("your subscription", Account),
    says("this subscription", Account),
    says("your resource has been temporarily blocked", Account),
    says("the principal * lacks the required data action", Account),
    code("deploymentnotfound", Model),
    code("unavailable_model", Model),
    code("unknown_model", Model),
    code("modeldeprecated", Model),
    code("operationnotsupported", Model),
    says("the api deployment for this resource does not exist", Model),
    code("nocapacity", Busy),
    code_says("429", "requests to the", Busy),
    says("requests to the * operation under", Busy),
    says("the system is currently experiencing high demand", Busy),
    says("your requests to * for * have exceeded", Busy),
    code("responsibleaipolicyviolation", Customer),
];
