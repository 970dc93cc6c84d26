//! The directory where images from the network arrive.
//!
//! ```text
//! remote/fetch.sock        the fetcher listens here
//! remote/fetch.lock        the fetcher that runs has locked it
//! remote/fetch.log         what went wrong in it
//! remote/http/             what servers said about names: a cache of brisk-http
//! remote/names/SHA256      which entry a URL had last (JSON). SHA256.newer: there is a newer one; .absent: when there was nothing
//! remote/images/KEY/image  the bytes that have arrived, in a sparse file
//! remote/images/KEY/map    which of them have: a bit for each 4096 bytes. Gone when all have. Without a root hash, checksums follow
//! remote/images/KEY/about  where they come from, and what that has cost (JSON)
//! remote/images/KEY/remote, remote.minisig, manifest, index   what its publisher says of it
//! remote/images/KEY/cosign what cosign has signed of the manifest, if that was asked for (JSON)
//! remote/images/KEY/compared   there if a start has compared its hash tree with its root hash: it is the image that was named
//! remote/images/KEY/pinned there if it stays until the user lets it go
//! remote/images/KEY/pack   the digest of the manifest of a hot pack for it, in its registry
//! remote/images/.KEY       what is being removed
//! ```
//!
//! A key is `root-` and a root hash that the user has named or a trusted key has signed; else `url-` and a digest of the URL and of
//! what its server says that the file is. So no host can fill the entry of another's image.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use brisk_launch::private_directory::{cache_directory, make_cache_directory, open_private};
use rustix::fs::{FlockOperation, OFlags, flock};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::hex::sha256_of;
use crate::presence::Presence;
use crate::protocol::{OpenOptions, Resolved};
use crate::remote_url::RemoteUrl;

/// For so many seconds a server is believed that it has nothing at a URL.
const ABSENT: u64 = 3600;

/// Begins the name of an entry that is being removed, before its key. No key begins so.
const GONE: &str = ".";

/// The most bytes of a small file that is read.
const MOST_SMALL: u64 = 64 << 10;

/// The directory of a user's images from the network.
#[derive(Debug)]
pub struct RemoteCache {
    path: PathBuf,
    /// Held, so that the socket in it can be reached whatever its path is.
    fd: OwnedFd,
}

/// An image in the cache, whole or not.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its directory.
    pub path: PathBuf,
    /// Its name.
    pub key: String,
    /// What is known of it.
    pub about: About,
    /// Whether files of it are gone, or damaged, or of another version of brisk. Then nothing is known of it, and only removing it is
    /// of use.
    pub is_damaged: bool,
}

/// What is known of an entry.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Where it comes from.
    pub url: String,
    /// Bytes of the file.
    pub len: u64,
    /// The root hash that its blocks are compared with.
    pub root: Option<String>,
    /// Whether the user or a trusted key vouches for the root hash.
    pub is_vouched: bool,
    /// SHA-256 of the whole file, as its publisher says it.
    pub sha256: Option<String>,
    /// `ETag` or `Last-Modified` of the file.
    pub validator: Option<String>,
    /// The digest of the blob that it is in the registry of `url`, with `sha256:`.
    #[serde(default)]
    pub blob: Option<String>,
    /// Whether all of it is there, and has the digest that it should.
    pub is_complete: bool,
    /// Whether the server has said since that it is another file. Before it is used again, the server is asked what it has.
    #[serde(default)]
    pub is_doubted: bool,
    /// Why all of it was dropped, when it was there and not what it should be.
    #[serde(default)]
    pub fault: Option<String>,
    /// When the server was last asked whether it has a newer image under this name, in seconds since 1970.
    #[serde(default)]
    pub asked: u64,
    /// When it was last opened, in seconds since 1970.
    pub used: u64,
    /// The boot of the system in which the last bytes arrived.
    pub boot: String,
    /// What the user last wanted of it.
    pub options: OpenOptions,
    /// What it has cost.
    pub counts: Counts,
}

/// What an image has cost so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Bytes that have come from the network.
    pub bytes: u64,
    /// Requests that were sent.
    pub requests: u64,
    /// How often a program waited for bytes.
    pub waits: u64,
    /// How long, together, in milliseconds.
    pub waited_ms: u64,
    /// How long requests were under way, in milliseconds; those at the same time count once.
    pub busy_ms: u64,
}

/// Which entry a URL had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Name {
    url: String,
    key: String,
    /// The largest serial number that a trusted key has signed for this name.
    serial: u64,
}

impl RemoteCache {
    /// The directory of the calling user: `remote` in `$XDG_CACHE_HOME/brisk` or `~/.cache/brisk`.
    ///
    /// # Errors
    ///
    /// `Place`, if it belongs to somebody else, or others may enter it.
    pub fn of_user() -> Result<Self> {
        let caches = cache_directory().map_err(Error::place)?;
        make_cache_directory(&caches).map_err(Error::place)?;
        Self::at(&caches.join("remote"))
    }

    /// The directory at `path`. It is made if it does not exist.
    ///
    /// # Errors
    ///
    /// As [`RemoteCache::of_user`].
    pub fn at(path: &Path) -> Result<Self> {
        let fd = open_private(path).map_err(Error::place)?;
        for name in ["images", "names"] {
            make_cache_directory(&path.join(name)).map_err(Error::place)?;
        }
        Ok(Self {
            path: path.to_owned(),
            fd,
        })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its open descriptor.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// The entry with this key. None if there is none, or one that is damaged.
    ///
    /// # Errors
    ///
    /// `Io`.
    pub fn entry(&self, key: &str) -> Result<Option<Entry>> {
        let found = self.any_entry(key)?;
        Ok(found.filter(|found| !found.is_damaged))
    }

    /// The entry with this key, also one that is damaged. None if there is none.
    ///
    /// # Errors
    ///
    /// `Io`.
    pub fn any_entry(&self, key: &str) -> Result<Option<Entry>> {
        let path = self.path.join("images").join(key);
        if !is_key(key) || !path.is_dir() {
            return Ok(None);
        }
        let about: Option<About> = read_json(&path.join("about"))?;
        let is_there = fs::symlink_metadata(path.join("image")).is_ok();
        let about = about.filter(|_| is_there);
        Ok(Some(Entry {
            path,
            key: key.to_owned(),
            is_damaged: about.is_none(),
            about: about.unwrap_or_default(),
        }))
    }

    /// All entries, those used last first, and at last those that are damaged.
    ///
    /// # Errors
    ///
    /// `Io`.
    pub fn entries(&self) -> Result<Vec<Entry>> {
        let names = self.listed()?.into_iter();
        let mut entries: Vec<_> = names
            .filter_map(|name| self.any_entry(&name).ok().flatten())
            .collect();
        entries.sort_by(|a, b| {
            b.about
                .used
                .cmp(&a.about.used)
                .then_with(|| a.key.cmp(&b.key))
        });
        Ok(entries)
    }

    /// The names in the directory of the entries.
    fn listed(&self) -> Result<Vec<String>> {
        let images = self.path.join("images");
        let failed = |e| Error::io(format!("list {}", images.display()), e);
        let mut names = Vec::new();
        for found in fs::read_dir(&images).map_err(failed)? {
            let name = found.map_err(failed)?.file_name();
            names.extend(name.to_str().map(str::to_owned));
        }
        Ok(names)
    }

    /// The entry that this URL had last. A root hash in the URL is that of the entry.
    ///
    /// # Errors
    ///
    /// As [`RemoteCache::entry`].
    pub fn known(&self, url: &RemoteUrl) -> Result<Option<Entry>> {
        if let Some(pin) = url.pin() {
            return self.entry(&key_of_root(pin));
        }
        match self.name(url)? {
            Some(name) => self.entry(&name.key),
            None => Ok(None),
        }
    }

    fn name(&self, url: &RemoteUrl) -> Result<Option<Name>> {
        let name: Option<Name> = read_json(&self.path.join("names").join(url.digest()))?;
        Ok(name.filter(|name| name.url == url.as_str()))
    }

    /// The largest serial number that was signed for this URL by a trusted key.
    ///
    /// # Errors
    ///
    /// As [`RemoteCache::entry`].
    pub fn largest_serial(&self, url: &RemoteUrl) -> Result<u64> {
        Ok(self.name(url)?.map_or(0, |name| name.serial))
    }

    /// Remembers the entry of a URL, and the serial number that a trusted key has signed, if one has.
    ///
    /// # Errors
    ///
    /// `Io`.
    pub fn remember(&self, url: &RemoteUrl, key: &str, serial: Option<u64>) -> Result<()> {
        let earlier = self.largest_serial(url).unwrap_or(0);
        let name = Name {
            url: url.as_str().to_owned(),
            key: key.to_owned(),
            serial: serial.unwrap_or(0).max(earlier),
        };
        write_json(&self.path.join("names").join(url.digest()), &name)
    }

    /// Remembers that the server has a newer image under this name, for the next start.
    ///
    /// # Errors
    ///
    /// `Io`.
    pub fn note_newer(&self, url: &RemoteUrl) -> Result<()> {
        write_whole(&self.newer(url), b"")
    }

    /// Whether a registry has not led to this host for tokens before. This remembers it.
    pub fn is_first_realm(&self, registry: &str, realm: &str) -> bool {
        let name = sha256_of(&[registry.as_bytes(), realm.as_bytes()]);
        let path = self.path.join("names").join(format!("{name}.realm"));
        let made = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(path);
        made.is_ok()
    }

    /// Whether the server had a newer image, as of the last [`note_newer`](Self::note_newer). This forgets it.
    pub fn takes_newer(&self, url: &RemoteUrl) -> bool {
        fs::remove_file(self.newer(url)).is_ok()
    }

    fn newer(&self, url: &RemoteUrl) -> PathBuf {
        let name = format!("{}.newer", url.digest());
        self.path.join("names").join(name)
    }

    /// Remembers that the server has said at `now`, in seconds since 1970, that it has nothing at this URL.
    ///
    /// # Errors
    ///
    /// `Io`.
    pub fn note_absent(&self, url: &RemoteUrl, now: u64) -> Result<()> {
        write_json(&self.absent(url), &now)
    }

    /// Whether the server has said so in the hour before `now`.
    pub fn is_absent(&self, url: &RemoteUrl, now: u64) -> bool {
        let said: Option<u64> = read_json(&self.absent(url)).unwrap_or_default();
        // A clock that was put back has it asked.
        let since = said.and_then(|said| now.checked_sub(said));
        since.is_some_and(|since| since < ABSENT)
    }

    fn absent(&self, url: &RemoteUrl) -> PathBuf {
        let name = format!("{}.absent", url.digest());
        self.path.join("names").join(name)
    }

    /// Makes an entry, or opens it if it is there. `about` says what to keep of a new one.
    ///
    /// # Errors
    ///
    /// `Io`.
    pub fn make(&self, key: &str, about: &About) -> Result<Entry> {
        if let Some(entry) = self.entry(key)? {
            return Ok(entry);
        }
        let path = self.path.join("images").join(key);
        let failed = |e| Error::io(format!("make {}", path.display()), e);
        // What is no whole entry.
        self.take_away(key).map_err(failed)?;
        make_cache_directory(&path).map_err(Error::place)?;
        for name in ["image", "map"] {
            let file = open_own(&path.join(name), true).map_err(failed)?;
            let len = if name == "image" { about.len } else { 0 };
            file.set_len(len).map_err(failed)?;
        }
        let entry = Entry {
            path,
            key: key.to_owned(),
            about: about.clone(),
            is_damaged: false,
        };
        entry.save()?;
        Ok(entry)
    }

    /// Makes an entry anew, with nothing of what was there, because the server says now that it is another file. Who has that open
    /// keeps it. A pin stays.
    ///
    /// # Errors
    ///
    /// `Io`.
    pub fn make_anew(&self, earlier: &Entry, about: &About) -> Result<Entry> {
        let failed = |e: io::Error| Error::io(format!("remove {}", earlier.path.display()), e);
        let is_pinned = earlier.is_pinned();
        self.take_away(&earlier.key).map_err(failed)?;
        let entry = self.make(&earlier.key, about)?;
        entry.set_pinned(is_pinned)?;
        Ok(entry)
    }

    /// Removes an entry that nobody uses. False if somebody does.
    ///
    /// # Errors
    ///
    /// `Io`.
    pub fn remove(&self, entry: &Entry) -> Result<bool> {
        let failed = |e: io::Error| Error::io(format!("remove {}", entry.path.display()), e);
        match open_own(&entry.image_path(), false) {
            Ok(image) if flock(&image, FlockOperation::NonBlockingLockExclusive).is_err() => {
                return Ok(false);
            }
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(failed(e)),
        }
        self.take_away(&entry.key).map_err(failed)?;
        Ok(true)
    }

    /// Removes an entry at once, if it is there: nobody finds a part of it, and nothing that is written at the same time brings a part
    /// of it back.
    fn take_away(&self, key: &str) -> io::Result<()> {
        let images = self.path.join("images");
        let gone = images.join(format!("{GONE}{key}"));
        loop {
            // It is there if somebody was killed in the middle of this.
            remove_all(&gone)?;
            match fs::rename(images.join(key), &gone) {
                // Somebody else removes one of this name, too.
                Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => {}
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => return remove_all(&gone),
            }
        }
    }

    /// Removes what somebody began to remove and was killed.
    fn end_removals(&self) -> Result<()> {
        for name in self.listed()? {
            if name.starts_with(GONE) {
                let path = self.path.join("images").join(name);
                remove_all(&path)
                    .map_err(|e| Error::io(format!("remove {}", path.display()), e))?;
            }
        }
        Ok(())
    }

    /// Removes entries, those first that nobody has used for the longest time, until all together have at most `most` bytes on
    /// the disk. What is pinned or in use stays. Returns what was removed.
    ///
    /// # Errors
    ///
    /// `Io`.
    pub fn shrink(&self, most: u64) -> Result<Vec<Entry>> {
        self.end_removals()?;
        let mut entries = self.entries()?;
        let mut sum: u64 = entries.iter().map(Entry::stored).sum();
        let mut removed = Vec::new();
        while sum > most
            && let Some(entry) = entries.pop()
        {
            if entry.is_pinned() {
                continue;
            }
            let stored = entry.stored();
            if self.remove(&entry)? {
                sum = sum.saturating_sub(stored);
                removed.push(entry);
            }
        }
        Ok(removed)
    }
}

impl Entry {
    /// The file with the bytes.
    pub fn image_path(&self) -> PathBuf {
        self.path.join("image")
    }

    /// The file that says which bytes are there.
    pub fn map_path(&self) -> PathBuf {
        self.path.join("map")
    }

    /// Whether what the server says now is another file: `about` has another length or digest.
    pub fn differs_from(&self, about: &About) -> bool {
        let is_other = |here: &Option<String>, now: &Option<String>| {
            here.is_some() && now.is_some() && here != now
        };
        self.about.len != about.len || is_other(&self.about.sha256, &about.sha256)
    }

    /// Whether it is complete by now.
    pub(crate) fn is_complete_now(&self) -> Result<bool> {
        let about: Option<About> = read_json(&self.path.join("about"))?;
        Ok(about.is_some_and(|about| about.is_complete))
    }

    /// What the publisher says of it.
    ///
    /// # Errors
    ///
    /// `Io`.
    pub fn described(&self) -> Result<Resolved> {
        let read = |name| read_small(&self.path.join(name));
        Ok(Resolved {
            descriptor: read("remote")?,
            signature: read("remote.minisig")?,
            manifest: read("manifest")?,
            cosigned: read_json(&self.path.join("cosign"))?.unwrap_or_default(),
            index: read("index")?,
            ..Resolved::default()
        })
    }

    /// Keeps what the publisher says.
    ///
    /// # Errors
    ///
    /// `Io`.
    pub fn describe(&self, resolved: &Resolved) -> Result<()> {
        for (name, text) in [
            ("remote", &resolved.descriptor),
            ("remote.minisig", &resolved.signature),
            ("manifest", &resolved.manifest),
            ("index", &resolved.index),
        ] {
            if let Some(text) = text {
                write_whole(&self.path.join(name), text.as_bytes())?;
            }
        }
        match resolved.cosigned.is_empty() {
            true => Ok(()),
            false => write_json(&self.path.join("cosign"), &resolved.cosigned),
        }
    }

    /// The digest of the manifest of a hot pack for it in its registry, as of the last [`note_pack`](Self::note_pack).
    ///
    /// # Errors
    ///
    /// `Io`.
    pub fn pack(&self) -> Result<Option<String>> {
        read_small(&self.path.join("pack"))
    }

    /// Remembers where its hot pack is.
    ///
    /// # Errors
    ///
    /// `Io`.
    pub fn note_pack(&self, digest: &str) -> Result<()> {
        write_whole(&self.path.join("pack"), digest.as_bytes())
    }

    /// Whether it stays until the user lets it go.
    pub fn is_pinned(&self) -> bool {
        self.path.join("pinned").exists()
    }

    /// Keeps it until the user lets it go, or lets it go.
    ///
    /// # Errors
    ///
    /// `Io`.
    pub fn set_pinned(&self, is_pinned: bool) -> Result<()> {
        let path = self.path.join("pinned");
        if is_pinned {
            return write_whole(&path, b"");
        }
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                Err(Error::io(format!("remove {}", path.display()), e))
            }
            _ => Ok(()),
        }
    }

    /// Remembers that its hash tree was compared with its root hash.
    ///
    /// # Errors
    ///
    /// `Io`.
    pub fn note_compared(&self) -> Result<()> {
        match self.is_compared() {
            true => Ok(()),
            false => write_whole(&self.path.join("compared"), b""),
        }
    }

    /// Whether it was, as of the last [`note_compared`](Self::note_compared).
    pub fn is_compared(&self) -> bool {
        self.path.join("compared").exists()
    }

    /// Writes what is known of it.
    ///
    /// # Errors
    ///
    /// `Io`.
    pub fn save(&self) -> Result<()> {
        write_json(&self.path.join("about"), &self.about)
    }

    /// Opens the file with the bytes. While it is open, the entry stays.
    ///
    /// # Errors
    ///
    /// `Io`.
    pub fn open_image(&self) -> Result<File> {
        let path = self.image_path();
        let open = || -> io::Result<File> {
            let file = open_to_read(&path)?;
            flock(&file, FlockOperation::NonBlockingLockShared)?;
            Ok(file)
        };
        open().map_err(|e| Error::io(format!("open {}", path.display()), e))
    }

    /// Bytes of it that have arrived.
    ///
    /// # Errors
    ///
    /// `Io`.
    pub fn present(&self) -> Result<u64> {
        let len = self.about.len;
        if self.about.is_complete {
            return Ok(len);
        }
        let path = self.map_path();
        let read = || -> io::Result<Vec<u8>> {
            let mut map = Vec::new();
            let most = Presence::map_len(len);
            open_to_read(&path)?.take(most).read_to_end(&mut map)?;
            Ok(map)
        };
        match read() {
            Ok(map) => Ok(Presence::present_in(&map, len)),
            // All of it has arrived since `about` was read.
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(len),
            Err(e) => Err(Error::io(format!("read {}", path.display()), e)),
        }
    }

    /// Bytes that it takes on the disk.
    pub fn stored(&self) -> u64 {
        let found = fs::symlink_metadata(self.image_path());
        found.map_or(0, |found| found.blocks().saturating_mul(512))
    }
}

/// The key of an image whose root hash somebody vouches for.
pub fn key_of_root(root: &str) -> String {
    format!("root-{root}")
}

/// The key of another image. `is`: what the server says that it is, such as a digest or an `ETag`.
pub fn key_of_url(url: &RemoteUrl, is: &str) -> String {
    format!(
        "url-{}",
        sha256_of(&[url.place().as_bytes(), is.as_bytes()])
    )
}

/// Removes a directory, if it is there, with all that comes into it meanwhile: who has found it under its earlier name may just be
/// making a file in it.
fn remove_all(path: &Path) -> io::Result<()> {
    loop {
        match fs::remove_dir_all(path) {
            Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => return Ok(()),
        }
    }
}

fn is_key(key: &str) -> bool {
    key.len() < 100
        && key
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// Opens a file of this user for reading. A symbolic link is an error.
pub(crate) fn open_to_read(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    let mut options = fs::OpenOptions::new();
    options.read(true).custom_flags(flags).open(path)
}

/// Opens a file of this user for reading and writing. A symbolic link is an error. `make`: makes it if it is missing.
pub fn open_own(path: &Path, make: bool) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).create(make).mode(0o600);
    options.custom_flags(flags).open(path)
}

/// The seconds since 1970.
pub fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}

fn read_small(path: &Path) -> Result<Option<String>> {
    let failed = |e| Error::io(format!("read {}", path.display()), e);
    let file = match open_to_read(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed(e)),
    };
    let mut text = String::new();
    file.take(MOST_SMALL)
        .read_to_string(&mut text)
        .map_err(failed)?;
    Ok(Some(text))
}

/// None if there is no such file, or if it is damaged or of another version of brisk.
fn read_json<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<Option<T>> {
    let Some(text) = read_small(path)? else {
        return Ok(None);
    };
    Ok(serde_json::from_str(&text).ok())
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let failed = |e: serde_json::Error| Error::io(format!("write {}", path.display()), e);
    write_whole(path, &serde_json::to_vec(value).map_err(failed)?)
}

/// Writes a file whole or not at all.
fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let write = || -> io::Result<()> {
        let directory = path.parent().unwrap_or(Path::new("."));
        let mut file = tempfile::Builder::new()
            .prefix(".new-")
            .tempfile_in(directory)?;
        file.write_all(bytes)?;
        file.persist(path)?;
        Ok(())
    };
    write().map_err(|e| Error::io(format!("write {}", path.display()), e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn cache() -> (tempfile::TempDir, RemoteCache) {
        let dir = tempfile::tempdir().expect("a directory");
        let cache = RemoteCache::at(&dir.path().join("remote")).expect("made");
        (dir, cache)
    }

    fn about(url: &str, used: u64) -> About {
        About {
            url: url.into(),
            len: 1 << 20,
            used,
            ..About::default()
        }
    }

    #[test]
    fn a_place_that_cannot_be_used_is_refused_with_the_reason() {
        let refused =
            RemoteCache::at(Path::new("/proc/brisk")).expect_err("no directory is made there");
        assert_eq!(refused.kind(), ErrorKind::Place);
        let reasons = brisk_launch::error::with_reasons(&refused);
        let wanted =
            "the system could not make /proc/brisk: No such file or directory (os error 2)";
        assert_eq!(reasons, wanted);
    }

    #[test]
    fn a_url_leads_to_its_entry() {
        let (_dir, cache) = cache();
        let url = RemoteUrl::parse("https://a.example/app.img").expect("a URL");
        assert!(cache.known(&url).expect("sound").is_none());
        let key = key_of_url(&url, "\"1\"");
        cache.make(&key, &about(url.as_str(), 1)).expect("room");
        cache.remember(&url, &key, Some(7)).expect("room");
        cache.remember(&url, &key, None).expect("room");
        assert_eq!(cache.known(&url).expect("sound").expect("there").key, key);
        assert_eq!(cache.largest_serial(&url).expect("sound"), 7);
        // Another validator is another image, and so is another host.
        assert_ne!(key_of_url(&url, "\"2\""), key);
        let other = RemoteUrl::parse("https://b.example/app.img").expect("a URL");
        assert_ne!(key_of_url(&other, "\"1\""), key);
        let pin = "ab".repeat(32);
        let pinned =
            RemoteUrl::parse(&format!("https://a.example/app.img#sha256={pin}")).expect("a URL");
        assert!(cache.known(&pinned).expect("sound").is_none());
        cache
            .make(&key_of_root(&pin), &about(url.as_str(), 1))
            .expect("room");
        assert_eq!(
            cache.known(&pinned).expect("sound").expect("there").key,
            key_of_root(&pin)
        );
    }

    #[test]
    fn what_is_pinned_or_in_use_stays_and_the_oldest_goes_first() {
        let (_dir, cache) = cache();
        for (key, used) in [("a", 4), ("b", 1), ("c", 2), ("d", 3)] {
            let entry = cache.make(key, &about(key, used)).expect("room");
            let image = open_own(&entry.image_path(), false).expect("made");
            std::os::unix::fs::FileExt::write_all_at(&image, &[1; 1 << 20], 0).expect("room");
            entry.set_pinned(key == "b").expect("room");
            // The fetcher writes what it knew before.
            entry.save().expect("room");
        }
        let used = cache
            .entry("c")
            .expect("sound")
            .expect("there")
            .open_image()
            .expect("there");
        let pinned = cache.entry("b").expect("sound").expect("there");
        cache.make_anew(&pinned, &about("b", 1)).expect("room");
        let removed = cache.shrink(2 << 20).expect("removed");
        let keys: Vec<_> = removed.iter().map(|entry| &*entry.key).collect();
        assert_eq!(keys, ["d"]);
        drop(used);
        assert_eq!(cache.shrink(0).expect("removed").len(), 2);
        let left = cache.entries().expect("a list");
        assert_eq!(
            left.iter().map(|entry| &*entry.key).collect::<Vec<_>>(),
            ["b"]
        );
    }

    /// The fetcher writes what an entry has cost at any time.
    #[test]
    fn what_is_written_into_an_entry_does_not_bring_it_back() {
        let (_dir, cache) = cache();
        let entry = cache.make("a", &about("a", 1)).expect("room");
        let begun = tempfile::NamedTempFile::new_in(&entry.path).expect("room");
        assert!(cache.remove(&entry).expect("nobody uses it"));
        assert!(begun.persist(entry.path.join("about")).is_err());
        assert!(entry.save().is_err());
        assert_eq!(cache.listed().expect("a list"), Vec::<String>::new());
        // What was not whole is no part of a new one.
        fs::create_dir(&entry.path).expect("room");
        entry.note_pack("old").expect("room");
        let entry = cache.make("a", &about("a", 1)).expect("room");
        assert_eq!(entry.pack().expect("nothing"), None);
        // Somebody was killed meanwhile.
        fs::create_dir(cache.path.join("images/.b")).expect("room");
        assert_eq!(cache.shrink(1 << 20).expect("nothing to do").len(), 0);
        assert_eq!(cache.listed().expect("a list"), ["a"]);
    }

    /// Who writes into an entry may have found its directory before it was renamed.
    #[test]
    fn an_entry_is_removed_while_files_are_made_in_it() {
        let (_dir, cache) = cache();
        let entry = cache.make("a", &about("a", 1)).expect("room");
        let found = File::open(&entry.path).expect("there");
        std::thread::scope(|scope| {
            let made = scope.spawn(|| {
                let flags = OFlags::CREATE | OFlags::WRONLY;
                let names = (0..20_000).map(|n| n.to_string());
                let made = |name: &String| {
                    rustix::fs::openat(&found, name, flags, rustix::fs::Mode::RUSR).is_ok()
                };
                names.take_while(made).count()
            });
            while !entry.path.join("100").exists() {
                std::thread::yield_now();
            }
            assert!(cache.remove(&entry).expect("nobody uses it"));
            assert!(made.join().expect("no panic") > 100);
        });
        assert_eq!(cache.listed().expect("a list"), Vec::<String>::new());
    }

    #[test]
    fn what_is_damaged_is_listed_and_removed_and_stands_in_no_way() {
        let (_dir, cache) = cache();
        let url = RemoteUrl::parse("https://host/app.img").expect("a URL");
        for (damaged, file) in [("a", "about"), ("b", "image"), ("c", "about")] {
            let entry = cache.make(damaged, &about("a", 1)).expect("room");
            match damaged {
                "a" => fs::write(entry.path.join(file), "{").expect("room"),
                _ => fs::remove_file(entry.path.join(file)).expect("ours"),
            }
            cache.remember(&url, damaged, None).expect("room");
            assert!(cache.known(&url).expect("no fault").is_none());
            assert!(cache.entries().expect("a list")[0].is_damaged);
            let entry = cache.make(damaged, &about("a", 1)).expect("made anew");
            assert!(!cache.entries().expect("a list")[0].is_damaged);
            fs::write(entry.path.join("about"), "{").expect("room");
            let entry = cache.any_entry(damaged).expect("no fault").expect("there");
            assert!(cache.remove(&entry).expect("nobody uses it"));
        }
        fs::write(cache.path.join("names").join(url.digest()), "{").expect("room");
        assert!(cache.known(&url).expect("no fault").is_none());
        assert_eq!(cache.largest_serial(&url).expect("no fault"), 0);
    }

    #[test]
    fn an_entry_that_has_become_complete_is_opened_without_its_map() {
        let (_dir, cache) = cache();
        let mut entry = cache.make("a", &about("a", 1)).expect("room");
        let arriving = crate::Arriving::open(&entry).expect("it arrives");
        assert!(arriving.first_absent(&(0..1)).expect("a map").is_some());
        // Somebody has removed more than the map.
        fs::remove_file(entry.map_path()).expect("ours");
        assert!(crate::Arriving::open(&entry).is_err());
        let looked_up = entry.clone();
        entry.about.is_complete = true;
        entry.save().expect("room");
        let arriving = crate::Arriving::open(&looked_up).expect("all is there");
        assert!(arriving.first_absent(&(0..1)).expect("no map").is_none());
    }

    /// A reader that looked into the map again would wait for ever.
    #[test]
    fn what_has_come_is_there_though_the_map_was_emptied() {
        let (_dir, cache) = cache();
        let entry = cache.make("a", &about("a", 1)).expect("room");
        let arriving = crate::Arriving::open(&entry).expect("made");
        arriving.forget(&(4096..8192));
        arriving.has_come(&(0..4096));
        let absent = arriving.first_absent(&(0..12_288)).expect("a map");
        assert_eq!(absent, Some(4096..12_288));
    }

    #[test]
    fn reads_that_find_the_same_block_wrong_at_once_ask_for_it_once() {
        use brisk_io::ByteSource;
        let (_dir, cache) = cache();
        let mut entry = cache.make("a", &about("a", 1)).expect("room");
        fs::remove_file(entry.map_path()).expect("ours");
        entry.about.is_complete = true;
        entry.save().expect("room");
        let arriving = std::sync::Arc::new(crate::Arriving::open(&entry).expect("all is there"));
        let image = crate::ParkingImage::new(std::sync::Arc::clone(&arriving)).expect("a pipe");
        for _ in 0..3 {
            for _ in 0..5 {
                assert!(image.read_again(&(5..100)));
                assert!(arriving.first_absent(&(0..9)).expect("no map").is_some());
            }
            arriving.has_come(&(0..8192));
            assert!(arriving.first_absent(&(0..9)).expect("no map").is_none());
        }
        assert!(!image.read_again(&(5..100)));
    }

    #[test]
    fn a_server_is_asked_again_after_an_hour_for_what_it_has_not() {
        let (_dir, cache) = cache();
        let url = |name| RemoteUrl::parse(&format!("https://host/{name}")).expect("a URL");
        cache.note_absent(&url("a"), 5000).expect("room");
        for (name, now, is_absent) in [
            ("a", 5000, true),
            ("a", 8599, true),
            ("a", 8600, false),
            ("a", 4999, false),
            ("b", 5000, false),
        ] {
            assert_eq!(cache.is_absent(&url(name), now), is_absent, "{name} {now}");
        }
    }

    #[test]
    fn no_name_leads_out_of_the_cache() {
        let (dir, cache) = cache();
        fs::write(dir.path().join("about"), "{}").expect("room");
        for key in ["../..", "..", "/", "a/b", "A"] {
            assert!(cache.entry(key).expect("no fault").is_none(), "{key}");
        }
        let entry = cache.make("a", &about("a", 1)).expect("room");
        fs::remove_file(entry.image_path()).expect("ours");
        std::os::unix::fs::symlink("/etc/passwd", entry.image_path()).expect("room");
        assert!(entry.open_image().is_err());
    }
}
