//! The process that serves, from its configuration to its last settlement: sockets, stores, the proxy
//! with the services that it hosts, the admin API, signals, and the way out.
//!
//! | File | Contents |
//! |---|---|
//! | `services` | the console and the MCP server on the customers' listeners |
//! | `stores` | ledger, request log, limits, and the node's place in a fleet |
//! | `listen` | the listeners of customers, their certificates, TLS of the admin address |
//! | `drain`, `signals` | from a signal to the end of the last request |
//! | `handover`, `last_calls` | sockets and connections on their way to the next process |
//! | `supervisor` | systemd's readiness and watchdog |
//! | `descriptors`, `memory` | the limit of open files; memory that goes back to the kernel |

mod descriptors;
mod drain;
mod handover;
mod last_calls;
mod listen;
pub mod memory;
mod services;
mod signals;
mod stores;
mod supervisor;

use std::net::TcpListener;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use crate::cli::serve::{Ready, RunningGateway, ServeRole, Start};
use crate::cli::{Program, admin_token, private};
use anyhow::Context as _;
use tokio::sync::watch;
use tollgate_telemetry::report::install_span_export;

use self::drain::Drain;
use self::handover::{Handover, InheritedListeners, Successor};
use self::listen::Bound;
use self::signals::Signals;
use self::stores::Stores;
use crate::admin::{self, AdminState, Readiness};
use crate::balance::Balancer;
use crate::config::ConfigHandle;
use crate::gateway::{Connectors, Descriptors, GatewayParts, LoopbackClient, check_upstreams};
use crate::ledger::Ledger;
use crate::logging;
use crate::metrics::Metrics;
use crate::outbound::Outbound;
use crate::password::Passwords;
use crate::reload;
use crate::request_log::RequestLog;
use crate::tasks::Tasks;
use crate::traces;

/// Time limit for ending requests that the drain's deadline has cut.
const CUT_TIMEOUT: Duration = Duration::from_secs(5);

/// Functions of the process that the commands call.
pub const PROGRAM: Program = Program { serve: run, admin_openapi: admin::openapi_document };

/// Run a gateway until a signal ends it. `ready` is called once it accepts requests.
fn run(start: Start, ready: Ready) -> anyhow::Result<ExitCode> {
    logging::install(start.log);
    private::only_for_owner();
    private::guard(&start.config.store.data_dir);
    // Before there are threads: the variables that name the sockets are taken out.
    let inherited = InheritedListeners::from_environment()?;
    let shares = Descriptors::from_limit(descriptors::raise());
    if traces::start()? {
        install_span_export(traces::record);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let served = runtime.block_on(serve(start, inherited, shares, ready));
    // Drops what the deadline has cut. Each request is settled as it is dropped, so the ledger
    // closes behind them.
    runtime.shutdown_timeout(CUT_TIMEOUT);
    let result = served.map(|(stores, successor)| {
        stores.close();
        // What waits for the ledger goes on when this is dropped.
        drop(successor);
        ExitCode::SUCCESS
    });
    traces::flush();
    logging::flush();
    result
}

/// Serve until stopped. Requests in flight continue until the runtime ends.
async fn serve(
    start: Start,
    mut inherited: InheritedListeners,
    shares: Descriptors,
    ready: Ready,
) -> anyhow::Result<(Stores, Option<Successor>)> {
    let Start { sources, overrides, config, role, .. } = start;
    let mut signals = Signals::listen()?;
    // Before the wait for a predecessor, which may be longer than a watchdog's interval.
    let watchdog = tokio::spawn(supervisor::feed_the_watchdog());
    let (delay, grace) = (config.shutdown_delay, config.shutdown_grace);
    let metrics = Arc::new(Metrics::new());
    let listeners = listen::bind_all(&config, |address| inherited.bind(address))?;
    let admin_listener = inherited.bind(config.admin.address)?;
    // Nobody would ever accept what comes to those that are left.
    drop(inherited);
    let handover = handover(role, &listeners, &admin_listener)?;
    let admin_address = admin_listener.local_addr()?;

    let connectors = Arc::new(Connectors::default());
    connectors.begin(&config);
    // Before the process that runs gives up its place to this one.
    let fleet = stores::open_fleet(&config, &metrics).await?;
    if role == ServeRole::TakesOver {
        handover::wait_for_predecessor(grace)?;
    }
    let mut stores = Stores::open(&config, &metrics, role, fleet).await?;
    let (ledger, requests) = (Arc::clone(&stores.ledger), Arc::clone(&stores.requests));
    let admin_token = admin_token::configured_or_made(&config)?;
    let urls = listeners.iter().map(Bound::url).collect();
    let handle = Arc::new(ConfigHandle::new(config, sources, overrides));
    let readiness = Arc::new(Readiness::default());
    let (stop, stopped) = watch::channel(false);
    let outbound = Outbound::new(&metrics, Arc::clone(connectors.dialer()));
    let (credentials, connecting) = (Arc::clone(&outbound.credentials), Arc::clone(&connectors));
    let tasks = start_tasks(&handle, &ledger, &outbound, &metrics, &requests)?;
    let passwords = Passwords::default();
    let parts =
        parts(&handle, &stores, &metrics, (connectors, outbound), &tasks, &passwords, shares)?;
    let (balancer, deadline) = (Arc::clone(&parts.balancer), Arc::clone(&parts.deadline));
    let open = Arc::clone(&parts.open);
    let listening = listen::start(&parts, listeners, &stopped)?;
    let state = AdminState {
        ledger: Arc::clone(&ledger),
        tasks,
        metrics: Arc::clone(&metrics),
        requests: Arc::clone(&requests),
        config: Arc::clone(&handle),
        balancer,
        credentials,
        readiness: Arc::clone(&readiness),
        token: admin_token.clone(),
        passwords,
        guesses: Arc::default(),
    };
    let watching = watch(&handle, &metrics, &state.balancer, connecting);
    let app = admin::app(state).context("cannot prepare the operators' console")?;
    let tls = listen::admin_tls(&handle, &metrics, &stopped)?;
    let has_tls = tls.is_some();
    let admin = tokio::spawn(admin::serve(admin_listener, app, shares.admin, tls));
    metrics.config_loaded();
    readiness.set_ready();
    let admin_url = listen::url(if has_tls { "https" } else { "http" }, admin_address);
    let running =
        RunningGateway { ledger: Arc::clone(&ledger), admin_token, listeners: urls, admin_url };
    ready(&running)?;
    supervisor::ready();

    let mut drain = Drain { readiness, stop, listening, open, deadline, delay, grace, handover };
    let successor = drain.run_until_signal(&mut signals, &handle, &metrics).await;
    drain.stop.send_replace(true);
    drain.listening.iter().for_each(tokio::task::JoinHandle::abort);
    admin.abort();
    watching.iter().chain([&watchdog]).for_each(tokio::task::JoinHandle::abort);
    stores.leave().await;
    Ok((stores, successor))
}

/// Start the periodic jobs: health checks, reloads, gauges, and release of memory.
fn watch(
    config: &Arc<ConfigHandle>,
    metrics: &Arc<Metrics>,
    balancer: &Arc<Balancer>,
    connectors: Arc<Connectors>,
) -> [tokio::task::JoinHandle<()>; 4] {
    let limits = Arc::clone(config);
    [
        tokio::spawn(memory::give_back(move || limits.load().limits.body_memory_bytes_max)),
        tokio::spawn(check_upstreams(
            Arc::clone(config),
            Arc::clone(balancer),
            connectors,
            Arc::clone(metrics),
        )),
        tokio::spawn(reload::watch(Arc::clone(config), Arc::clone(metrics))),
        tokio::spawn(Arc::clone(metrics).watch_recent()),
    ]
}

/// State for the next process.
fn handover(
    role: ServeRole,
    listeners: &[Bound],
    admin: &TcpListener,
) -> anyhow::Result<Option<Arc<Handover>>> {
    if role == ServeRole::Demonstrates {
        return Ok(None);
    }
    let sockets = listeners.iter().map(|bound| &bound.socket).chain([admin]);
    let sockets = sockets.map(TcpListener::try_clone).collect::<std::io::Result<_>>()?;
    Ok(Some(Arc::new(Handover::prepare(sockets)?)))
}

/// Components of the gateway.
fn parts(
    config: &Arc<ConfigHandle>,
    stores: &Stores,
    metrics: &Arc<Metrics>,
    (connectors, outbound): (Arc<Connectors>, Outbound),
    tasks: &Arc<Tasks>,
    passwords: &Passwords,
    descriptors: Descriptors,
) -> anyhow::Result<GatewayParts> {
    let mut parts = GatewayParts {
        config: Arc::clone(config),
        ledger: Arc::clone(&stores.ledger),
        metrics: Arc::clone(metrics),
        requests: Arc::clone(&stores.requests),
        connectors,
        outbound,
        tasks: Arc::clone(tasks),
        balancer: Balancer::new(&config.load()),
        limits: Arc::clone(&stores.limits),
        deadline: Arc::default(),
        hosted: Vec::new(),
        loopback: LoopbackClient::default(),
        descriptors,
        open: Arc::default(),
    };
    parts.hosted = services::hosted(&parts, passwords)?;
    Ok(parts)
}

fn start_tasks(
    config: &Arc<ConfigHandle>,
    ledger: &Arc<Ledger>,
    outbound: &Outbound,
    metrics: &Arc<Metrics>,
    requests: &Arc<RequestLog>,
) -> anyhow::Result<Arc<Tasks>> {
    let data_dir = config.load().store.data_dir.clone();
    let (ledger, config) = (Arc::clone(ledger), Arc::clone(config));
    let (metrics, requests) = (Arc::clone(metrics), Arc::clone(requests));
    Tasks::start(ledger, config, outbound.clone(), metrics, requests, &data_dir)
        .context("cannot go on with the tasks of the ledger")
}
