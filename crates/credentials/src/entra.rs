//! Tokens of Microsoft Entra for a client with a secret.
//!
//! Source: "OAuth 2.0 client credentials flow on the Microsoft identity platform", first case.

use http::HeaderMap;
use tollgate_options::auth::EntraAuth;
use url::form_urlencoded::Serializer;

use crate::question::TokenRequest;

/// Builds the request for a token.
pub(crate) fn request(entra: &EntraAuth) -> TokenRequest<'_> {
    let form = Serializer::new(String::new())
        .append_pair("grant_type", "client_credentials")
        .append_pair("client_id", &entra.client_id)
        .append_pair("client_secret", entra.client_secret.expose())
        .append_pair("scope", &entra.scope)
        .finish();
    TokenRequest { url: &entra.token_url, form, headers: HeaderMap::new() }
}
