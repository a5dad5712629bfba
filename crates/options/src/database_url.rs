//! The address of a database, as operators write it.

use std::fmt;
use std::net::IpAddr;

/// Default port of PostgreSQL.
const PORT: u16 = 5432;

/// One machine that an address names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// A name, an address, or the directory of a Unix socket.
    pub name: String,
    /// The TCP port of the host.
    pub port: u16,
}

impl Host {
    /// True for this machine: the connection stays local and is not encrypted.
    #[must_use]
    pub fn is_here(&self) -> bool {
        let address = self.name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        self.name.starts_with('/')
            || self.name == "localhost"
            || address.is_ok_and(|address| address.is_loopback())
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.port)
    }
}

/// Address of the database, for messages.
#[must_use]
pub fn place(hosts: &[Host]) -> String {
    hosts.iter().map(Host::to_string).collect::<Vec<_>>().join(",")
}

/// Fault of a database URL. Does not repeat the text, which may contain a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UrlError {
    /// Description of the fault.
    pub message: &'static str,
    /// Description of the correct form.
    pub help: &'static str,
}

const EXAMPLE: &str = "such as `postgres://tollgate@db.internal:5432/tollgate`";

impl UrlError {
    fn new(message: &'static str) -> Self {
        Self { message, help: EXAMPLE }
    }
}

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.message, self.help)
    }
}

/// The machines of `postgres://user@host:port,host:port/database`. A Unix socket's directory is
/// written with `%2F` for its slashes.
///
/// # Errors
/// What is wrong with the address.
pub fn hosts_of(url: &str) -> Result<Vec<Host>, UrlError> {
    let rest = ["postgres://", "postgresql://"].iter().find_map(|scheme| url.strip_prefix(scheme));
    let rest = rest.ok_or(UrlError::new("a database's URL begins with `postgres://`"))?;
    let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
    let (user, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
    if user.contains(':') {
        let help = "put it into `password`, out of `${VAR}` or `{file: PATH}`";
        return Err(UrlError { message: "this URL has a password in it", help });
    }
    if user.is_empty() {
        return Err(UrlError::new("this URL names no user"));
    }
    if url.contains(['?', '#']) {
        let help = "end it with the database; there are fields for the rest";
        return Err(UrlError { message: "this URL has parameters", help });
    }
    if database.is_empty() || database.contains('/') {
        return Err(UrlError::new("this URL names no database"));
    }
    hosts.split(',').map(host_of).collect()
}

fn host_of(text: &str) -> Result<Host, UrlError> {
    // The colons of an IPv6 address are within brackets.
    let colon = text.rfind(':').filter(|at| text.rfind(']').is_none_or(|bracket| bracket < *at));
    let (name, port) = match colon {
        None => (text, PORT),
        Some(at) => {
            let port = text[at + 1..].parse().ok().filter(|port| *port > 0);
            (&text[..at], port.ok_or(UrlError::new("this URL's port is not a port"))?)
        }
    };
    if name.is_empty() || name.contains(char::is_whitespace) {
        return Err(UrlError::new("this URL names no host"));
    }
    let name = name.replace("%2F", "/").replace("%2f", "/");
    Ok(Host { name, port })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<String, String> {
        hosts_of(url).map(|hosts| place(&hosts)).map_err(|error| error.to_string())
    }

    #[test]
    fn addresses_name_machines_and_no_passwords() {
        for (url, place, here) in [
            ("postgres://t@db.internal:6432/tollgate", "db.internal:6432", false),
            ("postgresql://t@db.internal/tollgate", "db.internal:5432", false),
            ("postgres://t@a,b:5433/tollgate", "a:5432,b:5433", false),
            ("postgres://t@[::1]:5433/tollgate", "[::1]:5433", true),
            ("postgres://t@[::1]/tollgate", "[::1]:5432", true),
            ("postgres://t@127.0.0.1/tollgate", "127.0.0.1:5432", true),
            ("postgres://t@localhost/tollgate", "localhost:5432", true),
            ("postgres://t@%2Frun%2Fpostgresql/tollgate", "/run/postgresql:5432", true),
        ] {
            assert_eq!(read(url).as_deref(), Ok(place), "{url}");
            assert_eq!(hosts_of(url).expect("hosts")[0].is_here(), here, "{url}");
        }
        for (url, expected) in [
            ("mysql://t@db/tollgate", "postgres://"),
            ("postgres://t:canary@db/tollgate", "password"),
            ("postgres://db/tollgate", "user"),
            ("postgres://t@db", "database"),
            ("postgres://t@db/tollgate?sslmode=disable", "parameters"),
            ("postgres://t@:5432/tollgate", "host"),
            ("postgres://t@db:port/tollgate", "port"),
            ("postgres://t@db:0/tollgate", "port"),
        ] {
            let error = read(url).expect_err(url);
            assert!(error.contains(expected) && !error.contains("canary"), "{url}: {error}");
        }
    }
}
