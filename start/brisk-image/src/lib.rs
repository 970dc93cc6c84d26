/*!
Reads and writes SquashFS 4.0 images.

The central type is [`Image`], a checked view of an image. It gives inodes ([`Inode`]), the entries
of directories ([`Image::read_dir`]) and the contents of files ([`Image::read`], [`FileReader`]).

[`ImageWriter`] writes a [`Tree`] as an image. A tree comes from a directory, a tar archive, the layers of a
container image or another image, and a [`TreeBuilder`] makes or changes one piece by piece. [`Extractor`] writes an image into a
directory.

Types that few programs name are in the modules [`codec`], [`contents`], [`inode`], [`layers`], [`listing`], [`rules`], [`usage`],
[`summary`] and [`compare`].

[`verity`] has hash trees, which tell whether each block of a file is the right one.

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

`Tree::from_directory(path, &TreeRules::default())` makes a tree of a directory.

# Trust

All bytes of an image are untrusted. Nothing reached from [`Image::open`] panics. Every fault is an [`Error`] that says
field, place, found and allowed. No call allocates more than its [`Limits`] allow.

What goes through a whole image is bounded by the image's own length: a walk by [`Limits::names`], and what reads all
files ([`Extractor::extract`], [`Image::check`], [`Tree::from_image`]) by [`Limits::contents`]. So an image of 100 KB
is never a tree of more than 300,000 names, nor files of more than 1.1 GiB, unless the caller allows it. Memory is in
proportion to names, at 100 to 300 bytes each, where a whole tree is kept. Not bounded in this way is what a caller
asks for piece by piece, such as [`FileReader::copy_to`] of one very long file with holes, which needs little memory.

# Features

All in this table are on by default:

| feature | brings |
|---|---|
| `gzip`, `lzo`, `lz4`, `xz`, `zstd` | the codec of that name. All but `lzo` are in C, and write as well as read |
| `write` | [`ImageWriter`], [`Tree`], [`TreeBuilder`] and what belongs to them |
| `tar` | [`Tree::from_tar`]. Implies `write` |
| `layers` | [`Tree::from_layers`]. Implies `tar` and `zstd` |
| `profile` | the modules [`profile`] and [`hot_pack`]. With `write`, [`ImageWriter::hot_pack`] too |

A program that only reads images leaves out all but the codecs: with `default-features = false` and
`features = ["zstd"]` it builds no `tar`, `ignore`, `serde` or `blake3`.

These are parts of the ones above, for programs that only read:

* `patterns` (in `write`): [`Extractor::select`], by the crate `ignore`.
* `sections` (in `write` and `profile`): [`Image::recorded_place`], [`Image::entry_point`], and [`Image::check`] also
  checks the bytes that brisk puts behind an image.
* `verity` (in `write`): the module [`verity`], and [`Image::open_verified`].
* `serde` (in `write` and `profile`): `Serialize` for [`summary`] and other figures.

These are off by default:

* `pure-rust`: decoders in safe Rust for all codecs. Without default features, it reads every image and needs no C
  compiler. `rust-decoders` and `gzip-rust`, `lz4-rust`, `xz-rust`, `zstd-rust` choose them one by one.
* `lzo-encode`: writes images in LZO. The library behind it works on raw pointers without a proof that it is sound.
  Implies `write`.
* `schema`: `JsonSchema` for what `serde` serializes, by the crate `schemars`.

Where a build has two decoders of a codec, the one in C is used, unless
[`OpenOptions::rust_decoders`] says otherwise. On 128 KiB blocks of a shared library, the decoders in
Rust reach this share of the speed of those in C: zstd 1.0, lz4 1.0, xz 0.7, gzip 0.5; on 1 MiB blocks
zstd 0.6, lz4 0.6, xz 0.6, gzip 0.5.

An image whose codec was left out of the build is [`Unsupported`](ErrorKind::Unsupported), and the
error names the feature.

# Systems

On Linux, this crate does everything. On macOS and Windows, it reads images: with `pure-rust` or single decoders in Rust,
`sections` and `serde`. [`Extractor`] and [`Image::open_mapped`] are missing there, and the features `write`, `tar`,
`lzo-encode`, `profile`, `patterns` and `verity` stop the build with a message. No test runs on these systems; each change
is compiled for x86-64 of both with `pure-rust` and `sections`.

Paths in an image have slashes on every system, so a path that `Path::join` of Windows makes leads to nothing. The module
[`names`] explains names that are not UTF-8.

# What this crate does not do

* Mount images: see `brisk-serve`.
* Read SquashFS before 4.0.
*/
#![forbid(unsafe_code)]
#![deny(missing_docs)]

/// The example of the README.
#[cfg(all(doctest, feature = "write"))]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(all(
    not(target_os = "linux"),
    any(
        feature = "write",
        feature = "profile",
        feature = "patterns",
        feature = "verity"
    )
))]
compile_error!(
    "the features write, tar, lzo-encode, profile, patterns and verity of brisk-image are for Linux only: \
     on other systems, depend on it with default-features = false and features = [\"pure-rust\", \"sections\"], \
     which reads every image"
);

pub mod codec;
#[cfg_attr(
    not(all(feature = "tar", feature = "profile")),
    allow(dead_code, reason = "some faults are met only by what is left out")
)]
mod error;
#[cfg(any(windows, test))]
mod escaped_bytes;
#[cfg_attr(
    not(all(feature = "tar", feature = "profile")),
    allow(dead_code, reason = "what is left out writes the format")
)]
mod format;
#[cfg(feature = "profile")]
pub mod hot_pack;
#[cfg_attr(not(target_os = "linux"), path = "elsewhere/mapping.rs")]
mod mapping;
/// Names, paths, targets of symbolic links and names of attributes, as bytes and as the system has them.
///
/// In an image, they are bytes, and slashes separate the names of a path. On Unix, an [`OsStr`](std::ffi::OsStr) has the
/// same bytes. On Windows, it has the same text, and each byte that is not UTF-8 becomes a lone surrogate, 0xdc00 + byte
/// (PEP 383 of Python). So each name can be told and looked up on every system, and no two are the same.
///
/// An image may have names that the system cannot give to a file: on Windows, such as `a\b` or `CON`. Paths of images
/// there also do not mean what [`Path::components`](std::path::Path::components) makes of them. A program that writes
/// files checks each name first.
///
/// ```
/// use brisk_image::names;
///
/// let name = names::from_bytes(*b"caf\xe9");
/// assert_eq!(names::to_bytes(&name).as_ref(), b"caf\xe9");
/// ```
#[cfg_attr(windows, path = "windows/names.rs")]
pub mod names;
mod ordered;
#[cfg(any(feature = "write", feature = "profile"))]
#[cfg_attr(
    not(feature = "write"),
    allow(dead_code, reason = "only an image is padded and read back")
)]
mod output;
#[cfg(feature = "patterns")]
mod patterns;
#[cfg(feature = "write")]
mod plan;
#[cfg(feature = "profile")]
pub mod profile;
#[cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, reason = "extracting and mapping are left out")
)]
mod read;
#[cfg(feature = "write")]
mod tree;
#[cfg(feature = "verity")]
pub mod verity;
#[cfg_attr(
    not(all(feature = "tar", feature = "profile")),
    allow(dead_code, reason = "some work is left out")
)]
mod work;
#[cfg(feature = "write")]
mod write;

pub use brisk_io::ByteSource;
#[cfg(any(feature = "write", feature = "profile"))]
pub use codec::encode::compression::Compression;
pub use codec::kind::Codec;
pub use error::{Error, ErrorKind, Result};
#[cfg(feature = "sections")]
pub use format::entry_point::EntryPoint;
pub use format::inode::FileType;
#[cfg(target_os = "linux")]
pub use read::extractor::Extractor;
pub use read::file_reader::FileReader;
pub use read::file_stream::FileStream;
pub use read::image::{Image, OpenOptions};
pub use read::inode_reader::{Inode, InodeKind, InodeRef};
pub use read::limits::Limits;
pub use read::xattr_reader::Xattr;
pub use work::Work;

#[cfg(feature = "write")]
pub use {
    tree::Tree, tree::builder::TreeBuilder, tree::entry::TreeEntry, tree::rules::TreeRules,
    write::image_writer::ImageWriter, write::recipe::Recipe,
};

/// What only one kind of inode has: files, directories, devices.
pub mod inode {
    pub use crate::read::inode_reader::{Device, Directory, File};
}

/// What directories list: one of them, or all below the root.
pub mod listing {
    pub use crate::read::dir_reader::{DirEntry, ReadDir};
    pub use crate::read::walk::{Walk, WalkEntry};
}

/// Parts of a file's contents, and how they are stored.
pub mod contents {
    pub use crate::read::file_reader::{Piece, StoredAs};
}

/// What container images are made of.
#[cfg(feature = "layers")]
pub mod layers {
    pub use crate::tree::tar::archive_index::archive_files;
    pub use crate::tree::tar::layer::Layer;
}

/// The rules that a tree is packed by.
#[cfg(feature = "write")]
pub mod rules {
    pub use crate::plan::PlanRules;
    pub use crate::tree::mode_change::ModeChange;
    pub use crate::tree::rules::Times;
}

/// What makes one tree differ from another.
#[cfg(feature = "write")]
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
    #[cfg(target_os = "linux")]
    pub use crate::read::extractor::ExtractSummary;
    #[cfg(feature = "write")]
    pub use crate::write::{data_writer::Tally, summary::Summary};
}
