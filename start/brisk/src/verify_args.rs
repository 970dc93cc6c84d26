//! The arguments that say how the blocks of an image are verified.

use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use brisk_image::verity::{RootHash, VerifiedFile, Verity, root_hash_beside};
use brisk_image::{Image, Limits, OpenOptions};
use brisk_io::{ByteSource, open_at_once};
use brisk_remote::{Background, RemoteUrl};
use brisk_terminal::names::shown;
use brisk_trust::{MOST_BYTES, OpenedRemote, TrustedKeys};

use crate::image_args::open_image_within;
use crate::manifest::Manifest;
use crate::remote_images::{NAMES, RemoteArgs, kernel_codecs};

/// Who vouches for the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VerifyBy {
    Nobody,
    /// The file with the root hash beside the image.
    RootHash,
    /// This root hash, or the one in this file.
    GivenRootHash(String),
    Key,
}

impl FromStr for VerifyBy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.strip_prefix("roothash=")) {
            ("off", _) => Ok(Self::Nobody),
            ("key", _) => Ok(Self::Key),
            ("roothash", _) => Ok(Self::RootHash),
            (_, Some(given)) if !given.is_empty() => Ok(Self::GivenRootHash(given.to_owned())),
            _ => Err("allowed are roothash, roothash=HASH, roothash=FILE, key and off".into()),
        }
    }
}

/// How to verify an image.
#[derive(Debug, Clone, clap::Args)]
pub struct VerifyArgs {
    /// Compares each block of the image with its hash tree (brisk verity), whenever it is read: by the root hash in
    /// IMAGE.roothash, by a root hash or the file with one, or by the root hash that a trusted key has signed (brisk
    /// sign). What differs is an error, and no program sees it. [default: off]
    #[arg(long, value_name = "roothash[=HASH|FILE]|key|off", value_parser = str::parse::<VerifyBy>)]
    verify: Option<VerifyBy>,

    /// Verifies by a signature of this public key, as --verify key does with the keys in /etc/brisk/trusted.d/*.pub and
    /// ~/.config/brisk/trusted.d/*.pub: one of minisign, or of cosign for images in registries. May be repeated.
    #[arg(long, value_name = "KEY.pub")]
    trust: Vec<PathBuf>,

    #[command(flatten)]
    pub remote: RemoteArgs,
}

/// An image to mount.
pub struct OpenedImage {
    pub image: Image,
    /// Where it arrives, if it is on the network.
    pub remote: Option<OpenedRemote>,
}

impl OpenedImage {
    /// The file of the image that was named by `path`.
    pub fn file(&self, path: &Path) -> PathBuf {
        let fetched = self.remote.as_ref();
        fetched.map_or_else(|| path.to_owned(), |remote| remote.entry.image_path())
    }
}

impl VerifyArgs {
    fn by(&self) -> anyhow::Result<&VerifyBy> {
        match (&self.verify, self.trust.is_empty()) {
            (None, true) => Ok(&VerifyBy::Nobody),
            (None | Some(VerifyBy::Key), false) => Ok(&VerifyBy::Key),
            (Some(by), true) => Ok(by),
            (Some(_), false) => {
                bail!("--trust is for --verify key; leave one of --trust and --verify out")
            }
        }
    }

    /// The first option that asks for verification.
    pub fn given(&self) -> Option<&'static str> {
        match (&self.verify, self.trust.is_empty()) {
            (None | Some(VerifyBy::Nobody), true) => None,
            (_, false) => Some("--trust"),
            (_, true) => Some("--verify"),
        }
    }

    /// # Errors
    ///
    /// If verification is asked for, and there is no image.
    pub fn refuse_without_image(&self) -> anyhow::Result<()> {
        match self.given() {
            Some(option) => bail!("{option} needs an image; leave it out"),
            None => Ok(()),
        }
    }

    /// # Errors
    ///
    /// If verification is asked for: the kernel reads the file by itself.
    pub fn refuse_with_kernel(&self, image: &Path) -> anyhow::Result<()> {
        if let Some(option) = self.given() {
            let image = shown(image);
            bail!(
                "{option} is not for --kernel, because the kernel reads {image} by itself; leave --kernel out, or make a \
                 tree with brisk verity {image}, open it with veritysetup open {image} NAME {image}.verity HASH, and use \
                 /dev/mapper/NAME as the image"
            );
        }
        Ok(())
    }

    /// # Errors
    ///
    /// If one root hash is given, and `others` are more images.
    pub fn refuse_with_others(&self, others: &[OsString]) -> anyhow::Result<()> {
        let is_of_one = matches!(self.verify, Some(VerifyBy::GivenRootHash(_)));
        ensure!(
            !is_of_one || others.is_empty(),
            "--verify roothash=… is about one image, and --with names more; use --verify roothash, which takes the root hash of \
             each from the file beside it, or --verify key"
        );
        Ok(())
    }

    /// What the image at `path` must be. None if it is not verified.
    ///
    /// # Errors
    ///
    /// If there is no root hash, or no signature by a trusted key. The text says what to do.
    pub fn verity_of(&self, path: &Path) -> anyhow::Result<Option<Verity>> {
        let root = match self.by()? {
            VerifyBy::Nobody => return Ok(None),
            VerifyBy::RootHash => root_hash_in(&root_hash_beside(path))?,
            VerifyBy::GivenRootHash(given) => match given.parse::<RootHash>() {
                Ok(root) => root,
                Err(e) => match Path::new(given).exists() || given.len() != 64 {
                    true => root_hash_in(Path::new(given))?,
                    false => return Err(e.into()),
                },
            },
            VerifyBy::Key => {
                let manifest = Manifest::signed(path, &self.keys()?)?;
                let len = open_at_once(path).and_then(|file| ByteSource::size(&file));
                let len = len.with_context(|| format!("cannot examine {}", shown(path)))?;
                if len != manifest.file_bytes {
                    bail!(
                        "{}: the file has {len} bytes, but signed were {}; get the image again, or its new signature",
                        shown(path),
                        manifest.file_bytes
                    );
                }
                return Ok(Some(manifest.verity()));
            }
        };
        Ok(Some(Verity::new(root)))
    }

    /// The keys that are trusted.
    pub fn keys(&self) -> anyhow::Result<TrustedKeys> {
        Ok(match self.trust.is_empty() {
            true => TrustedKeys::installed(NAMES)?,
            false => TrustedKeys::named(&self.trust, NAMES)?,
        })
    }

    /// Whether a signature vouches for the image.
    pub fn is_by_key(&self) -> bool {
        matches!(self.by(), Ok(VerifyBy::Key))
    }

    /// Opens the image at `path`, verified if that is asked for. This starts no thread.
    pub fn open(&self, path: &Path, offset: Option<u64>) -> anyhow::Result<Image> {
        self.open_within(path, offset, Limits::new())
    }

    /// Opens the image at `path`, which may be a URL, to mount it, through the kernel or not. This starts no thread.
    pub fn open_to_mount(
        &self,
        path: &Path,
        offset: Option<u64>,
        by_kernel: bool,
    ) -> anyhow::Result<OpenedImage> {
        if by_kernel {
            let mut verified = self.clone();
            verified.remote.codecs = kernel_codecs();
            return verified.open_to_mount(path, offset, false);
        }
        match RemoteUrl::is_url(path.as_os_str()) {
            true => {
                let remote = self.open_remote(path, offset, Limits::new(), None)?;
                Ok(OpenedImage {
                    image: remote.image.clone(),
                    remote: Some(remote),
                })
            }
            false => Ok(OpenedImage {
                image: self.open(path, offset)?,
                remote: None,
            }),
        }
    }

    /// How to verify and read another image than the one that the user has named first.
    pub fn of_others(&self) -> Self {
        let mut others = self.clone();
        others.remote.variant = None;
        others
    }

    /// How to verify an image that was fetched, of which this is the root hash: its signature was looked at before.
    pub fn of_fetched(&self, root: Option<&str>) -> Self {
        Self {
            verify: root.map(|root| VerifyBy::GivenRootHash(root.to_owned())),
            trust: Vec::new(),
            ..self.of_others()
        }
    }

    /// Opens the image at `url`. `background`: when the rest arrives if the user does not say it.
    pub fn open_remote(
        &self,
        url: &Path,
        offset: Option<u64>,
        limits: Limits,
        background: Option<Background>,
    ) -> anyhow::Result<OpenedRemote> {
        let keys = match self.by()? {
            VerifyBy::Nobody => None,
            VerifyBy::Key => Some(self.keys()?),
            VerifyBy::RootHash | VerifyBy::GivenRootHash(_) => bail!(
                "{}: the root hash of an image on the network stands behind its URL: URL#sha256=HASH",
                shown(url)
            ),
        };
        let mut options = OpenOptions::new().limits(limits);
        if let Some(bytes) = offset {
            options = options.offset(bytes);
        }
        let name = url
            .to_str()
            .with_context(|| format!("{}: a URL is ASCII", shown(url)))?;
        self.remote.open(name, keys.as_ref(), &options, background)
    }

    /// As [`VerifyArgs::open`], within other limits than the default ones.
    pub fn open_within(
        &self,
        path: &Path,
        offset: Option<u64>,
        limits: Limits,
    ) -> anyhow::Result<Image> {
        if RemoteUrl::is_url(path.as_os_str()) {
            return Ok(self.open_remote(path, offset, limits, None)?.image);
        }
        self.remote.refuse_variant(path)?;
        let Some(verity) = self.verity_of(path)? else {
            return open_image_within(path, offset, limits);
        };
        let file = open_at_once(path).with_context(|| format!("cannot open {}", shown(path)))?;
        let verified = VerifiedFile::open(path, file, offset, &verity)?;
        let mut options = OpenOptions::new().limits(limits);
        if let Some(bytes) = offset {
            options = options.offset(bytes);
        }
        Ok(Image::open_verified(Arc::new(verified), &options)?)
    }
}

/// The root hash in a file.
pub fn root_hash_in(file: &Path) -> anyhow::Result<RootHash> {
    let open = open_at_once(file).with_context(|| {
        format!(
            "cannot open {}, which should have the root hash; brisk verity and brisk pack --verity write it, or give the \
             hash itself: --verify roothash=HASH",
            shown(file)
        )
    })?;
    let mut text = String::new();
    open.take(MOST_BYTES)
        .read_to_string(&mut text)
        .with_context(|| format!("cannot read {}", shown(file)))?;
    let root = text.parse();
    root.with_context(|| format!("{}: it has no root hash", shown(file)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Cursor;
    use std::os::unix::fs::FileExt;
    use std::time::Duration;

    use brisk_image::hot_pack::Prefer;
    use brisk_image::profile::{Named, ProfileBuilder, RootKind};
    use brisk_image::{ImageWriter, Tree, TreeRules};

    use super::*;
    use crate::manifest::{manifest_beside, signature_beside};

    /// A signed image with a hot pack, its public key, and what it has.
    struct Signed {
        directory: tempfile::TempDir,
        args: VerifyArgs,
        files: Vec<(&'static str, Vec<u8>)>,
        /// The bytes of each range of the pack, in order.
        pages: Vec<Vec<u8>>,
    }

    impl Signed {
        fn new() -> Self {
            let directory = tempfile::tempdir().expect("a directory");
            let files = vec![
                (
                    "bin/app",
                    (0..9000_u32).flat_map(u32::to_le_bytes).collect(),
                ),
                ("lib/a", b"brisk ".repeat(5000)),
                ("etc/b", b"small".to_vec()),
            ];
            for (path, bytes) in &files {
                let path = directory.path().join("app").join(path);
                fs::create_dir_all(path.parent().expect("a parent")).expect("room");
                fs::write(path, bytes).expect("room");
            }
            let builder = ProfileBuilder::new();
            let root = builder.add_root("/opt/app", RootKind::Directory);
            let name = |id: u64| files.get(usize::try_from(id).ok()?);
            for (id, (_, bytes)) in (0..2).zip(&files) {
                builder.range(root, id, 0, bytes.len() as u64, Duration::ZERO);
            }
            let named = |_, id| name(id).map(|(path, bytes)| Named::new(path, bytes.len() as u64));
            let profile = builder.finish(vec!["app".into()], None, named);
            let profile = profile.expect("two files").profile;
            let rules = TreeRules::default();
            let tree = Tree::from_directory(directory.path().join("app"), &rules).expect("a tree");
            let writer = ImageWriter::new().block_size(16 << 10).verity(true);
            let writer = writer.hot_pack(profile, Prefer::Speed);
            let path = directory.path().join("app.img");
            let summary = writer.write(&tree, &path).expect("room");
            let verity = summary.verity.expect("asked for");
            let manifest = Manifest {
                file_bytes: summary.file_bytes,
                data_bytes: verity.data_bytes,
                root: verity.root_hash.parse().expect("a root hash"),
                hot_pack: None,
            };
            let manifest = manifest.to_string();
            let keys = minisign::KeyPair::generate_unencrypted_keypair().expect("random numbers");
            let text = Cursor::new(manifest.as_bytes());
            let signature = minisign::sign(None, &keys.sk, text, Some("c"), Some("c"));
            let signature = signature.expect("a key").into_string();
            fs::write(manifest_beside(&path), manifest).expect("room");
            fs::write(signature_beside(&path), signature).expect("room");
            let key = directory.path().join("k.pub");
            let public = keys.pk.to_box().expect("a key").into_string();
            fs::write(&key, public).expect("room");
            let mut signed = Self {
                directory,
                args: VerifyArgs {
                    verify: None,
                    trust: vec![key],
                    remote: RemoteArgs::default(),
                },
                files,
                pages: Vec::new(),
            };
            signed.pages = signed.pages().expect("sound").expect("a pack");
            signed
        }

        fn path(&self) -> PathBuf {
            self.directory.path().join("app.img")
        }

        fn open(&self) -> anyhow::Result<Image> {
            self.args.open(&self.path(), None)
        }

        /// The pages of the pack, as a fill stores them. None if the image shows no pack.
        fn pages(&self) -> anyhow::Result<Option<Vec<Vec<u8>>>> {
            let Some(pack) = self.open()?.hot_pack()? else {
                return Ok(None);
            };
            let (mut pages, mut reader) = (Vec::new(), pack.frame_reader());
            for frame in 0..pack.frame_count() {
                pages.extend(reader.read(frame)?.map(|(_, bytes)| bytes.to_vec()));
            }
            Ok(Some(pages))
        }

        /// Reads everything. True if all of it arrived; wrong bytes panic.
        fn read_all(&self) -> bool {
            let Ok(image) = self.open() else {
                return false;
            };
            let mut all = true;
            for (path, bytes) in &self.files {
                match image.read(path) {
                    Ok(read) => assert!(read == *bytes, "wrong bytes in {path}"),
                    Err(_) => all = false,
                }
            }
            for entry in image.walk().into_iter().flatten() {
                match entry {
                    Ok(entry) => {
                        let path = entry.path().to_str().expect("UTF-8");
                        let known = ["", "bin", "lib", "etc"].contains(&path)
                            || self.files.iter().any(|(file, _)| *file == path);
                        assert!(known, "a wrong name: {path:?}");
                    }
                    Err(_) => all = false,
                }
            }
            match self.pages() {
                Ok(Some(pages)) => assert!(pages == self.pages, "wrong pages in the pack"),
                Ok(None) => panic!("the pack is not seen"),
                Err(_) => all = false,
            }
            all
        }

        /// Flips `flips` bits, one at a time, at even distances over image, manifest and signature. Returns how many
        /// were without effect, and how many were refused.
        fn flip(&self, flips: u64) -> (u64, u64) {
            let path = self.path();
            let files = [
                path.clone(),
                manifest_beside(&path),
                signature_beside(&path),
            ];
            let open = |file: &PathBuf| {
                let file = fs::File::options().read(true).write(true).open(file);
                file.expect("ours")
            };
            let files = files.map(|file| open(&file));
            let lens = files
                .each_ref()
                .map(|file| ByteSource::size(file).expect("a length"));
            // An eighth of the flips is in the two small files.
            let (image, small) = (flips - flips / 8, flips / 8);
            let spread = |bits: u64, count: u64, n: u64| {
                // Another bit of a byte each time.
                (n * (bits / count).max(1) + n % 8) % bits
            };
            let (mut sound, mut refused) = (0, 0);
            for n in 0..flips {
                let (file, bit) = match n.checked_sub(image) {
                    None => (0, spread(lens[0] * 8, image, n)),
                    Some(n) if n % 2 == 0 => (1, spread(lens[1] * 8, small / 2, n / 2)),
                    Some(n) => (2, spread(lens[2] * 8, small / 2, n / 2)),
                };
                let file = &files[file];
                let mut byte = [0];
                FileExt::read_exact_at(file, &mut byte, bit / 8).expect("inside");
                let flipped = [byte[0] ^ 1 << (bit % 8)];
                file.write_all_at(&flipped, bit / 8).expect("ours");
                match self.read_all() {
                    true => sound += 1,
                    false => refused += 1,
                }
                file.write_all_at(&byte, bit / 8).expect("ours");
            }
            assert!(self.read_all());
            (sound, refused)
        }
    }

    #[test]
    fn no_flipped_bit_of_a_signed_image_arrives() {
        let (sound, refused) = Signed::new().flip(1500);
        assert_eq!(sound + refused, 1500);
        assert!(refused > 1000, "{refused} refused");
    }

    #[test]
    #[ignore = "40,000 flips take minutes"]
    fn no_flipped_bit_of_forty_thousand_arrives() {
        let (sound, refused) = Signed::new().flip(40_000);
        assert_eq!(sound + refused, 40_000);
        println!("40000 flipped bits: {refused} refused, {sound} without effect, 0 wrong bytes");
    }
}
