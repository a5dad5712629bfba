//! MiniMax's `base_resp`, which says beside an answer, or in its place and with a status of success,
//! whether the request was served.
//!
//! Source: <https://platform.minimax.io/docs/api-reference/errorcode>.

use serde::Deserialize;

#[derive(Deserialize)]
struct WireBaseResp {
    #[serde(default)]
    status_code: i64,
}

/// True if a `base_resp` has a code other than success. An unreadable one counts as success.
pub(super) fn has_failed(base_resp: &[u8]) -> bool {
    // Most answers have none.
    if base_resp.is_empty() {
        return false;
    }
    let read: Option<WireBaseResp> = serde_json::from_slice(base_resp).ok();
    read.is_some_and(|base_resp| base_resp.status_code != 0)
}
