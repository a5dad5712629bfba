-- Ledgers of single gateways on their way into the fleet, and the fleet's way out of the database.

-- Ledgers that are, or were, moved in.
CREATE TABLE tollgate.moved_in (
    -- The hash chain of its first group: the same however far the ledger has gone.
    ledger      TEXT PRIMARY KEY,
    -- How far it had gone, and the hash chain there.
    last_seq    BIGINT NOT NULL,
    chain       TEXT NOT NULL,
    -- How many parts of it are here. Nobody sees anything of them before the last.
    parts       BIGINT NOT NULL,
    -- When it became a part of the fleet, all at once, and what was compared then.
    finished_at TIMESTAMPTZ,
    proof       TEXT
);

-- What is to stand in the directory of a ledger that is on its way in.
CREATE TABLE tollgate.moving (
    ledger  TEXT NOT NULL REFERENCES tollgate.moved_in (ledger),
    number  BIGINT NOT NULL,
    records BYTEA NOT NULL,
    PRIMARY KEY (ledger, number)
);

-- The ledger that everything here was moved out into: no node joins any more.
ALTER TABLE tollgate.head ADD COLUMN moved_out TEXT;
