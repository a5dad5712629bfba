//! Draining of the accept queues before the listeners close.
//!
//! The kernel completes connections before they are accepted, and resets the unaccepted ones when the
//! listening socket closes. Their requests may have been sent already, and a load balancer does not
//! repeat them. So connections in the queue are accepted first.

use std::net::TcpListener;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pingora::apps::ServerApp;
use pingora::protocols::l4::stream::Stream;
use pingora::protocols::{GetSocketDigest as _, SocketDigest};
use pingora::server::ShutdownWatch;

/// Largest number of connections accepted: the kernel's default maximum queue length.
const CONNECTIONS_MAX: usize = 4096;

/// Accept and serve the connections in the queue of `socket`, which is non-blocking, and close it:
/// between the last accept and the close lies only one system call. They count in `open` on return.
pub(super) fn serve<A>(
    socket: TcpListener,
    app: &Arc<A>,
    shutdown: &ShutdownWatch,
    open: &Arc<AtomicUsize>,
) where
    A: ServerApp + Send + Sync + 'static,
{
    let mut queued = Vec::new();
    while queued.len() < CONNECTIONS_MAX {
        match socket.accept() {
            Ok((connection, _)) => queued.push(connection),
            // Nobody is left.
            Err(_) => break,
        }
    }
    drop(socket);
    for connection in queued {
        let digest = SocketDigest::from_raw_fd(connection.as_raw_fd());
        let stream = connection
            .set_nonblocking(true)
            .and_then(|()| connection.set_nodelay(true))
            .and_then(|()| tokio::net::TcpStream::from_std(connection));
        // One that fails here is one that its customer has closed.
        let Ok(stream) = stream else { continue };
        let mut stream = Stream::from(stream);
        stream.set_socket_digest(digest);
        let (app, shutdown, counted) = (Arc::clone(app), shutdown.clone(), LetIn::new(open));
        tokio::spawn(async move {
            let _counted = counted;
            app.process_new(Box::new(stream), &shutdown).await
        });
    }
}

/// Guard that counts a connection until its task runs and counts it itself.
struct LetIn(Arc<AtomicUsize>);

impl LetIn {
    fn new(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(open))
    }
}

impl Drop for LetIn {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
