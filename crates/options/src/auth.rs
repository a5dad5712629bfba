//! Authentication at upstreams without a long-lived key in a header.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use tollgate_types::secret::Secret;
use url::Url;

use crate::network::Proxy;

/// One way to sign in to an upstream, from `auth` in `routes.yaml`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    /// The name of the upstream that it is for.
    pub upstream: String,
    /// The name of the credential; empty for the only one.
    pub credential: String,
    /// Token issuer and identity.
    pub kind: AuthKind,
    /// The forward proxy in front of whoever issues tokens.
    pub proxy: Option<Arc<Proxy>>,
    id: u64,
}

/// Kinds of credentials.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AuthKind {
    /// Microsoft Entra, for a client with a secret.
    Entra(EntraAuth),
    /// Google, for a service account.
    Google(GoogleAuth),
    /// Nobody, or AWS's security token service: requests are signed.
    Aws(Box<AwsAuth>),
}

/// A client of Microsoft Entra's that signs in with a secret.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EntraAuth {
    /// URL of the token endpoint.
    pub token_url: Url,
    /// The id of the application.
    pub client_id: String,
    /// The value of one of the application's secrets.
    pub client_secret: Secret,
    /// Scope of the token.
    pub scope: String,
}

/// A Google service account.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GoogleAuth {
    /// URL of the token endpoint.
    pub token_url: Url,
    /// The account, as an e-mail address.
    pub client_email: String,
    /// Id of the signing key.
    pub private_key_id: Option<String>,
    /// The key, as PEM.
    pub private_key: Secret,
    /// Scope of the token.
    pub scope: String,
}

/// A key of AWS's, with which requests are signed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AwsAuth {
    /// The key and its secret part.
    pub keys: AwsKeys,
    /// The region that requests are signed for.
    pub region: String,
    /// The service that requests are signed for.
    pub service: String,
    /// Role that is assumed with the key.
    pub assume_role: Option<AssumeRole>,
}

/// Keys that sign requests to AWS.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AwsKeys {
    /// The id of the key, which is sent with every request.
    pub access_key_id: Secret,
    /// The key, which is not.
    pub secret_access_key: Secret,
    /// Session token, for temporary keys.
    pub session_token: Option<Secret>,
}

/// An AWS role to assume.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AssumeRole {
    /// The role that is assumed, by its ARN.
    pub role_arn: String,
    /// External id that the role's trust policy requires.
    pub external_id: Option<Secret>,
    /// Session name in AWS's logs.
    pub session_name: String,
    /// The key of the session tag that has the customer's account for its value. With one, each account
    /// has a session of its own.
    pub account_tag: Option<String>,
    /// Endpoint of the Security Token Service.
    pub sts_url: Url,
}

impl Auth {
    /// The credential of this name for signing in to `upstream`.
    #[must_use]
    pub fn new(upstream: &str, credential: &str, kind: AuthKind) -> Self {
        let mut hasher = DefaultHasher::new();
        (upstream, credential, &kind).hash(&mut hasher);
        let (upstream, credential) = (upstream.to_owned(), credential.to_owned());
        Self { upstream, credential, kind, proxy: None, id: hasher.finish() }
    }

    /// This way to sign in, with its tokens fetched through a proxy.
    #[must_use]
    pub fn through(&self, proxy: Arc<Proxy>) -> Self {
        let mut hasher = DefaultHasher::new();
        (self.id, &proxy).hash(&mut hasher);
        Self { proxy: Some(proxy), id: hasher.finish(), ..self.clone() }
    }

    /// Token endpoint; `None` if no token is issued.
    #[must_use]
    pub fn token_url(&self) -> Option<&Url> {
        match &self.kind {
            AuthKind::Entra(entra) => Some(&entra.token_url),
            AuthKind::Google(google) => Some(&google.token_url),
            AuthKind::Aws(aws) => aws.assume_role.as_ref().map(|role| &role.sts_url),
        }
    }

    /// Hash of all settings: after a reload it shows whether issued tokens are still valid for them.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// True if a token is issued; otherwise requests are signed with the configured keys.
    #[must_use]
    pub fn is_issued(&self) -> bool {
        match &self.kind {
            AuthKind::Entra(_) | AuthKind::Google(_) => true,
            AuthKind::Aws(aws) => aws.assume_role.is_some(),
        }
    }

    /// Secrets of the configuration.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        let secrets = match &self.kind {
            AuthKind::Entra(entra) => [Some(&entra.client_secret), None, None, None],
            AuthKind::Google(google) => [Some(&google.private_key), None, None, None],
            AuthKind::Aws(aws) => {
                let AwsKeys { access_key_id, secret_access_key, session_token } = &aws.keys;
                let external = aws.assume_role.as_ref().and_then(|role| role.external_id.as_ref());
                [Some(access_key_id), Some(secret_access_key), session_token.as_ref(), external]
            }
        };
        secrets.into_iter().flatten().map(Secret::expose)
    }
}
