/*!
Reads and writes SquashFS 4.0 images.

The central type is [`Image`], a checked view of an image: from it come inodes ([`Inode`]), the
entries of directories ([`Image::read_dir`]) and the contents of files ([`FileReader`]).
[`ImageWriter`] makes an image of a [`Tree`], which is a directory, a tar archive or another image.
A [`Profile`] says which pages of it a launch asks for, and a [`HotPack`] holds them in that order.

# Example

```
use brisk_image::{Image, ImageWriter, Tree, TreeRules};

# fn main() -> Result<(), Box<dyn std::error::Error>> {
let dir = tempfile::tempdir()?;
std::fs::create_dir(dir.path().join("app"))?;
std::fs::write(dir.path().join("app/hello"), "hello, world")?;

let tree = Tree::from_directory(dir.path().join("app"), &TreeRules::default())?;
let path = dir.path().join("app.img");
ImageWriter::new().write(&tree, &path)?;

let image = Image::open(&path)?;
assert_eq!(image.read("hello")?, b"hello, world");
# Ok(())
# }
```

# Trust

All bytes of an image are untrusted. Nothing reached from [`Image::open`] panics, every fault is an
[`Error`] that says field, place, found and allowed, and no call allocates more than its
[`Limits`] allow.

# What this crate does not do

* Mount images: see `brisk-mount`.
* Read SquashFS before 4.0.
*/
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod codec;
mod error;
mod format;
mod ordered;
mod plan;
mod profile;
mod read;
mod tree;
mod work;
mod write;

pub use brisk_io::ReadAt;
pub use codec::{Bcj, BcjSet, Codec, Compression};
pub use error::{Error, ErrorKind, Result};
pub use format::codec_options::CodecOptions;
pub use format::inode::FileType;
pub use plan::{Placement, Plan, PlanFile, PlanRules, Storage};
pub use profile::audit::{Audit, Audited, AuditedFile};
pub use profile::builder::{Named, ProfileBuilder, Recorded, RootId};
pub use profile::compare::{PagesOfBoth, ProfileDifference};
pub use profile::hot_pack::{FrameReader, HotChecked, HotFile, HotFrame, HotLookUp, HotPack};
pub use profile::origin::Origin;
pub use profile::staleness::{FileState, PagesByState, Staleness};
pub use profile::{
    Demand, LookUp, PAGE, PageRange, Profile, ProfileDirectory, ProfileFile, Ready, Root, RootKind,
    Step, Touch,
};
pub use read::check::Checked;
pub use read::dir_reader::{DirEntry, ReadDir};
pub use read::extractor::{ExtractSummary, Extractor};
pub use read::file_reader::{FileReader, Piece, StoredAs};
pub use read::file_stream::FileStream;
pub use read::image::{Image, OpenOptions};
pub use read::inode_reader::{Device, Directory, File, Inode, InodeKind, InodeRef};
pub use read::limits::Limits;
pub use read::usage::{LargeFile, SizeStep, Stored, Usage};
pub use read::walk::{Walk, WalkEntry};
pub use read::xattr_reader::Xattr;
pub use tree::Tree;
pub use tree::builder::TreeBuilder;
pub use tree::compare::{Aspect, Change, Difference};
pub use tree::entry::TreeEntry;
pub use tree::mode_change::ModeChange;
pub use tree::rules::{Times, TreeRules};
pub use work::Work;
pub use write::data_writer::Tally;
pub use write::hot_pack_writer::{HotPackWriter, HotSummary, Prefer};
pub use write::image_writer::{ImageWriter, Summary};
pub use write::recipe::Recipe;
