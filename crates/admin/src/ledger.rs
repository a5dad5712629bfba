//! The journal over HTTP: all of it for other programs, and whether it is in order.

use std::sync::Arc;

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
use super::description::{Operation, Output};
use super::error::ApiResult;
use super::request::{PAGE_DEFAULT, PAGE_MAX, Params, check_limit};
use super::value::Time;
use tollgate_ledger::{
    AccountId, BooksReport, ExportFormat, Exporter, KeyId, ListedLoss, LossSums, RequestId, Scan,
    Seq, SledReading, VerificationReport,
};
use tollgate_money::money::Nanousd;

/// Size of a chunk of an export, in bytes.
const CHUNK_BYTES: usize = 64 * 1024;
/// Chunks that wait for a slow reader. Behind them the reading of the journal waits.
const CHUNKS_MAX: usize = 4;

/// Range and format of an export.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ExportQuery {
    /// First record; default the beginning of the journal.
    #[schemars(range(max = Seq::MAX))]
    pub(super) from_seq: Option<Seq>,
    /// Format, default `jsonl`; `focus` has one row per charge and refund.
    pub(super) format: Option<ExportFormat>,
    /// Records of this account only.
    pub(super) account: Option<AccountId>,
}

/// Records, as they are read.
pub(super) struct ExportBody {
    format: ExportFormat,
    chunks: mpsc::Receiver<std::io::Result<Bytes>>,
}

impl IntoResponse for ExportBody {
    fn into_response(self) -> Response {
        let body = Body::from_stream(ReceiverStream::new(self.chunks));
        ([(header::CONTENT_TYPE, self.format.media_type())], body).into_response()
    }
}

impl Output for ExportBody {
    fn describe(operation: &mut Operation<'_>) {
        let lines = json!({"type": "string", "description": "One `LedgerRecord` per line."});
        let rows =
            json!({"type": "string", "description": "A header line, then one row per record."});
        for (format, schema) in [(ExportFormat::Jsonl, lines), (ExportFormat::Csv, rows)] {
            operation.reply_as(StatusCode::OK, "The records.", format.media_type(), &schema);
        }
        operation.name::<tollgate_ledger::ExportedRecord<'_>>();
        operation.refusal(
            StatusCode::TOO_MANY_REQUESTS,
            "The maximum number of journal readers is reached.",
        );
    }
}

/// `GET /admin/v1/ledger/export`: the records that are on disk when it is asked for. It breaks off
/// where the journal cannot be read.
pub(super) async fn export(
    State(state): State<AdminState>,
    Params(query): Params<ExportQuery>,
) -> ApiResult<ExportBody> {
    let format = query.format.unwrap_or_default();
    let exporter = Exporter::new(format, query.account, query.from_seq.unwrap_or_default());
    let scan = state.ledger.scan(exporter.first()).await?;
    // Bounded: a slow reader stops the scan instead of filling the memory with the journal.
    let (sender, chunks) = mpsc::channel(CHUNKS_MAX);
    // Reading and encoding block; the async threads belong to requests.
    tokio::task::spawn_blocking(move || send(scan, exporter, &sender));
    Ok(ExportBody { format, chunks })
}

/// Sends until the journal is over, or nobody listens.
fn send(scan: Scan, mut exporter: Exporter, sender: &mpsc::Sender<std::io::Result<Bytes>>) {
    let mut chunk = exporter.head();
    for found in scan {
        match found {
            Ok((seq, record)) => chunk.extend(exporter.line(seq, &record)),
            Err(error) => {
                log::error!("an export broke off: {error}");
                // The status 200 has been sent already: only a broken body tells the reader that records are
                // missing.
                sender.blocking_send(Err(std::io::Error::other(error.to_string()))).ok();
                return;
            }
        }
        if chunk.len() >= CHUNK_BYTES {
            // Twice the threshold: the last record goes past it, and the buffer need not grow for it.
            let full = std::mem::replace(&mut chunk, Vec::with_capacity(2 * CHUNK_BYTES));
            if sender.blocking_send(Ok(full.into())).is_err() {
                return;
            }
        // An export of one account may go through millions of records without a full chunk; the reader may
        // have left meanwhile.
        } else if sender.is_closed() {
            return;
        }
    }
    // Who does not listen any more needs no end.
    sender.blocking_send(Ok(chunk.into())).ok();
}

/// Number of losses to list.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LossesQuery {
    /// Maximum number of listed losses; default 100.
    #[schemars(range(min = 1, max = PAGE_MAX))]
    limit: Option<usize>,
}

/// Possible cost of a call to the operator that no customer pays.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Loss")]
struct LossView {
    /// Position in the journal; in a fleet, in the node's journal.
    seq: Seq,
    at: Time,
    /// Cause of a loss, such as `retry`, `connection_lost`, `untold` or `unpriced`.
    cause: String,
    /// Upper bound of the loss.
    amount: Nanousd,
    account_id: AccountId,
    key_id: KeyId,
    model: Arc<str>,
    upstream: String,
    request_id: RequestId,
}

/// Possible costs of calls to the operator that no customer pays.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Losses")]
pub(super) struct LossesView {
    /// Sums of the losses by cause.
    totals: LossSums,
    /// The most recent losses, newest first.
    data: Vec<LossView>,
}

impl From<ListedLoss> for LossView {
    fn from(listed: ListedLoss) -> Self {
        let ListedLoss { seq, lost } = listed;
        Self {
            seq,
            at: lost.at.into(),
            cause: lost.cause.clone(),
            amount: lost.amount,
            account_id: lost.account,
            key_id: lost.key,
            model: Arc::clone(&lost.model),
            upstream: lost.upstream.clone(),
            request_id: lost.request,
        }
    }
}

/// `GET /admin/v1/ledger/losses`
pub(super) async fn losses(
    State(state): State<AdminState>,
    Params(LossesQuery { limit }): Params<LossesQuery>,
) -> ApiResult<Json<LossesView>> {
    let limit = limit.unwrap_or(PAGE_DEFAULT);
    check_limit(limit)?;
    let losses = state.ledger.losses(limit).await?;
    let data = losses.last.into_iter().map(LossView::from).collect();
    Ok(Json(LossesView { totals: losses.sums, data }))
}

/// Result of a check of the ledger.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "JournalReport")]
pub(super) struct JournalReportView {
    /// True if there are no violations.
    pub(super) ok: bool,
    /// Files of the journal that were read.
    pub(super) segments: usize,
    /// Groups of records that were written together.
    pub(super) frames: u64,
    /// Number of checked records, which is also the position of the last one.
    pub(super) records: u64,
    /// Hash chain over all records. Stored elsewhere, it proves later that nothing was changed.
    pub(super) chain: String,
    /// Hash of the state at the last record.
    pub(super) state_hash: String,
    /// Hash of sled's state at `sled.record`; `null` if it was not compared.
    pub(super) sled_hash: Option<String>,
    /// Part of sled that was read while requests went on.
    pub(super) sled: SledReading,
    pub(super) accounts: usize,
    pub(super) open_holds: usize,
    /// The balances of all accounts together.
    pub(super) total: BalanceView,
    /// Cost of calls that was written off, borne by the operator.
    pub(super) written_off: Nanousd,
    /// Possible costs to the operator that no customer pays, by cause.
    pub(super) losses: LossSums,
    /// Violations, a sentence for each.
    pub(super) violations: Vec<String>,
}

impl From<VerificationReport> for JournalReportView {
    fn from(report: VerificationReport) -> Self {
        Self {
            ok: report.violations.is_empty(),
            segments: report.segments,
            frames: report.frames,
            records: report.records,
            chain: report.chain,
            state_hash: report.state_hash,
            sled_hash: report.sled_hash,
            sled: report.sled,
            accounts: report.accounts.len(),
            open_holds: report.open_holds,
            total: BalanceView { credit_used: report.credit_used, ..report.total.into() },
            written_off: report.written_off,
            losses: report.losses,
            violations: report.violations,
        }
    }
}

/// `POST /admin/v1/ledger/trial-balance`: the books up to the last record on disk.
pub(super) async fn trial_balance(State(state): State<AdminState>) -> ApiResult<Json<BooksReport>> {
    Ok(Json(noted(state.ledger.check_journal().await?).into()))
}

/// `POST /admin/v1/ledger/verify`: checks the journal up to the last record on disk, and sled.
pub(super) async fn verify(State(state): State<AdminState>) -> ApiResult<Json<JournalReportView>> {
    Ok(Json(noted(state.ledger.verify().await?).into()))
}

/// Logs the violations of a report and returns it.
fn noted(report: VerificationReport) -> VerificationReport {
    for violation in &report.violations {
        log::error!("the journal is not in order: {violation}");
    }
    report
}
