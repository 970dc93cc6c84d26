//! `brisk verify`: reads and decodes all of an image, and packs its tree again.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use brisk_image::hot_pack::{HotChecked, HotPack};
use brisk_image::profile::Origin;
use brisk_image::summary::Checked;
use brisk_image::verity::{TreeFile, VerifiedFile, root_hash_beside};
use brisk_image::{ErrorKind, Image, ImageWriter, Limits, Recipe, Tree, TreeRules, Work};
use brisk_io::{ByteSource, open_at_once};
use brisk_remote::{Background, Class, RemoteUrl};
use brisk_terminal::answer::Answer;
use brisk_terminal::messages::{count, warn};
use brisk_terminal::names::{path_from_root, printable, shown};
use serde::Serialize;

use crate::file_kind::NoImage;
use crate::image_args::{ImageArgs, LimitArgs};
use crate::json;
use crate::manifest::{Manifest, Sidecar, manifest_beside};
use crate::progress::Progress;
use crate::verify_args::{VerifyArgs, root_hash_in};

/// What to check.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Reads and decodes every inode, listing, block and extended attribute, and checks the digest of each section \
behind the image. Compares every page of the hot pack, behind the image or beside it, with the contents of the \
image. Prints a line for each of the first 100 faults, with the file that it harms, and counts the others.\n\n\
Compares the image with each hash tree that it finds: behind the image, and in IMAGE.verity. Compares the root hash in \
IMAGE.roothash with those of the trees. Says which tree no root hash vouches for, and what it could not compare.\n\n\
SquashFS itself has no checksums: without a hash tree (brisk pack --verity, brisk verity), verify does not see damage \
that still decodes, for example in blocks that are stored raw. brisk diff compares an image with what it was made from.\n\n\
Exits with 0 if the image is sound; with 1 if it, its hot pack or a hash tree is damaged, if the pack or the root hash is of \
another image, or if the image is not what its recipe makes; and with 2 if brisk cannot read it.")]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,

    #[arg(skip)]
    fetched: Option<Fetched>,

    #[command(flatten)]
    verified: VerifyArgs,

    #[command(flatten)]
    limits: LimitArgs,

    /// A hot pack to compare with the image, in addition to the one behind it. [default: IMAGE.hot, if it
    /// exists]
    #[arg(long, value_name = "HOT")]
    hot: Option<PathBuf>,

    /// Packs the image again from its own contents and the recipe that it records, into a temporary file in TMPDIR,
    /// or else beside the image, and compares every byte.
    #[arg(long)]
    rebuild: bool,

    /// Prints JSON.
    #[arg(long)]
    json: bool,

    /// Shows no progress.
    #[arg(short, long)]
    quiet: bool,
}

/// What is known of an image that was fetched from the network.
#[derive(Debug, Clone)]
struct Fetched {
    url: PathBuf,
    /// Who vouches for its root hash.
    vouched_by: Option<&'static str>,
}

impl Args {
    /// What the image is called.
    fn name(&self) -> &Path {
        let fetched = self.fetched.as_ref();
        fetched.map_or(&self.image.image, |fetched| &fetched.url)
    }

    /// Who vouches for the root hash with which the image was opened.
    fn vouched_by(&self) -> Option<&'static str> {
        match &self.fetched {
            Some(fetched) => fetched.vouched_by,
            None => self.verified.given(),
        }
    }
}

/// The result of all checks.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VerifyJson {
    /// True if the image and the hot pack beside it have no fault and, with `--rebuild`, packing by the recipe gives the
    /// same image.
    sound: bool,
    #[serde(flatten)]
    faults: Faults,
    /// What brisk read and decoded.
    ///
    /// Absent if the image is too damaged to be opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    checked: Option<Checked>,
    /// The comparison of the hot pack behind the image.
    ///
    /// Absent if there is none, or if it is too damaged.
    #[serde(skip_serializing_if = "Option::is_none")]
    hot_pack: Option<HotChecked>,
    /// The hot pack in a file of its own: that of `--hot`, or `IMAGE.hot`.
    ///
    /// Absent if there is none. Also absent if brisk cannot compare `IMAGE.hot`; then it warns.
    #[serde(skip_serializing_if = "Option::is_none")]
    hot_pack_beside: Option<HotPackFile>,
    #[serde(flatten)]
    trees: HashTrees,
    /// The comparison with the image made again.
    ///
    /// Absent without `--rebuild`, and if there is a fault in `faults`.
    #[serde(skip_serializing_if = "Option::is_none")]
    rebuilt: Option<Rebuilt>,
}

/// The hash trees of an image.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct HashTrees {
    /// The hash trees with which brisk compared the image.
    ///
    /// Absent if there is none.
    #[serde(rename = "hash_trees", skip_serializing_if = "Vec::is_empty")]
    compared: Vec<HashTree>,
    /// Hash trees and root hashes that brisk could not compare, and what to do.
    ///
    /// Absent if there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_compared: Vec<String>,
}

/// A hash tree, which fits the bytes that it covers unless a fault says otherwise.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct HashTree {
    /// The file that the tree is in.
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    /// The byte of that file at which the tree begins.
    superblock: u64,
    /// Its root hash in hexadecimal.
    root_hash: String,
    /// Bytes of the image that it covers.
    data_bytes: u64,
    /// Where else this root hash is.
    ///
    /// Null if nothing says that it is the right tree.
    known_by: Option<String>,
}

impl HashTrees {
    /// Compares the image with each of its trees, by the root hash that this tree has.
    fn compare(
        &mut self,
        args: &Args,
        image: &Image,
        work: &Work,
        on_fault: &mut dyn FnMut(brisk_image::Error),
    ) -> anyhow::Result<()> {
        let ImageArgs { image: path, .. } = &args.image;
        let file = open_at_once(path).with_context(|| format!("cannot open {}", shown(path)))?;
        let found = match TreeFile::all(path, &file, Some(image.offset())) {
            Err(e) if e.kind() == ErrorKind::Corrupt => {
                on_fault(e);
                return Ok(());
            }
            found => found?,
        };
        for tree in found {
            let is_behind = tree.path() == path;
            let (name, path_hex) = json::name(if is_behind { args.name() } else { tree.path() });
            let (name, superblock) = (name.into_owned(), tree.superblock());
            let hold = file.try_clone().context("hold the image")?;
            let compared = VerifiedFile::of_root_of(tree, args.name(), hold)
                .and_then(|verified| verified.check_all(work).map(|()| verified));
            match compared {
                Ok(verified) => self.compared.push(HashTree {
                    path: name,
                    path_hex,
                    superblock,
                    root_hash: verified.root_hash().to_string(),
                    data_bytes: verified.data_len(),
                    known_by: None,
                }),
                Err(e) if e.kind() == ErrorKind::Corrupt => on_fault(e),
                Err(e) if e.kind() == ErrorKind::Unsupported => {
                    self.not_compared.push(format!("a hash tree: {e}"));
                }
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    fn print(&self, image: &str, out: &mut impl Write) -> io::Result<()> {
        for tree in &self.compared {
            let HashTree {
                superblock,
                data_bytes,
                root_hash,
                ..
            } = tree;
            let path = printable(&tree.path);
            let known = match &tree.known_by {
                Some(by) => format!("whose root hash is that of {}", printable(by)),
                None => format!(
                    "which nothing vouches for; compare its root hash {root_hash} with one from elsewhere"
                ),
            };
            writeln!(
                out,
                "{image}: {data_bytes} bytes are those of the hash tree at byte {superblock} of {path}, {known}"
            )?;
        }
        self.not_compared
            .iter()
            .try_for_each(|what| writeln!(out, "{image}: not compared: {}", printable(what)))
    }
}

/// What is damaged.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Faults {
    /// What is damaged: of the image and of each hot pack the first 100 faults.
    #[serde(rename = "faults")]
    described: Vec<Fault>,
    /// Faults that are not in `faults`.
    #[serde(rename = "more_faults")]
    more: u64,
}

impl Faults {
    fn count(&self) -> u64 {
        self.more.saturating_add(self.described.len() as u64)
    }

    /// Adds those of `all` new ones that were not described. There were `before` descriptions then.
    fn add_rest(&mut self, all: u64, before: usize) {
        let described = self.described.len().saturating_sub(before) as u64;
        self.more = self.more.saturating_add(all.saturating_sub(described));
    }
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Fault {
    /// What is wrong.
    message: String,
    /// The file in the image that the fault harms; `.` is the root itself.
    ///
    /// Absent if brisk does not know it.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
}

impl Fault {
    fn new(path: Option<&Path>, e: &brisk_image::Error) -> Self {
        let (path, path_hex) = path.map(path_from_root).map(json::name).unzip();
        Self {
            message: e.to_string(),
            path: path.map(Cow::into_owned),
            path_hex: path_hex.flatten(),
        }
    }

    /// None if the image was not opened for another reason than what is in the file.
    fn of_opening(e: &anyhow::Error) -> Option<Self> {
        let no_image = e.downcast_ref::<NoImage>().map(|e| Self {
            message: e.to_string(),
            path: None,
            path_hex: None,
        });
        let corrupt = e.downcast_ref::<brisk_image::Error>();
        let corrupt = corrupt.filter(|e| e.kind() == ErrorKind::Corrupt);
        no_image.or_else(|| corrupt.map(|e| Self::new(None, e)))
    }
}

/// The result for a hot pack in a file of its own.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct HotPackFile {
    /// Path of the pack.
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    /// Whether it has no fault.
    sound: bool,
    #[serde(flatten)]
    faults: Faults,
    /// The comparison.
    ///
    /// Absent if the pack is too damaged, or belongs to another image.
    #[serde(skip_serializing_if = "Option::is_none")]
    checked: Option<HotChecked>,
}

/// The result of packing the image again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Rebuilt {
    /// The first byte of the image that differs.
    ///
    /// Null if none does.
    first_difference: Option<u64>,
    /// Compared bytes of the image: all but a hot pack behind it.
    image_bytes: u64,
    /// Size of the image made again.
    rebuilt_bytes: u64,
}

pub fn run(args: &Args) -> anyhow::Result<Answer> {
    if !RemoteUrl::is_url(args.image.image.as_os_str()) {
        return args.limits.advise(check_all(args));
    }
    // All of it is read, so all of it is fetched, and then it is a file.
    let ImageArgs { image, offset } = &args.image;
    let background = Some(Background::Full);
    let opened = (args.verified).open_remote(image, *offset, args.limits.limits(), background);
    let opened = args.limits.advise(opened)?;
    opened
        .source
        .wait_for(0..opened.entry.about.len, Class::Pack)?;
    let mut fetched = args.clone();
    fetched.image.image = opened.entry.image_path();
    let vouched_by = args.verified.given().unwrap_or("the URL");
    fetched.fetched = Some(Fetched {
        url: image.clone(),
        vouched_by: Some(vouched_by).filter(|_| opened.entry.about.is_vouched),
    });
    fetched.verified = args.verified.of_fetched(None);
    args.limits
        .advise(report(&fetched, &check(&fetched, &opened.image)?))
}

fn check_all(args: &Args) -> anyhow::Result<Answer> {
    let ImageArgs { image, offset } = &args.image;
    let limits = args.limits.limits();
    let found = match args.verified.open_within(image, *offset, limits) {
        Ok(image) => check(args, &image)?,
        Err(e) => match Fault::of_opening(&e) {
            Some(fault) => {
                if !args.json {
                    writeln!(io::stdout().lock(), "{}", printable(&fault.message))?;
                }
                VerifyJson {
                    faults: Faults {
                        described: vec![fault],
                        more: 0,
                    },
                    ..VerifyJson::default()
                }
            }
            None => return Err(e),
        },
    };
    report(args, &found)
}

fn report(args: &Args, found: &VerifyJson) -> anyhow::Result<Answer> {
    match args.json {
        true => json::print(found)?,
        false => print(&shown(args.name()), found)?,
    }
    Ok(match found.sound {
        true => Answer::Yes,
        false => Answer::No,
    })
}

fn is_corrupt(e: &anyhow::Error) -> bool {
    let fault = e.downcast_ref::<brisk_image::Error>();
    fault.is_some_and(|fault| fault.kind() == ErrorKind::Corrupt)
}

fn check(args: &Args, image: &Image) -> anyhow::Result<VerifyJson> {
    let rebuild = match args.rebuild {
        true => match Rebuild::new(image, args) {
            // The check reports this too, with more detail.
            Err(e) if is_corrupt(&e) => Some(Err(e)),
            rebuild => Some(Ok(rebuild?)),
        },
        false => None,
    };
    let work = Work::new();
    let mut faults = Faults::default();
    let mut written = Ok(());
    let progress = Progress::new(None, args.quiet);
    let checked = image.check(&work.clone().progress(progress.callback()), |path, e| {
        if !args.json && written.is_ok() {
            let place = path.map(|path| format!(" (in {})", shown(path)));
            let line = format!("{}{}", printable(&e.to_string()), place.unwrap_or_default());
            written = writeln!(io::stdout().lock(), "{line}");
        }
        faults.described.push(Fault::new(path, &e));
    })?;
    faults.add_rest(checked.faults, 0);
    let mut on_fault = |faults: &mut Faults, e: brisk_image::Error| {
        if !args.json && written.is_ok() {
            written = writeln!(io::stdout().lock(), "{}", printable(&e.to_string()));
        }
        faults.described.push(Fault::new(None, &e));
    };
    let before = faults.described.len();
    let hot_pack = check_hot_pack(image, &work, &mut |e| on_fault(&mut faults, e))?;
    faults.add_rest(hot_pack.map_or(0, |checked| checked.faults), before);
    let hot_pack_beside = match hot_pack_beside(args) {
        Some(path) => match check_beside(image, &path, &work, &mut on_fault) {
            // A launch also goes on without it.
            Err(e) if args.hot.is_none() => {
                warn(&format!("not compared: {e:#}"));
                None
            }
            beside => Some(beside?),
        },
        None => None,
    };
    let mut trees = HashTrees::default();
    trees.compare(args, image, &work, &mut |e| on_fault(&mut faults, e))?;
    drop(progress);
    written?;
    check_root_hashes(args, image, &mut trees, &mut faults)?;
    check_signed_hot_pack(args, &mut faults)?;
    let rebuilt = match rebuild {
        Some(rebuild) if faults.count() == 0 => Some(rebuild?.run(image, args.quiet)?),
        _ => None,
    };
    Ok(VerifyJson {
        sound: faults.count() == 0
            && hot_pack_beside.as_ref().is_none_or(|beside| beside.sound)
            && rebuilt.is_none_or(|r| r.first_difference.is_none()),
        faults,
        checked: Some(checked),
        hot_pack,
        hot_pack_beside,
        trees,
        rebuilt,
    })
}

/// Compares the root hashes that there are with those of the trees: the given one, and the one beside the image.
fn check_root_hashes(
    args: &Args,
    image: &Image,
    trees: &mut HashTrees,
    faults: &mut Faults,
) -> anyhow::Result<()> {
    let path = &args.image.image;
    let given = image.verified().map(|verified| verified.root_hash());
    let given = given.zip(args.vouched_by());
    let mut known: Vec<_> = given
        .map(|(root, by)| (by.to_owned(), root))
        .into_iter()
        .collect();
    let mut wrong = Vec::new();
    let beside = root_hash_beside(path);
    if beside.exists() {
        match root_hash_in(&beside) {
            Ok(root) => known.push((shown(&beside), root)),
            Err(e) => wrong.push(format!("{e:#}")),
        }
    }
    for (by, root) in known {
        let of_root = |tree: &&mut HashTree| tree.root_hash == root.to_string();
        match trees.compared.iter_mut().find(of_root) {
            Some(tree) => tree.known_by = tree.known_by.take().or(Some(by)),
            None => wrong.push(format!(
                "{by}: the root hash {root} is that of no hash tree of {}: it was made for another image, or the tree is gone; get \
                 the image again with both, or if you have made it anew, remove the old root hash",
                shown(args.name())
            )),
        }
    }
    if manifest_beside(path).exists() && !args.verified.is_by_key() {
        let note = "its signature: name the publisher's key with --trust, or --verify key";
        trees.not_compared.push(note.to_owned());
    }
    for message in wrong {
        if !args.json {
            writeln!(io::stdout().lock(), "{}", printable(&message))?;
        }
        faults.described.push(Fault {
            message,
            path: None,
            path_hex: None,
        });
    }
    Ok(())
}

/// Compares the hot pack beside the image with its digest in the manifest, if a signature vouches for the image.
fn check_signed_hot_pack(args: &Args, faults: &mut Faults) -> anyhow::Result<()> {
    let path = &args.image.image;
    if !args.verified.is_by_key() {
        return Ok(());
    }
    let Some(signed) = Manifest::signed(path, &args.verified.keys()?)?.hot_pack else {
        return Ok(());
    };
    let beside = crate::manifest::hot_pack_beside(path);
    let why = match Sidecar::of(&beside)? {
        Some(found) if found == signed => return Ok(()),
        Some(_) => "is not the one that was signed with the image; get it again",
        None => "was signed with the image, and is missing; get it again",
    };
    let message = format!("{}: the hot pack {why}", shown(&beside));
    if !args.json {
        writeln!(io::stdout().lock(), "{message}")?;
    }
    faults.described.push(Fault {
        message,
        path: None,
        path_hex: None,
    });
    Ok(())
}

/// Compares the hot pack behind the image, if there is one, with the contents of the image.
fn check_hot_pack(
    image: &Image,
    work: &Work,
    on_fault: &mut dyn FnMut(brisk_image::Error),
) -> anyhow::Result<Option<HotChecked>> {
    let pack = match image.hot_pack() {
        Ok(Some(pack)) => pack,
        Ok(None) => return Ok(None),
        Err(e) if e.kind() == ErrorKind::Corrupt => {
            on_fault(e);
            return Ok(None);
        }
        Err(e) => return Err(e.into()),
    };
    let origin = Origin::image(image);
    compare_pack(&pack, &origin, work, on_fault)
}

/// Compares a hot pack with the image. None if the image is too damaged for that.
fn compare_pack(
    pack: &HotPack,
    origin: &Origin,
    work: &Work,
    on_fault: &mut dyn FnMut(brisk_image::Error),
) -> anyhow::Result<Option<HotChecked>> {
    match pack.verify(origin, work, &mut *on_fault) {
        Ok(checked) => Ok(Some(checked)),
        Err(e) if e.kind() == ErrorKind::Corrupt => {
            on_fault(e);
            Ok(None)
        }
        Err(e) => Err(e.into()),
    }
}

/// The hot pack that was named, or else the one beside the image, if there is one.
fn hot_pack_beside(args: &Args) -> Option<PathBuf> {
    args.hot.clone().or_else(|| {
        let mut beside = args.image.image.clone().into_os_string();
        beside.push(".hot");
        Some(PathBuf::from(beside)).filter(|path| path.exists())
    })
}

/// Compares the hot pack at `path` with the contents of the image.
fn check_beside(
    image: &Image,
    path: &Path,
    work: &Work,
    on_fault: &mut dyn FnMut(&mut Faults, brisk_image::Error),
) -> anyhow::Result<HotPackFile> {
    let mut faults = Faults::default();
    let checked = match HotPack::open(path, &Limits::default()) {
        Ok(pack) => compare_pack(&pack, &Origin::image(image), work, &mut |e| {
            on_fault(&mut faults, e);
        })?,
        Err(e) if e.kind() == ErrorKind::Corrupt => {
            on_fault(&mut faults, e);
            None
        }
        Err(e) => return Err(e.into()),
    };
    faults.add_rest(checked.map_or(0, |checked| checked.faults), 0);
    let (name, path_hex) = json::name(path);
    Ok(HotPackFile {
        path: name.into_owned(),
        path_hex,
        sound: faults.count() == 0,
        faults,
        checked,
    })
}

fn print(image: &str, report: &VerifyJson) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if let Some(checked) = &report.checked {
        writeln!(
            out,
            "{image}: read {} ({}, {} of {}), {}, {}, {} and {}",
            count(checked.inodes, "inode", "inodes"),
            count(checked.directories, "directory", "directories"),
            count(checked.files, "file", "files"),
            count(checked.bytes, "byte", "bytes"),
            count(checked.blocks, "block", "blocks"),
            count(checked.shared_blocks, "shared block", "shared blocks"),
            count(checked.xattrs, "xattr", "xattrs"),
            count(checked.sections, "section", "sections"),
        )?;
        if !checked.whole_tree {
            writeln!(out, "{image}: the rest of the tree could not be reached")?;
        }
    }
    if let Some(checked) = &report.hot_pack {
        writeln!(
            out,
            "{image}: the hot pack has {} ({} bytes) of what the image has",
            count(checked.frames, "frame", "frames"),
            checked.bytes
        )?;
    }
    report.trees.print(image, &mut out)?;
    match report.rebuilt {
        Some(Rebuilt {
            first_difference: None,
            image_bytes,
            ..
        }) => writeln!(
            out,
            "{image}: packed again, it is the same: {image_bytes} bytes"
        )?,
        Some(Rebuilt {
            first_difference: Some(first),
            image_bytes,
            rebuilt_bytes,
        }) => writeln!(
            out,
            "{image}: packed again, it differs from byte {first} on \
             ({image_bytes} bytes, packed again {rebuilt_bytes})"
        )?,
        None => {}
    }
    if report.faults.more > 0 {
        let more = count(report.faults.more, "fault", "faults");
        writeln!(out, "{image}: and {more} more")?;
    }
    match report.faults.count() {
        0 if report.rebuilt.is_none_or(|r| r.first_difference.is_none()) => {
            writeln!(out, "{image}: sound")?;
        }
        0 => {}
        1 => writeln!(out, "{image}: damaged, 1 fault")?,
        n => writeln!(out, "{image}: damaged, {n} faults")?,
    }
    if let Some(beside) = &report.hot_pack_beside {
        let pack = printable(&beside.path);
        match (&beside.checked, beside.faults.count()) {
            (Some(checked), 0) => writeln!(
                out,
                "{pack}: has {} ({} bytes) of what the image has",
                count(checked.frames, "frame", "frames"),
                checked.bytes
            )?,
            _ => writeln!(
                out,
                "{pack}: not usable; make it again: brisk hot {image} --profile PROFILE -o {pack}"
            )?,
        }
    }
    out.flush()
}

/// How to pack an image again.
struct Rebuild<'a> {
    args: &'a Args,
    writer: ImageWriter,
}

impl<'a> Rebuild<'a> {
    /// Fails if the image does not record how it was made. Warns if other versions made it.
    fn new(image: &Image, args: &'a Args) -> anyhow::Result<Self> {
        let name = args.name();
        let Some(recipe) = image.recipe()? else {
            bail!(
                "{}: cannot pack it again, because it does not record how it was made; \
                 compare it with what it was made from instead: brisk diff IMAGE TREE",
                name.display()
            );
        };
        let writer = ImageWriter::from_recipe(&recipe)?.time(image.mkfs_time());
        // Copies of the image's own blocks would be what it has, whatever the recipe says.
        let mut writer = writer.copy_blocks(false);
        if let Some(place) = image.recorded_place()? {
            writer = writer.place(place);
        }
        if let Some(entry) = image.entry_point()? {
            writer = writer.entry_point(entry);
        }
        warn_of_versions(name, &recipe, &writer.to_recipe());
        Ok(Self { args, writer })
    }

    fn run(&self, image: &Image, quiet: bool) -> anyhow::Result<Rebuilt> {
        let tree = Tree::from_image(image, &TreeRules::default())?;
        let directory = temporary_directory(&self.args.image.image)?;
        let path = directory.path().join("image");
        let progress = Progress::new(Some(tree.bytes()), quiet);
        let writer = self.writer.clone().progress(progress.callback());
        writer.write(&tree, &path)?;
        drop(progress);
        let open = |path: &Path| {
            open_at_once(path).with_context(|| format!("{}: cannot open it", path.display()))
        };
        let (old, new) = (open(&self.args.image.image)?, open(&path)?);
        // The recipe makes everything before the hot pack and the verity tree. The pack itself was compared with the
        // contents.
        let ends = [image.hot_pack_start()?, image.verity_start()?];
        let end = ends.into_iter().flatten().min();
        compare(&old, image.offset(), end, &new).with_context(|| {
            format!(
                "{}: cannot compare it with the new one",
                self.args.name().display()
            )
        })
    }
}

fn warn_of_versions(path: &Path, was: &Recipe, is: &Recipe) {
    for (was, is) in [(&was.brisk, &is.brisk), (&was.library, &is.library)] {
        if was != is {
            warn(&format!(
                "{}: made by {was}, and packed again by {is}: \
                 the bytes may differ for that reason alone",
                path.display()
            ));
        }
    }
}

/// A temporary directory: in TMPDIR if that is set, else beside the image, else in the system's directory for
/// temporary files.
fn temporary_directory(image: &Path) -> anyhow::Result<tempfile::TempDir> {
    let builder = || {
        let mut builder = tempfile::Builder::new();
        builder.prefix(".brisk-");
        builder
    };
    if std::env::var_os("TMPDIR").is_none() {
        let beside = match image.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        if let Ok(directory) = builder().tempdir_in(beside) {
            return Ok(directory);
        }
    }
    builder()
        .tempdir()
        .context("cannot make a temporary directory; set TMPDIR to one with room for the image")
}

/// Compares `new` with `old` from its byte `start` on, for at most `most` bytes.
fn compare(old: &File, start: u64, most: Option<u64>, new: &File) -> io::Result<Rebuilt> {
    const CHUNK: usize = 1 << 20;
    let image_bytes = ByteSource::size(old)?.saturating_sub(start);
    let image_bytes = most.map_or(image_bytes, |most| most.min(image_bytes));
    let rebuilt_bytes = ByteSource::size(new)?;
    let common = image_bytes.min(rebuilt_bytes);
    let (mut a, mut b) = (vec![0; CHUNK], vec![0; CHUNK]);
    let mut first_difference = (image_bytes != rebuilt_bytes).then_some(common);
    let mut at = 0;
    while at < common {
        let n = usize::try_from(common - at).unwrap_or(CHUNK).min(CHUNK);
        let (a, b) = (&mut a[..n], &mut b[..n]);
        ByteSource::read_exact_bytes_at(old, start + at, a)?;
        ByteSource::read_exact_bytes_at(new, at, b)?;
        if a != b {
            let within = a.iter().zip(b.iter()).position(|(a, b)| a != b);
            first_difference = within.map(|within| at + within as u64);
            break;
        }
        at += n as u64;
    }
    Ok(Rebuilt {
        first_difference,
        image_bytes,
        rebuilt_bytes,
    })
}
