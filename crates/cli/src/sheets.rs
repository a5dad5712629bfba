//! Table layouts of all admin API documents: a row for each column, drawn by [`Sheet`]. The OpenAPI
//! document has the types of fields, but no choice, order or titles of columns.

use super::sheet::ValueFormat::{All, Figure, Text, Whole};
use super::sheet::{Column, Sheet};
use tollgate_money::price::UNITS;

/// Layout of accounts, one a row.
pub(super) const ACCOUNTS: Sheet = Sheet::list(
    "/id",
    &[
        ("id", "/id", Text),
        ("name", "/name", Text),
        ("available", "/balance/available", Figure),
        ("held", "/balance/held", Figure),
        ("spent", "/balance/spent", Figure),
        ("debt", "/balance/debt", Figure),
        ("credit line", "/balance/credit_limit", Figure),
        ("used of it", "/balance/credit_used", Figure),
        ("granted", "/balance/granted", Figure),
        ("suspended", "/suspended", Text),
        ("created", "/created_at", Text),
    ],
);

/// Layout of one account.
pub(super) const ACCOUNT: Sheet = Sheet::one(
    "/id",
    &[
        ("id", "/id", Text),
        ("name", "/name", Text),
        ("e-mail", "/email", Text),
        ("suspended", "/suspended", Text),
        ("available", "/balance/available", Figure),
        ("held", "/balance/held", Figure),
        ("spent", "/balance/spent", Figure),
        ("debt", "/balance/debt", Figure),
        ("credit line", "/balance/credit_limit", Figure),
        ("used of it", "/balance/credit_used", Figure),
        ("granted", "/balance/granted", Figure),
        ("requests per minute", "/limits/requests_per_minute", Figure),
        ("tokens per minute", "/limits/tokens_per_minute", Figure),
        ("concurrent requests", "/limits/concurrent_requests", Figure),
        ("means of holds", "/holds/means", Text),
        ("output floor", "/holds/output_floor", Figure),
        ("slice", "/holds/slice", Figure),
        ("wait, ms", "/holds/wait_ms", Figure),
        ("created", "/created_at", Text),
    ],
);

/// Keys, one a row.
pub(super) const KEYS: Sheet = Sheet::list(
    "/id",
    &[
        ("id", "/id", Text),
        ("name", "/name", Text),
        ("disabled", "/disabled", Text),
        ("models", "/models", All),
        ("a day", "/limits/spend_per_day", Figure),
        ("a month", "/limits/spend_per_month", Figure),
        ("expires", "/expires_at", Text),
        ("created", "/created_at", Text),
    ],
);

/// Layout of one key.
pub(super) const KEY: Sheet = Sheet::one(
    "/id",
    &[
        ("id", "/id", Text),
        ("account", "/account_id", Text),
        ("name", "/name", Text),
        ("disabled", "/disabled", Text),
        ("models", "/models", All),
        ("expires", "/expires_at", Text),
        ("spend per day", "/limits/spend_per_day", Figure),
        ("spend per month", "/limits/spend_per_month", Figure),
        ("requests per minute", "/limits/requests_per_minute", Figure),
        ("tokens per minute", "/limits/tokens_per_minute", Figure),
        ("concurrent requests", "/limits/concurrent_requests", Figure),
        ("created", "/created_at", Text),
        ("updated", "/updated_at", Text),
    ],
);

/// Layout of a new key with its secret, which is shown only once.
pub(super) const NEW_KEY: Sheet = Sheet::one(
    "/key",
    &[
        ("key", "/key", Text),
        ("id", "/id", Text),
        ("account", "/account_id", Text),
        ("name", "/name", Text),
        ("models", "/models", All),
        ("expires", "/expires_at", Text),
    ],
);

/// Layout of a grant.
pub(super) const GRANT: Sheet = Sheet::one(
    "/id",
    &[
        ("id", "/id", Text),
        ("account", "/account_id", Text),
        ("amount", "/amount", Figure),
        ("entry", "/seq", Figure),
    ],
);

/// Layout of a refund.
pub(super) const REFUND: Sheet = Sheet::one(
    "/id",
    &[
        ("id", "/id", Text),
        ("account", "/account_id", Text),
        ("hold", "/hold", Text),
        ("amount", "/amount", Figure),
        ("entry", "/seq", Figure),
    ],
);

/// Layout of a write-off.
pub(super) const WRITE_OFF: Sheet = Sheet::one(
    "/id",
    &[
        ("id", "/id", Text),
        ("account", "/account_id", Text),
        ("amount", "/amount", Figure),
        ("note", "/note", Text),
        ("entry", "/seq", Figure),
    ],
);

/// Layout of losses.
pub(super) const LOSSES: Sheet = Sheet::list(
    "/seq",
    &[
        ("entry", "/seq", Figure),
        ("at", "/at", Text),
        ("cause", "/cause", Text),
        ("amount", "/amount", Figure),
        ("account", "/account_id", Text),
        ("model", "/model", Text),
        ("upstream", "/upstream", Text),
        ("request", "/request_id", Text),
    ],
);

/// Layout of margins, one sum a row.
pub(super) const MARGINS: Sheet = Sheet::list(
    "/margin",
    &[
        ("day", "/day", Text),
        ("account", "/account_id", Text),
        ("model", "/model", Text),
        ("upstream", "/upstream", Text),
        ("calls", "/calls", Figure),
        ("charged", "/charged", Figure),
        ("cost", "/cost", Figure),
        ("margin", "/margin", Figure),
        ("unpaid", "/unpaid", Figure),
    ],
);

/// Layout of ledger entries.
pub(super) const ENTRIES: Sheet = Sheet::list(
    "/seq",
    &[
        ("entry", "/seq", Figure),
        ("at", "/at", Text),
        ("kind", "/kind", Text),
        ("amount", "/amount", Figure),
        ("charged", "/charged", Figure),
        ("owed", "/owed", Figure),
        ("credit line", "/limit", Figure),
        ("model", "/call/model", Text),
        ("price", "/call/price", Text),
        ("hold", "/call/hold", Text),
        ("request", "/call/request_id", Text),
    ],
);

/// Layout of holds in doubt.
pub(super) const HOLDS_IN_DOUBT: Sheet = Sheet::list(
    "/call/hold",
    &[
        ("hold", "/call/hold", Text),
        ("account", "/account_id", Text),
        ("model", "/call/model", Text),
        ("held", "/call/held", Figure),
        ("charged", "/charged", Figure),
        ("reserved", "/reserved_at", Text),
        ("resolved", "/resolved_at", Text),
    ],
);

/// Layout of submits in doubt.
pub(super) const TASKS_IN_DOUBT: Sheet = Sheet::list(
    "/id",
    &[
        ("task", "/id", Text),
        ("account", "/account_id", Text),
        ("model", "/model", Text),
        ("upstream", "/upstream", Text),
        ("submitted", "/submitted_at", Text),
        ("given up", "/given_up_at", Text),
    ],
);

/// Layout of a repeated announcement.
pub(super) const ANNOUNCED: Sheet =
    Sheet::one("/id", &[("task", "/id", Text), ("announced", "/announced", Text)]);

/// Layout of a webhook secret.
pub(super) const WEBHOOK_SECRET: Sheet = Sheet::one("/secret", &[("secret", "/secret", Text)]);

/// Layout of upstreams and the health of their targets.
pub(super) const UPSTREAMS: Sheet = Sheet {
    rows: "/upstreams",
    below: "/targets",
    columns: &[
        ("upstream", "../name", Text),
        ("healthy", "../healthy", Text),
        ("model", "/model", Text),
        ("target", "/target", Text),
        ("credential", "/credential", Text),
        ("state", "/state", Text),
        ("for s", "/for_seconds", Figure),
        ("priority", "/priority", Figure),
        ("weight", "/weight", Figure),
        ("in flight", "/in_flight", Figure),
        ("token s", "/token_seconds", Figure),
        ("requests left", "/requests_left", Figure),
        ("tokens left", "/tokens_left", Figure),
        ("last failure", "/last_failure/outcome", Text),
        ("at", "/last_failure/at", Text),
        ("last connect failure", "../last_connect_failure/text", Text),
        ("failed at", "../last_connect_failure/at", Text),
    ],
    main: "/name",
};

/// Layout of the active configuration's hash.
pub(super) const CONFIG: Sheet = Sheet::one("/hash", &[("hash", "/hash", Text)]);

/// Layout of a reload's result.
pub(super) const RELOAD: Sheet = Sheet::one(
    "/running",
    &[
        ("in order", "/ok", Text),
        ("errors", "/errors", Figure),
        ("warnings", "/warnings", Figure),
        ("the files", "/configuration", Text),
        ("in force", "/in_force", Text),
        ("running", "/running", Text),
        ("at a restart", "/restart_only", Text),
    ],
);

/// Requests, and ends of tasks, one a row.
pub(super) const REQUESTS: Sheet = Sheet::list(
    "/request_id",
    &[
        ("ended", "/ended_at", Text),
        ("status", "/status", Figure),
        ("operation", "/operation", Text),
        ("model", "/model", Text),
        ("upstream", "/upstream", Text),
        ("in", "/usage/input_tokens", Figure),
        ("out", "/usage/output_tokens", Figure),
        ("cost", "/cost", Figure),
        ("ms", "/duration_ms", Figure),
        ("error", "/error_code", Text),
        ("account", "/account_id", Text),
        ("request", "/request_id", Text),
    ],
);

/// Layout of one request.
pub(super) const REQUEST: Sheet = Sheet::one(
    "/request_id",
    &[
        ("request", "/request_id", Text),
        ("task", "/task_id", Text),
        ("account", "/account_id", Text),
        ("key", "/key_id", Text),
        ("began", "/began_at", Text),
        ("ended", "/ended_at", Text),
        ("operation", "/operation", Text),
        ("model", "/model", Text),
        ("upstream", "/upstream", Text),
        ("status", "/status", Figure),
        ("error", "/error_code", Text),
        ("streamed", "/streamed", Text),
        ("input tokens", "/usage/input_tokens", Figure),
        ("output tokens", "/usage/output_tokens", Figure),
        ("cost", "/cost", Figure),
        ("first byte, ms", "/ttfb_ms", Figure),
        ("duration, ms", "/duration_ms", Figure),
    ],
);

/// Layout of a journal verification.
pub(super) const JOURNAL: Sheet = Sheet::one(
    "/chain",
    &[
        ("sound", "/ok", Text),
        ("records", "/records", Figure),
        ("commits", "/frames", Figure),
        ("segments", "/segments", Figure),
        ("hash chain", "/chain", Text),
        ("state", "/state_hash", Text),
        ("sled compared", "/sled/compared", Text),
        ("sled", "/sled_hash", Text),
        ("not compared because", "/sled/reason", Text),
        ("sled at record", "/sled/record", Figure),
        ("sled rows", "/sled/rows", Figure),
        ("sled bytes", "/sled/bytes", Figure),
        ("sled read in ms", "/sled/duration_ms", Figure),
        ("accounts", "/accounts", Figure),
        ("granted", "/total/granted", Figure),
        ("available", "/total/available", Figure),
        ("held", "/total/held", Figure),
        ("spent", "/total/spent", Figure),
        ("debt", "/total/debt", Figure),
        ("credit lines", "/total/credit_limit", Figure),
        ("used of them", "/total/credit_used", Figure),
        ("written off", "/written_off", Figure),
        ("open holds", "/open_holds", Figure),
        ("violations", "/violations", Whole),
    ],
);

/// Layout of a trial balance, one book account a row.
pub(super) const BOOKS: Sheet = Sheet {
    rows: "/lines",
    below: "",
    columns: &[
        ("account", "/account", Text),
        ("upstream", "/upstream", Text),
        ("credential", "/credential", Text),
        ("for", "/cost_kind", Text),
        ("cause", "/cause", Text),
        ("debit", "/debit", Figure),
        ("credit", "/credit", Figure),
    ],
    main: "/account",
};

/// Codes, one a row.
pub(super) const CODES: Sheet = Sheet::list(
    "/id",
    &[
        ("id", "/id", Text),
        ("kind", "/kind", Text),
        ("amount", "/amount", Figure),
        ("used", "/used", Figure),
        ("of", "/uses_max", Figure),
        ("expires", "/expires_at", Text),
        ("revoked", "/revoked_at", Text),
        ("note", "/note", Text),
        ("created", "/created_at", Text),
    ],
);

/// Layout of one code.
pub(super) const CODE: Sheet = Sheet { rows: "", ..CODES };

/// Layout of a new code, which is shown only once.
pub(super) const NEW_CODE: Sheet = Sheet::one(
    "/code",
    &[
        ("code", "/code", Text),
        ("id", "/id", Text),
        ("kind", "/kind", Text),
        ("amount", "/amount", Figure),
        ("uses", "/uses_max", Figure),
        ("expires", "/expires_at", Text),
        ("note", "/note", Text),
    ],
);

/// Layout of the audit log.
pub(super) const ACTS: Sheet = Sheet::list(
    "/seq",
    &[
        ("entry", "/seq", Figure),
        ("at", "/at", Text),
        ("by", "/by/kind", Text),
        ("name", "/by/name", Text),
        ("what", "/what", Text),
        ("account", "/account_id", Text),
        ("of", "/subject", Text),
        ("id", "/idempotency_key", Text),
    ],
);

/// Layout of a resolved hold.
pub(super) const RESOLVED: Sheet =
    Sheet::one("/hold", &[("hold", "/hold", Text), ("note", "/note", Text)]);

/// Tasks, one a row.
pub(super) const TASKS: Sheet = Sheet::list(
    "/id",
    &[
        ("task", "/id", Text),
        ("account", "/account_id", Text),
        ("model", "/model", Text),
        ("upstream", "/upstream", Text),
        ("state", "/state", Text),
        ("charged", "/charged", Figure),
        ("submitted", "/submitted_at", Text),
        ("ended", "/ended_at", Text),
        ("webhook", "/webhook/state", Text),
    ],
);

/// Layout of one task.
pub(super) const TASK: Sheet = Sheet::one(
    "/id",
    &[
        ("task", "/id", Text),
        ("account", "/account_id", Text),
        ("key", "/key_id", Text),
        ("hold", "/hold", Text),
        ("model", "/model", Text),
        ("upstream", "/upstream", Text),
        ("model there", "/upstream_model", Text),
        ("id there", "/upstream_id", Text),
        ("state", "/state", Text),
        ("charged", "/charged", Figure),
        ("submitted", "/submitted_at", Text),
        ("ended", "/ended_at", Text),
        ("webhook", "/webhook/url", Text),
        ("announced", "/webhook/state", Text),
        ("tries", "/webhook/tries", Figure),
        ("next try", "/webhook/next_try_at", Text),
        ("last answer", "/webhook/last_try/status", Figure),
        ("last error", "/webhook/last_try/error", Text),
    ],
);

/// The columns of [`USAGE`] before those of the units.
const USAGE_BEFORE: [Column; 7] = [
    ("begin", "/begin", Text),
    ("key", "/key_id", Text),
    ("model", "/model", Text),
    ("calls", "/calls", Figure),
    ("cost", "/cost", Figure),
    ("owed", "/owed", Figure),
    ("written off", "/written_off", Figure),
];

/// Number of units with a column.
const UNIT_COLUMNS: usize = {
    let (mut columns, mut at) = (0, 0);
    while at < UNITS.len() {
        columns += UNITS[at].column.is_some() as usize;
        at += 1;
    }
    columns
};

// From the table of units, so that a new unit gets its column here. Loops in a constant cannot use iterators.
const USAGE_COLUMNS: [Column; USAGE_BEFORE.len() + UNIT_COLUMNS] = {
    let mut columns = [("", "", Figure); USAGE_BEFORE.len() + UNIT_COLUMNS];
    let (mut filled, mut at) = (0, 0);
    while filled < USAGE_BEFORE.len() {
        columns[filled] = USAGE_BEFORE[filled];
        filled += 1;
    }
    while at < UNITS.len() {
        if let Some(title) = UNITS[at].column {
            columns[filled] = (title, UNITS[at].pointer, Figure);
            filled += 1;
        }
        at += 1;
    }
    columns
};

/// Layout of an account's usage.
pub(super) const USAGE: Sheet = Sheet::list("/cost", &USAGE_COLUMNS);

/// Layout of a customer's login.
pub(super) const LOGIN: Sheet = Sheet::one(
    "/email",
    &[("account", "/account_id", Text), ("e-mail", "/email", Text), ("since", "/since", Text)],
);

/// Layout of a fleet's money and of the answering node.
pub(super) const FLEET: Sheet = Sheet::one(
    "/money/suspense",
    &[
        ("granted", "/money/granted", Figure),
        ("available", "/money/available", Figure),
        ("leased", "/money/leased", Figure),
        ("held", "/money/held", Figure),
        ("spent", "/money/spent", Figure),
        ("suspense", "/money/suspense", Figure),
        ("debt", "/money/debt", Figure),
        ("credit lines", "/money/credit_limits", Figure),
        ("used of them", "/money/credit_used", Figure),
        ("written off", "/money/written_off", Figure),
        ("adds up", "/money/adds_up", Text),
        ("accounts", "/money/accounts", Figure),
        ("this node", "/this_node/node", Figure),
        ("name", "/this_node/name", Text),
        ("cut off", "/this_node/cut_off", Text),
        ("term left, ms", "/this_node/term_left_ms", Figure),
        ("not reported", "/this_node/unreported_records", Figure),
        ("report lag, ms", "/this_node/report_lag_ms", Figure),
        ("directory", "/this_node/directory_followed", Figure),
        ("of", "/this_node/directory_head", Figure),
        ("stopped", "/this_node/directory_stopped", Text),
    ],
);

/// Nodes of a fleet, one a row.
pub(super) const NODES: Sheet = Sheet {
    rows: "/nodes",
    below: "",
    columns: &[
        ("node", "/node", Figure),
        ("name", "/name", Text),
        ("state", "/state", Text),
        ("version", "/version", Text),
        ("out", "/out", Figure),
        ("accounts", "/accounts", Figure),
        ("term left, ms", "/term_left_ms", Figure),
        ("seen", "/seen_at", Text),
        ("joined", "/joined_at", Text),
        ("epoch", "/epoch", Figure),
        ("in suspense since", "/suspended_at", Text),
    ],
    main: "/node",
};

/// Layout of leases, one node and account a row.
pub(super) const LEASES: Sheet = Sheet::list(
    "/account_id",
    &[
        ("node", "/node", Figure),
        ("name", "/node_name", Text),
        ("account", "/account_id", Text),
        ("called", "/account_name", Text),
        ("amount", "/amount", Figure),
        ("in suspense since", "/suspended_at", Text),
    ],
);

/// Layout of resolved suspense.
pub(super) const RESOLVED_SUSPENSE: Sheet = Sheet::one(
    "/amount",
    &[
        ("node", "/node", Figure),
        ("account", "/account_id", Text),
        ("amount", "/amount", Figure),
        ("how", "/how", Text),
        ("note", "/note", Text),
    ],
);

/// Layout of an account's prices.
pub(super) const ACCOUNT_PRICES: Sheet =
    Sheet::one("/rules", &[("group", "/group", Text), ("rules", "/rules", Text)]);

/// Layout of one price group.
pub(super) const PRICE_GROUP: Sheet = Sheet::one(
    "/name",
    &[("name", "/name", Text), ("rules", "/rules", Text), ("set", "/at", Text)],
);

/// Price groups, one a row.
pub(super) const PRICE_GROUPS: Sheet = Sheet::list(
    "/name",
    &[("name", "/name", Text), ("rules", "/rules", Text), ("set", "/at", Text)],
);

/// Layout of price versions, one a row.
pub(super) const CHARGED_PRICES: Sheet = Sheet::list(
    "/version",
    &[
        ("version", "/version", Text),
        ("model", "/model", Text),
        ("sources", "/sources", Text),
        ("since", "/since", Text),
        ("prices", "/pricing", Text),
    ],
);
