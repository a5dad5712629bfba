//! The field `store` of `routes.yaml`.

use std::time::Duration;

use schemars::JsonSchema;

use crate::database_url::DatabaseUrl;
use crate::scalar::{ByteSize, DurationText, SecretText};
use crate::url::BaseUrl;

/// Storage of the ledger.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[serde(rename = "Store")]
pub(crate) struct StoreSection {
    /// The directory of the ledger, for one process at a time. Default: `data`.
    pub(crate) data_dir: String,
    /// Charge for calls interrupted by a crash. Default: `void`.
    pub(crate) recovery: RecoveryMode,
    /// The database of a fleet: several gateways that spend the same money. Default: none, and this
    /// gateway is the only one.
    pub(crate) postgres: Option<PostgresSection>,
    /// Files of the journal.
    pub(crate) journal: JournalSection,
    /// Retention in sled, where statements and usage are read fastest.
    pub(crate) statements: Statements,
}

/// Retention in sled, where statements and usage are read fastest.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Statements {
    /// Number of days, from 1 to 3650, for which sled keeps statement lines and hourly usage. Older lines are
    /// read from the journal, and older usage is kept by the day. Default: `90`.
    pub(crate) keep_days: u16,
    /// Approximate maximum size of the lines kept in sled, from `16MiB`; older lines are read from the
    /// journal. Default: `128MiB`.
    pub(crate) size_max: ByteSize,
}

impl Default for Statements {
    fn default() -> Self {
        Self { keep_days: 90, size_max: ByteSize(128 << 20) }
    }
}

impl Default for StoreSection {
    fn default() -> Self {
        let (data_dir, journal) = ("data".to_owned(), JournalSection::default());
        let statements = Statements::default();
        Self { data_dir, recovery: RecoveryMode::Void, postgres: None, journal, statements }
    }
}

/// Files of the journal.
#[derive(Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[serde(rename = "Journal")]
pub(crate) struct JournalSection {
    /// Archive of closed journal files that startup does not need. Default: none; all files stay in the data
    /// directory.
    pub(crate) archive: Option<ArchiveSection>,
}

/// Archive of closed journal files: a directory or a bucket.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "Archive")]
pub(crate) struct ArchiveSection {
    /// A directory, preferably on another disk. Each ledger creates its own subdirectory.
    pub(crate) directory: Option<String>,
    /// A bucket of an object store with the S3 API. Each ledger uses its own prefix.
    pub(crate) s3: Option<BucketSection>,
    /// Number of days for which a file stays in the data directory after its last record. Default: `30`.
    #[serde(default = "keep_days")]
    pub(crate) keep_days: u16,
}

/// A bucket and the settings to reach it.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "Bucket")]
pub(crate) struct BucketSection {
    /// Name of the header.
    pub(crate) bucket: String,
    /// Prefix of all object keys, such as `tollgate/eu`. Default: none.
    #[serde(default)]
    pub(crate) prefix: String,
    /// URL of the object store, without the bucket. Default: Amazon's, in this region.
    pub(crate) endpoint: Option<BaseUrl>,
    /// The region that requests are signed for. Default: `us-east-1`.
    #[serde(default = "region")]
    pub(crate) region: String,
    /// `true` puts the bucket into the path of URLs instead of the host name. Default: `true` with an
    /// `endpoint`, `false` without.
    pub(crate) path_style: Option<bool>,
    /// The id of the key that signs requests.
    pub(crate) access_key: SecretText,
    /// The key that signs requests.
    pub(crate) secret_key: SecretText,
    /// Timeout without data from the store, from `1s` to `10m`. Default: `30s`.
    #[serde(default = "store_timeout")]
    pub(crate) timeout: DurationText,
}

fn region() -> String {
    "us-east-1".to_owned()
}

fn store_timeout() -> DurationText {
    DurationText(Duration::from_secs(30))
}

fn keep_days() -> u16 {
    30
}

/// Resolution of calls that a crash left open.
#[derive(Clone, Copy, Debug, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", rename = "Recovery")]
#[schemars(title = "a way of recovery", inline)]
pub(crate) enum RecoveryMode {
    /// The customer pays nothing.
    Void,
    /// The customer pays the least that the call must have cost: its estimated input.
    Floor,
}

/// The database of a fleet, and this gateway's place in it.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "Postgres")]
pub(crate) struct PostgresSection {
    /// URL of the database, without a password. Of several hosts with commas between them, the one that
    /// accepts writes is used.
    pub(crate) url: DatabaseUrl,
    /// Password of the database user. Default: none.
    pub(crate) password: Option<SecretText>,
    /// Encryption of the connection. Default: `verify-full`, or `disable` for a database on this machine.
    pub(crate) tls: Option<DatabaseTls>,
    /// The authorities whose certificates the server may prove its name with, as PEM. Default: those
    /// that this machine trusts.
    pub(crate) ca_file: Option<String>,
    /// Maximum number of connections, in addition to the one for notifications. Default: `10`.
    #[serde(default = "connections")]
    pub(crate) connections: u32,
    /// Name of this gateway in the fleet. Default: the name of the machine.
    pub(crate) node: Option<String>,
    /// Time for which this gateway continues without the database, from `2s` to `60s`. Must be equal for all
    /// gateways of a fleet. Default: `10s`.
    #[serde(default = "lease")]
    pub(crate) lease: DurationText,
    /// Period for which this gateway leases money in advance, at its customers' current rate of spending.
    /// Calls continue for that long without the database, as far as the lease allows. From `1s` to `10m`.
    /// Default: `lease`.
    pub(crate) cover: Option<DurationText>,
}

fn connections() -> u32 {
    10
}

fn lease() -> DurationText {
    DurationText(Duration::from_secs(10))
}

/// Encryption of the connection to the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(title = "a way to connect", inline)]
pub(crate) enum DatabaseTls {
    /// The connection is encrypted, and the server's certificate and name are verified.
    VerifyFull,
    /// The connection is not encrypted.
    Disable,
}
