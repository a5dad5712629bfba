//! Search for the operator's credential in answers: finders that are built once per credential, and a
//! scan across the chunks of an answer.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use memchr::memmem::Finder;

use tollgate_config::snapshot::Credential;
use tollgate_credentials::Token;

/// Shortest credential that is searched for, in bytes; shorter ones occur in texts by chance.
const BYTES_MIN: usize = 8;
/// Shortest credential without a digit that is searched for, in bytes. Shorter ones are dictionary words
/// for servers without keys, such as `not-needed` or `sk-no-key-required`.
const WORD_BYTES_MIN: usize = 24;

/// Finds a credential's secrets in texts.
#[derive(Debug)]
pub struct CredentialFinder {
    /// One finder per secret, and one for its form with escaped slashes, as some JSON writers produce it.
    finders: Vec<Finder<'static>>,
    /// Source secrets, to recognize an equal finder.
    secrets: Vec<String>,
}

impl CredentialFinder {
    /// Create a finder of these secrets; `None` if all are too short or too ordinary to search for.
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

    /// Create a finder for a call's secrets: the token if the gateway has signed in, else the
    /// credential.
    pub fn of_call(credential: Option<&Credential>, token: Option<&Token>) -> Option<Self> {
        match token {
            Some(token) => Self::new(token.secrets()),
            None => credential.and_then(|credential| Self::new(credential.secrets())),
        }
    }

    /// True if the finder was built from these secrets.
    pub(super) fn is_of<'a>(&self, secrets: impl Iterator<Item = &'a str>) -> bool {
        self.secrets.iter().map(String::as_str).eq(secrets)
    }

    /// True if a text contains one of the secrets.
    #[must_use]
    pub fn is_in(&self, text: &[u8]) -> bool {
        self.finders.iter().any(|finder| finder.find(text).is_some())
    }

    /// Length of the longest suffix of a text that is a prefix of a secret.
    fn begun_in(&self, text: &[u8]) -> usize {
        let Some(&last) = text.last() else { return 0 };
        let begun = |finder: &Finder<'static>| {
            let secret = finder.needle();
            let most = text.len().min(secret.len().saturating_sub(1));
            // Chunks mostly end with a line break, which no secret contains.
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

/// Error: an answer contains the operator's credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CredentialLeak;

/// Scan over the chunks of one answer. Bytes pass unchanged; a chunk's end that may begin a credential
/// is held back until the next chunk.
#[derive(Debug, Default)]
pub struct CredentialScan {
    finder: Option<Arc<CredentialFinder>>,
    held: Bytes,
}

impl CredentialScan {
    /// Create a scan with this finder; without one everything passes.
    #[must_use]
    pub fn new(finder: Option<Arc<CredentialFinder>>) -> Self {
        Self { finder, held: Bytes::new() }
    }

    /// Scan a chunk and return the bytes that can be passed on; `is_end` marks the last chunk.
    ///
    /// # Errors
    /// The credential is in the data, and no part of it has been passed on.
    pub fn pass(&mut self, piece: Bytes, is_end: bool) -> Result<Bytes, CredentialLeak> {
        let Some(finder) = &self.finder else { return Ok(piece) };
        let mut piece = piece;
        if !self.held.is_empty() {
            let mut both = BytesMut::from(std::mem::take(&mut self.held));
            both.extend_from_slice(&piece);
            piece = both.freeze();
        }
        // Searched with the end that was held back, since a credential may span chunks.
        if finder.is_in(&piece) {
            return Err(CredentialLeak);
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

    /// Scan these chunks; `None` if the credential is found.
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
