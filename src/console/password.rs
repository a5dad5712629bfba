//! Passwords: hashed with Argon2id, as slowly as OWASP's "Password Storage Cheat Sheet" asks for, and
//! only a few at one time.

use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _};
use argon2::{Algorithm, Argon2, Params, Version};
use tokio::sync::Semaphore;

use super::fields::Wrong;

/// The fewest characters of a password (NIST SP 800-63B asks for eight, and for more without a second
/// factor).
pub(super) const CHARS_MIN: usize = 10;
/// The longest password in bytes: longer than any that a person or a program makes.
pub(super) const BYTES_MAX: usize = 256;

/// OWASP's parameters: 19 MiB, twice over, in one lane.
const MEMORY_KIB: u32 = 19 * 1024;
const PASSES: u32 = 2;
const LANES: u32 = 1;
/// Passwords that are hashed at one time: each takes a core for some 20 ms, and 19 MiB.
const AT_ONCE: usize = 2;
/// Those and the ones that wait for their turn: under a second's work. More are turned away.
const WAITING_MAX: usize = 64;

/// What a password is compared with where nobody has the address that was typed, so that it takes the
/// same time. Nobody knows a password that has this hash.
const NOBODYS: &str = "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$\
                       AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// There are too many passwords to hash already, or hashing failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Busy;

/// Hashes and compares passwords, within bounds.
pub(super) struct Passwords {
    /// Places for those that are hashed.
    working: Semaphore,
    /// Places for those and the ones that wait.
    waiting: Semaphore,
}

impl Default for Passwords {
    fn default() -> Self {
        Self { working: Semaphore::new(AT_ONCE), waiting: Semaphore::new(WAITING_MAX) }
    }
}

impl Passwords {
    /// The PHC string of a new password.
    pub(super) async fn hash(&self, password: &str) -> Result<String, Busy> {
        let password = password.to_owned();
        let hash = self.in_turn(move || argon2().hash_password(password.as_bytes()).ok()).await?;
        hash.map(|hash| hash.to_string()).ok_or(Busy)
    }

    /// Whether a password is the one that was hashed to `hash`. Where there is none, it is not, which
    /// takes as long to say.
    pub(super) async fn is(&self, password: &str, hash: Option<&str>) -> Result<bool, Busy> {
        let password = password.to_owned();
        let hash = hash.unwrap_or(NOBODYS).to_owned();
        self.in_turn(move || argon2().verify_password(password.as_bytes(), hash.as_str()).is_ok())
            .await
    }

    /// What `work` comes to on a thread that may be kept busy.
    async fn in_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Busy> {
        let _waits = self.waiting.try_acquire().map_err(|_| Busy)?;
        let _works = self.working.acquire().await.map_err(|_| Busy)?;
        tokio::task::spawn_blocking(work).await.map_err(|_| Busy)
    }
}

fn argon2() -> Argon2<'static> {
    let params = Params::new(MEMORY_KIB, PASSES, LANES, None).unwrap_or(Params::DEFAULT);
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
}

/// Says what is wrong with a new password, beside its field.
pub(super) fn check_new(wrong: &mut Wrong, field: &'static str, password: &str, email: &str) {
    if password.chars().count() < CHARS_MIN {
        wrong.note(field, format!("At least {CHARS_MIN} characters; a few words are fine."));
    } else if password.len() > BYTES_MAX {
        wrong.note(field, format!("At most {BYTES_MAX} bytes."));
    } else if password.to_lowercase() == email.to_lowercase() {
        wrong.note(field, "Not the e-mail address.");
    } else if is_one_piece_repeated(password) {
        wrong.note(field, "This is the same few characters over and over.");
    }
}

/// Whether a text is at most three characters again and again: `aaaaaaaaaa`, `abcabcabcabc`.
fn is_one_piece_repeated(text: &str) -> bool {
    let chars: Vec<char> = text.chars().collect();
    (1..=3).any(|length| chars.iter().skip(length).zip(&chars).all(|(later, c)| later == c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_password_is_its_own_hash_only() {
        let passwords = Passwords::default();
        let hash = passwords.hash("correct horse").await.expect("hashed");
        assert!(hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{hash}");
        assert_eq!(passwords.is("correct horse", Some(&hash)).await, Ok(true));
        assert_eq!(passwords.is("battery staple", Some(&hash)).await, Ok(false));
        assert_eq!(passwords.is("", None).await, Ok(false), "nobody's");
        let again = passwords.hash("correct horse").await.expect("hashed");
        assert_ne!(hash, again, "each has a salt of its own");
    }

    /// What is compared for nobody must be a hash that is computed, not one that cannot be read.
    #[test]
    fn nobodys_hash_is_as_slow_as_any() {
        let hash = argon2::password_hash::phc::PasswordHash::new(NOBODYS).expect("a PHC string");
        let params = Params::try_from(&hash).expect("parameters");
        assert_eq!((params.m_cost(), params.t_cost(), params.p_cost()), (19_456, 2, 1));
        let refused = argon2().verify_password(b"x", NOBODYS);
        assert_eq!(refused, Err(argon2::password_hash::Error::PasswordInvalid));
    }

    #[tokio::test]
    async fn only_so_many_wait() {
        let passwords = Passwords::default();
        let all = passwords.waiting.acquire_many(64).await.expect("all places");
        assert_eq!(passwords.is("x", None).await, Err(Busy));
        drop(all);
        assert_eq!(passwords.is("x", None).await, Ok(false));
    }

    #[test]
    fn new_passwords_are_long_and_not_obvious() {
        for (password, is_wrong) in [
            ("short", true),
            ("aaaaaaaaaaaa", true),
            ("abcabcabcabc", true),
            ("Me@Example.com", true),
            ("correct horse battery", false),
            (&"ab ".repeat(100), true),
            ("пароль-пароль-7", false),
        ] {
            let mut wrong = Wrong::default();
            check_new(&mut wrong, "password", password, "me@example.com");
            assert_eq!(wrong.is_any(), is_wrong, "{password}: {}", wrong.with("password"));
        }
    }
}
