//! The hot packs that a session fills from.

use std::ffi::OsString;
use std::fs::File;
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brisk_image::hot_pack::HotPack;
use rustix::process::geteuid;

use super::key::Key;
use super::learn::{Learning, Lesson};
use super::learned::LearnedPacks;
use super::log::say;
use super::open::open_file;
use super::{OpenImage, Session};
use crate::ServeOptions;
use crate::error::{Action, Cause, Error, Result, with_reasons};
use crate::fuse::fill::{Fill, FillRoot, PackPlace, first_pack};

/// What a new session puts into the page cache before its programs ask for it: the pages of the
/// images' hot packs.
///
/// The pack of an image is `IMAGE.hot` beside it, or else, and where that is of another image, damaged, or
/// may be of others than could have made the image, the one behind the image, or else one that was
/// learned. An image without one is served as any other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionFill {
    /// The pack of the session's first image, in place of those beside it and behind it.
    pub hot: Option<PathBuf>,
    /// Bytes that are stored for each image, at most. Half of the free memory is a bound always.
    pub budget: Option<u64>,
    /// Threads that decode and store for each image, where they are not as many as usual.
    pub threads: Option<NonZeroUsize>,
    /// A file that is made, for what becomes of the session's first image: it is complete when the
    /// session has ended, and [`PageEvent::list`](crate::PageEvent::list) reads it.
    pub log: Option<PathBuf>,
    /// Learns a pack of each image that has none, and makes one that was learned anew when a launch
    /// asks for much that it has not.
    pub learning: Option<Learning>,
}

/// What a new session would do with the hot packs of its first image.
#[derive(Debug)]
#[non_exhaustive]
pub struct FillPlan {
    /// The pack, or why there is none of use; none if there is no pack.
    pub pack: Option<Result<HotPack>>,
    /// The pack is one that was learned.
    pub learned: bool,
    /// The launch is recorded, to make a pack of it.
    pub learns: bool,
}

impl Session {
    /// Says what a new session would do with the hot packs of its first image.
    ///
    /// # Errors
    ///
    /// `Io` if [`SessionFill::hot`] or an image cannot be opened, and `Place` if an image cannot be
    /// mounted where it should be.
    pub fn plan_fill(&self) -> Result<FillPlan> {
        let plan = || {
            let images = self.open()?;
            let packs = Packs::of_session(self, &images)?
                .into_iter()
                .next()
                .flatten();
            let (Some(packs), Some(image)) = (packs, images.first()) else {
                return Ok(FillPlan {
                    pack: None,
                    learned: false,
                    learns: false,
                });
            };
            let learns = packs.lesson.as_ref().is_some_and(|lesson| !lesson.fills);
            let learned = packs.lesson.as_ref().is_some_and(|lesson| lesson.fills);
            let places = packs.places(&image.path, &image.file)?;
            Ok(FillPlan {
                pack: first_pack(&places, &image.read()?),
                learned,
                learns,
            })
        };
        plan().map_err(|cause| Error::new(Action::Fill, cause).with_path(&self.image.path))
    }
}

/// The packs that an image may have.
pub(super) struct Packs {
    /// With the reason why it is not to be used, if there is one.
    beside: Option<(PathBuf, File, Option<String>)>,
    behind: bool,
    learned: Option<(PathBuf, File)>,
    budget: Option<u64>,
    threads: Option<NonZeroUsize>,
    log: Option<File>,
    lesson: Option<Lesson>,
}

impl Packs {
    /// Those of each image of a session; none of any if nothing is filled.
    pub(super) fn of_session(
        session: &Session,
        images: &[OpenImage],
    ) -> Result<Vec<Option<Self>>, Cause> {
        let Some(fill) = &session.fill else {
            return Ok(images.iter().map(|_| None).collect());
        };
        let learned = fill.learning.as_ref().and_then(|learning| {
            // Whoever asks for it opens it first, to say why it cannot be.
            let packs = LearnedPacks::open(&learning.packs).ok()?;
            // An image that cannot be read is for its server to tell.
            let way = way(session, images).ok()?;
            Some((Arc::new(packs), learning.limit, way))
        });
        let all = images.iter().enumerate().map(|(index, image)| {
            let mut packs = Self::find(fill, &image.path, index == 0)?;
            if let Some((learned, limit, way)) = &learned {
                let mut key = way.clone();
                key.add_number(index as u64);
                packs.learn(image, learned, &key.name(), *limit, session)?;
            }
            Ok(Some(packs))
        });
        all.collect()
    }

    /// Those that somebody made for the image at `path`. `first`: it is the session's first image.
    fn find(fill: &SessionFill, path: &Path, first: bool) -> Result<Self, Cause> {
        let (beside, behind) = match (&fill.hot, first) {
            (Some(hot), true) => {
                let step = format!("open the hot pack {}", hot.display());
                let file = open_file(hot).map_err(|e| Cause::io(step, e))?;
                (Some((hot.clone(), file, None)), false)
            }
            _ => {
                let mut name = OsString::from(path);
                name.push(".hot");
                // One that is not there or cannot be opened is no reason not to start.
                let file = open_file(Path::new(&name)).ok();
                let of_others = file.as_ref().and_then(|file| of_others(file, path));
                (file.map(|file| (name.into(), file, of_others)), true)
            }
        };
        let log = fill.log.as_ref().filter(|_| first).map(|path| {
            let step = format!("make {}", path.display());
            File::create(path).map_err(|e| Cause::io(step, e))
        });
        Ok(Self {
            log: log.transpose()?,
            beside,
            behind,
            learned: None,
            budget: fill.budget,
            threads: fill.threads,
            lesson: None,
        })
    }

    /// If none of them is of use: takes the one that was learned, or else learns one.
    fn learn(
        &mut self,
        image: &OpenImage,
        learned: &Arc<LearnedPacks>,
        key: &str,
        limit: u64,
        session: &Session,
    ) -> Result<(), Cause> {
        let read = image.read()?;
        let of_use = |packs: &Self| {
            let places = packs.places(&image.path, &image.file)?;
            Ok(matches!(first_pack(&places, &read), Some(Ok(_))))
        };
        if of_use(self)? {
            return Ok(());
        }
        self.learned = learned.pack(key);
        let fills = of_use(self)?;
        if !fills {
            // Nothing is filled: so the recording is to be exact.
            (self.beside, self.behind, self.learned) = (None, false, None);
        }
        let lesson = Lesson::new(learned, key, limit, &image.path, &session.command, fills);
        self.lesson = Some(lesson.map_err(|e| Cause::io("watch the program", e))?);
        Ok(())
    }

    /// The descriptors of those that are open.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let beside = self.beside.iter().map(|(_, file, _)| file);
        let learned = self.learned.iter().map(|(_, file)| file);
        let lesson = self.lesson.iter().flat_map(Lesson::descriptors);
        let files = beside.chain(learned).chain(&self.log);
        files.map(AsRawFd::as_raw_fd).chain(lesson)
    }

    /// Where to look for the pack of the image in `file`, in order.
    fn places(&self, path: &Path, file: &File) -> Result<Vec<PackPlace>, Cause> {
        let hold = |file: &File| {
            let file = file.try_clone();
            file.map_err(|e| Cause::io("hold the hot pack", e))
        };
        let mut places = Vec::new();
        if let Some((path, file, of_others)) = &self.beside {
            places.push(PackPlace::Beside {
                path: path.clone(),
                file: hold(file)?,
                of_others: of_others.clone(),
            });
        }
        if self.behind {
            let (path, file) = (path.to_owned(), hold(file)?);
            places.push(PackPlace::Behind { path, file });
        }
        if let Some((path, file)) = &self.learned {
            places.push(PackPlace::Beside {
                path: path.clone(),
                file: hold(file)?,
                of_others: None,
            });
        }
        Ok(places)
    }

    /// Has `options` fill, and record, a mount of the image at `path` on `place`, with this `root`.
    /// Returns the lesson.
    pub(super) fn apply(
        self,
        options: &mut ServeOptions,
        path: &Path,
        image: &File,
        root: FillRoot,
        place: &Path,
    ) -> Option<Lesson> {
        if let Some((_, file)) = &self.learned
            && let Err(e) = LearnedPacks::touch(file)
        {
            say(&format!(
                "the time of a learned hot pack cannot be set: {e}"
            ));
        }
        match self.places(path, image) {
            Ok(places) if !places.is_empty() => {
                let mut fill = Fill::new(places, root, tell).budget(self.budget);
                if let Some(threads) = self.threads {
                    fill = fill.threads(threads.get());
                }
                if let Some(log) = self.log {
                    fill = fill.log(log);
                }
                options.fill = Some(Arc::new(fill));
            }
            Ok(_) => {}
            Err(e) => say(&format!("nothing is filled: {e}")),
        }
        options.recorder = self
            .lesson
            .as_ref()
            .and_then(|lesson| lesson.recorder(place));
        self.lesson
    }
}

/// What launches have in common that share what is learned, but for the image that it is about: the
/// images, where they are, and whether the first is the root directory.
fn way(session: &Session, images: &[OpenImage]) -> Result<Key, Cause> {
    let mut way = Key::of_launches();
    way.add_number(session.root.into());
    for image in images {
        // Its tables say nothing of contents that changed and are as long as before, with their times.
        way.add_image(&image.file, image.offset)
            .map_err(|e| Cause::io("identify the image", e))?;
        way.add_path(image.at.as_deref());
    }
    Ok(way)
}

/// By what the pack in `file`, which lies beside the image at `image` and was not asked for, may be of others;
/// none if nobody has made it but those who could have made the image: what is in a pack comes into the
/// memory of programs.
fn of_others(file: &File, image: &Path) -> Option<String> {
    let Ok((pack, image)) = file
        .metadata()
        .and_then(|pack| Ok((pack, image.metadata()?)))
    else {
        return Some("it cannot be examined".to_owned());
    };
    let owner = pack.uid();
    if ![0, geteuid().as_raw(), image.uid()].contains(&owner) {
        return Some(format!(
            "its owner is user {owner}, allowed are root, you, and the owner of the image"
        ));
    }
    // Who may write the image needs no pack: everybody, or its group.
    let mut writers = image.mode();
    if pack.gid() != image.gid() {
        writers &= !0o020;
    }
    let others = pack.mode() & 0o022 & !writers;
    (others != 0).then(|| {
        format!(
            "its mode is {:o}, so that others may write it who may not write the image; allowed is {:o}",
            pack.mode() & 0o7777,
            pack.mode() & 0o7777 & !others
        )
    })
}

/// Writes an error and its reasons to the session's log.
fn tell(error: &Error) {
    say(&with_reasons(error));
}
