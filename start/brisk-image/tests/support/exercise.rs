//! Everything that can be asked of an image, asked once.
//!
//! The fuzz target `read` and the tests `hostile` of brisk-image share this file. No thread is
//! started: what one that ends still holds would look like a leak to the fuzzer.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;

use brisk_image::{
    ByteSource, Error, FileReader, Image, ImageWriter, Inode, OpenOptions, Result, Tree, TreeRules,
};

/// What one image may cost, in bytes that are read and the like: small images can be made that
/// hold terabytes of zeros.
const EFFORT: u64 = 8 << 20;

/// What every call costs at least.
const CALL: u64 = 400;

/// What went wrong, in order and as a person reads it; empty for an image without a fault.
#[derive(Default)]
pub struct Faults(pub Vec<String>);

impl Faults {
    /// The value of what went well.
    fn keep<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|e: Error| self.0.push(e.to_string())).ok()
    }

    /// The first fault; "ok" if there is none.
    pub fn first(&self) -> &str {
        self.0.first().map_or("ok", String::as_str)
    }
}

struct Effort(u64);

impl Effort {
    /// False if nothing is left.
    fn spend(&mut self, cost: u64) -> bool {
        self.0 = self.0.saturating_sub(cost.saturating_add(CALL));
        self.0 > 0
    }
}

/// Opens the image in `source` and asks it everything.
pub fn exercise(source: impl ByteSource + 'static, options: &OpenOptions) -> Faults {
    let mut faults = Faults::default();
    if let Some(image) = faults.keep(Image::from_source(source, options)) {
        exercise_image(&image, &mut faults);
    }
    faults
}

/// Asks `image` everything: first for the whole tree, then for all contents, all attributes, all
/// numbers, all names, and what stands behind the image.
pub fn exercise_image(image: &Image, faults: &mut Faults) {
    let mut effort = Effort(EFFORT);
    let inodes = walk(image, &mut effort, faults);
    let mut effort = Effort(EFFORT);
    for inode in inodes.iter().filter(|inode| inode.is_file()) {
        if !effort.spend(0) {
            break;
        }
        if let Some(file) = faults.keep(image.file(inode)) {
            // Its list of blocks costs, too.
            effort.spend(inode.len() / u64::from(image.block_size()) * 16);
            read(&file, &mut effort, faults);
        }
    }
    let mut effort = Effort(EFFORT);
    for inode in &inodes {
        let xattrs = faults.keep(image.xattrs(inode)).unwrap_or_default();
        let bytes = xattrs.iter().map(|xattr| xattr.value().len() as u64);
        if !effort.spend(bytes.sum()) {
            break;
        }
    }
    let mut effort = Effort(EFFORT / 8);
    for number in 1..=image.inode_count() {
        if !effort.spend(0) {
            break;
        }
        faults.keep(image.inode_by_number(number));
    }
    for number in [0, image.inode_count().wrapping_add(1), u32::MAX] {
        // Those have no inode, or one that is not counted.
        drop(image.inode_by_number(number));
    }
    let mut effort = Effort(EFFORT / 8);
    for inode in inodes.iter().filter(|inode| inode.is_dir()) {
        look_up_names(image, inode, &mut effort, faults);
    }
    let recipe = faults.keep(image.recipe()).flatten();
    if let Some(recipe) = recipe {
        faults.keep(ImageWriter::from_recipe(&recipe));
    }
    faults.keep(image.recorded_place());
    faults.keep(image.entry_point());
    if faults.0.is_empty() && inodes.len() < 100 {
        faults.keep(Tree::from_image(image, &TreeRules::default()));
    }
    let _text = format!("{image:?} {:?}", image.codec_options());
}

fn walk(image: &Image, effort: &mut Effort, faults: &mut Faults) -> Vec<Inode> {
    let mut inodes = Vec::new();
    let Some(walk) = faults.keep(image.walk()) else {
        return inodes;
    };
    for entry in walk {
        let Some(entry) = faults.keep(entry) else {
            break;
        };
        // Every step may clone a path that is as long as the tree is deep.
        if !effort.spend(entry.path().as_os_str().len() as u64) {
            break;
        }
        inodes.push(entry.into_parts().1);
    }
    inodes
}

/// Reads a file in pieces, as a stream, as a whole, and at its end.
fn read(file: &FileReader, effort: &mut Effort, faults: &mut Faults) {
    let stored = file.stored_as();
    assert_eq!(
        stored.compressed + stored.raw + stored.sparse + stored.shared,
        file.len()
    );
    let end = file.len().min(20_000);
    let mut whole = vec![1; end as usize];
    let mut pieces = vec![2; end as usize];
    if !effort.spend(4 * end) {
        return;
    }
    let read_whole = faults.keep(file.read_at(0, &mut whole));
    let read_pieces = pieces.chunks_mut(3000).zip(0..).try_for_each(|(piece, i)| {
        let n = file.read_at(3000 * i, piece)?;
        assert_eq!(n, piece.len());
        Ok(())
    });
    let read_pieces = faults.keep(read_pieces);
    let mut stream = vec![3; end as usize];
    let read_stream = file.stream().read_exact(&mut stream);
    assert_eq!(read_stream.is_ok(), read_pieces.is_some());
    if let (Some(n), Some(())) = (read_whole, read_pieces) {
        assert_eq!(n, whole.len());
        assert_eq!(whole, pieces);
        assert_eq!(whole, stream);
        if let Some(slice) = file.as_slice() {
            assert_eq!(slice[..end as usize], whole);
        }
    }
    let mut part = [0; 100];
    for at in [file.len() / 2, file.len().saturating_sub(50)] {
        faults.keep(file.read_at(at, &mut part));
    }
    for at in [file.len(), u64::MAX] {
        assert_eq!(faults.keep(file.read_at(at, &mut part)), Some(0));
    }
}

/// Lists a directory again, and looks up every name that it has, and some that it has not.
fn look_up_names(image: &Image, inode: &Inode, effort: &mut Effort, faults: &mut Faults) {
    let Some(entries) = faults.keep(image.read_dir(inode)) else {
        return;
    };
    for (place, entry) in (1..).zip(entries) {
        let Some(entry) = faults.keep(entry) else {
            return;
        };
        // Without an index, each name costs as much as all those before it.
        if !effort.spend(place * 30) {
            return;
        }
        match faults.keep(image.lookup_in(inode, entry.name())) {
            Some(Some(found)) => assert_eq!(found.name(), entry.name()),
            Some(None) => faults
                .0
                .push(format!("{:?} is listed, but not found", entry.name())),
            None => {}
        }
    }
    for name in [&b"\x01"[..], b"m", b"\xff\xff"] {
        faults.keep(image.lookup_in(inode, OsStr::from_bytes(name)));
    }
    faults.keep(image.lookup_in(inode, OsStr::new("")));
}
