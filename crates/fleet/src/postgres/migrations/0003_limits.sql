-- Limits a minute and of requests at one time. Each is named by its kind and whom it limits.

-- What no node has of a limit. Its row is locked first by whoever changes a share.
CREATE TABLE tollgate.limits (
    name   TEXT PRIMARY KEY,
    -- What of the limit it is, and what is in it, in millionths, at this moment.
    units  BIGINT NOT NULL CHECK (units >= 0),
    micros BIGINT NOT NULL CHECK (micros >= 0),
    at_ms  BIGINT NOT NULL
);

-- What each node has of a limit, until it is over.
CREATE TABLE tollgate.limit_shares (
    name     TEXT NOT NULL,
    node     INT NOT NULL,
    share    BIGINT NOT NULL CHECK (share >= 0),
    -- The limit as the node knows it.
    whole    BIGINT NOT NULL,
    -- What it wants, what one of its requests needs, and what it cannot give up.
    demand   BIGINT NOT NULL,
    need     BIGINT NOT NULL,
    at_least BIGINT NOT NULL,
    until    TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (name, node)
);

-- The last exchange of each node about limits: an older one comes too late.
CREATE TABLE tollgate.limit_turns (
    node  INT PRIMARY KEY,
    epoch BIGINT NOT NULL,
    turn  BIGINT NOT NULL
);

-- What keys may spend in a period, such as `key_…/day/2026-11-22`. Locked like a limit.
CREATE TABLE tollgate.caps (
    name   TEXT PRIMARY KEY,
    until  TIMESTAMPTZ NOT NULL
);

-- What each node may spend of it. It is the node's until the period ends.
CREATE TABLE tollgate.cap_shares (
    name  TEXT NOT NULL,
    node  INT NOT NULL,
    share BIGINT NOT NULL CHECK (share >= 0),
    spent BIGINT NOT NULL,
    held  BIGINT NOT NULL,
    -- What calls wait for, and since when that stands here.
    lacks BIGINT NOT NULL,
    at    TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (name, node)
);
