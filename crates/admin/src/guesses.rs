//! Wrong tokens at the admin API, by the address that they come from.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use tollgate_client_address::network;
use tollgate_web_kit::TryCounter;

/// Maximum number of wrong tokens per address within [`WINDOW`]; a script with an old token is noticed
/// before.
const WRONG_MAX: u32 = 20;
/// Afterwards tokens of that address are not looked at until this has passed.
const WINDOW: Duration = Duration::from_secs(60);
/// Addresses from which right tokens came, which are remembered: operators have fewer.
const ADDRESSES_MAX: usize = 10_000;
/// Tokens that were right from one address, which are remembered. Operators behind one proxy are few.
const RIGHT_MAX: usize = 32;

/// Counts wrong tokens by the networks of the addresses that show them, and remembers right ones.
pub struct Guesses {
    wrong: TryCounter<IpAddr>,
    /// The digests of tokens that were right, the latest last: whoever shares an address with one who
    /// guesses, such as that of a proxy, is not kept out.
    right: Mutex<HashMap<IpAddr, Vec<[u8; 32]>>>,
}

impl Default for Guesses {
    fn default() -> Self {
        Self { wrong: TryCounter::in_window(WRONG_MAX, WINDOW), right: Mutex::default() }
    }
}

impl Guesses {
    /// True if a token from this address may be tried.
    pub(super) fn may_try(&self, address: Option<IpAddr>, token: &[u8], now: Instant) -> bool {
        // Without an address there is nothing to count by.
        let Some(network) = address.map(network) else { return true };
        if self.wrong.has_room_at(network, now) {
            return true;
        }
        let right = self.right.lock();
        right.get(&network).is_some_and(|tokens| tokens.contains(&digest(token)))
    }

    /// Notes whether a token of this address was right.
    pub(super) fn note(&self, address: Option<IpAddr>, token: &[u8], is_right: bool, now: Instant) {
        let Some(network) = address.map(network) else { return };
        if !is_right {
            // Without room for it, tokens of this address are not looked at anyway.
            let _had_room = self.wrong.take_at(network, now);
            return;
        }
        let mut right = self.right.lock();
        if !right.contains_key(&network) && right.len() >= ADDRESSES_MAX {
            // A forgotten address costs its operators nothing until somebody guesses from the same one.
            right.clear();
        }
        let tokens = right.entry(network).or_default();
        let digest = digest(token);
        if !tokens.contains(&digest) {
            if tokens.len() == RIGHT_MAX {
                tokens.remove(0);
            }
            tokens.push(digest);
        }
    }
}

fn digest(token: &[u8]) -> [u8; 32] {
    Sha256::digest(token).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_guesses_is_not_listened_to_and_who_was_right_is() {
        let (guesses, now) = (Guesses::default(), Instant::now());
        let one = Some("192.0.2.1".parse().expect("an address"));
        guesses.note(one, b"right", true, now);
        guesses.note(one, b"also right", true, now);
        for _ in 0..WRONG_MAX {
            assert!(guesses.may_try(one, b"wrong", now));
            guesses.note(one, b"wrong", false, now);
        }
        assert!(!guesses.may_try(one, b"wrong", now) && !guesses.may_try(one, b"another", now));
        let rights = [b"right".as_slice(), b"also right"];
        assert!(rights.iter().all(|token| guesses.may_try(one, token, now)), "both were right");
        let other = Some("192.0.2.2".parse().expect("an address"));
        assert!(guesses.may_try(other, b"wrong", now), "another address");
        assert!(guesses.may_try(one, b"wrong", now + WINDOW), "later");
        let v6 = |text: &str| Some(text.parse().expect("an address"));
        for _ in 0..WRONG_MAX {
            guesses.note(v6("2001:db8::1"), b"wrong", false, now);
        }
        assert!(!guesses.may_try(v6("2001:db8::2"), b"wrong", now), "the same network");
    }

    #[test]
    fn no_flood_of_addresses_takes_memory() {
        let (guesses, now) = (Guesses::default(), Instant::now());
        for number in 0..30_000_u32 {
            guesses.note(Some(IpAddr::V4(number.into())), b"right", true, now);
        }
        assert!(
            guesses.right.lock().len() <= ADDRESSES_MAX,
            "wrong ones are bounded by the counter"
        );
    }
}
