//! Customer-facing listeners: bound before anything runs, then each served by a Pingora service.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::IntoRawFd as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use parking_lot::Mutex;
use pingora::listeners::{L4BufferSettings, ListenerConfig, TcpSocketOptions};
use pingora::protocols::TcpKeepalive;
use pingora::server::Fds;
use pingora::services::Service as _;
use pingora::services::listening::Service;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::last_calls;
use crate::cli::callable;
use crate::config::snapshot::{Listener, Snapshot};
use crate::config::{CertificateError, CertificateFiles, ConfigHandle};
use crate::gateway::{Certificates, Gateway, GatewayParts, Transport};
use crate::metrics::Metrics;

/// Interval of checks for renewed certificate files. Renewal tools leave days of overlap, and two small
/// files are read in microseconds.
const CERTIFICATES_CHECKED_EVERY: Duration = Duration::from_secs(5);

/// TCP keepalive: idle time, interval and number of probes. A client that vanishes while an upstream
/// works is detected within two minutes.
const SILENT_BEFORE_PROBED: Duration = Duration::from_secs(60);
const PROBED_EVERY: Duration = Duration::from_secs(15);
const PROBES_MAX: usize = 4;
/// Minimum of the TCP user timeout, however short `write_timeout` is: a few lost packets in a row are
/// not the customer's fault.
const UNTAKEN_MIN: Duration = Duration::from_secs(10);

/// Read-ahead buffer in front of TLS, which reads 4 KiB at a time. Pingora's 64 KiB are zeroed for every
/// connection, and stay allocated. Without TLS there is none: heads and bodies have buffers of their
/// own.
const TLS_READ_AHEAD_BYTES: usize = 16 * 1024;

/// Buffer behind TLS in bytes, Pingora's default: the records of a handshake leave together.
const TLS_WRITE_BYTES: usize = 1460;

/// A bound socket and its listener configuration.
pub(super) struct Bound {
    /// Address with its actual port.
    pub(super) address: SocketAddr,
    /// Bound socket in non-blocking mode.
    pub(super) socket: TcpListener,
    listener: Listener,
}

impl Bound {
    /// Address as a URL without a path.
    pub(super) fn url(&self) -> String {
        url(if self.listener.tls.is_some() { "https" } else { "http" }, self.address)
    }
}

/// Address as a URL without a path.
pub(super) fn url(scheme: &str, address: SocketAddr) -> String {
    format!("{scheme}://{}", callable(address))
}

/// Bind every listener's socket with `bind`, in the order of the file.
pub(super) fn bind_all(
    config: &Snapshot,
    mut bind: impl FnMut(SocketAddr) -> anyhow::Result<TcpListener>,
) -> anyhow::Result<Vec<Bound>> {
    let bind_one = |listener: &Listener| {
        let socket = bind(listener.address)?;
        Ok(Bound { address: socket.local_addr()?, socket, listener: listener.clone() })
    };
    config.listeners.iter().map(bind_one).collect()
}

/// Start one Pingora service per listener. The sockets are bound already, so that a taken port fails
/// before anything runs, and port 0 is resolved. The services end after `stopped`, once their accept
/// queues are counted among the open connections.
pub(super) fn start(
    parts: &GatewayParts,
    listeners: Vec<Bound>,
    stopped: &watch::Receiver<bool>,
) -> anyhow::Result<Vec<JoinHandle<()>>> {
    let gateway = Gateway::new(parts.clone());
    let untaken = parts.config.load().limits.write_timeout;
    let mut services = Vec::with_capacity(listeners.len() + 1);
    let mut shown = Vec::new();
    for (index, Bound { address, socket, listener }) in listeners.into_iter().enumerate() {
        let certificates = Certificates::for_listener(&parts.config, index, &listener);
        shown.extend(certificates.clone().map(|certificates| {
            let listener = listener.address.to_string();
            ShownCertificates { listener, certificates }
        }));
        let transport = Transport::new(listener.proxy_protocol, certificates)
            .with_context(|| format!("cannot prepare TLS on {address}"))?;
        let name = address.to_string();
        let app = || gateway.clone().behind(transport.clone(), listener.h2c);
        let (last_app, last_socket) = (Arc::new(app()), socket.try_clone()?);
        let app = app();
        let filter = app.filter();
        let mut service = Service::new(name.clone(), app);
        let read_ahead = if listener.tls.is_some() { TLS_READ_AHEAD_BYTES } else { 0 };
        // Plain answers leave in whole writes. TLS writes each of its records by itself.
        let write_ahead = if listener.tls.is_some() { TLS_WRITE_BYTES } else { 0 };
        let buffers = L4BufferSettings::new(read_ahead, write_ahead);
        let options = socket_options(untaken);
        let endpoint = ListenerConfig::tcp(&name).tcp_socket_options(options).l4_buffer(buffers);
        service.add_listener(endpoint);
        service.set_connection_filter(filter);
        let mut fds = Fds::new();
        fds.add(name, socket.into_raw_fd());
        let (fds, stopped) = (Arc::new(Mutex::new(fds)), stopped.clone());
        let open = Arc::clone(&parts.open);
        let serve = async move {
            service.start_service(Some(fds), stopped.clone(), 1).await;
            drop(service);
            last_calls::serve(last_socket, &last_app, &stopped, &open);
        };
        services.push(tokio::spawn(serve));
    }
    if !shown.is_empty() {
        services.push(tokio::spawn(renew(shown, Arc::clone(&parts.metrics), stopped.clone())));
    }
    Ok(services)
}

/// TLS for the admin address, if it has a certificate. Renewed files are loaded until `stopped`.
///
/// # Errors
/// TLS cannot be set up.
pub(super) fn admin_tls(
    config: &Arc<ConfigHandle>,
    metrics: &Arc<Metrics>,
    stopped: &watch::Receiver<bool>,
) -> anyhow::Result<Option<TlsAcceptor>> {
    let Some(certificates) = Certificates::of_admin(config) else { return Ok(None) };
    let tls = Arc::clone(&certificates).into_tls(&[b"http/1.1"]);
    let tls = tls.context("cannot prepare TLS on the admin address")?;
    let listener = config.load().admin.address.to_string();
    let shown = vec![ShownCertificates { listener, certificates }];
    tokio::spawn(renew(shown, Arc::clone(metrics), stopped.clone()));
    Ok(Some(TlsAcceptor::from(Arc::new(tls))))
}

/// Socket options for connections that the gateway cannot observe: a whole answer may sit in kernel
/// buffers while the client reads none of it, and a vanished client may never signal.
fn socket_options(untaken: Duration) -> TcpSocketOptions {
    let tcp_keepalive = TcpKeepalive {
        idle: SILENT_BEFORE_PROBED,
        interval: PROBED_EVERY,
        count: PROBES_MAX,
        user_timeout: untaken.max(UNTAKEN_MIN),
    };
    let mut options = TcpSocketOptions::default();
    options.tcp_keepalive = Some(tcp_keepalive);
    options
}

/// Load renewed certificate files until the listeners close.
async fn renew(
    shown: Vec<ShownCertificates>,
    metrics: Arc<Metrics>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut last_logged = vec![String::new(); shown.len()];
    while !*stopped.borrow() {
        for (shown, last_logged) in shown.iter().zip(&mut last_logged) {
            shown.renew(last_logged);
            metrics.certificate_shown(&shown.listener, shown.certificates.not_after());
        }
        let stop = stopped.wait_for(|stopped| *stopped);
        // Either way the loop goes on to ask again.
        drop(tokio::time::timeout(CERTIFICATES_CHECKED_EVERY, stop).await);
    }
}

/// Certificates of one listener.
struct ShownCertificates {
    /// Address of the listener in the configuration.
    listener: String,
    certificates: Arc<Certificates>,
}

impl ShownCertificates {
    /// Reload the files if changed. `last_logged` is the latest log message about them.
    fn renew(&self, last_logged: &mut String) {
        let Self { listener, certificates } = self;
        // Reading two small files takes less than handing the work to another thread.
        match certificates.renew() {
            Ok(false) => last_logged.clear(),
            Ok(true) => {
                last_logged.clear();
                let until = certificates.not_after().to_rfc3339();
                log::info!("{listener}: a new certificate is shown, valid until {until}");
            }
            Err(errors) => {
                // Files are replaced one after the other: a pair may not match for a moment.
                let reasons = reasons(&certificates.files(), &errors);
                if *last_logged != reasons {
                    log::error!("{listener}: the certificate shown stays: {reasons}");
                    *last_logged = reasons;
                }
            }
        }
    }
}

/// Errors as text: `cert.pem: this certificate expired on …; key.pem: …`.
fn reasons(files: &CertificateFiles, errors: &[CertificateError]) -> String {
    let reason = |error: &CertificateError| {
        format!("{}: {}", files.path(error.file).display(), error.message)
    };
    errors.iter().map(reason).collect::<Vec<_>>().join("; ")
}
