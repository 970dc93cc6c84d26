use std::fmt;
use std::net::IpAddr;

use anyhow::{Context, bail};

/// Addresses whose first bits are equal, such as 192.168.0.0/16.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Net {
    address: IpAddr,
    bits: u8,
}

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
        let most = most_bits(address);
        let bits = match bits {
            None => most,
            Some(bits) => bits.parse().ok().context(form)?,
        };
        if bits > most {
            bail!("{text} has {bits} bits; allowed are at most {most}");
        }
        Ok(Self { address, bits })
    }

    /// Whether an address is among these.
    pub fn contains(&self, address: IpAddr) -> bool {
        // An IPv6 socket shows IPv4 peers as addresses of IPv6.
        let (own, other) = (self.address.to_canonical(), address.to_canonical());
        let bits = u32::from(self.bits);
        match (own, other) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let bits = match self.address {
                    IpAddr::V4(_) => bits,
                    IpAddr::V6(_) => bits.saturating_sub(96),
                };
                let differ = u32::from(own) ^ u32::from(other);
                differ.leading_zeros() >= bits
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differ = u128::from(own) ^ u128::from(other);
                differ.leading_zeros() >= bits
            }
            _ => false,
        }
    }
}

fn most_bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
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
