//! Compiles `auth` and `auths` of an upstream in `routes.yaml`: signing in with tokens or signatures.

use url::Url;

use crate::document::{Document, Fault};
use crate::raw;
use crate::spans::DocumentPath;
use crate::url::BaseUrl;
use tollgate_options::auth::{Auth, AuthKind, EntraAuth, GoogleAuth};
use tollgate_options::key_file;
use tollgate_types::secret::Secret;

mod aws;

/// Default scope of Entra's tokens.
const ENTRA_SCOPE: &str = "https://cognitiveservices.azure.com/.default";
/// Suffix of a scope that requests all permissions of the client.
const DEFAULT_SCOPE: &str = "/.default";
/// Default scope of Google's tokens.
const GOOGLE_SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";

/// The upstream that a way to sign in is for.
#[derive(Clone, Copy)]
pub(super) struct AuthFor<'a> {
    /// The name of the upstream.
    pub(super) upstream: &'a str,
    /// The host of its base URL.
    pub(super) host: &'a str,
    /// The name of the credential; empty for the only one.
    pub(super) credential: &'a str,
}

/// Compiles valid settings, and reports the others.
pub(super) fn compile(
    document: &mut Document,
    at: &DocumentPath,
    raw: &raw::AuthSection,
    whose: AuthFor<'_>,
) -> Option<Auth> {
    let kind = match (&raw.entra, &raw.google, &raw.aws) {
        (Some(raw), None, None) => AuthKind::Entra(entra(document, &at.key("entra"), raw)?),
        (None, Some(raw), None) => AuthKind::Google(google(document, &at.key("google"), raw)?),
        (None, None, Some(raw)) => {
            AuthKind::Aws(Box::new(aws::compile(document, &at.key("aws"), raw, whose.host)?))
        }
        (None, None, None) => {
            let fault = Fault::at_key(at, "this says nothing of how to sign in");
            document.note(fault.help("add `entra`, `google` or `aws`"));
            return None;
        }
        _ => {
            let fault = Fault::at_key(at, "there are two ways to sign in");
            document.note(fault.help("keep one of `entra`, `google` and `aws`"));
            return None;
        }
    };
    Some(Auth::new(whose.upstream, whose.credential, kind))
}

fn entra(document: &mut Document, at: &DocumentPath, raw: &raw::Entra) -> Option<EntraAuth> {
    let tenant = raw.tenant_id.as_str();
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
    // Endpoints for users of several tenants issue no tokens to an application.
    let shared = ["common", "organizations", "consumers"];
    if tenant.is_empty() || !tenant.bytes().all(is_letter) || shared.contains(&tenant) {
        let fault =
            Fault::at_value(&at.key("tenant_id"), "this is no tenant that can issue tokens");
        let help = "the Directory (tenant) ID of the application's overview, or a domain such as \
                    `example.onmicrosoft.com`";
        document.note(fault.help(help));
        return None;
    }
    check_text(document, &at.key("client_id"), &raw.client_id, "the Application (client) ID");
    check_given(document, &at.key("client_secret"), &raw.client_secret.0);
    // The portal shows the id of a secret beside its value, and keeps only the id visible.
    if is_guid(raw.client_secret.0.expose()) {
        let message = "this looks like the id of a client secret";
        let fault = Fault::at_value(&at.key("client_secret"), message).warning();
        document.note(fault.help("take its value, which is shown once, when it is made"));
    }
    let scope = raw.scope.as_deref().unwrap_or(ENTRA_SCOPE);
    // Client credentials get the permissions of the application, which only this scope names.
    if !scope.ends_with(DEFAULT_SCOPE) || scope.contains(char::is_whitespace) {
        let fault = Fault::at_value(&at.key("scope"), "a client with a secret gets no such token");
        document.note(fault.help("one scope that ends with `/.default`"));
    }
    let usual = format!("https://login.microsoftonline.com/{tenant}/oauth2/v2.0/token");
    let token_url = match &raw.token_url {
        Some(typed) => url(document, &at.key("token_url"), typed)?,
        None => Url::parse(&usual).ok()?,
    };
    Some(EntraAuth {
        token_url,
        client_id: raw.client_id.clone(),
        client_secret: raw.client_secret.0.clone(),
        scope: scope.to_owned(),
    })
}

fn google(
    document: &mut Document,
    at: &DocumentPath,
    raw: &raw::GoogleSection,
) -> Option<GoogleAuth> {
    let scope = raw.scope.as_deref().unwrap_or(GOOGLE_SCOPE);
    check_text(document, &at.key("scope"), scope, GOOGLE_SCOPE);
    let token_url = match &raw.token_url {
        Some(typed) => Some(url(document, &at.key("token_url"), typed)?),
        None => None,
    };
    let key = at.key("service_account_key");
    match key_file::read(raw.service_account_key.0.expose(), scope.to_owned(), token_url) {
        Ok(google) if is_safe(&google.token_url) => Some(google),
        Ok(_) => {
            let message = "the key file's `token_uri` does not begin with `https://`";
            document.note(Fault::at_value(&key, message).help("or give a `token_url`"));
            None
        }
        Err(error) => {
            document.note(Fault::at_value(&key, error.message).help(error.help));
            None
        }
    }
}

/// The URL at which tokens are issued.
fn url(document: &mut Document, at: &DocumentPath, typed: &BaseUrl) -> Option<Url> {
    let scheme = if typed.tls { "https" } else { "http" };
    let url = Url::parse(&format!("{scheme}://{}{}", typed.authority, typed.path_prefix)).ok()?;
    // An error, not a warning as for an API key: with it anybody can have tokens of the whole account.
    if !is_safe(&url) {
        let message = "what stands for the operator's rights goes over the network in clear text";
        document.note(Fault::at_value(at, message).help("begin the URL with `https://`"));
        return None;
    }
    Some(url)
}

/// True for `https` URLs, and for plain HTTP on this machine.
fn is_safe(url: &Url) -> bool {
    let is_here = url.host_str().is_some_and(super::base_url::is_loopback);
    url.scheme() == "https" || url.scheme() == "http" && is_here
}

/// Reports an empty text, or one that cannot be sent in a request.
fn check_text(document: &mut Document, at: &DocumentPath, text: &str, example: &str) {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        let fault = Fault::at_value(at, "this is empty, or has letters that do not belong here");
        document.note(fault.help(format!("such as {example}")));
    }
}

/// Reports an empty or invalid secret.
fn check_given(document: &mut Document, at: &DocumentPath, secret: &Secret) {
    if secret.expose().is_empty() {
        let fault = Fault::at_key(at, "there is nothing to sign in with");
        document.note(fault.help("take it from `${VAR}` or `{file: PATH}`"));
    }
    super::secrets::check_secret(document, at, Some(secret));
}

/// True for 32 hex digits in the groups of a GUID.
fn is_guid(text: &str) -> bool {
    let lengths: Vec<usize> = text.split('-').map(str::len).collect();
    let is_digit = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
    lengths == [8, 4, 4, 4, 12] && text.bytes().all(is_digit)
}
