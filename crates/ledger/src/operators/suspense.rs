//! Resolution of suspense: money that a node of a fleet had on loan when it fell silent.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use crate::memory::Ledger;
use crate::memory::act::{ActorScope, WriteOutcome};
use crate::memory::write::IdempotentOutcome;
use crate::records::error::LedgerError;
use crate::records::record::{Record, SuspenseEnd};
use crate::rules::text::check_note;
use tollgate_money::money::Nanousd;
use tollgate_types::ids::{AccountId, NodeId, Seq};

/// Name of the audited action.
const RESOLVE: &str = "suspense.resolve";

/// Money in suspense that was resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedSuspense {
    /// Node that had leased the money.
    pub node: NodeId,
    /// Account of the money.
    pub account: AccountId,
    /// Amount that was in suspense.
    pub amount: Nanousd,
    /// Resolution of the suspense.
    pub end: SuspenseEnd,
}

impl ActorScope<'_> {
    /// Resolves the money that a silent node has leased from an account: it is released, or counts as spent.
    /// The node's process is shut out and must join again. Of two simultaneous requests, the second finds
    /// nothing in suspense.
    ///
    /// # Errors
    /// [`LedgerError::NoFleet`], [`LedgerError::NotInSuspense`], also where the node has come back
    /// meanwhile, [`LedgerError::UnknownAccount`], [`LedgerError::Invalid`] for the note,
    /// [`LedgerError::OtherRequest`], [`LedgerError::Unavailable`] and [`LedgerError::Stopped`].
    pub async fn resolve_suspense(
        &self,
        (node, account): (NodeId, AccountId),
        end: SuspenseEnd,
        note: &str,
    ) -> Result<WriteOutcome<ResolvedSuspense>, LedgerError> {
        check_note(note)?;
        let amount = self.ledger.books.in_suspense(node, account).await?;
        self.ledger.fresh(|| self.ledger.account(account)).await?;
        let once = self.write(RESOLVE, account, |locked, audit| {
            locked.state(account)?;
            // The transaction takes this amount, or nothing.
            let amount = amount.ok_or(LedgerError::NotInSuspense(node, account))?;
            let (note, at) = (note.to_owned(), audit.at());
            let resolved = Record::SuspenseResolved { account, node, amount, end, note, at };
            Ok((amount, vec![resolved, audit.act(account, node)]))
        });
        match once.await? {
            IdempotentOutcome::Applied(amount, _) => {
                let value = ResolvedSuspense { node, account, amount, end };
                Ok(WriteOutcome { value, repeated: false })
            }
            IdempotentOutcome::Replayed { seq, .. } => {
                let value = self.ledger.resolved_before(seq).await?;
                Ok(WriteOutcome { value, repeated: true })
            }
        }
    }
}

impl Ledger {
    /// Reads the resolution that precedes the audit record at `act`.
    async fn resolved_before(&self, act: Seq) -> Result<ResolvedSuspense, LedgerError> {
        let mut scan = self.scan(act.saturating_sub(1)).await?;
        let found = tokio::task::spawn_blocking(move || scan.next()).await;
        let missing = || LedgerError::Journal(format!("nothing stands before {act}"));
        match found.ok().flatten().ok_or_else(missing)? {
            Ok((_, Record::SuspenseResolved { account, node, amount, end, .. })) => {
                Ok(ResolvedSuspense { node, account, amount, end })
            }
            Ok(_) => Err(missing()),
            Err(error) => Err(LedgerError::Journal(error.to_string())),
        }
    }
}
