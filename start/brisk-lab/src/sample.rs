//! A sample of a tree that represents all of it.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::walk::WalkedFile;

/// From files larger than this, pieces of this size are taken. It is the largest block size.
const PIECE: u64 = 1 << 20;

/// Writes about `size` bytes of the files of `tree` to `target`: some of the small files, and some pieces of
/// each larger file. So every kind of content has the same share as in the tree. The same tree always gives
/// the same sample.
pub fn take(tree: &Path, files: &[WalkedFile], size: u64, target: &Path) -> Result<()> {
    let whole: u64 = files.iter().map(|file| file.len).sum();
    fs::create_dir(target).with_context(|| format!("cannot make {}", target.display()))?;
    let mut taken = 0;
    for file in files {
        let name = file.path.strip_prefix(tree)?;
        let mut sampled = None;
        for piece in 0..file.len.div_ceil(PIECE) {
            let mut hasher = blake3::Hasher::new();
            hasher.update(name.as_os_str().as_bytes());
            hasher.update(&piece.to_le_bytes());
            let [a, b, c, d, ..] = *hasher.finalize().as_bytes();
            let drawn = u128::from(u32::from_le_bytes([a, b, c, d]));
            // Take it if `drawn` / 2^32 is below `size` / `whole`.
            if drawn * u128::from(whole) >= u128::from(size) << 32 {
                continue;
            }
            let copy = || -> io::Result<u64> {
                let mut from = File::open(&file.path)?;
                from.seek(SeekFrom::Start(piece * PIECE))?;
                let place = target.join(name);
                let to: &mut File = match &mut sampled {
                    Some(to) => to,
                    none => {
                        if let Some(folder) = place.parent() {
                            fs::create_dir_all(folder)?;
                        }
                        none.insert(File::create(&place)?)
                    }
                };
                let copied = io::copy(&mut from.take(PIECE), to)?;
                to.flush()?;
                Ok(copied)
            };
            let mut copy = copy;
            taken += copy().with_context(|| format!("cannot sample {}", file.path.display()))?;
        }
    }
    ensure!(
        taken > 0,
        "a sample of {size} of {whole} bytes has no file; make it larger with --sample"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::walk::walk;

    #[test]
    fn a_sample_has_its_share_of_small_files_and_of_large_ones() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("a")).unwrap();
        for number in 0..400 {
            fs::write(tree.join(format!("a/{number}")), vec![1; 10_000]).unwrap();
        }
        fs::write(tree.join("large"), vec![2; 40 << 20]).unwrap();
        let walked = walk(&tree).unwrap();
        let sample = |name: &str| {
            let target = dir.path().join(name);
            take(&tree, &walked.files, walked.bytes / 4, &target).unwrap();
            walk(&target).unwrap()
        };
        let found = sample("one");
        assert_eq!(sample("two").digest, found.digest);
        let share = |bytes: u64, of: u64| bytes as f64 / of as f64;
        assert!((0.1..0.4).contains(&share(found.bytes, walked.bytes)));
        let large = found.files.iter().map(|file| file.len).max().unwrap();
        assert!(large > 1 << 20 && large.is_multiple_of(1 << 20));
        assert!(
            (60..140).contains(&found.files.len()),
            "{}",
            found.files.len()
        );
        let e = take(&tree, &walked.files, 0, &dir.path().join("none")).unwrap_err();
        assert!(e.to_string().contains("make it larger"), "{e}");
    }
}
