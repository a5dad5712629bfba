//! The proof of identity that an upstream receives instead of an API key.

use std::sync::Arc;

use tollgate_types::clock::UnixMs;
use tollgate_types::secret::Secret;

use crate::cell::Cell;
use crate::issued::{IssuedCredential, Proof, SignedHeaders, UnsignedRequest};

/// The credential of one attempt at an upstream.
#[derive(Clone, Debug)]
pub struct Token {
    pub(crate) issued: Arc<IssuedCredential>,
    /// The cache it came from; `None` for keys from the configuration.
    pub(crate) cell: Option<Arc<Cell>>,
}

impl Token {
    /// The headers with which this very request is sent, now.
    #[must_use]
    pub fn headers(&self, request: &UnsignedRequest<'_>) -> SignedHeaders {
        match &self.issued.proof {
            Proof::Bearer(value) => {
                SignedHeaders { authorization: value.expose().to_owned(), more: Vec::new() }
            }
            Proof::Signer(signer) => signer.sign(request, UnixMs::now()),
        }
    }

    /// Returns its secret parts, which an upstream may repeat in a response.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        let secrets = match &self.issued.proof {
            Proof::Bearer(value) => [value.expose().strip_prefix("Bearer "), None],
            Proof::Signer(signer) => [
                Some(signer.keys.secret_access_key.expose()),
                signer.keys.session_token.as_ref().map(Secret::expose),
            ],
        };
        secrets.into_iter().flatten()
    }

    /// Discards the credential if a response with this status rejects it, unless another was discarded within
    /// the last minute. Returns true if a retry is worthwhile.
    pub fn give_up_after(&self, status: u16) -> bool {
        let is_refused = match &self.issued.proof {
            Proof::Bearer(_) => status == 401,
            // So AWS calls a session that has ended.
            Proof::Signer(_) => matches!(status, 401 | 403),
        };
        is_refused && self.cell.as_ref().is_some_and(|cell| cell.give_up(&self.issued))
    }
}
