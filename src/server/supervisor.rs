//! Notifications to systemd (`Type=notify` and `Type=notify-reload`). Without a supervisor that asks for
//! them, nothing is sent.

use std::time::Duration;

use sd_notify::NotifyState;

/// Notify readiness, also at the end of a reload.
pub(super) fn ready() {
    tell(&[NotifyState::Ready]);
}

/// Notify a reload. Systemd compares the time with that of its request.
pub(super) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => log::warn!("the supervisor was not told of a reload: {error}"),
    }
}

/// Notify the shutdown.
pub(super) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Notify a new main process, which reports its readiness itself.
pub(super) fn handed_over(process_id: u32) {
    tell(&[NotifyState::MainPid(process_id)]);
}

/// Feed the watchdog twice per interval, if configured. Runs on the threads that serve customers, so
/// that a missing notification means that these hang.
pub(super) async fn feed_the_watchdog() {
    let Some(interval) = sd_notify::watchdog_enabled() else { return };
    // A timer of zero would be a loop without a pause.
    let pause = (interval / 2).max(Duration::from_millis(1));
    loop {
        tell(&[NotifyState::Watchdog]);
        tokio::time::sleep(pause).await;
    }
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        log::warn!("the supervisor was not told of {states:?}: {error}");
    }
}
