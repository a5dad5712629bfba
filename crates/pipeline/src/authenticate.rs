//! Authentication by API key.

use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName};

use tollgate_ledger::{Key, Ledger};
use tollgate_types::clock::UnixMs;
use tollgate_types::error::{ErrorKind, GatewayError};
use tollgate_types::secret::KeyHash;

/// Anthropic's SDKs send the key in this header, alone or beside `Authorization`.
const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Google's SDKs send the key in this header.
const X_GOOG_API_KEY: HeaderName = HeaderName::from_static("x-goog-api-key");

/// Look up the API key of a request, from `Authorization: Bearer`, `x-api-key` or `x-goog-api-key`, or
/// `in_query` on paths that allow it. Clients may send several; the first valid one counts.
///
/// Every candidate is hashed and looked up alike, so that neither timing nor the response tells how
/// close a guess was.
///
/// # Errors
/// `Unauthorized` for no key and for one that is unknown or revoked; `PermissionDenied` for a
/// disabled or expired one and for those of a suspended account.
pub fn authenticate(
    ledger: &Ledger,
    headers: &HeaderMap,
    in_query: Option<&[u8]>,
    now: UnixMs,
) -> Result<Arc<Key>, GatewayError> {
    let presented =
        [bearer(headers), single(headers, X_API_KEY), single(headers, X_GOOG_API_KEY), in_query];
    let look_up = |key: &[u8]| {
        let found = ledger.presented(&KeyHash::of(key));
        // A revoked key is answered like one that never was.
        found.filter(|(key, _)| !key.is_revoked())
    };
    let (key, suspended) = presented.into_iter().flatten().find_map(look_up).ok_or_else(|| {
        let message = if presented == [None; 4] {
            "No API key was sent. Send it as `Authorization: Bearer sk-…` or as `x-api-key`."
        } else {
            "The API key is not valid. Check that it was copied whole."
        };
        GatewayError::new(ErrorKind::Unauthorized, message)
    })?;
    let denied =
        |message: &'static str| Err(GatewayError::new(ErrorKind::PermissionDenied, message));
    if suspended {
        return denied("The account is suspended.");
    }
    if key.disabled {
        return denied("This API key is disabled. Use another key, or ask for it to be enabled.");
    }
    if key.is_expired(now) {
        return denied("This API key has expired. Use another key.");
    }
    Ok(key)
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = single(headers, AUTHORIZATION)?;
    let (scheme, key) = value.split_at_checked("bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| key.trim_ascii())
}

/// Value of a header that was sent exactly once; repeated headers are ambiguous.
fn single(headers: &HeaderMap, name: HeaderName) -> Option<&[u8]> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    values.next().is_none().then(|| first.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bearer_scheme_is_read_in_any_case_and_only_once() {
        let header = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, http::HeaderValue::from_static(value));
            }
            bearer(&headers).map(<[u8]>::to_vec)
        };
        assert_eq!(header(&["Bearer sk-1"]), Some(b"sk-1".to_vec()));
        assert_eq!(header(&["bEARER  sk-1 "]), Some(b"sk-1".to_vec()));
        assert_eq!(header(&["Basic sk-1"]), None);
        assert_eq!(header(&["Bearer"]), None);
        assert_eq!(header(&["Bearer sk-1", "Bearer sk-2"]), None, "two keys are no key");
    }
}
