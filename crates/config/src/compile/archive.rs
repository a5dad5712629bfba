//! `store.journal.archive`: where the journal's closed files go.

use std::path::PathBuf;
use std::time::Duration;

use url::Url;

use super::DAY;
use super::reach::{ServerAddress, TypedProxy};
use crate::document::{Document, Fault};
use crate::raw;
use crate::spans::DocumentPath;
use crate::url::BaseUrl;
use tollgate_options::archive::{Archive, ArchiveTo, BucketOptions};
use tollgate_options::network::ProxyRules;

/// The length of a bucket's name in bytes, as S3 allows it.
const BUCKET_BYTES: std::ops::RangeInclusive<usize> = 3..=63;
/// Maximum length of the prefix, in bytes: keys have at most 1024, and the ledger's name and a number follow.
const PREFIX_BYTES_MAX: usize = 512;
/// Minimum timeout: a shorter one would abandon a working store.
const TIMEOUT_MIN: Duration = Duration::from_secs(1);
/// Longer, and a reader waits for nothing.
const TIMEOUT_MAX: Duration = Duration::from_secs(600);

/// Compiles valid settings, and reports the others. `at` is the path of `store`.
pub(super) fn compile(
    document: &mut Document,
    at: &DocumentPath,
    raw: raw::ArchiveSection,
    data_dir: &std::path::Path,
    proxies: &ProxyRules,
) -> Option<Archive> {
    let at = at.key("journal").key("archive");
    let to = match (raw.directory, raw.s3) {
        (Some(named), None) => {
            ArchiveTo::Directory(directory(document, &at.key("directory"), named, data_dir))
        }
        (None, Some(raw)) => {
            let options = bucket(document, &at.key("s3"), raw)?;
            ArchiveTo::Bucket(Box::new(through_proxy(document, &at.key("s3"), options, proxies)))
        }
        (Some(_), Some(_)) => {
            let fault = Fault::at_key(&at.key("s3"), "files cannot go to two places");
            document.note(fault.help("remove `directory` or `s3`"));
            return None;
        }
        (None, None) => {
            let fault = Fault::at_key(&at, "the archive has no place");
            document.note(fault.help("add a `directory`, or a bucket as `s3`"));
            return None;
        }
    };
    Some(Archive { to, keep: DAY * u32::from(raw.keep_days) })
}

fn directory(
    document: &mut Document,
    at: &DocumentPath,
    named: String,
    data_dir: &std::path::Path,
) -> PathBuf {
    if named.is_empty() {
        let fault = Fault::at_value(at, "the archive's directory has no name");
        document.note(fault.help("such as `/mnt/archive/tollgate`"));
    }
    let directory = PathBuf::from(named);
    // A lost disk would take journal and archive together.
    if directory.starts_with(data_dir) {
        let fault = Fault::at_value(at, "the archive is within the data directory");
        document.note(fault.help("name a directory beside it, best on another disk"));
    }
    directory
}

/// Sets the proxy that the environment names for a bucket.
fn through_proxy(
    document: &mut Document,
    at: &DocumentPath,
    options: BucketOptions,
    rules: &ProxyRules,
) -> BucketOptions {
    let place = ServerAddress::of_url(&options.endpoint);
    let proxy = TypedProxy::Default.before(document, at, rules, place);
    BucketOptions { proxy, ..options }
}

fn bucket(
    document: &mut Document,
    at: &DocumentPath,
    raw: raw::BucketSection,
) -> Option<BucketOptions> {
    if !is_bucket(&raw.bucket) {
        let fault = Fault::at_value(&at.key("bucket"), "no bucket can be called so");
        document.note(fault.help("3 to 63 of `a` to `z`, `0` to `9`, `-` and `.`, without a path"));
    }
    if !is_prefix(&raw.prefix) {
        let fault = Fault::at_value(&at.key("prefix"), "keys cannot begin so");
        document.note(fault.help(format!(
            "at most {PREFIX_BYTES_MAX} letters, digits and `-_.=`, with single slashes between them, \
             such as `tollgate/eu`"
        )));
    }
    let is_region = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if raw.region.is_empty() || !raw.region.bytes().all(is_region) {
        let fault = Fault::at_value(&at.key("region"), "this is no region");
        document.note(fault.help("such as `eu-central-1`, or `auto` where the store says so"));
    }
    if !(TIMEOUT_MIN..=TIMEOUT_MAX).contains(&raw.timeout.0) {
        let fault = Fault::at_value(&at.key("timeout"), "the store cannot be waited for so long");
        document.note(fault.help("from `1s` to `10m`"));
    }
    // An empty variable would sign with an empty key, and the store refuse each file.
    for (field, secret) in [("access_key", &raw.access_key), ("secret_key", &raw.secret_key)] {
        if secret.0.expose().is_empty() {
            let fault = Fault::at_key(&at.key(field), "there is no key to sign with");
            document.note(fault.help("take it from `${VAR}` or `{file: PATH}`"));
        }
    }
    let endpoint = endpoint(document, at, &raw)?;
    let options = BucketOptions {
        // AWS wants the bucket in the host. Another store may have neither names nor a certificate for such hosts.
        path_style: raw.path_style.unwrap_or(raw.endpoint.is_some()),
        endpoint,
        region: raw.region,
        bucket: raw.bucket,
        prefix: raw.prefix,
        access_key: raw.access_key.0,
        secret_key: raw.secret_key.0,
        timeout: raw.timeout.0,
        proxy: None,
    };
    let is_https = options.endpoint.scheme() == "https";
    // A wildcard certificate covers one label, and the dot makes two.
    if !options.path_style && is_https && options.bucket.contains('.') {
        let at = at.key("bucket");
        let fault = Fault::at_value(&at, "no certificate is good for a host that is called so");
        document.note(fault.help("add `path_style: true`"));
    } else if is_bucket(&options.bucket)
        && let Err(reason) = options.check()
    {
        let message = format!("the bucket cannot be reached so: {reason}");
        let help = "with an address for a host, take `path_style: true`";
        document.note(Fault::at_key(at, message).help(help));
    }
    Some(options)
}

fn endpoint(document: &mut Document, at: &DocumentPath, raw: &raw::BucketSection) -> Option<Url> {
    let text = match &raw.endpoint {
        Some(BaseUrl { tls, authority, path_prefix, .. }) => {
            let scheme = if *tls { "https" } else { "http" };
            format!("{scheme}://{authority}{path_prefix}")
        }
        None => format!("https://s3.{}.amazonaws.com", raw.region),
    };
    let at = at.key("endpoint");
    let Ok(url) = Url::parse(&text) else {
        // A region that is none was told of.
        if raw.endpoint.is_some() {
            let fault = Fault::at_value(&at, "this is not where a store can be");
            document.note(fault.help("such as `https://s3.eu-central-1.amazonaws.com`"));
        }
        return None;
    };
    let is_here = match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    if url.scheme() == "http" && !is_here {
        let message = "what customers did and paid goes over the network in clear text";
        let help = "take an `https://` endpoint, or see to it that nobody else is on that network";
        document.note(Fault::at_value(&at, message).warning().help(help));
    }
    Some(url)
}

fn is_bucket(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    BUCKET_BYTES.contains(&name.len())
        && name.bytes().all(|byte| is_letter(byte) || matches!(byte, b'-' | b'.'))
        && name.bytes().next().is_some_and(is_letter)
        && name.bytes().last().is_some_and(is_letter)
        && !name.contains("..")
}

fn is_prefix(prefix: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.=".contains(&byte);
    let is_part =
        |part: &str| !part.is_empty() && part != "." && part != ".." && part.bytes().all(is_letter);
    prefix.is_empty() || prefix.len() <= PREFIX_BYTES_MAX && prefix.split('/').all(is_part)
}
