//! The watch on the configuration's files: what changes on disk is put in force by itself.
//!
//! Directories are watched rather than files: editors and Kubernetes replace a file, or a link on
//! the way to it, and a watch on the file would go on looking at the old one. What a notification
//! means is not looked into. It only says when to compare what the files hold with what was tried
//! last, and a clock says so too, for file systems that notify nobody.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;

use super::apply_if_changed;
use tollgate_config::ConfigHandle;
use tollgate_telemetry::metrics::Metrics;

/// Time without changes before the files are read: a program that writes a file in pieces pauses for less,
/// and a person does not see the delay.
const QUIET: Duration = Duration::from_millis(300);
/// Longest wait for that. A directory with a busy log file in it is never quiet.
const SETTLE_MAX: Duration = Duration::from_secs(3);
/// Interval of comparing the files without a notification. Reading them takes a millisecond.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Reloads the files whenever they change, while it is polled. With `reload: { watch: false }`, changes wait
/// for a request.
pub async fn watch(config: Arc<ConfigHandle>, metrics: Arc<Metrics>) {
    let directories = config.directories();
    if directories.is_empty() {
        return;
    }
    let changed = Arc::new(Notify::new());
    let _watcher = start(&directories, &changed);
    loop {
        // Whichever comes first: a poll that finds nothing new costs two reads.
        drop(tokio::time::timeout(POLL_INTERVAL, changed.notified()).await);
        if !config.load().reload.watch || !has_changed(&config).await {
            continue;
        }
        settle(&config, &changed).await;
        apply_if_changed(&config, &metrics).await;
    }
}

/// Watches the directories; those that cannot be watched are polled alone.
fn start(directories: &[PathBuf], changed: &Arc<Notify>) -> Option<RecommendedWatcher> {
    let wake = Arc::clone(changed);
    let on_event = move |event: notify::Result<notify::Event>| {
        // Reading the files is an event as well, and would be one without end.
        let only_read = event.is_ok_and(|event| match event.kind {
            EventKind::Access(kind) => kind != AccessKind::Close(AccessMode::Write),
            _ => false,
        });
        if !only_read {
            wake.notify_one();
        }
    };
    let polled = |error: &notify::Error| {
        let seconds = POLL_INTERVAL.as_secs();
        log::warn!("the configuration's files are looked at every {seconds} s: {error}");
    };
    let mut watcher = match notify::recommended_watcher(on_event) {
        Ok(watcher) => watcher,
        Err(error) => {
            polled(&error);
            return None;
        }
    };
    for directory in directories {
        if let Err(error) = watcher.watch(directory, RecursiveMode::NonRecursive) {
            polled(&error);
        }
    }
    Some(watcher)
}

async fn has_changed(config: &Arc<ConfigHandle>) -> bool {
    let config = Arc::clone(config);
    super::off_the_runtime(move || config.has_changed()).await
}

/// Waits until the files hold still: no notification and the same content for [`QUIET`].
async fn settle(config: &Arc<ConfigHandle>, changed: &Notify) {
    let began = Instant::now();
    let content = || {
        let config = Arc::clone(config);
        super::off_the_runtime(move || config.content())
    };
    let mut seen = content().await;
    while began.elapsed() < SETTLE_MAX {
        let was_notified = tokio::time::timeout(QUIET, changed.notified()).await.is_ok();
        let now = content().await;
        if !was_notified && now == seen {
            return;
        }
        seen = now;
    }
}
