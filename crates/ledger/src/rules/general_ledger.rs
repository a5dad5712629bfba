//! The books of the operator: all postings added up, and compared with what the rules say of balances.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::records::cost::{CostKind, MarginTotal};
use crate::records::id_map::IdMap;
use crate::records::loss::LossSums;
use crate::records::record::Record;
use crate::rules::core::Core;
use crate::rules::postings::{BookAccount, Posting, postings};
use tollgate_money::money::Nanousd;
use tollgate_types::ids::{HoldId, Seq};

/// A contradiction is followed by others; this many are listed.
const FAULTS_MAX: usize = 100;

/// The books: the balance of each book account.
#[derive(Debug, Default)]
pub struct GeneralLedger {
    balances: BTreeMap<BookAccount, i128>,
    /// Amount of each open hold, from the records alone.
    holds: IdMap<HoldId, Nanousd>,
    faults: Vec<String>,
}

/// Every book account with its balance on its side.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TrialBalance {
    /// True if debits equal credits.
    pub adds_up: bool,
    /// The sum of all debits.
    pub debit: Nanousd,
    /// The sum of all credits.
    pub credit: Nanousd,
    /// Every account of the books with at least one entry.
    pub lines: Vec<BookLine>,
}

/// A book account with its balance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BookLine {
    /// Name of an account of the books, such as `revenue` or `payable`.
    pub account: String,
    /// Upstream, for payables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// Name of the credential, for payables; empty if the upstream has only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// Kind of an upstream's cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_kind: Option<CostKind>,
    /// Cause, for losses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// The balance, if it is a debit.
    pub debit: Nanousd,
    /// The balance, if it is a credit.
    pub credit: Nanousd,
}

/// Figures of the rules for the same records, to compare the books with.
#[derive(Debug, Default)]
pub struct BookState<'a> {
    /// The accounts of customers.
    pub cores: &'a [Core],
    /// Cost of calls by upstream.
    pub margins: BTreeMap<Arc<str>, MarginTotal>,
}

impl GeneralLedger {
    /// Enters the record at `seq`, which the rules have taken.
    pub fn enter(&mut self, seq: Seq, record: &Record) {
        let held = record.open_hold().and_then(|hold| self.holds.get(&hold)).copied();
        let held = held.unwrap_or_default();
        match record {
            Record::Reserved(reservation) => {
                self.holds.insert(HoldId::from_number(seq), reservation.amount);
            }
            Record::Extended { hold, amount, .. } => {
                let sum = held.saturating_add(*amount);
                self.holds.insert(*hold, sum);
            }
            record => {
                record.open_hold().and_then(|hold| self.holds.remove(&hold));
            }
        }
        self.post(seq, postings(record, held));
    }

    /// Enters the postings of one record, which must add up to zero by themselves.
    fn post(&mut self, seq: Seq, postings: Vec<Posting>) {
        let sum = postings
            .iter()
            .try_fold(0_i128, |sum, posting| sum.checked_add(posting.amount))
            .unwrap_or(i128::MAX);
        if sum != 0 && self.faults.len() < FAULTS_MAX {
            let sum = text(sum);
            self.faults.push(format!("books: the postings of record {seq} add up to {sum}"));
        }
        for Posting { account, amount } in postings {
            let balance = self.balances.entry(account).or_default();
            // A hundred bits of amounts of 64 need more records than a journal can number.
            *balance = balance.saturating_add(amount);
        }
    }

    /// The book accounts with their balances.
    #[must_use]
    pub fn trial_balance(&self) -> TrialBalance {
        let sum = |is_counted: fn(i128) -> bool| {
            let counted = self.balances.values().copied().filter(|balance| is_counted(*balance));
            counted.fold(0_i128, i128::saturating_add)
        };
        let (debit, credit) = (sum(i128::is_positive), sum(i128::is_negative));
        TrialBalance {
            adds_up: debit.checked_add(credit) == Some(0),
            debit: magnitude(debit),
            credit: magnitude(credit),
            lines: self.balances.iter().map(|(account, balance)| account.line(*balance)).collect(),
        }
    }

    /// Imbalances, and differences between the books and the rules.
    #[must_use]
    pub fn differences(&self, state: &BookState<'_>) -> Vec<String> {
        let mut found = self.faults.clone();
        let total = self.balances.values().fold(0_i128, |sum, one| sum.saturating_add(*one));
        if total != 0 {
            found.push(format!("books: all accounts add up to {}, not to zero", text(total)));
        }
        self.compare_balances(state, &mut found);
        self.compare_losses(state, &mut found);
        self.compare_costs(state, &mut found);
        found
    }

    fn compare_balances(&self, state: &BookState<'_>, found: &mut Vec<String>) {
        let sum = |part: fn(&crate::rules::account::Account) -> Nanousd| {
            let accounts = state.cores.iter().flat_map(Core::accounts);
            accounts.fold(0_i128, |sum, one| sum.saturating_add(i128::from(part(one).get())))
        };
        let [cash, treasury, lines, available, held, revenue, unclaimed, receivable, written_off] =
            [
                BookAccount::Cash,
                BookAccount::Treasury,
                BookAccount::CreditLines,
                BookAccount::Available,
                BookAccount::Held,
                BookAccount::Revenue,
                BookAccount::Unclaimed,
                BookAccount::Receivable,
                BookAccount::WrittenOff,
            ]
            .map(|account| self.balance(&account));
        // What calls cost is paid, owed or given up.
        let paid = revenue
            .saturating_add(unclaimed)
            .saturating_add(receivable)
            .saturating_add(written_off);
        let granted = cash.saturating_add(treasury).saturating_add(lines);
        for (what, books, rules) in [
            ("granted", granted, sum(|one| one.balance.granted)),
            ("the credit lines", lines, sum(|one| one.balance.credit)),
            ("available", available.saturating_neg(), sum(|one| one.balance.available)),
            ("held", held.saturating_neg(), sum(|one| one.balance.held)),
            ("spent", paid.saturating_neg(), sum(|one| one.balance.spent)),
            ("debt", receivable, sum(|one| one.balance.debt)),
            ("written off", written_off, sum(|one| one.written_off)),
        ] {
            compare(what, books, rules, found);
        }
        let holds = self.holds.values();
        let open = holds.fold(0_i128, |sum, hold| sum.saturating_add(i128::from(hold.get())));
        compare("in open holds", held.saturating_neg(), open, found);
    }

    fn compare_losses(&self, state: &BookState<'_>, found: &mut Vec<String>) {
        let mut losses = LossSums::new();
        let states = state.cores.iter().flat_map(|core| core.accounts.values());
        for (cause, sum) in states.flat_map(|account| &account.losses) {
            losses.entry(cause.clone()).or_default().add(*sum);
        }
        let mut rules: BTreeMap<&str, Nanousd> =
            losses.iter().map(|(cause, sum)| (cause.as_str(), sum.amount)).collect();
        for (account, balance) in &self.balances {
            let (cause, amount) = match account {
                BookAccount::ExpectedLoss { cause } => (cause, *balance),
                BookAccount::ContingentLiability { cause } => (cause, balance.saturating_neg()),
                _ => continue,
            };
            // Both sides are compared; the cause is taken off with the second, the liability.
            let expected = match account {
                BookAccount::ExpectedLoss { .. } => rules.get(cause.as_str()).copied(),
                _ => rules.remove(cause.as_str()),
            };
            compare_statistic(
                &format!("lost by {cause}"),
                amount,
                expected.unwrap_or_default(),
                found,
            );
        }
        for (cause, amount) in rules {
            compare_statistic(&format!("lost by {cause}"), 0, amount, found);
        }
    }

    fn compare_costs(&self, state: &BookState<'_>, found: &mut Vec<String>) {
        let mut payable: BTreeMap<&str, i128> = BTreeMap::new();
        let (mut answers, mut unpaid) = (0_i128, 0_i128);
        for (account, balance) in &self.balances {
            match account {
                BookAccount::Payable { upstream, .. } => {
                    let sum = payable.entry(upstream).or_default();
                    *sum = sum.saturating_sub(*balance);
                }
                BookAccount::UpstreamCost { kind: CostKind::Answer } => {
                    answers = answers.saturating_add(*balance);
                }
                BookAccount::UpstreamCost { .. } => unpaid = unpaid.saturating_add(*balance),
                _ => {}
            }
        }
        let mut all = MarginTotal::default();
        for (upstream, total) in &state.margins {
            all.add(total);
            let cost = total.cost.saturating_add(total.unpaid);
            let books = payable.remove(upstream.as_ref()).unwrap_or_default();
            compare_statistic(&format!("payable to {upstream}"), books, cost, found);
        }
        for (upstream, books) in payable {
            compare_statistic(&format!("payable to {upstream}"), books, Nanousd::ZERO, found);
        }
        compare_statistic("the cost of answers", answers, all.cost, found);
        compare_statistic("the cost of what nobody paid", unpaid, all.unpaid, found);
    }

    fn balance(&self, account: &BookAccount) -> i128 {
        self.balances.get(account).copied().unwrap_or_default()
    }
}

impl BookAccount {
    /// Name of the cause.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Cash => "cash",
            Self::Treasury => "treasury",
            Self::CreditLines => "credit_lines",
            Self::Receivable => "receivable",
            Self::Available => "customer_available",
            Self::Held => "customer_held",
            Self::Revenue => "revenue",
            Self::Unclaimed => "unclaimed",
            Self::WrittenOff => "written_off",
            Self::UpstreamCost { .. } => "upstream_cost",
            Self::Payable { .. } => "payable",
            Self::ExpectedLoss { .. } => "expected_loss",
            Self::ContingentLiability { .. } => "contingent_liability",
        }
    }

    fn line(&self, balance: i128) -> BookLine {
        let amount = magnitude(balance);
        let (debit, credit) =
            if balance < 0 { (Nanousd::ZERO, amount) } else { (amount, Nanousd::ZERO) };
        let mut line = BookLine {
            account: self.as_str().to_owned(),
            upstream: None,
            credential: None,
            cost_kind: None,
            cause: None,
            debit,
            credit,
        };
        match self {
            Self::UpstreamCost { kind } => line.cost_kind = Some(*kind),
            Self::Payable { upstream, credential } => {
                line.upstream = Some(upstream.as_ref().to_owned());
                line.credential = Some(credential.as_ref().to_owned());
            }
            Self::ExpectedLoss { cause } | Self::ContingentLiability { cause } => {
                line.cause = Some(cause.clone());
            }
            _ => {}
        }
        line
    }
}

/// Reports a difference between the books and the rules.
fn compare(what: &str, books: i128, rules: i128, found: &mut Vec<String>) {
    if books != rules {
        let (books, rules) = (text(books), text(rules));
        found.push(format!("books: {books} is {what}, but by the rules {rules}"));
    }
}

/// Notes a difference from a figure that stays at the end of its range.
fn compare_statistic(what: &str, books: i128, rules: Nanousd, found: &mut Vec<String>) {
    compare(what, books.min(i128::from(i64::MAX)), i128::from(rules.get()), found);
}

/// An amount without its sign. Past the range it stays at its end.
fn magnitude(amount: i128) -> Nanousd {
    i64::try_from(amount.unsigned_abs()).map_or(Nanousd::MAX, Nanousd::new)
}

fn text(amount: i128) -> String {
    let sign = if amount < 0 { "-" } else { "" };
    format!("{sign}{}", magnitude(amount))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::account::Account;
    use tollgate_types::clock::UnixMs;
    use tollgate_types::ids::AccountId;

    fn granted(amount: i64) -> (GeneralLedger, Core) {
        let account = AccountId::from_number(1);
        let at = UnixMs(1);
        let grant = Record::Granted { account, id: "g".into(), amount: Nanousd::new(amount), at };
        let (mut books, mut core) = (GeneralLedger::default(), Core::default());
        core.restore_account(Account::new(account, "a".into(), at));
        core.apply(1, &grant).expect("a good grant");
        books.enter(1, &grant);
        (books, core)
    }

    fn differences(books: &GeneralLedger, core: Core) -> Vec<String> {
        books.differences(&BookState { cores: &[core], margins: BTreeMap::new() })
    }

    #[test]
    fn whole_books_agree() {
        let (books, core) = granted(5);
        let balance = books.trial_balance();
        assert!(balance.adds_up);
        assert_eq!((balance.debit, balance.credit), (Nanousd::new(5), Nanousd::new(5)));
        assert_eq!(differences(&books, core), [""; 0]);
    }

    #[test]
    fn a_posting_without_its_other_side_is_found() {
        let (mut books, core) = granted(5);
        books.post(2, vec![Posting { account: BookAccount::Cash, amount: 3 }]);
        assert!(!books.trial_balance().adds_up);
        let found = differences(&books, core);
        assert!(found.iter().any(|what| what.contains("postings of record 2")), "{found:?}");
        assert!(found.iter().any(|what| what.contains("not to zero")), "{found:?}");
    }

    #[test]
    fn each_book_account_is_compared_with_the_rules() {
        let cause = || "retry".to_owned();
        let (upstream, credential): (Arc<str>, Arc<str>) = ("u".into(), "".into());
        let wrong = [
            (BookAccount::Cash, BookAccount::Available),
            (BookAccount::Treasury, BookAccount::Held),
            (BookAccount::CreditLines, BookAccount::Cash),
            (BookAccount::Receivable, BookAccount::Revenue),
            (BookAccount::Available, BookAccount::Held),
            (BookAccount::WrittenOff, BookAccount::Unclaimed),
            (
                BookAccount::UpstreamCost { kind: CostKind::Answer },
                BookAccount::Payable { upstream, credential },
            ),
            (
                BookAccount::ExpectedLoss { cause: cause() },
                BookAccount::ContingentLiability { cause: cause() },
            ),
        ];
        for (debit, credit) in wrong {
            let what = format!("{debit:?} against {credit:?}");
            let (mut books, core) = granted(5);
            let postings = [(debit, 1), (credit, -1)];
            books.post(2, postings.map(|(account, amount)| Posting { account, amount }).into());
            assert!(books.trial_balance().adds_up, "{what}");
            assert!(!differences(&books, core).is_empty(), "{what} was not found");
        }
    }

    #[test]
    fn what_the_rules_have_and_the_books_lack_is_found() {
        let (_, core) = granted(5);
        assert_eq!(differences(&GeneralLedger::default(), core).len(), 2, "granted, available");
    }
}
