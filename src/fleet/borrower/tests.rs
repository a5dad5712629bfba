use super::*;
use crate::ledger::History;

/// A node that has nothing, and nothing to say but so many records of its journal.
#[derive(Default)]
struct Nothing {
    behind: u64,
}

impl Local for Nothing {
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

    fn report(&mut self, from: Seq) -> Result<Option<Report>, Unreadable> {
        let told = self.behind.min(RECORDS_MAX);
        self.behind = self.behind.saturating_sub(told);
        let (settled, history) = (Vec::new(), History::default());
        let to = from.saturating_add(told);
        Ok((told > 0).then_some(Report { from, to, settled, history }))
    }
}

/// When the next exchange is due after one that is sent at 10 s and answered so much later.
fn due_after(answered_after_ms: u64) -> Duration {
    let joined = Joined { epoch: 1, turn: 0, reported: 0 };
    let node = NodeId::from_number(1).expect("a node");
    let mut borrower = Borrower::new(node, joined, Duration::from_secs(2));
    let sent_at = Duration::from_secs(10);
    borrower.exchange(sent_at, &mut Nothing::default());
    let answered_at = sent_at.saturating_add(Duration::from_millis(answered_after_ms));
    borrower.answered(&Answer::default(), answered_at, &mut Nothing::default());
    borrower.due_at(answered_at).saturating_sub(sent_at)
}

#[test]
fn a_treasury_that_answers_late_is_asked_again_the_sooner() {
    let ms = Duration::from_millis;
    assert_eq!(due_after(10), ms(500), "a beat from when it was sent");
    assert_eq!(due_after(400), ms(500));
    assert_eq!(due_after(900), ms(900), "at once");
    assert_eq!(due_after(2100), ms(2100), "the term is over");
}

#[test]
fn all_who_gave_up_while_the_treasury_was_silent_are_forgotten_at_once() {
    let node = NodeId::from_number(1).expect("a node");
    let joined = Joined { epoch: 1, turn: 0, reported: node.begin() };
    let mut borrower = Borrower::new(node, joined, Duration::from_secs(10));
    let account = AccountId::from_number(1);
    let wait = |_| (account, borrower.wait(account, Nanousd::new(1), Duration::ZERO));
    let gone: Vec<_> = (0..100_000).map(wait).collect();
    // One by one, this would take minutes.
    borrower.forget(&gone);
    assert!(borrower.needs[&account].waiting.is_empty());
}

fn borrower() -> Borrower {
    let node = NodeId::from_number(1).expect("a node");
    let joined = Joined { epoch: 1, turn: 0, reported: node.begin() };
    Borrower::new(node, joined, Duration::from_secs(10))
}

#[test]
fn more_accounts_than_one_exchange_takes_are_asked_for_one_after_the_other() {
    let (mut borrower, mut local) = (borrower(), Nothing::default());
    let all = u64::try_from(ASKS_MAX).expect("few") * 2 + 10;
    for number in 1..=all {
        borrower.wait(AccountId::from_number(number), Nanousd::new(1), Duration::ZERO);
    }
    let (now, mut asked) = (Duration::from_secs(1), BTreeSet::new());
    for _ in 0..3 {
        assert!(borrower.due_at(now) <= now, "there is more to ask for");
        let exchange = borrower.exchange(now, &mut local);
        assert!(exchange.asks.len() <= ASKS_MAX, "{}", exchange.asks.len());
        assert!(exchange.asks.is_sorted_by_key(|ask| ask.account), "as rows are locked");
        asked.extend(exchange.asks.iter().map(|ask| ask.account));
        borrower.answered(&Answer::default(), now, &mut local);
    }
    assert_eq!(asked.len() as u64, all, "nobody is left out");
}

#[test]
fn what_piled_up_is_reported_without_a_pause() {
    let (mut borrower, mut local) = (borrower(), Nothing { behind: RECORDS_MAX * 2 + 1 });
    let now = Duration::from_secs(1);
    let mut dues = Vec::new();
    for _ in 0..3 {
        borrower.exchange(now, &mut local);
        borrower.answered(&Answer::default(), now, &mut local);
        dues.push(borrower.due_at(now).saturating_sub(now));
    }
    assert_eq!(dues, [Duration::ZERO, Duration::ZERO, BEAT]);
}
