//! Real PostgreSQL servers for one test file, and a wire to them that can be cut.
//!
//! Unit tests include this file by its path, so it needs nothing of the others here.

#[path = "postgres/address.rs"]
mod address;
#[path = "postgres/cut.rs"]
mod cut;
#[path = "postgres/pair.rs"]
mod pair;
#[path = "postgres/programs.rs"]
mod programs;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub(crate) use address::free_address;
pub(crate) use cut::Cut;
pub(crate) use pair::ReplicatedPair;
use programs::{Keeper, own, program, program_in, signal, tree_of};

/// Longer than a server takes to start, recover or stop on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The role that gateways connect as; it owns its databases and nothing else.
pub(crate) const ROLE: &str = "tollgate";

/// How a server is to be.
#[derive(Clone, Default)]
pub(crate) struct Settings {
    /// True if it may lose what it has confirmed when the machine loses power: it starts faster.
    pub(crate) unsafe_disk: bool,
    /// The password of the role; none lets everybody in.
    pub(crate) password: Option<String>,
    /// Certificate and key as PEM: connections over TCP must be encrypted then.
    pub(crate) tls: Option<(PathBuf, PathBuf)>,
    /// More of `postgresql.conf`.
    pub(crate) more: Vec<(&'static str, String)>,
}

/// How a server is stopped.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stop {
    /// Transactions are rolled back, clients sent away.
    Fast,
    /// As after a crash, but by its own hand.
    Immediate,
    /// `kill -9` of every process.
    Kill,
}

/// A server that ends with its test, or with the process of its test.
pub(crate) struct Postgres {
    /// Holds `data`, `log` and the administrator's socket.
    directory: PathBuf,
    port: u16,
    server: std::sync::Mutex<Option<Child>>,
    keeper: Keeper,
}

impl Postgres {
    /// A server of its own, for tests that stop it.
    pub(crate) fn start() -> Self {
        Self::start_with(&Settings::default())
    }

    /// The server that tests of one file share; each takes a database of its own.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Postgres> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// A server of its own with settings.
    pub(crate) fn start_with(settings: &Settings) -> Self {
        let mut postgres = Self::place();
        let data = postgres.data();
        let mut initdb = program("initdb");
        initdb.args(["--username=postgres", "--auth=trust", "--no-sync", "--no-instructions"]);
        initdb.args(["--encoding=UTF8", "--locale=C", "--pgdata"]).arg(&data);
        let made = initdb.output().expect("initdb runs");
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        postgres.configure(settings);
        postgres.start_again();
        postgres.sql("postgres", &format!("CREATE ROLE {ROLE} LOGIN"));
        if let Some(password) = &settings.password {
            postgres.sql("postgres", &format!("ALTER ROLE {ROLE} PASSWORD '{password}'"));
        }
        postgres.sql("postgres", &format!("CREATE DATABASE {ROLE} OWNER {ROLE}"));
        postgres
    }

    /// A directory and a port, and nothing in them yet.
    fn place() -> Self {
        let made = tempfile::Builder::new().prefix("tollgate-pg-").tempdir_in("/tmp");
        let directory = made.expect("a directory").keep();
        own(&directory);
        let keeper = Keeper::of(&directory);
        Self { directory, port: free_address().port(), server: std::sync::Mutex::new(None), keeper }
    }

    fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// Writes both of its files anew, and takes its certificate to where it may read it.
    fn configure(&mut self, settings: &Settings) {
        let safe = if settings.unsafe_disk { "off" } else { "on" };
        let mut lines = vec![
            format!("listen_addresses = '127.0.0.1'\nport = {}", self.port),
            format!("unix_socket_directories = '{}'", self.directory.display()),
            format!("fsync = {safe}\nfull_page_writes = {safe}"),
            "shared_buffers = 16MB\nmax_connections = 60\nmax_wal_size = 256MB\njit = off"
                .to_owned(),
            "wal_level = replica\nhot_standby = on\nmax_wal_senders = 4".to_owned(),
            // Deadlocks are made on purpose, and found sooner than in a second.
            "deadlock_timeout = 50ms".to_owned(),
            "log_min_messages = warning\nlog_line_prefix = '%m [%p] %d '".to_owned(),
        ];
        if let Some((certificate, key)) = &settings.tls {
            for (from, to) in [(certificate, "server.crt"), (key, "server.key")] {
                let to = self.data().join(to);
                fs::copy(from, &to).expect("copied");
                fs::set_permissions(&to, std::os::unix::fs::PermissionsExt::from_mode(0o600))
                    .expect("permissions");
                own(&to);
            }
            lines.push("ssl = on".to_owned());
        }
        lines.extend(settings.more.iter().map(|(name, value)| format!("{name} = '{value}'")));
        fs::write(self.data().join("postgresql.conf"), lines.join("\n") + "\n").expect("written");
        let kind = if settings.tls.is_some() { "hostssl" } else { "host" };
        let how = if settings.password.is_some() { "scram-sha-256" } else { "trust" };
        let access = format!(
            "local all all trust\n{kind} all {ROLE} 127.0.0.1/32 {how}\n\
             host replication postgres 127.0.0.1/32 trust\n"
        );
        fs::write(self.data().join("pg_hba.conf"), access).expect("written");
    }

    /// Where the database `tollgate` is.
    pub(crate) fn url(&self) -> String {
        self.url_of(ROLE)
    }

    /// Where a database is.
    pub(crate) fn url_of(&self, database: &str) -> String {
        format!("postgres://{ROLE}@127.0.0.1:{}/{database}", self.port)
    }

    /// The port on 127.0.0.1.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// A new, empty database whose name begins with `name`, and where it is.
    pub(crate) fn database(&self, name: &str) -> (String, String) {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("{name}_{}", MADE.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("CREATE DATABASE {name} OWNER {ROLE}"));
        let url = self.url_of(&name);
        (name, url)
    }

    /// Does statements as the administrator, and gives what they say: a line per row, `|` between
    /// columns.
    pub(crate) fn sql(&self, database: &str, sql: &str) -> String {
        self.try_sql(database, sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// The same, where the server may refuse it.
    ///
    /// # Errors
    /// What psql says.
    pub(crate) fn try_sql(&self, database: &str, sql: &str) -> Result<String, String> {
        let mut psql = program("psql");
        psql.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-d", database, "-c", sql]);
        psql.arg("-h").arg(&self.directory).args(["-p", &self.port.to_string()]);
        let message = psql.output().expect("psql runs");
        let text = |bytes| String::from_utf8_lossy(bytes).trim().to_owned();
        if message.status.success() {
            Ok(text(&message.stdout))
        } else {
            Err(text(&message.stderr))
        }
    }

    /// The server's log.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// Starts it where it was, after [`Postgres::stop`], and waits until it answers.
    pub(crate) fn start_again(&self) {
        self.start_with_environment(&[]);
    }

    /// The same with more in its environment, such as a clock that is wrong.
    pub(crate) fn start_with_environment(&self, environment: &[(&'static str, String)]) {
        let log = fs::File::options().create(true).append(true).open(self.directory.join("log"));
        let log = log.expect("a log");
        let mut postgres = program_in("postgres", environment);
        postgres.arg("-D").arg(self.data()).stdin(Stdio::null());
        postgres.stdout(log.try_clone().expect("a file")).stderr(log);
        let child = postgres.spawn().expect("postgres runs");
        *self.server.lock().expect("the server") = Some(child);
        let deadline = Instant::now() + TIMEOUT;
        while let Err(error) = self.try_sql("postgres", "SELECT 1") {
            let ended = self.server.lock().expect("the server").as_mut().map(Child::try_wait);
            let runs = matches!(ended, Some(Ok(None)));
            assert!(runs && Instant::now() < deadline, "no server: {error}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Stops it and waits until every one of its processes is gone.
    pub(crate) fn stop(&self, how: Stop) {
        let Some(mut server) = self.server.lock().expect("the server").take() else { return };
        let all = tree_of(server.id());
        match how {
            Stop::Fast => signal("INT", &[server.id()]),
            Stop::Immediate => signal("QUIT", &[server.id()]),
            Stop::Kill => signal("KILL", &all),
        }
        server.wait().expect("it ends");
        let deadline = Instant::now() + TIMEOUT;
        while all.iter().any(|pid| Path::new(&format!("/proc/{pid}")).exists()) {
            assert!(Instant::now() < deadline, "a process of the server does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// `kill -9` of every process.
    pub(crate) fn kill(&self) {
        self.stop(Stop::Kill);
    }

    /// Stops the clock of every process, as a machine that hangs.
    pub(crate) fn pause(&self) {
        let server = self.server.lock().expect("the server");
        signal("STOP", &tree_of(server.as_ref().expect("a server").id()));
    }

    /// Lets them go on.
    pub(crate) fn resume(&self) {
        let server = self.server.lock().expect("the server");
        signal("CONT", &tree_of(server.as_ref().expect("a server").id()));
    }

    /// Sends every client of a database away.
    pub(crate) fn send_away(&self, database: &str) {
        self.sql(
            "postgres",
            &format!(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                 WHERE datname = '{database}' AND pid <> pg_backend_pid()"
            ),
        );
    }

    /// True if a database lets anybody in; who is in is sent away when it does not.
    pub(crate) fn accept_connections(&self, database: &str, accept: bool) {
        self.sql("postgres", &format!("ALTER DATABASE {database} ALLOW_CONNECTIONS {accept}"));
        if !accept {
            self.send_away(database);
        }
    }

    /// True if a database refuses writes. Its clients are sent away, since it holds for new ones.
    pub(crate) fn read_only(&self, database: &str, read_only: bool) {
        let sql =
            format!("ALTER DATABASE {database} SET default_transaction_read_only = {read_only}");
        self.sql("postgres", &sql);
        self.send_away(database);
    }

    /// Changes a setting of the running server.
    pub(crate) fn set(&self, name: &str, value: &str) {
        self.sql("postgres", &format!("ALTER SYSTEM SET {name} = '{value}'"));
        self.sql("postgres", "SELECT pg_reload_conf()");
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.stop(Stop::Kill);
        self.keeper.end();
    }
}
