-- Ways to what is read of statements, refunds and keys.

-- The end of a call whose moment is known.
CREATE INDEX entries_by_time ON tollgate.entries (account, last_at, number);
-- What was given back for a call.
CREATE INDEX refunds_of_holds ON tollgate.refunds (account, hold);
CREATE INDEX keys_used_of_accounts ON tollgate.keys_used (account);
