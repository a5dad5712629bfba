//! Recalls: the accounts that a node is short of and other nodes have money of.

/// The channel that announces recalls; the payload is the number of the node that needs money.
pub(crate) const RECALLED: &str = "tollgate_recall";

/// Asks the nodes that lease money of an account to return it.
pub(super) const RECALL: &str = "INSERT INTO tollgate.recalls (account, until)
    SELECT d.account, now() + interval '1 second' FROM unnest($1::text[]) AS d (account)
    ON CONFLICT (account) DO UPDATE SET until = EXCLUDED.until";

/// Removes recalls that are long over, so that each sync looks at few: as many at a time as a sweep
/// has time for, and none that a sync is about to renew.
pub(super) const FORGET_RECALLS: &str = "DELETE FROM tollgate.recalls WHERE account IN (
    SELECT account FROM tollgate.recalls WHERE until < now() - interval '1 minute'
    ORDER BY account LIMIT 1000 FOR UPDATE SKIP LOCKED)";
