//! The journal over HTTP: all of it for other programs, and whether it is in order.

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::AdminState;
use super::accounts::BalanceView;
use super::error::Answer;
use super::request::Params;
use super::route::{Operation, Output};
use crate::ledger::{AccountId, ExportFormat, Report, Scan, Seq};
use crate::money::Nanousd;

/// Bytes that are sent together.
const CHUNK_BYTES: usize = 64 * 1024;
/// Chunks that wait for a slow reader. Behind them the reading of the journal waits.
const CHUNKS_MAX: usize = 4;

/// What to export.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    /// The first record; the journal's first when it is left out.
    #[schemars(range(max = Seq::MAX))]
    pub(super) from_seq: Option<Seq>,
    /// `jsonl` when it is left out.
    pub(super) format: Option<ExportFormat>,
    /// Only the records of this account.
    pub(super) account: Option<AccountId>,
}

/// Records, as they are read.
pub(super) struct Exported {
    format: ExportFormat,
    chunks: mpsc::Receiver<std::io::Result<Bytes>>,
}

impl IntoResponse for Exported {
    fn into_response(self) -> Response {
        let body = Body::from_stream(ReceiverStream::new(self.chunks));
        ([(header::CONTENT_TYPE, self.format.media_type())], body).into_response()
    }
}

impl Output for Exported {
    fn describe(operation: &mut Operation<'_>) {
        let lines = json!({"type": "string", "description": "A `LedgerRecord` a line."});
        let rows =
            json!({"type": "string", "description": "A line of names, then a row a record."});
        for (format, schema) in [(ExportFormat::Jsonl, lines), (ExportFormat::Csv, rows)] {
            operation.reply_as(StatusCode::OK, "The records.", format.media_type(), &schema);
        }
        operation.name::<crate::ledger::Exported<'_>>();
        operation.refusal(StatusCode::TOO_MANY_REQUESTS, "As many read the journal as may.");
    }
}

/// `GET /admin/v1/ledger/export`: the records that are on disk when it is asked for. It breaks off
/// where the journal cannot be read.
pub(super) async fn export(
    State(state): State<AdminState>,
    Params(wanted): Params<Wanted>,
) -> Answer<Exported> {
    let format = wanted.format.unwrap_or_default();
    let scan = state.ledger.scan(wanted.from_seq.unwrap_or_default()).await?;
    let (sender, chunks) = mpsc::channel(CHUNKS_MAX);
    let account = wanted.account;
    tokio::task::spawn_blocking(move || send(scan, account, format, &sender));
    Ok(Exported { format, chunks })
}

/// Sends until the journal is over, or nobody listens.
fn send(
    scan: Scan,
    account: Option<AccountId>,
    format: ExportFormat,
    sender: &mpsc::Sender<std::io::Result<Bytes>>,
) {
    let mut chunk = format.head();
    for found in scan {
        match found {
            Ok((_, record)) if account.is_some_and(|account| record.account() != account) => {}
            Ok((seq, record)) => chunk.extend(format.line(seq, &record)),
            Err(error) => {
                log::error!("an export broke off: {error}");
                sender.blocking_send(Err(std::io::Error::other(error.to_string()))).ok();
                return;
            }
        }
        if chunk.len() >= CHUNK_BYTES {
            let full = std::mem::replace(&mut chunk, Vec::with_capacity(2 * CHUNK_BYTES));
            if sender.blocking_send(Ok(full.into())).is_err() {
                return;
            }
        } else if sender.is_closed() {
            return;
        }
    }
    // Who does not listen any more needs no end.
    sender.blocking_send(Ok(chunk.into())).ok();
}

/// Whether the journal is in order.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "JournalReport")]
pub(super) struct Verified {
    /// Whether nothing is wrong.
    pub(super) ok: bool,
    /// Files.
    pub(super) segments: usize,
    /// Group commits.
    pub(super) frames: u64,
    /// Records, and so the place of the last one that was checked.
    pub(super) records: u64,
    /// The hash chain over all of it. Noted elsewhere, it proves later that nothing was changed.
    pub(super) chain: String,
    /// The hash of the state that it gives.
    pub(super) state_hash: String,
    pub(super) accounts: usize,
    pub(super) open_holds: usize,
    /// All accounts together.
    pub(super) total: BalanceView,
    /// What calls cost beyond what their accounts could pay.
    pub(super) written_off: Nanousd,
    /// What is wrong.
    pub(super) violations: Vec<String>,
}

impl From<Report> for Verified {
    fn from(report: Report) -> Self {
        Self {
            ok: report.violations.is_empty(),
            segments: report.segments,
            frames: report.frames,
            records: report.records,
            chain: report.chain,
            state_hash: report.state_hash,
            accounts: report.accounts.len(),
            open_holds: report.open_holds,
            total: report.total.into(),
            written_off: report.written_off,
            violations: report.violations,
        }
    }
}

/// `POST /admin/v1/ledger/verify`: checks the journal up to the last record on disk.
pub(super) async fn verify(State(state): State<AdminState>) -> Answer<Json<Verified>> {
    let report = state.ledger.check_journal().await?;
    for violation in &report.violations {
        log::error!("the journal is not in order: {violation}");
    }
    Ok(Json(report.into()))
}
