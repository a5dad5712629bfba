-- Credit lines: money that the operator lends to accounts.

ALTER TABLE tollgate.accounts
    -- What of `granted` is lent. It is spent after the account's own money.
    ADD COLUMN credit BIGINT NOT NULL DEFAULT 0 CHECK (credit >= 0),
    ADD CONSTRAINT accounts_lent_within CHECK (credit <= granted);
