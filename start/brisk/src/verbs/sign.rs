//! `brisk sign`: signs an image.

use std::fs::File;
use std::path::PathBuf;

use anyhow::Context;
use brisk_image::Work;
use brisk_image::verity::VerifiedFile;
use brisk_io::ByteSource;
use brisk_terminal::answer::Answer;
use brisk_terminal::messages::say;
use brisk_terminal::names::shown;

use crate::image_args::ImageArgs;
use crate::manifest::{Manifest, Sidecar, hot_pack_beside, manifest_beside, signature_beside};
use crate::progress::Progress;
use crate::signing_key::SigningKey;
use crate::whole_file::{WholeFile, write_together};

/// What to sign, and with which key.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Compares the whole image with its hash tree, writes what the image must be to IMAGE.manifest, a short text with the \
root hash, and a signature of that text to IMAGE.manifest.minisig. The image stays as it is. If there is a hot pack \
in IMAGE.hot, the manifest has its digest.\n\n\
Keys and signatures are those of minisign. minisign -G makes a pair of keys; publish the public one. Whoever trusts \
it runs only what it has signed:\n  \
  brisk run IMAGE --trust KEY.pub -- CMD\n  \
  minisign -Vm IMAGE.manifest -p KEY.pub\n\n\
A signature does not say which image is the newest, and not what its file is called: any image that a trusted key \
ever signed is accepted.")]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// The secret key. If it has a password, brisk asks for it at the terminal.
    #[arg(long, value_name = "SECRET")]
    key: PathBuf,

    /// Takes the password from the first line of this file.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,

    /// Shows no progress and no summary.
    #[arg(short, long)]
    quiet: bool,
}

pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let path = &args.image.image;
    // Before the long work, as the password may be wrong.
    let key = SigningKey::read(&args.key, args.password_file.as_deref())?;
    let manifest = manifest(args)?.to_string();
    let (manifest_path, signature_path) = (manifest_beside(path), signature_beside(path));
    // Without the time, which says nothing about the image.
    let signature = key.sign(&manifest, "a manifest", &manifest_path, None)?;
    // A new manifest with an old signature would be refused.
    write_together(&[
        WholeFile::data(&manifest_path, manifest.as_bytes()),
        WholeFile::data(&signature_path, signature.as_bytes()),
    ])?;
    if !args.quiet {
        say(&format!(
            "{}: signed, in {} and {}",
            shown(path),
            shown(&manifest_path),
            shown(&signature_path)
        ));
    }
    Ok(Answer::Yes)
}

/// What the image is, after comparing all of it with its hash tree.
fn manifest(args: &Args) -> anyhow::Result<Manifest> {
    let path = &args.image.image;
    let open = || File::open(path).with_context(|| format!("cannot open {}", shown(path)));
    let file = open()?;
    let file_bytes = ByteSource::size(&file)?;
    let verified = VerifiedFile::of_its_own_root(path, file, args.image.offset)?;
    let progress = Progress::new(Some(verified.data_len()), args.quiet);
    verified.check_all(&Work::new().progress(progress.callback()))?;
    drop(progress);
    Ok(Manifest {
        file_bytes,
        data_bytes: verified.data_len(),
        root: verified.root_hash(),
        hot_pack: Sidecar::of(&hot_pack_beside(path))?,
    })
}
