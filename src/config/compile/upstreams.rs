//! The providers' APIs in `routes.yaml`.

use std::collections::HashMap;
use std::sync::Arc;

use super::check_name;
use super::routes::check_secret;
use crate::config::document::{Document, Fault};
use crate::config::scalar::SecretText;
use crate::config::snapshot::{Credential, HealthCheck, Upstream, UpstreamTimeouts};
use crate::config::spans::Path;
use crate::config::{Overrides, raw};
use crate::secret::Secret;

/// What every upstream gets for a credential when all of them are one simulated server.
const SIMULATED_CREDENTIAL: &str = "simulated-upstream-credential";

/// Compiles what is in order, and notes the rest.
pub(super) fn compile(
    document: &mut Document,
    raw: Vec<(String, raw::Upstream)>,
    overrides: &Overrides,
) -> HashMap<String, Arc<Upstream>> {
    let path = Path::root().key("upstreams");
    if document.keys(&["upstreams"]).is_empty() {
        document.note(Fault::at_key(&path, "there is no upstream"));
    }
    let mut upstreams = HashMap::with_capacity(raw.len());
    for (name, raw) in raw {
        let path = path.key(&name);
        check_name(document, &path, &name, "-_.");
        check_credentials(document, &path, &raw);
        check_health_check(document, &path.key("health_check"), raw.health_check.as_ref());
        let upstream = upstream(&name, raw, overrides);
        upstreams.insert(name, Arc::new(upstream));
    }
    upstreams
}

fn upstream(name: &str, raw: raw::Upstream, overrides: &Overrides) -> Upstream {
    let url = raw.base_url;
    let timeouts = UpstreamTimeouts {
        connect: raw.timeouts.connect.0,
        read: raw.timeouts.read.0,
        write: raw.timeouts.write.0,
        total: raw.timeouts.total.0,
    };
    let typed = Upstream {
        name: name.to_owned(),
        dialect: raw.protocol.0,
        tls: url.tls,
        host: url.host,
        port: url.port,
        authority: url.authority,
        path_prefix: url.path_prefix,
        credentials: credentials(raw.credential, raw.credentials.0),
        health_check: raw.health_check.map(health_check),
        timeouts,
    };
    match overrides.every_upstream_at {
        None => typed,
        Some(address) => Upstream {
            tls: false,
            host: address.ip().to_string(),
            port: address.port(),
            authority: address.to_string(),
            credentials: vec![Credential {
                name: String::new(),
                secret: Secret::new(SIMULATED_CREDENTIAL.to_owned()),
            }],
            health_check: None,
            ..typed
        },
    }
}

fn check_credentials(document: &mut Document, path: &Path, raw: &raw::Upstream) {
    if raw.credential.is_some() && !raw.credentials.0.is_empty() {
        let message = "there is a `credential` beside `credentials`";
        let help = "give it a name and put it among `credentials`";
        document.note(Fault::at_key(&path.key("credential"), message).help(help));
    }
    let one = raw.credential.iter().map(|secret| (path.key("credential"), secret));
    let pool = path.key("credentials");
    let named = raw.credentials.0.iter().map(|(name, secret)| (pool.key(name), secret));
    for (path, secret) in one.chain(named) {
        if secret.0.expose().is_empty() {
            let help = "leave it out for a server that asks for none";
            document.note(Fault::at_value(&path, "the credential is empty").help(help));
        }
        check_secret(document, &path, Some(&secret.0));
    }
    for (name, _) in &raw.credentials.0 {
        check_name(document, &pool.key(name), name, "-_.");
    }
}

fn check_health_check(document: &mut Document, path: &Path, raw: Option<&raw::HealthCheck>) {
    let Some(raw) = raw else { return };
    let is_plain = |path: &str| path.starts_with('/') && path.bytes().all(|b| b.is_ascii_graphic());
    if raw.path.as_deref().is_some_and(|path| !is_plain(path)) {
        let fault = Fault::at_value(&path.key("path"), "this is not a path");
        document.note(fault.help("such as `/healthz`"));
    }
    if raw.timeout.0 > raw.interval.0 {
        let message = "an answer may take longer than until the next check";
        document.note(Fault::at_value(&path.key("timeout"), message).help("at most `interval`"));
    }
}

fn credentials(one: Option<SecretText>, named: Vec<(String, SecretText)>) -> Vec<Credential> {
    let one = one.map(|secret| (String::new(), secret));
    let all = one.into_iter().chain(named);
    all.map(|(name, secret)| Credential { name, secret: secret.0 }).collect()
}

fn health_check(raw: raw::HealthCheck) -> HealthCheck {
    HealthCheck {
        path: raw.path,
        interval: raw.interval.0,
        timeout: raw.timeout.0,
        unhealthy_after: raw.unhealthy_after,
        healthy_after: raw.healthy_after,
    }
}
