//! `brisk sign`: signs an image.

use std::fs::{self, File};
use std::io::Cursor;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use brisk_image::Work;
use brisk_image::verity::VerifiedFile;
use brisk_io::ByteSource;
use brisk_terminal::answer::Answer;
use brisk_terminal::messages::say;
use brisk_terminal::names::shown;
use ct_codecs::{Base64, Decoder};
use minisign::{PublicKey, SecretKey, SecretKeyBox};

use crate::image_args::ImageArgs;
use crate::manifest::{Manifest, Sidecar, hot_pack_beside, manifest_beside, signature_beside};
use crate::progress::Progress;
use crate::whole_file::{WholeFile, write_together};

/// Bytes of a stored secret key.
const SECRET_KEY: usize = 158;

/// Where a stored key says how its password is used.
const KDF: Range<usize> = 2..4;

/// What it says if there is no password.
const NO_PASSWORD: [u8; 2] = [0; 2];

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
    let key = secret_key(&args.key, args.password_file.as_deref())?;
    let manifest = manifest(args)?.to_string();
    let (manifest_path, signature_path) = (manifest_beside(path), signature_beside(path));
    // Without the time, which says nothing about the image.
    let trusted = match manifest_path.file_name() {
        Some(name) => format!(
            "file:{}\thashed",
            brisk_terminal::names::printable(&name.to_string_lossy())
        ),
        None => "hashed".to_owned(),
    };
    let Some(signature) = signature_of(&manifest, &key, &trusted) else {
        bail!(
            "{}: the key is damaged: it makes signatures that its public key refuses",
            shown(&args.key)
        );
    };
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

/// Reads a secret key. No message has anything of its contents.
fn secret_key(path: &Path, password_file: Option<&Path>) -> anyhow::Result<SecretKey> {
    let text = fs::read_to_string(path)
        .with_context(|| format!("cannot read the secret key {}", shown(path)))?;
    let unusable = "it is not a secret key of minisign, or its password is another one";
    // A comment comes first.
    let stored = text
        .lines()
        .nth(1)
        .and_then(|line| Base64::decode_to_vec(line, None).ok());
    let stored = stored.filter(|bytes| bytes.len() == SECRET_KEY);
    let Some(stored) = stored else {
        bail!("{}: {unusable}", shown(path));
    };
    if stored[KDF] == NO_PASSWORD {
        // The library wants a checksum, which the tool leaves out of such keys. The signature is checked instead.
        return match SecretKey::from_bytes(&stored) {
            Ok(key) => Ok(key),
            Err(_) => bail!("{}: {unusable}", shown(path)),
        };
    }
    let password = match password_file {
        Some(file) => {
            let text = fs::read_to_string(file)
                .with_context(|| format!("cannot read the password from {}", shown(file)))?;
            text.lines().next().unwrap_or_default().to_owned()
        }
        None => rpassword::prompt_password(format!("Password of {}: ", shown(path))).context(
            "cannot ask for the password of the secret key; give it with --password-file",
        )?,
    };
    let key = SecretKeyBox::from_string(&text);
    match key.and_then(|key| key.into_secret_key(Some(password))) {
        Ok(key) => Ok(key),
        Err(_) => bail!("{}: {unusable}", shown(path)),
    }
}

/// Signs `text`, and checks the signature, because a damaged key makes one that nobody accepts.
fn signature_of(text: &str, key: &SecretKey, trusted: &str) -> Option<String> {
    let untrusted = Some("signature of a manifest of brisk");
    let reader = || Cursor::new(text.as_bytes());
    let signature = minisign::sign(None, key, reader(), Some(trusted), untrusted).ok()?;
    let public = PublicKey::from_secret_key(key).ok()?;
    minisign::verify(&public, &signature, reader(), true, false, false).ok()?;
    Some(signature.into_string())
}
