//! Measures what the disks of a profile charge.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::time::Duration;

use brisk_io::measure::MEASURED_LEN;
use brisk_io::{Charge, measure_charge};

use super::disk::{Disk, MeasuredCharges};
use super::profile_files::ProfileFiles;
use super::profile_replay::Replay;
use crate::error::{Action, Cause, Error, Result};

/// How long measuring a disk takes.
const MEASURING: Duration = Duration::from_millis(400);

/// How many files are read to measure a disk: the largest of the profile.
const MEASURED_FILES: usize = 8;

/// A disk that was measured.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MeasuredDisk {
    /// A name that identifies the disk: its number and its size.
    pub name: String,
    /// What it charges.
    pub charge: Charge,
}

impl Replay {
    /// Measures the disks that the profile's files are on, and keeps the results for this user. Leaves out
    /// disks that were measured before, unless `again`, and disks without a file that is large enough.
    ///
    /// # Errors
    ///
    /// `Place` if the user has no cache directory for the results, and `Io`.
    pub fn measure(self, again: bool) -> Result<Vec<MeasuredDisk>> {
        let mut disks: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for (root, fd) in (0u32..).zip(&self.roots) {
            if let Some(name) = fd.as_ref().and_then(|fd| Disk::of(fd).name()) {
                disks.entry(name).or_default().push(root);
            }
        }
        let files = ProfileFiles::new(self.profile, self.roots, self.complete);
        let mut measured = Vec::new();
        for (name, roots) in disks {
            let all = files.profile.files();
            let mut largest: Vec<u32> = (0u32..)
                .zip(all)
                .filter(|(_, file)| roots.contains(&file.root) && file.len >= MEASURED_LEN)
                .map(|(number, _)| number)
                .collect();
            if largest.is_empty() {
                continue;
            }
            let known = MeasuredCharges::open(false)?.and_then(|charges| charges.get(&name));
            if known.is_some() && !again {
                continue;
            }
            largest.sort_by_key(|&number| std::cmp::Reverse(all[number as usize].len));
            largest.truncate(MEASURED_FILES);
            let open: Vec<_> = largest.iter().filter_map(|&n| files.open(n)).collect();
            let open: Vec<&File> = open.iter().map(|file| &**file).collect();
            let charge = match measure_charge(&open, MEASURING) {
                Ok(charge) => charge,
                // There is too little to read, or direct reads are impossible.
                Err(e) if e.kind() == io::ErrorKind::InvalidInput => continue,
                Err(e) => {
                    let cause = Cause::io(format!("read from the disk {name}"), e);
                    return Err(Error::new(Action::Measure, cause));
                }
            };
            if let Some(charges) = MeasuredCharges::open(true)? {
                charges.keep(&name, charge)?;
            }
            measured.push(MeasuredDisk { name, charge });
        }
        Ok(measured)
    }
}
