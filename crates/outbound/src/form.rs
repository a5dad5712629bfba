//! Forms that are posted to machines that the operator has configured, and answers that are read whole.

use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use reqwest::Client;
use url::Url;

use crate::{OutboundError, OutboundResponse, client};

/// A client for forms. Cheap to clone; it keeps connections for the next one.
#[derive(Clone, Debug)]
pub struct FormClient(Client);

/// An answer to a form.
#[derive(Clone, Debug)]
pub struct FormAnswer {
    /// The HTTP status of the answer.
    pub status: u16,
    /// The headers of the answer.
    pub headers: HeaderMap,
    /// All of the answer's body.
    pub body: Bytes,
}

impl FormClient {
    /// A client without any connection yet.
    ///
    /// # Errors
    /// When TLS cannot be spoken at all.
    pub fn new() -> Result<Self, OutboundError> {
        let client = client().map_err(|error| OutboundError::Unreachable(error.to_string()))?;
        Ok(Self(client.build()?))
    }

    /// Posts a form with these headers, and waits for all of the answer: the head for at most `time`,
    /// each piece of the body as well, and at most `bytes_max` of it.
    ///
    /// # Errors
    /// See [`OutboundError`].
    pub async fn post(
        &self,
        url: &Url,
        headers: HeaderMap,
        form: String,
        time: Duration,
        bytes_max: usize,
    ) -> Result<FormAnswer, OutboundError> {
        let call = self.0.post(url.clone()).headers(headers).body(form);
        let answer = OutboundResponse::to(call, time, time).await?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        let body = answer.whole_within(bytes_max).await?;
        Ok(FormAnswer { status, headers, body })
    }
}
