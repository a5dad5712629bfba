//! Shared parts of sessions that are not Pingora's own.

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use pingora::http::RequestHeader;
use pingora::protocols::http::HttpTask;
use pingora::protocols::http::custom::server::Session as CustomSession;
use pingora::time::timeout;
use pingora::{Error, ErrorType, Result};

/// Read, write and drain timeouts of a session.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timeouts {
    /// Time to wait for the next piece of a request.
    pub(crate) read: Option<Duration>,
    /// Time to wait until the client accepts a piece of an answer.
    pub(crate) write: Option<Duration>,
    /// Time to wait for the rest of an unread request.
    pub(crate) drain: Option<Duration>,
}

/// Run `work` for at most `limit`; an error of type `kind` when the time is over.
///
/// # Errors
/// Those of `work`, and the one of this kind; `doing` says what took too long.
pub(crate) async fn within<T>(
    limit: Option<Duration>,
    late: ErrorType,
    doing: &'static str,
    work: Pin<&mut impl Future<Output = Result<T>>>,
) -> Result<T> {
    match limit {
        Some(limit) => match timeout(limit, work).await {
            Ok(done) => done,
            Err(_) => Error::e_explain(late, doing),
        },
        None => work.await,
    }
}

/// Writes the tasks in which Pingora's own loop over upstreams would hand an answer on; gives whether
/// that was its end.
///
/// # Errors
/// Those of writing, and the one that is a task.
pub(crate) async fn write_tasks(
    session: &mut impl CustomSession,
    tasks: Vec<HttpTask>,
) -> Result<bool> {
    for task in tasks {
        let is_end = task.is_end();
        match task {
            HttpTask::Header(header, _) => session.write_response_header(header, is_end).await?,
            HttpTask::Body(data, _) | HttpTask::UpgradedBody(data, _) => {
                session.write_body(data.unwrap_or_default(), is_end).await?;
            }
            HttpTask::Trailer(_) | HttpTask::Done => {
                session.write_body(Bytes::new(), is_end).await?
            }
            HttpTask::Failed(error) => return Err(error),
        }
        if is_end {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Summary of a request for logs: method, path and host.
pub(crate) fn summary(head: &RequestHeader) -> String {
    format!("{} {}", head.method, head.uri.path())
}

/// Methods of Pingora's session trait that are the same for all sessions with `timeouts` and without messages
/// beside HTTP.
macro_rules! plain_session {
    () => {
        fn set_read_timeout(&mut self, timeout: Option<Duration>) {
            self.timeouts.read = timeout;
        }

        fn get_read_timeout(&self) -> Option<Duration> {
            self.timeouts.read
        }

        fn set_write_timeout(&mut self, timeout: Option<Duration>) {
            self.timeouts.write = timeout;
        }

        fn get_write_timeout(&self) -> Option<Duration> {
            self.timeouts.write
        }

        fn set_total_drain_timeout(&mut self, timeout: Option<Duration>) {
            self.timeouts.drain = timeout;
        }

        fn get_total_drain_timeout(&self) -> Option<Duration> {
            self.timeouts.drain
        }

        fn request_summary(&self) -> String {
            crate::gateway::listen::session_parts::summary(self.req_header())
        }

        /// Nothing is sent twice from here: the gateway keeps bodies itself.
        fn enable_retry_buffering(&mut self) {}

        fn retry_buffer_truncated(&self) -> bool {
            false
        }

        // Pingora reads it only to make a subrequest of a session, and the gateway makes none.
        fn pseudo_raw_h1_request_header(&self) -> bytes::Bytes {
            bytes::Bytes::new()
        }

        // Messages are a feature of Pingora's custom protocols; these sessions have HTTP's only.
        fn take_custom_message_reader(
            &mut self,
        ) -> Option<crate::gateway::listen::session_parts::Messages> {
            None
        }

        fn restore_custom_message_reader(
            &mut self,
            _reader: crate::gateway::listen::session_parts::Messages,
        ) -> pingora::Result<()> {
            Ok(())
        }

        fn take_custom_message_writer(
            &mut self,
        ) -> Option<Box<dyn pingora::protocols::http::custom::CustomMessageWrite>> {
            None
        }

        fn restore_custom_message_writer(
            &mut self,
            _writer: Box<dyn pingora::protocols::http::custom::CustomMessageWrite>,
        ) -> pingora::Result<()> {
            Ok(())
        }

        fn finish_custom<'life0, 'async_trait>(
            &'life0 mut self,
        ) -> std::pin::Pin<
            Box<dyn std::future::Future<Output = pingora::Result<()>> + Send + 'async_trait>,
        >
        where
            'life0: 'async_trait,
            Self: 'async_trait,
        {
            Box::pin(std::future::ready(Ok(())))
        }

        fn write_response_header_ref<'life0, 'life1, 'async_trait>(
            &'life0 mut self,
            header: &'life1 pingora::http::ResponseHeader,
            end: bool,
        ) -> std::pin::Pin<
            Box<dyn std::future::Future<Output = pingora::Result<()>> + Send + 'async_trait>,
        >
        where
            'life0: 'async_trait,
            'life1: 'async_trait,
            Self: 'async_trait,
        {
            self.write_response_header(Box::new(header.clone()), end)
        }
    };
}

pub(crate) use plain_session;

/// Placeholder for messages beside HTTP, which these sessions do not have.
pub(crate) type Messages =
    Box<dyn tokio_stream::Stream<Item = Result<Bytes>> + Unpin + Send + Sync + 'static>;
