//! What all sessions that Pingora did not make have in common.

use std::time::Duration;

use pingora::http::RequestHeader;

/// How long a session waits for the other side.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timeouts {
    /// For the next piece of a request.
    pub(crate) read: Option<Duration>,
    /// Until a piece of an answer was taken.
    pub(crate) write: Option<Duration>,
    /// For the rest of a request that nobody reads.
    pub(crate) drain: Option<Duration>,
}

/// What a log calls a request.
pub(crate) fn summary(head: &RequestHeader) -> String {
    format!("{} {}", head.method, head.uri.path())
}

/// The part of Pingora's trait for sessions that is the same for all that have `timeouts`, and no messages
/// beside HTTP's.
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
            crate::gateway::listen::custom::summary(self.req_header())
        }

        fn pseudo_raw_h1_request_header(&self) -> bytes::Bytes {
            bytes::Bytes::new()
        }

        fn take_custom_message_reader(
            &mut self,
        ) -> Option<crate::gateway::listen::custom::Messages> {
            None
        }

        fn restore_custom_message_reader(
            &mut self,
            _reader: crate::gateway::listen::custom::Messages,
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

/// Messages beside HTTP's, of which there are none.
pub(crate) type Messages = Box<
    dyn tokio_stream::Stream<Item = pingora::Result<bytes::Bytes>> + Unpin + Send + Sync + 'static,
>;
