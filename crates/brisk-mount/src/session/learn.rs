//! Learning what a launch asks for while it is served, and making a hot pack of it.
//!
//! Three processes have a part. The *server* records, and when the launch is over hands what it has
//! recorded to the *guardian*. That starts the *learner*, a process of low priority that reads the
//! image by itself, compresses, writes the pack and ends: nothing of it takes time from the threads
//! that answer, or a lock from them. The learner outlives a session that ends meanwhile.

use std::error::Error;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use brisk_image::hot_pack::HotPackWriter;
use brisk_image::profile::{Origin, Profile, RootKind};
use brisk_image::{Image, Limits};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{PidfdFlags, getpid, nice, pidfd_open};

use super::learned::LearnedPacks;
use super::log::say;
use super::wire::send;
use crate::error::with_reasons;
use crate::{Recorder, Recording, ServeOptions};

/// What a launch may take. A launch is over when the session's first program has ended, or after
/// this time: what a program asks for later, it asks for because somebody uses it.
const LAUNCH: Duration = Duration::from_secs(15);

/// A pack is made anew when a launch missed more than one page for so many in the pack.
const STRAYED: u64 = 10;

/// Launches of which one pack is made. What is in it is taken to be needed ever after, so one of
/// launches that went on to miss much is forgotten, and learned from nothing.
const MOST_RUNS: u32 = 8;

/// The priority of the learner, below which there is none.
const LOWEST: i32 = 19;

/// How a session without a hot pack learns one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Learning {
    /// The directory of the user's [`LearnedPacks`](crate::LearnedPacks).
    pub packs: PathBuf,
    /// Bytes that all of them may take; those not used for longest go first.
    pub limit: u64,
}

/// A launch that is to be learned from, of one image.
pub(super) struct Lesson {
    packs: Arc<LearnedPacks>,
    key: String,
    limit: u64,
    /// The image, by its name.
    image: PathBuf,
    command: Vec<OsString>,
    /// The session's first program.
    program: OwnedFd,
    recording: Arc<Recording>,
    /// There is a pack, and only what it has not is recorded.
    pub(super) fills: bool,
    /// What was recorded was handed over, or is not worth it.
    over: Mutex<bool>,
}

impl Lesson {
    /// A lesson whose first program this process will become.
    pub(super) fn new(
        packs: &Arc<LearnedPacks>,
        key: &str,
        limit: u64,
        image: &Path,
        command: &[OsString],
        fills: bool,
    ) -> io::Result<Self> {
        Ok(Self {
            packs: Arc::clone(packs),
            key: key.to_owned(),
            limit,
            image: image.to_owned(),
            command: command.to_vec(),
            program: pidfd_open(getpid(), PidfdFlags::empty())?,
            recording: Recording::start_brief(),
            fills,
            over: Mutex::new(false),
        })
    }

    pub(super) fn descriptors(&self) -> [RawFd; 2] {
        [self.packs.fd().as_raw_fd(), self.program.as_raw_fd()]
    }

    /// What the server of the image at `place` records with.
    pub(super) fn recorder(&self, place: &Path) -> Option<Arc<Recorder>> {
        self.recording.add(place, RootKind::Image)
    }

    /// Waits until there is something to hear from the guardian. If the launch is over before, hands
    /// over what was recorded.
    pub(super) fn wait(&self, guardian: &OwnedFd, options: &ServeOptions, image: &Image) {
        while !*self.over.lock().unwrap_or_else(PoisonError::into_inner) {
            let left = LAUNCH.saturating_sub(self.recording.elapsed());
            let timeout = Timespec {
                // Seconds of a constant.
                tv_sec: left.as_secs().cast_signed(),
                tv_nsec: left.subsec_nanos().into(),
            };
            let mut fds = [&self.program, guardian].map(|fd| PollFd::new(fd, PollFlags::IN));
            // A signal, or too little memory for a moment: all is looked at again.
            let Ok(happened) = poll(&mut fds, Some(&timeout)) else {
                continue;
            };
            let [program, guardian_speaks] = fds.map(|fd| !fd.revents().is_empty());
            if program || happened == 0 {
                self.hand_over(guardian, options, image);
            }
            if guardian_speaks {
                return;
            }
        }
    }

    /// Cuts the recording, and gives it to the guardian if there is anything to learn from it. From here
    /// on `image` is served as any other.
    pub(super) fn hand_over(&self, guardian: &OwnedFd, options: &ServeOptions, image: &Image) {
        let mut over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *over, true) {
            return;
        }
        image.set_block_cache(options.block_cache);
        let handed = self.recorded(options).and_then(|profile| match profile {
            Some(profile) => Ok(send(
                guardian,
                &["recorded"],
                &[text_of(&profile)?.as_fd()],
            )?),
            None => Ok(()),
        });
        if let Err(e) = handed {
            say(&format!("nothing is learned from this launch: {e}"));
        }
    }

    /// What was recorded; none if there is nothing new in it.
    fn recorded(&self, options: &ServeOptions) -> io::Result<Option<Profile>> {
        let by = match self.recording.elapsed() < LAUNCH {
            true => "exit".to_owned(),
            false => format!("after {} s", LAUNCH.as_secs()),
        };
        if let Some(fill) = &options.fill {
            fill.settle(LAUNCH);
        }
        let recorded = self.recording.cut(self.command.clone(), by);
        let Some(recorded) = recorded.map_err(io::Error::other)? else {
            return Ok(None);
        };
        let pages = pages(&recorded.profile);
        let enough = match self.fills {
            false => pages > 0,
            true => {
                let pack = options.served.counts().fill.pack;
                pack > 0 && pages.saturating_mul(STRAYED) > pack
            }
        };
        Ok(enough.then_some(recorded.profile))
    }

    /// What the learner's process does. Returns the exit status.
    pub(super) fn learn(&self, image: &Image, recorded: OwnedFd) -> i32 {
        // As far as the system lets it: it is only slower for others otherwise.
        nice(LOWEST).ok();
        match self.make_pack(image, recorded) {
            Ok(()) => 0,
            Err(e) => {
                say(&format!(
                    "nothing is learned of {}: {}",
                    self.image.display(),
                    self.packs.named(&with_reasons(&*e))
                ));
                1
            }
        }
    }

    fn make_pack(&self, image: &Image, recorded: OwnedFd) -> Result<(), Box<dyn Error>> {
        let mut text = Vec::new();
        File::from(recorded).read_to_end(&mut text)?;
        let recorded = Profile::from_text(&text, &Limits::of_profiles())?;
        drop(text);
        let known = self.packs.profile(&self.key);
        let known = known.filter(|known| known.runs() < MOST_RUNS);
        // The same image, though it may have been mounted elsewhere.
        let place = recorded.roots().first().map(|root| root.path.clone());
        let known = match (known, place) {
            (Some(known), Some(place)) => Some(known.moved(0, place)?),
            (known, _) => known,
        };
        let profile = match (known, self.fills) {
            (None, false) => recorded,
            // A launch of which the pack before had too little.
            (Some(known), false) => Profile::merge(&[known, recorded])?,
            (Some(known), true) if pages(&recorded) <= pages(&known) => {
                known.with_missed(&recorded)?
            }
            // What was missed as the kernel reads ahead would be most of it: the next launch fills
            // nothing, and is recorded exactly.
            (Some(_), true) => return Ok(self.packs.remove_pack(&self.key)?),
            (None, true) => return Ok(self.packs.remove(&self.key)?),
        };
        self.packs.name_image(&self.key, &self.image)?;
        // The pack is last: without it, the others are nothing.
        profile.write(self.packs.reach(&format!("{}.profile", self.key)))?;
        // The identity of the image tells whether it is the same, and a large file of which little is
        // needed is not read whole.
        let summary = HotPackWriter::new().threads(1).digests(false).write(
            &profile,
            &Origin::image(image),
            self.packs.reach(&format!("{}.hot", self.key)),
        )?;
        // By itself, or it would be the last of all to go.
        if summary.file_bytes > self.limit {
            self.packs.remove(&self.key)?;
            say(&format!(
                "the hot pack learned of {} has {} bytes, allowed are {}: it is not kept; allow more \
                 with --auto-limit",
                self.image.display(),
                summary.file_bytes,
                self.limit
            ));
        }
        Ok(self.packs.keep_within(self.limit)?)
    }
}

/// The pages that a launch asked for.
fn pages(profile: &Profile) -> u64 {
    let demand = profile.demand_by_root();
    let pages = demand.iter().map(|demand| demand.pages);
    pages.fold(0, u64::saturating_add)
}

/// The text of a profile, in a file without a name.
fn text_of(profile: &Profile) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("brisk-recorded", MemfdFlags::CLOEXEC)?);
    file.write_all(&profile.to_text())?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file.into())
}
