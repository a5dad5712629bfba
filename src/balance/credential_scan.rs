//! The search for the operator's credential in answers: finders that are built once for each credential, and
//! a scan that finds one across the pieces of an answer.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use memchr::memmem::Finder;

use crate::config::snapshot::Credential;
use crate::credentials::Token;

/// The shortest credential that is searched for, in bytes. Shorter ones stand in texts by chance.
const BYTES_MIN: usize = 8;
/// From this length on a credential without a digit is searched for, in bytes. Shorter ones are words that
/// servers without keys are configured with, such as `not-needed` or `sk-no-key-required`.
const WORD_BYTES_MIN: usize = 24;

/// Finds a credential's secrets in texts.
#[derive(Debug)]
pub struct CredentialFinder {
    /// Each secret, and once more as JSON writers that escape slashes have it.
    finders: Vec<Finder<'static>>,
    /// The secrets that it was made of, by which it is known again.
    secrets: Vec<String>,
}

impl CredentialFinder {
    /// A finder of these secrets; `None` where none of them can be told from other texts.
    pub fn new<'a>(secrets: impl Iterator<Item = &'a str>) -> Option<Self> {
        let secrets: Vec<String> = secrets.map(str::to_owned).collect();
        let mut finders = Vec::with_capacity(secrets.len());
        for secret in secrets.iter().filter(|secret| is_searchable(secret)) {
            finders.push(Finder::new(secret).into_owned());
            if secret.contains('/') {
                finders.push(Finder::new(&secret.replace('/', "\\/")).into_owned());
            }
        }
        (!finders.is_empty()).then_some(Self { finders, secrets })
    }

    /// A finder of what a call shows its upstream: the token where the gateway has signed in, else the
    /// credential.
    pub fn of_call(credential: Option<&Credential>, token: Option<&Token>) -> Option<Self> {
        match token {
            Some(token) => Self::new(token.secrets()),
            None => credential.and_then(|credential| Self::new(credential.secrets())),
        }
    }

    /// Whether it was made of these secrets.
    pub(super) fn is_of<'a>(&self, secrets: impl Iterator<Item = &'a str>) -> bool {
        self.secrets.iter().map(String::as_str).eq(secrets)
    }

    /// Whether a text has one of the secrets in it.
    #[must_use]
    pub fn is_in(&self, text: &[u8]) -> bool {
        self.finders.iter().any(|finder| finder.find(text).is_some())
    }

    /// The length of the longest end of a text with which one of the secrets begins.
    fn begun_in(&self, text: &[u8]) -> usize {
        let Some(&last) = text.last() else { return 0 };
        let begun = |finder: &Finder<'static>| {
            let secret = finder.needle();
            let most = text.len().min(secret.len().saturating_sub(1));
            // Mostly a line ends there, and no secret has a line's end in it.
            let ends = memchr::memrchr_iter(last, secret.get(..most).unwrap_or_default());
            let mut lengths = ends.map(|at| at + 1);
            lengths.find(|length| secret.get(..*length).is_some_and(|begun| text.ends_with(begun)))
        };
        self.finders.iter().filter_map(begun).max().unwrap_or(0)
    }
}

fn is_searchable(secret: &str) -> bool {
    let has_digit = secret.bytes().any(|byte| byte.is_ascii_digit());
    secret.len() >= BYTES_MIN && (has_digit || secret.len() >= WORD_BYTES_MIN)
}

/// An answer holds the operator's credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldsCredential;

/// A search through the pieces of one answer. Bytes pass as they come, but for an end of a piece with which
/// the credential begins: that waits for the next one.
#[derive(Debug, Default)]
pub struct CredentialScan {
    finder: Option<Arc<CredentialFinder>>,
    held: Bytes,
}

impl CredentialScan {
    /// A search for what this finder finds; without one everything passes.
    #[must_use]
    pub fn new(finder: Option<Arc<CredentialFinder>>) -> Self {
        Self { finder, held: Bytes::new() }
    }

    /// Takes a piece of the answer, and whether it is the last; gives what can be passed on.
    ///
    /// # Errors
    /// The credential is in what has come, and none of it has been passed on.
    pub fn pass(&mut self, piece: Bytes, is_end: bool) -> Result<Bytes, HoldsCredential> {
        let Some(finder) = &self.finder else { return Ok(piece) };
        let mut piece = piece;
        if !self.held.is_empty() {
            let mut both = BytesMut::from(std::mem::take(&mut self.held));
            both.extend_from_slice(&piece);
            piece = both.freeze();
        }
        if finder.is_in(&piece) {
            return Err(HoldsCredential);
        }
        if !is_end {
            let begun = finder.begun_in(&piece);
            if begun > 0 {
                self.held = piece.split_off(piece.len() - begun);
            }
        }
        Ok(piece)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: &str = "sk-sk-1/sk-2canary";

    fn finder(secrets: &[&str]) -> Option<Arc<CredentialFinder>> {
        CredentialFinder::new(secrets.iter().copied()).map(Arc::new)
    }

    /// What passes of these pieces; `None` once the credential is found.
    fn pass(pieces: &[&[u8]]) -> Option<Vec<u8>> {
        let mut scan = CredentialScan::new(finder(&[KEY]));
        let mut passed = Vec::new();
        for (at, piece) in pieces.iter().enumerate() {
            let is_end = at + 1 == pieces.len();
            let piece = Bytes::copy_from_slice(piece);
            let before = passed.len() + scan.held.len() + piece.len();
            passed.extend_from_slice(&scan.pass(piece, is_end).ok()?);
            assert!(scan.held.len() < KEY.len() + 1 && passed.len() + scan.held.len() == before);
        }
        assert!(scan.held.is_empty(), "nothing is kept behind the end");
        Some(passed)
    }

    #[test]
    fn a_credential_is_found_and_nothing_else_waits() {
        let whole = format!("data: {{\"a\":\"{KEY}\"}}\n\n");
        assert_eq!(pass(&[whole.as_bytes()]), None);
        assert_eq!(pass(&[whole.replace('/', "\\/").as_bytes()]), None);
        let mut scan = CredentialScan::new(finder(&[KEY]));
        for piece in ["data: {\"a\":\"x\"}\n\n", "data: [DONE]\n\n", "k", "canary"] {
            let passed = scan.pass(Bytes::from_static(piece.as_bytes()), false);
            assert_eq!(passed.as_deref(), Ok(piece.as_bytes()));
        }
        assert_eq!(scan.pass(Bytes::from_static(b"x sk-sk-"), false).as_deref(), Ok(&b"x "[..]));
        assert_eq!(scan.pass(Bytes::from_static(b"s"), false).as_deref(), Ok(&b"sk-"[..]));
        assert_eq!(scan.pass(Bytes::new(), true).as_deref(), Ok(&b"sk-s"[..]));
    }

    #[test]
    fn words_that_stand_in_texts_are_no_credentials() {
        for word in ["", "1234567", "not-needed", "anything", "sk-no-key-required"] {
            assert!(finder(&[word]).is_none(), "{word}");
        }
        for key in ["abcdefg1", "simulated-upstream-credential"] {
            assert!(finder(&[key]).is_some(), "{key}");
        }
        let two = finder(&["not-needed", "token-12345"]).expect("one of them");
        assert!(two.is_in(b"a token-12345 b") && !two.is_in(b"not-needed"));
        assert!(
            two.is_of(["not-needed", "token-12345"].into_iter()) && !two.is_of(["x"].into_iter())
        );
    }

    proptest! {
        #[test]
        fn cuts_change_nothing(
            text in "(sk-|1/|2canary|\\\\/|sk-sk-1/sk-2canary|[a-c\n]){0,12}",
            cuts in proptest::collection::vec(0_usize..64, 0..6),
        ) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            let holds = text.contains(KEY) || text.contains(&KEY.replace('/', "\\/"));
            prop_assert_eq!(pass(&pieces), (!holds).then(|| bytes.to_vec()));
        }
    }
}
