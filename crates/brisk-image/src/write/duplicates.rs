//! Finding files with equal contents before anything is compressed.

use std::collections::HashMap;

use crate::error::Result;
use crate::ordered;
use crate::tree::{InodeId, SourceId, Tree, TreeKind};

/// Bytes of a file that are hashed first: most files of one length already differ there.
const PREFIX: u64 = 4096;

/// Bytes read at once.
const CHUNK: usize = 256 << 10;

/// For each of `files`, in their order, the first of them with the same contents, if an earlier
/// one has.
///
/// Contents are the same if their lengths and BLAKE3 digests are.
pub(crate) fn find(
    tree: &Tree,
    files: &[InodeId],
    threads: usize,
) -> Result<HashMap<InodeId, InodeId>> {
    let file = |&inode: &InodeId| match tree.inodes[inode].kind {
        TreeKind::File { len, source } => Some(Candidate { inode, source, len }),
        _ => None,
    };
    let by_len = groups(files.iter().filter_map(file), |c| c.len);
    let prefixes = hashed(tree, by_len, PREFIX, threads)?;
    let by_prefix = groups(prefixes, |(c, digest)| (c.len, *digest));
    // A file that is its prefix was read whole.
    let (whole, longer): (Vec<_>, Vec<_>) =
        by_prefix.into_iter().partition(|(c, _)| c.len <= PREFIX);
    let longer = hashed(
        tree,
        longer.into_iter().map(|(c, _)| c).collect(),
        u64::MAX,
        threads,
    )?;
    let mut first = HashMap::new();
    let mut duplicates = HashMap::new();
    let position: HashMap<InodeId, usize> = files.iter().copied().zip(0..).collect();
    let mut same: Vec<_> = whole.into_iter().chain(longer).collect();
    same.sort_by_key(|(c, _)| position.get(&c.inode));
    for (candidate, digest) in same {
        let leader = *first
            .entry((candidate.len, digest))
            .or_insert(candidate.inode);
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
    candidates: Vec<Candidate>,
    most: u64,
    threads: usize,
) -> Result<Vec<(Candidate, Digest)>> {
    let mut digests = Vec::with_capacity(candidates.len());
    ordered::for_each(
        threads,
        threads * 64,
        candidates.into_iter(),
        || vec![0; CHUNK],
        |buf, candidate| Ok((candidate, digest(tree, candidate, most, buf)?)),
        |hashed: Result<_>| {
            digests.push(hashed?);
            Ok(())
        },
    )?;
    Ok(digests)
}

fn digest(tree: &Tree, candidate: Candidate, most: u64, buf: &mut [u8]) -> Result<Digest> {
    let mut file = tree.source.open(candidate.source)?;
    let mut hasher = blake3::Hasher::new();
    let end = candidate.len.min(most);
    let mut at = 0;
    while at < end {
        let n = usize::try_from(end - at)
            .unwrap_or(usize::MAX)
            .min(buf.len());
        let part = &mut buf[..n];
        if file.is_hole(at, n as u64)? {
            part.fill(0);
        } else {
            file.read_exact_at(at, part)?;
        }
        hasher.update(part);
        at += n as u64;
    }
    file.check_unchanged()?;
    Ok(*hasher.finalize().as_bytes())
}
