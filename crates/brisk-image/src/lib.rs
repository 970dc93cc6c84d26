/*!
Reads and writes SquashFS 4.0 images.

The central type is [`Image`], a checked view of an image. It gives inodes ([`Inode`]), the entries
of directories ([`Image::read_dir`]) and the contents of files ([`Image::read`], [`FileReader`]).

[`ImageWriter`] writes a [`Tree`] as an image. A tree comes from a directory, a tar archive or another
image, and a [`TreeBuilder`] makes or changes one piece by piece. [`Extractor`] writes an image into a
directory.

Programs that start from an image need two modules more: a [`profile`] says which pages a launch asks
for, and a [`hot_pack`] holds those pages.

# Example

```
use brisk_image::{Image, ImageWriter, TreeBuilder, TreeEntry};

# fn main() -> Result<(), Box<dyn std::error::Error>> {
# let dir = tempfile::tempdir()?;
# let path = dir.path().join("app.img");
let mut tree = TreeBuilder::new();
tree.add("hello", TreeEntry::file("hello, world"))?;
ImageWriter::new().write(&tree.finish(), &path)?;

let image = Image::open(&path)?;
assert_eq!(image.read("hello")?, b"hello, world");
# Ok(())
# }
```

`Tree::from_directory(path, &TreeRules::default())` packs a directory in the place of the builder.

# Trust

All bytes of an image are untrusted. Nothing reached from [`Image::open`] panics. Every fault is an [`Error`] that says
field, place, found and allowed. No call allocates more than its [`Limits`] allow.

# Features

* `gzip`, `lzo`, `lz4`, `xz`, `zstd` (all on by default): one for each codec. All but `lzo` need a C compiler, and write as
  well as read.
* `pure-rust`: decoders in safe Rust for all codecs. Without default features, it reads every image and needs no C
  compiler. `rust-decoders` and `gzip-rust`, `lz4-rust`, `xz-rust`, `zstd-rust` choose them one by one.
* `lzo-encode`: writes images in LZO. The library behind it works on raw pointers without a proof that it is sound.

Where a build has two decoders of a codec, the one in C is used, unless
[`OpenOptions::rust_decoders`] says otherwise. On 128 KiB blocks of a shared library, the decoders in
Rust reach this share of the speed of those in C: zstd 1.0, lz4 1.0, xz 0.7, gzip 0.5; on 1 MiB blocks
zstd 0.6, lz4 0.6, xz 0.6, gzip 0.5.

An image whose codec was left out of the build is [`Unsupported`](ErrorKind::Unsupported), and the
error names the feature.

# What this crate does not do

* Mount images: see `brisk-mount`.
* Read SquashFS before 4.0.
*/
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod codec;
mod error;
mod format;
pub mod hot_pack;
mod ordered;
mod plan;
pub mod profile;
mod read;
mod tree;
mod work;
mod write;

pub use brisk_io::ReadAt;
pub use codec::{Bcj, BcjSet, Codec, Compression};
pub use error::{Error, ErrorKind, Result};
pub use format::codec_options::CodecOptions;
pub use format::inode::FileType;
pub use plan::PlanRules;
pub use read::dir_reader::{DirEntry, ReadDir};
pub use read::extractor::Extractor;
pub use read::file_reader::{FileReader, Piece, StoredAs};
pub use read::file_stream::FileStream;
pub use read::image::{Image, OpenOptions};
pub use read::inode_reader::{Inode, InodeKind, InodeRef};
pub use read::limits::Limits;
pub use read::walk::{Walk, WalkEntry};
pub use read::xattr_reader::Xattr;
pub use tree::Tree;
pub use tree::builder::TreeBuilder;
pub use tree::entry::TreeEntry;
pub use tree::mode_change::ModeChange;
pub use tree::rules::{Times, TreeRules};
pub use work::Work;
pub use write::image_writer::ImageWriter;
pub use write::recipe::Recipe;

/// What the kinds of inodes have that only one of them has.
pub mod inode {
    pub use crate::read::inode_reader::{Device, Directory, File};
}

/// What makes one tree differ from another.
pub mod compare {
    pub use crate::tree::compare::{Aspect, Change, Difference};
}

/// What the bytes of an image are used for.
pub mod usage {
    pub use crate::read::usage::{LargeFile, SizeStep, Stored, Usage};
}

/// What long work has done.
pub mod summary {
    pub use crate::read::check::Checked;
    pub use crate::read::extractor::ExtractSummary;
    pub use crate::write::data_writer::Tally;
    pub use crate::write::image_writer::Summary;
}
