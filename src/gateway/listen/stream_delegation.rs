//! Delegation of a wrapped connection's properties to the one inside.

/// Implements the connection traits other than reading and writing for a type with a field `inner: Stream`,
/// by delegation.
macro_rules! delegate_to_inner {
    ($wrapped:ty) => {
        impl std::fmt::Debug for $wrapped {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_tuple(stringify!($wrapped)).field(&self.inner).finish()
            }
        }

        #[async_trait::async_trait]
        impl pingora::protocols::Shutdown for $wrapped {
            async fn shutdown(&mut self) {
                self.inner.shutdown().await;
            }
        }

        impl pingora::protocols::UniqueID for $wrapped {
            fn id(&self) -> pingora::protocols::UniqueIDType {
                self.inner.id()
            }
        }

        impl pingora::protocols::Ssl for $wrapped {
            fn get_ssl_digest(&self) -> Option<std::sync::Arc<pingora::protocols::tls::SslDigest>> {
                self.inner.get_ssl_digest()
            }

            fn selected_alpn_proto(&self) -> Option<pingora::protocols::ALPN> {
                self.inner.selected_alpn_proto()
            }
        }

        impl pingora::protocols::GetTimingDigest for $wrapped {
            fn get_timing_digest(&self) -> Vec<Option<pingora::protocols::TimingDigest>> {
                self.inner.get_timing_digest()
            }

            fn get_read_pending_time(&self) -> std::time::Duration {
                self.inner.get_read_pending_time()
            }

            fn get_write_pending_time(&self) -> std::time::Duration {
                self.inner.get_write_pending_time()
            }
        }

        impl pingora::protocols::GetProxyDigest for $wrapped {
            fn get_proxy_digest(
                &self,
            ) -> Option<std::sync::Arc<pingora::protocols::raw_connect::ProxyDigest>> {
                self.inner.get_proxy_digest()
            }
        }

        impl pingora::protocols::GetSocketDigest for $wrapped {
            fn get_socket_digest(
                &self,
            ) -> Option<std::sync::Arc<pingora::protocols::SocketDigest>> {
                self.inner.get_socket_digest()
            }
        }

        #[async_trait::async_trait]
        impl pingora::protocols::Peek for $wrapped {
            async fn try_peek(&mut self, bytes: &mut [u8]) -> std::io::Result<bool> {
                self.inner.try_peek(bytes).await
            }
        }
    };
}

pub(crate) use delegate_to_inner;
