-- Units that have no column in tollgate.usage: a row for each of which some were used. Nodes that do not
-- know the table go on with the columns.

CREATE TABLE tollgate.usage_units (
    account TEXT NOT NULL,
    hour    INT NOT NULL,
    key     TEXT NOT NULL,
    model   TEXT NOT NULL,
    -- Its name, as in JSON.
    unit    TEXT NOT NULL,
    amount  BIGINT NOT NULL CHECK (amount >= 0),
    PRIMARY KEY (account, hour, key, model, unit)
);
CREATE INDEX usage_units_of_hours ON tollgate.usage_units (hour);
