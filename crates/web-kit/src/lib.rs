//! Parts of the customers' and the operators' consoles. Neither knows the other: each has its own router,
//! cookie and key.
//!
//! | File | What it knows |
//! |---|---|
//! | `guard` | what every request of a console goes through: session, CSRF, headers |
//! | `session` | who is logged in, in a signed cookie |
//! | `attempts` | how often anything may be tried |
//! | `log_ins`, `sign_ups` | how often passwords may be tried, how many accounts may be opened |
//! | `device` | where somebody was logged in before, in a signed cookie |
//! | `form` | the fields of a form, what is wrong with them, and that one which is sent twice counts once |
//! | `done` | what a form came to, in the address of the next page |
//! | `request_list` | what lists of requests say and are filtered by |
//! | `frame` | what every page has around its content |
//! | `show` | how money, times and counts are written |
//! | `price_lines` | how prices of a model are written |
//! | `assets` | style sheet, scripts and icon, embedded |
//!
//! Pages work without JavaScript, but for charts and the playground. The policy that goes with each
//! allows no script and no style but the embedded ones, so a text of a stranger's that got through
//! the templates' escaping would still not run.

// Tests fail by panicking; the product does not.
#![deny(clippy::expect_used)]

// Templates name the kit by its own name, as those of both consoles do, which extend them.
extern crate self as tollgate_web_kit;

mod assets;
mod attempts;
mod device;
mod done;
mod form;
mod frame;
mod guard;
mod log_ins;
mod page;
pub mod password;
mod price_lines;
pub mod request_list;
mod session;
pub mod show;
mod sign_ups;

pub use assets::serve as assets;
pub use attempts::{OwnAttempts, TryCounter, customer};
pub use device::{DeviceId, Devices};
pub use done::DoneMessages;
pub use form::{FieldError, FieldErrors, Form, new_submit_token};
pub use frame::{FailurePage, FlashLevel, HtmlPage, NavItem, PageFrame};
pub use guard::{Client, ConsoleGuard, ShowsMedia, guard};
pub use log_ins::{LogIns, Trying};
pub use page::cut_page;
pub use price_lines::{PriceLine, price_lines};
pub use session::{Session, SessionChange, Sessions};
pub use sign_ups::SignUps;
