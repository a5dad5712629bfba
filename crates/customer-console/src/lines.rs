//! Lines of the ledger, as customers read them.

use super::key_names::KeyNames;
use tollgate_ledger::{
    CallMoney, EntryKind, HoldId, RequestId, StatementCall, StatementEntry, VoidReason,
};
use tollgate_money::money::Nanousd;
use tollgate_web_kit::show;

/// One line of an account's statement.
pub(super) struct StatementLine {
    /// Time in UTC, to the second.
    pub(super) at: String,
    /// Kind of the line, in a word.
    pub(super) what: &'static str,
    /// The class of the word's badge.
    pub(super) badge_class: &'static str,
    /// Further remark: the reason why a call was free, or the name of a grant or refund.
    pub(super) note: String,
    /// Call of the line.
    pub(super) call: Option<LineCall>,
    /// The settled hold of a refund.
    pub(super) refunded: Option<HoldId>,
    /// Hold of a call.
    pub(super) held: Option<Nanousd>,
    /// Charge; `None` for other lines.
    pub(super) charged: Option<Nanousd>,
    /// Part of the hold that was released.
    pub(super) freed: Option<Nanousd>,
    /// Credit that was granted or refunded.
    pub(super) credit: Option<Nanousd>,
}

/// The call that a line belongs to.
pub(super) struct LineCall {
    /// The request that the call was.
    pub(super) request: RequestId,
    /// Its id as tables show it.
    pub(super) short: String,
    /// The model that was called, as customers name it.
    pub(super) model: String,
    /// Name of the key.
    pub(super) key: String,
}

impl StatementLine {
    /// The line of an entry of the account's.
    pub(super) fn from_entry(entry: &StatementEntry, keys: &KeyNames) -> Self {
        let held = entry.call.as_ref().map(|call| call.held);
        let freed = |charged| held.map(|held: Nanousd| held.saturating_sub(charged));
        let mut line = Self {
            at: show::time(&entry.at),
            what: "Held",
            badge_class: "warn",
            note: String::new(),
            call: entry.call.as_ref().map(|call| LineCall::from_call(call, keys)),
            refunded: None,
            held,
            charged: None,
            freed: None,
            credit: None,
        };
        match &entry.kind {
            EntryKind::Hold => "in flight".clone_into(&mut line.note),
            EntryKind::Settlement { charged, owed, .. } => {
                (line.what, line.badge_class) = ("Paid", "");
                if *owed > Nanousd::ZERO {
                    (line.what, line.badge_class) = ("Paid in part", "bad");
                    line.note = format!("{} is owed: the balance had no more", show::money(owed));
                }
                (line.charged, line.freed) = (Some(*charged), freed(*charged));
            }
            EntryKind::Void { reason } => {
                (line.what, line.badge_class) = ("Not charged", "");
                why(*reason).clone_into(&mut line.note);
                (line.charged, line.freed) = (Some(Nanousd::ZERO), freed(Nanousd::ZERO));
            }
            EntryKind::InDoubt { charged } => {
                (line.what, line.badge_class) = ("In doubt", "bad");
                "the gateway stopped during the call".clone_into(&mut line.note);
                (line.charged, line.freed) = (Some(*charged), freed(*charged));
            }
            EntryKind::Grant { id, amount } => {
                (line.what, line.badge_class) = ("Credit", "good");
                line.note.clone_from(id);
                line.credit = Some(*amount);
            }
            EntryKind::Refund { id, hold, amount } => {
                (line.what, line.badge_class) = ("Refund", "good");
                line.note.clone_from(id);
                (line.refunded, line.credit) = (Some(*hold), Some(*amount));
            }
            EntryKind::DebtPayment { amount } => {
                (line.what, line.badge_class) = ("Debt paid", "");
                "what earlier calls left owing".clone_into(&mut line.note);
                line.charged = Some(*amount);
            }
            EntryKind::CreditLine { limit, lent, withdrawn, owed } => {
                (line.what, line.badge_class) =
                    ("Credit line", if owed.is_zero() { "" } else { "bad" });
                line.note = credit_line_note(limit, [lent, withdrawn, owed]);
            }
            EntryKind::WriteOff { amount, .. } => {
                (line.what, line.badge_class) = ("Debt given up", "good");
                line.note = format!("{} is not owed any more", show::money(amount));
            }
            EntryKind::SuspenseCharged { amount, .. } => {
                (line.what, line.badge_class) = ("Charged", "bad");
                "what a server had set aside that was lost".clone_into(&mut line.note);
                line.charged = Some(*amount);
            }
            EntryKind::SuspenseReturned { amount, .. } => {
                (line.what, line.badge_class) = ("Returned", "good");
                "the server is back: what it was used for is paid".clone_into(&mut line.note);
                line.credit = Some(*amount);
            }
        }
        line
    }

    /// All lines of a call, the earliest first.
    pub(super) fn from_call(money: &CallMoney, keys: &KeyNames) -> Vec<Self> {
        let hold = StatementEntry {
            seq: money.call.hold.number(),
            at: money.reserved_at,
            // The first hold; a rolling hold may have grown since.
            call: Some(StatementCall { held: money.reserved, ..money.call.clone() }),
            kind: EntryKind::Hold,
        };
        let mut hold = Self::from_entry(&hold, keys);
        // The hold is over: it is history, not money that is set aside.
        if money.end.is_some() {
            hold.badge_class = "";
            hold.note.clear();
        }
        let later = money.end.iter().chain(&money.refunds);
        std::iter::once(hold).chain(later.map(|entry| Self::from_entry(entry, keys))).collect()
    }
}

impl LineCall {
    fn from_call(call: &StatementCall, keys: &KeyNames) -> Self {
        Self {
            request: call.request,
            short: short(&call.request),
            model: call.model.to_string(),
            key: keys.name(call.key),
        }
    }
}

/// Abbreviated request id: its first part, which contains the time, and its last.
pub(super) fn short(id: &RequestId) -> String {
    let text = id.to_string();
    match (text.get(..16), text.get(text.len().saturating_sub(4)..)) {
        (Some(head), Some(tail)) => format!("{head}…{tail}"),
        _ => text,
    }
}

/// Description of a change of the credit line with the amounts lent, withdrawn and owed.
fn credit_line_note(limit: &Nanousd, [lent, withdrawn, owed]: [&Nanousd; 3]) -> String {
    let mut note = format!("set to {}", show::money(limit));
    for (amount, what) in [
        (lent, "more can be spent"),
        (withdrawn, "less can be spent"),
        (owed, "is owed: it was spent"),
    ] {
        if !amount.is_zero() {
            note.push_str(&format!(", {} {what}", show::money(amount)));
        }
    }
    note
}

/// Reason why a call was free.
fn why(reason: VoidReason) -> &'static str {
    match reason {
        VoidReason::Unreached => "no provider took it",
        VoidReason::UpstreamError => "the provider failed",
        VoidReason::ClientDisconnected => "it was left before it began",
        VoidReason::Replaced => "another model was asked",
        VoidReason::Abandoned => "the gateway gave it up",
    }
}
