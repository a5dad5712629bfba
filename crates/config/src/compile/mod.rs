//! From what was typed to a [`Snapshot`]: everything that one field alone cannot show to be wrong.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::described;
use super::document::{Document, Fault};
use super::raw;
use super::snapshot::{Model, NAME_BYTES_MAX, Snapshot, Upstream};
use super::spans::{DocumentPath, Step};
use super::{Overrides, diagnostic};
use tollgate_options::network::ProxyRules;
use tollgate_types::limit::Rates;

mod admin;
mod archive;
mod auth;
mod azure;
mod base_url;
mod bodies;
mod console;
mod cost;
mod fallbacks;
mod holds;
mod hosted;
mod price_tiers;
mod limits;
mod missing_usage;
mod listeners;
mod mcp;
mod models;
mod pass;
mod price_fields;
mod prices;
mod prices_when;
mod reach;
mod routes;
mod secrets;
mod single;
mod store;
mod typed;
mod upstream_headers;
mod upstreams;

pub(super) use prices::{has_effect, lacking};
pub(super) use single::{archive_of, database_of, sendable};
pub use typed::TypedModel;
pub(super) use typed::typed_models;

/// The unit of times that are typed as a number of days.
const DAY: Duration = Duration::from_millis(tollgate_types::clock::MS_PER_DAY);

/// Fields of an upstream about credentials, connection, and other knowledge of the operator; a simulated
/// upstream gets none of them.
const CREDENTIAL_FIELDS: [&str; 7] =
    ["credential", "credentials", "auth", "auths", "headers", "proxy", "tls"];

/// The upstreams of `routes.yaml`, in whatever state they are.
struct CompiledUpstreams {
    /// Valid, enabled upstreams.
    on: HashMap<String, Arc<Upstream>>,
    /// All configured names; `None` if the mapping cannot be read.
    typed: Option<Vec<String>>,
    /// Order of targets with the same priority.
    prefer: raw::Prefer,
    /// A simulator replaces all upstreams, so their hosts do not identify providers.
    are_simulated: bool,
}

/// Compiles both files; `None` when there are errors, which the documents then hold.
pub(super) fn compile(
    routes: &mut Document,
    models: &mut Document,
    overrides: &Overrides,
    proxies: &Arc<ProxyRules>,
    hash: String,
) -> Option<Snapshot> {
    say_unfilled(routes, overrides);
    say_unfilled(models, overrides);
    let raw_routes: Option<raw::Routes> = routes.read(&["upstreams"]);
    let raw_models: Option<raw::Models> = models.read(&["models"]);

    let prefer = raw_routes.as_ref().map_or(raw::Prefer::Weight, |raw| raw.balancing.prefer);
    let are_simulated = overrides.every_upstream_at.is_some();
    let compiled = raw_routes.map(|raw| routes::compile(routes, raw, overrides, proxies));
    let upstreams = match &compiled {
        Some(compiled) => CompiledUpstreams {
            on: compiled.upstreams.clone(),
            typed: Some(routes.keys(&["upstreams"]).into_iter().map(str::to_owned).collect()),
            prefer,
            are_simulated,
        },
        // Without a readable list no target is reported for naming an unknown upstream.
        None => CompiledUpstreams { on: HashMap::new(), typed: None, prefer, are_simulated },
    };
    let listed = raw_models.map(|raw| models::compile(models, raw, &upstreams));
    // Not before both files are compiled: one run reports the errors of both.
    if routes.has_errors() || models.has_errors() {
        return None;
    }
    let (compiled, (listed, unserved)) = (compiled?, listed?);
    let models_path = DocumentPath::root().key("models");
    if !unserved.is_empty() {
        let ids: Vec<&str> = unserved.iter().map(String::as_str).collect();
        let (left_out, all) = (ids.len(), ids.len() + listed.len());
        let message = format!(
            "{left_out} of {all} models are in order but not listed: this build does not serve \
             what they do yet"
        );
        models.note(Fault::at_key(&models_path, message).note().help(diagnostic::listed(&ids)));
    }
    if listed.is_empty() {
        let message = "no model can be called: nothing serves one now";
        models.note(Fault::at_key(&models_path, message).warning());
    }
    let mut wildcards: Vec<_> =
        listed.iter().filter(|model| model.is_wildcard()).cloned().collect();
    // Lookups take the first pattern that fits, and the longest is the most specific.
    wildcards.sort_by_key(|model| std::cmp::Reverse(model.id.len()));
    let by_id = |model: &Arc<Model>| (model.id.clone(), Arc::clone(model));
    Some(Snapshot {
        hash,
        described: described::together(
            std::mem::take(&mut routes.described),
            std::mem::take(&mut models.described),
        ),
        listeners: compiled.listeners,
        trusted_proxies: compiled.trusted_proxies,
        admin: compiled.admin,
        store: compiled.store,
        shutdown_delay: compiled.shutdown_delay,
        shutdown_grace: compiled.shutdown_grace,
        reload: compiled.reload,
        limits: compiled.limits,
        rate_limits: compiled.rate_limits,
        holds: compiled.holds,
        tasks: compiled.tasks,
        mcp: compiled.mcp,
        balancing: compiled.balancing,
        console: compiled.console,
        access_log: compiled.access_log,
        request_log: compiled.request_log,
        proxies: Arc::clone(proxies),
        routes: compiled.routes,
        upstreams: compiled.upstreams,
        models_by_id: listed.iter().map(by_id).collect(),
        wildcards,
        models: listed,
    })
}

/// Reports missing variables and files. They disable an optional upstream, do not matter for replaced
/// credentials, and are errors elsewhere.
fn say_unfilled(document: &mut Document, overrides: &Overrides) {
    if overrides.allow_unset {
        return pass_unfilled(document);
    }
    let (mut off, mut left): (Vec<(String, String)>, Vec<_>) = (Vec::new(), Vec::new());
    let mut seen = HashSet::new();
    for unfilled in std::mem::take(&mut document.unfilled) {
        let fault = Fault::at_value(&unfilled.path, unfilled.reason.as_str());
        let (upstream, field) = match unfilled.path.steps() {
            [Step::Key(map), Step::Key(name), rest @ ..] if map == "upstreams" => (name, rest),
            _ => {
                document.note(fault.help(unfilled.help));
                continue;
            }
        };
        let is_credential = matches!(
            field,
            [Step::Key(field), ..] if CREDENTIAL_FIELDS.contains(&field.as_str())
        );
        // A simulated upstream takes any key, so a demo needs none.
        if is_credential && overrides.every_upstream_at.is_some() {
            continue;
        }
        if !document.is_true(&["upstreams", upstream.as_str(), "optional"]) {
            let help = format!("{}, or mark the upstream `optional: true`", unfilled.help);
            document.note(fault.help(help));
        } else {
            if seen.insert(upstream.clone()) {
                off.push((upstream.to_string(), unfilled.reason.clone()));
            }
            left.push(unfilled);
        }
    }
    // What cannot be filled in is left out when the file is read.
    document.unfilled = left;
    let Some(path) = document.unfilled.first().map(|unfilled| unfilled.path.clone()) else {
        return;
    };
    // One line for all: most of a long list of providers is switched off for good.
    let message = match off.as_slice() {
        [(name, reason)] => format!("upstream `{name}` is switched off: {reason}"),
        several => {
            let each = several.iter().map(|(name, reason)| format!("`{name}`, since {reason}"));
            let each = each.collect::<Vec<_>>().join("; ");
            format!("{} upstreams are switched off: {each}", several.len())
        }
    };
    document.note(Fault::at_value(&path, message).warning());
}

/// Warns once about everything missing. A key counts as given; values that depend on anything else are
/// dropped when the file is read.
fn pass_unfilled(document: &mut Document) {
    let is_key = |path: &DocumentPath| {
        matches!(path.steps(), [Step::Key(map), _, Step::Key(field), ..]
            if map == "upstreams" && matches!(field.as_str(), "credential" | "credentials"))
    };
    let all = std::mem::take(&mut document.unfilled);
    let Some(first) = all.first().map(|unfilled| unfilled.path.clone()) else { return };
    let mut reasons: Vec<&str> = all.iter().map(|unfilled| unfilled.reason.as_str()).collect();
    reasons.sort_unstable();
    // One variable is often missing in several fields.
    reasons.dedup();
    let message = reasons.join("; ");
    let help = "a key counts as given; what depends on anything else is not looked at";
    document.note(Fault::at_value(&first, message).warning().help(help));
    document.unfilled = all.into_iter().filter(|unfilled| !is_key(&unfilled.path)).collect();
}

/// Compiles rate limits. The reading of the field has already noted zeros.
fn rates(raw: &raw::RatesSection) -> Rates {
    let limit = |count: Option<u32>| count.and_then(NonZeroU32::new);
    Rates {
        requests_per_minute: limit(raw.requests_per_minute),
        tokens_per_minute: limit(raw.tokens_per_minute),
        concurrent_requests: limit(raw.concurrent_requests),
    }
}

/// Notes an error at a name that is empty, too long or has letters that do not belong there.
fn check_name(document: &mut Document, path: &DocumentPath, name: &str, letters: &str) {
    // Names become labels of metrics, words in logs and parts of URLs.
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || letters.as_bytes().contains(&byte);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_letter) {
        let help = format!("1 to {NAME_BYTES_MAX} ASCII letters, digits and `{letters}`");
        document.note(Fault::at_key(path, "this is not a name that can be used").help(help));
    }
}
