//! `brisk info`: how an image was made, and where its bytes are.

use std::borrow::Cow;
use std::io::{self, BufWriter, Write};

use anyhow::Context;
use brisk_bundle::entry::{Entry, NoEntry};
use brisk_image::codec::CodecOptions;
use brisk_image::hot_pack::HotPack;
use brisk_image::usage::{LargeFile, SizeStep, Stored, Usage};
use brisk_image::{Image, Recipe};
use brisk_terminal::answer::Answer;
use brisk_terminal::fields::Fields;
use brisk_terminal::messages::count;
use brisk_terminal::names::shown;
use serde::Serialize;

use super::profile::{FoundJson, percent};
use crate::image_args::{ImageArgs, LimitArgs};
use crate::json;
use crate::verify_args::VerifyArgs;

/// Which image to look at, and what to show of it.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,

    #[command(flatten)]
    verified: VerifyArgs,

    #[command(flatten)]
    limits: LimitArgs,

    /// Shows this many of the largest files.
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,

    /// Shows how many files are small: for sizes of 1 KiB, 2 KiB, 4 KiB and so on, how many files are no larger, and
    /// their bytes. JSON always has this.
    #[arg(long)]
    curve: bool,

    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// Everything that `brisk info` shows.
struct Info {
    image: Image,
    file_bytes: u64,
    place: Option<std::path::PathBuf>,
    entry: Result<Entry, NoEntry>,
    recipe: Option<Recipe>,
    hot_pack: Option<HotPack>,
    usage: Usage,
}

pub fn run(args: &Args) -> anyhow::Result<Answer> {
    args.limits.advise(show(args))
}

fn show(args: &Args) -> anyhow::Result<Answer> {
    let ImageArgs { image, offset } = &args.image;
    let image = args
        .verified
        .open_within(image, *offset, args.limits.limits())?;
    let info = Info {
        file_bytes: image.file_len()?,
        place: image.recorded_place()?,
        entry: Entry::of(&image)?,
        recipe: image.recipe()?,
        hot_pack: image.hot_pack()?,
        usage: image.usage(args.top)?,
        image,
    };
    if args.json {
        json::print(&info.to_json())?;
    } else {
        let mut out = BufWriter::new(io::stdout().lock());
        writeln!(out, "{}", shown(&args.image.image))?;
        info.print(&mut out)?;
        if args.curve {
            print_curve(&mut out, &info.usage)?;
        }
        out.flush()?;
    }
    Ok(Answer::Yes)
}

impl Info {
    fn print(&self, out: &mut impl Write) -> anyhow::Result<()> {
        let Self { image, usage, .. } = self;
        let mut fields = Fields::new(out, 16);
        fields.add("format", "SquashFS 4.0")?;
        let codec = match image.is_uncompressed() {
            true => format!("none (says {})", image.codec()),
            false => image.codec().to_string(),
        };
        fields.add("codec", format_args!("{codec}, {}", options_text(image)))?;
        fields.add("block size", bytes_text(image.block_size().into()))?;
        fields.add(
            "flags",
            format_args!("{:#06x}: {}", image.flags(), image.flag_names().join(", ")),
        )?;
        fields.add("inodes", image.inode_count())?;
        fields.add("shared blocks", image.shared_block_count())?;
        fields.add("made", time_text(image.mkfs_time())?)?;
        fields.add("starts at byte", image.offset())?;
        fields.add("image", bytes_text(image.bytes_used()))?;
        fields.add("file", bytes_text(self.file_bytes))?;
        fields.add(
            "place",
            match &self.place {
                Some(place) => shown(place),
                None => "none recorded".to_owned(),
            },
        )?;
        fields.add("entry", entry_text(&self.entry))?;
        fields.add("recipe", recipe_text(self.recipe.as_ref())?)?;
        fields.add(
            "sections",
            match usage.sections.as_slice() {
                [] => "none".to_owned(),
                sections => {
                    let text = |(kind, start, len): &(String, u64, u64)| {
                        format!("{kind} ({len} bytes at byte {start})")
                    };
                    sections.iter().map(text).collect::<Vec<_>>().join(", ")
                }
            },
        )?;
        if let Some(pack) = &self.hot_pack {
            fields.add("hot pack", hot_text(pack))?;
        }
        print_classes(out, usage)?;
        print_largest(out, &usage.largest)?;
        Ok(())
    }

    fn to_json(&self) -> InfoJson<'_> {
        let Self { image, usage, .. } = self;
        let (place, place_hex) = json::optional_name(self.place.as_deref());
        let only_decoded = |bytes| StoredJson {
            bytes,
            stored_bytes: 0,
        };
        InfoJson {
            version: "4.0",
            codec: image.codec().name(),
            codec_options: image.codec_options(),
            uncompressed: image.is_uncompressed(),
            block_size: image.block_size(),
            flags: image.flags(),
            flag_names: image.flag_names(),
            inodes: image.inode_count(),
            shared_blocks: image.shared_block_count(),
            made: image.mkfs_time(),
            offset: image.offset(),
            bytes_used: image.bytes_used(),
            file_bytes: self.file_bytes,
            place,
            place_hex,
            entry: self.entry.as_ref().ok().map(EntryJson::of),
            recipe: self.recipe.as_ref(),
            sections: usage.sections.iter().map(SectionJson::of).collect(),
            files: usage.files,
            bytes: usage.bytes,
            stored: ClassesJson {
                compressed: usage.compressed,
                raw: usage.raw,
                shared: usage.shared,
                sparse: only_decoded(usage.sparse),
                duplicates: only_decoded(usage.duplicates),
                other_bytes: usage.other,
                tables: usage.tables.iter().map(TableJson::of).collect(),
            },
            largest: usage.largest.iter().map(LargeFileJson::of).collect(),
            curve: &usage.sizes,
            hot_pack: self.hot_pack.as_ref().map(HotPackJson::of),
        }
    }
}

/// What `brisk info --json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct InfoJson<'a> {
    /// Version of SquashFS: `"4.0"`.
    version: &'static str,
    /// Codec in the superblock: `gzip`, `lzo`, `xz`, `lz4`, `zstd`.
    codec: &'static str,
    /// Options that the image records for the codec.
    ///
    /// Null if it records none.
    codec_options: Option<&'a CodecOptions>,
    /// Whether blocks, metadata and attributes are all stored raw.
    uncompressed: bool,
    /// Size of a data block.
    block_size: u32,
    /// Flag bits of the superblock.
    flags: u16,
    /// Names of the flags that are set.
    flag_names: Vec<&'static str>,
    /// Inodes; a hard-linked file counts once.
    inodes: u32,
    /// Blocks that several files share.
    shared_blocks: u32,
    /// When the image was made.
    made: u32,
    /// Byte of the file at which the image starts.
    offset: u64,
    /// Size of the SquashFS image.
    bytes_used: u64,
    /// Size of the whole file, with what is before and behind the image.
    file_bytes: u64,
    /// Directory that the tree belongs at.
    ///
    /// Null if the image records none.
    place: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    place_hex: Option<String>,
    /// How `brisk run` starts the image if no program is named.
    ///
    /// Null if the image has no entry.
    entry: Option<EntryJson<'a>>,
    /// How the image was made, as the image itself holds it.
    ///
    /// Null if the image does not record it.
    recipe: Option<&'a Recipe>,
    /// What is behind the image.
    sections: Vec<SectionJson<'a>>,
    /// Files; a hard-linked file counts once.
    files: u64,
    /// Size of the files.
    bytes: u64,
    /// How the bytes of the files are stored.
    stored: ClassesJson<'a>,
    /// The largest files, the largest first; `--top` says how many (10).
    largest: Vec<LargeFileJson<'a>>,
    /// How many files are how small.
    curve: &'a [SizeStep],
    /// Hot pack behind the image. `info` does not look at a pack beside it.
    ///
    /// Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    hot_pack: Option<HotPackJson>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct EntryJson<'a> {
    /// The program and its arguments.
    command: Vec<Cow<'a, str>>,
    /// Whether the image is the program's root directory.
    root: bool,
    /// The directory that the program starts in, from the root of the image.
    ///
    /// Null if it is that of the caller.
    directory: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    directory_hex: Option<String>,
    /// The variables that are set in the program's environment.
    variables: Vec<VariableJson<'a>>,
    /// Where the entry comes from: `recorded` (`--entry`), `AppRun` or `desktop`, the program or the only `.desktop` file at
    /// the top of the tree.
    from: &'static str,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct VariableJson<'a> {
    /// The name of the variable.
    name: Cow<'a, str>,
    /// Its value.
    value: Cow<'a, str>,
}

impl<'a> EntryJson<'a> {
    fn of(entry: &'a Entry) -> Self {
        let (directory, directory_hex) = json::optional_name(entry.directory.as_deref());
        let variables = entry.variables.iter();
        let variables = variables.map(|(name, value)| VariableJson {
            name: json::name(name).0,
            value: json::name(value).0,
        });
        Self {
            command: json::names(&entry.command),
            root: entry.root,
            directory,
            directory_hex,
            variables: variables.collect(),
            from: entry.origin.word(),
        }
    }
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct SectionJson<'a> {
    /// Kind of the section: see [image-format.md](image-format.md).
    kind: &'a str,
    /// Byte at which its contents start, from the start of the image.
    start: u64,
    /// Size of its contents.
    bytes: u64,
}

impl<'a> SectionJson<'a> {
    fn of((kind, start, bytes): &'a (String, u64, u64)) -> Self {
        Self {
            kind,
            start: *start,
            bytes: *bytes,
        }
    }
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ClassesJson<'a> {
    /// Compressed blocks of one file.
    compressed: Stored,
    /// Raw blocks of one file.
    raw: Stored,
    /// Blocks that several files share.
    shared: Stored,
    /// Blocks of zeros.
    sparse: StoredJson,
    /// Files whose contents are stored for another file.
    duplicates: StoredJson,
    /// Everything before the tables except contents: superblock, codec options, alignment of raw files.
    other_bytes: u64,
    /// The tables that the image has.
    tables: Vec<TableJson<'a>>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct StoredJson {
    /// Decoded size.
    bytes: u64,
    /// 0, because nothing is stored.
    stored_bytes: u64,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct TableJson<'a> {
    /// Which table: `inodes`, `directories`, `fragments`, `export`, `ids`, `xattrs`.
    name: &'a str,
    /// Its stored size.
    stored_bytes: u64,
}

impl<'a> TableJson<'a> {
    fn of((name, stored_bytes): &'a (&'static str, u64)) -> Self {
        Self {
            name,
            stored_bytes: *stored_bytes,
        }
    }
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct LargeFileJson<'a> {
    /// Path of the file.
    path: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    /// Size of the file.
    bytes: u64,
    /// Stored size of the blocks of its own, or of the file that it duplicates.
    stored_bytes: u64,
    /// Size of its end in a shared block.
    shared_block_bytes: u64,
}

impl<'a> LargeFileJson<'a> {
    fn of(file: &'a LargeFile) -> Self {
        let (path, path_hex) = json::name(&file.path);
        Self {
            path,
            path_hex,
            bytes: file.bytes,
            stored_bytes: file.stored,
            shared_block_bytes: file.shared,
        }
    }
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct HotPackJson {
    /// Codec of the frames: `lz4`, `zstd`.
    codec: &'static str,
    /// Pages in the pack.
    pages: u64,
    /// How many of them the launch asks for. The others are near those, for launches with another input.
    launch_pages: u64,
    /// Size of all pages.
    bytes: u64,
    /// Stored size of the frames.
    stored_bytes: u64,
    /// Files with pages in the pack.
    files: usize,
    /// Ranges of pages.
    ranges: usize,
    /// Frames; brisk decodes a whole frame at once.
    frames: usize,
    /// Names in the pack.
    look_ups: FoundJson,
}

impl HotPackJson {
    fn of(pack: &HotPack) -> Self {
        let (found, absent) = look_ups(pack);
        Self {
            codec: pack.codec().name(),
            pages: pack.pages(),
            launch_pages: pack.launch_pages(),
            bytes: pack.data_len(),
            stored_bytes: pack.data_stored(),
            files: pack.files().len(),
            ranges: pack.range_count(),
            frames: pack.frame_count(),
            look_ups: FoundJson { found, absent },
        }
    }
}

fn print_classes(out: &mut impl Write, usage: &Usage) -> io::Result<()> {
    writeln!(
        out,
        "\n{} of {} {} stored as\n",
        count(usage.files, "file", "files"),
        count(usage.bytes, "byte", "bytes"),
        if usage.files == 1 { "is" } else { "are" }
    )?;
    writeln!(out, "  {:<16}{:>15}{:>15}", "", "bytes", "stored")?;
    for (name, bytes, stored) in [
        (
            "compressed",
            usage.compressed.bytes,
            usage.compressed.stored,
        ),
        ("raw", usage.raw.bytes, usage.raw.stored),
        ("in shared blocks", usage.shared.bytes, usage.shared.stored),
        ("sparse", usage.sparse, 0),
        ("duplicates", usage.duplicates, 0),
    ] {
        writeln!(out, "  {name:<16}{bytes:>15}{stored:>15}")?;
    }
    for (name, stored) in &usage.tables {
        let name = format!("table: {name}");
        writeln!(out, "  {:<16}{:>15}{stored:>15}", name, "")?;
    }
    writeln!(out, "  {:<16}{:>15}{:>15}", "other", "", usage.other)
}

fn print_largest(out: &mut impl Write, files: &[LargeFile]) -> io::Result<()> {
    if files.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nThe largest files\n")?;
    writeln!(
        out,
        "  {:>15}{:>15}{:>15}  path",
        "bytes", "stored", "in shared"
    )?;
    for file in files {
        writeln!(
            out,
            "  {:>15}{:>15}{:>15}  {}",
            file.bytes,
            file.stored,
            file.shared,
            shown(&file.path)
        )?;
    }
    Ok(())
}

fn print_curve(out: &mut impl Write, usage: &Usage) -> io::Result<()> {
    writeln!(out, "\nFiles by size\n")?;
    writeln!(
        out,
        "  {:>10}{:>12}{:>9}{:>18}{:>9}",
        "at most", "files", "share", "bytes", "share"
    )?;
    for SizeStep {
        at_most,
        files,
        bytes,
        ..
    } in &usage.sizes
    {
        writeln!(
            out,
            "  {:>10}{files:>12}{:>9}{bytes:>18}{:>9}",
            unit_text(*at_most),
            percent(*files, usage.files),
            percent(*bytes, usage.bytes)
        )?;
    }
    Ok(())
}

/// A power of two of bytes, at least 1 KiB.
fn unit_text(bytes: u64) -> String {
    match bytes.ilog2() {
        log @ ..20 => format!("{} KiB", 1u64 << (log - 10)),
        log @ 20..30 => format!("{} MiB", 1u64 << (log - 20)),
        log => format!("{} GiB", 1u64 << (log - 30)),
    }
}

fn bytes_text(bytes: u64) -> String {
    match bytes {
        ..1024 => count(bytes, "byte", "bytes"),
        _ => format!("{bytes} bytes ({})", indicatif::BinaryBytes(bytes)),
    }
}

fn time_text(seconds: u32) -> anyhow::Result<String> {
    let time = jiff::Timestamp::from_second(seconds.into())
        .context("the time is outside of the calendar")?;
    Ok(time.to_string())
}

fn entry_text(entry: &Result<Entry, NoEntry>) -> String {
    match entry {
        Ok(entry) => entry.to_string(),
        Err(_) => "none".to_owned(),
    }
}

fn recipe_text(recipe: Option<&Recipe>) -> anyhow::Result<String> {
    let Some(recipe) = recipe else {
        return Ok("none recorded".to_owned());
    };
    Ok(serde_json::to_string(recipe)?)
}

/// How many look-ups find a name, and how many find none.
fn look_ups(pack: &HotPack) -> (u64, u64) {
    let found = pack.look_ups().filter(|look_up| look_up.found).count();
    (found as u64, (pack.look_ups().len() - found) as u64)
}

fn hot_text(pack: &HotPack) -> String {
    let (found, absent) = look_ups(pack);
    let neighbours = match pack.pages() - pack.launch_pages() {
        0 => String::new(),
        pages => format!(
            ", {} of them only neighbours",
            count(pages, "page", "pages")
        ),
    };
    format!(
        "{} ({}) of {}{neighbours}, {} stored as {} in {}; look-ups: {found} found, {absent} absent",
        count(pack.pages(), "page", "pages"),
        indicatif::BinaryBytes(pack.data_len()),
        count(pack.files().len() as u64, "file", "files"),
        indicatif::BinaryBytes(pack.data_stored()),
        pack.codec(),
        count(pack.frame_count() as u64, "frame", "frames")
    )
}

fn options_text(image: &Image) -> String {
    match image.codec_options() {
        None => "options not recorded (the default)".to_owned(),
        Some(CodecOptions::Gzip {
            level,
            window,
            strategies,
        }) => format!("level {level}, window {window}, strategies {strategies:#04x}"),
        Some(CodecOptions::Lzo { algorithm, level }) => {
            let name = [
                "lzo1x_1",
                "lzo1x_1_11",
                "lzo1x_1_12",
                "lzo1x_1_15",
                "lzo1x_999",
            ]
            .get(usize::try_from(*algorithm).unwrap_or(usize::MAX))
            .copied()
            .unwrap_or("unknown algorithm");
            format!("{name}, level {level}")
        }
        Some(CodecOptions::Lz4 { high: true }) => "high compression".to_owned(),
        Some(CodecOptions::Lz4 { high: false }) => "fast".to_owned(),
        Some(CodecOptions::Xz { dict_size, filters }) => {
            let filters: Vec<_> = filters.iter().map(|filter| filter.name()).collect();
            let filters = match filters.is_empty() {
                true => "no filters".to_owned(),
                false => format!("filters {}", filters.join(", ")),
            };
            format!("dictionary of {dict_size} bytes, {filters}")
        }
        Some(CodecOptions::Zstd { level }) => format!("level {level}"),
        Some(other) => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_down() {
        assert_eq!(percent(0, 0), "-");
        assert_eq!(percent(1, 3), "33.3 %");
        assert_eq!(percent(2999, 3000), "99.9 %");
        assert_eq!(percent(u64::MAX, u64::MAX), "100.0 %");
        assert_eq!(unit_text(1024), "1 KiB");
        assert_eq!(unit_text(512 << 10), "512 KiB");
        assert_eq!(unit_text(1 << 20), "1 MiB");
        assert_eq!(unit_text(1 << 63), "8589934592 GiB");
    }

    #[test]
    fn times_are_in_utc() {
        assert_eq!(time_text(0).ok().as_deref(), Some("1970-01-01T00:00:00Z"));
        let last = time_text(u32::MAX).ok();
        assert_eq!(last.as_deref(), Some("2106-02-07T06:28:15Z"));
    }
}
