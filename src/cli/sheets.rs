//! Every document of the admin API as people see it.

use super::sheet::Kind::{All, Figure, Text};
use super::sheet::Sheet;

/// Accounts, one a row.
pub(super) const ACCOUNTS: Sheet = Sheet {
    rows: "/data",
    below: "",
    columns: &[
        ("id", "/id", Text),
        ("name", "/name", Text),
        ("available", "/balance/available", Figure),
        ("held", "/balance/held", Figure),
        ("spent", "/balance/spent", Figure),
        ("granted", "/balance/granted", Figure),
        ("suspended", "/suspended", Text),
        ("created", "/created_at", Text),
    ],
    main: "/id",
};

/// One account.
pub(super) const ACCOUNT: Sheet = Sheet {
    rows: "",
    below: "",
    columns: &[
        ("id", "/id", Text),
        ("name", "/name", Text),
        ("suspended", "/suspended", Text),
        ("available", "/balance/available", Figure),
        ("held", "/balance/held", Figure),
        ("spent", "/balance/spent", Figure),
        ("granted", "/balance/granted", Figure),
        ("requests per minute", "/limits/requests_per_minute", Figure),
        ("tokens per minute", "/limits/tokens_per_minute", Figure),
        ("concurrent requests", "/limits/concurrent_requests", Figure),
        ("created", "/created_at", Text),
    ],
    main: "/id",
};

/// Keys, one a row.
pub(super) const KEYS: Sheet = Sheet {
    rows: "/data",
    below: "",
    columns: &[
        ("id", "/id", Text),
        ("name", "/name", Text),
        ("disabled", "/disabled", Text),
        ("models", "/models", All),
        ("a day", "/limits/spend_per_day", Figure),
        ("a month", "/limits/spend_per_month", Figure),
        ("expires", "/expires_at", Text),
        ("created", "/created_at", Text),
    ],
    main: "/id",
};

/// One key.
pub(super) const KEY: Sheet = Sheet {
    rows: "",
    below: "",
    columns: &[
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
    main: "/id",
};

/// A key that was just made: with its secret, which is shown this once.
pub(super) const NEW_KEY: Sheet = Sheet {
    rows: "",
    below: "",
    columns: &[
        ("key", "/key", Text),
        ("id", "/id", Text),
        ("account", "/account_id", Text),
        ("name", "/name", Text),
        ("models", "/models", All),
        ("expires", "/expires_at", Text),
    ],
    main: "/key",
};

/// Credit that was given.
pub(super) const GRANT: Sheet = Sheet {
    rows: "",
    below: "",
    columns: &[
        ("id", "/id", Text),
        ("account", "/account_id", Text),
        ("amount", "/amount", Figure),
        ("entry", "/seq", Figure),
    ],
    main: "/id",
};

/// A charge that was given back.
pub(super) const REFUND: Sheet = Sheet {
    rows: "",
    below: "",
    columns: &[
        ("id", "/id", Text),
        ("account", "/account_id", Text),
        ("hold", "/hold", Text),
        ("amount", "/amount", Figure),
        ("entry", "/seq", Figure),
    ],
    main: "/id",
};

/// What happened to an account's money.
pub(super) const ENTRIES: Sheet = Sheet {
    rows: "/data",
    below: "",
    columns: &[
        ("entry", "/seq", Figure),
        ("at", "/at", Text),
        ("kind", "/kind", Text),
        ("amount", "/amount", Figure),
        ("charged", "/charged", Figure),
        ("model", "/call/model", Text),
        ("hold", "/call/hold", Text),
        ("request", "/call/request_id", Text),
    ],
    main: "/seq",
};

/// Calls of which a crash left open what they cost.
pub(super) const HOLDS_IN_DOUBT: Sheet = Sheet {
    rows: "/data",
    below: "",
    columns: &[
        ("hold", "/call/hold", Text),
        ("account", "/account_id", Text),
        ("model", "/call/model", Text),
        ("held", "/call/held", Figure),
        ("charged", "/charged", Figure),
        ("reserved", "/reserved_at", Text),
        ("resolved", "/resolved_at", Text),
    ],
    main: "/call/hold",
};

/// Submits of which nobody knows whether their upstream took them.
pub(super) const TASKS_IN_DOUBT: Sheet = Sheet {
    rows: "/data",
    below: "",
    columns: &[
        ("task", "/id", Text),
        ("account", "/account_id", Text),
        ("model", "/model", Text),
        ("upstream", "/upstream", Text),
        ("submitted", "/submitted_at", Text),
        ("given up", "/given_up_at", Text),
    ],
    main: "/id",
};

/// That a task's end is announced once more.
pub(super) const ANNOUNCED: Sheet = Sheet {
    rows: "",
    below: "",
    columns: &[("task", "/id", Text), ("announced", "/announced", Text)],
    main: "/id",
};

/// The secret that an account's receivers check webhooks with.
pub(super) const WEBHOOK_SECRET: Sheet =
    Sheet { rows: "", below: "", columns: &[("secret", "/secret", Text)], main: "/secret" };

/// How the targets at each upstream are doing.
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
        ("last failure", "/last_failure/outcome", Text),
        ("at", "/last_failure/at", Text),
    ],
    main: "/name",
};

/// What is in force.
pub(super) const CONFIG: Sheet =
    Sheet { rows: "", below: "", columns: &[("hash", "/hash", Text)], main: "/hash" };

/// What a reload did, or would do.
pub(super) const RELOAD: Sheet = Sheet {
    rows: "",
    below: "",
    columns: &[
        ("in order", "/ok", Text),
        ("errors", "/errors", Figure),
        ("warnings", "/warnings", Figure),
        ("the files", "/configuration", Text),
        ("in force", "/in_force", Text),
        ("running", "/running", Text),
        ("at a restart", "/restart_only", Text),
    ],
    main: "/running",
};

/// Requests, and ends of tasks, one a row.
pub(super) const REQUESTS: Sheet = Sheet {
    rows: "/data",
    below: "",
    columns: &[
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
    main: "/request_id",
};

/// One request.
pub(super) const REQUEST: Sheet = Sheet {
    rows: "",
    below: "",
    columns: &[
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
    main: "/request_id",
};

/// Whether the journal of a running gateway is in order.
pub(super) const JOURNAL: Sheet = Sheet {
    rows: "",
    below: "",
    columns: &[
        ("sound", "/ok", Text),
        ("records", "/records", Figure),
        ("commits", "/frames", Figure),
        ("segments", "/segments", Figure),
        ("hash chain", "/chain", Text),
        ("state", "/state_hash", Text),
        ("accounts", "/accounts", Figure),
        ("granted", "/total/granted", Figure),
        ("available", "/total/available", Figure),
        ("held", "/total/held", Figure),
        ("spent", "/total/spent", Figure),
        ("written off", "/written_off", Figure),
        ("open holds", "/open_holds", Figure),
        ("violations", "/violations", Text),
    ],
    main: "/chain",
};
