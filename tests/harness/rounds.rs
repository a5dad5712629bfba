//! How long a proof goes on.

/// How many rounds a test plays: `usual`, or as many percent of that as `TOLLGATE_PROOF_PERCENT` says, and
/// at least one.
#[expect(
    clippy::disallowed_methods,
    reason = "a short or a long run is asked for by the environment"
)]
pub(crate) fn rounds(usual: u64) -> u64 {
    let percent = std::env::var("TOLLGATE_PROOF_PERCENT").ok();
    let percent: u64 = percent.map_or(100, |text| text.parse().expect("a number of percent"));
    (usual * percent / 100).max(1)
}
