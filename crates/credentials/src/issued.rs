//! Credentials issued for an upstream: a token, or keys that sign requests.

use std::time::Duration;

use bytes::Bytes;
use tollgate_options::auth::{AwsAuth, AwsKeys};
use tollgate_types::clock::UnixMs;
use tollgate_types::secret::Secret;

use crate::sigv4::{self, Signable, SigningScope};

/// A credential issued for one account, or for all of them.
#[derive(Debug)]
pub(crate) struct IssuedCredential {
    pub(crate) proof: Proof,
    /// Time from which the credential is renewed while it is still used, by
    /// [`tollgate_types::clock::uptime`].
    pub(crate) renew_at: Duration,
    /// End of use, by the same clock.
    pub(crate) ends_at: Duration,
}

/// The two kinds of proof.
#[derive(Debug)]
pub(crate) enum Proof {
    /// The value of `Authorization`.
    Bearer(Secret),
    /// Keys that sign each request.
    Signer(AwsSigner),
}

/// The keys, region and service of AWS signatures.
#[derive(Debug)]
pub(crate) struct AwsSigner {
    pub(crate) keys: AwsKeys,
    pub(crate) region: String,
    pub(crate) service: String,
    /// The offset of the token endpoint's clock from this machine's, in milliseconds; positive if it is
    /// ahead.
    pub(crate) ahead_ms: i64,
}

/// A request before it is signed.
#[derive(Clone, Copy, Debug)]
pub struct UnsignedRequest<'a> {
    /// The method, in capital letters.
    pub method: &'a str,
    /// The value of `Host`.
    pub authority: &'a str,
    /// Path as sent, with its query.
    pub path: &'a str,
    /// The whole body, in pieces.
    pub body: &'a [Bytes],
}

/// Headers with the operator's credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedHeaders {
    /// The value of `Authorization`.
    pub authorization: String,
    /// Further headers of the signature: lowercase names with their values.
    pub more: Vec<(&'static str, String)>,
}

impl AwsSigner {
    /// A signer with these keys instead of the configured ones.
    pub(crate) fn new(aws: &AwsAuth, keys: AwsKeys, ahead_ms: i64) -> Self {
        let (region, service) = (aws.region.clone(), aws.service.clone());
        Self { keys, region, service, ahead_ms }
    }

    /// The headers of a request that is sent now, by our clock.
    pub(crate) fn sign(&self, request: &UnsignedRequest<'_>, now: UnixMs) -> SignedHeaders {
        let Self { keys, region, service, ahead_ms } = self;
        let at = sigv4::timestamp(UnixMs(now.0.saturating_add_signed(*ahead_ms)));
        let body_sha256 = sigv4::pieces_sha256(request.body);
        let session = keys.session_token.as_ref().map(|token| token.expose().to_owned());
        let mut more =
            vec![("x-amz-content-sha256", body_sha256.clone()), ("x-amz-date", at.clone())];
        more.extend(session.map(|token| ("x-amz-security-token", token)));
        let own = more.iter().map(|(name, value)| (*name, value.as_str()));
        let headers: Vec<(&str, &str)> =
            std::iter::once(("host", request.authority)).chain(own).collect();
        let UnsignedRequest { method, path, .. } = *request;
        let signable = Signable { method, path, headers: &headers, body_sha256: &body_sha256 };
        let authorization =
            sigv4::authorization(keys, &signable, &SigningScope { region, service, at: &at });
        SignedHeaders { authorization, more }
    }
}
