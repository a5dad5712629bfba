//! Browsers in which somebody was logged in before: whoever tries passwords elsewhere does not keep
//! their owner out.

use std::io;
use std::path::Path;
use std::time::Duration;

use axum::http::HeaderMap;
use axum_extra::extract::cookie::{Cookie, Key, SameSite, SignedCookieJar};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha512};

use super::session;
use tollgate_types::clock::UnixMs;
use tollgate_types::secret::{Secret, random_bytes};

/// Time for which a device is remembered after its last login.
const REMEMBERED_FOR: Duration = Duration::from_secs(180 * 24 * 3600);

/// Random id of a device.
pub type DeviceId = [u8; 16];

/// Contents of a device's cookie. It grants no access: a thief may only try as many passwords as the device.
#[derive(Serialize, Deserialize)]
struct DeviceCookie {
    id: DeviceId,
    /// Login for which the device is remembered; the cookie has no effect for others.
    who: String,
    until: UnixMs,
}

/// Reads and writes the cookies of known devices.
pub struct Devices {
    key: Key,
    cookie: &'static str,
    path: String,
}

impl Devices {
    /// Devices in the cookie `cookie`, which is sent to `path` alone, signed with the key in `data_dir`.
    ///
    /// # Errors
    /// When the key can neither be read nor made.
    pub fn kept_in(
        data_dir: &Path,
        cookie: &'static str,
        path: impl Into<String>,
    ) -> io::Result<Self> {
        Ok(Self::signed_with(&session::key_in(data_dir)?, cookie, path))
    }

    fn signed_with(secret: &Secret, cookie: &'static str, path: impl Into<String>) -> Self {
        // A key of its own: no session can be shown in the place of it.
        let text = format!("tollgate {cookie} device {}", secret.expose());
        Self { key: Key::from(&Sha512::digest(text)), cookie, path: path.into() }
    }

    /// The device that a request comes from, if `who` was logged in there before.
    pub fn find(&self, headers: &HeaderMap, who: &str) -> Option<DeviceId> {
        let jar = SignedCookieJar::from_headers(headers, self.key.clone());
        let bytes = URL_SAFE_NO_PAD.decode(jar.get(self.cookie)?.value()).ok()?;
        let cookie: DeviceCookie = postcard::from_bytes(&bytes).ok()?;
        (cookie.who == who && UnixMs::now() < cookie.until).then_some(cookie.id)
    }

    /// The cookie with which a browser is known as one where `who` was logged in: the one that it was
    /// known as before, or a new one.
    pub fn remember(&self, who: &str, before: Option<DeviceId>, secure: bool) -> SignedCookieJar {
        let lifetime_ms = u64::try_from(REMEMBERED_FOR.as_millis()).unwrap_or(u64::MAX);
        let cookie = DeviceCookie {
            id: before.unwrap_or_else(random_bytes),
            who: who.to_owned(),
            until: UnixMs(UnixMs::now().0.saturating_add(lifetime_ms)),
        };
        let jar = SignedCookieJar::new(self.key.clone());
        let Ok(bytes) = postcard::to_stdvec(&cookie) else { return jar };
        let mut cookie = Cookie::new(self.cookie, URL_SAFE_NO_PAD.encode(bytes));
        cookie.set_path(self.path.clone());
        cookie.set_max_age(REMEMBERED_FOR.try_into().ok());
        cookie.set_http_only(true);
        cookie.set_secure(secure);
        // Only this site's own log-in page needs it.
        cookie.set_same_site(SameSite::Strict);
        jar.add(cookie)
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderValue, header};
    use axum::response::IntoResponse as _;

    use super::*;

    fn devices(secret: &str) -> Devices {
        Devices::signed_with(&Secret::new(secret.to_owned()), "device", "/console/login")
    }

    fn returned(jar: SignedCookieJar) -> HeaderMap {
        let set = jar.into_response().headers()[header::SET_COOKIE].clone();
        let set = set.to_str().expect("text");
        for word in ["HttpOnly", "SameSite=Strict", "Path=/console/login", "Max-Age=15552000"] {
            assert!(set.contains(word), "{word} in {set}");
        }
        let pair = set.split(';').next().expect("a pair");
        HeaderMap::from_iter([(header::COOKIE, HeaderValue::from_str(pair).expect("a header"))])
    }

    #[test]
    fn a_device_is_remembered_for_one_person_and_nobody_else_writes_it() {
        let one = devices("a secret");
        let headers = returned(one.remember("ann", None, true));
        let id = one.find(&headers, "ann").expect("known");
        assert_eq!(one.find(&headers, "eve"), None, "another person");
        assert_eq!(devices("another").find(&headers, "ann"), None, "another key");
        assert_eq!(one.find(&HeaderMap::new(), "ann"), None);
        let again = returned(one.remember("ann", Some(id), false));
        assert_eq!(one.find(&again, "ann"), Some(id), "the same device");
        let other = returned(one.remember("ann", None, false));
        assert_ne!(one.find(&other, "ann"), Some(id), "another device");
    }
}
