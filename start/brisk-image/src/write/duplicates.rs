//! Finding files with equal contents before anything is compressed.

use std::collections::HashMap;

use super::data_writer::is_zero;
use crate::error::Result;
use crate::ordered;
use crate::tree::{InodeId, SourceId, Tree, TreeKind};
use crate::work::Work;

/// Bytes of a file that are hashed first: most files of one length already differ there.
const PREFIX: u64 = 4096;

/// Bytes read at once.
const CHUNK: usize = 256 << 10;

/// Files that are given to a thread at once, if they are not longer than [`CHUNK`] together: a
/// prefix is hashed in less time than it takes to hand it over.
const BATCH: usize = 32;

/// For each of `files`, in their order, the one that is stored in its place, if another has the same
/// contents: the first of them that is `preferred`, or else the first.
///
/// Contents are the same if their lengths and BLAKE3 digests are. What the source of the tree knows is not read.
pub(crate) fn find(
    tree: &Tree,
    files: &[InodeId],
    preferred: impl Fn(InodeId) -> bool,
    work: &Work,
) -> Result<HashMap<InodeId, InodeId>> {
    let file = |&inode: &InodeId| match tree.inodes[inode].kind {
        TreeKind::File { len, source } => Some(Candidate { inode, source, len }),
        _ => None,
    };
    let by_len = groups(files.iter().filter_map(file), |c| c.len);
    let prefixes = hashed(tree, &by_len, PREFIX, work)?;
    let by_prefix = groups(prefixes, |(c, digest)| (c.len, *digest));
    // A file that is its prefix was read whole.
    let (whole, longer): (Vec<_>, Vec<_>) =
        by_prefix.into_iter().partition(|(c, _)| c.len <= PREFIX);
    let longer: Vec<_> = longer.into_iter().map(|(c, _)| c).collect();
    let longer = hashed(tree, &longer, u64::MAX, work)?;
    let mut first = HashMap::new();
    let mut duplicates = HashMap::new();
    let position: HashMap<InodeId, usize> = files.iter().copied().zip(0..).collect();
    let mut same: Vec<_> = whole.into_iter().chain(longer).collect();
    same.sort_by_key(|(c, _)| position.get(&c.inode));
    for (candidate, digest) in &same {
        let leader = first
            .entry((candidate.len, *digest))
            .or_insert(candidate.inode);
        if !preferred(*leader) && preferred(candidate.inode) {
            *leader = candidate.inode;
        }
    }
    for (candidate, digest) in same {
        let leader = first[&(candidate.len, digest)];
        if leader != candidate.inode {
            duplicates.insert(candidate.inode, leader);
        }
    }
    Ok(duplicates)
}

#[derive(Debug, Clone, Copy)]
struct Candidate {
    inode: InodeId,
    source: SourceId,
    len: u64,
}

type Digest = [u8; 32];

/// The members of all groups of at least two with the same key.
fn groups<T: Clone, K: std::hash::Hash + Eq>(
    items: impl IntoIterator<Item = T>,
    key: impl Fn(&T) -> K,
) -> Vec<T> {
    let items: Vec<T> = items.into_iter().collect();
    let mut counts: HashMap<K, usize> = HashMap::new();
    for item in &items {
        *counts.entry(key(item)).or_default() += 1;
    }
    items
        .into_iter()
        .filter(|item| counts.get(&key(item)).is_some_and(|&n| n > 1))
        .collect()
}

/// The digest of the first `most` bytes of each candidate.
fn hashed(
    tree: &Tree,
    candidates: &[Candidate],
    most: u64,
    work: &Work,
) -> Result<Vec<(Candidate, Digest)>> {
    let mut digests = Vec::with_capacity(candidates.len());
    ordered::for_each(
        work.thread_count(),
        work.thread_count().saturating_mul(64),
        batches(candidates, most),
        || vec![0; CHUNK],
        |buf, batch| {
            let hashed = batch
                .iter()
                .map(|&candidate| Ok((candidate, digest(tree, candidate, most, work, buf)?)));
            hashed.collect()
        },
        |hashed: Result<Vec<_>>| {
            digests.extend(hashed?);
            Ok(())
        },
    )?;
    Ok(digests)
}

/// `candidates` in their order, in parts that take about as long as each other where the first
/// `most` bytes of each are read.
fn batches(mut candidates: &[Candidate], most: u64) -> impl Iterator<Item = &[Candidate]> + Send {
    std::iter::from_fn(move || {
        let mut bytes = 0u64;
        let fit = candidates.iter().take(BATCH).take_while(|candidate| {
            bytes = bytes.saturating_add(candidate.len.min(most));
            bytes <= CHUNK as u64
        });
        // A file that does not fit is a batch of its own.
        let n = fit.count().max(1).min(candidates.len());
        let (batch, later) = candidates.split_at(n);
        candidates = later;
        (!batch.is_empty()).then_some(batch)
    })
}

fn digest(
    tree: &Tree,
    candidate: Candidate,
    most: u64,
    work: &Work,
    buf: &mut [u8],
) -> Result<Digest> {
    if let Some(digest) = tree.source.digest(candidate.source) {
        return Ok(digest);
    }
    let mut file = tree.source.open(candidate.source)?;
    let mut hasher = blake3::Hasher::new();
    let end = candidate.len.min(most);
    let (mut at, mut zeros) = (0, 0);
    // A run of zeros is hashed as its length, so that holes of any length take no time. A part is
    // zeros or not, however it is stored.
    let mut hash = |zeros: &mut u64, part: &[u8]| {
        hasher.update(&std::mem::take(zeros).to_le_bytes());
        hasher.update(part);
    };
    while at < end {
        work.ask()?;
        let n = usize::try_from(end - at)
            .unwrap_or(usize::MAX)
            .min(buf.len());
        let part = &mut buf[..n];
        let is_hole = file.is_hole(at, n as u64)?;
        if !is_hole {
            file.read_exact_at(at, part)?;
        }
        match is_hole || is_zero(part) {
            true => zeros += n as u64,
            false => hash(&mut zeros, part),
        }
        at += n as u64;
    }
    hash(&mut zeros, &[]);
    file.check_unchanged()?;
    Ok(*hasher.finalize().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_hold_every_candidate_once_and_in_order() {
        let chunk = CHUNK as u64;
        let table: &[(&[u64], u64, &[usize])] = &[
            (&[], u64::MAX, &[]),
            (&[9 * chunk, 1, u64::MAX, u64::MAX], u64::MAX, &[1, 1, 1, 1]),
            (&[chunk / 2, chunk / 2, 1], u64::MAX, &[2, 1]),
            (&[1; BATCH + 1], u64::MAX, &[BATCH, 1]),
            (&[u64::MAX; BATCH + 1], PREFIX, &[BATCH, 1]),
        ];
        for &(lens, most, expected) in table {
            let candidates: Vec<_> = (0..)
                .zip(lens)
                .map(|(inode, &len)| Candidate {
                    inode,
                    source: 0,
                    len,
                })
                .collect();
            let got: Vec<_> = batches(&candidates, most).collect();
            let sizes: Vec<_> = got.iter().map(|batch| batch.len()).collect();
            assert_eq!(sizes, expected);
            let inodes = got.concat().into_iter().map(|c| c.inode);
            assert!(inodes.eq(0..lens.len()));
        }
    }
}
