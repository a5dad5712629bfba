//! PostgreSQL's programs, run as somebody whom the server does not refuse.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// A program of PostgreSQL's. The server refuses to run as root: it runs as somebody else then.
pub(super) fn program(name: &str) -> Command {
    program_in(name, &[])
}

/// The same with more in its environment, which who starts it as somebody else does not have.
pub(super) fn program_in(name: &str, environment: &[(&str, String)]) -> Command {
    let path = directory().join(name);
    let Some(user) = unprivileged() else {
        let mut command = Command::new(path);
        command.envs(environment.iter().cloned());
        return command;
    };
    let mut command = Command::new("setpriv");
    command.arg(format!("--reuid={}", user.id)).arg(format!("--regid={}", user.group));
    command.args(["--clear-groups", "--", "env"]);
    command.args(environment.iter().map(|(variable, value)| format!("{variable}={value}")));
    command.arg(path);
    // Nobody else may look into the directory where a test is run.
    command.current_dir("/tmp");
    command
}

/// Gives a file or a directory to whom the server runs as.
pub(super) fn own(path: &Path) {
    if let Some(user) = unprivileged() {
        std::os::unix::fs::chown(path, Some(user.id), Some(user.group)).expect("given away");
    }
}

/// Sends a signal to processes; one that has ended is passed over.
pub(super) fn signal(name: &str, pids: &[u32]) {
    let mut kill = Command::new("sh");
    kill.args(["-c", &format!("kill -{name} \"$@\" 2>/dev/null; true"), "kill"]);
    kill.args(pids.iter().map(u32::to_string));
    assert!(kill.status().expect("sh runs").success(), "kill -{name}");
}

/// A process and its children.
pub(super) fn tree_of(pid: u32) -> Vec<u32> {
    let children = |pid: u32| {
        fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default()
    };
    let parse = |text: String| text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
    let mut all: Vec<u32> = parse(children(pid));
    all.push(pid);
    all
}

/// Ends the server and removes its directory when this process is gone, however it went: it sees its
/// standard input end.
pub(super) struct Keeper(Option<Child>);

impl Keeper {
    pub(super) fn of(directory: &Path) -> Self {
        let script = r#"cat > /dev/null
            pid=$(head -n 1 "$0/data/postmaster.pid" 2>/dev/null)
            [ -z "$pid" ] || kill -QUIT "$pid" 2>/dev/null
            tries=0
            while [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null && [ $tries -lt 100 ]; do
                sleep 0.05; tries=$((tries + 1))
            done
            rm -rf "$0""#;
        let mut keeper = Command::new("sh");
        keeper.args(["-c", script]).arg(directory).stdin(Stdio::piped());
        // What interrupts the tests from the terminal does not interrupt the cleaning.
        Self(Some(keeper.process_group(0).spawn().expect("sh runs")))
    }

    /// Cleans up now, when the server is gone.
    pub(super) fn end(&mut self) {
        if let Some(mut keeper) = self.0.take() {
            drop(keeper.stdin.take());
            drop(keeper.wait());
        }
    }
}

struct User {
    id: u32,
    group: u32,
}

/// Whom the server runs as when the tests are root's.
fn unprivileged() -> Option<&'static User> {
    static USER: OnceLock<Option<User>> = OnceLock::new();
    let found = USER.get_or_init(|| {
        let id = Command::new("id").arg("-u").output().expect("id runs").stdout;
        if id.trim_ascii() != b"0" {
            return None;
        }
        let users = fs::read_to_string("/etc/passwd").expect("users");
        let named = |name: &str| {
            let line = users.lines().find(|line| line.starts_with(&format!("{name}:")))?;
            let fields = line.split(':').collect::<Vec<_>>();
            Some(User { id: fields[2].parse().ok()?, group: fields[3].parse().ok()? })
        };
        Some(named("postgres").or_else(|| named("nobody")).expect("a user beside root"))
    });
    found.as_ref()
}

/// Where the programs are: on `PATH`, or where Debian puts those of each version.
#[expect(clippy::disallowed_methods, reason = "a test looks for what the system has")]
fn directory() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
        let versions = versions.filter_map(|entry| Some(entry.ok()?.path().join("bin")));
        let mut versions = versions.collect::<Vec<_>>();
        versions.sort();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path).chain(versions.into_iter().rev());
        let mut whole = found.filter(|directory| {
            // A link on PATH leads to where all of them are.
            ["initdb", "postgres"].iter().all(|name| directory.join(name).is_file())
        });
        let directory = whole.next().unwrap_or_else(|| {
            panic!("PostgreSQL is missing; install what the tests need with: bash .ci/install")
        });
        let server = fs::canonicalize(directory.join("postgres")).expect("a path");
        server.parent().expect("a directory").to_owned()
    })
}
