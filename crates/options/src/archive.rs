//! Archive of closed journal files: a directory, or a bucket of an S3-compatible store.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tollgate_types::secret::Secret;
use url::Url;

use crate::network::Proxy;

/// The bytes of an object key that a URL path carries encoded: all but the unreserved ones of RFC 3986
/// and the slash. S3 signs the path exactly as it is sent.
const KEY: &AsciiSet = &SEGMENT.remove(b'/');
/// The same within one segment of the path.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Archive of segments that a start does not need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Archive {
    /// Location; each ledger has its own directory or prefix in it.
    pub to: ArchiveTo,
    /// Time that segments stay in the data directory after their last record.
    pub keep: Duration,
}

/// A place for segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArchiveTo {
    /// A directory, which may be on another disk.
    Directory(PathBuf),
    /// A bucket of an object store.
    Bucket(Box<BucketOptions>),
}

/// Address and credentials of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketOptions {
    /// URL of the store, without the bucket.
    pub endpoint: Url,
    /// The region that requests are signed for.
    pub region: String,
    /// The name of the bucket.
    pub bucket: String,
    /// Prefix of object keys, without a slash at either end; may be empty.
    pub prefix: String,
    /// Use path-style URLs: the bucket is in the path, not in the host name.
    pub path_style: bool,
    /// The id of the key that signs.
    pub access_key: Secret,
    /// The secret part of the access key.
    pub secret_key: Secret,
    /// The longest silence of the store.
    pub timeout: Duration,
    /// The forward proxy in front of the store.
    pub proxy: Option<Arc<Proxy>>,
}

impl BucketOptions {
    /// Checks that the bucket has a URL.
    ///
    /// # Errors
    /// As [`Self::url`].
    pub fn check(&self) -> Result<(), String> {
        self.url().map(drop)
    }

    /// The key of an object below the prefix.
    #[must_use]
    pub fn key(&self, name: &str) -> String {
        if self.prefix.is_empty() { name.to_owned() } else { format!("{}/{name}", self.prefix) }
    }

    /// The URL of an object by its full key, without a signature.
    ///
    /// # Errors
    /// As [`Self::url`].
    pub fn object_url(&self, key: &str) -> Result<Url, String> {
        let mut url = self.url()?;
        // Appended, not joined: a key cannot replace the path of the bucket.
        let path = format!("{}{}", url.path(), utf8_percent_encode(key, KEY));
        url.set_path(&path);
        Ok(url)
    }

    /// The URL of the bucket; its path ends in a slash.
    ///
    /// # Errors
    /// An endpoint without a host or of another scheme than `http` and `https`, or a bucket whose name
    /// cannot stand in the name of the host.
    fn url(&self) -> Result<Url, String> {
        let mut url = self.endpoint.clone();
        let host = url.host_str().ok_or("Url is missing the `host`")?.to_owned();
        if !matches!(url.scheme(), "http" | "https") {
            return Err("unsupported Url scheme".to_owned());
        }
        url.set_query(None);
        url.set_fragment(None);
        // In the URL they would be sent in a header, which S3 refuses beside a signature. This fails for
        // URLs without a host alone.
        url.set_username("").and_then(|()| url.set_password(None)).ok();
        let base = url.path().strip_suffix('/').unwrap_or(url.path()).to_owned();
        if self.path_style {
            url.set_path(&format!("{base}/{}/", utf8_percent_encode(&self.bucket, SEGMENT)));
            return Ok(url);
        }
        let host = format!("{}.{host}", self.bucket);
        url.set_host(Some(&host)).map_err(|error| error.to_string())?;
        // `set_host` drops and maps some characters, which would give the URL of another bucket.
        if url.host_str() != Some(&*host) {
            return Err(url::ParseError::InvalidDomainCharacter.to_string());
        }
        url.set_path(&format!("{base}/"));
        Ok(url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(endpoint: &str, path_style: bool, bucket: &str) -> BucketOptions {
        BucketOptions {
            endpoint: endpoint.parse().expect("a URL"),
            region: "eu-central-1".to_owned(),
            bucket: bucket.to_owned(),
            prefix: "tollgate/eu".to_owned(),
            path_style,
            access_key: Secret::new("AKIDEXAMPLE".to_owned()),
            secret_key: Secret::new("secret".to_owned()),
            timeout: Duration::from_secs(10),
            proxy: None,
        }
    }

    #[test]
    fn the_bucket_is_in_the_path_or_in_the_host() {
        for (endpoint, path_style, expected) in [
            ("https://s3.example.com", true, "https://s3.example.com/books/a%20b/0%2B1.seg"),
            ("https://example.com/s3/", true, "https://example.com/s3/books/a%20b/0%2B1.seg"),
            (
                "https://s3.example.com:9000",
                false,
                "https://books.s3.example.com:9000/a%20b/0%2B1.seg",
            ),
            ("http://example.com/s3", false, "http://books.example.com/s3/a%20b/0%2B1.seg"),
        ] {
            let url = options(endpoint, path_style, "books").object_url("a b/0+1.seg");
            assert_eq!(url.expect("a URL").as_str(), expected);
        }
    }

    #[test]
    fn a_bucket_is_no_part_of_an_address_or_of_a_host_with_other_letters() {
        for (endpoint, bucket) in
            [("https://10.0.0.7:9000", "books"), ("https://s3.example.com", "Books")]
        {
            assert!(options(endpoint, false, bucket).check().is_err(), "{bucket} at {endpoint}");
            assert!(options(endpoint, true, bucket).check().is_ok(), "{bucket} at {endpoint}");
        }
    }
}
