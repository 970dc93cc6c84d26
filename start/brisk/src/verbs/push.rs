//! `brisk push`: puts an image into a registry, so that others can start programs from it.

use std::fs::File;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use brisk_remote::{
    Artifact, Ask, Descriptor, EMPTY_CONFIG, Job, RegistryName, RemoteUrl, Upload, now,
};
use brisk_terminal::answer::Answer;
use brisk_terminal::messages::{say, warn};
use brisk_terminal::names::shown;
use indicatif::BinaryBytes;
use serde::Serialize;

use crate::image_args::ImageArgs;
use crate::json;
use crate::launcher::beside;
use crate::progress::Progress;
use crate::published_image::{asked_serial, copy, describe};
use crate::registry_login::login;
use crate::remote_images::FETCH;
use crate::signing_key::SigningKey;

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
    serial: u64,
    /// Size of the image.
    file_bytes: u64,
    /// SHA-256 of the image.
    sha256: &'a str,
    /// Root hash: 64 hexadecimal digits.
    root_hash: &'a str,
}

pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let (url, name) = target(args)?;
    // Before the long work, as the password may be wrong.
    let key = args
        .key
        .as_deref()
        .map(|key| SigningKey::read(key, args.password_file.as_deref()));
    let key = key.transpose()?;
    let serial = asked_serial(args.serial)?;
    let directory =
        tempfile::tempdir().context("cannot make a directory for the copy of the image")?;
    let image = copy(&args.image, directory.path(), args.quiet)?;
    let descriptor = Descriptor {
        name: name.signed_name(),
        serial: serial.unwrap_or_else(now),
        ..describe(&args.image, image.path(), args.quiet)?
    };
    let signature = key.map(|key| {
        let more = format!("serial:{}", descriptor.serial);
        let path = PathBuf::from(name.to_string());
        key.sign(
            &descriptor.to_string(),
            "a pushed image",
            &path,
            Some(&more),
        )
    });
    let signature = signature.transpose()?;
    let title = args.image.image.file_name().unwrap_or_default();
    let title = title.to_string_lossy();
    let manifest = Artifact::manifest(&descriptor, signature.as_deref(), &title);
    let upload = Upload {
        url: url.as_str().to_owned(),
        digest: format!("sha256:{}", descriptor.sha256),
        bytes: descriptor.file_bytes,
        config: EMPTY_CONFIG.into(),
        manifest: manifest.to_text(),
    };
    let file = File::open(image.path()).context("cannot read the copy of the image")?;
    let program = beside(FETCH).context("cannot find brisk's own file")?;
    let work = directory.path().join("job");
    std::fs::create_dir(&work).context("cannot make a directory for the upload")?;
    let mut job = Job::start(&program, &work, Some(file))?;
    let progress = Progress::new(Some(descriptor.file_bytes), args.quiet);
    let tell = progress.callback();
    let done = job.run(&Ask::Push(upload), login, |bytes| {
        // It never cancels.
        let _: ControlFlow<()> = tell(bytes);
    });
    drop(progress);
    let done = done.with_context(|| format!("cannot push to {}", shown(url.as_str())))?;
    if let Some(realm) = &done.realm {
        warn(&format!(
            "{} takes tokens of {}, which has seen your credentials if you have some",
            shown(name.host()),
            shown(realm)
        ));
    }
    report(
        args,
        &url,
        &name,
        &done.digest,
        &descriptor,
        signature.is_some(),
    )?;
    Ok(Answer::Yes)
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
    descriptor: &Descriptor,
    is_signed: bool,
) -> anyhow::Result<()> {
    let root_hash = descriptor.root_hash.as_deref().unwrap_or_default();
    if args.json {
        json::print(&PushJson {
            url: url.as_str(),
            manifest_digest: digest,
            is_signed,
            serial: descriptor.serial,
            file_bytes: descriptor.file_bytes,
            sha256: &descriptor.sha256,
            root_hash,
        })?;
    } else {
        writeln!(io::stdout().lock(), "brisk run {}", name.at_digest(digest))?;
    }
    if !args.quiet {
        say(&format!(
            "{}: {}, serial number {}{}",
            shown(url.as_str()),
            BinaryBytes(descriptor.file_bytes),
            descriptor.serial,
            if is_signed { ", signed" } else { "" }
        ));
    }
    Ok(())
}
