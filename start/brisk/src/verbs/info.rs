//! `brisk info`: how an image was made, and where its bytes are.

use std::io::{self, BufWriter, Write};

use anyhow::Context;
use brisk_image::codec::CodecOptions;
use brisk_image::hot_pack::HotPack;
use brisk_image::usage::{LargeFile, SizeStep, Usage};
use brisk_image::{Image, Recipe};
use brisk_terminal::answer::Answer;
use brisk_terminal::messages::count;
use brisk_terminal::names::{printable, shown};
use serde_json::{Value, json};

use crate::entry::{Entry, NoEntry};
use crate::image_args::{ImageArgs, LimitArgs};
use crate::json;

/// Which image to look at, and what to show of it.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,

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
    let image = args.image.open_within(args.limits.limits())?;
    let path = &args.image.image;
    let file = std::fs::File::open(path).and_then(|file| brisk_io::ByteSource::size(&file));
    let info = Info {
        file_bytes: file.with_context(|| format!("{}: cannot read its length", path.display()))?,
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
        writeln!(out, "{}", shown(path))?;
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
        let mut row = |name: &str, text: String| {
            let line = format!("  {name:<16}{}", printable(&text));
            writeln!(out, "{}", line.trim_end())
        };
        row("format", "SquashFS 4.0".to_owned())?;
        let codec = match image.is_uncompressed() {
            true => format!("none (says {})", image.codec()),
            false => image.codec().to_string(),
        };
        row("codec", format!("{codec}, {}", options_text(image)))?;
        row("block size", bytes_text(image.block_size().into()))?;
        row(
            "flags",
            format!("{:#06x}: {}", image.flags(), image.flag_names().join(", ")),
        )?;
        row("inodes", image.inode_count().to_string())?;
        row("shared blocks", image.shared_block_count().to_string())?;
        row("made", time_text(image.mkfs_time())?)?;
        row("starts at byte", image.offset().to_string())?;
        row("image", bytes_text(image.bytes_used()))?;
        row("file", bytes_text(self.file_bytes))?;
        row(
            "place",
            match &self.place {
                Some(place) => shown(place),
                None => "none recorded".to_owned(),
            },
        )?;
        row("entry", entry_text(&self.entry))?;
        row("recipe", recipe_text(self.recipe.as_ref())?)?;
        row(
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
            row("hot pack", hot_text(pack))?;
        }
        print_classes(out, usage)?;
        print_largest(out, &usage.largest)?;
        Ok(())
    }

    fn to_json(&self) -> Value {
        let Self { image, usage, .. } = self;
        let (place, place_hex) = self.place.as_ref().map(json::name).unzip();
        let large = |file: &LargeFile| {
            let (path, path_hex) = json::name(&file.path);
            let mut value = json!({
                "path": path, "bytes": file.bytes, "stored_bytes": file.stored,
                "shared_block_bytes": file.shared,
            });
            if let Some(hex) = path_hex {
                value["path_hex"] = hex.into();
            }
            value
        };
        let section = |(kind, start, len): &(String, u64, u64)| json!({"kind": kind, "start": start, "bytes": len});
        let tables = usage.tables.iter();
        let tables: Vec<_> = tables
            .map(|(name, stored)| json!({"name": name, "stored_bytes": stored}))
            .collect();
        let mut value = json!({
            "version": "4.0",
            "codec": image.codec().name(),
            "codec_options": options_json(image.codec_options()),
            "uncompressed": image.is_uncompressed(),
            "block_size": image.block_size(),
            "flags": image.flags(),
            "flag_names": image.flag_names(),
            "inodes": image.inode_count(),
            "shared_blocks": image.shared_block_count(),
            "made": image.mkfs_time(),
            "offset": image.offset(),
            "bytes_used": image.bytes_used(),
            "file_bytes": self.file_bytes,
            "place": place,
            "entry": self.entry.as_ref().ok().map(entry_json),
            "recipe": self.recipe,
            "sections": usage.sections.iter().map(section).collect::<Vec<_>>(),
            "files": usage.files,
            "bytes": usage.bytes,
            "stored": {
                "compressed": usage.compressed,
                "raw": usage.raw,
                "shared": usage.shared,
                "sparse": {"bytes": usage.sparse, "stored_bytes": 0},
                "duplicates": {"bytes": usage.duplicates, "stored_bytes": 0},
                "other_bytes": usage.other,
                "tables": tables,
            },
            "largest": usage.largest.iter().map(large).collect::<Vec<_>>(),
            "curve": usage.sizes,
        });
        if let Some(pack) = &self.hot_pack {
            value["hot_pack"] = hot_json(pack);
        }
        if let Some(hex) = place_hex.flatten() {
            value["place_hex"] = hex.into();
        }
        value
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
            share_text(*files, usage.files),
            share_text(*bytes, usage.bytes)
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

fn share_text(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".to_owned(),
        _ => {
            // 128 bits: tenths of a percent of 2^64 bytes do not fit into 64.
            let tenths = u128::from(part) * 1000 / u128::from(whole);
            format!("{}.{} %", tenths / 10, tenths % 10)
        }
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

fn entry_json(entry: &Entry) -> Value {
    // As lossy as command lines in other JSON of brisk.
    let text = |text: &std::ffi::OsString| Value::from(text.to_string_lossy());
    let directory = entry.directory.as_ref().map(json::name);
    let (directory, directory_hex) = directory.unzip();
    let variables = entry.variables.iter();
    let variables =
        variables.map(|(name, value)| json!({"name": text(name), "value": text(value)}));
    let mut value = json!({
        "command": entry.command.iter().map(text).collect::<Vec<_>>(),
        "root": entry.root,
        "directory": directory,
        "variables": variables.collect::<Vec<_>>(),
        "from": entry.origin.word(),
    });
    if let Some(hex) = directory_hex.flatten() {
        value["directory_hex"] = hex.into();
    }
    value
}

fn recipe_text(recipe: Option<&Recipe>) -> anyhow::Result<String> {
    let Some(recipe) = recipe else {
        return Ok("none recorded".to_owned());
    };
    Ok(serde_json::to_string(recipe)?)
}

/// How many look-ups find a name, and how many find none.
fn look_ups(pack: &HotPack) -> (usize, usize) {
    let found = pack.look_ups().filter(|look_up| look_up.found).count();
    (found, pack.look_ups().len() - found)
}

fn hot_text(pack: &HotPack) -> String {
    let (found, absent) = look_ups(pack);
    format!(
        "{} ({}) of {}, {} stored as {} in {}; look-ups: {found} found, {absent} absent",
        count(pack.pages(), "page", "pages"),
        indicatif::BinaryBytes(pack.data_len()),
        count(pack.files().len() as u64, "file", "files"),
        indicatif::BinaryBytes(pack.data_stored()),
        pack.codec(),
        count(pack.frame_count() as u64, "frame", "frames")
    )
}

fn hot_json(pack: &HotPack) -> Value {
    let (found, absent) = look_ups(pack);
    json!({
        "codec": pack.codec().name(),
        "pages": pack.pages(),
        "bytes": pack.data_len(),
        "stored_bytes": pack.data_stored(),
        "files": pack.files().len(),
        "ranges": pack.range_count(),
        "frames": pack.frame_count(),
        "look_ups": {"found": found, "absent": absent},
    })
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
            // The names are the same as in a recipe.
            let names = filters.iter().map(|filter| json!(filter));
            let filters: Vec<_> = names
                .filter_map(|name| name.as_str().map(str::to_owned))
                .collect();
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

fn options_json(options: Option<&CodecOptions>) -> Value {
    match options {
        None => Value::Null,
        Some(CodecOptions::Gzip {
            level,
            window,
            strategies,
        }) => json!({"level": level, "window": window, "strategies": strategies}),
        Some(CodecOptions::Lzo { algorithm, level }) => {
            json!({"algorithm": algorithm, "level": level})
        }
        Some(CodecOptions::Lz4 { high }) => json!({"high_compression": high}),
        Some(CodecOptions::Xz { dict_size, filters }) => {
            json!({"dict_size": dict_size, "filters": filters})
        }
        Some(CodecOptions::Zstd { level }) => json!({"level": level}),
        Some(other) => json!(format!("{other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_down() {
        assert_eq!(share_text(0, 0), "-");
        assert_eq!(share_text(1, 3), "33.3 %");
        assert_eq!(share_text(2999, 3000), "99.9 %");
        assert_eq!(share_text(u64::MAX, u64::MAX), "100.0 %");
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
