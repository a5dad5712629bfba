//! A child process and what the kernel knows about it.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::Value;

/// The unit of CPU times in `/proc`: `USER_HZ` is 100 on every platform that Linux has today.
const TICK: Duration = Duration::from_millis(10);
/// Time for a process to end by itself.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// A process that was started here, and is ended at the latest when this is dropped.
pub(crate) struct Process {
    child: Child,
    /// The JSON line that it printed when it was ready.
    pub(crate) ready: Value,
    /// Time of the start.
    pub(crate) started: Instant,
}

/// A command that runs `own` below a tool, or `own` itself where `tool` has no words.
pub(crate) fn below(own: Command, tool: &[&str]) -> Command {
    let Some((name, arguments)) = tool.split_first() else { return own };
    let mut command = Command::new(name);
    command.args(arguments).arg(own.get_program()).args(own.get_args());
    command
}

impl Process {
    /// Starts a command that does not say when it is ready.
    pub(crate) fn spawn(command: &mut Command) -> anyhow::Result<Self> {
        let started = Instant::now();
        let child = command.stdin(Stdio::null()).spawn();
        let child = child.with_context(|| format!("cannot start {command:?}"))?;
        Ok(Self { child, ready: Value::Null, started })
    }

    /// Starts a command and waits for its first line.
    pub(crate) fn start(command: &mut Command) -> anyhow::Result<Self> {
        let mut process = Self::spawn(command.stdout(Stdio::piped()))?;
        let mut line = String::new();
        let stdout = process.child.stdout.take().context("no standard output")?;
        BufReader::new(stdout).read_line(&mut line)?;
        process.ready = serde_json::from_str(&line)
            .with_context(|| format!("{command:?} printed no JSON line but {line:?}"))?;
        Ok(process)
    }

    /// A text of the line that it printed when it was ready.
    pub(crate) fn ready_field(&self, field: &str) -> anyhow::Result<&str> {
        self.ready[field].as_str().with_context(|| format!("no {field} in {}", self.ready))
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// User and system time of all its threads so far.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        let stat = self.proc("stat")?;
        // The name, second, is in parentheses and may hold anything. utime and stime are fields 14
        // and 15 of proc_pid_stat(5), so 11 and 12 of what follows the name.
        let (_, after) = stat.rsplit_once(')').context("no name in stat")?;
        let mut fields = after.split_whitespace().skip(11);
        let mut ticks = || fields.next().and_then(|field| field.parse::<u32>().ok());
        let (user, system) = (ticks(), ticks());
        Ok(TICK * (user.context("no utime")? + system.context("no stime")?))
    }

    /// Bytes that it has given to disks so far.
    pub(crate) fn written_bytes(&self) -> anyhow::Result<u64> {
        let io = self.proc("io")?;
        let written = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
        Ok(written.context("no write_bytes in io")?.trim().parse()?)
    }

    /// Resident memory now, in MB.
    pub(crate) fn rss_mb(&self) -> anyhow::Result<f64> {
        self.status_mb("VmRSS:")
    }

    /// The most resident memory since [`Self::forget_peak`], in MB.
    pub(crate) fn peak_rss_mb(&self) -> anyhow::Result<f64> {
        self.status_mb("VmHWM:")
    }

    /// Starts a new measurement of the peak.
    pub(crate) fn forget_peak(&self) -> anyhow::Result<()> {
        // 5 resets the peak: proc_pid_clear_refs(5).
        Ok(std::fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5")?)
    }

    /// Asks it to end with SIGTERM, and waits for that.
    pub(crate) fn stop(mut self) -> anyhow::Result<()> {
        self.signal("TERM")?;
        let id = self.child.id();
        let begin = Instant::now();
        while self.child.try_wait()?.is_none() {
            anyhow::ensure!(begin.elapsed() < END_TIMEOUT, "process {id} does not end");
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Sends it a signal by its name without `SIG`; `0` sends none.
    pub(crate) fn signal(&self, name: &str) -> anyhow::Result<()> {
        let arguments = ["-s".to_owned(), name.to_owned(), self.child.id().to_string()];
        let sent = Command::new("kill").args(arguments).status().context("cannot run kill")?;
        anyhow::ensure!(sent.success(), "no signal {name} to process {}", self.child.id());
        Ok(())
    }

    fn status_mb(&self, field: &str) -> anyhow::Result<f64> {
        let status = self.proc("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u32>().ok());
        Ok(f64::from(kib.with_context(|| format!("no {field} in status"))?) * 1024.0 / 1e6)
    }

    fn proc(&self, file: &str) -> anyhow::Result<String> {
        let path = format!("/proc/{}/{file}", self.child.id());
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only for a process that has ended and was waited for.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
