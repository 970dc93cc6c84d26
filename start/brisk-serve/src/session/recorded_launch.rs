//! Records a launch while it is served, to make a hot pack from it.
//!
//! Four processes take part. The *server* records. When the launch is over, it hands the recording to the
//! *guardian*, which starts the *learner*. The learner is a process of low priority. It starts another, which reads the
//! image itself, compresses, and writes the pack into a directory of its own. The learner gives the pack its name. So it
//! takes no time and no lock from the threads that answer. If the session ends meanwhile, the learner goes on.

use std::error::Error;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use brisk_image::profile::{PAGE, Profile, RootKind};
use brisk_image::{Image, Limits};
use brisk_launch::error::with_reasons;
use brisk_launch::learn::rules::{LAUNCH, Recorded};
use brisk_launch::{LearnedPacks, StartReads};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{PidfdFlags, getpid, nice, pidfd_open};

use super::image_source::ImageSource;
use super::log::say;
use super::message::send;
use crate::hot_pack::fill_counts::FillCounts;
use crate::hot_pack::pack_maker::{Kept, PackKeeper, make, pages};

use crate::{Recorder, Recording, ServeOptions};

/// The priority of the learner, which is the lowest.
const LOWEST: i32 = 19;

/// A launch to learn from, for one image.
pub(super) struct RecordedLaunch {
    packs: Arc<LearnedPacks>,
    key: String,
    limit: u64,
    /// The image's name.
    image: PathBuf,
    /// The program, without its arguments: they may be secret.
    program_name: Option<OsString>,
    /// The session's first program.
    program: OwnedFd,
    recording: Arc<Recording>,
    /// How the launch is recorded.
    recorded: Recorded,
    /// Whether the recording was handed over, or is not worth that.
    over: Mutex<bool>,
}

impl RecordedLaunch {
    /// A launch whose first program this process will become.
    pub(super) fn new(
        packs: &Arc<LearnedPacks>,
        key: &str,
        limit: u64,
        image: &Path,
        command: &[OsString],
        recorded: Recorded,
    ) -> io::Result<Self> {
        Ok(Self {
            packs: Arc::clone(packs),
            key: key.to_owned(),
            limit,
            image: image.to_owned(),
            program_name: command.first().cloned(),
            program: pidfd_open(getpid(), PidfdFlags::empty())?,
            recording: Recording::start_brief(),
            recorded,
            over: Mutex::new(false),
        })
    }

    pub(super) fn descriptors(&self) -> [RawFd; 2] {
        [self.packs.fd().as_raw_fd(), self.program.as_raw_fd()]
    }

    /// How the launch is recorded.
    pub(super) fn recorded(&self) -> Recorded {
        self.recorded
    }

    /// The recorder for the server of the image at `place`.
    pub(super) fn recorder(&self, place: &Path) -> Option<Arc<Recorder>> {
        self.recording.add(place, RootKind::Image)
    }

    /// Waits for a message of the guardian. If the launch ends first, hands the recording over.
    pub(super) fn wait(&self, guardian: &OwnedFd, options: &ServeOptions, image: &Image) {
        while !*self.over.lock().unwrap_or_else(PoisonError::into_inner) {
            let left = LAUNCH.saturating_sub(self.recording.elapsed());
            let timeout = Timespec {
                // The number of seconds comes from a constant.
                tv_sec: left.as_secs().cast_signed(),
                tv_nsec: left.subsec_nanos().into(),
            };
            let mut fds = [&self.program, guardian].map(|fd| PollFd::new(fd, PollFlags::IN));
            // A signal, or a short lack of memory: everything is checked again.
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

    /// Ends the recording, and gives it to the guardian if there is something to learn. After that, `image`
    /// is served like any other.
    pub(super) fn hand_over(&self, guardian: &OwnedFd, options: &ServeOptions, image: &Image) {
        let mut over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *over, true) {
            return;
        }
        image.set_block_cache(options.block_cache);
        let hand_over = || -> io::Result<()> {
            let by = match self.recording.elapsed() < LAUNCH {
                true => "exit".to_owned(),
                false => format!("after {} s", LAUNCH.as_secs()),
            };
            if let Some(fill) = &options.fill {
                fill.settle(LAUNCH);
            }
            let filled = options.counters.counts().fill;
            if self.recorded == Recorded::Missed {
                let reads = start_reads(filled);
                let numbers = [reads.ahead, reads.own].map(|bytes| bytes.to_string());
                send(guardian, &["filled", &numbers[0], &numbers[1]], &[])?;
            }
            match self.end_recording(by, filled.pack)? {
                Some(profile) => {
                    let text = text_of(&profile)?;
                    Ok(send(guardian, &["recorded"], &[text.as_fd()])?)
                }
                None => Ok(()),
            }
        };
        if let Err(e) = hand_over() {
            say(&format!("nothing is learned from this launch: {e}"));
        }
    }

    /// The recording. None if there is nothing new in it. `in_pack`: how many pages the filled pack has.
    fn end_recording(&self, by: String, in_pack: u64) -> io::Result<Option<Profile>> {
        let recorded = {
            let program = self.program_name.iter().cloned().collect();
            self.recording.cut(program, by)
        };
        let Some(recorded) = recorded.map_err(io::Error::other)? else {
            return Ok(None);
        };
        let enough = self.recorded.is_enough(pages(&recorded.profile), in_pack);
        Ok(enough.then_some(recorded.profile))
    }

    /// Notes for people what the fill has gained, as the server says.
    pub(super) fn note_fill(&self, ahead: &[u8], own: &[u8]) {
        let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse().ok();
        let (Some(ahead), Some(own)) = (number(ahead), number(own)) else {
            return;
        };
        let noted = self.packs.note_fill(&self.key, StartReads { ahead, own });
        if let Err(e) = noted {
            let why = self.packs.named(&with_reasons(&e), self.packs.fd());
            say(&format!("what the fill has gained is not noted: {why}"));
        }
    }

    /// The work of the learner's process. Returns the exit status.
    ///
    /// The learner decodes nothing: another process makes the pack, and can change no other.
    pub(super) fn learn(&self, source: ImageSource, recorded: OwnedFd) -> i32 {
        // If the system refuses this, other programs are a little slower for a while.
        nice(LOWEST).ok();
        let keeper = PackKeeper {
            packs: &self.packs,
            key: &self.key,
            limit: self.limit,
            image: &self.image,
        };
        let named = self.image.display();
        let image = match source.fd().try_clone_to_owned() {
            Ok(image) => image,
            Err(e) => {
                say(&format!("nothing is learned from {named}: {e}"));
                return 1;
            }
        };
        let kept = keeper.keep(image.as_fd(), |staging, earlier| {
            let made = profile_in(recorded)
                .and_then(|launch| make(&source.open()?, earlier, self.recorded, launch, staging));
            made.map_err(|e| {
                let why = self.packs.named(&with_reasons(&*e), staging.fd());
                say(&format!("nothing is learned from {named}: {why}"));
            })
        });
        match kept {
            Ok(Kept::AsMade) => 0,
            Ok(Kept::TooLarge(bytes)) => {
                say(&format!(
                    "the hot pack learned from {named} has {bytes} bytes, allowed are {}, so it is not kept; \
                     allow more with --auto-limit",
                    self.limit
                ));
                0
            }
            Ok(Kept::Failed) => 1,
            Err(e) => {
                let why = self.packs.named(&with_reasons(&e), self.packs.fd());
                say(&format!("nothing is learned from {named}: {why}"));
                1
            }
        }
    }
}

/// What a start from an image that is filled has read.
fn start_reads(filled: FillCounts) -> StartReads {
    let not_filled = [filled.late, filled.evicted, filled.strayed];
    let own = not_filled.into_iter().fold(0, u64::saturating_add);
    StartReads {
        ahead: filled.stored.saturating_mul(PAGE),
        own: own.saturating_mul(PAGE),
    }
}

/// The text of a profile, in a file without a name.
fn text_of(profile: &Profile) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("brisk-recorded", MemfdFlags::CLOEXEC)?);
    file.write_all(&profile.to_text())?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file.into())
}

/// The profile in such a file. The server that sent it reads hostile images, so the file may be any other, or
/// have no end.
fn profile_in(file: OwnedFd) -> Result<Profile, Box<dyn Error>> {
    Ok(Profile::from_reader(
        File::from(file),
        &Limits::of_profiles(),
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_without_end_is_too_long() {
        let endless = File::open("/dev/zero").expect("it is there");
        let error = profile_in(endless.into()).expect_err("it has no end");
        assert_eq!(
            error.to_string(),
            "a profile needs 1073741856, which passes the limit of 1073741824"
        );
    }
}
