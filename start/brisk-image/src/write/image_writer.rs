use std::collections::HashSet;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};

use brisk_io::ByteSource;
use zerocopy::IntoBytes;

use super::data_writer::{self, Copies, DataOptions};
use super::hot_pack::{HotPackBehind, ReadBack};
use super::metadata_writer::MetadataWriter;
use super::recipe::Recipe;
use super::stream_output::StreamOutput;
use super::summary::Summary;
use super::{duplicates, inode_writer, xattr_writer};
use crate::codec::encode::library_version;
use crate::codec::{Codec, CodecOptions, Compression};
use crate::error::{Error, Result};
use crate::format::codec_options;
use crate::format::entry_point::EntryPoint;
use crate::format::metadata::MetadataHeader;
use crate::format::section::{self, SectionKind};
use crate::format::superblock::{self, MAGIC, NO_TABLE, Superblock, flag};
use crate::format::table::Fragment;
#[cfg(feature = "profile")]
use crate::hot_pack::writer::Prefer;
use crate::output::{Output, OutputFile, directory_of};
use crate::plan::{PlanRules, Storage};
#[cfg(feature = "profile")]
use crate::profile::Profile;
use crate::read::block_list::BLOCK_IN_MEMORY;
use crate::read::image::Image;
use crate::read::limits::Limits;
use crate::tree::{Tree, TreeKind};
use crate::verity::VerityTree;
use crate::work::{Work, set_work};

/// Images end at a multiple of this, so that every kernel can mount them from a loop device.
const PADDING: u64 = 4096;

/// The level of lz4 that images with the flag for high compression are written with.
const LZ4_HIGHEST: u8 = 12;

/// Writes a [`Tree`] as a SquashFS 4.0 image.
///
/// The same tree and options give the same bytes, at any number of threads.
#[derive(Debug, Clone)]
pub struct ImageWriter {
    compression: Compression,
    block_size: u32,
    shared_blocks: bool,
    tails: bool,
    deduplicate: bool,
    export: bool,
    work: Work,
    time: Option<u32>,
    place: Option<PathBuf>,
    entry_point: Option<EntryPoint>,
    recipe: bool,
    copy_blocks: bool,
    rules: PlanRules,
    hot_pack: Option<HotPackBehind>,
    verity: bool,
}

impl Default for ImageWriter {
    fn default() -> Self {
        Self {
            compression: Compression::default_for(Codec::Zstd),
            block_size: 128 << 10,
            shared_blocks: true,
            tails: false,
            deduplicate: true,
            export: true,
            work: Work::default(),
            time: None,
            place: None,
            entry_point: None,
            recipe: true,
            copy_blocks: true,
            rules: PlanRules::default(),
            hot_pack: None,
            verity: false,
        }
    }
}

impl ImageWriter {
    /// zstd 15, blocks of 128 KiB, small files in shared blocks, equal files once.
    pub fn new() -> Self {
        Self::default()
    }

    /// How to compress.
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// Bytes in a data block: a power of two from 4 KiB to 1 MiB.
    #[must_use]
    pub fn block_size(mut self, bytes: u32) -> Self {
        self.block_size = bytes;
        self
    }

    /// Whether files smaller than a block share blocks.
    #[must_use]
    pub fn shared_blocks(mut self, yes: bool) -> Self {
        self.shared_blocks = yes;
        self
    }

    /// Whether the tails of larger files share blocks, too. The image is smaller, but a read of such a
    /// tail decodes a whole shared block.
    #[must_use]
    pub fn tails(mut self, yes: bool) -> Self {
        self.tails = yes;
        self
    }

    /// Whether files with the same contents are stored once.
    #[must_use]
    pub fn deduplicate(mut self, yes: bool) -> Self {
        self.deduplicate = yes;
        self
    }

    /// Whether inodes can be found by number, as NFS needs.
    #[must_use]
    pub fn export(mut self, yes: bool) -> Self {
        self.export = yes;
        self
    }

    set_work!();

    /// The time at which the image says that it was made, in seconds since 1970. The default is the
    /// newest modification time in the tree.
    #[must_use]
    pub fn time(mut self, seconds: u32) -> Self {
        self.time = Some(seconds);
        self
    }

    /// Records the directory that the tree belongs at.
    #[must_use]
    pub fn place(mut self, directory: PathBuf) -> Self {
        self.place = Some(directory);
        self
    }

    /// Records how the image starts its program.
    #[must_use]
    pub fn entry_point(mut self, entry: EntryPoint) -> Self {
        self.entry_point = Some(entry);
        self
    }

    /// Whether the [`Recipe`] is kept behind the image.
    #[must_use]
    pub fn recipe(mut self, yes: bool) -> Self {
        self.recipe = yes;
        self
    }

    /// Whether blocks of files that come from an image are copied from there, and not compressed again, where that
    /// gives the same image. The default is yes.
    ///
    /// That is so if the image has the same compression and size of blocks. If the new image has a [`Recipe`], the old
    /// one must have been made by the same versions, too; else the new image would not be what its recipe makes. brisk
    /// takes what the old image records of that. With `false` it compresses everything, and so finds out.
    ///
    /// A block that is copied was decoded: a damaged one is an error, as ever.
    #[must_use]
    pub fn copy_blocks(mut self, yes: bool) -> Self {
        self.copy_blocks = yes;
        self
    }

    /// Which files come first, and which are stored raw.
    #[must_use]
    pub fn rules(mut self, rules: PlanRules) -> Self {
        self.rules = rules;
        self
    }

    /// Whether a dm-verity hash tree over everything is kept behind the image. The recipe does not record it.
    #[must_use]
    pub fn verity(mut self, yes: bool) -> Self {
        self.verity = yes;
        self
    }

    /// A writer that does what `recipe` says.
    pub fn from_recipe(recipe: &Recipe) -> Result<Self> {
        Ok(Self {
            compression: recipe.compression,
            block_size: recipe.block_size,
            shared_blocks: recipe.shared_blocks,
            tails: recipe.tails,
            deduplicate: recipe.deduplicate,
            export: recipe.export,
            rules: PlanRules::new(recipe.order.clone(), recipe.raw.clone())?,
            ..Self::default()
        })
    }

    /// A writer that writes a changed tree as `image` was written: with the options of its
    /// [`Recipe`], or with its codec, block size and flags if it has none. The time of the image,
    /// the directory that it belongs at and how it starts its program stay the same.
    ///
    /// It makes no hot pack, because that needs the profile. Blocks of files that did not change are
    /// [copied](ImageWriter::copy_blocks).
    ///
    /// # Errors
    ///
    /// Those of [`Image::recipe`], [`Image::recorded_place`] and [`Image::entry_point`].
    pub fn like(image: &Image) -> Result<Self> {
        let recipe = image.recipe()?;
        let mut writer = match &recipe {
            Some(recipe) => Self::from_recipe(recipe)?,
            None => Self {
                compression: compression_of(image),
                block_size: image.block_size(),
                shared_blocks: image.flags() & flag::NO_FRAGMENTS == 0,
                tails: image.flags() & flag::ALWAYS_FRAGMENTS != 0,
                export: image.is_exportable(),
                ..Self::default()
            },
        };
        writer.recipe = recipe.is_some();
        writer.time = Some(image.mkfs_time());
        writer.place = image.recorded_place()?;
        writer.entry_point = image.entry_point()?;
        Ok(writer)
    }

    /// The recipe that the image will have.
    pub fn to_recipe(&self) -> Recipe {
        Recipe {
            brisk: env!("CARGO_PKG_VERSION").to_owned(),
            library: library_version(&self.compression),
            compression: self.compression,
            block_size: self.block_size,
            shared_blocks: self.shared_blocks,
            tails: self.tails,
            deduplicate: self.deduplicate,
            export: self.export,
            order: self.rules.order().to_vec(),
            raw: self.rules.raw().to_vec(),
        }
    }

    /// Puts the pages that `profile` lists behind the image, as a hot pack.
    #[cfg(feature = "profile")]
    #[must_use]
    pub fn hot_pack(mut self, profile: Profile, prefer: Prefer) -> Self {
        self.hot_pack = Some(HotPackBehind::new(profile, prefer));
        self
    }

    /// Checks the options. [`ImageWriter::write`] does so, too, but listing a tree may take long.
    ///
    /// # Errors
    ///
    /// `Input` with the option that cannot be used.
    pub fn check(&self) -> Result<()> {
        self.block_log()?;
        self.compression.check(self.block_size)?;
        match &self.place {
            Some(place) if !place.is_absolute() => Err(Error::input(format!(
                "place is {}, allowed is an absolute path",
                place.display()
            ))),
            _ => Ok(()),
        }
    }

    /// Writes `tree` to a new image at `path`. It replaces a file of that name when it is complete;
    /// until then, and after an error, that file is as it was.
    ///
    /// # Errors
    ///
    /// `Input` for options that cannot be and files that changed, `Limit` for what SquashFS cannot
    /// hold, `Io` for what the system refuses, and `Cancelled`; the path is that of the file at
    /// fault.
    pub fn write(&self, tree: &Tree, path: impl AsRef<Path>) -> Result<Summary> {
        let path = path.as_ref();
        self.check()?;
        self.check_hot_pack(tree).map_err(|e| e.with_path(path))?;
        let mut out = OutputFile::create(path)?;
        let read_back = match self.is_read_back() {
            true => Some(ReadBack {
                file: out.reader()?,
                spool: directory_of(path),
                name: Some(path),
            }),
            false => None,
        };
        let summary = self.write_all(tree, &mut out, read_back)?;
        out.finish()?;
        Ok(summary)
    }

    /// Writes `tree` as an image to `out`, from where `out` is: the same bytes as
    /// [`ImageWriter::write`], to a buffer in memory, or behind the program that mounts the image.
    ///
    /// The superblock is written last. So after an error `out` has a part of an image, but none that
    /// a reader takes for whole. What `out` had behind the image before is still there: give an
    /// empty file, or one that ends where the image starts.
    ///
    /// With a [hot pack](ImageWriter::hot_pack) or a [hash tree](ImageWriter::verity) the image is first written to a
    /// file without a name in the directory for temporary files, as its contents are read once more.
    ///
    /// # Errors
    ///
    /// Those of [`ImageWriter::write`].
    ///
    /// ```
    /// use std::io::Cursor;
    ///
    /// use brisk_image::{Image, ImageWriter, OpenOptions, TreeBuilder, TreeEntry};
    ///
    /// # fn main() -> brisk_image::Result<()> {
    /// let mut tree = TreeBuilder::new();
    /// tree.add("hello", TreeEntry::file("hello, world"))?;
    /// let mut bytes = Vec::new();
    /// ImageWriter::new().write_to(&tree.finish(), Cursor::new(&mut bytes))?;
    ///
    /// let image = Image::from_source(bytes, &OpenOptions::new())?;
    /// assert_eq!(image.read("hello")?, b"hello, world");
    /// # Ok(())
    /// # }
    /// ```
    pub fn write_to(&self, tree: &Tree, out: impl Write + Seek) -> Result<Summary> {
        self.check()?;
        self.check_hot_pack(tree)?;
        let mut out = StreamOutput::new(out)?;
        let summary = match self.is_read_back() {
            false => self.write_all(tree, &mut out, None)?,
            true => self.write_by_way_of_file(tree, &mut out)?,
        };
        out.finish()?;
        Ok(summary)
    }

    /// Whether what was written is read again, for what stands behind it.
    fn is_read_back(&self) -> bool {
        self.hot_pack.is_some() || self.verity
    }

    /// Writes all to a temporary file first, which can be read back, and copies that.
    fn write_by_way_of_file(&self, tree: &Tree, out: &mut dyn Output) -> Result<Summary> {
        let directory = std::env::temp_dir();
        let spool = || {
            let file = tempfile::tempfile_in(&directory)?;
            Ok((file.try_clone()?, file.try_clone()?, file))
        };
        let (written, read_back, file) =
            spool().map_err(|e| Error::io("make a temporary file", e).with_path(&directory))?;
        let mut spooled = StreamOutput::new(written)?;
        let read_back = ReadBack {
            file: read_back,
            spool: &directory,
            name: None,
        };
        let summary = self.write_all(tree, &mut spooled, Some(read_back))?;
        let mut buf = vec![0; 1 << 20];
        let (mut at, end) = (Superblock::LEN as u64, spooled.len());
        out.append(&[0; Superblock::LEN])?;
        while at < end {
            self.work.ask()?;
            let n = usize::try_from(end - at).unwrap_or(usize::MAX);
            let part = n.min(buf.len());
            let part = &mut buf[..part];
            ByteSource::read_exact_bytes_at(&file, at, part)
                .map_err(|e| Error::io("read the image from a temporary file", e))?;
            out.append(part)?;
            at += part.len() as u64;
        }
        let mut superblock = [0; Superblock::LEN];
        ByteSource::read_exact_bytes_at(&file, 0, &mut superblock)
            .map_err(|e| Error::io("read the image from a temporary file", e))?;
        out.write_at(0, &superblock)?;
        Ok(summary)
    }

    /// Writes the image, with its sections, hot pack and padding.
    fn write_all(
        &self,
        tree: &Tree,
        out: &mut dyn Output,
        read_back: Option<ReadBack<'_>>,
    ) -> Result<Summary> {
        let (mut summary, superblock) = self.write_image(tree, out)?;
        if let Some(read_back) = read_back {
            let file = read_back.file.try_clone();
            let file = file.map_err(|e| Error::io("hold the image", e))?;
            // It is read as an image now.
            out.write_at(0, superblock.as_bytes())?;
            if let Some(hot_pack) = &self.hot_pack {
                hot_pack.append(out, read_back, &self.work, &mut summary)?;
            }
            if self.verity {
                out.pad_to(PADDING)?;
                let tree = VerityTree::build(&file, out.len(), &self.work.uncounted())?;
                summary.verity = Some(tree.append_section(out)?);
            }
        }
        out.pad_to(PADDING)?;
        summary.file_bytes = out.len();
        // The last time to say no: with the superblock it is an image.
        self.work.ask()?;
        out.write_at(0, superblock.as_bytes())?;
        Ok(summary)
    }

    /// Writes all of the image but its superblock, which is returned, and the sections but for the
    /// hot pack.
    fn write_image(
        &self,
        tree: &Tree,
        out: &mut dyn Output,
    ) -> Result<(Summary, superblock::Wire)> {
        let log = self.block_log()?;
        let options = codec_options::encode(&self.compression, self.block_size);
        out.append(&[0; Superblock::LEN])?;
        if let Some(options) = &options {
            let header = MetadataHeader::new(options.len(), true)
                .ok_or_else(|| Error::limit("the codec's options", options.len() as u64, 8192))?;
            out.append(&header.encode())?;
            out.append(options)?;
        }

        let is_stream = tree.source.is_stream();
        let plan = self.rules.plan(|add| {
            tree.visit_files(|path, file| {
                self.check_length(&tree.inodes[file].kind)
                    .map_err(|e| e.with_path(path))?;
                let position = match tree.inodes[file].kind {
                    TreeKind::File { source, .. } if is_stream => source,
                    _ => 0,
                };
                add(path, file, position);
                Ok(())
            })
        })?;
        let order: Vec<_> = plan
            .placements
            .iter()
            .map(|placement| placement.file)
            .collect();
        let raw: HashSet<_> = plan
            .placements
            .iter()
            .filter(|placement| placement.storage == Storage::Raw)
            .map(|placement| placement.file)
            .collect();
        let duplicates = match self.deduplicate {
            // What is to be mapped is stored raw, and the others follow it.
            true => duplicates::find(tree, &order, |file| raw.contains(&file), &self.work)?,
            false => Default::default(),
        };
        let data_options = DataOptions {
            compression: self.compression,
            block_size: self.block_size,
            shared_blocks: self.shared_blocks,
            tails: self.tails,
            copies: self.copies(tree),
        };
        let data = data_writer::write(tree, &plan, &duplicates, data_options, out, &self.work)?;

        let tables = inode_writer::write(tree, &data.contents, &self.compression)?;
        let inode_table = out.len();
        out.append(&tables.inodes)?;
        let directory_table = out.len();
        out.append(&tables.directories)?;
        let fragments = data.shared_blocks.iter().map(|&(start, stored)| Fragment {
            start: start.into(),
            stored: stored.encode().into(),
            unused: 0.into(),
        });
        let fragments: Vec<_> = fragments.collect();
        let fragment_table = self.append_table(out, fragments.iter().map(IntoBytes::as_bytes))?;
        let references: Vec<_> = tables
            .references
            .iter()
            .map(|at| at.encode().to_le_bytes())
            .collect();
        let export_table = match self.export {
            true => self.append_table(out, references.iter().map(<[u8; 8]>::as_slice))?,
            false => NO_TABLE,
        };
        let ids: Vec<_> = tables.ids.iter().map(|id| id.to_le_bytes()).collect();
        let id_table = self.append_table(out, ids.iter().map(<[u8; 4]>::as_slice))?;
        let xattr_table = match xattr_writer::table(&tree.xattr_sets, &self.compression, out.len())?
        {
            Some((bytes, header)) => {
                out.append(&bytes)?;
                header
            }
            None => NO_TABLE,
        };

        let bytes_used = out.len();
        let wire = superblock::Wire {
            magic: MAGIC.into(),
            // `TreeBuilder` bounds both counts, `Ids` and `Data` theirs.
            inode_count: u32::try_from(tree.inodes.len()).unwrap_or(u32::MAX).into(),
            mkfs_time: self.time.unwrap_or_else(|| tree.newest()).into(),
            block_size: self.block_size.into(),
            fragment_count: u32::try_from(fragments.len()).unwrap_or(u32::MAX).into(),
            compressor: self
                .compression
                .codec()
                .unwrap_or(Codec::Gzip)
                .to_wire()
                .into(),
            block_log: log.into(),
            flags: self
                .flags(options.is_some(), xattr_table == NO_TABLE)
                .into(),
            id_count: u16::try_from(ids.len()).unwrap_or(u16::MAX).into(),
            major: 4.into(),
            minor: 0.into(),
            root_inode: tables.root.encode().into(),
            bytes_used: bytes_used.into(),
            id_table: id_table.into(),
            xattr_table: xattr_table.into(),
            inode_table: inode_table.into(),
            directory_table: directory_table.into(),
            fragment_table: fragment_table.into(),
            export_table: export_table.into(),
        };
        self.append_sections(out)?;
        let count =
            |is: fn(&TreeKind) -> bool| tree.inodes.iter().filter(|i| is(&i.kind)).count() as u64;
        let summary = Summary {
            inodes: tree.inodes.len() as u64,
            files: count(|kind| matches!(kind, TreeKind::File { .. })),
            directories: count(|kind| matches!(kind, TreeKind::Directory(_))),
            data: data.tally,
            bytes_used,
            file_bytes: out.len(),
            threads: self.work.thread_count(),
            #[cfg(feature = "profile")]
            hot_pack: None,
            verity: None,
        };
        Ok((summary, wire))
    }

    /// Which blocks of the image that `tree` comes from are what this writer would make of their contents.
    fn copies(&self, tree: &Tree) -> Copies {
        let image = tree.source.image().filter(|_| self.copy_blocks);
        let Some(image) = image.filter(|image| image.block_size() == self.block_size) else {
            return Copies::None;
        };
        // Whatever a recipe says: this is what a reader of the new image is told.
        let (recorded, asked) = (compression_of(image), self.compression);
        if recorded.for_decoders() != asked.for_decoders() || asked == Compression::None {
            return Copies::None;
        }
        match image.recipe() {
            Ok(Some(made)) if !made.blocks_are_of(&self.to_recipe(), self.recipe) => Copies::None,
            Ok(Some(made)) if !made.raw.is_empty() => Copies::Compressed,
            Ok(Some(_)) => Copies::All,
            Ok(None) if recorded == asked && !self.recipe => Copies::All,
            // A recipe that cannot be read says nothing.
            Ok(None) | Err(_) => Copies::None,
        }
    }

    /// Checks that readers can hold the list of a file's blocks: brisk's own, by default.
    fn check_length(&self, file: &TreeKind) -> Result<()> {
        let most = Limits::default().memory / BLOCK_IN_MEMORY;
        let longest = most.saturating_mul(self.block_size.into());
        match *file {
            TreeKind::File { len, .. } if len > longest => Err(Error::input(format!(
                "the file has {len} bytes, allowed are {longest} in blocks of {}; make blocks larger",
                self.block_size
            ))),
            _ => Ok(()),
        }
    }

    /// Checks that the hot pack can have something, before the work starts.
    fn check_hot_pack(&self, tree: &Tree) -> Result<()> {
        match &self.hot_pack {
            Some(hot_pack) => hot_pack.check(tree),
            None => Ok(()),
        }
    }

    fn block_log(&self) -> Result<u16> {
        match self.block_size.checked_ilog2() {
            Some(log @ 12..=20) if self.block_size.is_power_of_two() => Ok(log as u16),
            _ => Err(Error::input(format!(
                "block size is {}, allowed is a power of two from 4096 to 1048576",
                self.block_size
            ))),
        }
    }

    fn flags(&self, has_options: bool, no_xattrs: bool) -> u16 {
        let mut flags = 0;
        let mut set = |yes: bool, bits: u16| {
            if yes {
                flags |= bits;
            }
        };
        let raw = flag::RAW_INODES
            | flag::RAW_DATA
            | flag::RAW_FRAGMENTS
            | flag::RAW_XATTRS
            | flag::RAW_IDS;
        set(self.compression.codec().is_none(), raw);
        set(!self.shared_blocks, flag::NO_FRAGMENTS);
        set(self.shared_blocks && self.tails, flag::ALWAYS_FRAGMENTS);
        set(self.deduplicate, flag::DEDUPLICATED);
        set(self.export, flag::EXPORTABLE);
        set(no_xattrs, flag::NO_XATTRS);
        set(has_options, flag::CODEC_OPTIONS);
        flags
    }

    /// Appends a look-up table of `entries`, and returns where its list stands.
    fn append_table<'a>(
        &self,
        out: &mut dyn Output,
        entries: impl Iterator<Item = &'a [u8]>,
    ) -> Result<u64> {
        let mut table = MetadataWriter::new(&self.compression)?;
        for entry in entries {
            table.append(entry)?;
        }
        let (bytes, list) = table.finish_as_table(out.len(), &[])?;
        out.append(&bytes)?;
        Ok(list)
    }

    fn append_sections(&self, out: &mut dyn Output) -> Result<()> {
        use std::os::unix::ffi::OsStrExt;
        if self.recipe {
            append_section(out, SectionKind::RECIPE, &self.to_recipe().encode()?)?;
        }
        if let Some(place) = &self.place {
            append_section(out, SectionKind::PLACE, place.as_os_str().as_bytes())?;
        }
        if let Some(entry) = &self.entry_point {
            append_section(out, SectionKind::ENTRY, &entry.encode())?;
        }
        Ok(())
    }
}

/// What the blocks of `image` are compressed with, as far as it records that.
fn compression_of(image: &Image) -> Compression {
    if image.is_uncompressed() {
        return Compression::None;
    }
    let default = Compression::default_for(image.codec());
    match (default, image.codec_options()) {
        (Compression::Gzip { .. }, Some(&CodecOptions::Gzip { level, .. })) => Compression::Gzip {
            // 1 to 9.
            level: u8::try_from(level).unwrap_or(9),
        },
        (Compression::Lz4 { .. }, Some(&CodecOptions::Lz4 { high })) => Compression::Lz4 {
            high: high.then_some(LZ4_HIGHEST),
        },
        (
            Compression::Xz {
                preset, extreme, ..
            },
            Some(&CodecOptions::Xz { dict_size, filters }),
        ) => Compression::Xz {
            preset,
            extreme,
            // What is not smaller than a block is what there is without.
            dict_size: Some(dict_size).filter(|len| (8192..image.block_size()).contains(len)),
            filters,
        },
        (Compression::Zstd { .. }, Some(&CodecOptions::Zstd { level })) => Compression::Zstd {
            // The levels below 1 are not written.
            level: u8::try_from(level).map_or(1, |level| level.max(1)),
        },
        (default, _) => default,
    }
}

fn append_section(out: &mut dyn Output, kind: SectionKind, contents: &[u8]) -> Result<()> {
    out.pad_to(section::ALIGN)?;
    out.append(section::Wire::new(kind, contents).as_bytes())?;
    out.append(contents)
}
