//! An upstream for tests.

use std::sync::Arc;
use std::time::Duration;

use tollgate_options::network::{ClientTls, Destination};

use tollgate_config::snapshot::{PassedHeaders, Upstream, UpstreamTimeouts};
use tollgate_protocols::Dialect;
use tollgate_protocols::limits::PassList;

/// An upstream that no test calls, without credentials: what matters of it, a test says itself.
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

/// The sample upstream, called over TLS.
pub fn upstream_over_tls() -> Upstream {
    Upstream { destination: Arc::new(destination(Some(ClientTls::default()))), ..upstream() }
}

fn destination(tls: Option<ClientTls>) -> Destination {
    Destination { host: "127.0.0.1".to_owned(), port: 1, tls, proxy: None }
}
