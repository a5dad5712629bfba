//! Google tokens for a service account, which signs its request with its own key.
//!
//! Source: "Using OAuth 2.0 for Server to Server Applications"; RFC 7523 section 2.1.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use ring::rand::SystemRandom;
use ring::signature::RSA_PKCS1_SHA256;
use serde_json::json;
use tollgate_options::auth::GoogleAuth;
use tollgate_options::key_file;
use tollgate_types::clock::UnixMs;
use url::form_urlencoded::Serializer;

use crate::question::TokenRequest;

/// The lifetime of a signed assertion, in seconds: the longest that Google accepts.
const ASSERTION_SECONDS: u64 = 3600;
/// The grant type of the token request (RFC 7523).
const GRANT_TYPE: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";

/// Builds the request for a token, at the current time of the server's clock.
pub(crate) fn request(google: &GoogleAuth, now: UnixMs) -> Result<TokenRequest<'_>, &'static str> {
    let assertion = assertion(google, now)?;
    let form = Serializer::new(String::new())
        .append_pair("grant_type", GRANT_TYPE)
        .append_pair("assertion", &assertion)
        .finish();
    Ok(TokenRequest { url: &google.token_url, form, headers: HeaderMap::new() })
}

/// A JSON Web Token with the account and the requested scope (RFC 7519), signed with RS256.
fn assertion(google: &GoogleAuth, now: UnixMs) -> Result<String, &'static str> {
    let mut header = json!({ "alg": "RS256", "typ": "JWT" });
    if let Some(id) = &google.private_key_id {
        header["kid"] = id.as_str().into();
    }
    let claims = json!({
        "iss": google.client_email,
        "scope": google.scope,
        "aud": google.token_url.as_str(),
        "iat": now.seconds(),
        "exp": now.seconds().saturating_add(ASSERTION_SECONDS),
    });
    let part = |document: serde_json::Value| URL_SAFE_NO_PAD.encode(document.to_string());
    let text = [part(header), part(claims)].join(".");
    let key = key_file::signer(google.private_key.expose()).ok_or("its key does not sign")?;
    let mut signature = vec![0; key.public().modulus_len()];
    let signed = key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature);
    signed.map_err(|_| "its key does not sign")?;
    Ok([text, URL_SAFE_NO_PAD.encode(&signature)].join("."))
}
