-- Work that outlives its request, for all nodes: what each task is, what it holds, and when it must be
-- looked at next.

CREATE TABLE tollgate.tasks (
    id              TEXT PRIMARY KEY,
    account         TEXT NOT NULL REFERENCES tollgate.accounts (id),
    -- What its upstream calls it, once it has a name there.
    native_id       TEXT,
    -- The node that took it, in which of its lives, and the hold that paid for it there.
    node            INT NOT NULL,
    epoch           BIGINT NOT NULL,
    hold            BIGINT NOT NULL UNIQUE,
    -- What of accounts.held is this task's: nothing, once it has ended.
    held            BIGINT NOT NULL CHECK (held >= 0),
    -- 'never': nobody may open a task of this id any more, and none was opened.
    stage           TEXT NOT NULL CHECK (
        stage IN ('submitting', 'in_doubt', 'submitted', 'ended', 'never')
    ),
    -- How it ended, in the customers' words.
    state           TEXT,
    -- Whether its end is announced.
    is_announced    BOOLEAN NOT NULL,
    -- The task and the hold, in the form that journals have.
    task            BYTEA NOT NULL,
    open_hold       BYTEA NOT NULL,
    -- The last try to announce its end.
    tried           BYTEA,
    submitted_at    BIGINT NOT NULL,
    ended_at        BIGINT,
    -- What its upstream said last while it had not ended, and when that was asked.
    said_state      TEXT,
    said_document   TEXT,
    said_changed_at BIGINT,
    asked_at        TIMESTAMPTZ,
    -- When it must be looked at; none when nothing remains to be done.
    due_at          BIGINT,
    -- The node that does so, and until when no other may.
    holder          INT,
    held_until      TIMESTAMPTZ,
    CONSTRAINT tasks_hold_until_their_end CHECK (held = 0 OR stage NOT IN ('ended', 'never'))
);
CREATE INDEX tasks_due ON tollgate.tasks (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX tasks_open ON tollgate.tasks (stage, submitted_at) WHERE stage NOT IN ('ended', 'never');
CREATE INDEX tasks_ended ON tollgate.tasks (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX tasks_by_native_id ON tollgate.tasks (account, native_id);
CREATE INDEX tasks_by_time ON tollgate.tasks (submitted_at, id);
CREATE INDEX tasks_of_accounts ON tollgate.tasks (account, submitted_at, id);

-- Submits that are recognised when they are repeated, by what the customer calls them (SHA-256).
CREATE TABLE tollgate.submits (
    account TEXT NOT NULL,
    key     BYTEA NOT NULL,
    body    BYTEA NOT NULL,
    task    TEXT NOT NULL,
    at      BIGINT NOT NULL,
    PRIMARY KEY (account, key)
);
CREATE INDEX submits_by_time ON tollgate.submits (at);
