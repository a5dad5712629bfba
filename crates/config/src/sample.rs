//! Parts of a configuration for the tests of other crates.

use std::sync::Arc;
use std::time::Duration;

use tollgate_options::network::{ClientTls, Destination};
use tollgate_protocols::limits::PassList;
use tollgate_protocols::{Dialect, Operation};

use crate::snapshot::{CallKind, PassedHeaders, Upstream, UpstreamTimeouts};

/// An upstream for tests, which is never called and has no credentials. Tests override the relevant fields.
pub fn upstream() -> Upstream {
    let second = Duration::from_secs(1);
    let timeouts = UpstreamTimeouts {
        connect: second,
        read: second,
        write: second,
        total: second,
        idle: second,
    };
    Upstream {
        name: "a".to_owned(),
        dialect: Dialect::Openai,
        azure: None,
        destination: Arc::new(destination(None)),
        authority: "127.0.0.1:1".to_owned(),
        path_prefix: String::new(),
        credentials: Vec::new(),
        health_check: None,
        timeouts,
        headers: Arc::default(),
        repeat_after: Vec::new(),
        pass: PassList::default(),
        pass_headers: PassedHeaders::default(),
        pass_response_headers: Vec::new(),
        leave_out_fields: Vec::new(),
        shared_ids: Vec::new(),
    }
}

/// The kind of calls that count a prompt's tokens: free ones.
pub fn token_count() -> CallKind {
    Operation::CountTokens.into()
}

/// The kind of calls that compact a conversation, which is no main kind of a model for prompts.
pub fn compact() -> CallKind {
    Operation::Compact.into()
}

/// The sample upstream, called over TLS.
pub fn upstream_over_tls() -> Upstream {
    Upstream { destination: Arc::new(destination(Some(ClientTls::default()))), ..upstream() }
}

fn destination(tls: Option<ClientTls>) -> Destination {
    Destination { host: "127.0.0.1".to_owned(), port: 1, tls, proxy: None }
}
