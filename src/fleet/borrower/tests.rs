use super::*;

/// A node that has nothing, and nothing to say.
struct Nothing;

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

    fn report(&mut self, _: Seq) -> Result<Option<Report>, Unreadable> {
        Ok(None)
    }
}

/// When the next exchange is due after one that is sent at 10 s and answered so much later.
fn due_after(answered_after_ms: u64) -> Duration {
    let joined = Joined { epoch: 1, turn: 0, reported: 0 };
    let node = NodeId::from_number(1).expect("a node");
    let mut borrower = Borrower::new(node, joined, Duration::from_secs(2));
    let sent_at = Duration::from_secs(10);
    borrower.exchange(sent_at, &mut Nothing);
    let answered_at = sent_at.saturating_add(Duration::from_millis(answered_after_ms));
    borrower.answered(&Answer::default(), answered_at, &mut Nothing);
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
