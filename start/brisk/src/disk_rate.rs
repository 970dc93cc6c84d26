//! The rates of a disk, as options give them.

use std::fmt;
use std::mem::discriminant;
use std::num::NonZeroU64;
use std::str::FromStr;

use anyhow::{Context, bail, ensure};
use brisk_launch::DiskCharge;
use brisk_terminal::size::parse_size;

/// How much a disk reads in a second: `bps=SIZE` or `iops=N`, at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rate {
    /// Bytes in a second.
    Bytes(u64),
    /// Operations in a second.
    Operations(u64),
}

impl FromStr for Rate {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let rate = match text.split_once('=') {
            Some(("bps", size)) => Self::Bytes(parse_size(size)?),
            Some(("iops", number)) => Self::Operations(
                number
                    .parse()
                    .ok()
                    .context("allowed is a number of operations, such as iops=2000")?,
            ),
            _ => bail!("allowed are bps=SIZE and iops=N, with a comma between them"),
        };
        match rate {
            Self::Bytes(0) | Self::Operations(0) => bail!("allowed is a number from 1"),
            rate => Ok(rate),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(number) => write!(f, "bps={number}"),
            Self::Operations(number) => write!(f, "iops={number}"),
        }
    }
}

/// Refuses two rates of one kind.
pub fn one_of_each_kind(rates: &[Rate]) -> anyhow::Result<()> {
    for (at, rate) in rates.iter().enumerate() {
        let is_of_its_kind = |other: &Rate| discriminant(other) == discriminant(rate);
        ensure!(
            !rates[..at].iter().any(is_of_its_kind),
            "{rate} is the second of its kind, allowed is one"
        );
    }
    Ok(())
}

/// Reads a [`Rate`], or one of each kind with a comma between them.
pub fn parse_charge(text: &str) -> anyhow::Result<DiskCharge> {
    let rates = text.split(',').map(str::parse::<Rate>);
    let rates = rates.collect::<anyhow::Result<Vec<_>>>()?;
    one_of_each_kind(&rates)?;
    let mut charge = DiskCharge::default();
    for rate in rates {
        // A rate is at least 1.
        match rate {
            Rate::Bytes(number) => charge.bytes_per_second = NonZeroU64::new(number),
            Rate::Operations(number) => charge.operations_per_second = NonZeroU64::new(number),
        }
    }
    Ok(charge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_rates() {
        let rates = |text| {
            let charge = parse_charge(text).unwrap();
            let number = |n: Option<NonZeroU64>| n.map(NonZeroU64::get);
            (
                number(charge.bytes_per_second),
                number(charge.operations_per_second),
            )
        };
        assert_eq!(rates("bps=200M"), (Some(200 << 20), None));
        assert_eq!(rates("iops=2000,bps=1G"), (Some(1 << 30), Some(2000)));
        for (text, why) in [
            (
                "",
                "allowed are bps=SIZE and iops=N, with a comma between them",
            ),
            (
                "2M",
                "allowed are bps=SIZE and iops=N, with a comma between them",
            ),
            ("bps=0", "allowed is a number from 1"),
            ("iops=0", "allowed is a number from 1"),
            (
                "iops=2k",
                "allowed is a number of operations, such as iops=2000",
            ),
            (
                "iops=1,iops=2",
                "iops=2 is the second of its kind, allowed is one",
            ),
        ] {
            assert_eq!(parse_charge(text).unwrap_err().to_string(), why, "{text}");
        }
    }

    #[test]
    fn a_second_rate_of_a_kind_is_refused() {
        use Rate::{Bytes, Operations};
        assert!(one_of_each_kind(&[Bytes(2), Operations(2)]).is_ok());
        for (rates, why) in [
            ([Operations(1), Bytes(200), Bytes(100)], "bps=100"),
            ([Bytes(1), Operations(5), Operations(5)], "iops=5"),
        ] {
            let e = one_of_each_kind(&rates).unwrap_err().to_string();
            assert_eq!(
                e,
                format!("{why} is the second of its kind, allowed is one")
            );
        }
    }
}
