//! The images of a session.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use brisk_image::verity::{self, TreeFile, VerifiedFile, Verity};
use brisk_image::{Image, OpenOptions};
use brisk_io::ByteSource;
use brisk_launch::error::{Advice, Cause, Shown};
use brisk_launch::file_identity::FileIdentity;
use brisk_launch::key::Key;
use rustix::fs::fstat;

use super::missing_place::MissingPlace;
use super::starter::Starter;
use crate::existing_path::ExistingPath;
use crate::fuse::parked::ArrivingSource;
use crate::hot_pack::candidate::ArrivingPack;
use crate::kernel_mount::{no_target, no_target_directory};
use crate::remote::{
    Arriving, Descriptor, Entry, FetcherPlace, ParkingImage, RemoteCache, WaitingImage,
};

/// An image of a [`Session`](crate::Session).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionImage {
    /// The image's file or block device.
    pub path: PathBuf,
    /// The byte at which the image starts in it.
    pub offset: u64,
    /// The directory to mount the image on. The mount hides its contents, for the session only. If it does not exist, a
    /// session in namespaces makes it: see [`MissingPlace`]. `None` is the first of `/mnt`, `/media` and `/srv` that is empty
    /// and not a mount point.
    pub at: Option<PathBuf>,
    /// Compares each block with the image's hash tree, whenever it is read. The tree is behind the image or beside it:
    /// see [`TreeFile::find`](brisk_image::verity::TreeFile::find). `None` compares nothing.
    pub verity: Option<Verity>,
    /// The image arrives from the network. `path` is then what messages call it. `None`: it is a file.
    pub remote: Option<RemoteImage>,
    /// A hot pack that arrives from the network beside the image, in place of those that are elsewhere.
    pub pack: Option<RemotePack>,
}

/// A hot pack that arrives from the network, and that somebody vouches for whom the user trusts.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemotePack {
    /// What messages call it.
    pub path: PathBuf,
    /// Its file, with a hash tree behind the pack.
    pub file: RemoteImage,
    /// The root hash of that tree.
    pub verity: Verity,
}

impl RemotePack {
    /// The pack in `file`, which messages call `path`.
    pub fn new(path: impl Into<PathBuf>, file: RemoteImage, verity: Verity) -> Self {
        Self {
            path: path.into(),
            file,
            verity,
        }
    }
}

/// An image that arrives from the network.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemoteImage {
    /// The directory where it arrives.
    pub cache: PathBuf,
    /// The name of its entry there.
    pub key: String,
    /// The program that asks the network, if none runs.
    pub fetcher: PathBuf,
}

impl RemoteImage {
    /// The entry `key` in `cache`.
    pub fn new(
        cache: impl Into<PathBuf>,
        key: impl Into<String>,
        fetcher: impl Into<PathBuf>,
    ) -> Self {
        Self {
            cache: cache.into(),
            key: key.into(),
            fetcher: fetcher.into(),
        }
    }
}

impl SessionImage {
    /// The image at `path`, which starts at byte 0 and is mounted on any free place.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            offset: 0,
            at: None,
            verity: None,
            remote: None,
            pack: None,
        }
    }
}

/// A file that arrives, and how to reach whoever brings it.
pub(crate) struct OpenRemote {
    /// What messages call it.
    name: PathBuf,
    arriving: Arc<Arriving>,
    /// What its server reads.
    pub(crate) parking: Arc<ParkingImage>,
    place: FetcherPlace,
    starter: OnceLock<Starter>,
    verity: Option<Verity>,
    described: Option<Descriptor>,
}

impl OpenRemote {
    fn open(name: &Path, remote: &RemoteImage, verity: Option<Verity>) -> Result<Self, Cause> {
        let failed =
            |e: crate::remote::Error| Cause::io("open the image in the cache", io::Error::other(e));
        let cache = RemoteCache::at(&remote.cache).map_err(failed)?;
        let entry = cache.entry(&remote.key).map_err(failed)?;
        let entry = entry.ok_or_else(|| {
            Cause::image("it was removed from the cache; start the program again")
        })?;
        let arriving = Arc::new(Arriving::open(&entry).map_err(failed)?);
        Ok(Self {
            name: name.to_owned(),
            place: FetcherPlace::new(Arc::new(cache), &remote.fetcher),
            starter: OnceLock::new(),
            parking: Arc::new(ParkingImage::new(Arc::clone(&arriving)).map_err(failed)?),
            arriving,
            verity,
            described: described(&entry),
        })
    }

    /// A connection about this image to the fetcher. None if none runs.
    pub(crate) fn attach(&self) -> io::Result<Option<UnixStream>> {
        crate::remote::attach(self.place.cache().fd(), &self.arriving)
    }

    /// Asks for a fetcher to be started.
    pub(crate) fn start_fetcher(&self) {
        if let Some(starter) = self.starter.get() {
            starter.ask();
        }
    }

    fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let files = self.arriving.files().map(AsRawFd::as_raw_fd);
        files
            .chain([self.place.cache().fd().as_raw_fd()])
            .chain(self.parking.descriptors())
            .chain(self.starter.get().map(Starter::fd))
    }

    /// The file, in which a hot pack arrives. None if nobody says where its hash tree is.
    pub(super) fn pack(&self) -> Option<ArrivingPack> {
        Some(ArrivingPack {
            name: self.name.clone(),
            parking: Arc::clone(&self.parking),
            root: self.verity?.root,
            tree: self.described.as_ref()?.hash_tree?,
        })
    }

    /// The image, whose reads wait for what is absent.
    fn waiting(&self) -> WaitingImage {
        WaitingImage::new(Arc::clone(&self.arriving), self.place.clone())
    }

    fn image(
        &self,
        source: impl ByteSource + Clone + 'static,
        options: &OpenOptions,
    ) -> Result<Image, brisk_image::Error> {
        open_arriving(
            source,
            &self.name,
            self.verity,
            self.described.as_ref(),
            options,
        )
    }
}

/// What the publisher says of an image. What cannot be read says nothing.
fn described(entry: &Entry) -> Option<Descriptor> {
    let text = entry.described().ok()?.descriptor;
    Descriptor::parse(&text?).ok()
}

/// Opens an image that arrives in `source`, which is `path` for messages. With `verity`, its blocks are compared with the hash tree
/// behind it. `described` says where that is: what has arrived of the image itself is not believed before.
///
/// # Errors
///
/// Those of [`VerifiedFile::new`] and [`Image::from_source`].
pub fn open_arriving(
    source: impl ByteSource + Clone + 'static,
    path: &Path,
    verity: Option<Verity>,
    described: Option<&Descriptor>,
    options: &OpenOptions,
) -> Result<Image, brisk_image::Error> {
    let open = || {
        let Some(verity) = verity else {
            return Image::from_source(source.clone(), options);
        };
        let superblock = match described.and_then(|described| described.hash_tree) {
            Some(section) => section.saturating_add(verity::SUPERBLOCK_IN_SECTION),
            None => Image::from_source(source.clone(), options)?
                .verity_superblock()?
                .ok_or_else(|| {
                    let no_tree = io::Error::new(io::ErrorKind::InvalidData, NO_TREE);
                    brisk_image::Error::of_source(no_tree)
                })?,
        };
        let tree = TreeFile::new(source.clone(), path, superblock);
        let verified = VerifiedFile::new(source.clone(), path, tree, verity.root)?;
        Image::open_verified(Arc::new(verified), options)
    };
    match (open(), described) {
        // A torn or flipped bit of what no digest covers.
        (Err(e), Some(described)) if e.kind() == brisk_image::ErrorKind::Corrupt => {
            let renewed = described
                .first_needed()
                .map(|bytes| source.read_again(&bytes));
            match renewed.contains(&true) {
                true => open(),
                false => Err(e),
            }
        }
        (opened, _) => opened,
    }
}

/// A root hash is given for an image without a tree.
const NO_TREE: &str =
    "the image has no hash tree behind it, which its root hash needs; brisk publish adds one";

/// An image whose file is open.
pub(crate) struct OpenImage {
    pub(crate) path: PathBuf,
    /// The absolute path by which the user named it. Its links may lead elsewhere later.
    pub(super) named: PathBuf,
    /// What it was when it was opened.
    pub(super) identity: FileIdentity,
    pub(crate) file: File,
    pub(crate) offset: u64,
    /// A canonical path of a directory.
    pub(crate) at: Option<PathBuf>,
    /// Its place, if that does not exist yet.
    pub(crate) missing: Option<MissingPlace>,
    pub(crate) verified: Option<Arc<VerifiedFile>>,
    /// Shared by all handles.
    pub(crate) remote: Option<Arc<OpenRemote>>,
    /// Its hot pack, if that arrives in a file of its own.
    pub(super) pack: Option<Arc<OpenRemote>>,
}

impl OpenImage {
    /// `in_root`: its place is in a root directory that does not exist yet.
    pub(crate) fn open(image: &SessionImage, in_root: bool) -> Result<Self, Cause> {
        let open = |name: &Path, remote: &RemoteImage, verity| {
            OpenRemote::open(name, remote, verity).map(Arc::new)
        };
        let remote = image.remote.as_ref();
        let remote = remote.map(|remote| open(&image.path, remote, image.verity));
        let remote = remote.transpose()?;
        let pack = image.pack.as_ref();
        let pack = pack.map(|pack| open(&pack.path, &pack.file, Some(pack.verity)));
        let file = match &remote {
            Some(remote) => remote.arriving.image().try_clone(),
            None => File::open(&image.path),
        };
        let file = file.map_err(|e| Cause::io("open the image", e))?;
        let identity = fstat(&file).map_err(|e| Cause::io("examine the image", e))?;
        let verified = match &image.verity {
            Some(verity) if remote.is_none() => {
                let file = file.try_clone();
                let file = file.map_err(|e| Cause::io("hold the image", e))?;
                let verified = VerifiedFile::open(&image.path, file, Some(image.offset), verity);
                let failed = |e| Cause::io("verify the image", io::Error::other(e));
                Some(Arc::new(verified.map_err(failed)?))
            }
            _ => None,
        };
        let (at, missing) = match &image.at {
            Some(at) if in_root => (Some(Path::new("/").join(at)), None),
            Some(at) => {
                let path = resolve_place(at)?;
                (Some(path.whole()), MissingPlace::in_path(&path)?)
            }
            None => (None, None),
        };
        let (path, named) = match &remote {
            Some(_) => (Ok(image.path.clone()), Ok(image.path.clone())),
            None => (image.path.canonicalize(), std::path::absolute(&image.path)),
        };
        let unresolved = |e| Cause::io("resolve the image's name", e);
        let open = Self {
            path: path.map_err(unresolved)?,
            named: named.map_err(unresolved)?,
            identity: FileIdentity::of(&identity),
            file,
            offset: image.offset,
            at,
            missing,
            verified,
            remote,
            pack: pack.transpose()?,
        };
        if open.remote.is_some() {
            // Its server cannot wait for what it needs to begin.
            open.read()?;
        }
        Ok(open)
    }

    /// The files that arrive: the image, and its pack.
    pub(super) fn remotes(&self) -> impl Iterator<Item = &Arc<OpenRemote>> {
        self.remote.iter().chain(&self.pack)
    }

    /// Where its server has these files from.
    pub(super) fn arriving(&self) -> Vec<Arc<ArrivingSource>> {
        let of = |remote: &Arc<OpenRemote>, is_pack| {
            Arc::new(ArrivingSource::new(Arc::clone(&remote.parking), is_pack))
        };
        let image = self.remote.iter().map(|image| of(image, false));
        image
            .chain(self.pack.iter().map(|pack| of(pack, true)))
            .collect()
    }

    /// Starts what its guardian needs to start a fetcher, which it may not do itself. To be called in the user's own namespaces.
    pub(super) fn start_starter(&self, log: BorrowedFd<'_>) -> io::Result<()> {
        if let Some(remote) = self.remotes().next() {
            // There is one already if a mount was tried in another way.
            remote.starter.set(Starter::start(&remote.place, log)?).ok();
        }
        Ok(())
    }

    /// Another handle on the same image.
    pub(crate) fn try_clone(&self) -> Result<Self, Cause> {
        let file = self.file.try_clone();
        Ok(Self {
            path: self.path.clone(),
            named: self.named.clone(),
            identity: self.identity,
            file: file.map_err(|e| Cause::io("hold the image", e))?,
            offset: self.offset,
            at: self.at.clone(),
            missing: self.missing.clone(),
            verified: self.verified.clone(),
            remote: self.remote.clone(),
            pack: self.pack.clone(),
        })
    }

    /// Reads the image's superblock and tables. Of one that arrives, all reads wait.
    pub(super) fn read(&self) -> Result<Image, Cause> {
        let options = OpenOptions::new();
        let image = match &self.remote {
            Some(remote) => remote.image(Arc::new(remote.waiting()), &options.offset(self.offset)),
            None => self.try_clone()?.into_image(options),
        };
        image.map_err(|e| Cause::io("read the image", io::Error::other(e)))
    }

    /// Reads the image, verified if that was asked for. No read of one that arrives waits: see [`ParkingImage`].
    pub(crate) fn into_image(self, options: OpenOptions) -> Result<Image, brisk_image::Error> {
        let options = options.offset(self.offset);
        if let Some(remote) = &self.remote {
            return remote.image(Arc::clone(&remote.parking), &options);
        }
        match self.verified {
            Some(verified) => Image::open_verified(verified, &options),
            None => {
                let (file, identity) = (self.file, self.identity);
                Image::from_source(UnchangedFile { file, identity }, &options)
            }
        }
    }

    /// Adds what distinguishes it from other images, and from the same image that is verified in another way.
    pub(super) fn add_to(&self, key: &mut Key) -> io::Result<()> {
        if let Some(remote) = &self.remote {
            // Its file changes as long as it arrives.
            key.add(remote.place.cache().path().as_os_str().as_bytes());
            key.add(remote.arriving.key().as_bytes());
            key.add_number(self.offset);
            key.add(
                remote
                    .verity
                    .map_or([0; 32], |verity| *verity.root.as_bytes())
                    .as_slice(),
            );
            return Ok(());
        }
        key.add_image(&self.file, self.offset)?;
        match &self.verified {
            Some(verified) => key.add(verified.root_hash().as_bytes()),
            None => key.add(&[]),
        }
        Ok(())
    }

    /// The descriptors that it needs.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let verified = self.verified.iter().flat_map(|file| file.descriptors());
        let remote = self.remotes().flat_map(|remote| remote.descriptors());
        std::iter::once(self.file.as_raw_fd())
            .chain(verified.copied())
            .chain(remote)
    }
}

/// A file that can be read until somebody writes into it.
///
/// Without a hash tree nothing else tells old bytes from new ones, and a program would get a mixture. A file that was deleted
/// or replaced is still the same file.
struct UnchangedFile {
    file: File,
    /// What the file was when the session began.
    identity: FileIdentity,
}

impl ByteSource for UnchangedFile {
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    /// Looks at the file after the read, so that what it returns was there before any change.
    fn read_bytes_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_bytes_at(offset, buf)?;
        let now = FileIdentity::of(&fstat(&self.file)?);
        match now.has_contents_of(self.identity) {
            true => Ok(read),
            false => Err(io::Error::other(
                "somebody has written into the file of the image since it was opened; a new session reads the new one",
            )),
        }
    }

    fn will_read(&self, bytes: Range<u64>) {
        self.file.will_read(bytes);
    }
}

/// The canonical path of the directory `at`.
pub(crate) fn mount_directory(at: &Path) -> Result<PathBuf, Cause> {
    let path = resolve_place(at)?;
    match path.is_whole() {
        true => Ok(path.existing),
        false => Err(no_target(at)),
    }
}

/// The path of the directory `at`, which may not exist.
pub(super) fn resolve_place(at: &Path) -> Result<ExistingPath, Cause> {
    let not_directory = || no_target_directory(at);
    let path = ExistingPath::of(at).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => no_target(at),
        io::ErrorKind::NotADirectory => not_directory(),
        _ => Cause::io(format!("resolve {}", at.display()), e),
    })?;
    match path.existing.is_dir() {
        true => Ok(path),
        false => Err(not_directory()),
    }
}

/// An image has no place, and the caller names none.
pub(crate) fn no_place(image: &Path) -> Cause {
    let text = format!(
        "{} does not record a directory to mount it on",
        Shown(image)
    );
    Cause::place(text).advise(Advice::NamePlaces)
}

/// Two images would hide each other.
pub(crate) fn places_overlap(one: &Path, other: &Path) -> Cause {
    Cause::place(format!(
        "one of {} and {} is inside the other; name separate places",
        Shown(one),
        Shown(other)
    ))
}
