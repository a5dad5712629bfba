//! Sockets, requests and what every answer has in common.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, RETRY_AFTER};
use http::{HeaderValue, Request, Response};
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use sha2::{Digest as _, Sha256};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::answer::Answer;
use super::behaviour::{BadSetting, Behaviour, CountSettings, SimulatedRefusal, WithheldAnswer};
use super::connection::SimulatorConnection;
use super::in_flight::InFlight;
use super::received_request::{PATH_SETTINGS, ReceivedRequest};
use super::recorded::RecordedRequest;
use super::route;
use super::script::{ConnectionCut, Script};
use super::state::SimulatorState;
use tollgate_types::clock::UnixMs;

/// Connections that may wait to be accepted: more than a benchmark opens at one moment.
const BACKLOG: u32 = 4096;
/// Grace period of open answers after a stop.
const STOP_GRACE: Duration = Duration::from_millis(500);
/// Pause after a failed `accept`, for example without free descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
/// The largest request body: more than any test sends, less than a machine has.
const BODY_BYTES_MAX: usize = 256 * 1024 * 1024;
/// The start of a header that holds a setting.
const HEADER_SETTING: &str = "x-sim-";

const BODY_SHA256: HeaderName = HeaderName::from_static("x-sim-body-sha256");
const BODY_BYTES: HeaderName = HeaderName::from_static("x-sim-body-bytes");
const AMAZON_ERROR_TYPE: HeaderName = HeaderName::from_static("x-amzn-errortype");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Headers of a careless upstream, none of which may reach a customer.
const LEAKS: [(&str, &str); 5] = [
    ("set-cookie", "session=sim-leaked-cookie; HttpOnly"),
    ("authorization", "Bearer sk-sim-leaked-authorization"),
    ("x-api-key", "sk-sim-leaked-key"),
    ("openai-organization", "org-sim-leaked"),
    ("server", "sim-leaked/1.0"),
];

/// Listens and serves until `stopped` says so. `bound` is called once, with the address.
pub(super) fn run(
    server: &Arc<SimulatorState>,
    listen: SocketAddr,
    stopped: watch::Receiver<bool>,
    bound: impl FnOnce(io::Result<SocketAddr>),
) {
    // One thread: what is measured beside the simulator needs the other cores.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return bound(Err(error)),
    };
    runtime.block_on(async {
        let listening = bind(listen).and_then(|listener| Ok((listener.local_addr()?, listener)));
        match listening {
            Ok((address, listener)) => {
                bound(Ok(address));
                accept(server, listener, stopped).await;
            }
            Err(error) => bound(Err(error)),
        }
    });
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A test that stops and starts an upstream needs the same port at once.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

async fn accept(
    server: &Arc<SimulatorState>,
    listener: TcpListener,
    mut stopped: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(serve(Arc::clone(server), stream, stopped.clone()));
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
            Some(_) = connections.join_next() => {}
            _ = stopped.changed() => break,
        }
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    // What is still open after the grace is dropped with the set.
    drop(tokio::time::timeout(STOP_GRACE, all).await);
}

async fn serve(server: Arc<SimulatorState>, stream: TcpStream, mut stopped: watch::Receiver<bool>) {
    // Without it a chunk waits for the acknowledgement of the one before. It fails only on a
    // connection that is closed already.
    drop(stream.set_nodelay(true));
    let reset = Arc::new(AtomicBool::new(false));
    let connection = SimulatorConnection::new(stream, Arc::clone(&reset));
    let service =
        service_fn(move |request| answer(Arc::clone(&server), Arc::clone(&reset), request));
    let builder = auto::Builder::new(TokioExecutor::new());
    let serving = builder.serve_connection(TokioIo::new(connection), service);
    tokio::pin!(serving);
    // An error here is a connection that was cut, by the other side or on purpose.
    tokio::select! {
        result = serving.as_mut() => drop(result),
        _ = stopped.changed() => {
            serving.as_mut().graceful_shutdown();
            drop(serving.await);
        }
    }
}

/// Answers one request; `Err` closes its connection.
async fn answer(
    server: Arc<SimulatorState>,
    reset: Arc<AtomicBool>,
    request: Request<Incoming>,
) -> Result<Response<Script>, ConnectionCut> {
    let in_flight = InFlight::new(&server.in_flight);
    let number = server.answers.fetch_add(1, Ordering::Relaxed);
    let (head, body) = request.into_parts();
    let mut behaviour = match overridden(&server.behaviour.load_full(), &head) {
        Ok(behaviour) => behaviour,
        Err(error) => {
            let fallback = Behaviour::default();
            let refused = Answer::invalid(&error.to_string(), &fallback);
            return Ok(response(number, refused, &fallback, &ReceivedBody::default(), in_flight));
        }
    };
    if let Some(id) = route::queried_task(&head.method, head.uri.path()) {
        server.tasks.count_query(id);
        if behaviour.task.query_fault.is_some() {
            let behaviour = Arc::make_mut(&mut behaviour);
            behaviour.faults.refusal = behaviour.task.query_fault;
        }
    }
    let CountSettings { delay, fault, .. } = behaviour.count;
    if route::counts_tokens(head.uri.path()) && (delay.is_some() || fault.is_some()) {
        let behaviour = Arc::make_mut(&mut behaviour);
        behaviour.delay = delay.unwrap_or(behaviour.delay);
        behaviour.faults.refusal = fault.or(behaviour.faults.refusal);
    }
    if behaviour.faults.refusal == Some(SimulatedRefusal::Reset) {
        return Err(cut(&reset));
    }
    // Read before the delay begins: it runs from the last byte of the request to the first of the
    // answer.
    let received = receive(body, behaviour.blind).await?;
    if !behaviour.blind && !route::shows_what_was_recorded(head.uri.path()) {
        record(&server, &head, &received);
    }
    if !behaviour.delay.is_zero() {
        tokio::time::sleep(behaviour.delay).await;
    }
    match behaviour.faults.refusal {
        Some(SimulatedRefusal::ResetAfterBody) => return Err(cut(&reset)),
        Some(SimulatedRefusal::Hang) => std::future::pending().await,
        _ => {}
    }
    let http_request = ReceivedRequest {
        method: &head.method,
        path: head.uri.path(),
        query: head.uri.query().unwrap_or_default(),
        headers: &head.headers,
        host: host(&head),
        body: &received.body,
        body_sha256: received.sha256.as_deref().unwrap_or_default(),
        number,
    };
    let answer = route::answer(&http_request, &behaviour, &server);
    match answer.withheld {
        Some(WithheldAnswer::Hang) => std::future::pending().await,
        Some(WithheldAnswer::Reset) => return Err(cut(&reset)),
        None => {}
    }
    Ok(response(number, answer, &behaviour, &received, in_flight))
}

/// Make the connection end with a reset.
fn cut(reset: &AtomicBool) -> ConnectionCut {
    reset.store(true, Ordering::Relaxed);
    ConnectionCut
}

/// HTTP/2 has the host in the target, HTTP/1.1 in a header.
fn host(head: &http::request::Parts) -> &str {
    let header = || head.headers.get(HOST).and_then(|value| value.to_str().ok());
    head.uri.authority().map(http::uri::Authority::as_str).or_else(header).unwrap_or_default()
}

/// The behaviour for one request: the server's, changed by its path, changed by its headers.
fn overridden(
    server: &Arc<Behaviour>,
    head: &http::request::Parts,
) -> Result<Arc<Behaviour>, BadSetting> {
    let mut behaviour = Arc::clone(server);
    let segments = head.uri.path().split('/').filter_map(|it| it.strip_prefix(PATH_SETTINGS));
    for pair in segments.flat_map(|settings| settings.split(';')) {
        // Copied only here: nearly all requests share the server's settings.
        Arc::make_mut(&mut behaviour).set_pair(pair)?;
    }
    for (name, value) in &head.headers {
        if let Some(name) = name.as_str().strip_prefix(HEADER_SETTING) {
            let value = String::from_utf8_lossy(value.as_bytes());
            Arc::make_mut(&mut behaviour).set(name, &value)?;
        }
    }
    Ok(behaviour)
}

/// A request's body. Blind, only its length is known.
#[derive(Default)]
struct ReceivedBody {
    body: Bytes,
    bytes: usize,
    sha256: Option<String>,
}

async fn receive(mut body: Incoming, blind: bool) -> Result<ReceivedBody, ConnectionCut> {
    let (mut whole, mut hash, mut bytes) = (BytesMut::new(), Sha256::new(), 0_usize);
    while let Some(frame) =
        std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await
    {
        // Trailers are of no interest.
        let Ok(data) = frame.map_err(|_| ConnectionCut)?.into_data() else { continue };
        bytes = bytes.saturating_add(data.len());
        if bytes > BODY_BYTES_MAX {
            return Err(ConnectionCut);
        }
        if !blind {
            hash.update(&data);
            whole.extend_from_slice(&data);
        }
    }
    let sha256 = (!blind).then(|| hex(&hash.finalize()));
    Ok(ReceivedBody { body: whole.freeze(), bytes, sha256 })
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let digit = |nibble: u8| DIGITS.get(usize::from(nibble)).copied().unwrap_or_default();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

fn record(server: &SimulatorState, head: &http::request::Parts, received: &ReceivedBody) {
    server.recorder.add(RecordedRequest {
        received: UnixMs::now(),
        method: head.method.clone(),
        path: head.uri.path_and_query().map_or_else(String::new, ToString::to_string),
        version: head.version,
        headers: head.headers.clone(),
        body_sha256: received.sha256.clone().unwrap_or_default(),
        body_bytes: received.bytes,
        body: Some(received.body.clone()),
    });
}

fn response(
    number: u64,
    answer: Answer,
    behaviour: &Behaviour,
    received: &ReceivedBody,
    in_flight: InFlight,
) -> Response<Script> {
    let mut response = Response::new(Script::new(answer.steps).counted(in_flight));
    *response.status_mut() = answer.status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(answer.content_type));
    headers.insert(BODY_BYTES, HeaderValue::from(received.bytes));
    let texts = [
        (BODY_SHA256, received.sha256.clone()),
        (REQUEST_ID, Some(format!("req_sim_{number}"))),
        (RETRY_AFTER, answer.retry_after),
        (AMAZON_ERROR_TYPE, answer.error_name),
    ];
    for (name, text) in texts {
        if let Some(value) = text.and_then(|text| HeaderValue::try_from(text).ok()) {
            headers.insert(name, value);
        }
    }
    if let Some(bytes) = answer.announced_bytes {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes));
    }
    if behaviour.faults.leak {
        for (name, value) in LEAKS {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
    }
    response
}
