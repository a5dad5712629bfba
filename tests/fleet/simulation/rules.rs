//! Rules that must hold after every step and at the end.

use tollgate::fleet::treasury::AccountFunds;
use tollgate::ledger::AccountId;

use super::node::SimulatedNode;
use super::world::{World, ms};

impl World {
    /// Checks the rules of money, and what those could have who wait for some.
    pub(crate) fn check(&mut self) {
        let records = self.nodes.iter().map(|node| node.books.version()).sum();
        if self.checked == (self.counts.syncs, records) {
            return;
        }
        self.checked = (self.counts.syncs, records);
        let purses: Vec<(AccountId, AccountFunds)> =
            self.treasury.accounts().map(|(account, funds)| (account, *funds)).collect();
        for (account, funds) in &purses {
            assert!(funds.is_sound(), "{account}: {funds:?}");
            self.check_account(*account, funds);
        }
        for (account, _) in &purses {
            self.watch_waiting(*account);
        }
    }

    fn check_account(&self, account: AccountId, funds: &AccountFunds) {
        let (mut leased, mut own, mut charged, mut owed) = (0, 0, 0, 0);
        for (number, node) in self.nodes.iter().enumerate() {
            let lease = self.treasury.leased(node.id, account).get();
            leased += lease;
            charged += node.books.used(account).charged;
            owed += node.books.reported(account).owed;
            let outstanding = node.books.outstanding(account);
            if !node.is_lost {
                let balance = node.books.balance(account);
                own += balance.available.get() + balance.held.get();
            }
            assert!(
                outstanding <= lease
                    || node.resolved.contains_key(&account)
                    || node.short.contains(&account),
                "node {number} has {outstanding} of {account}, and was lent {lease}"
            );
        }
        let out = funds.leased.get() + funds.suspense.get();
        assert_eq!(leased, out, "the leases of {account} sum up to what is out");
        // What an operator made available again can be spent twice: by a node that was not dead, until
        // the treasury hears of it; and what is lost by then was spent twice.
        let released = self.nodes.iter().filter_map(|node| node.resolved.get(&account));
        let released: i64 = released.map(|(released, _)| released).sum();
        let made_available = released + self.lost.get(&account).copied().unwrap_or_default();
        // What was owed and is not any more was paid.
        let line_owed = self.line_owed.get(&account).copied().unwrap_or_default();
        let paid = owed + line_owed - funds.debt.get();
        assert!(paid >= 0, "{account} owes more than its calls left owing: {funds:?}");
        assert_eq!(funds.available.min(funds.debt).get(), 0, "what can be paid is: {funds:?}");
        let all = charged - line_owed + paid + own + funds.available.get();
        assert!(
            all <= funds.granted.get() + made_available,
            "{account}: {charged} is spent, nodes can spend {own} more: {funds:?}"
        );
    }

    /// Money of an account at the treasury, and with the leases that no node needs.
    pub(crate) fn to_be_had(&self, account: AccountId) -> (i64, i64) {
        let available = self.treasury.funds(account).map_or(0, |funds| funds.available.get());
        let unused = self.nodes.iter().map(|node| {
            if self.treasury.is_suspended(node.id) {
                return 0;
            }
            let lease = self.treasury.leased(node.id, account).get();
            (lease - node.books.held_or_charged(account)).max(0)
        });
        let debt = self.treasury.funds(account).map_or(0, |funds| funds.debt.get());
        (available, (available + unused.sum::<i64>() - debt).max(0))
    }

    /// Notes what there is while calls wait for it.
    fn watch_waiting(&mut self, account: AccountId) {
        let waits = |node: &SimulatedNode| {
            node.process.as_ref().is_some_and(|process| !process.waiting.is_empty())
        };
        if !self.nodes.iter().any(waits) {
            return;
        }
        let now = self.to_be_had(account);
        if self.had.insert(account, now) == Some(now) {
            return;
        }
        for node in &mut self.nodes {
            let Some(process) = node.process.as_mut() else { continue };
            let calls = process.waiting.values_mut().filter(|call| call.account == account);
            calls.for_each(|call| call.saw(now));
        }
    }

    /// Everything comes back and ends, and every nano-dollar is accounted for.
    pub(crate) fn finish(&mut self) {
        self.is_ending = true;
        self.note(|| "everything comes back".to_owned());
        for number in 0..self.nodes.len() {
            self.nodes[number].stopped_until = self.now;
            self.start(number);
        }
        // The longest call, a process that is shut out, the term of a lost node, and idle money.
        self.run_until(self.now + ms(50_000));
        for (account, funds) in self.treasury.clone().accounts() {
            self.check_end(account, funds);
        }
    }

    fn check_end(&self, account: AccountId, funds: &AccountFunds) {
        let (mut counted_spent, released) =
            (0, self.lost.get(&account).copied().unwrap_or_default());
        let (mut charged, mut owed, mut written_off, mut lost) = (0, 0, 0, 0);
        for (number, node) in self.nodes.iter().enumerate() {
            let reported = node.books.reported(account);
            charged += reported.charged;
            owed += reported.owed;
            written_off += reported.written_off;
            let lease = self.treasury.leased(node.id, account).get();
            if node.is_lost {
                lost += lease;
                counted_spent += node.resolved.get(&account).map_or(0, |(_, charged)| *charged);
                continue;
            }
            assert_eq!(node.resolved.get(&account), None, "node {number} was heard of");
            assert_eq!(reported, node.books.used(account), "node {number} has reported all");
            assert_eq!(
                node.books.outstanding(account),
                0,
                "node {number} has given back {account}"
            );
            assert_eq!(lease, 0, "the treasury has back what node {number} had of {account}");
        }
        assert_eq!(funds.leased.get(), 0, "{account}: {funds:?}");
        assert_eq!(funds.suspense.get(), lost, "only lost disks stay in suspense: {funds:?}");
        let unpaid = funds.written_off.get() - written_off;
        assert_eq!(
            funds.spent.get() + unpaid + funds.debt.get(),
            charged + owed + counted_spent,
            "{account}: {charged} was charged, {owed} left owing, {unpaid} of it after an operator had resolved it"
        );
        assert!(
            (0..=released).contains(&unpaid),
            "{account}: {unpaid} was written off, and {released} was released and lost"
        );
    }
}
