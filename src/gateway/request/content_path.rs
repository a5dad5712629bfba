//! Paths of Google's API: `…/models/{model}:{method}`, with the model and what it is to do in them.

use std::borrow::Cow;
use std::sync::Arc;

use http::Method;
use percent_encoding::percent_decode_str;

use crate::config::snapshot::{Route, Snapshot};
use crate::error::{ErrorKind, GatewayError};
use crate::protocols::{ModelInPath, Operation};

/// The path of Google's SDKs, unless they are set to another version of its API: requests mean the same in
/// both.
const STABLE_PATH: &str = "/v1/models/";
/// Letters of the name of an unknown method that an answer repeats.
const NAMED_MAX: usize = 64;

/// Methods of a model, and true for those with a streamed response.
const METHODS: [(&str, Operation, bool); 3] = [
    ("generateContent", Operation::GenerateContent, false),
    ("streamGenerateContent", Operation::GenerateContent, true),
    ("countTokens", Operation::CountContentTokens, false),
];

/// Parameters in the path of a request for content.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PathParams {
    /// The model, as the customer calls it.
    model: String,
    /// The answer is streamed.
    streams: bool,
    /// The pieces are to be the elements of one JSON array, and not events.
    pub(crate) is_array: bool,
}

impl PathParams {
    /// The parameters for codecs.
    pub(crate) fn named(&self) -> ModelInPath<'_> {
        ModelInPath { model: &self.model, streams: self.streams }
    }
}

/// Finds the route and parses the path of a content request.
pub(crate) fn find(
    snapshot: &Snapshot,
    path: &str,
    query: Option<&str>,
) -> Option<(Arc<Route>, PathParams)> {
    let of_route = below(snapshot, path).map(|(_, below)| below);
    let below = of_route.or_else(|| path.strip_prefix(STABLE_PATH))?;
    // SDKs write a slash in a name as it is, or as `%2F`; the last colon ends the name.
    let decoded = percent_decode_str(below).decode_utf8().ok()?;
    let (model, method) = decoded.rsplit_once(':')?;
    let (_, operation, streams) = METHODS.into_iter().find(|(name, ..)| *name == method)?;
    let mut routes = snapshot.routes.iter().filter(|route| route.operation == operation);
    let is_match = |route: &&Arc<Route>| {
        of_route.is_none() || below_route(route, path).is_some_and(|at| at == below)
    };
    let route = routes.find(is_match)?;
    let has_events = values(query, "alt").any(|value| value == "sse");
    let is_array = streams && !has_events;
    Some((Arc::clone(route), PathParams { model: model.to_owned(), streams, is_array }))
}

/// True for paths of Google's API.
pub(crate) fn is_googles(snapshot: &Snapshot, method: &Method, path: &str) -> bool {
    let mut routes = routes(snapshot);
    routes.any(|route| route.path == path)
        || below(snapshot, path).is_some()
        || no_method(snapshot, method, path).is_some()
}

/// Error for a model method that the gateway does not implement. With an HTTP method other than `POST`, the
/// name of a model with a colon may be meant.
pub(crate) fn no_method(snapshot: &Snapshot, method: &Method, path: &str) -> Option<GatewayError> {
    routes(snapshot).next()?;
    let of_route = below(snapshot, path).map(|(_, below)| below);
    let below = of_route.or_else(|| path.strip_prefix(STABLE_PATH))?;
    let decoded = percent_decode_str(below).decode_utf8_lossy();
    let (_, named) = decoded.rsplit_once(':').filter(|_| *method == Method::POST)?;
    let has = |operation| snapshot.routes.iter().find(|route| route.operation == operation);
    let offered: Vec<&str> = METHODS
        .into_iter()
        .filter(|(_, operation, _)| has(*operation).is_some())
        .map(|it| it.0)
        .collect();
    let message = if offered.contains(&named) {
        "This model does not exist: its name is no UTF-8.".to_owned()
    } else {
        let named: String = named.chars().take(NAMED_MAX).collect();
        let embeddings = has(Operation::Embeddings).filter(|_| named.contains("mbed"));
        let elsewhere = embeddings.map(|route| format!(" Embeddings are at POST {}.", route.path));
        let (all, elsewhere) = (offered.join(", "), elsewhere.unwrap_or_default());
        format!("A model has no method {named:?} here. There are: {all}.{elsewhere}")
    };
    Some(GatewayError::new(ErrorKind::NotFound, message))
}

/// The key that a request shows in its query, if it shows one there and no other.
pub(crate) fn key_in_query(query: Option<&str>) -> Option<Vec<u8>> {
    let mut keys = values(query, "key");
    let key = keys.next()?;
    keys.next().is_none().then(|| key.into_owned().into_bytes())
}

/// The values of a field of the query.
fn values<'q>(query: Option<&'q str>, name: &'q str) -> impl Iterator<Item = Cow<'q, str>> {
    let fields = query.unwrap_or_default().split('&').filter_map(|field| field.split_once('='));
    fields
        .filter(move |(key, _)| *key == name)
        .map(|(_, value)| percent_decode_str(value).decode_utf8_lossy())
}

pub(crate) fn routes(snapshot: &Snapshot) -> impl Iterator<Item = &Arc<Route>> {
    snapshot.routes.iter().filter(|route| route.operation == Operation::GenerateContent)
}

fn below_route<'a>(route: &Route, path: &'a str) -> Option<&'a str> {
    let below = path.strip_prefix(&route.path)?.strip_prefix('/');
    below.filter(|below| !below.is_empty())
}

/// The part of a path below a content route.
pub(crate) fn below<'s, 'a>(
    snapshot: &'s Snapshot,
    path: &'a str,
) -> Option<(&'s Arc<Route>, &'a str)> {
    routes(snapshot).find_map(|route| Some((route, below_route(route, path)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_key_in_the_query_is_one_and_two_are_none() {
        let key = |query: &str| {
            key_in_query(Some(query)).map(|key| String::from_utf8(key).expect("text"))
        };
        assert_eq!(key("alt=sse&key=sk-1").as_deref(), Some("sk-1"));
        assert_eq!(key("key=sk%2D1").as_deref(), Some("sk-1"));
        assert_eq!(key("key=a&key=b"), None);
        assert_eq!(key("keys=a"), None);
        assert_eq!(key_in_query(None), None);
    }
}
