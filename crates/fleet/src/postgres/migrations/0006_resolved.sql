-- What operators have taken out of suspense, until the node is heard of that had it out.

CREATE TABLE tollgate.resolved (
    node     INT NOT NULL REFERENCES tollgate.nodes (id),
    account  TEXT NOT NULL REFERENCES tollgate.accounts (id),
    -- What was made available again.
    released BIGINT NOT NULL CHECK (released >= 0),
    -- What counts as spent.
    charged  BIGINT NOT NULL CHECK (charged >= 0),
    PRIMARY KEY (node, account)
);
