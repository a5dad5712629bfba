//! The machine of the figures: a figure without its machine says nothing.

use std::fmt;

use tollgate_types::clock::UnixMs;

/// The machine and the command.
pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) cpu: String,
    pub(crate) kernel: String,
    pub(crate) command: String,
    /// Day of the figures, `2026-01-31`.
    pub(crate) date: String,
    /// Processes that wanted a core in the minute before: with more than a few tenths, the figures are also
    /// those of something else.
    pub(crate) load: String,
}

impl Machine {
    /// `bench` is the benchmark's name.
    pub(crate) fn here(bench: &str) -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let cpu = read("/proc/cpuinfo");
        let cpu = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
        let arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
        // Files are named without their directories, which say nothing to a reader elsewhere.
        let arguments = arguments.map(|argument| match argument.rsplit_once('/') {
            Some((path, file)) => match path.rsplit_once('=') {
                Some((option, _)) => format!("{option}={file}"),
                None => file.to_owned(),
            },
            None => argument,
        });
        let arguments: Vec<String> = arguments.collect();
        let separator = if arguments.is_empty() { "" } else { " -- " };
        Self {
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            cpu: cpu.unwrap_or("unknown").to_owned(),
            date: UnixMs::now().to_rfc3339().split('T').next().unwrap_or_default().to_owned(),
            load: read("/proc/loadavg").split(' ').next().unwrap_or_default().to_owned(),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            command: format!("cargo bench --bench {bench}{separator}{}", arguments.join(" ")),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cores, cpu, kernel, command, date, load } = self;
        writeln!(f, "{command}")?;
        if cfg!(debug_assertions) {
            writeln!(f, "BUILT WITHOUT OPTIMIZATION: these figures say nothing")?;
        }
        write!(
            f,
            "{cores} × {cpu}, Linux {kernel}, {date}, load before {load}; everything on loopback"
        )
    }
}
