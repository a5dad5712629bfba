//! Addresses of a fleet's database.

use super::scalar::{Scalar, ScalarError, scalar};
use tollgate_options::database_url::{Host, hosts_of};

/// The address of a database, without a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DatabaseUrl {
    /// The URL as the operator wrote it.
    pub(super) text: String,
    /// Hosts of the URL.
    pub(super) hosts: Vec<Host>,
}

impl Scalar for DatabaseUrl {
    const FORMAT: &'static str = "tollgate-database-url";
    const DESCRIPTION: &'static str =
        "a database's URL such as `postgres://tollgate@db.internal:5432/tollgate`";
    const NUMBER: bool = false;
    const PATTERN: &'static str = r"^(postgres(ql)?://[^:/?#@]+@[^/?#@]+/[^/?#]+|.*\$\{.*)$";

    fn parse(text: &str) -> Result<Self, ScalarError> {
        let hosts = hosts_of(text).map_err(|error| ScalarError::new(error.message, error.help))?;
        Ok(Self { text: text.to_owned(), hosts })
    }
}

scalar!(DatabaseUrl);
