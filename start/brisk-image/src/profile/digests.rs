//! Digests of the files that were read.

use super::Profile;
use super::origin::Origin;
use crate::error::Result;
use crate::ordered;
use crate::work::Work;

impl Profile {
    /// Reads the files of the root `root` in `origin`, and adds their digests. Returns how many
    /// files have none: those that it cannot read, and those with another length than in the
    /// profile.
    ///
    /// # Errors
    ///
    /// `Io` and `Corrupt` if a file that could be opened cannot be read.
    pub fn add_digests(&mut self, root: u32, origin: &Origin, work: &Work) -> Result<u64> {
        let mut digests = Vec::with_capacity(self.files.len());
        ordered::for_each(
            work.thread_count(),
            work.thread_count().saturating_mul(8),
            self.files.iter(),
            || (),
            |(), file| {
                if file.root != root {
                    return Ok(file.digest);
                }
                // A program may execute what it cannot read.
                let digest = match origin.open(&file.path) {
                    Ok(Some(found)) if found.len() == file.len => Some(found.digest()?),
                    Ok(_) | Err(_) => None,
                };
                work.tell(file.len)?;
                Ok(digest)
            },
            |digest: Result<_>| {
                digests.push(digest?);
                Ok(())
            },
        )?;
        let mut without = 0;
        for (file, digest) in self.files.iter_mut().zip(digests) {
            file.digest = digest;
            without += u64::from(file.root == root && digest.is_none());
        }
        Ok(without)
    }
}
