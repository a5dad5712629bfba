//! Customers' passwords: hashed and compared with Argon2id, two at a time.

use std::sync::Arc;

use argon2::{Argon2, PasswordHasher as _, PasswordVerifier as _};
use tokio::sync::Semaphore;

use tollgate_types::secret::Secret;

/// The shortest password that is taken, in characters (NIST SP 800-63B asks for eight, and for more
/// without a second factor).
pub const CHARS_MIN: usize = 10;
/// The longest, in characters: a sentence fits, and none of it is cut off.
pub const CHARS_MAX: usize = 256;
/// Hashes at one time, of customers and operators together. Each takes 19 MiB and some 20 ms of a core
/// (Argon2id with the parameters of OWASP's "Password Storage Cheat Sheet"): more at once would slow
/// down the calls that the gateway is there for.
const PARALLEL_MAX: usize = 2;
/// Size of the queue, at most: under a second's work. Further requests are told to retry.
const WAITING_MAX: usize = 64;
/// The hash of no password: what is compared where there is no login, so that the time of an answer
/// does not tell whether an address has one.
const NOBODY: &str = "$argon2id$v=19$m=19456,t=2,p=1$dG9sbGdhdGUtbm9ib2R5$\
                      W5jyy3pTqkJkjCbs/Xzh0hQ5vE0kXPQ6FMzLFFJ7F0E";

/// Reason why a password was neither hashed nor compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PasswordError {
    /// It is shorter than [`CHARS_MIN`] or longer than [`CHARS_MAX`].
    #[error("a password has {CHARS_MIN} to {CHARS_MAX} characters")]
    Length,
    /// Too many callers wait for their passwords to be hashed.
    #[error("too many passwords are being checked; try again")]
    Busy,
    /// The password could not be hashed, for no fault of its own.
    #[error("the password could not be hashed")]
    Failed,
}

/// Bounded pool for hashing passwords. Clones share it.
#[derive(Clone, Debug)]
pub struct Passwords {
    places: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

impl Default for Passwords {
    fn default() -> Self {
        Self {
            places: Arc::new(Semaphore::new(PARALLEL_MAX)),
            waiting: Arc::new(Semaphore::new(PARALLEL_MAX + WAITING_MAX)),
        }
    }
}

impl Passwords {
    /// The PHC string to store in the place of a new password.
    ///
    /// # Errors
    /// [`PasswordError`].
    pub async fn hash(&self, password: Secret) -> Result<String, PasswordError> {
        if !(CHARS_MIN..=CHARS_MAX).contains(&password.expose().chars().count()) {
            return Err(PasswordError::Length);
        }
        self.in_place(move || {
            let hash = Argon2::default().hash_password(password.expose().as_bytes());
            hash.map(|hash| hash.to_string()).map_err(|_| PasswordError::Failed)
        })
        .await?
    }

    /// True if the password matches the hash. Takes as long, and is false, where there is no hash.
    ///
    /// # Errors
    /// [`PasswordError::Busy`] and [`PasswordError::Failed`].
    pub async fn is_right(
        &self,
        password: Secret,
        hash: Option<&str>,
    ) -> Result<bool, PasswordError> {
        if password.expose().chars().count() > CHARS_MAX {
            return Ok(false);
        }
        // Hashed against a constant where there is no login, so that both take the same time.
        let exists = hash.is_some();
        let hash = hash.unwrap_or(NOBODY).to_owned();
        let matches = self
            .in_place(move || {
                Argon2::default().verify_password(password.expose().as_bytes(), &*hash).is_ok()
            })
            .await?;
        Ok(matches && exists)
    }

    async fn in_place<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, PasswordError> {
        let _waiting = self.waiting.try_acquire().map_err(|_| PasswordError::Busy)?;
        // Never closed, so there is always a place sooner or later. It goes with the work, which is
        // done to its end also where nobody waits for it any more.
        let place = Arc::clone(&self.places).acquire_owned().await;
        let place = place.map_err(|_| PasswordError::Failed)?;
        let work = move || {
            let done = work();
            drop(place);
            done
        };
        tokio::task::spawn_blocking(work).await.map_err(|_| PasswordError::Failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Secret {
        Secret::new(text.to_owned())
    }

    #[tokio::test]
    async fn a_password_is_known_by_its_hash_only() {
        let passwords = Passwords::default();
        let hash = passwords.hash(secret("correct horse")).await.expect("hashed");
        let again = passwords.hash(secret("correct horse")).await.expect("hashed");
        assert!(hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{hash}");
        assert_ne!(hash, again, "each has a salt of its own");
        let is_right = |text: &str, hash| passwords.is_right(secret(text), hash);
        assert_eq!(is_right("correct horse", Some(&hash)).await, Ok(true));
        assert_eq!(is_right("correct horsE", Some(&hash)).await, Ok(false));
        assert_eq!(is_right("", None).await, Ok(false), "of nobody");
        for length in [0, CHARS_MIN - 1, CHARS_MAX + 1] {
            let refused = passwords.hash(secret(&"x".repeat(length))).await;
            assert_eq!(refused, Err(PasswordError::Length), "{length} characters");
        }
    }

    #[tokio::test]
    async fn what_is_compared_for_nobody_takes_as_long() {
        let hash = argon2::password_hash::phc::PasswordHash::new(NOBODY).expect("a hash");
        assert!(hash.salt.is_some() && hash.hash.is_some(), "it is computed to its end");
    }

    #[tokio::test]
    async fn so_many_wait_and_no_more() {
        let passwords = Passwords::default();
        let _all = passwords.waiting.try_acquire_many(66).expect("all");
        assert_eq!(passwords.hash(secret("correct horse")).await, Err(PasswordError::Busy));
    }
}
