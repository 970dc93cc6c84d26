//! `brisk push`: puts images into a registry, so that others can start programs from them.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use brisk_image::hot_pack::HotPack;
use brisk_image::{Image, Limits};
use brisk_remote::{
    Artifact, Ask, Choice, Content, Descriptor, Done, EMPTY_CONFIG, Index, MOST_MANIFEST, Manifest,
    Platform, RegistryName, RemoteUrl, Upload, digits, is_tag, media_type, now,
};
use brisk_terminal::answer::Answer;
use brisk_terminal::messages::say;
use brisk_terminal::names::shown;
use indicatif::BinaryBytes;
use serde::Serialize;

use crate::image_args::ImageArgs;
use crate::json;
use crate::manifest::Sidecar;
use crate::published_image::{SignedArgs, copy, describe};
use crate::registry_job;
use crate::signing_key::SigningKey;
use brisk_bundle::entry::Entry;

/// What a SIF file has at this byte.
const SIF: &[u8; 10] = b"SIF_MAGIC\0";
const SIF_AT: u64 = 32;

/// Of the program of an image, the first bytes say what it was built for.
const ELF_HEADER: usize = 20;

/// What to push, and where to.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Sends the image to a registry, byte for byte, as the only layer of an OCI manifest whose annotations say what a start needs \
first. A layer that the registry has is not sent again. With --key, the signature goes into the manifest, too.\n\n\
Each block of a pushed image can be checked while it arrives. If the image has no hash tree, a copy of it gets one, as brisk \
pack --verity makes it.\n\n\
Prints the command that starts the image. It has the digest of the manifest, and that has the root hash of the image, so brisk \
knows the image from any other:\n  \
  brisk run oci://HOST/NAME@sha256:DIGEST\n\n\
Several images get one name, as variants: each is a manifest of its own, and the name leads to a list (an OCI index) of them. \
brisk run takes the first for its machine, or the one that --variant names; brisk mount --kernel leaves out those whose codec the \
kernel lacks. A variant is called as its codec (zstd, xz, none, ...), unless you name it: NAME=IMAGE. brisk reads from the program \
that the image starts for which machine it is.\n\n\
brisk takes your user and password from where docker login, podman login and skopeo login put them. A registry on this machine \
is asked by plain http, and all others by https.\n\n\
Examples:\n  \
  brisk push app.img oci://registry.example.org/tools/app:2.1\n  \
  brisk push app.img oci://localhost:5000/app --key app.key\n  \
  brisk push speed=app-lz4.img size=app-xz.img oci://localhost:5000/app")]
pub struct Args {
    /// The image, or a file that contains one, such as an AppImage. Of several, what each is called, if not as its codec. A file with
    /// = in its name is written ./FILE.
    #[arg(value_name = "[NAME=]IMAGE", required = true)]
    images: Vec<PathBuf>,

    /// The byte of the file at which the image starts. [default: brisk finds it]
    #[arg(long, value_name = "BYTES")]
    offset: Option<u64>,

    /// For which machines the images are, such as linux/arm64. [default: as their programs say, or else this machine]
    #[arg(long, value_name = "OS/ARCHITECTURE", conflicts_with = "hot")]
    platform: Option<Platform>,

    /// The name in the registry: oci://HOST[:PORT]/NAME[:TAG]. [default tag: latest]
    #[arg(value_name = "URL")]
    url: String,

    #[command(flatten)]
    signed: SignedArgs,

    /// IMAGE is a hot pack (brisk hot) for the image that URL names, which stays as it is. brisk finds it when it starts the image.
    #[arg(long, conflicts_with_all = ["form", "key", "serial"])]
    hot: bool,

    /// What it is in the registry: an image of brisk, or what SingularityCE runs: a SIF file (by oras://), or of any other image
    /// the layer of a container image (by docker://, with --oci). brisk starts both, too.
    #[arg(long = "as", value_name = "FORM", default_value = "brisk")]
    form: Form,

    /// Sends to another machine by plain http (oci+http://), though everyone between here and there can read your password.
    #[arg(long)]
    insecure: bool,

    /// Prints a summary as JSON, instead of the command: of variants an array.
    #[arg(long)]
    json: bool,

    /// Shows no progress and no summary.
    #[arg(short, long)]
    quiet: bool,
}

/// What an image is in a registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Form {
    Brisk,
    Sylabs,
}

/// What `brisk push --json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PushJson<'a> {
    /// The name in the registry.
    url: &'a str,
    /// The digest of the manifest: `sha256:` and 64 hexadecimal digits.
    manifest_digest: &'a str,
    /// The digest of the list of variants.
    ///
    /// Null if it is the only image.
    index_digest: Option<&'a str>,
    /// What it is called among them.
    ///
    /// Null if it is the only image.
    variant: Option<&'a str>,
    /// For which machines it is.
    ///
    /// Null if it is the only image.
    platform: Option<String>,
    /// Whether it is signed.
    is_signed: bool,
    /// The serial number.
    ///
    /// Null for a SIF file or a hot pack.
    serial: Option<u64>,
    /// Size of the image.
    file_bytes: u64,
    /// SHA-256 of the image.
    sha256: &'a str,
    /// Root hash: 64 hexadecimal digits.
    ///
    /// Null for a SIF file or a hot pack.
    root_hash: Option<&'a str>,
}

/// What goes to a registry.
struct Parcel {
    file: File,
    config: String,
    manifest: Manifest,
    /// None for a SIF file or a hot pack.
    descriptor: Option<Descriptor>,
    is_signed: bool,
}

/// What an image is called in a list, and for whom it is.
struct Variant {
    name: String,
    codec: &'static str,
    platform: Platform,
}

/// What was pushed.
struct Pushed {
    digest: String,
    manifest: Manifest,
    descriptor: Option<Descriptor>,
    is_signed: bool,
    variant: Option<Variant>,
}

pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let (url, name) = target(args)?;
    let images: Vec<_> = args.images.iter().map(|word| args.named(word)).collect();
    ensure!(
        images.len() == 1 || args.offset.is_none(),
        "--offset is for one image; push the others without it"
    );
    let is_named = images.iter().any(|(name, _)| name.is_some());
    ensure!(
        !args.hot || images.len() == 1 && !is_named,
        "--hot is for one hot pack, without a name of its own"
    );
    let variants = match images.len() > 1 || is_named || args.platform.is_some() {
        true => variants(args, &images)?.into_iter().map(Some).collect(),
        false => vec![None],
    };
    // Before the long work, as the password may be wrong.
    let key = args.signed.key()?;
    let directory =
        tempfile::tempdir().context("cannot make a directory for the copy of the image")?;
    let signing = Signing {
        key: key.as_ref(),
        // Who changes from one variant to another one gets no older image.
        serial: args.signed.serial()?.unwrap_or_else(now),
    };
    let mut pushed: Vec<Pushed> = Vec::new();
    for ((_, image), variant) in images.iter().zip(variants) {
        let platform = variant.as_ref().map(|variant| &variant.platform);
        let parcel = match args.form {
            _ if args.hot => Parcel::of_pack(image)?,
            Form::Sylabs if is_sif(&image.image)? => Parcel::of_sif(&signing, image)?,
            _ => Parcel::of_image(args, image, &signing, &name, platform, directory.path())?,
        };
        let Parcel {
            file,
            config,
            mut manifest,
            descriptor,
            is_signed,
        } = parcel;
        let [layer] = &mut *manifest.layers else {
            bail!("a manifest of brisk has one layer");
        };
        if let Some(variant) = &variant {
            layer.set_variant(&variant.name, variant.codec);
        }
        let layer = layer.clone();
        let text = manifest.to_text();
        let upload = Upload {
            url: match variant {
                // The list has the tag.
                Some(_) => name.at_digest(&Content::of(text.as_bytes(), "").digest),
                None => url.as_str().to_owned(),
            },
            digest: layer.digest,
            bytes: layer.size,
            config,
            manifest: text,
            is_referrer: args.hot,
        };
        let (ask, bytes) = (Ask::Push(upload), Some(layer.size));
        let done = work(&url, Some(file), &ask, bytes, args.quiet)?;
        if let Some(realm) = done.realm.filter(|_| pushed.is_empty()) {
            registry_job::warn_of_realm(&name, &realm);
        }
        pushed.push(Pushed {
            digest: done.digest,
            manifest,
            descriptor,
            is_signed,
            variant,
        });
    }
    let index = push_index(&url, &pushed)?;
    report(args, &url, &name, index.as_deref(), &pushed)?;
    Ok(Answer::Yes)
}

/// Asks the registry of `url` to take something.
fn work(
    url: &RemoteUrl,
    file: Option<File>,
    ask: &Ask,
    bytes: Option<u64>,
    quiet: bool,
) -> anyhow::Result<Done> {
    let directory = tempfile::tempdir().context("cannot make a directory for the upload")?;
    let done = registry_job::run(ask, directory.path(), file, bytes, quiet);
    done.with_context(|| format!("cannot push to {}", shown(url.as_str())))
}

/// What each of several images is called, and for whom it is.
fn variants(args: &Args, images: &[(Option<String>, ImageArgs)]) -> anyhow::Result<Vec<Variant>> {
    let mut found: Vec<Variant> = Vec::new();
    for (name, file) in images {
        let image = file.open()?;
        let codec = match image.is_uncompressed() {
            true => "none",
            false => image.codec().name(),
        };
        let platform = match &args.platform {
            Some(platform) => platform.clone(),
            None => platform_of(&image)?.unwrap_or_else(Platform::here),
        };
        let name = name.clone().unwrap_or_else(|| codec.to_owned());
        let is_same = |other: &Variant| other.name == name && other.platform == platform;
        if let Some(other) = found.iter().position(is_same) {
            bail!(
                "{} and {} are both the variant {name} for {platform}; give each a name of its own: NAME={}",
                shown(&images[other].1.image),
                shown(&file.image),
                shown(&file.image)
            );
        }
        found.push(Variant {
            name,
            codec,
            platform,
        });
    }
    Ok(found)
}

/// For which machines the program is that the image starts. None if it starts none, or a script.
fn platform_of(image: &Image) -> anyhow::Result<Option<Platform>> {
    let Ok(entry) = Entry::of(image)? else {
        return Ok(None);
    };
    let program = entry.command.first().map(Path::new);
    let program = program.map(|program| program.strip_prefix("/").unwrap_or(program));
    let inode = program.map(|program| image.resolve(program)).transpose()?;
    let Some(inode) = inode.flatten().filter(|inode| inode.is_file()) else {
        return Ok(None);
    };
    let mut start = [0; ELF_HEADER];
    let read = image.file(&inode)?.read_at(0, &mut start)?;
    let found = Platform::of_elf(&start[..read]);
    // Elsewhere it would be taken for a program of this machine.
    ensure!(
        found.is_some() || !start.starts_with(b"\x7fELF"),
        "{}: brisk does not know for which machine this program is; say it with --platform",
        shown(program.unwrap_or(Path::new("")))
    );
    Ok(found)
}

/// Pushes the list of variants, if they are some. Returns its digest.
fn push_index(url: &RemoteUrl, pushed: &[Pushed]) -> anyhow::Result<Option<String>> {
    let mut index = Index::of_none();
    for one in pushed {
        let Some(variant) = &one.variant else {
            return Ok(None);
        };
        let manifest = &one.manifest;
        let mut content = Content::of(manifest.to_text().as_bytes(), media_type::MANIFEST);
        content.artifact_type.clone_from(&manifest.artifact_type);
        content.platform = Some(variant.platform.clone());
        content.set_variant(&variant.name, variant.codec);
        index.manifests.push(content);
    }
    let text = index.to_text();
    ensure!(
        text.len() as u64 <= MOST_MANIFEST,
        "the list of {} variants has {} bytes, allowed are {MOST_MANIFEST}",
        pushed.len(),
        text.len()
    );
    let ask = Ask::PushIndex {
        url: url.as_str().to_owned(),
        text,
    };
    Ok(Some(work(url, None, &ask, None, true)?.digest))
}

/// By whom images are signed, and as which.
struct Signing<'a> {
    key: Option<&'a SigningKey>,
    serial: u64,
}

impl Parcel {
    /// An image with a hash tree. If it has none, a copy with one goes into this directory.
    fn of_image(
        args: &Args,
        image: &ImageArgs,
        signing: &Signing<'_>,
        name: &RegistryName,
        platform: Option<&Platform>,
        directory: &Path,
    ) -> anyhow::Result<Self> {
        let has_tree = image.open()?.verity_start()?.is_some();
        let made = match has_tree {
            true => None,
            false => Some(copy(image, directory, args.quiet)?),
        };
        let path = made.as_ref().map_or(&*image.image, |made| made.path());
        let file = File::open(path).with_context(|| format!("cannot open {}", shown(path)))?;
        let descriptor = Descriptor {
            name: name.signed_name(),
            serial: signing.serial,
            ..describe(image, path, args.quiet)?
        };
        let signature = signing.key.map(|key| {
            let more = format!("serial:{}", descriptor.serial);
            let path = PathBuf::from(name.to_string());
            let text = descriptor.to_string();
            key.sign(&text, "a pushed image", &path, Some(&more))
        });
        let signature = signature.transpose()?;
        let mut manifest = Artifact::manifest(&descriptor, signature.as_deref(), &title(image));
        let mut config = EMPTY_CONFIG.to_owned();
        if args.form == Form::Sylabs {
            config = container_config(image, platform, &descriptor)?;
            manifest.artifact_type = None;
            manifest.config = Content::of(config.as_bytes(), media_type::CONFIG);
            for layer in &mut manifest.layers {
                layer.media_type = media_type::SYLABS_LAYER.into();
            }
        }
        Ok(Self {
            file,
            config,
            manifest,
            descriptor: Some(descriptor),
            is_signed: signature.is_some(),
        })
    }

    /// A SIF file as it is, because its own signatures cover all of it.
    fn of_sif(signing: &Signing<'_>, image: &ImageArgs) -> anyhow::Result<Self> {
        let path = &image.image;
        ensure!(
            signing.key.is_none(),
            "{}: a SIF file has its own signatures, and no hash tree that brisk could sign; leave out --key",
            shown(path)
        );
        Self::of_file(image, media_type::SIF, media_type::SIF_CONFIG)
    }

    /// A hot pack, which belongs to an image.
    fn of_pack(image: &ImageArgs) -> anyhow::Result<Self> {
        let path = &image.image;
        let file = File::open(path).with_context(|| format!("cannot open {}", shown(path)))?;
        let pack = HotPack::from_source(file, &Limits::default());
        pack.with_context(|| {
            format!(
                "{} is no hot pack that brisk can use; brisk hot makes one",
                shown(path)
            )
        })?;
        let mut parcel = Self::of_file(image, media_type::HOT_LAYER, media_type::EMPTY)?;
        parcel.manifest.artifact_type = Some(media_type::HOT.into());
        Ok(parcel)
    }

    /// A file as it is.
    fn of_file(image: &ImageArgs, layer: &str, config: &str) -> anyhow::Result<Self> {
        let path = &image.image;
        let found = Sidecar::of(path)?.with_context(|| format!("cannot read {}", shown(path)))?;
        let digest = digits(&found.digest);
        let layer = Content::of_file(found.bytes, &digest, layer, &title(image));
        let config = Content::of(EMPTY_CONFIG.as_bytes(), config);
        Ok(Self {
            file: File::open(path).with_context(|| format!("cannot open {}", shown(path)))?,
            config: EMPTY_CONFIG.into(),
            manifest: Manifest::of(config, layer),
            descriptor: None,
            is_signed: false,
        })
    }
}

impl Args {
    /// An image, and what the user calls it.
    fn named(&self, word: &Path) -> (Option<String>, ImageArgs) {
        let named = word.to_str().and_then(|word| word.split_once('='));
        let named = named.filter(|(name, _)| is_tag(name));
        let image = ImageArgs {
            image: named.map_or(word, |(_, file)| Path::new(file)).to_owned(),
            offset: self.offset,
        };
        (named.map(|(name, _)| name.to_owned()), image)
    }
}

/// The name of the image as a file.
fn title(image: &ImageArgs) -> String {
    let name = image.image.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Whether a file is in the Singularity image format.
fn is_sif(path: &Path) -> anyhow::Result<bool> {
    let read = || -> io::Result<[u8; SIF.len()]> {
        let mut magic = [0; SIF.len()];
        let file = File::open(path)?;
        match file.read_exact_at(&mut magic, SIF_AT) {
            Err(e) if e.kind() != io::ErrorKind::UnexpectedEof => Err(e),
            _ => Ok(magic),
        }
    };
    let magic = read().with_context(|| format!("cannot read {}", shown(path)))?;
    Ok(magic == *SIF)
}

/// What a container image says of itself whose only layer is this image. It starts the program of the image, if that is for the image as
/// a root directory.
fn container_config(
    image: &ImageArgs,
    platform: Option<&Platform>,
    descriptor: &Descriptor,
) -> anyhow::Result<String> {
    let entry = Entry::of(&image.open()?)?;
    let entry = entry.ok().filter(|entry| entry.root);
    let text = |word: &OsString| word.to_str().map(str::to_owned);
    let command = entry.as_ref().and_then(|entry| {
        let words = entry.command.iter().map(text);
        words.collect::<Option<Vec<_>>>()
    });
    let platform = platform.cloned().unwrap_or_else(Platform::here);
    let config = serde_json::json!({
        "architecture": platform.architecture,
        "os": platform.os,
        "config": command.map_or_else(|| serde_json::json!({}), |words| serde_json::json!({ "Entrypoint": words })),
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", descriptor.sha256)] },
    });
    Ok(config.to_string())
}

fn target(args: &Args) -> anyhow::Result<(RemoteUrl, RegistryName)> {
    ensure!(
        args.url.contains("://"),
        "{}: expected a name in a registry behind what is to be pushed, such as oci://HOST/NAME:TAG",
        shown(&args.url)
    );
    let url = RemoteUrl::parse(&args.url)?;
    let Some(name) = url.registry() else {
        bail!(
            "{}: expected a name in a registry, such as oci://HOST/NAME:TAG; for a web server, use brisk publish",
            shown(&args.url)
        );
    };
    ensure!(
        !url.is_fixed(),
        "{}: a digest comes of what is pushed; name a tag, such as oci://HOST/NAME:TAG",
        shown(&args.url)
    );
    ensure!(
        args.hot || *name.choice() == Choice::default(),
        "{}: what an image is called among several stands before its file: NAME=IMAGE",
        shown(&args.url)
    );
    ensure!(
        args.insecure || !url.is_exposed(),
        "{}: anybody on the way could read your password and change the image; use oci://, or send it all the same with --insecure",
        shown(&args.url)
    );
    Ok((url, name))
}

fn report(
    args: &Args,
    url: &RemoteUrl,
    name: &RegistryName,
    index: Option<&str>,
    pushed: &[Pushed],
) -> anyhow::Result<()> {
    let all = pushed.iter().map(|one| {
        let (descriptor, variant) = (one.descriptor.as_ref(), one.variant.as_ref());
        let layer = one.manifest.layers.first();
        let sha256 = layer.and_then(|layer| layer.digest.strip_prefix("sha256:"));
        PushJson {
            url: url.as_str(),
            manifest_digest: &one.digest,
            index_digest: index,
            variant: variant.map(|variant| &*variant.name),
            platform: variant.map(|variant| variant.platform.to_string()),
            is_signed: one.is_signed,
            serial: descriptor.map(|descriptor| descriptor.serial),
            file_bytes: layer.map_or(0, |layer| layer.size),
            sha256: sha256.unwrap_or_default(),
            root_hash: descriptor.and_then(|descriptor| descriptor.root_hash.as_deref()),
        }
    });
    let all: Vec<_> = all.collect();
    match (&*all, index) {
        (all, Some(_)) if args.json => json::print(&all)?,
        ([one], None) if args.json => json::print(one)?,
        (_, Some(digest)) => writeln!(io::stdout().lock(), "brisk run {}", name.at_digest(digest))?,
        ([one], None) if !args.hot => writeln!(
            io::stdout().lock(),
            "brisk run {}",
            name.at_digest(one.manifest_digest)
        )?,
        _ => {}
    }
    if args.quiet {
        return Ok(());
    }
    for one in &all {
        let variant = one.variant.zip(one.platform.as_ref());
        let variant = variant.map(|(name, platform)| format!("variant {name} for {platform}, "));
        let serial = one.serial.map(|serial| format!(", serial number {serial}"));
        say(&format!(
            "{}: {}{}{}{}",
            shown(url.as_str()),
            variant.unwrap_or_default(),
            BinaryBytes(one.file_bytes),
            serial.unwrap_or_default(),
            if one.is_signed { ", signed" } else { "" }
        ));
    }
    Ok(())
}
