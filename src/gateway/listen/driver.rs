//! The order in which a request goes through the hooks, for sessions that are the gateway's own.
//!
//! It is that of Pingora's driver, without what the gateway never uses of it: modules, the cache, its own
//! loop over upstreams, subrequests.

use std::pin::Pin;

use pingora::protocols::http::ServerSession;
use pingora::protocols::http::custom::server::Session as CustomSession;
use pingora::{Error, ErrorType};
use pingora_proxy::{ProxyHttp, Session};

/// Pingora's session around sessions of the gateway's own, one after the other.
pub(crate) fn session() -> Session {
    // Pingora makes one over a connection. The session over this empty one is never used.
    let mut session = Session::new_h1(Box::new(std::io::Cursor::new(Vec::new())));
    *session.downstream_session = ServerSession::new_custom(Box::new(()));
    session
}

/// Serves the request of `own`; `session` is around it from then on. The future is large, and made where
/// it stays.
#[inline(never)]
pub(crate) fn serve<'a, P>(
    proxy: &'a P,
    session: &'a mut Session,
    own: Box<dyn CustomSession>,
) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>
where
    P: ProxyHttp + Send + Sync,
    P::CTX: Send + Sync,
{
    *session.downstream_session = ServerSession::new_custom(own);
    Box::pin(go_through(proxy, session))
}

/// A proxy of any type that serves sessions of the gateway's own.
pub(crate) trait ServeSession: Send + Sync {
    /// Serves the request of `own`, as [`serve`] does.
    fn serve<'a>(
        &'a self,
        session: &'a mut Session,
        own: Box<dyn CustomSession>,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;
}

impl<P> ServeSession for P
where
    P: ProxyHttp + Send + Sync,
    P::CTX: Send + Sync,
{
    fn serve<'a>(
        &'a self,
        session: &'a mut Session,
        own: Box<dyn CustomSession>,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        serve(self, session, own)
    }
}

async fn go_through<P>(proxy: &P, session: &mut Session)
where
    P: ProxyHttp + Send + Sync,
    P::CTX: Send + Sync,
{
    let mut context = proxy.new_ctx();
    let failed = filter(proxy, session, &mut context).await.err();
    let is_reusable = match &failed {
        None => true,
        Some(error) => proxy.fail_to_proxy(session, error, &mut context).await.can_reuse_downstream,
    };
    proxy.logging(session, failed.as_deref(), &mut context).await;
    if let Some(own) = session.downstream_session.as_custom_mut() {
        if is_reusable {
            // It is over, and was logged.
            let _is_sent = own.finish().await;
        } else {
            own.shutdown(0, "").await;
        }
    }
    // Between requests nothing is kept of them.
    *session.downstream_session = ServerSession::new_custom(Box::new(()));
}

/// Runs the hooks until the request is answered.
async fn filter<P>(proxy: &P, session: &mut Session, context: &mut P::CTX) -> pingora::Result<()>
where
    P: ProxyHttp + Send + Sync,
    P::CTX: Send + Sync,
{
    proxy.early_request_filter(session, context).await?;
    if proxy.request_filter(session, context).await? {
        return Ok(());
    }
    Error::e_explain(ErrorType::InternalError, "a request was left to Pingora's own loop")
}
