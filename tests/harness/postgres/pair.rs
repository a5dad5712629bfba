//! A primary and a standby that has every transaction before its client hears of it.

use std::time::{Duration, Instant};

use super::programs::program;
use super::{Postgres, ROLE, Settings, Stop, TIMEOUT};

/// Two servers with synchronous streaming replication.
pub(crate) struct ReplicatedPair {
    /// The one that takes writes, until it is killed.
    pub(crate) primary: Postgres,
    /// The one that follows, until it is promoted.
    pub(crate) standby: Postgres,
}

impl ReplicatedPair {
    /// Both, with the standby in step.
    pub(crate) fn start() -> Self {
        let settings = Settings::default();
        let primary = Postgres::start_with(&settings);
        let mut standby = Postgres::place();
        let mut copy = program("pg_basebackup");
        copy.args(["-h", "127.0.0.1", "-U", "postgres", "-X", "stream", "-R"]);
        copy.args(["--checkpoint=fast", "--no-sync", "-p", &primary.port.to_string(), "-D"]);
        let made = copy.arg(standby.data()).output().expect("pg_basebackup runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        standby.configure(&settings);
        standby.start_again();
        primary.set("synchronous_standby_names", "*");
        let pair = Self { primary, standby };
        pair.await_step();
        pair
    }

    /// Waits until the primary waits for the standby.
    fn await_step(&self) {
        let deadline = Instant::now() + TIMEOUT;
        let state = "SELECT string_agg(sync_state, ',') FROM pg_stat_replication";
        while self.primary.sql("postgres", state) != "sync" {
            assert!(
                Instant::now() < deadline,
                "the standby does not follow\n{}",
                self.standby.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Where the database `tollgate` is: on whichever of the two takes writes.
    pub(crate) fn url(&self) -> String {
        let (primary, standby) = (self.primary.port, self.standby.port);
        format!("postgres://{ROLE}@127.0.0.1:{primary},127.0.0.1:{standby}/{ROLE}")
    }

    /// `kill -9` of the primary, in the middle of whatever it does.
    pub(crate) fn kill_primary(&self) {
        self.primary.stop(Stop::Kill);
    }

    /// Makes the standby the primary. The other one must be gone, and must not come back.
    pub(crate) fn promote(&self) {
        assert_eq!(self.standby.sql("postgres", "SELECT pg_promote(true, 30)"), "t");
    }
}
