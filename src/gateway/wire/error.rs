//! Errors of connections, as logs name them.

use crate::error::{ErrorKind, GatewayError};

/// Describes an error of a connection for the log, without its context, which can quote the bytes at hand.
pub(crate) fn describe_error(error: &pingora::Error) -> String {
    format!("{} ({})", error.etype().as_str(), error.esource().as_str())
}

/// The error of a request whose client has disconnected.
pub(crate) fn client_disconnected(error: &pingora::Error) -> GatewayError {
    GatewayError::new(ErrorKind::ClientDisconnected, "The customer went away.")
        .cause(describe_error(error))
}
