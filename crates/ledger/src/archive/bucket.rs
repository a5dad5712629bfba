//! A bucket of an object store that speaks S3: `PUT` and `GET` of whole objects, with URLs that carry
//! their signatures.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use http::header::{ACCEPT_ENCODING, CONTENT_LENGTH};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use tollgate_credentials::presigned_s3_url;
use tollgate_options::archive::BucketOptions;
use tollgate_options::auth::AwsKeys;
use tollgate_outbound::StoreRequest;
use tollgate_types::clock::UnixMs;
use url::Url;

use super::transfer::{self, ObjectStream, Sum};

/// Validity of a signed URL: the largest difference of clocks to expect.
const VALID: Duration = Duration::from_secs(15 * 60);
/// Pauses between retries of a read. Writes have none: the maintenance thread repeats them itself.
const READ_PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3)];
const CONTENT_MD5: &str = "content-md5";

/// A bucket, and the key that signs requests to it.
pub(super) struct ArchiveBucket {
    pub(super) options: BucketOptions,
    keys: AwsKeys,
}

impl ArchiveBucket {
    pub(super) fn new(options: BucketOptions) -> Result<Self, String> {
        options.check()?;
        let keys = AwsKeys {
            access_key_id: options.access_key.clone(),
            secret_access_key: options.secret_key.clone(),
            session_token: None,
        };
        Ok(Self { options, keys })
    }

    /// The URL of an object with the signature of a request that also carries the header `signed`.
    fn url(&self, method: &Method, key: &str, signed: Option<(&str, &str)>) -> io::Result<Url> {
        let url = self.options.object_url(key).map_err(io::Error::other)?;
        let (region, now) = (&self.options.region, UnixMs::now());
        Ok(presigned_s3_url(&self.keys, region, method.as_str(), url, signed, now, VALID))
    }

    /// Stores the object in `body`, whose length and checksum are `sum`. A successful answer does not prove
    /// that the store has it.
    pub(super) fn put(
        &self,
        key: &str,
        sum: &Sum,
        body: Box<dyn Read + Send>,
        stop: &Arc<AtomicBool>,
    ) -> io::Result<()> {
        let url = self.url(&Method::PUT, key, Some((CONTENT_MD5, &sum.md5)))?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_LENGTH, sum.bytes.into());
        let md5 = HeaderValue::from_str(&sum.md5).map_err(io::Error::other)?;
        headers.insert(HeaderName::from_static(CONTENT_MD5), md5);
        let request =
            StoreRequest { method: Method::PUT, url, headers, proxy: self.options.proxy.clone() };
        let inner = transfer::put(request, body, (sum.bytes, self.options.timeout), stop);
        inner.map_err(|error| self.describe(&error))
    }

    /// The object of this length, or a small one, as it comes.
    pub(super) fn get(
        &self,
        key: &str,
        bytes: Option<u64>,
        stop: Option<&Arc<AtomicBool>>,
    ) -> io::Result<ObjectStream> {
        let mut pauses = READ_PAUSES.iter();
        loop {
            let error = match self.get_once(key, bytes, stop) {
                Ok(fetched) => return Ok(fetched),
                Err(error) => error,
            };
            match pauses.next() {
                // The maintenance thread retries writes by itself.
                Some(pause) if error.may_pass && stop.is_none() => {
                    thread::sleep(*pause);
                }
                _ => return Err(self.describe(&error)),
            }
        }
    }

    fn get_once(
        &self,
        key: &str,
        bytes: Option<u64>,
        stop: Option<&Arc<AtomicBool>>,
    ) -> Result<ObjectStream, transfer::TransferError> {
        let url = self.url(&Method::GET, key, None)?;
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let request =
            StoreRequest { method: Method::GET, url, headers, proxy: self.options.proxy.clone() };
        transfer::get(request, (bytes, self.options.timeout), stop.cloned())
    }

    /// Adds the store's location to an error; the caller adds the object.
    fn describe(&self, failed: &transfer::TransferError) -> io::Error {
        let BucketOptions { endpoint, bucket, .. } = &self.options;
        let says = format!("the store at {endpoint} (bucket {bucket}): {}", failed.says);
        io::Error::new(failed.kind, says)
    }
}
