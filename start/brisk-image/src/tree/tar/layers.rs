//! A tree to be packed from the layers of a container image.
//!
//! Each layer is read twice. The first time, layers are unpacked beside each other, checked, and only their entries are
//! kept. They become one tree, layer by layer. The second time, the writer asks for the contents of the files that are left,
//! in the order in which the layers hold them. So nothing that is unpacked is ever written down.
//!
//! What a layer means is in the image specification of the Open Container Initiative, "Image Layer Filesystem Changeset".

use std::io::{self, BufReader, Read};
use std::sync::{Arc, Mutex, PoisonError};

use super::layer::{Budget, Layer, LayerInput, MOST_ENTRIES, Unpacked, unpack_error};
use super::reader::{Segment, TarEntry, TarKind, TarReader};
use super::source::{Extracted, OpenFile, Stored, segments_of};
use crate::error::{Error, Result};
use crate::ordered;
use crate::tree::rules::TreeRules;
use crate::tree::{FileSource, SourceFile, SourceId, Tree, TreeKind};

/// Layers of an image at most. Docker makes no more than 127.
const MOST_LAYERS: usize = 1000;

/// Bytes unpacked at once on the way to those that are asked for.
const CHUNK: usize = 256 << 10;

impl Tree {
    /// The tree that `layers` make one on top of the other, the lowest first, as `rules` say.
    ///
    /// Entries `.wh.NAME` delete what lower layers have, and `.wh..wh..opq` all of a directory. Paths lead through directories
    /// of the tree only, never through a link. Contents stay in the layers, so the tree is to be written while they are
    /// there; [`ImageWriter::write`](crate::ImageWriter::write) reads each layer once more. The tree depends only on the layers:
    /// neither on threads nor on the time.
    ///
    /// # Errors
    ///
    /// `Input` for a layer that is not what its digests say, is no archive, does not fit those below, or unpacks to far more
    /// than it is long; `Unsupported` for other compressions; `Limit` if all layers unpack to more than `most_bytes`. The path is
    /// the name of the layer.
    pub fn from_layers(layers: Vec<Layer>, most_bytes: u64, rules: &TreeRules) -> Result<Self> {
        if layers.len() > MOST_LAYERS {
            return Err(Error::input(format!(
                "the image has {} layers, allowed are {MOST_LAYERS}; have it made with fewer",
                layers.len()
            )));
        }
        let layers: Vec<_> = layers.into_iter().map(Arc::new).collect();
        let budget = Budget::new(most_bytes);
        let mut tree = Extracted::of_layers(rules, most_bytes, MOST_ENTRIES as usize);
        let mut files = Vec::new();
        let threads = rules.listing_threads().min(layers.len());
        ordered::for_each(
            threads,
            threads,
            layers.iter().enumerate(),
            || (),
            |(), (number, layer)| (number, layer, read(layer, &budget)),
            |(number, layer, entries)| {
                let added = entries.and_then(|entries| tree.add_layer(entries));
                let digests = added.map_err(|e| e.with_path(layer.name()))?;
                files.extend(digests.into_iter().map(|digest| LayerFile {
                    layer: number,
                    digest,
                }));
                Ok(())
            },
        )?;
        let mut tree = tree.into_tree(|segments, ends| {
            Box::new(LayerSource {
                layers,
                files,
                segments,
                ends,
                cursor: Mutex::new(None),
            })
        })?;
        let is_device =
            |kind: &TreeKind| matches!(kind, TreeKind::BlockDevice(_) | TreeKind::CharDevice(_));
        let devices = tree.inodes.iter().filter(|inode| is_device(&inode.kind));
        match devices.count() {
            0 => {}
            n => tree.warnings.push(format!(
                "device files were kept, which only a mount by root opens ({n}); leave them out with an exclude pattern"
            )),
        }
        Ok(tree)
    }
}

/// An entry, and the digest of its contents. What is no regular file has any.
type WithDigest = (TarEntry, [u8; 32]);

/// The entries of a layer whose digests are right.
fn read(layer: &Arc<Layer>, budget: &Budget) -> Result<Vec<WithDigest>> {
    let entries = read_unchecked(layer, budget);
    match entries {
        // What is wrong with bytes that are others than they should be tells nothing.
        Err(e) if e.kind() != crate::ErrorKind::Limit => {
            layer.check_digest()?;
            Err(e)
        }
        entries => entries,
    }
}

fn read_unchecked(layer: &Arc<Layer>, budget: &Budget) -> Result<Vec<WithDigest>> {
    let mut reader = TarReader::of_layer(LayerInput::new(layer, budget)?);
    let mut entries = Vec::new();
    while let Some(entry) = reader.next()? {
        let digest = match &entry.kind {
            TarKind::File { len, segments } => {
                with_holes(reader.input().contents(), *len, segments)
            }
            _ => Default::default(),
        };
        budget.entry(entry.metadata())?;
        entries.push((entry, digest));
    }
    let (input, _) = reader.into_input();
    input.finish()?;
    layer.check_unchanged()?;
    Ok(entries)
}

/// The digest of a file of `len` bytes whose segments hold what has the digest `contents`.
fn with_holes(contents: [u8; 32], len: u64, segments: &[Segment]) -> [u8; 32] {
    if let [Segment { piece, .. }] = segments
        && piece.len == len
    {
        return contents;
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update(&contents);
    for Segment { piece, .. } in segments {
        hasher.update(&piece.offset.to_le_bytes());
        hasher.update(&piece.len.to_le_bytes());
    }
    hasher.finalize().into()
}

/// Where a file is, and what it holds.
struct LayerFile {
    layer: usize,
    digest: [u8; 32],
}

/// The contents of the files of layers.
///
/// 1. `ends` is sorted, no more than the length of `segments`, and as long as `files`.
/// 2. The segments of one file are sorted, and none overlaps another. Where they are is in what the layer unpacks to.
/// 3. Files have numbers in the order in which layers hold them.
struct LayerSource {
    layers: Vec<Arc<Layer>>,
    files: Vec<LayerFile>,
    segments: Vec<Segment>,
    ends: Vec<usize>,
    cursor: Mutex<Option<Cursor>>,
}

/// A layer that is being unpacked.
struct Cursor {
    layer: usize,
    /// Bytes that were unpacked.
    at: u64,
    unpacked: BufReader<Unpacked>,
}

impl FileSource for LayerSource {
    fn open(&self, file: SourceId) -> Result<Box<dyn SourceFile + Send + '_>> {
        let stored = InLayer {
            source: self,
            layer: self.files[file as usize].layer,
        };
        stored.check_unchanged()?;
        let segments = segments_of(&self.segments, &self.ends, file);
        Ok(Box::new(OpenFile::new(stored, segments)))
    }

    fn is_stream(&self) -> bool {
        true
    }

    fn digest(&self, file: SourceId) -> Option<[u8; 32]> {
        Some(self.files[file as usize].digest)
    }
}

/// What a layer unpacks to, from the place that the last reader left on.
struct InLayer<'a> {
    source: &'a LayerSource,
    layer: usize,
}

impl Stored for InLayer<'_> {
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let layer = &self.source.layers[self.layer];
        let mut cursor = self
            .source
            .cursor
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // What an error leaves behind is unpacked anew.
        let here = cursor
            .take()
            .filter(|cursor| cursor.layer == self.layer && cursor.at <= offset);
        let mut here = match here {
            Some(here) => here,
            None => Cursor {
                layer: self.layer,
                at: 0,
                unpacked: BufReader::with_capacity(CHUNK, Unpacked::new(layer, false)?),
            },
        };
        let to_pass = offset - here.at;
        let passed = io::copy(&mut (&mut here.unpacked).take(to_pass), &mut io::sink());
        let read = passed.and_then(|passed| match passed == to_pass {
            true => here.unpacked.read_exact(buf),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        });
        read.map_err(|e| {
            let changed = layer.check_unchanged().err();
            changed.unwrap_or_else(|| unpack_error(e).with_path(layer.name()))
        })?;
        here.at = offset + buf.len() as u64;
        *cursor = Some(here);
        Ok(())
    }

    fn check_unchanged(&self) -> Result<()> {
        self.source.layers[self.layer].check_unchanged()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use sha2::{Digest, Sha256};

    use super::*;

    fn layer(archive: &[u8]) -> (Layer, File) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(archive).unwrap();
        let diff_id = Sha256::digest(archive).into();
        let place = (0, archive.len() as u64);
        let layer = Layer::new("layer", file.try_clone().unwrap(), place, diff_id);
        (layer.unwrap(), file)
    }

    fn tree(archives: &[&[u8]], threads: usize) -> Result<Tree> {
        let layers = archives.iter().map(|archive| layer(archive).0).collect();
        Tree::from_layers(layers, 1 << 20, &TreeRules::default().threads(threads))
    }

    fn archive(entries: &[(u8, &str, &str)]) -> Vec<u8> {
        let mut archive = Vec::new();
        for (kind, name, contents) in entries {
            let mut header = tar::Header::new_gnu();
            header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_mode(0o644);
            header.set_mtime(7);
            header.as_old_mut().linkflag = [*kind];
            match kind {
                b'0' => header.set_size(contents.len() as u64),
                _ => header.as_old_mut().linkname[..contents.len()]
                    .copy_from_slice(contents.as_bytes()),
            }
            header.set_cksum();
            archive.extend_from_slice(header.as_bytes());
            if *kind == b'0' {
                archive.extend_from_slice(contents.as_bytes());
                archive.resize(archive.len().next_multiple_of(512), 0);
            }
        }
        archive
    }

    /// What a tree is, as text: names, kinds and contents.
    fn described(tree: &Tree) -> String {
        let mut text = String::new();
        let files = tree.files();
        for (path, inode) in &files {
            let TreeKind::File { source, len } = tree.inodes[*inode].kind else {
                continue;
            };
            let mut contents = vec![0; len.min(4096) as usize];
            let mut file = tree.source.open(source).unwrap();
            file.read_exact_at(0, &mut contents).unwrap();
            text += &format!("{} {}\n", path.display(), contents.escape_ascii());
        }
        format!("{} inodes\n{text}", tree.inode_count())
    }

    #[test]
    fn a_layer_that_changes_meanwhile_is_an_error() {
        // Threads go on for a while: each file has a block of its own.
        let names: Vec<_> = (0..64).map(|n| format!("{n}")).collect();
        let files: Vec<_> = names.iter().map(|name| (b'0', &**name, "old")).collect();
        let (layer, file) = layer(&archive(&files));
        let tree = Tree::from_layers(vec![layer], 1 << 20, &TreeRules::default()).unwrap();
        let mut other = &file;
        other.write_all(b"more").unwrap();
        let writer = crate::ImageWriter::new().shared_blocks(false);
        let writer = writer.deduplicate(false).threads(2);
        let written = writer.write_to(&tree, io::Cursor::new(Vec::new()));
        let said = written.unwrap_err().to_string();
        let expected =
            "layer: file changed while it was packed: its length was 65536 and is 65540; ";
        assert!(said.starts_with(expected), "{said}");
    }

    #[test]
    fn directories_without_an_entry_are_counted() {
        let name = "d/".repeat(40) + "x";
        let other = "e/".repeat(40) + "x";
        let archive = archive(&[(b'0', &name, ""), (b'0', &other, ""), (b'0', "z", "")]);
        let added = |most_nodes| {
            let layer = Arc::new(layer(&archive).0);
            let entries = read_unchecked(&layer, &Budget::new(1 << 20)).unwrap();
            let rules = TreeRules::default();
            Extracted::of_layers(&rules, 0, most_nodes).add_layer(entries)
        };
        // The root, and 41 of each path.
        assert_eq!(added(83).unwrap().len(), 3);
        let said = added(82).unwrap_err().to_string();
        let expected = "comes after more than 82 files and directories, with those that have no entry; split the image";
        assert!(
            said.starts_with("entry \"z\"") && said.ends_with(expected),
            "{said}"
        );
    }

    /// Files of both layers are read in the order of paths, which is not that of the layers.
    #[test]
    fn no_byte_makes_a_panic_and_threads_change_nothing() {
        let low = archive(&[
            (b'5', "a", ""),
            (b'0', "a/x", "low"),
            (b'0', "b", "b"),
            (b'0', "z", "zz"),
        ]);
        let high = archive(&[
            (b'0', "a/.wh..wh..opq", ""),
            (b'0', "a/y", "high"),
            (b'1', "c", "b"),
            (b'0', ".wh.z", ""),
            (b'2', "link", "a"),
        ]);
        let expected = "5 inodes\na/y high\nb b\n";
        assert_eq!(described(&tree(&[&low, &high], 1).unwrap()), expected);
        for at in (0..high.len()).filter(|at| at % 512 < 160 || at % 512 > 256) {
            for byte in [0, b'.', b'/'] {
                let mut high = high.clone();
                high[at] = byte;
                if !(148..156).contains(&(at % 512)) {
                    let mut header = tar::Header::new_old();
                    let block = &mut high[at / 512 * 512..][..512];
                    header.as_mut_bytes().copy_from_slice(block);
                    header.set_cksum();
                    block.copy_from_slice(header.as_bytes());
                }
                let of = |threads| match tree(&[&low, &high], threads) {
                    Ok(tree) => described(&tree),
                    Err(e) => e.to_string(),
                };
                assert_eq!(of(1), of(2), "{at} {byte}");
            }
        }
    }
}
