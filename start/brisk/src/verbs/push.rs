//! `brisk push`: puts an image into a registry, so that others can start programs from it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use brisk_image::Limits;
use brisk_image::hot_pack::HotPack;
use brisk_remote::{
    Artifact, Ask, Content, Descriptor, EMPTY_CONFIG, Manifest, Platform, RegistryName, RemoteUrl,
    Upload, digits, media_type, now,
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
use brisk_bundle::entry::Entry;

/// What a SIF file has at this byte.
const SIF: &[u8; 10] = b"SIF_MAGIC\0";
const SIF_AT: u64 = 32;

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
brisk takes your user and password from where docker login, podman login and skopeo login put them. A registry on this machine \
is asked by plain http, and all others by https.\n\n\
Examples:\n  \
  brisk push app.img oci://registry.example.org/tools/app:2.1\n  \
  brisk push app.img oci://localhost:5000/app --key app.key")]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,

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

    /// Prints a summary as JSON, instead of the command.
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

pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let (url, name) = target(args)?;
    let directory =
        tempfile::tempdir().context("cannot make a directory for the copy of the image")?;
    let parcel = match args.form {
        _ if args.hot => Parcel::of_pack(args)?,
        Form::Sylabs if is_sif(&args.image.image)? => Parcel::of_sif(args)?,
        _ => Parcel::of_image(args, &name, directory.path())?,
    };
    let [layer] = &*parcel.manifest.layers else {
        bail!("a manifest of brisk has one layer");
    };
    let upload = Upload {
        url: url.as_str().to_owned(),
        digest: layer.digest.clone(),
        bytes: layer.size,
        config: parcel.config.clone(),
        manifest: parcel.manifest.to_text(),
        is_referrer: args.hot,
    };
    let work = directory.path().join("job");
    fs::create_dir(&work).context("cannot make a directory for the upload")?;
    let file = parcel.file.try_clone().context("cannot hold the image")?;
    let (ask, bytes) = (Ask::Push(upload), Some(layer.size));
    let done = registry_job::run(&ask, &name, &work, Some(file), bytes, args.quiet)
        .with_context(|| format!("cannot push to {}", shown(url.as_str())))?;
    report(args, &url, &name, &done.digest, &parcel)?;
    Ok(Answer::Yes)
}

impl Parcel {
    /// An image with a hash tree. If it has none, a copy with one goes into this directory.
    fn of_image(args: &Args, name: &RegistryName, directory: &Path) -> anyhow::Result<Self> {
        // Before the long work, as the password may be wrong.
        let key = args.signed.key()?;
        let serial = args.signed.serial()?;
        let has_tree = args.image.open()?.verity_start()?.is_some();
        let made = match has_tree {
            true => None,
            false => Some(copy(&args.image, directory, args.quiet)?),
        };
        let path = made.as_ref().map_or(&*args.image.image, |made| made.path());
        let file = File::open(path).with_context(|| format!("cannot open {}", shown(path)))?;
        let descriptor = Descriptor {
            name: name.signed_name(),
            serial: serial.unwrap_or_else(now),
            ..describe(&args.image, path, args.quiet)?
        };
        let signature = key.map(|key| {
            let more = format!("serial:{}", descriptor.serial);
            let path = PathBuf::from(name.to_string());
            let text = descriptor.to_string();
            key.sign(&text, "a pushed image", &path, Some(&more))
        });
        let signature = signature.transpose()?;
        let mut manifest = Artifact::manifest(&descriptor, signature.as_deref(), &args.title());
        let mut config = EMPTY_CONFIG.to_owned();
        if args.form == Form::Sylabs {
            config = container_config(args, &descriptor)?;
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
    fn of_sif(args: &Args) -> anyhow::Result<Self> {
        let path = &args.image.image;
        ensure!(
            !args.signed.has_key(),
            "{}: a SIF file has its own signatures, and no hash tree that brisk could sign; leave out --key",
            shown(path)
        );
        Self::of_file(args, media_type::SIF, media_type::SIF_CONFIG)
    }

    /// A hot pack, which belongs to an image.
    fn of_pack(args: &Args) -> anyhow::Result<Self> {
        let path = &args.image.image;
        let file = File::open(path).with_context(|| format!("cannot open {}", shown(path)))?;
        let pack = HotPack::from_source(file, &Limits::default());
        pack.with_context(|| {
            format!(
                "{} is no hot pack that brisk can use; brisk hot makes one",
                shown(path)
            )
        })?;
        let mut parcel = Self::of_file(args, media_type::HOT_LAYER, media_type::EMPTY)?;
        parcel.manifest.artifact_type = Some(media_type::HOT.into());
        Ok(parcel)
    }

    /// A file as it is.
    fn of_file(args: &Args, layer: &str, config: &str) -> anyhow::Result<Self> {
        let path = &args.image.image;
        let found = Sidecar::of(path)?.with_context(|| format!("cannot read {}", shown(path)))?;
        let digest = digits(&found.digest);
        let layer = Content::of_file(found.bytes, &digest, layer, &args.title());
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
    /// The name of the image as a file.
    fn title(&self) -> String {
        let name = self.image.image.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }
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
fn container_config(args: &Args, descriptor: &Descriptor) -> anyhow::Result<String> {
    let entry = Entry::of(&args.image.open()?)?;
    let entry = entry.ok().filter(|entry| entry.root);
    let text = |word: &OsString| word.to_str().map(str::to_owned);
    let command = entry.as_ref().and_then(|entry| {
        let words = entry.command.iter().map(text);
        words.collect::<Option<Vec<_>>>()
    });
    let here = Platform::here();
    let config = serde_json::json!({
        "architecture": here.architecture,
        "os": here.os,
        "config": command.map_or_else(|| serde_json::json!({}), |words| serde_json::json!({ "Entrypoint": words })),
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", descriptor.sha256)] },
    });
    Ok(config.to_string())
}

fn target(args: &Args) -> anyhow::Result<(RemoteUrl, RegistryName)> {
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
    digest: &str,
    parcel: &Parcel,
) -> anyhow::Result<()> {
    let (descriptor, is_signed) = (parcel.descriptor.as_ref(), parcel.is_signed);
    let layer = parcel.manifest.layers.first();
    let bytes = layer.map_or(0, |layer| layer.size);
    if args.json {
        let sha256 = layer.and_then(|layer| layer.digest.strip_prefix("sha256:"));
        json::print(&PushJson {
            url: url.as_str(),
            manifest_digest: digest,
            is_signed,
            serial: descriptor.map(|descriptor| descriptor.serial),
            file_bytes: bytes,
            sha256: sha256.unwrap_or_default(),
            root_hash: descriptor.and_then(|descriptor| descriptor.root_hash.as_deref()),
        })?;
    } else if !args.hot {
        writeln!(io::stdout().lock(), "brisk run {}", name.at_digest(digest))?;
    }
    if !args.quiet {
        let serial = descriptor.map(|descriptor| format!(", serial number {}", descriptor.serial));
        say(&format!(
            "{}: {}{}{}",
            shown(url.as_str()),
            BinaryBytes(bytes),
            serial.unwrap_or_default(),
            if is_signed { ", signed" } else { "" }
        ));
    }
    Ok(())
}
