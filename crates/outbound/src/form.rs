//! Forms that are posted to machines that the operator has configured, and answers that are read whole.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use tollgate_options::network::{ClientTls, Proxy};
use url::Url;

use crate::{
    AllowedAddresses, AnswerTimes, CONNECT_TIMEOUT, Clients, OutboundBody, OutboundError,
    ProxyChoice, Reach,
};

/// A client for forms. Cheap to clone; it keeps connections for the next one.
#[derive(Clone, Debug)]
pub struct FormClient(Clients);

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

/// Limits of a response to a form.
#[derive(Clone, Copy, Debug)]
pub struct FormLimits {
    /// Timeout for the head, and for each piece of the body.
    pub time: Duration,
    /// The length of its body.
    pub bytes_max: usize,
}

impl FormClient {
    /// A client over these.
    #[must_use]
    pub fn new(clients: Clients) -> Self {
        Self(clients)
    }

    /// Posts a form with these headers, through a proxy where there is one, and waits for all of the
    /// answer.
    ///
    /// # Errors
    /// See [`OutboundError`].
    pub async fn post(
        &self,
        url: &Url,
        proxy: Option<&Arc<Proxy>>,
        headers: HeaderMap,
        form: String,
        limits: FormLimits,
    ) -> Result<FormAnswer, OutboundError> {
        let client = self.0.get(&Reach {
            proxy: ProxyChoice::Fixed(proxy.cloned()),
            tls: ClientTls::default(),
            // The operator has named this machine; it may be in the operator's own network.
            allowed: AllowedAddresses::All,
            connect_timeout: CONNECT_TIMEOUT,
        });
        let FormLimits { time, bytes_max } = limits;
        let body = OutboundBody::Whole(form.into());
        let answer = client
            .send(
                Method::POST,
                url.as_str(),
                headers,
                body,
                AnswerTimes { head: time, piece: time },
            )
            .await?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        let body = answer.whole_within(bytes_max).await?;
        Ok(FormAnswer { status, headers, body })
    }
}
