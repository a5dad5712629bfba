//! Single settings of a `routes.yaml`, for commands that work with a gateway from outside: where its
//! admin API is, and where its data is.
//!
//! The shell of an operator has none of the service's secrets. So only the settings that a command
//! needs are read; variables and errors elsewhere in the file are for `tollgate check` and `serve`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;

use super::compile::{archive_of, database_of, sendable};
use super::diagnostic::{Diagnostic, Severity};
use super::document::Document;
use super::scalar::{ListenAddress, SecretText};
use super::{environment_proxies, raw, routes_schema, unreadable, variable};
use tollgate_options::archive::Archive;
use tollgate_options::postgres::PostgresOptions;
use tollgate_types::secret::Secret;

const ADDRESS: &[&str] = &["admin", "address"];
const TOKEN: &[&str] = &["admin", "token"];
const CERTIFICATE: &[&str] = &["admin", "tls", "certificate"];
const DATA_DIR: &[&str] = &["store", "data_dir"];
const ARCHIVE: &[&str] = &["store", "journal", "archive"];
/// The part of `store.postgres` that concerns the connection; node name and lease matter only to nodes.
const DATABASE: [&[&str]; 5] = [
    &["store", "postgres", "url"],
    &["store", "postgres", "password"],
    &["store", "postgres", "tls"],
    &["store", "postgres", "ca_file"],
    &["store", "postgres", "connections"],
];

/// A `routes.yaml` of which single settings are read.
#[derive(Debug)]
pub struct RoutesFile {
    document: Document,
}

/// The independently parsed settings. A setting that cannot be read is absent.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct RoutesSettings {
    admin: AdminSettings,
    store: StoreSettings,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct AdminSettings {
    address: Option<ListenAddress>,
    token: Option<SecretText>,
    tls: TlsSettings,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct TlsSettings {
    certificate: Option<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct StoreSettings {
    data_dir: Option<String>,
    postgres: Option<raw::PostgresSection>,
    journal: JournalSettings,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct JournalSettings {
    archive: Option<raw::ArchiveSection>,
}

impl RoutesFile {
    /// Reads the file, with the environment of this process.
    ///
    /// # Errors
    /// What keeps it from being read, or from being YAML.
    pub fn read(path: &Path) -> Result<Self, Vec<Diagnostic>> {
        let bytes = std::fs::read(path).map_err(|error| vec![unreadable(path, &error)])?;
        Self::parse(&path.to_string_lossy(), &bytes, &variable)
    }

    fn parse(
        name: &str,
        bytes: &[u8],
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Vec<Diagnostic>> {
        Document::parse(name, bytes, env, routes_schema()).map(|document| Self { document })
    }

    /// The address of the admin API.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn admin_address(&self) -> Result<SocketAddr, Vec<Diagnostic>> {
        let default = || raw::AdminSection::default().address;
        self.setting(&[ADDRESS], |_, read| read.admin.address.unwrap_or_else(default).0)
    }

    /// The token of the admin API; `None` where the gateway makes one itself.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn admin_token(&self) -> Result<Option<Secret>, Vec<Diagnostic>> {
        self.setting(&[TOKEN], |document, read| {
            let token = read.admin.token.map(|token| token.0);
            sendable(document, TOKEN, token.filter(|token| !token.expose().is_empty()))
        })
    }

    /// The certificate that the admin API shows, where it has TLS.
    ///
    /// # Errors
    /// What is wrong with its path.
    pub fn admin_certificate(&self) -> Result<Option<PathBuf>, Vec<Diagnostic>> {
        self.setting(&[CERTIFICATE], |document, read| {
            read.admin.tls.certificate.map(|path| document.beside(&path))
        })
    }

    /// The directory of the ledger.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn data_dir(&self) -> Result<PathBuf, Vec<Diagnostic>> {
        let default = || raw::StoreSection::default().data_dir;
        let named = self.setting(&[DATA_DIR], |_, read| read.store.data_dir);
        Ok(PathBuf::from(named?.unwrap_or_else(default)))
    }

    /// Connection to the database of a fleet; `None` where the file names none.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn database(&self) -> Result<Option<PostgresOptions>, Vec<Diagnostic>> {
        self.setting(&DATABASE, |document, read| Some(database_of(document, read.store.postgres?)))
    }

    /// Archive of closed journal files; `None` without one.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn archive(&self) -> Result<Option<Archive>, Vec<Diagnostic>> {
        let data_dir = self.data_dir()?;
        self.setting(&[ARCHIVE], |document, read| {
            archive_of(document, read.store.journal.archive?, &data_dir, &environment_proxies())
        })
    }

    /// Reads the settings at these paths; `compile` notes what is wrong with them.
    fn setting<T>(
        &self,
        paths: &[&[&str]],
        compile: impl FnOnce(&mut Document, RoutesSettings) -> T,
    ) -> Result<T, Vec<Diagnostic>> {
        let mut part = self.document.part(paths);
        // A misspelt name beside the setting would leave the default in its place, without a word.
        for fault in self.document.faults_beside::<raw::Routes>(paths) {
            part.note(fault);
        }
        part.note_unfilled();
        let compiled = part.read::<RoutesSettings>(&[]).map(|read| compile(&mut part, read));
        let mut errors = part.into_diagnostics();
        errors.retain(|found| found.severity == Severity::Error);
        match compiled {
            Some(compiled) if errors.is_empty() => Ok(compiled),
            _ => Err(errors),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file that docs/fleet.md shows, and providers whose keys are not set.
    const FLEET: &str = "
listeners: [{ address: '${LISTEN}' }]
admin: { token: '${ADMIN_TOKEN}', operators: [{ name: eve, token: '${EVE_TOKEN}' }] }
store:
  data_dir: /var/lib/tollgate
  recovery: ${RECOVERY}
  postgres:
    url: postgres://tollgate@127.0.0.1:5432/tollgate
    password: ${PG_PASSWORD}
    node: ${NODE}
    lease: ${LEASE}
upstreams:
  a: { protocol: openai, base_url: '${URL}', credential: '${KEY}' }
  b: { protocol: no-such-protocol }
";

    fn file(text: &str, set: &[(&str, &str)]) -> RoutesFile {
        let env = |name: &str| {
            let found = set.iter().find(|(field, _)| *field == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        RoutesFile::parse("routes.yaml", text.as_bytes(), &env).expect("YAML")
    }

    fn messages(errors: &[Diagnostic]) -> Vec<&str> {
        errors.iter().map(|error| error.message.as_str()).collect()
    }

    #[test]
    fn a_setting_needs_its_own_variables_and_no_others() {
        let file = file(FLEET, &[("PG_PASSWORD", "secret")]);
        assert_eq!(file.admin_address().expect("an address").to_string(), "127.0.0.1:9090");
        assert_eq!(file.admin_certificate().expect("none"), None);
        assert_eq!(file.data_dir().expect("a directory"), Path::new("/var/lib/tollgate"));
        assert_eq!(file.archive().expect("none"), None);
        let database = file.database().expect("in order").expect("a database");
        assert_eq!(database.password.expect("a password").expose(), "secret");
        let errors = file.admin_token().expect_err("its variable is not set");
        assert_eq!(messages(&errors), ["the environment variable `ADMIN_TOKEN` is not set"]);
    }

    #[test]
    fn a_setting_that_is_wrong_or_misspelt_is_said() {
        let wrong = |text: &str| {
            let errors = file(text, &[]).admin_address().expect_err("something is wrong");
            messages(&errors).join("; ")
        };
        assert!(wrong("admin: { address: here }").contains("address"), "no address");
        assert_eq!(wrong("admin: { adress: 127.0.0.1:1 }"), "unknown field `adress`");
        assert!(wrong("admin: 127.0.0.1:9090").contains("expected a mapping"));
        let spaced = file("admin: { token: 'a b' }", &[]);
        assert!(spaced.admin_token().is_err(), "it cannot be sent");
        let nowhere = file("store: { postgres: { password: x } }", &[]).database();
        assert_eq!(messages(&nowhere.expect_err("no URL")), ["missing field `url`"]);
        assert!(RoutesFile::parse("routes.yaml", b"a: [", &|_| None).is_err());
    }

    #[test]
    fn a_file_that_says_nothing_has_the_defaults() {
        for text in ["", "listeners: []\n"] {
            let file = file(text, &[]);
            assert_eq!(file.admin_address().expect("the default").port(), 9090);
            assert_eq!(file.admin_token().expect("none"), None);
            assert_eq!(file.data_dir().expect("the default"), Path::new("data"));
            assert!(file.database().expect("none").is_none());
        }
    }
}
