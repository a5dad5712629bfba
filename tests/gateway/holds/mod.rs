//! How requests are held whose most does not fit their accounts.

mod clamp;
mod count;
mod rolling;
mod shares;
