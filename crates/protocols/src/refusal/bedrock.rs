//! Amazon Bedrock. Failures are told by name, in a header or in `__type`, and without `Exception` at
//! their end in some places.
//!
//! Source: Amazon Bedrock user guide, "Troubleshooting Amazon Bedrock API Error Codes"; AWS, "Common
//! error types".

use super::RefusalFault::{Account, Busy, Credential, Customer, Model};
use super::rule::{Rule, code, code_says, says};

pub(super) const RULES: &[Rule] = &[
    code("unrecognizedclient*", Credential),
    code("expiredtoken*", Credential),
    code("invalidsignature*", Credential),
    code("signaturedoesnotmatch*", Credential),
    code("incompletesignature*", Credential),
    code("missingauthenticationtoken*", Credential),
    code("invalidclienttokenid*", Credential),
    code("invalidaccesskeyid*", Credential),
    code("notauthorized*", Credential),
    says("the security token included in the request is", Credential),
    says("authentication failed: please make sure your api key is valid", Credential),
    says("bearer token has expired", Credential),
    says("api key has expired", Credential),
    says("signature expired:", Credential),
    says("the request signature we calculated does not match", Credential),
    says("missing authentication token", Credential),
    code("optinrequired*", Account),
    code("subscriptionrequired*", Account),
    says("the aws access key id needs a subscription", Account),
    says("model access is denied due to invalid_payment_instrument*", Account),
    says("your account is not authorized to invoke this api operation", Account),
    says("your account is currently blocked", Account),
    says("your account has been", Account),
    says("operation not allowed", Account),
    says("access to anthropic models is not allowed from", Account),
    says("access to this model is not available for channel program accounts", Account),
    says("this account is not authorized", Account),
    says("you don't have access to the model with the specified model id", Model),
    says("model access is denied", Model),
    says("user: * is not authorized to perform:", Model),
    says("access denied. this model is marked by provider as legacy", Model),
    says("you do not have access to the model", Model),
    says("the provided model identifier is invalid", Model),
    says("the provided model doesn't support on-demand throughput", Model),
    says("invocation of model id * with on-demand throughput isn't supported", Model),
    says("this model version has reached the end of its life", Model),
    says("model use case details have not been submitted", Model),
    says("could not resolve the foundation model", Model),
    code_says("resourcenotfound*", "could not find", Model),
    code_says("resourcenotfound*", "the model", Model),
    code("throttling*", Busy),
    code("servicequotaexceeded*", Busy),
    code("modelnotready*", Busy),
    says("too many requests, please wait", Busy),
    says("too many tokens", Busy),
    // Of a refusal with a status of success, in a frame: the name alone tells.
    code("validationexception", Customer),
];
