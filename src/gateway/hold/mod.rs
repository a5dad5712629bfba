//! Holds for accounts with little money: shares of parallel calls, counted prompts and lower output limits.

pub(super) mod clamp;
pub(super) mod small_balance;
