//! Streams of random paces, bursts and pauses over accounts that others spend from at the same time.

use super::*;

/// A token of output costs this.
const TOKEN: i64 = 25;
const SLICE: Nanousd = Nanousd::new(4_096 * TOKEN);
const STEP: Nanousd = Nanousd::new(256 * TOKEN);
/// The longest time that the disk needs for a record.
const FLUSH: Duration = Duration::from_millis(12);

/// An account and the one hold that is looked at, with a disk that is late.
#[derive(Debug)]
struct LateDiskAccount {
    now: Instant,
    available: Nanousd,
    held: Nanousd,
    durable: Nanousd,
    /// Time at which the latest extension is durable.
    written: Instant,
    extensions: Vec<Instant>,
    /// Money elsewhere in the fleet, and the pending transfer.
    elsewhere: Nanousd,
    arrives: Option<(Instant, Nanousd)>,
}

impl LateDiskAccount {
    fn new(now: Instant, available: Nanousd, held: Nanousd) -> Self {
        let (extensions, elsewhere) = (Vec::new(), Nanousd::ZERO);
        let (durable, written, arrives) = (held, now, None);
        Self { now, available, held, durable, written, extensions, elsewhere, arrives }
    }

    fn advance(&mut self, by: Duration) {
        self.now += by;
        if self.now >= self.written {
            self.durable = self.held;
        }
        if let Some((at, amount)) = self.arrives
            && self.now >= at
        {
            self.available = self.available.saturating_add(amount);
            self.arrives = None;
        }
    }
}

impl GrowthFunds for LateDiskAccount {
    fn amount(&self) -> Nanousd {
        self.held
    }

    fn durable_amount(&self) -> Nanousd {
        self.durable
    }

    fn available(&self) -> Nanousd {
        self.available
    }

    fn extend(&mut self, amount: Nanousd) -> Result<(), Refusal> {
        assert!(amount > Nanousd::ZERO, "an extension by {amount}");
        if amount > self.available {
            return Err(Refusal::Insufficient { available: self.available });
        }
        self.available = self.available.saturating_sub(amount);
        self.held = self.held.saturating_add(amount);
        self.written = self.now + FLUSH;
        self.extensions.push(self.now);
        Ok(())
    }

    fn fetches(&mut self, amount: Nanousd) -> bool {
        if self.arrives.is_some() {
            return true;
        }
        let amount = amount.min(self.elsewhere);
        self.elsewhere = self.elsewhere.saturating_sub(amount);
        self.arrives = (!amount.is_zero()).then(|| (self.now + Duration::from_millis(80), amount));
        self.arrives.is_some()
    }
}

/// A stream over an account.
struct FakeStream {
    account: LateDiskAccount,
    roll: Roll,
    bound: Nanousd,
    input: Nanousd,
    tokens: i64,
    /// The cost of what has reached the customer.
    delivered: Nanousd,
    waits: Vec<Duration>,
    is_cut: bool,
}

impl FakeStream {
    fn new(now: Instant, balance: Nanousd, bound: Nanousd, input: Nanousd) -> Self {
        let held = input.saturating_add(SLICE).min(bound);
        let account = LateDiskAccount::new(now, balance.saturating_sub(held), held);
        let roll = Roll::new(RollCosts { bound, slice: SLICE, step: STEP, input }, now);
        let (tokens, waits) = (0, Vec::new());
        let delivered = Nanousd::ZERO;
        Self { account, roll, bound, input, tokens, delivered, waits, is_cut: false }
    }

    /// Takes a chunk of so many tokens, as `Relaying` does.
    fn take(&mut self, tokens: i64) {
        self.tokens += tokens;
        let output = Nanousd::new(self.tokens * TOKEN);
        let all = self.input.saturating_add(output);
        self.roll.note(RelayedCost { total: all, output }, false, self.account.now);
        let began = self.account.now;
        if !self.roll.covers(&mut self.account, began) {
            self.wait_until_covered();
            self.waits.push(self.account.now - began);
        }
        if !self.is_cut {
            self.delivered = all;
            assert!(all <= self.account.durable, "{all} sent over {:?}", self.account);
        }
    }

    fn wait_until_covered(&mut self) {
        let lacks = self.roll.lacks(self.account.amount());
        if lacks > Nanousd::ZERO {
            let wait = self.roll.wait(self.account.now);
            if !wait.is_zero() && self.account.available < lacks && self.account.elsewhere.is_zero()
            {
                self.is_cut = true;
                return;
            }
            self.account.advance(wait);
            let extension = self.roll.next_extension(&self.account, self.account.now).max(lacks);
            if let Err(refusal) = self.account.extend(extension) {
                let part = part_of(&refusal, extension);
                if part < lacks || self.account.extend(part).is_err() {
                    self.is_cut = true;
                    return;
                }
            }
            self.roll.note_extension(self.account.now);
        }
        let until = self.account.written.saturating_duration_since(self.account.now);
        self.account.advance(until);
    }

    /// Check the invariants of every stream.
    fn check(&self, of: &str) {
        for pair in self.account.extensions.windows(2) {
            let apart = pair[1] - pair[0];
            assert!(apart >= SPACING, "{of}: two extensions within {apart:?}");
        }
        assert!(self.account.held <= self.bound, "{of}: {} is held", self.account.held);
        let longest = self.waits.iter().max().copied().unwrap_or_default();
        assert!(longest <= SPACING + FLUSH, "{of}: a piece waited for {longest:?}");
    }
}

fn tokens(count: i64) -> Nanousd {
    Nanousd::new(count * TOKEN)
}

#[test]
fn a_steady_stream_never_waits_and_seldom_writes() {
    for pace in [20, 80, 400, 2_000, 10_000] {
        let now = Instant::now();
        let bound = tokens(3_000).saturating_add(tokens(64_000));
        // Twice the bound: it is never rich enough to hold the rest at once.
        let mut stream = FakeStream::new(now, tokens(134_000), bound, tokens(3_000));
        let chunk = (pace / 50).max(1);
        while stream.tokens + chunk <= 64_000 {
            stream.account.advance(Duration::from_millis((chunk * 1_000 / pace).unsigned_abs()));
            stream.take(chunk);
        }
        let of = format!("{pace} tokens a second");
        stream.check(&of);
        assert!(!stream.is_cut && stream.waits.is_empty(), "{of}: waits {:?}", stream.waits);
        let extensions = stream.account.extensions.len();
        assert!((1..=8).contains(&extensions), "{of}: {extensions} extensions");
    }
}

#[test]
fn random_streams_stay_within_their_durable_holds() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut cut, mut ended, mut waited) = (0, 0, 0);
    for round in 0..4_000 {
        let input = tokens(random.i64(1..20_000));
        let output_max = [300, 4_096, 16_000, 64_000, 128_000][random.usize(..5)];
        let bound = input.saturating_add(tokens(output_max));
        let least = input.saturating_add(SLICE).min(bound);
        let more_max = [1, 2_000, 40_000, 2_000_000][random.usize(..4)];
        let balance = least.saturating_add(tokens(random.i64(0..more_max)));
        let mut stream = FakeStream::new(Instant::now(), balance, bound, input);
        if random.u8(..4) == 0 {
            // Half of what is there is at other nodes.
            let half = Nanousd::new(stream.account.available.get() / 2);
            stream.account.elsewhere = half;
            stream.account.available = stream.account.available.saturating_sub(half);
        }
        let length = random.i64(1..=output_max);
        let mut pace = random.u64(1..400);
        let mut taken_by_others = Nanousd::ZERO;
        while stream.tokens < length && !stream.is_cut {
            if random.u8(..40) == 0 {
                pace = [0, 1, 5, 50, 400][random.usize(..5)];
                let pause = [0, 10, 1_000, 300_000][random.usize(..4)];
                stream.account.advance(Duration::from_millis(pause));
            }
            if random.u8(..30) == 0 {
                // Another call of the account takes what it can, or gives it back.
                let part = Nanousd::new(random.i64(0..=stream.account.available.get()));
                let back = if random.bool() { taken_by_others } else { Nanousd::ZERO };
                stream.account.available =
                    stream.account.available.saturating_sub(part).saturating_add(back);
                taken_by_others = taken_by_others.saturating_sub(back).saturating_add(part);
            }
            stream.account.advance(Duration::from_millis(random.u64(0..=pace)));
            let burst = if random.u8(..200) == 0 { 64_000 } else { 40 };
            let chunk = random.i64(1..=burst);
            stream.take(chunk.min(length - stream.tokens));
        }
        let of = format!("seed {seed}, round {round}");
        stream.check(&of);
        let account = &stream.account;
        let in_flight = account.arrives.map_or(Nanousd::ZERO, |(_, amount)| amount);
        let parts =
            [account.held, account.available, account.elsewhere, in_flight, taken_by_others];
        assert_eq!(
            parts.into_iter().fold(Nanousd::ZERO, Nanousd::saturating_add),
            balance,
            "{of}: money is kept"
        );
        assert!(stream.delivered <= balance, "{of}");
        waited += usize::from(!stream.waits.is_empty());
        if stream.is_cut { cut += 1 } else { ended += 1 }
    }
    println!("{ended} ended, {cut} were cut, {waited} waited");
    assert!(
        ended > 1_000 && cut > 100 && waited > 100,
        "{ended} ended, {cut} cut, {waited} waited"
    );
}

#[test]
fn an_account_that_has_plenty_by_then_holds_the_rest_at_once() {
    let bound = tokens(1_000).saturating_add(tokens(64_000));
    let mut stream = FakeStream::new(Instant::now(), tokens(600_000), bound, tokens(1_000));
    while stream.tokens < 60_000 {
        stream.account.advance(Duration::from_millis(100));
        stream.take(10);
    }
    assert_eq!((stream.account.extensions.len(), stream.account.held), (1, bound));
}

#[test]
fn a_stream_takes_what_is_there_and_is_cut_when_nothing_is_left() {
    let (bound, input) = (tokens(1_000).saturating_add(tokens(64_000)), tokens(1_000));
    let balance = tokens(1_000 + 4_096 + 700);
    let mut stream = FakeStream::new(Instant::now(), balance, bound, input);
    while !stream.is_cut {
        stream.account.advance(Duration::from_millis(100));
        stream.take(10);
    }
    stream.check("700 tokens beside the slice");
    assert!(stream.delivered > balance.saturating_sub(tokens(11)), "{}", stream.delivered);
    assert_eq!(stream.account.extensions.len(), 1, "all that was there, at once");
}

#[test]
fn money_of_a_fleet_arrives_ahead_of_use() {
    let (bound, input) = (tokens(1_000).saturating_add(tokens(64_000)), tokens(1_000));
    let mut stream = FakeStream::new(Instant::now(), tokens(1_000 + 4_096 + 300), bound, input);
    stream.account.elsewhere = tokens(100_000);
    while stream.tokens < 60_000 {
        stream.account.advance(Duration::from_millis(100));
        stream.take(10);
    }
    stream.check("a fleet");
    assert!(!stream.is_cut && stream.waits.is_empty(), "waits {:?}", stream.waits);
}

#[test]
fn a_report_of_the_input_frees_what_its_bound_held() {
    let now = Instant::now();
    let (bound, input) = (tokens(70_000), tokens(6_000));
    let mut roll = Roll::new(RollCosts { bound, slice: SLICE, step: STEP, input }, now);
    let relayed = RelayedCost { total: tokens(1_100), output: tokens(100) };
    roll.note(relayed, false, now);
    assert_eq!(roll.used.total, tokens(6_100), "an estimate of the input may be too low");
    roll.note(relayed, true, now);
    assert_eq!(roll.used.total, tokens(1_100));
}

#[test]
fn what_a_key_may_still_spend_is_a_part() {
    use tollgate_ledger::{Period, SpendLimitStatus};
    let capped = SpendLimitStatus {
        period: Period::Day,
        limit: tokens(10),
        spent: tokens(4),
        held: tokens(5),
        resets_at: tollgate_types::clock::UnixMs(0),
    };
    assert_eq!(part_of(&Refusal::Capped(capped), tokens(20)), tokens(1));
    let (lacks, left) = (tokens(15), tokens(0));
    assert_eq!(part_of(&Refusal::ShareUsed { capped, lacks, left }, tokens(20)), tokens(5));
    assert_eq!(part_of(&Refusal::Stopped, tokens(20)), Nanousd::ZERO);
}
