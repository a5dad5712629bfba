//! URLs of objects in S3 that carry their signatures: version 4, in the query.
//!
//! Source: Amazon S3 API reference, "Authenticating Requests: Using Query Parameters".

use std::time::Duration;

use percent_encoding::utf8_percent_encode;
use tollgate_options::auth::AwsKeys;
use tollgate_types::clock::UnixMs;
use url::Url;

use crate::sigv4::{self, ALGORITHM, QUERY, SigningScope};

/// Returns the URL of a request to S3 with its signature, which is valid from the moment `now` for the
/// duration `valid`. The request must also carry the header `signed`, by its name in small letters,
/// and `Host`; its body is not signed.
#[must_use]
pub fn presigned_s3_url(
    keys: &AwsKeys,
    region: &str,
    method: &str,
    mut url: Url,
    signed: Option<(&str, &str)>,
    now: UnixMs,
    valid: Duration,
) -> Url {
    let at = sigv4::timestamp(now);
    let scope = SigningScope { region, service: "s3", at: &at };
    let host = url.host_str().unwrap_or_default();
    // The default port of the scheme is no part of the header `Host`.
    let host = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    let mut headers: Vec<(&str, &str)> = signed.into_iter().chain([("host", &*host)]).collect();
    headers.sort_unstable();
    let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let credential = format!("{}/{}", keys.access_key_id.expose(), scope.credential_scope());
    let seconds = valid.as_secs().to_string();
    // In the order that the canonical request needs: sorted by name.
    let session = keys.session_token.as_ref().map(|token| ("X-Amz-Security-Token", token.expose()));
    let parameters = [
        ("X-Amz-Algorithm", ALGORITHM),
        ("X-Amz-Credential", &credential),
        ("X-Amz-Date", &at),
        ("X-Amz-Expires", &seconds),
    ];
    let parameters =
        parameters.into_iter().chain(session).chain([("X-Amz-SignedHeaders", &*names)]);
    let parameters: Vec<String> = parameters
        .map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, QUERY)))
        .collect();
    let query = parameters.join("&");
    let headers: String =
        headers.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
    // S3 takes the path as it is sent; every other service takes it encoded once more.
    let path = url.path();
    let canonical = format!("{method}\n{path}\n{query}\n{headers}\n{names}\nUNSIGNED-PAYLOAD");
    let signature = sigv4::signature(keys, &canonical, &scope);
    url.set_query(Some(&format!("{query}&X-Amz-Signature={signature}")));
    url
}

#[cfg(test)]
mod tests {
    use tollgate_types::secret::Secret;

    use super::*;

    /// The example of Amazon's documentation.
    #[test]
    fn the_documented_example_is_signed_as_documented() {
        let keys = AwsKeys {
            access_key_id: Secret::new("AKIAIOSFODNN7EXAMPLE".to_owned()),
            secret_access_key: Secret::new("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned()),
            session_token: None,
        };
        let url: Url = "https://examplebucket.s3.amazonaws.com/test.txt".parse().expect("a URL");
        let (now, valid) = (UnixMs(1_369_353_600_000), Duration::from_secs(86_400));
        let presigned = presigned_s3_url(&keys, "us-east-1", "GET", url, None, now, valid);
        assert_eq!(
            presigned.query(),
            Some(
                "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2F\
                 us-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&\
                 X-Amz-SignedHeaders=host&X-Amz-Signature=\
                 aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
            )
        );
    }

    #[test]
    fn a_port_a_path_and_another_header_are_signed_as_they_are_sent() {
        let keys = AwsKeys {
            access_key_id: Secret::new("AKIDEXAMPLE".to_owned()),
            secret_access_key: Secret::new("secret".to_owned()),
            session_token: Some(Secret::new("a/b+c=".to_owned())),
        };
        let url: Url = "http://127.0.0.1:9000/books/a%20b.seg".parse().expect("a URL");
        let (now, valid) = (UnixMs(1_369_353_600_000), Duration::from_secs(900));
        let md5 = Some(("content-md5", "1B2M2Y8AsgTpgAmY7PhCfg=="));
        let presigned = presigned_s3_url(&keys, "auto", "PUT", url.clone(), md5, now, valid);
        assert_eq!(presigned.path(), "/books/a%20b.seg");
        let query = presigned.query().expect("a query");
        assert!(query.contains("&X-Amz-Security-Token=a%2Fb%2Bc%3D&"), "{query}");
        assert!(query.contains("&X-Amz-SignedHeaders=content-md5%3Bhost&"), "{query}");
        let without = presigned_s3_url(&keys, "auto", "PUT", url, None, now, valid);
        assert_ne!(presigned, without);
    }
}
