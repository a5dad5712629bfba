//! The fields `auth` and `auths` of an upstream.

use schemars::JsonSchema;

use crate::scalar::SecretText;
use crate::url::BaseUrl;

/// Sign-in to the provider where a key in a header is not enough: one of these.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "Auth")]
pub(crate) struct AuthSection {
    /// Tokens of Microsoft Entra, for an application with a client secret.
    #[serde(default)]
    pub(crate) entra: Option<Entra>,
    /// Tokens of Google, for a service account.
    #[serde(default)]
    pub(crate) google: Option<GoogleSection>,
    /// Requests signed with an AWS access key or role.
    #[serde(default)]
    pub(crate) aws: Option<Aws>,
}

/// A Microsoft Entra application.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entra {
    /// The directory (tenant): its id, or one of its domains.
    pub(crate) tenant_id: String,
    /// The application (client) id.
    pub(crate) client_id: String,
    /// The value of a client secret, not its id.
    pub(crate) client_secret: SecretText,
    /// Scope of the tokens. Default: `https://cognitiveservices.azure.com/.default`, which is Azure OpenAI
    /// and Foundry.
    #[serde(default)]
    pub(crate) scope: Option<String>,
    /// Token endpoint, for clouds other than Azure's public one. Default:
    /// `https://login.microsoftonline.com/TENANT_ID/oauth2/v2.0/token`.
    #[serde(default)]
    pub(crate) token_url: Option<BaseUrl>,
}

/// A Google service account.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "Google")]
pub(crate) struct GoogleSection {
    /// The text of the account's key file, in JSON: `{file: PATH}`, or out of `${VAR}`.
    pub(crate) service_account_key: SecretText,
    /// Scope of the tokens. Default: `https://www.googleapis.com/auth/cloud-platform`.
    #[serde(default)]
    pub(crate) scope: Option<String>,
    /// Token endpoint. Default: the key file's `token_uri`.
    #[serde(default)]
    pub(crate) token_url: Option<BaseUrl>,
}

/// An AWS access key.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Aws {
    /// The id of the access key, such as `AKIA…`.
    pub(crate) access_key_id: SecretText,
    /// The secret part of the access key.
    pub(crate) secret_access_key: SecretText,
    /// The session token of a key that is temporary, whose id begins with `ASIA`. When it ends, calls
    /// fail until the file has another one.
    #[serde(default)]
    pub(crate) session_token: Option<SecretText>,
    /// The region that requests are signed for: that of the upstream's host.
    pub(crate) region: String,
    /// Service name in signatures. Default: `bedrock`.
    #[serde(default)]
    pub(crate) service: Option<String>,
    /// Role that is assumed with the key. Default: none; requests are signed with the key.
    #[serde(default)]
    pub(crate) assume_role: Option<AssumeRoleSection>,
}

/// An AWS role.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "AssumeRole")]
pub(crate) struct AssumeRoleSection {
    /// The role, such as `arn:aws:iam::123456789012:role/tollgate`.
    pub(crate) role_arn: String,
    /// External id that the role's trust policy requires from other accounts.
    #[serde(default)]
    pub(crate) external_id: Option<SecretText>,
    /// Name of sessions in CloudTrail. Default: `tollgate`.
    #[serde(default)]
    pub(crate) session_name: Option<String>,
    /// The key of a session tag whose value is the id of the customer's account: each account then has
    /// a session of its own, and AWS's bills can be split by it. The role's trust policy must allow
    /// `sts:TagSession`. Default: one session for all.
    #[serde(default)]
    pub(crate) account_tag: Option<String>,
    /// Endpoint of AWS's Security Token Service. Default: `https://sts.REGION.amazonaws.com`.
    #[serde(default)]
    pub(crate) sts_url: Option<BaseUrl>,
}
