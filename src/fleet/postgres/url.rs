//! The address of a database, as operators write it.

use std::fmt;
use std::net::IpAddr;

/// Where PostgreSQL listens when nobody says otherwise.
const PORT: u16 = 5432;

/// One machine that an address names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// A name, an address, or the directory of a Unix socket.
    pub name: String,
    /// The port.
    pub port: u16,
}

impl Host {
    /// Whether it is this very machine: what is said stays on it, so nothing is encrypted.
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

/// Where the database is, for messages.
pub(super) fn place(hosts: &[Host]) -> String {
    hosts.iter().map(Host::to_string).collect::<Vec<_>>().join(",")
}

/// The machines of `postgres://user@host:port,host:port/database`. A Unix socket's directory is
/// written with `%2F` for its slashes.
///
/// # Errors
/// What is wrong with the address; a password in it is, and is not repeated.
pub fn hosts_of(url: &str) -> Result<Vec<Host>, String> {
    let example = "such as postgres://tollgate@db.internal:5432/tollgate";
    let rest = ["postgres://", "postgresql://"].iter().find_map(|scheme| url.strip_prefix(scheme));
    let rest = rest.ok_or_else(|| format!("it begins with postgres://, {example}"))?;
    let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
    let (user, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
    if user.contains(':') {
        return Err("there is a password in it; it belongs into `password`".to_owned());
    }
    if user.is_empty() {
        return Err(format!("it names no user, {example}"));
    }
    if database.contains('?') || hosts.contains('?') {
        return Err("parameters behind `?` are not read; there is a field for each".to_owned());
    }
    if database.is_empty() || database.contains('/') {
        return Err(format!("it names no database, {example}"));
    }
    hosts.split(',').map(|host| host_of(host, example)).collect()
}

fn host_of(text: &str, example: &str) -> Result<Host, String> {
    // The colons of an IPv6 address are within brackets.
    let colon = text.rfind(':').filter(|at| text.rfind(']').is_none_or(|bracket| bracket < *at));
    let (name, port) = match colon {
        None => (text, PORT),
        Some(at) => {
            let port = text[at + 1..].parse().ok().filter(|port| *port > 0);
            (&text[..at], port.ok_or_else(|| format!("{:?} is no port", &text[at + 1..]))?)
        }
    };
    if name.is_empty() || name.contains(char::is_whitespace) {
        return Err(format!("it names no host, {example}"));
    }
    let name = name.replace("%2F", "/").replace("%2f", "/");
    Ok(Host { name, port })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<String, String> {
        hosts_of(url).map(|hosts| place(&hosts))
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
        for (url, told) in [
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
            assert!(error.contains(told) && !error.contains("canary"), "{url}: {error}");
        }
    }
}
