//! `brisk publish`: writes what a web server needs, so that others can start programs from an image.

use std::borrow::Cow;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use brisk_io::open_at_once;
use brisk_remote::{Descriptor, MOST_DESCRIPTOR, digits, now};
use brisk_terminal::answer::Answer;
use brisk_terminal::messages::say;
use brisk_terminal::names::shown;
use indicatif::BinaryBytes;
use serde::Serialize;

use crate::file_kind::FileKind;
use crate::image_args::ImageArgs;
use crate::json;
use crate::manifest::Sidecar;
use crate::output_file::check_output;
use crate::published_image::{SignedArgs, copy, copy_of_pack, describe};
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

    #[command(flatten)]
    signed: SignedArgs,

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
    let key = args.signed.key()?;
    let asked = args.signed.serial()?;

    let (image, found) = match FileKind::of(&args.image.image) {
        Some(FileKind::HotPack) => copy_of_pack(&args.image.image, &args.directory)?,
        _ => {
            let copy = copy(&args.image, &args.directory, args.quiet)?;
            let found = describe(&args.image, copy.path(), args.quiet)?;
            (copy, found)
        }
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
            let file = match open_at_once(&paths.descriptor) {
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
