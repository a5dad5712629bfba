//! A listener's certificate and key: read from two PEM files, and checked before they are used.

use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use tollgate_types::clock::UnixMs;

/// A PEM file is at most this long, in bytes: a chain of a dozen certificates is 32 KiB.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Paths of a listener's certificate and private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// PEM: the server's own certificate first, then the intermediates.
    pub certificate: PathBuf,
    /// PEM: the private key of the first certificate.
    pub key: PathBuf,
}

impl CertificateFiles {
    /// Path of one of the files.
    #[must_use]
    pub fn path(&self, file: CertificateFile) -> &Path {
        match file {
            CertificateFile::Certificate => &self.certificate,
            CertificateFile::Key => &self.key,
        }
    }
}

/// A certificate chain and its key, ready to be shown to clients.
pub struct Certificate {
    /// The files it was read from.
    pub files: CertificateFiles,
    /// Certificate chain and key in the form that rustls uses.
    pub certified: Arc<CertifiedKey>,
    /// The end of its validity.
    pub not_after: UnixMs,
    fingerprint: [u8; 32],
}

/// The file of a pair that an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateFile {
    /// The file of the certificate's chain.
    Certificate,
    /// The file of the private key.
    Key,
}

/// An unusable pair of certificate files. Never repeats their contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateError {
    /// The file at fault.
    pub file: CertificateFile,
    /// Cause, for the operator.
    pub message: String,
    /// Suggested fix for the operator.
    pub help: &'static str,
}

impl CertificateError {
    fn new(file: CertificateFile, message: impl Into<String>, help: &'static str) -> Self {
        Self { file, message: message.into(), help }
    }
}

impl Certificate {
    /// Reads both files and checks that they belong together and are valid at `now`.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    pub fn load(files: &CertificateFiles, now: UnixMs) -> Result<Self, Vec<CertificateError>> {
        let (chain, key) = read_both(files)?;
        Self::from_pem(files, &chain, &key, now)
    }

    /// Reads both files again: `None` if nothing in them has changed.
    ///
    /// # Errors
    /// Everything that is wrong with a pair that has changed.
    pub fn renewed(&self, now: UnixMs) -> Result<Option<Self>, Vec<CertificateError>> {
        let (chain, key) = read_both(&self.files)?;
        // By content: a renewed file can keep its time, and an equal one have another.
        if fingerprint(&chain, &key) == self.fingerprint {
            return Ok(None);
        }
        Self::from_pem(&self.files, &chain, &key, now).map(Some)
    }

    /// A digest of both files.
    pub(crate) fn fingerprint(&self) -> [u8; 32] {
        self.fingerprint
    }

    fn from_pem(
        files: &CertificateFiles,
        chain_pem: &[u8],
        key_pem: &[u8],
        now: UnixMs,
    ) -> Result<Self, Vec<CertificateError>> {
        // Both files are read before either error returns, so that one run reports both.
        let (chain, key) = both(parse_chain(chain_pem), parse_key(key_pem))?;
        let not_after = check_validity(&chain, now);
        let (not_after, certified) = both(not_after, certified(chain, key))?;
        Ok(Self {
            files: files.clone(),
            certified: Arc::new(certified),
            not_after,
            fingerprint: fingerprint(chain_pem, key_pem),
        })
    }
}

/// Both values, or every error.
fn both<A, B>(
    first: Result<A, CertificateError>,
    second: Result<B, CertificateError>,
) -> Result<(A, B), Vec<CertificateError>> {
    match (first, second) {
        (Ok(first), Ok(second)) => Ok((first, second)),
        (first, second) => Err(first.err().into_iter().chain(second.err()).collect()),
    }
}

/// Omits the key and the certificate's subject.
impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { files, not_after, .. } = self;
        f.debug_struct("Certificate")
            .field("files", files)
            .field("not_after", not_after)
            .finish_non_exhaustive()
    }
}

fn parse_chain(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    chain.ok().filter(|chain| !chain.is_empty()).ok_or_else(|| {
        let help = "PEM: the server's own certificate first, then the intermediates";
        let message = "there is no readable certificate in this file";
        CertificateError::new(CertificateFile::Certificate, message, help)
    })
}

fn parse_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, CertificateError> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|_| {
        let help = "PEM, without a passphrase: `-----BEGIN PRIVATE KEY-----` and what follows";
        let message = "there is no readable private key in this file";
        CertificateError::new(CertificateFile::Key, message, help)
    })
}

fn certified(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<CertifiedKey, CertificateError> {
    let provider = rustls::crypto::ring::default_provider();
    CertifiedKey::from_der(chain, key, &provider).map_err(|error| {
        let (message, help) = match error {
            rustls::Error::InconsistentKeys(_) => (
                "this key does not belong to the certificate",
                "the first certificate must be the one that was made for this key",
            ),
            _ => (
                "this key cannot be used for TLS",
                "RSA of 2048 to 8192 bits, ECDSA over P-256 or P-384, or Ed25519",
            ),
        };
        CertificateError::new(CertificateFile::Key, message, help)
    })
}

/// The end of the first certificate's validity, if that is now.
fn check_validity(chain: &[CertificateDer<'_>], now: UnixMs) -> Result<UnixMs, CertificateError> {
    let refused =
        |message: String, help| CertificateError::new(CertificateFile::Certificate, message, help);
    let parsed = chain.first().and_then(|first| X509Certificate::from_der(first).ok());
    let Some((_, certificate)) = parsed else {
        let message = "the first certificate in this file is not one of X.509".to_owned();
        return Err(refused(message, "ask for it again where it was made"));
    };
    let unix_ms = |time: &x509_parser::time::ASN1Time| {
        UnixMs(u64::try_from(time.timestamp()).unwrap_or(0).saturating_mul(1000))
    };
    let validity = certificate.validity();
    let (not_before, not_after) = (unix_ms(&validity.not_before), unix_ms(&validity.not_after));
    if now < not_before {
        let message = format!("this certificate is not valid before {}", not_before.to_rfc3339());
        return Err(refused(message, "is this machine's clock right?"));
    }
    if now > not_after {
        let message = format!("this certificate expired on {}", not_after.to_rfc3339());
        return Err(refused(message, "renew it: clients refuse it"));
    }
    Ok(not_after)
}

fn read_both(files: &CertificateFiles) -> Result<(Vec<u8>, Vec<u8>), Vec<CertificateError>> {
    let read = |file| read(files.path(file)).map_err(|reason| unreadable(file, &reason));
    both(read(CertificateFile::Certificate), read(CertificateFile::Key))
}

fn unreadable(file: CertificateFile, reason: &str) -> CertificateError {
    let help =
        "make it a readable PEM file; a relative path begins at the directory of this YAML file";
    CertificateError::new(file, format!("this file cannot be used: {reason}"), help)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let metadata = std::fs::metadata(path).map_err(|error| error.to_string())?;
    // Opening a FIFO would block the reload until somebody writes to it.
    if !metadata.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    // One byte more than allowed tells a longer file from one of exactly the limit.
    let read = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
    if read.map_err(|error| error.to_string())? as u64 > FILE_BYTES_MAX {
        return Err(format!("it is longer than {FILE_BYTES_MAX} bytes"));
    }
    Ok(bytes)
}

fn fingerprint(chain: &[u8], key: &[u8]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    // The length keeps a byte that moves from one file to the other from going unseen.
    hasher.update(chain.len().to_le_bytes());
    hasher.update(chain);
    hasher.update(key);
    hasher.finalize().into()
}
