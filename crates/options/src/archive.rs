//! Where closed files of the journal go: a directory, or a bucket of an object store that speaks S3.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rusty_s3::UrlStyle;
use tollgate_types::secret::Secret;
use url::Url;

use crate::network::Proxy;

/// Where segments go that a start does not need any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Archive {
    /// The place; in it each ledger has a directory, or a prefix, of its own.
    pub to: ArchiveTo,
    /// How long segments stay in the data directory after their last record.
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

/// How a bucket is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketOptions {
    /// Where the store is, without the bucket.
    pub endpoint: Url,
    /// The region that requests are signed for.
    pub region: String,
    /// The name of the bucket.
    pub bucket: String,
    /// What keys begin with, without a slash at either end; empty for nothing.
    pub prefix: String,
    /// Whether the bucket stands in the path of URLs, and not in the name of the host.
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
    /// Whether a bucket can be reached so.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self) -> Result<(), String> {
        self.signer().map(|_| ())
    }

    /// The key of an object below the prefix.
    #[must_use]
    pub fn key(&self, name: &str) -> String {
        if self.prefix.is_empty() { name.to_owned() } else { format!("{}/{name}", self.prefix) }
    }

    /// Where the bucket is, for whoever signs requests to it.
    ///
    /// # Errors
    /// Why a bucket cannot be reached so.
    pub fn signer(&self) -> Result<rusty_s3::Bucket, String> {
        let style = if self.path_style { UrlStyle::Path } else { UrlStyle::VirtualHost };
        let (endpoint, name) = (self.endpoint.clone(), self.bucket.clone());
        let made = rusty_s3::Bucket::new(endpoint, style, name, self.region.clone());
        made.map_err(|error| error.to_string())
    }
}
