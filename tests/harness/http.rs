//! The HTTP client of the tests.

/// A client that speaks HTTP/1.1.
pub(crate) fn http() -> reqwest::Client {
    http_builder().build().expect("a client")
}

/// The same, to be changed.
pub(crate) fn http_builder() -> reqwest::ClientBuilder {
    // The client asks for TLS to be ready, though no test uses it. Another thread may have been first.
    drop(rustls::crypto::ring::default_provider().install_default());
    reqwest::Client::builder()
}
