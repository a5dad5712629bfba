//! Random events of a fleet: customers, faults and operators.

use std::time::Duration;

use super::node::{Call, SimulatedNode};
use super::world::{Event, TERM, World, ms, usd};

impl World {
    /// Gives money to an account.
    pub(crate) fn grant(&mut self, account: usize, amount: i64) {
        let account = self.accounts[account];
        self.treasury.grant(account, usd(amount));
        self.checked = (0, 0);
        self.note(|| format!("{account} is granted {amount}"));
    }

    /// Raises or lowers the credit line of an account, or takes it away.
    fn set_line(&mut self, account: usize) {
        let account = self.accounts[account];
        let limit = if self.rng.bool() { self.rng.i64(0..60_000_000) } else { 0 };
        let set = self.treasury.set_credit(account, usd(limit));
        self.checked = (0, 0);
        match set {
            Ok(change) => {
                self.counts.lines += 1;
                self.counts.lines_owed += u64::from(!change.owed.is_zero());
                *self.line_owed.entry(account).or_default() += change.owed.get();
                self.note(|| format!("the line of {account}: {change:?}"));
            }
            Err(fault) => {
                self.counts.lines_refused += 1;
                self.note(|| format!("the line of {account} stays: {fault:?}"));
            }
        }
    }

    pub(crate) fn call(&mut self, node: usize, account: usize, amount: i64, charge: Option<i64>) {
        let lasts = match self.rng.u32(0..20) {
            0 => ms(self.rng.u64(5_000..15_000)),
            1..5 => ms(self.rng.u64(1_000..5_000)),
            _ => ms(self.rng.u64(5..1_000)),
        };
        let call = Call {
            account: self.accounts[account],
            amount,
            charge,
            lasts,
            began: self.now,
            since: None,
            least_available: i64::MAX,
            least_free: i64::MAX,
        };
        self.admit(node, call);
    }

    /// One of a node's customers calls: of accounts with much money and with little.
    pub(crate) fn customer_calls(&mut self, node: usize) {
        let Some(every) = self.scene.call_every.filter(|_| !self.is_ending) else { return };
        let gap =
            if self.rng.u32(0..10) == 0 { every * 6 } else { every * self.rng.u32(0..10) / 10 };
        self.plan(gap + ms(1), Event::Calls { node });
        if self.nodes[node].process.is_none() {
            return;
        }
        let account = self.rng.usize(0..self.accounts.len());
        let amount = match self.rng.u32(0..10) {
            0 => self.rng.i64(1..20),
            1..4 => 5_000_000,
            4..9 => self.rng.i64(1_000_000..10_000_000),
            _ => self.rng.i64(10_000_000..40_000_000),
        };
        let charge = match self.rng.u32(0..10) {
            0 | 1 => None,
            2 => Some(amount),
            3 => Some(amount + self.rng.i64(1..=amount)),
            _ => Some(self.rng.i64(0..=amount)),
        };
        self.call(node, account, amount, charge);
    }

    /// Something goes wrong with a node, or with the treasury.
    pub(crate) fn fault(&mut self) {
        if self.is_ending {
            return;
        }
        let next = ms(self.rng.u64(200..10_000));
        self.plan(next, Event::Fault);
        let node = self.rng.usize(0..self.nodes.len());
        let lasts = match self.rng.u32(0..5) {
            0..3 => ms(self.rng.u64(100..2_000)),
            3 => ms(self.rng.u64(2_000..12_000)),
            _ => TERM * 2 + ms(self.rng.u64(0..8_000)),
        };
        match self.rng.u32(0..12) {
            0..4 => {
                self.kill(node);
                let wait = self.rng.u64(10..2_000);
                let wait = if self.rng.u32(0..5) == 0 { ms(25_000) } else { ms(wait) };
                self.plan(wait, Event::Starts { node });
            }
            4 if self.nodes.len() < 8 && !self.nodes[node].is_lost => self.lose(node),
            4..7 => {
                self.nodes[node].stopped_until = self.now + lasts;
                self.note(|| format!("node {node} is stopped for {lasts:?}"));
            }
            7..9 => {
                self.nodes[node].cut_until = self.now + lasts;
                self.note(|| format!("node {node} is cut off for {lasts:?}"));
            }
            9..11 => {
                self.cut_until = self.now + lasts;
                self.note(|| format!("the treasury is gone for {lasts:?}"));
            }
            _ => self.jump(),
        }
    }

    /// A node's disk is gone, and another node comes in its place.
    fn lose(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        // What a crash can take back is gone, too.
        if node.process.is_some() {
            node.books.crash(0.0);
        }
        node.process = None;
        node.is_lost = true;
        node.stopped_until = Duration::ZERO;
        self.note(|| format!("the disk of node {number} is lost"));
        self.add_node();
    }

    /// Another primary's clock: at most five seconds from the first one's, and not again before all
    /// terms that were counted by the one before are over.
    fn jump(&mut self) {
        if self.now < self.jumped_at + TERM * 3 {
            return;
        }
        (self.jumped_ms, self.jumped_at) = (self.rng.i64(-2_500..=2_500), self.now);
        let jumped_ms = self.jumped_ms;
        self.note(|| format!("the treasury's clock is off by {jumped_ms} ms"));
    }

    /// Operators give money, and say what became of money in suspense.
    pub(crate) fn operate(&mut self) {
        if self.is_ending {
            return;
        }
        let next = ms(self.rng.u64(500..8_000));
        self.plan(next, Event::Operator);
        let account = self.rng.usize(1..self.accounts.len());
        if self.rng.u32(0..4) == 0 {
            return self.set_line(account);
        }
        if self.rng.u32(0..3) > 0 {
            let amount = self.rng.i64(1_000_000..30_000_000);
            return self.grant(account, amount);
        }
        let (account, was_spent) = (self.accounts[account], self.rng.bool());
        let in_suspense = |node: &&SimulatedNode| {
            self.treasury.is_suspended(node.id) && !self.treasury.leased(node.id, account).is_zero()
        };
        let Some(node) = self.nodes.iter().position(|node| in_suspense(&node)) else { return };
        // Most often it is a node that will not come back.
        if !self.nodes[node].is_lost && self.rng.u32(0..3) > 0 {
            return;
        }
        let amount = self.treasury.resolve(self.nodes[node].id, account, was_spent).get();
        let (released, charged) = self.nodes[node].resolved.entry(account).or_default();
        *(if was_spent { charged } else { released }) += amount;
        self.nodes[node].shut_out = self.nodes[node].epoch;
        self.counts.resolved += 1;
        self.checked = (0, 0);
        self.note(|| {
            format!("{amount} of {account} of node {node} is resolved, spent: {was_spent}")
        });
    }
}
