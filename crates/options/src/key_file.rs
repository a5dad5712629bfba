//! The key file of a service account of Google's, as its console hands it out.

use ring::rsa::KeyPair;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Deserialize;
use tollgate_types::secret::Secret;
use url::Url;

use crate::auth::GoogleAuth;

/// Fault of a private key. Does not repeat the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyFileError {
    /// Description of the fault.
    pub message: &'static str,
    /// Description of the correct form.
    pub help: &'static str,
}

/// Fields read from a key file.
#[derive(Deserialize)]
struct KeyFile {
    #[serde(rename = "type")]
    kind: Option<String>,
    client_email: Option<String>,
    private_key: Option<String>,
    private_key_id: Option<String>,
    token_uri: Option<String>,
}

const FROM_CONSOLE: &str = "the JSON file that Google's console makes for a service account's key, as \
                            `{file: PATH}` or in a variable";

/// Reads the text of a key file; the token is for `scope`, and comes from `token_url` if it is given,
/// else from where the file says.
///
/// # Errors
/// A text that is not JSON, that is another kind of credential, or whose key does not sign.
pub fn read(text: &str, scope: String, token_url: Option<Url>) -> Result<GoogleAuth, KeyFileError> {
    let wrong = |message| KeyFileError { message, help: FROM_CONSOLE };
    let text = text.trim();
    if !text.starts_with('{') {
        // The most common mistake: the path of the file in the place of its content.
        let is_path = text.ends_with(".json") || text.starts_with('/');
        let help = if is_path { "write `{file: PATH}` to have it read" } else { FROM_CONSOLE };
        return Err(KeyFileError { message: "this is not the text of a key file", help });
    }
    let file: KeyFile =
        serde_json::from_str(text).map_err(|_| wrong("the key file is no JSON document"))?;
    match file.kind.as_deref() {
        Some("service_account") => {}
        Some("authorized_user") => {
            return Err(wrong(
                "this is what `gcloud` keeps for a person, not a service account's key",
            ));
        }
        Some("external_account" | "impersonated_service_account") => {
            return Err(wrong("workload identity federation and impersonation are not supported"));
        }
        _ => return Err(wrong("the key file's `type` is not `service_account`")),
    }
    let (Some(client_email), Some(private_key)) = (file.client_email, file.private_key) else {
        return Err(wrong("the key file lacks its `client_email` or its `private_key`"));
    };
    // Tried now, so that a damaged key is an error of the file and not of the first call.
    signer(&private_key).ok_or(wrong("the key file's `private_key` is no RSA key in PKCS #8"))?;
    let named = file.token_uri.as_deref().map(Url::parse);
    let token_url = match (token_url, named) {
        (Some(url), _) | (None, Some(Ok(url))) => url,
        (None, _) => return Err(wrong("the key file lacks its `token_uri`")),
    };
    let (private_key, private_key_id) = (Secret::new(private_key), file.private_key_id);
    Ok(GoogleAuth { token_url, client_email, private_key_id, private_key, scope })
}

/// The key that a PEM text holds; `None` if it holds none that signs with RSA.
#[must_use]
pub fn signer(pem: &str) -> Option<KeyPair> {
    let der = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes()).ok()?;
    KeyPair::from_pkcs8(der.secret_pkcs8_der()).ok()
}
