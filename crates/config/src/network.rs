//! Networks of IP addresses, as `trusted_proxies` names them.

use ipnet::IpNet;

use super::scalar::{Scalar, ScalarError};

/// A network such as `10.0.0.0/8`, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Network(pub(super) IpNet);

impl Scalar for Network {
    const FORMAT: &'static str = "tollgate-network";
    const DESCRIPTION: &'static str =
        "a network such as `10.0.0.0/8` or `fd00::/8`, or one IP address";
    const NUMBER: bool = false;
    const PATTERN: &'static str = r"^([0-9a-fA-F.:]+(/[0-9]+)?|.*\$\{.*)$";

    fn parse(text: &str) -> Result<Self, ScalarError> {
        if let Ok(address) = text.parse() {
            return Ok(Self(IpNet::from(std::net::IpAddr::to_canonical(&address))));
        }
        let network: IpNet = text.parse().map_err(|_| {
            ScalarError::new("this is not a network", format!("write {}", Self::DESCRIPTION))
        })?;
        // Bits behind the prefix are a slip of the pen in one of the two.
        if network != network.trunc() {
            let help = format!("did you mean `{}`?", network.trunc());
            return Err(ScalarError::new("this address is inside the network, not its name", help));
        }
        Ok(Self(network))
    }
}

super::scalar::scalar!(Network);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_named_by_their_first_address() {
        for (text, network) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("fd00::/8", "fd00::/8"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("192.0.2.7", "192.0.2.7/32"),
            ("::1", "::1/128"),
            ("::ffff:192.0.2.7", "192.0.2.7/32"),
        ] {
            assert_eq!(Network::parse(text).map(|n| n.0.to_string()).as_deref(), Ok(network));
        }
        for text in ["", "10.0.0.0/33", "10.0.0/8", "10.0.0.1/8", "10.0.0.0/", "lan", "fd00::/129"]
        {
            assert!(Network::parse(text).is_err(), "{text:?} was accepted");
        }
    }
}
