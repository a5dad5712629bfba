//! The providers' APIs in `routes.yaml`.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use super::auth::AuthFor;
use super::reach::{ServerAddress, TypedProxy};
use super::{auth, azure, base_url, check_name, pass, reach, secrets, upstream_headers};
use crate::document::{Document, Fault};
use crate::scalar::SecretText;
use crate::snapshot::{
    Credential, CredentialKind, HealthCheck, PassedHeaders, Upstream, UpstreamTimeouts,
};
use crate::spans::DocumentPath;
use crate::{Overrides, raw};
use tollgate_options::network::{Destination, ProxyRules};
use tollgate_protocols::limits::PassList;
use tollgate_types::secret::Secret;

/// Credential of every upstream while one simulated server stands for all of them.
const SIMULATED_CREDENTIAL: &str = "simulated-upstream-credential";

/// The headers with which one asks the simulated server for faults.
const SIMULATED_HEADERS: &str = "x-sim-*";

/// Minimum length of a credential, in bytes: shorter ones would be found in answers by chance.
const CREDENTIAL_BYTES_MIN: usize = 8;

/// Compiles valid settings, and reports the others.
pub(super) fn compile(
    document: &mut Document,
    raw: Vec<(String, raw::UpstreamEntry)>,
    overrides: &Overrides,
    proxies: &ProxyRules,
) -> HashMap<String, Arc<Upstream>> {
    let path = DocumentPath::root().key("upstreams");
    if document.keys(&["upstreams"]).is_empty() {
        document.note(Fault::at_key(&path, "there is no upstream"));
    }
    let mut upstreams = HashMap::with_capacity(raw.len());
    for (name, raw) in raw {
        let path = path.key(&name);
        check_name(document, &path, &name, "-_.");
        check_credentials(document, &path, &raw);
        check_health_check(document, &path.key("health_check"), raw.health_check.as_ref());
        let lists = pass::Lists {
            fields: &raw.pass_fields,
            headers: &raw.pass_headers,
            tools: &raw.pass_tools,
            content: &raw.pass_content,
        };
        let (pass, mut pass_headers) = pass::compile(document, &path, &lists);
        let at = path.key("pass_response_headers");
        let mut pass_response_headers =
            pass::response_headers(document, &at, &raw.pass_response_headers);
        if overrides.every_upstream_at.is_some() {
            // Tests and demos request faults of the simulator through the gateway, by headers.
            pass_headers.names.push(SIMULATED_HEADERS.to_owned());
            pass_response_headers.push(SIMULATED_HEADERS.to_owned());
        }
        let at = path.key("leave_out_fields");
        let leave_out_fields = pass::left_out_fields(document, &at, &raw.leave_out_fields);
        let shared_ids = pass::shared_ids(document, &path.key("shared_ids"), &raw.shared_ids);
        let azure = azure::compile(document, &path, &raw);
        base_url::check(document, &path, &raw);
        let headers = match overrides.every_upstream_at {
            None => upstream_headers::compile(document, &path, &raw, azure.as_ref()),
            Some(_) => Vec::new(),
        };
        let (destination, credentials) = match overrides.every_upstream_at {
            None => {
                let proxy = TypedProxy::compile(document, &path, &raw);
                let destination = reach::compile(document, &path, &raw, &proxy, proxies);
                let mut credentials = credentials(document, &path, &name, &raw);
                for credential in &mut credentials {
                    lead_through(document, &path, credential, &proxy, proxies);
                }
                (destination, credentials)
            }
            Some(address) => {
                let key = Credential::key("", Secret::new(SIMULATED_CREDENTIAL.to_owned()));
                (simulated(address), vec![key])
            }
        };
        let typed = upstream(&name, raw, destination, overrides);
        let upstream = Upstream {
            azure,
            credentials,
            headers: headers.into(),
            pass,
            pass_headers,
            pass_response_headers,
            leave_out_fields,
            shared_ids,
            ..typed
        };
        upstreams.insert(name, Arc::new(upstream));
    }
    upstreams
}

/// Destination of the server that replaces every upstream.
fn simulated(address: SocketAddr) -> Destination {
    Destination { host: address.ip().to_string(), port: address.port(), tls: None, proxy: None }
}

/// Sets the connection over which a credential's tokens are fetched: the upstream's.
fn lead_through(
    document: &mut Document,
    path: &DocumentPath,
    credential: &mut Credential,
    proxy: &TypedProxy,
    rules: &ProxyRules,
) {
    let CredentialKind::Auth(auth) = &mut credential.kind else { return };
    let Some(url) = auth.token_url().cloned() else { return };
    let place = ServerAddress::of_url(&url);
    if let Some(proxy) = proxy.before(document, path, rules, place) {
        *auth = Arc::new(auth.through(proxy));
    }
}

fn upstream(
    name: &str,
    raw: raw::UpstreamEntry,
    destination: Destination,
    overrides: &Overrides,
) -> Upstream {
    let url = raw.base_url;
    let timeouts = UpstreamTimeouts {
        connect: raw.timeouts.connect.0,
        read: raw.timeouts.read.0,
        write: raw.timeouts.write.0,
        total: raw.timeouts.total.0,
        idle: raw.timeouts.idle.0.unwrap_or_default(),
    };
    let typed = Upstream {
        name: name.to_owned(),
        dialect: raw.protocol.0.dialect(),
        azure: None,
        destination: Arc::new(destination),
        authority: url.authority,
        path_prefix: url.path_prefix,
        credentials: Vec::new(),
        headers: Arc::default(),
        health_check: raw.health_check.map(health_check),
        timeouts,
        repeat_after: raw.retries.on.into_iter().map(|after| after.0).collect(),
        pass: PassList::default(),
        pass_headers: PassedHeaders::default(),
        pass_response_headers: Vec::new(),
        shared_ids: Vec::new(),
        leave_out_fields: Vec::new(),
    };
    match overrides.every_upstream_at {
        None => typed,
        Some(address) => Upstream { authority: address.to_string(), health_check: None, ..typed },
    }
}

fn check_credentials(document: &mut Document, path: &DocumentPath, raw: &raw::UpstreamEntry) {
    check_one_kind(document, path, raw);
    let one = raw.credential.iter().map(|secret| (path.key("credential"), secret));
    let pool = path.key("credentials");
    let named = raw.credentials.0.iter().map(|(name, secret)| (pool.key(name), secret));
    for (path, secret) in one.chain(named) {
        if secret.0.expose().is_empty() {
            let help = "leave it out for a server that asks for none";
            document.note(Fault::at_value(&path, "the credential is empty").help(help));
        }
        secrets::check_key(document, &path, &secret.0);
        if (1..CREDENTIAL_BYTES_MIN).contains(&secret.0.expose().len()) {
            let message = "this credential is so short that it stands in other texts by chance";
            let help = format!(
                "leave it out for a server that asks for none, or take one of {CREDENTIAL_BYTES_MIN} \
                 characters or more: headers and refusals that hold it are not passed on"
            );
            document.note(Fault::at_value(&path, message).warning().help(help));
        }
    }
    let has_one = !kinds(raw).is_empty();
    if has_one && !raw.base_url.tls && !base_url::is_loopback(&raw.base_url.host) {
        let message = "the credential goes over the network in clear text";
        let help =
            "begin the URL with `https://`, or see to it that nobody else is on that network";
        document.note(Fault::at_value(&path.key("base_url"), message).warning().help(help));
    }
    let names = raw.credentials.0.iter().map(|(name, _)| (pool.key(name), name));
    let auths = raw.auths.0.iter().map(|(name, _)| (path.key("auths").key(name), name));
    for (path, name) in names.chain(auths) {
        check_name(document, &path, name, "-_.");
    }
}

/// Configured fields that define credentials.
fn kinds(raw: &raw::UpstreamEntry) -> Vec<&'static str> {
    let typed = [
        ("credential", raw.credential.is_some()),
        ("credentials", !raw.credentials.0.is_empty()),
        ("auth", raw.auth.is_some()),
        ("auths", !raw.auths.0.is_empty()),
    ];
    typed.into_iter().filter(|(_, is_typed)| *is_typed).map(|(field, _)| field).collect()
}

/// Reports several fields that define credentials.
fn check_one_kind(document: &mut Document, path: &DocumentPath, raw: &raw::UpstreamEntry) {
    let kinds = kinds(raw);
    let [first, others @ ..] = kinds.as_slice() else { return };
    for other in others {
        let (at, message, help) = match (*first, *other) {
            ("credential", "credentials") => (
                "credential",
                "there is a `credential` beside `credentials`".to_owned(),
                "give it a name and put it among `credentials`",
            ),
            ("auth", "auths") => (
                "auth",
                "there is an `auth` beside `auths`".to_owned(),
                "give it a name and put it among `auths`",
            ),
            (first, other) => (
                other,
                format!("there is `{other}` beside `{first}`"),
                "an upstream takes keys or has you sign in: keep one, and make another upstream for \
                 the other",
            ),
        };
        document.note(Fault::at_key(&path.key(at), message).help(help));
    }
}

fn check_health_check(
    document: &mut Document,
    path: &DocumentPath,
    raw: Option<&raw::HealthCheckSection>,
) {
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

/// Compiles the credentials of an upstream, leaving out faulty ones.
fn credentials(
    document: &mut Document,
    path: &DocumentPath,
    upstream: &str,
    raw: &raw::UpstreamEntry,
) -> Vec<Credential> {
    let key = |(name, secret): (&str, &SecretText)| Credential::key(name, secret.0.clone());
    let one = raw.credential.iter().map(|secret| ("", secret));
    let named = raw.credentials.0.iter().map(|(name, secret)| (name.as_str(), secret));
    let mut credentials: Vec<Credential> = one.chain(named).map(key).collect();
    let one = raw.auth.iter().map(|auth| (path.key("auth"), "", auth));
    let pool = path.key("auths");
    let named = raw.auths.0.iter().map(|(name, auth)| (pool.key(name), name.as_str(), auth));
    for (at, name, raw_auth) in one.chain(named) {
        let whose = AuthFor { upstream, host: &raw.base_url.host, credential: name };
        if let Some(auth) = auth::compile(document, &at, raw_auth, whose) {
            let (name, kind) = (name.to_owned(), CredentialKind::Auth(Arc::new(auth)));
            credentials.push(Credential { name, kind });
        }
    }
    credentials
}

fn health_check(raw: raw::HealthCheckSection) -> HealthCheck {
    HealthCheck {
        path: raw.path,
        interval: raw.interval.0,
        timeout: raw.timeout.0,
        unhealthy_after: raw.unhealthy_after,
        healthy_after: raw.healthy_after,
    }
}
