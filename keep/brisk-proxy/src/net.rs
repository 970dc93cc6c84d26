use std::net::IpAddr;

use anyhow::{Context, bail};
use ipnet::IpNet;

/// Addresses whose first bits are equal, such as 192.168.0.0/16. Those of IPv4 are in no net of IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Net(IpNet);

impl Net {
    /// Reads `ADDRESS` or `ADDRESS/BITS`.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let form =
            "allowed is an address with or without a number of bits, such as 192.168.0.0/16 or ::1";
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok().context(form)?;
        let most = IpNet::from(address).max_prefix_len();
        let bits: u8 = match bits {
            None => most,
            Some(bits) => bits.parse().ok().context(form)?,
        };
        if bits > most {
            bail!("{text} has {bits} bits; allowed are at most {most}");
        }
        // What an IPv6 socket shows of IPv4 is taken for what it is.
        let (address, bits) = match (address.to_canonical(), bits.checked_sub(96)) {
            (of_v4 @ IpAddr::V4(_), Some(bits)) => (of_v4, bits),
            _ => (address, bits),
        };
        Ok(Self(IpNet::new(address, bits)?))
    }

    /// Whether an address is among these.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_net_has_the_addresses_with_its_bits() {
        for (net, address, expected) in [
            ("192.168.0.0/16", "192.168.3.4", true),
            ("192.168.0.0/16", "192.169.0.1", false),
            ("192.168.0.0/16", "::ffff:192.168.3.4", true),
            ("::ffff:192.168.0.0/112", "192.168.3.4", true),
            ("0.0.0.0/0", "8.8.8.8", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "::1", true),
            ("10.0.0.1", "10.0.0.1", true),
            ("10.0.0.1", "10.0.0.2", false),
            ("fd00::/8", "fd12::1", true),
            ("fd00::/8", "fe80::1", false),
        ] {
            let contains = Net::parse(net).unwrap().contains(address.parse().unwrap());
            assert_eq!(contains, expected, "{net} {address}");
        }
        for text in ["", "10.0.0", "10.0.0.0/33", "10.0.0.0/-1", "::/129", "a/8"] {
            assert!(Net::parse(text).is_err(), "{text}");
        }
    }
}
