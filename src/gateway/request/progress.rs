//! Progress of a try without a good answer.

/// Progress of a try without a good answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The upstream has nothing of the request, or too little to begin with it.
    NotSent,
    /// The upstream may be at work, and has not answered.
    Sent,
    /// The upstream has refused or failed with an answer that says that nothing was done.
    Refused,
    /// The upstream may still be at work, and has not answered in time.
    Silent,
    /// The upstream received the request, and the result is unknown.
    Lost,
}

impl Progress {
    /// True if the upstream may have done the work.
    pub(crate) fn may_be_done(self) -> bool {
        match self {
            Self::NotSent | Self::Refused => false,
            Self::Sent | Self::Silent | Self::Lost => true,
        }
    }
}

/// The object that a target does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// The model that the request names.
    Model,
    /// The path that the request goes to.
    Path,
}
