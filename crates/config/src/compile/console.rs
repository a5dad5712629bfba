//! `console`: the customers' console.

use std::sync::Arc;

use super::hosted::wrong_path;
use crate::document::{Document, Fault};
use crate::snapshot::{Console, Mcp, PublicUrl, Route, SignUpPolicy};
use crate::spans::DocumentPath;
use crate::url::BaseUrl;
use crate::{Overrides, raw};
use tollgate_money::money::Nanousd;

/// Trial credit of new accounts in the demo.
const DEMO_TRIAL_CREDIT: Nanousd = Nanousd::new(5_000_000_000);

/// Compiles valid settings, and reports the others.
pub(super) fn compile(
    document: &mut Document,
    raw: raw::ConsoleSection,
    routes: &[Arc<Route>],
    mcp: &Mcp,
    overrides: &Overrides,
) -> Console {
    let at = DocumentPath::root().key("console").key("path");
    let others = if mcp.enabled { &[mcp.path.as_str()][..] } else { &[] };
    if raw.enabled
        && let Some(message) = wrong_path(&raw.path, routes, others)
    {
        document.note(Fault::at_value(&at, message).help("such as `/console`"));
    }
    let public_url = raw.public_url.map(|BaseUrl { tls, authority, path_prefix, .. }| {
        let scheme = if tls { "https" } else { "http" };
        PublicUrl { text: format!("{scheme}://{authority}{path_prefix}"), tls }
    });
    let mut console = Console {
        enabled: raw.enabled,
        path: raw.path,
        sign_up: match raw.sign_up {
            raw::SignUpMode::Closed => SignUpPolicy::Closed,
            raw::SignUpMode::Invite => SignUpPolicy::Invite,
            raw::SignUpMode::Open => SignUpPolicy::Open,
        },
        trial_credit: raw.trial_credit.0,
        session: raw.session.0,
        public_url,
    };
    if overrides.every_upstream_at.is_some() {
        // Nothing costs anything there, and who tries the gateway out wants to see all of it.
        console.sign_up = SignUpPolicy::Open;
        console.trial_credit = console.trial_credit.max(DEMO_TRIAL_CREDIT);
    }
    console
}
