//! `console`: the customers' console.

use std::sync::Arc;

use super::routes::is_own_path;
use crate::config::document::{Document, Fault};
use crate::config::snapshot::{Console, PublicUrl, Route, SignUp};
use crate::config::spans::Path;
use crate::config::url::BaseUrl;
use crate::config::{Overrides, raw};
use crate::money::Nanousd;

/// What who tries the gateway out gets for signing up.
const DEMO_TRIAL_CREDIT: Nanousd = Nanousd::new(5_000_000_000);

/// Compiles what is in order, and notes the rest.
pub(super) fn compile(
    document: &mut Document,
    raw: raw::Console,
    routes: &[Arc<Route>],
    overrides: &Overrides,
) -> Console {
    let at = Path::root().key("console").key("path");
    let segments = raw.path.strip_prefix('/').unwrap_or_default();
    let is_plain = |segment: &str| {
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        !segment.is_empty() && segment.bytes().all(letter)
    };
    if !segments.split('/').all(is_plain) {
        let help = "letters, digits, `-` and `_` between slashes: `/console`";
        document.note(Fault::at_value(&at, "this is not a plain path").help(help));
    } else if raw.path == "/v1"
        || is_own_path(&raw.path)
        || routes.iter().any(|route| route.path.starts_with(&raw.path))
    {
        document.note(Fault::at_value(&at, "this path has another use").help("such as `/console`"));
    }
    let public_url = raw.public_url.map(|BaseUrl { tls, authority, path_prefix, .. }| {
        let scheme = if tls { "https" } else { "http" };
        PublicUrl { text: format!("{scheme}://{authority}{path_prefix}"), tls }
    });
    let mut console = Console {
        enabled: raw.enabled,
        path: raw.path,
        sign_up: match raw.sign_up {
            raw::SignUp::Closed => SignUp::Closed,
            raw::SignUp::Invite => SignUp::Invite,
            raw::SignUp::Open => SignUp::Open,
        },
        trial_credit: raw.trial_credit.0,
        session: raw.session.0,
        public_url,
    };
    if overrides.every_upstream_at.is_some() {
        // Nothing costs anything there, and who tries the gateway out wants to see all of it.
        console.sign_up = SignUp::Open;
        console.trial_credit = console.trial_credit.max(DEMO_TRIAL_CREDIT);
    }
    console
}
