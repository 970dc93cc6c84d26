//! What is measured with which store, on which directory, and what takes turns with what.

use super::results::Figure;

/// Figures that are compared with each other take turns. The cold ones come last, because they take everything out of
/// memory.
pub const TURNS: [&[Figure]; 10] = [
    &[Figure::Open],
    &[Figure::Get],
    &[Figure::Tables],
    &[Figure::Again],
    &[Figure::Update],
    &[Figure::DurableUpdate],
    &[Figure::One, Figure::Eight],
    &[Figure::OpenFew, Figure::OpenMany],
    &[Figure::GetFew, Figure::GetMany],
    &[Figure::Cold],
];

/// How many runs stand for one of the experiment. A run that is over in microseconds, or that depends on where the kernel has
/// put the pages of its process, says little: its figure gets more of them.
pub fn runs_for_one(figure: Figure) -> u32 {
    match figure {
        Figure::Open | Figure::OpenFew | Figure::OpenMany => 10,
        Figure::Get => 3,
        _ => 1,
    }
}

/// What the directory holds that a figure reads or changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// Values of 1 KB.
    Values,
    /// Tables of 84 KB.
    Tables,
    /// Values of 400 bytes.
    Updates,
    /// A thousand values of 64 bytes.
    Few,
    /// Many values of 64 bytes.
    Many,
}

impl Contents {
    pub const ALL: [Self; 5] = [
        Self::Values,
        Self::Tables,
        Self::Updates,
        Self::Few,
        Self::Many,
    ];

    pub fn of(figure: Figure) -> Self {
        match figure {
            Figure::Open | Figure::Get | Figure::One | Figure::Eight => Self::Values,
            Figure::Tables | Figure::Again | Figure::Cold => Self::Tables,
            Figure::Update | Figure::DurableUpdate => Self::Updates,
            Figure::OpenFew | Figure::GetFew => Self::Few,
            Figure::OpenMany | Figure::GetMany => Self::Many,
        }
    }

    /// Its name in results and on the disk.
    pub fn name(self) -> &'static str {
        match self {
            Self::Values => "values",
            Self::Tables => "tables",
            Self::Updates => "updates",
            Self::Few => "few",
            Self::Many => "many",
        }
    }

    /// Bytes of each value.
    pub fn value_len(self) -> usize {
        match self {
            Self::Values => 1024,
            Self::Tables => 84_000,
            Self::Updates => 400,
            Self::Few | Self::Many => 64,
        }
    }
}

/// Whether a figure is measured with a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    Measured,
    /// The store is no rival in it.
    Beside,
    /// It is left out, for this reason.
    LeftOut(&'static str),
}

pub fn fit(store: &str, figure: Figure) -> Fit {
    let contents = Contents::of(figure);
    match (store, figure) {
        ("memory", Figure::Get | Figure::One | Figure::Eight) => Fit::Measured,
        ("memory", _) => Fit::Beside,
        ("cacache", Figure::DurableUpdate) => Fit::LeftOut("it never waits for the disk"),
        ("files" | "cacache", _) if contents == Contents::Many => Fit::LeftOut(
            "with files for each entry, filling, syncing and removing the directory takes many minutes",
        ),
        ("files-rkyv", _) if contents != Contents::Tables => {
            Fit::LeftOut("without tables it is the same as files")
        }
        (
            "lmdb-one-txn",
            Figure::Open
            | Figure::Cold
            | Figure::Update
            | Figure::DurableUpdate
            | Figure::OpenFew
            | Figure::OpenMany,
        ) => Fit::LeftOut("it differs from lmdb only in the second and later gets from memory"),
        _ => Fit::Measured,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_has_one_turn() {
        let mut all: Vec<_> = TURNS.concat();
        all.sort();
        assert_eq!(all, Figure::ALL);
    }
}
