use super::*;
use tollgate_ledger::FleetHistory;
use tollgate_ledger::LeaseSettlement;

/// A node without accounts, whose journal has `behind` unreported records.
#[derive(Default)]
struct EmptyNode {
    behind: u64,
}

impl LocalFunds for EmptyNode {
    fn available(&self, _: AccountId) -> Nanousd {
        Nanousd::ZERO
    }

    fn held(&self, _: AccountId) -> Nanousd {
        Nanousd::ZERO
    }

    fn reserved(&self, _: AccountId) -> Nanousd {
        Nanousd::ZERO
    }

    fn give_back(&mut self, _: AccountId, _: Nanousd) -> bool {
        false
    }

    fn take_in(&mut self, _: AccountId, _: Nanousd) {}

    fn watch(&mut self, _: AccountId, _: Nanousd) {}

    fn report(&mut self, from: Seq) -> Result<Option<LeaseReport>, Unreadable> {
        let reported = self.behind.min(RECORDS_MAX);
        self.behind = self.behind.saturating_sub(reported);
        let (settled, history) = (Vec::new(), FleetHistory::default());
        let to = from.saturating_add(reported);
        Ok((reported > 0).then_some(LeaseReport { from, to, settled, history }))
    }
}

/// The time of the next sync after one that is sent at 10 s and answered so much later.
fn due_after(answered_after_ms: u64) -> Duration {
    let joined = JoinResponse { epoch: 1, turn: 0, reported: 0 };
    let node = NodeId::from_number(1).expect("a node");
    let mut borrower = Borrower::new(node, joined, Duration::from_secs(2));
    let sent_at = Duration::from_secs(10);
    borrower.sync(sent_at, &mut EmptyNode::default());
    let answered_at = sent_at.saturating_add(Duration::from_millis(answered_after_ms));
    borrower.answered(&SyncResponse::default(), answered_at, &mut EmptyNode::default());
    borrower.due_at(answered_at).saturating_sub(sent_at)
}

#[test]
fn a_slow_answer_does_not_delay_the_next_sync() {
    let ms = Duration::from_millis;
    assert_eq!(due_after(10), ms(500), "a beat from when it was sent");
    assert_eq!(due_after(400), ms(500));
    assert_eq!(due_after(900), ms(900), "at once");
    assert_eq!(due_after(2100), ms(2100), "the term is over");
}

#[test]
fn all_who_gave_up_while_the_treasury_was_silent_are_forgotten_at_once() {
    let node = NodeId::from_number(1).expect("a node");
    let joined = JoinResponse { epoch: 1, turn: 0, reported: node.begin() };
    let mut borrower = Borrower::new(node, joined, Duration::from_secs(10));
    let account = AccountId::from_number(1);
    let wait = |_| (account, borrower.wait(account, Nanousd::new(1), Duration::ZERO));
    let cancelled: Vec<_> = (0..100_000).map(wait).collect();
    // One by one, this would take minutes.
    borrower.forget(&cancelled);
    assert!(borrower.needs[&account].waiting.is_empty());
}

fn borrower() -> Borrower {
    let node = NodeId::from_number(1).expect("a node");
    let joined = JoinResponse { epoch: 1, turn: 0, reported: node.begin() };
    Borrower::new(node, joined, Duration::from_secs(10))
}

#[test]
fn accounts_beyond_one_sync_are_requested_in_turn() {
    let (mut borrower, mut local) = (borrower(), EmptyNode::default());
    let all = u64::try_from(ASKS_MAX).expect("few") * 2 + 10;
    for number in 1..=all {
        borrower.wait(AccountId::from_number(number), Nanousd::new(1), Duration::ZERO);
    }
    let (now, mut accounts) = (Duration::from_secs(1), BTreeSet::new());
    for _ in 0..3 {
        assert!(borrower.due_at(now) <= now, "there is more to ask for");
        let sync = borrower.sync(now, &mut local);
        assert!(sync.requests.len() <= ASKS_MAX, "{}", sync.requests.len());
        assert!(sync.requests.is_sorted_by_key(|request| request.account), "as rows are locked");
        accounts.extend(sync.requests.iter().map(|request| request.account));
        borrower.answered(&SyncResponse::default(), now, &mut local);
    }
    assert_eq!(accounts.len() as u64, all, "nobody is left out");
}

#[test]
fn what_piled_up_is_reported_without_a_pause() {
    let (mut borrower, mut local) = (borrower(), EmptyNode { behind: RECORDS_MAX * 2 + 1 });
    let now = Duration::from_secs(1);
    let mut dues = Vec::new();
    for _ in 0..3 {
        borrower.sync(now, &mut local);
        borrower.answered(&SyncResponse::default(), now, &mut local);
        dues.push(borrower.due_at(now).saturating_sub(now));
    }
    assert_eq!(dues, [Duration::ZERO, Duration::ZERO, BEAT]);
}

/// An account whose holds are ten times what calls are charged.
struct BusyAccount {
    available: i64,
    reserved: i64,
    charged: i64,
}

impl LocalFunds for BusyAccount {
    fn available(&self, _: AccountId) -> Nanousd {
        Nanousd::new(self.available)
    }

    fn held(&self, _: AccountId) -> Nanousd {
        Nanousd::ZERO
    }

    fn reserved(&self, _: AccountId) -> Nanousd {
        Nanousd::new(self.reserved)
    }

    fn give_back(&mut self, _: AccountId, amount: Nanousd) -> bool {
        self.available = self.available.saturating_sub(amount.get());
        true
    }

    fn take_in(&mut self, _: AccountId, amount: Nanousd) {
        self.available = self.available.saturating_add(amount.get());
    }

    fn watch(&mut self, _: AccountId, _: Nanousd) {}

    fn report(&mut self, from: Seq) -> Result<Option<LeaseReport>, Unreadable> {
        let charged = Nanousd::new(std::mem::take(&mut self.charged));
        let settled = LeaseSettlement {
            account: AccountId::from_number(1),
            charged,
            owed: Nanousd::ZERO,
            written_off: Nanousd::ZERO,
            returned: Nanousd::ZERO,
        };
        let history = FleetHistory::default();
        Ok(Some(LeaseReport { from, to: from.saturating_add(1), settled: vec![settled], history }))
    }
}

/// A node can go on for a term at its pace whenever the treasury falls silent, and borrows neither ten
/// times as much, which its holds would suggest, nor gives back what it needs for that.
#[test]
fn what_is_spent_is_borrowed_for_a_term_ahead() {
    const USD: i64 = 1_000_000_000;
    for (cover, seconds) in [(None, 10), (Some(Duration::from_secs(30)), 30)] {
        let node = NodeId::from_number(1).expect("a node");
        let joined = JoinResponse { epoch: 1, turn: 0, reported: node.begin() };
        let mut borrower = Borrower::new(node, joined, Duration::from_secs(10));
        borrower = borrower.covering(cover.unwrap_or(Duration::from_secs(10)));
        let mut local = BusyAccount { available: 0, reserved: 0, charged: 0 };
        let account = AccountId::from_number(1);
        borrower.wait(account, Nanousd::new(USD), Duration::ZERO);
        // A dollar a second is charged, ten are held.
        for beat in 1..60_u64 {
            let now = Duration::from_millis(beat * 500);
            (local.reserved, local.charged) = (local.reserved + 5 * USD, USD / 2);
            local.available -= USD / 2;
            let sync = borrower.sync(now, &mut local);
            let loans =
                sync.requests.iter().map(|request| (request.account, Loan::Lent(request.most)));
            let answer = SyncResponse { loans: loans.collect(), ..SyncResponse::default() };
            borrower.answered(&answer, now, &mut local);
            if beat > 10 {
                let of_term = local.available / USD;
                // Two seconds of holds are there, too, and a quarter more of what is charged.
                let most = seconds + seconds / 4 + 22;
                assert!((seconds..=most).contains(&of_term), "{of_term} at {beat}");
            }
        }
    }
}

/// A node where one call at a time holds four dollars for eight seconds, is charged five cents, and the
/// next comes four seconds later: what a coding agent does. It gets all that it asks for.
fn agent_finds(cover_s: u64) -> Vec<i64> {
    const HOLD: i64 = 4_000_000_000;
    const CENT: i64 = 10_000_000;
    let account = AccountId::from_number(1);
    let mut borrower = borrower().covering(Duration::from_secs(cover_s));
    let mut local = Agent::default();
    let mut found = Vec::new();
    for beat in 1..200_u64 {
        let (now, begins) = (Duration::from_millis(beat.saturating_mul(500)), beat % 24 == 4);
        if begins {
            found.push(local.busy.available);
            borrower.wait(account, Nanousd::new(HOLD), now);
        } else if beat % 24 == 20 {
            local.busy.available = local.busy.available.saturating_add(HOLD - 5 * CENT);
            local.busy.charged = 5 * CENT;
            local.held = 0;
        }
        let sync = borrower.sync(now, &mut local);
        let loans = sync.requests.iter().map(|request| (request.account, Loan::Lent(request.most)));
        let answer = SyncResponse { loans: loans.collect(), ..SyncResponse::default() };
        borrower.answered(&answer, now, &mut local);
        if begins {
            local.busy.available = local.busy.available.saturating_sub(HOLD);
            local.busy.reserved = local.busy.reserved.saturating_add(HOLD);
            local.held = HOLD;
        }
    }
    found.split_off(1)
}

struct Agent {
    busy: BusyAccount,
    held: i64,
}

impl Default for Agent {
    fn default() -> Self {
        Self { busy: BusyAccount { available: 0, reserved: 0, charged: 0 }, held: 0 }
    }
}

impl LocalFunds for Agent {
    fn available(&self, account: AccountId) -> Nanousd {
        self.busy.available(account)
    }

    fn held(&self, _: AccountId) -> Nanousd {
        Nanousd::new(self.held)
    }

    fn reserved(&self, account: AccountId) -> Nanousd {
        self.busy.reserved(account)
    }

    fn give_back(&mut self, account: AccountId, amount: Nanousd) -> bool {
        self.busy.give_back(account, amount)
    }

    fn take_in(&mut self, account: AccountId, amount: Nanousd) {
        self.busy.take_in(account, amount);
    }

    fn watch(&mut self, _: AccountId, _: Nanousd) {}

    fn report(&mut self, from: Seq) -> Result<Option<LeaseReport>, Unreadable> {
        self.busy.report(from)
    }
}

#[test]
fn calls_that_take_long_and_come_seldom_find_their_money_here() {
    for cover_s in [10, 30] {
        let found = agent_finds(cover_s);
        // Nobody waits behind the first: what it held is still there for the next.
        let short = found.iter().find(|available| **available < 4_000_000_000);
        assert!(found.len() > 6 && short.is_none(), "{cover_s}: {found:?}");
        // Not much more than that lies here either: a call's hold, and what a term is charged.
        let most = found.iter().max().expect("some");
        assert!(*most < 8_000_000_000, "{cover_s}: {found:?}");
    }
}

/// Unused money is returned after the time it was borrowed for, not sooner, and is not borrowed again for
/// earlier charges.
#[test]
fn what_nobody_uses_goes_back_after_the_time_that_is_covered_and_stays_there() {
    const HOLD: i64 = 50_000_000;
    let account = AccountId::from_number(1);
    for (cover_s, idle_s) in [(2, 5), (10, 10), (30, 30)] {
        let mut borrower = borrower().covering(Duration::from_secs(cover_s));
        let mut local = Agent::default();
        borrower.wait(account, Nanousd::new(HOLD), Duration::ZERO);
        let mut had_at = 0;
        for beat in 1..300_u64 {
            let now = Duration::from_millis(beat * 500);
            if beat == 4 {
                (local.busy.available, local.held) = (local.busy.available + HOLD / 2, 0);
                local.busy.charged = HOLD / 2;
            }
            let sync = borrower.sync(now, &mut local);
            let loans =
                sync.requests.iter().map(|request| (request.account, Loan::Lent(request.most)));
            let answer = SyncResponse { loans: loans.collect(), ..SyncResponse::default() };
            borrower.answered(&answer, now, &mut local);
            if beat == 1 {
                local.busy.available -= HOLD;
                (local.busy.reserved, local.held) = (HOLD, HOLD);
            }
            if local.busy.available > 0 {
                had_at = now.as_secs();
            }
        }
        let idle = idle_s..=idle_s + 3;
        assert!(idle.contains(&had_at), "{cover_s}: there was something at {had_at} s");
    }
}
