//! What a session does with hot packs.

use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::sync::Arc;

use brisk_image::hot_pack::HotPack;
use brisk_launch::LearnedPacks;
use brisk_launch::error::{Cause, Error, Result, with_reasons};
use brisk_launch::key::Key;
use brisk_launch::learn::rules::Recorded;

use super::log::say;
use super::open_image::{OpenImage, OpenRemote};
use super::program::{Session, SessionFill};
use super::recorded_launch::RecordedLaunch;
use crate::ServeOptions;
use crate::action::Action;
use crate::hot_pack::candidate::{PackCandidate, first_pack};
use crate::hot_pack::choice::Choice;
use crate::hot_pack::fill::{Fill, FillRoot};
use crate::hot_pack::fill_sources::FillSources;

/// What a new session would do with the hot packs of its first image.
#[derive(Debug)]
#[non_exhaustive]
pub struct FillPlan {
    /// The pack, or why it is not usable. None if there is no pack.
    pub pack: Option<Result<HotPack>>,
    /// Whether pages come from the pack itself, and not from the image because the two were not compared yet.
    pub is_compared: bool,
    /// Whether the pack is a learned one.
    pub learned: bool,
    /// Whether the launch is recorded, to make a pack from it.
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
            let fills = ImageFill::of_session(self, &images)?;
            let fill = fills.into_iter().next().flatten();
            let (Some(fill), Some(image)) = (fill, images.first()) else {
                return Ok(FillPlan {
                    pack: None,
                    is_compared: false,
                    learned: false,
                    learns: false,
                });
            };
            let recorded = fill.launch.as_ref().map(|launch| launch.recorded());
            let usable = first_pack(fill.candidates(), &image.read()?);
            Ok(FillPlan {
                is_compared: matches!(&usable, Some(Ok(usable)) if usable.is_compared),
                pack: usable.map(|usable| usable.map(|usable| usable.pack)),
                learned: recorded == Some(Recorded::Missed),
                learns: recorded == Some(Recorded::All),
            })
        };
        plan().map_err(|cause| Error::new(Action::Fill, cause).with_path(&self.image.path))
    }
}

/// What a session does with the hot packs of one image.
pub(super) struct ImageFill {
    /// None if no pack can be used yet.
    fill: Option<Fill>,
    /// The launch, if brisk learns from it.
    launch: Option<RecordedLaunch>,
}

impl ImageFill {
    /// For each image of a session. None for each if nothing is filled.
    pub(super) fn of_session(
        session: &Session,
        images: &[OpenImage],
    ) -> Result<Vec<Option<Self>>, Cause> {
        let Some(fill) = &session.fill else {
            return Ok(images.iter().map(|_| None).collect());
        };
        let learned = fill.learning.as_ref().and_then(|learning| {
            // The caller has opened them before, and has said why if that failed.
            let packs = LearnedPacks::open(&learning.packs).ok()?;
            // If an image cannot be read, its server says so.
            let way = way(session, images).ok()?;
            Some((Arc::new(packs), learning.limit, way))
        });
        let all = images.iter().enumerate().map(|(index, image)| {
            let mut candidates = made_packs(fill, image, index == 0)?;
            let launch = match &learned {
                // What arrives in any order is no launch to learn from.
                Some((packs, limit, way)) if image.remote.is_none() => {
                    let mut key = way.clone();
                    key.add_number(index as u64);
                    let key = key.name();
                    learn(&mut candidates, image, packs, &key, *limit, session)?
                }
                _ => None,
            };
            let fill = match candidates.is_empty() {
                true => None,
                false => Some(of_candidates(fill, candidates, image, index == 0)?),
            };
            Ok(Some(Self { fill, launch }))
        });
        all.collect()
    }

    fn candidates(&self) -> &[PackCandidate] {
        self.fill.as_ref().map_or(&[], Fill::candidates)
    }

    /// The descriptors that it needs.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let files = self.fill.iter().flat_map(Fill::descriptors);
        let launch = self.launch.iter().flat_map(RecordedLaunch::descriptors);
        files.map(|file| file.as_raw_fd()).chain(launch)
    }

    /// Sets `options` so that a mount of the image on `place`, with this `root`, is filled and recorded.
    /// Returns the launch to learn from.
    pub(super) fn apply(
        self,
        options: &mut ServeOptions,
        root: FillRoot,
        place: &Path,
    ) -> Option<RecordedLaunch> {
        let launch = self.launch.as_ref();
        let missed = launch.filter(|launch| launch.recorded() == Recorded::Missed);
        // The learned pack is the last candidate, and the only usable one.
        if let Some(learned) = self.candidates().last().filter(|_| missed.is_some())
            && let Err(e) = LearnedPacks::touch(learned.file())
        {
            say(&format!(
                "the time of a learned hot pack cannot be set: {e}"
            ));
        }
        options.recorder = launch.and_then(|launch| launch.recorder(place));
        options.fill = self.fill.map(|fill| Arc::new(fill.at(root)));
        self.launch
    }
}

/// Packs that somebody made for `image`. `first`: it is the session's first image.
fn made_packs(
    fill: &SessionFill,
    image: &OpenImage,
    first: bool,
) -> Result<Vec<PackCandidate>, Cause> {
    if let (Some(hot), true) = (&fill.hot, first) {
        let pack = match fill.hot_is_list {
            true => PackCandidate::list(hot)?,
            false => PackCandidate::named(hot)?,
        };
        return Ok(vec![pack]);
    }
    if let Some(pack) = image.pack.as_ref().and_then(|pack| pack.pack()) {
        return Ok(vec![PackCandidate::signed(pack)?]);
    }
    let file = image.file.try_clone();
    let file = file.map_err(|e| Cause::io("hold the image", e))?;
    if image.remote.is_some() {
        return Ok(vec![PackCandidate::arriving(image.path.clone(), file)]);
    }
    let beside = PackCandidate::beside(&image.path, &file, image.offset);
    let behind = PackCandidate::behind(image.path.clone(), file);
    Ok(beside.into_iter().chain([behind]).collect())
}

/// Uses the learned pack, or lets the session learn one, unless somebody made a usable pack. Returns the launch to learn from.
fn learn(
    candidates: &mut Vec<PackCandidate>,
    image: &OpenImage,
    packs: &Arc<LearnedPacks>,
    key: &str,
    limit: u64,
    session: &Session,
) -> Result<Option<RecordedLaunch>, Cause> {
    let read = image.read()?;
    let is_of_use =
        |candidates: &[PackCandidate]| matches!(first_pack(candidates, &read), Some(Ok(_)));
    let made = is_of_use(candidates);
    let learned = match made {
        true => None,
        false => packs.pack(key),
    };
    let learned = learned.map(|(path, file)| PackCandidate::of(path, file));
    let learned = learned.filter(|learned| is_of_use(std::slice::from_ref(learned)));
    let recorded = match (Choice::of(made, Some(learned.is_some())), learned) {
        (Choice::Made, _) => return Ok(None),
        (Choice::Learned, Some(learned)) => {
            candidates.push(learned);
            Recorded::Missed
        }
        (Choice::Learned | Choice::Learn, _) => {
            candidates.clear();
            Recorded::All
        }
    };
    let launch = RecordedLaunch::new(packs, key, limit, &image.path, &session.command, recorded);
    launch
        .map(Some)
        .map_err(|e| Cause::io("watch the program", e))
}

/// The fill that the session asks for. `first`: it is of the session's first image.
fn of_candidates(
    asked: &SessionFill,
    candidates: Vec<PackCandidate>,
    image: &OpenImage,
    first: bool,
) -> Result<Fill, Cause> {
    let mut fill = Fill::new(candidates, tell).budget(asked.budget);
    let parking = |remote: &Arc<OpenRemote>| Arc::clone(&remote.parking);
    let (image, pack) = (image.remote.as_ref(), image.pack.as_ref());
    fill = fill.of_arriving(FillSources::new(image.map(parking), pack.map(parking)));
    if let Some(threads) = asked.threads {
        fill = fill.threads(threads.get());
    }
    if let Some(path) = asked.log.as_ref().filter(|_| first) {
        let step = format!("make {}", path.display());
        fill = fill.log(File::create(path).map_err(|e| Cause::io(step, e))?);
    }
    Ok(fill)
}

/// What launches must have in common to share what is learned: the images, their places, and whether the
/// first is the root directory. The number of the image that the pack is for is added to it.
fn way(session: &Session, images: &[OpenImage]) -> Result<Key, Cause> {
    let mut way = Key::of_launches();
    way.add_number(session.root.into());
    for image in images {
        // The tables of an image do not distinguish files with the same length and time but other contents.
        way.add_image(&image.file, image.offset)
            .map_err(|e| Cause::io("identify the image", e))?;
        way.add_path(image.at.as_deref());
    }
    Ok(way)
}

/// Writes an error and its reasons to the session's log.
fn tell(error: &Error) {
    say(&with_reasons(error));
}
