//! Paths of Google's API: `…/models/{model}:{method}`, with the model and what it is to do in them.

use std::borrow::Cow;
use std::sync::Arc;

use percent_encoding::percent_decode_str;

use crate::config::snapshot::{Route, Snapshot};
use crate::gateway::local::Local;
use crate::protocols::{NamedInPath, Operation};

/// What the path of a request for content says of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AskedAt {
    /// The model, as the customer calls it.
    model: String,
    /// The answer is to come in pieces.
    streams: bool,
    /// The pieces are to be the elements of one JSON array, and not events.
    pub(crate) is_array: bool,
}

impl AskedAt {
    /// What codecs read of it.
    pub(crate) fn named(&self) -> NamedInPath<'_> {
        NamedInPath { model: &self.model, streams: self.streams }
    }
}

/// The route of a request for content, and what its path says.
pub(crate) fn find(
    snapshot: &Snapshot,
    path: &str,
    query: Option<&str>,
) -> Option<(Arc<Route>, AskedAt)> {
    let (_, below) = below(snapshot, path)?;
    // SDKs write a slash in a name as it is, or as `%2F`; the last colon ends the name.
    let decoded = percent_decode_str(below).decode_utf8().ok()?;
    let (model, method) = decoded.rsplit_once(':')?;
    let (operation, streams) = match method {
        "generateContent" => (Operation::GenerateContent, false),
        "streamGenerateContent" => (Operation::GenerateContent, true),
        "countTokens" => (Operation::CountContentTokens, false),
        _ => return None,
    };
    let mut routes = snapshot.routes.iter().filter(|route| route.operation == operation);
    let route = routes.find(|route| below_route(route, path) == Some(below))?;
    let has_events = values(query, "alt").any(|value| value == "sse");
    let is_array = streams && !has_events;
    Some((Arc::clone(route), AskedAt { model: model.to_owned(), streams, is_array }))
}

/// Whether a path is one of Google's API here, whatever is asked for there.
pub(crate) fn is_googles(snapshot: &Snapshot, path: &str) -> bool {
    let mut routes = routes(snapshot);
    routes.any(|route| route.path == path) || below(snapshot, path).is_some()
}

/// The list of models, or one of them, in Google's shape.
pub(crate) fn listed<'a>(snapshot: &Snapshot, path: &'a str) -> Option<Local<'a>> {
    if routes(snapshot).any(|route| route.path == path) {
        return Some(Local::ContentModels);
    }
    below(snapshot, path).map(|(_, id)| Local::ContentModel(id))
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

fn routes(snapshot: &Snapshot) -> impl Iterator<Item = &Arc<Route>> {
    snapshot.routes.iter().filter(|route| route.operation == Operation::GenerateContent)
}

fn below_route<'a>(route: &Route, path: &'a str) -> Option<&'a str> {
    let below = path.strip_prefix(&route.path)?.strip_prefix('/');
    below.filter(|below| !below.is_empty())
}

/// What stands below a route for content.
fn below<'s, 'a>(snapshot: &'s Snapshot, path: &'a str) -> Option<(&'s Arc<Route>, &'a str)> {
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
