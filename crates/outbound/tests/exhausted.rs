//! Connections from a process that has no descriptor, or from a machine that has no port left. In a binary
//! of its own: what it lowers holds for the whole process.

use std::io;
use std::net::IpAddr;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use http::{HeaderMap, Method};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tollgate_options::network::{ClientTls, Destination, Proxy};
use tollgate_outbound::{
    AllowedAddresses, AnswerTimes, DialError, DialFault, DialedConnection, Dialer, HttpClient,
    LocalResource, OutboundBody, ProxyChoice, Reach, Resolve,
};

/// One test at a time: what the first one lowers would keep the second from starting a process.
static IN_TURN: Mutex<()> = Mutex::new(());
/// The port that the machine of [`no_port_is_left`] listens at.
const PORT: u16 = 40_000;
/// Set in the process that has two local ports.
const WITHOUT_PORTS: &str = "TOLLGATE_TEST_WITHOUT_PORTS";

/// Every name has these addresses.
struct FixedAddresses(Vec<IpAddr>);

impl Resolve for FixedAddresses {
    fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        let addresses = self.0.clone();
        Box::pin(async move { Ok(addresses) })
    }
}

fn fixed(addresses: &[&str]) -> Dialer {
    let addresses = addresses.iter().map(|text| text.parse().expect("an address")).collect();
    Dialer::with_resolver(Arc::new(FixedAddresses(addresses)))
}

fn to(host: &str, port: u16) -> Destination {
    Destination { host: host.to_owned(), port, tls: None, proxy: None }
}

async fn dial(dialer: &Dialer, to: &Destination) -> Result<DialedConnection, DialError> {
    dialer.dial(to, AllowedAddresses::All, Duration::from_secs(2)).await
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().expect("a runtime")
}

#[test]
fn without_a_descriptor_nobody_else_is_at_fault() {
    let _turn = IN_TURN.lock().expect("no test has failed");
    runtime().block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        // No address of a name is learned to be bad: the first of them serves afterwards.
        let (named, system) = (fixed(&["127.0.0.1", "127.0.0.2", "127.0.0.3"]), Dialer::default());
        let (plain, client) = (to("pods.test", port), client());
        let proxy = |text: &str| Some(Arc::new(Proxy::parse(text).expect("a proxy")));
        let proxied = [
            format!("http://127.0.0.1:{port}"),
            format!("http://proxy.test:{port}"),
            format!("socks5h://proxy.test:{port}"),
        ];
        let whole = getrlimit(Resource::Nofile);
        let limit = |current| {
            setrlimit(Resource::Nofile, Rlimit { current, maximum: whole.maximum })
                .expect("a limit");
        };
        limit(Some(0));
        let began = Instant::now();
        let mut failed = vec![dial(&named, &plain).await.err()];
        for proxy in proxied.each_ref().map(|text| proxy(text)) {
            failed.push(dial(&named, &Destination { proxy, ..plain.clone() }).await.err());
        }
        // The system's resolver cannot open a file or a socket, and says that there is no such name.
        failed.push(dial(&system, &to("localhost", port)).await.err());
        failed.push(system.addresses_of(&to("no-such-host.invalid", port)).await.err());
        // The machine's root certificates cannot be read.
        let tls = Some(ClientTls::default());
        failed.push(dial(&named, &Destination { tls, ..plain.clone() }).await.err());
        let called = get(&client, port).await;
        let took = began.elapsed();
        limit(whole.current);
        let expected = DialFault::Exhausted(LocalResource::Descriptors);
        for (index, failed) in failed.into_iter().enumerate() {
            let failed = failed.unwrap_or_else(|| panic!("call {index} came about"));
            assert_eq!(failed.fault, expected, "call {index}: {failed}");
            assert!(!failed.fault.is_of_proxy(), "call {index}: {failed}");
        }
        let called = called.expect_err("no connection");
        assert_eq!(called.exhausted(), Some(LocalResource::Descriptors), "{called}");
        assert!(took < Duration::from_secs(1), "nobody waits for it: {took:?}");

        let made = dial(&named, &plain).await.expect("a connection at once");
        let again = dial(&named, &plain).await.expect("a connection at once");
        assert_eq!(made.address().ip().to_string(), "127.0.0.1");
        assert_eq!(again.address().ip().to_string(), "127.0.0.1", "the only one that serves");
        let unknown = system.addresses_of(&to("no-such-host.invalid", port)).await;
        assert_eq!(unknown.expect_err("no such name").fault, DialFault::NameNotFound);
    });
}

fn client() -> HttpClient {
    let reach = Reach {
        proxy: ProxyChoice::Fixed(None),
        tls: ClientTls::default(),
        allowed: AllowedAddresses::All,
        connect_timeout: Duration::from_secs(2),
    };
    HttpClient::new(Arc::default(), reach)
}

async fn get(client: &HttpClient, port: u16) -> Result<(), tollgate_outbound::OutboundError> {
    let url = format!("http://127.0.0.1:{port}/");
    let time = Duration::from_secs(2);
    let times = AnswerTimes { head: time, piece: time };
    client.send(Method::GET, &url, HeaderMap::new(), OutboundBody::EMPTY, times).await.map(|_| ())
}

/// Runs in a network of its own with two local ports, where the machine allows that.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test tells its own child what it is")]
fn no_port_is_left() {
    if std::env::var(WITHOUT_PORTS).is_ok() {
        return runtime().block_on(without_ports());
    }
    let _turn = IN_TURN.lock().expect("no test has failed");
    let make = "ip link set lo up && echo 50000 50001 > /proc/sys/net/ipv4/ip_local_port_range";
    let unshared = |command: &str| {
        let mut all = Command::new("unshare");
        all.args(["-rn", "sh", "-c", command]);
        all
    };
    if !unshared(make).output().is_ok_and(|made| made.status.success()) {
        return println!("this machine gives nobody a network of their own");
    }
    let this = std::env::current_exe().expect("this binary");
    let run = format!("{make} && exec '{}' --exact no_port_is_left", this.display());
    let output = unshared(&run).env(WITHOUT_PORTS, "1").output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

async fn without_ports() {
    let here = TcpListener::bind(("127.0.0.1", PORT)).await.expect("a port");
    let there = TcpListener::bind(("127.0.0.2", PORT)).await.expect("a port");
    let (one, both) = (fixed(&["127.0.0.1"]), fixed(&["127.0.0.1", "127.0.0.2"]));
    let place = to("pods.test", PORT);
    let mut kept = Vec::new();
    for _ in 0..2 {
        kept.push(dial(&one, &place).await.expect("a port"));
    }
    let failed = dial(&one, &place).await.expect_err("no port");
    assert_eq!(failed.fault, DialFault::Exhausted(LocalResource::Ports), "{failed}");
    // Each address has ports of its own.
    let made = dial(&both, &place).await.expect("another address");
    assert_eq!(made.address().ip().to_string(), "127.0.0.2");
    // An address that nothing leads to has no port to be short of.
    let away = dial(&one, &to("2001:db8::1", PORT)).await.expect_err("no way there");
    assert_eq!(away.fault, DialFault::NoRoute, "{away}");
    drop((kept, here, there));
}
