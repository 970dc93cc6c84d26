//! The branch filters of xz.

use crate::error::{Error, Result};

/// A branch filter: it turns relative addresses in machine code into absolute ones, so that calls
/// of one function look alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum Bcj {
    /// x86, 32 and 64 bit.
    X86,
    /// PowerPC, big-endian.
    PowerPc,
    /// IA-64.
    Ia64,
    /// ARM, 32 bit.
    Arm,
    /// ARM Thumb.
    ArmThumb,
    /// SPARC.
    Sparc,
    /// ARM, 64 bit. Linux decodes it since 6.12.
    Arm64,
    /// RISC-V. Linux decodes it since 6.12.
    RiscV,
}

impl Bcj {
    /// Every filter, in the order in which they are tried.
    pub const ALL: [Self; 8] = [
        Self::X86,
        Self::PowerPc,
        Self::Ia64,
        Self::Arm,
        Self::ArmThumb,
        Self::Sparc,
        Self::Arm64,
        Self::RiscV,
    ];

    /// The name of the filter: `x86`, `powerpc`, `ia64`, `arm`, `armthumb`, `sparc`, `arm64` or
    /// `riscv`.
    pub fn name(self) -> &'static str {
        match self {
            Self::X86 => "x86",
            Self::PowerPc => "powerpc",
            Self::Ia64 => "ia64",
            Self::Arm => "arm",
            Self::ArmThumb => "armthumb",
            Self::Sparc => "sparc",
            Self::Arm64 => "arm64",
            Self::RiscV => "riscv",
        }
    }

    /// The flag of the filter in the options of an image.
    fn bit(self) -> u8 {
        match self {
            Self::X86 => 1 << 0,
            Self::PowerPc => 1 << 1,
            Self::Ia64 => 1 << 2,
            Self::Arm => 1 << 3,
            Self::ArmThumb => 1 << 4,
            Self::Sparc => 1 << 5,
            Self::Arm64 => 1 << 6,
            Self::RiscV => 1 << 7,
        }
    }
}

impl std::str::FromStr for Bcj {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let known = Self::ALL.into_iter().find(|filter| filter.name() == name);
        known.ok_or_else(|| {
            let allowed = Self::ALL.map(Self::name).join(", ");
            Error::input(format!("branch filter is {name:?}, allowed is {allowed}"))
        })
    }
}

/// A set of branch filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(from = "Vec<Bcj>", into = "Vec<Bcj>"))]
pub struct BcjSet(u8);

impl BcjSet {
    /// No filter.
    pub const EMPTY: Self = Self(0);

    /// Whether no filter is in the set.
    pub fn is_empty(&self) -> bool {
        self.0 == 0
    }

    /// The filters, in the order in which they are tried.
    pub fn iter(self) -> impl Iterator<Item = Bcj> {
        Bcj::ALL
            .into_iter()
            .filter(move |filter| self.0 & filter.bit() != 0)
    }

    /// The set as the flags in the options of an image.
    #[cfg(feature = "write")]
    pub(crate) fn to_wire(self) -> u32 {
        u32::from(self.0)
    }

    /// The set that `flags` stands for, if every flag has a filter.
    pub(crate) fn from_wire(flags: u32) -> Option<Self> {
        u8::try_from(flags).ok().map(Self)
    }
}

impl FromIterator<Bcj> for BcjSet {
    fn from_iter<T: IntoIterator<Item = Bcj>>(filters: T) -> Self {
        Self(
            filters
                .into_iter()
                .fold(0, |set, filter| set | filter.bit()),
        )
    }
}

impl From<Vec<Bcj>> for BcjSet {
    fn from(filters: Vec<Bcj>) -> Self {
        filters.into_iter().collect()
    }
}

impl From<BcjSet> for Vec<Bcj> {
    fn from(set: BcjSet) -> Self {
        set.iter().collect()
    }
}
