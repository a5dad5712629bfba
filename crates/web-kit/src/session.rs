//! Sessions in cookies that only this gateway can write.
//!
//! Nothing is kept on the server for a session: the cookie says who it is, since when and until when,
//! and is signed. What ends a session early (logging out, another password) is the console's to ask.

use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use axum::http::HeaderMap;
use axum_extra::extract::cookie::{Cookie, Key, SameSite, SignedCookieJar};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256, Sha512};

use tollgate_types::clock::UnixMs;
use tollgate_types::secret::{Secret, random_bytes};

/// Lifetime of a guest's session: a day, since a login page may stay open overnight.
const GUEST_LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// Random id of a session.
pub(crate) type SessionId = [u8; 16];

/// A browser's session. Guests have one too, for their forms.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Changes with each log-in, so that nobody can choose it for somebody else.
    pub id: SessionId,
    /// Login of the session; `None` for a guest.
    pub who: Option<String>,
    /// Beginning of the session, in Unix milliseconds.
    pub since: UnixMs,
    /// Expiry of the session, in Unix milliseconds.
    pub until: UnixMs,
}

/// Change of the session by a handler, in the extensions of its response.
#[derive(Clone, Debug)]
pub enum SessionChange {
    /// The browser keeps this session from here on.
    Begin(Session),
    /// The session is over: the browser forgets its cookie.
    End,
}

impl Session {
    /// A session of `who`, from now on.
    ///
    /// # Panics
    /// When the operating system has no randomness to give; nobody may be logged in then.
    pub fn begin(who: Option<String>, lifetime: Duration) -> Self {
        let since = UnixMs::now();
        let ms = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
        Self { id: random_bytes(), who, since, until: UnixMs(since.0.saturating_add(ms)) }
    }

    /// A session without a user.
    pub(super) fn guest() -> Self {
        Self::begin(None, GUEST_LIFETIME)
    }
}

/// The key in `data_dir` with which cookies are signed; it is made if it is not there.
///
/// # Errors
/// When it can neither be read nor made.
pub(super) fn key_in(data_dir: &Path) -> io::Result<Secret> {
    let file = data_dir.join("session-key");
    match fs::read_to_string(&file) {
        // A shorter key could be guessed; a truncated file must not be replaced silently, since all sessions
        // depend on it.
        Ok(text) if text.trim().len() >= 40 => Ok(Secret::new(text.trim().to_owned())),
        Ok(_) => Err(io::Error::other(format!("{} is no key", file.display()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let secret = Secret::new_token();
            tollgate_ledger::write_private(&file, secret.expose())?;
            Ok(secret)
        }
        Err(error) => Err(error),
    }
}

/// Reads and writes the sessions of one console.
pub struct Sessions {
    key: Key,
    forms: [u8; 32],
    cookie: &'static str,
    path: String,
}

impl Sessions {
    /// Sessions in the cookie `cookie` for everything below `path`, signed with the key in
    /// `data_dir`, which is made if it is not there.
    ///
    /// # Errors
    /// When the key can neither be read nor made.
    pub fn kept_in(
        data_dir: &Path,
        cookie: &'static str,
        path: impl Into<String>,
    ) -> io::Result<Self> {
        Ok(Self::signed_with(&key_in(data_dir)?, cookie, path))
    }

    fn signed_with(secret: &Secret, cookie: &'static str, path: impl Into<String>) -> Self {
        // Each console has keys of its own: a cookie of one is nothing to the other.
        let of = |what: &str| format!("tollgate {cookie} {what} {}", secret.expose());
        Self {
            key: Key::from(&Sha512::digest(of("session"))),
            forms: Sha256::digest(of("form")).into(),
            cookie,
            path: path.into(),
        }
    }

    /// The session of a request, if there is one that has not ended.
    pub(super) fn read(&self, headers: &HeaderMap, now: UnixMs) -> Option<Session> {
        let jar = SignedCookieJar::from_headers(headers, self.key.clone());
        let bytes = URL_SAFE_NO_PAD.decode(jar.get(self.cookie)?.value()).ok()?;
        let session: Session = postcard::from_bytes(&bytes).ok()?;
        // A session that begins in the future was signed before the clock was set back.
        (session.since <= now && now < session.until).then_some(session)
    }

    /// Cookies that store `session` in the browser, or delete the existing one.
    pub(super) fn write(&self, session: Option<&Session>, secure: bool) -> SignedCookieJar {
        let mut cookie = Cookie::new(self.cookie, "");
        if let Some(bytes) = session.and_then(|session| postcard::to_stdvec(session).ok()) {
            cookie.set_value(URL_SAFE_NO_PAD.encode(bytes));
        } else {
            cookie.make_removal();
        }
        cookie.set_path(self.path.clone());
        cookie.set_http_only(true);
        cookie.set_secure(secure);
        // `Lax`, not `Strict`: a link in an e-mail leads to a page, not to the log-in.
        cookie.set_same_site(SameSite::Lax);
        SignedCookieJar::new(self.key.clone()).add(cookie)
    }

    /// Token of this session's forms, which no other site knows. Every page masks it anew, so that the
    /// compressed sizes of many pages reveal nothing of it (BREACH).
    pub fn form_token(&self, session: &Session) -> String {
        let mask: FormToken = random_bytes();
        let masked = exclusive_or(self.form_key(session), mask);
        STANDARD.encode([mask, masked].concat())
    }

    /// True if `shown` is a form token of the session.
    pub(super) fn is_form_token(&self, session: &Session, shown: &str) -> bool {
        let mut parts = [0; 2 * size_of::<FormToken>()];
        if STANDARD.decode_slice(shown, &mut parts) != Ok(parts.len()) {
            return false;
        }
        let (mut mask, mut masked) = (FormToken::default(), FormToken::default());
        let (first, second) = parts.split_at(mask.len());
        mask.copy_from_slice(first);
        masked.copy_from_slice(second);
        let (expected, found) = (self.form_key(session), exclusive_or(mask, masked));
        // Hashed, so time says nothing of where they differ.
        Sha256::digest(expected) == Sha256::digest(found)
    }

    fn form_key(&self, session: &Session) -> FormToken {
        // Both parts have a fixed length, so no two sessions share a text.
        Sha256::new().chain_update(self.forms).chain_update(session.id).finalize().into()
    }
}

/// Secret of a session's forms.
type FormToken = [u8; 32];

fn exclusive_or(mut one: FormToken, other: FormToken) -> FormToken {
    for (byte, other) in one.iter_mut().zip(other) {
        *byte ^= other;
    }
    one
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderValue, header};
    use axum::response::IntoResponse as _;

    use super::*;

    fn sessions(cookie: &'static str) -> Sessions {
        Sessions::signed_with(&Secret::new("a secret".to_owned()), cookie, "/console")
    }

    fn returned(jar: SignedCookieJar) -> HeaderMap {
        let set = jar.into_response().headers()[header::SET_COOKIE].clone();
        let pair = set.to_str().expect("text").split(';').next().expect("a pair").to_owned();
        let value = HeaderValue::from_str(&pair).expect("a header");
        HeaderMap::from_iter([(header::COOKIE, value)])
    }

    #[test]
    fn a_session_comes_back_until_it_ends() {
        let sessions = sessions("one");
        let session = Session::begin(Some("somebody".to_owned()), Duration::from_secs(60));
        let headers = returned(sessions.write(Some(&session), true));
        assert_eq!(sessions.read(&headers, session.since), Some(session.clone()));
        assert_eq!(sessions.read(&headers, session.until), None, "it has ended");
        let before = UnixMs(session.since.0 - 1);
        assert_eq!(sessions.read(&headers, before), None, "it has not begun");
    }

    #[test]
    fn nobody_else_can_write_one() {
        let session = Session::begin(Some("somebody".to_owned()), Duration::from_secs(60));
        let headers = returned(sessions("one").write(Some(&session), false));
        let text = headers[header::COOKIE].to_str().expect("text");
        let other = text.replacen("one=", "two=", 1);
        let other = HeaderMap::from_iter([(
            header::COOKIE,
            HeaderValue::from_str(&other).expect("a header"),
        )]);
        assert_eq!(sessions("two").read(&other, session.since), None, "another console's");
        for place in "one=".len()..text.len() {
            let mut bytes = text.as_bytes().to_vec();
            bytes[place] = if bytes[place] == b'A' { b'B' } else { b'A' };
            let value = HeaderValue::from_bytes(&bytes).expect("a header");
            let changed = HeaderMap::from_iter([(header::COOKIE, value)]);
            let read = sessions("one").read(&changed, session.since);
            // The last letter of base64 has bits that say nothing.
            assert!(read.is_none() || read == Some(session.clone()), "byte {place} was changed");
        }
    }

    #[test]
    fn forms_belong_to_one_session() {
        let (sessions, one) = (sessions("one"), Session::guest());
        let token = sessions.form_token(&one);
        assert!(sessions.is_form_token(&one, &token));
        assert!(!sessions.is_form_token(&Session::guest(), &token), "another session's");
        assert!(!self::sessions("two").is_form_token(&one, &token), "another console's");
        for odd in ["", "AAAA", &token[1..], &format!("{token}AAAA"), &"A".repeat(token.len())] {
            assert!(!sessions.is_form_token(&one, odd), "{odd}");
        }
    }

    #[test]
    fn no_two_pages_have_the_same_text_in_their_forms() {
        let (sessions, one) = (sessions("one"), Session::guest());
        let [first, second] = [(); 2].map(|()| sessions.form_token(&one));
        let same = first.bytes().zip(second.bytes()).filter(|(one, other)| one == other).count();
        assert!(same < first.len() / 4, "{same} of {} letters: {first} {second}", first.len());
    }
}
