//! What systemd is told of the process, where it has asked for it (`Type=notify` and
//! `Type=notify-reload`). Without a supervisor that asks, nothing is sent.

use std::time::Duration;

use sd_notify::NotifyState;

/// Requests are taken; also the end of a reload.
pub(super) fn ready() {
    tell(&[NotifyState::Ready]);
}

/// The configuration is being read again. Systemd compares the time with that of its request.
pub(super) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => log::warn!("the supervisor was not told of a reload: {error}"),
    }
}

/// The process is about to end.
pub(super) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// From now on another process is the one to watch. It says itself when it is ready.
pub(super) fn handed_over(process_id: u32) {
    tell(&[NotifyState::MainPid(process_id)]);
}

/// Says that the process works, twice in each interval of the watchdog that was asked for. It is
/// said from the threads that serve customers, so silence means that these hang.
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
