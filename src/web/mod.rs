//! What the customers' and the operators' consoles are built of. Neither knows the other: each has
//! its own router, cookie and key.
//!
//! | File | What it knows |
//! |---|---|
//! | `guard` | what every request of a console goes through: session, CSRF, headers |
//! | `session` | who is logged in, in a signed cookie |
//! | `attempts` | how often somebody may try to log in |
//! | `frame` | what every page has around its content |
//! | `show` | how money, times and counts are written |
//! | `assets` | style sheet, scripts and icon, embedded |
//!
//! Pages work without JavaScript, but for charts and the playground. The policy that goes with each
//! allows no script and no style but the embedded ones, so a text of a stranger's that got through
//! the templates' escaping would still not run.

mod assets;
mod attempts;
mod frame;
mod guard;
mod session;
pub(crate) mod show;

pub(crate) use assets::serve as assets;
pub(crate) use attempts::Attempts;
pub(crate) use frame::{Failed, Frame, NavItem, Page, Tone};
pub(crate) use guard::{Client, Guarded, ShowsMedia, guard};
pub(crate) use session::{Session, SessionChange, SessionId, Sessions};
