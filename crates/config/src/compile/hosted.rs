//! Paths below which the gateway answers itself: everything there is one service's.

use std::sync::Arc;

use crate::snapshot::Route;

/// Paths that the gateway answers itself.
pub(super) const OWN_PATHS: [&str; 5] =
    ["/", "/api/hello", "/v1/models", "/v1/balance", "/v1/usage"];

/// What is wrong with a service's path, if anything is. `others` are those of other services.
pub(super) fn wrong_path(path: &str, routes: &[Arc<Route>], others: &[&str]) -> Option<String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    let is_plain = path.len() > 1
        && path.starts_with('/')
        && !path.ends_with('/')
        && !path.contains("//")
        && path.bytes().all(plain);
    if !is_plain {
        return Some("this is not a plain path".to_owned());
    }
    let above = others.iter().find(|other| is_below(path, other));
    let routes = routes.iter().map(|route| route.path.as_str());
    let below = OWN_PATHS.into_iter().chain(routes).chain(others.iter().copied());
    let taken = above.copied().or_else(|| below.into_iter().find(|other| is_below(other, path)))?;
    Some(format!("`{taken}` has another use"))
}

fn is_below(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_do_not_share_paths() {
        for (path, others, is_wrong) in [
            ("/mcp", &["/console"][..], false),
            ("/mcp", &["/mcp"], true),
            ("/mcp/agents", &["/mcp"], true),
            ("/mcp", &["/mcp/agents"], true),
            ("/mcps", &["/mcp"], false),
            ("/v1", &[], true),
            ("/v1/models", &[], true),
            ("/", &[], true),
            ("mcp", &[], true),
            ("/mcp/", &[], true),
            ("/a//b", &[], true),
            ("/a b", &[], true),
        ] {
            assert_eq!(wrong_path(path, &[], others).is_some(), is_wrong, "{path} {others:?}");
        }
    }
}
