//! The end of the process where going on could lose or invent money.

/// Ends the process where going on could lose or invent money.
pub(crate) fn fatal(what: &str) -> ! {
    log::error!("{what}; the process ends so that no money is lost");
    eprintln!("tollgate: {what}; the process ends so that no money is lost");
    std::process::abort()
}
