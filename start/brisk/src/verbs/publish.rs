//! `brisk publish`: writes what a web server needs, so that others can start programs from an image.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use brisk_image::hot_pack::HotPack;
use brisk_image::verity::{BLOCK, RootHash, VerifiedFile, append_tree, append_tree_at};
use brisk_image::{Image, Limits, OpenOptions, Work};
use brisk_remote::{Descriptor, MOST_DESCRIPTOR, digits, now};
use brisk_terminal::answer::Answer;
use brisk_terminal::messages::say;
use brisk_terminal::names::shown;
use indicatif::BinaryBytes;
use serde::Serialize;
use tempfile::NamedTempFile;

use crate::file_kind::FileKind;
use crate::image_args::ImageArgs;
use crate::json;
use crate::manifest::Sidecar;
use crate::output_file::check_output;
use crate::progress::Progress;
use crate::signing_key::SigningKey;
use crate::whole_file::{WholeFile, write_together};

/// What to publish, and where.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Writes the image and NAME.remote into DIR, for a web server that serves DIR as it is. NAME.remote is a short text: the \
length and digests of the image, where its tables, hot pack and hash tree are, and a serial number. With --key, its \
signature goes to NAME.remote.minisig, as minisign makes it.\n\n\
Each block of a published image can be checked while it arrives. If the image has no hash tree, its copy gets one, as brisk \
pack --verity makes it. If it has one, brisk compares all of it with the tree and copies it byte for byte.\n\n\
IMAGE can be a hot pack, too, beside an image that must not change: brisk run asks for URL.hot. The hash tree then goes behind the \
pack in its copy. Readers who trust the key get pages from the pack, and others use it as a list of pages. Compare it with the image \
(brisk verify --hot) before you sign it.\n\n\
Prints the command that starts the image. It has the root hash, by which brisk knows the image from any other:\n  \
  brisk run https://YOUR-HOST/NAME#sha256=HASH\n\n\
An image should not change below people who are reading it. So brisk refuses to replace an image by another one of the same \
name; give each version a name of its own. A signature covers the name and the serial number: readers who trust the key refuse \
the image under another name, and one with a smaller number than they have seen.\n\n\
Examples:\n  \
  brisk publish app.img /srv/www\n  \
  brisk publish app.img /srv/www --name app-2.1.img --key app.key\n  \
  brisk publish app.AppImage.hot /srv/www --key app.key")]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// The directory that the web server serves.
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// The name of the image in DIR: letters, digits and any of - . _ ~ + @ , = and :, as others would be changed in a URL.
    /// [default: the name of IMAGE]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Signs by this secret key of minisign. If it has a password, brisk asks for it at the terminal.
    #[arg(long, value_name = "SECRET")]
    key: Option<PathBuf>,

    /// Takes the password from the first line of this file.
    #[arg(long, value_name = "FILE", requires = "key")]
    password_file: Option<PathBuf>,

    /// The serial number, which is larger for each later image of this name. [default: SOURCE_DATE_EPOCH of the environment, or
    /// the seconds since 1970]
    #[arg(long, value_name = "N")]
    serial: Option<u64>,

    /// Replaces another image of this name, and a signature where there is no --key.
    #[arg(long)]
    force: bool,

    /// Prints a summary as JSON, instead of the command.
    #[arg(long)]
    json: bool,

    /// Shows no progress and no summary.
    #[arg(short, long)]
    quiet: bool,
}

/// What `brisk publish --json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PublishJson<'a> {
    /// Path of the published image.
    image: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    image_hex: Option<String>,
    /// Path of `NAME.remote`.
    descriptor: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    descriptor_hex: Option<String>,
    /// Path of the signature.
    ///
    /// Null without `--key`.
    signature: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signature_hex: Option<String>,
    /// The serial number.
    serial: u64,
    /// Size of the published image.
    file_bytes: u64,
    /// SHA-256 of the published image.
    sha256: &'a str,
    /// Root hash: 64 hexadecimal digits.
    root_hash: &'a str,
    /// The byte of the file at which the tables of the image start.
    tables_offset: u64,
    /// The byte of the file at which the frames of the hot pack start.
    ///
    /// Null without a hot pack in the image.
    hot_frames_offset: Option<u64>,
    /// Size of the frames with pages of the launch.
    ///
    /// Null without a hot pack in the image.
    hot_frames_bytes: Option<u64>,
    /// Size of the frames that follow them, with the neighbours of these pages.
    hot_neighbours_bytes: u64,
    /// The byte of the file at which the section with the hash tree starts. It goes to the end of the file.
    hash_tree_offset: u64,
}

pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let name = name(args)?;
    let target = args.directory.join(&name);
    check_output(&target, "--name")?;
    // Before the long work, as the password may be wrong.
    let key = args
        .key
        .as_deref()
        .map(|key| SigningKey::read(key, args.password_file.as_deref()));
    let key = key.transpose()?;
    let asked = asked_serial(args)?;

    let (image, found) = match FileKind::of(&args.image.image) {
        Some(FileKind::HotPack) => copy_of_pack(args)?,
        _ => {
            let copy = copy(args)?;
            let found = describe(args, &copy)?;
            (copy, found)
        }
    };
    let whole = Sidecar::of(image.path())?;
    let whole = whole.with_context(|| format!("cannot read what goes to {}", shown(&target)))?;
    let found = Descriptor {
        file_bytes: whole.bytes,
        sha256: digits(&whole.digest),
        ..found
    };
    let earlier = Earlier::at(&target)?;
    let is_there = earlier.has(&found);
    ensure!(
        is_there || earlier.image.is_none() || args.force,
        "{}: is another image already, and people who are reading it would find other bytes in the middle of it; publish this one \
         under another name with --name, or replace the other with --force",
        shown(&target)
    );
    let serial = match asked {
        Some(serial) => earlier.allow(serial, &found, args.force)?,
        None => now().max(earlier.least(&found, args.force)?),
    };
    let descriptor = Descriptor {
        name,
        serial,
        ..found
    };
    let text = descriptor.to_string();
    let signature = key.map(|key| {
        let more = format!("serial:{serial}");
        key.sign(
            &text,
            "a published image",
            &earlier.paths.descriptor,
            Some(&more),
        )
    });
    let signature = signature.transpose()?;
    let is_outdated =
        signature.is_none() && earlier.is_signed && earlier.text.as_ref() != Some(&text);
    ensure!(
        !is_outdated || args.force,
        "{}: is a signature of what is there now, and without one, readers who trust its key would refuse the image; sign with --key, \
         or give up the signature with --force",
        shown(&earlier.paths.signature)
    );

    if !is_there {
        let persist = || -> io::Result<()> {
            image.as_file().sync_all()?;
            image.persist(&target)?;
            Ok(())
        };
        persist().with_context(|| format!("cannot write {}", shown(&target)))?;
    }
    // The image comes first: what is said of it must be true.
    let mut files = vec![WholeFile::data(&earlier.paths.descriptor, text.as_bytes())];
    if let Some(signature) = &signature {
        files.push(WholeFile::data(
            &earlier.paths.signature,
            signature.as_bytes(),
        ));
    }
    write_together(&files)?;
    if is_outdated {
        let outdated = &earlier.paths.signature;
        fs::remove_file(outdated).with_context(|| format!("cannot remove {}", shown(outdated)))?;
    }
    report(
        args,
        &target,
        &earlier.paths,
        &descriptor,
        signature.is_some(),
    )?;
    Ok(Answer::Yes)
}

/// The name in the directory, which is that in the URL.
fn name(args: &Args) -> anyhow::Result<String> {
    let source = args.image.image.file_name().unwrap_or_default();
    let name = match &args.name {
        Some(name) => name.clone(),
        None => source.to_string_lossy().into_owned(),
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._~+@,=:".contains(c);
    if let Some(other) = name.chars().find(|c| !is_plain(*c)) {
        bail!(
            "{}: the name has {other:?}, and allowed are letters, digits and any of - . _ ~ + @ , = and :, as others would be \
             changed in a URL; name it otherwise with --name",
            shown(&name)
        );
    }
    ensure!(
        !name.is_empty(),
        "the image has no name; give it one with --name"
    );
    Ok(name)
}

/// The serial number that the user or the environment wants.
fn asked_serial(args: &Args) -> anyhow::Result<Option<u64>> {
    if args.serial.is_some() {
        return Ok(args.serial);
    }
    let Some(epoch) = std::env::var_os("SOURCE_DATE_EPOCH") else {
        return Ok(None);
    };
    let serial = epoch.to_str().and_then(|digits| digits.parse().ok());
    serial.map(Some).with_context(|| {
        format!(
            "SOURCE_DATE_EPOCH is {epoch:?}, allowed is a number of seconds since 1970; correct or unset it, or pass --serial"
        )
    })
}

/// A copy of the image with a hash tree behind it, in the directory, under another name. It goes unless it gets its own name.
fn copy(args: &Args) -> anyhow::Result<NamedTempFile> {
    let path = &args.image.image;
    let has_tree = args.image.open()?.verity_start()?.is_some();
    let copy = copy_first(args, u64::MAX)?;
    if !has_tree {
        let len = copy.as_file().metadata().map_or(0, |found| found.len());
        let progress = Progress::new(Some(len), args.quiet);
        let work = Work::new().progress(progress.callback());
        let tree = append_tree(copy.as_file(), args.image.offset, &work);
        tree.map_err(|e| e.with_path(path)).context(
            "cannot put a hash tree behind the image; brisk repack makes an image that can have one",
        )?;
    }
    Ok(copy)
}

/// The first `len` bytes of the file, in the directory, under another name.
fn copy_first(args: &Args, len: u64) -> anyhow::Result<NamedTempFile> {
    let path = &args.image.image;
    let copied = || -> io::Result<NamedTempFile> {
        let mut copy = tempfile::Builder::new()
            .prefix(".brisk-")
            .permissions(fs::Permissions::from_mode(0o666))
            .tempfile_in(&args.directory)?;
        io::copy(&mut File::open(path)?.take(len), copy.as_file_mut())?;
        Ok(copy)
    };
    copied().with_context(|| {
        format!(
            "cannot copy {} into {}",
            shown(path),
            shown(&args.directory)
        )
    })
}

/// A copy of a hot pack with a hash tree behind it, and what is said of it, as by [`describe`].
fn copy_of_pack(args: &Args) -> anyhow::Result<(NamedTempFile, Descriptor)> {
    let path = &args.image.image;
    let pack = HotPack::open(path, &Limits::default())?;
    ensure!(
        pack.identity().is_some(),
        "{}: it is the hot pack of a directory, and readers start images; make one of the image with brisk hot",
        shown(path)
    );
    let copy = copy_first(args, pack.len())?;
    let end = pack.len().next_multiple_of(BLOCK);
    let tree = append_tree_at(copy.as_file(), end, &Work::new()).map_err(|e| e.with_path(path))?;
    let (frames, neighbours) = frames_of(&pack, 0);
    let found = Descriptor {
        root_hash: Some(tree.root_hash),
        frames,
        neighbours,
        hash_tree: Some(end),
        ..Descriptor::default()
    };
    Ok((copy, found))
}

/// Where the frames of the launch are in the file, and where those end that follow them. The pack starts at byte `start`.
fn frames_of(pack: &HotPack, start: u64) -> (Option<Range<u64>>, Option<u64>) {
    let end_of = |count: usize| {
        let frame = pack.frame(count.checked_sub(1)?)?;
        Some(start.saturating_add(frame.stored.end))
    };
    let first = pack.frame(0);
    let first = first.map(|first| start.saturating_add(first.stored.start));
    let end = end_of(pack.launch_frame_count());
    let frames = first.zip(end).map(|(start, end)| start..end);
    let all = end_of(pack.frame_count());
    (frames, all.filter(|all| end.is_some_and(|end| end < *all)))
}

/// What is said of the image in `copy`, but for its name and serial number, its length and its digest. All of it is compared with its
/// hash tree.
fn describe(args: &Args, copy: &NamedTempFile) -> anyhow::Result<Descriptor> {
    let path = &args.image.image;
    let open = || {
        copy.as_file()
            .try_clone()
            .context("cannot hold the copy of the image")
    };
    let root = checked_root(args, open()?)?;
    let mut options = OpenOptions::new();
    if let Some(offset) = args.image.offset {
        options = options.offset(offset);
    }
    let image = Image::from_source(open()?, &options).map_err(|e| e.with_path(path))?;
    let in_file = |at: u64| image.offset().saturating_add(at);
    let (frames, neighbours) = match (image.hot_pack()?, image.hot_pack_range()?) {
        (Some(pack), Some(range)) => frames_of(&pack, in_file(range.start)),
        _ => (None, None),
    };
    Ok(Descriptor {
        root_hash: Some(root.to_string()),
        tables: in_file(image.tables_start()),
        frames,
        neighbours,
        hash_tree: image.verity_start()?.map(in_file),
        ..Descriptor::default()
    })
}

/// The root hash of the tree behind the image in `file`, after comparing all of the image with it.
fn checked_root(args: &Args, file: File) -> anyhow::Result<RootHash> {
    let verified = VerifiedFile::of_its_own_root(&args.image.image, file, args.image.offset)?;
    let progress = Progress::new(Some(verified.data_len()), args.quiet);
    verified.check_all(&Work::new().progress(progress.callback()))?;
    Ok(verified.root_hash())
}

/// What stands behind the name of an image in names of files that tell of it.
struct Paths {
    descriptor: PathBuf,
    signature: PathBuf,
}

/// What was published under the name before.
struct Earlier {
    paths: Paths,
    image: Option<Sidecar>,
    /// What `NAME.remote` has.
    text: Option<String>,
    is_signed: bool,
}

impl Earlier {
    fn at(target: &Path) -> anyhow::Result<Self> {
        let with = |suffix: &str| {
            let mut path = target.as_os_str().to_owned();
            path.push(suffix);
            PathBuf::from(path)
        };
        let paths = Paths {
            descriptor: with(".remote"),
            signature: with(".remote.minisig"),
        };
        let read = || -> io::Result<Option<String>> {
            let file = match File::open(&paths.descriptor) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
                file => file?,
            };
            let mut bytes = Vec::new();
            file.take(MOST_DESCRIPTOR).read_to_end(&mut bytes)?;
            Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
        };
        let text = read().with_context(|| format!("cannot read {}", shown(&paths.descriptor)))?;
        Ok(Self {
            image: Sidecar::of(target)?,
            is_signed: paths.signature.exists(),
            text,
            paths,
        })
    }

    /// Whether the image is there with these bytes.
    fn has(&self, found: &Descriptor) -> bool {
        self.image
            .is_some_and(|image| digits(&image.digest) == found.sha256)
    }

    /// The least serial number that readers accept, for an image that was not there before a larger one.
    fn least(&self, found: &Descriptor, force: bool) -> anyhow::Result<u64> {
        let Some(text) = &self.text else {
            return Ok(0);
        };
        match Descriptor::parse(text) {
            Ok(earlier) => Ok(earlier
                .serial
                .saturating_add(u64::from(earlier.sha256 != found.sha256))),
            Err(_) if force => Ok(0),
            Err(e) => {
                let path = shown(&self.paths.descriptor);
                Err(e).with_context(|| {
                    format!("{path}: cannot read its serial number; replace it with --force")
                })
            }
        }
    }

    /// This serial number, if readers accept it.
    fn allow(&self, serial: u64, found: &Descriptor, force: bool) -> anyhow::Result<u64> {
        let least = self.least(found, force)?;
        ensure!(
            serial >= least,
            "the serial number {serial} is too small, because readers refuse an older image of the same name, as {} says; allowed is \
             {least} or more, with --serial",
            shown(&self.paths.descriptor)
        );
        Ok(serial)
    }
}

fn report(
    args: &Args,
    target: &Path,
    paths: &Paths,
    descriptor: &Descriptor,
    is_signed: bool,
) -> anyhow::Result<()> {
    let signature = is_signed.then_some(&paths.signature);
    let root_hash = descriptor.root_hash.as_deref().unwrap_or_default();
    if args.json {
        let (image, image_hex) = json::name(target);
        let (descriptor_path, descriptor_hex) = json::name(&paths.descriptor);
        let (signature, signature_hex) = json::optional_name(signature);
        json::print(&PublishJson {
            image,
            image_hex,
            descriptor: descriptor_path,
            descriptor_hex,
            signature,
            signature_hex,
            serial: descriptor.serial,
            file_bytes: descriptor.file_bytes,
            sha256: &descriptor.sha256,
            root_hash,
            tables_offset: descriptor.tables,
            hot_frames_offset: descriptor.frames.as_ref().map(|frames| frames.start),
            hot_frames_bytes: descriptor
                .frames
                .as_ref()
                .map(|frames| frames.end - frames.start),
            hot_neighbours_bytes: match (&descriptor.frames, descriptor.neighbours) {
                (Some(frames), Some(end)) => end.saturating_sub(frames.end),
                _ => 0,
            },
            hash_tree_offset: descriptor.hash_tree.unwrap_or(descriptor.file_bytes),
        })?;
    } else {
        let name = &descriptor.name;
        let command = match descriptor.tables {
            // No image has its tables there.
            0 => {
                let image = name.strip_suffix(".hot").unwrap_or("IMAGE");
                format!("brisk run https://YOUR-HOST/{image} --hot https://YOUR-HOST/{name}")
            }
            _ => format!("brisk run https://YOUR-HOST/{name}#sha256={root_hash}"),
        };
        writeln!(io::stdout().lock(), "{command}")?;
    }
    if !args.quiet {
        let signed = signature.map_or(String::new(), |path| format!(" and {}", shown(path)));
        say(&format!(
            "{}: {}, serial number {}, described in {}{signed}",
            shown(target),
            BinaryBytes(descriptor.file_bytes),
            descriptor.serial,
            shown(&paths.descriptor)
        ));
    }
    Ok(())
}
