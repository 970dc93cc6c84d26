//! Readers of the files that were read last.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use brisk_image::FileReader;

use super::node::{Fail, Nodes};

/// How many files keep their list of blocks.
const FILES: usize = 256;

/// The most blocks in all these lists, unless a single list is longer. A block takes 5 bytes.
const BLOCKS: u64 = 1 << 19;

/// Lists of blocks that are kept: making one takes time in proportion to the file, and a file is read in many
/// pieces.
#[derive(Default)]
pub(super) struct Readers {
    /// The last used reader is first.
    kept: Mutex<VecDeque<(u64, FileReader)>>,
}

impl Readers {
    /// The contents of the file that is node `nodeid`.
    pub(super) fn get(&self, nodes: Nodes<'_>, nodeid: u64) -> Result<FileReader, Fail> {
        {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(i) = kept.iter().position(|(node, _)| *node == nodeid)
                && let Some(found) = kept.remove(i)
            {
                let reader = found.1.clone();
                kept.push_front(found);
                return Ok(reader);
            }
        }
        let reader = nodes.file(nodeid)?;
        let blocks = |reader: &FileReader| reader.len() / u64::from(nodes.image.block_size()) + 1;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_front((nodeid, reader.clone()));
        let mut sum = 0;
        kept.truncate(FILES);
        let keep = kept.iter().position(|(_, reader)| {
            sum += blocks(reader);
            sum > BLOCKS
        });
        if let Some(keep) = keep {
            kept.truncate(keep.max(1));
        }
        Ok(reader)
    }
}
