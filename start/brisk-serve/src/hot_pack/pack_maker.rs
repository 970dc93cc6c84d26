//! Makes a hot pack from the recording of a launch.

use std::error::Error;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

use brisk_image::Image;
use brisk_image::hot_pack::HotPackWriter;
use brisk_image::profile::{Origin, Profile};
use brisk_launch::learn::rules::{KnownOfImage, Lesson, Recorded};
use brisk_launch::learn::staging::Staging;
use brisk_launch::sys::process::start_child;
use brisk_launch::{LearnedLaunch, LearnedPacks};
use rustix::process::{Signal, WaitOptions, set_parent_process_death_signal, waitpid};

use crate::confinement::{Files, Role, confine};

/// The names of a pack and of its profile while they are made.
const HOT: &str = "hot";
const PROFILE: &str = "profile";

/// The pages that a launch asked for.
pub(crate) fn pages(profile: &Profile) -> u64 {
    let demand = profile.demand_by_root();
    let pages = demand.iter().map(|demand| demand.pages);
    pages.fold(0, u64::saturating_add)
}

/// What a launch changes about what is known of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Made {
    /// There is a new pack, with its profile.
    Pack,
    /// The pack goes, and its profile stays.
    NoPack,
    /// All goes.
    Nothing,
}

impl Made {
    const ALL: [Self; 3] = [Self::Pack, Self::NoPack, Self::Nothing];

    /// The exit status of a process that has made it. None has that of a panic, or of a process that failed.
    fn status(self) -> i32 {
        match self {
            Self::Pack => 0,
            Self::NoPack => 10,
            Self::Nothing => 11,
        }
    }
}

/// Makes a pack in `staging` from a launch of `image`, and from the profile of earlier ones.
pub(crate) fn make(
    image: &Image,
    earlier: Option<Profile>,
    recorded: Recorded,
    launch: Profile,
    staging: &Staging<'_>,
) -> Result<Made, Box<dyn Error>> {
    let known = earlier.as_ref().map(|earlier| KnownOfImage {
        runs: earlier.runs(),
        pages: pages(earlier),
    });
    let lesson = Lesson::of(known, recorded, pages(&launch));
    let profile = match (lesson, earlier) {
        (Lesson::Make, _) => launch,
        (Lesson::Merge, Some(earlier)) => Profile::merge(&[moved(earlier, &launch)?, launch])?,
        (Lesson::AddMissed, Some(earlier)) => moved(earlier, &launch)?.with_missed(&launch)?,
        (Lesson::RecordAgain, _) => return Ok(Made::NoPack),
        // A launch can only be added to what is known.
        (Lesson::Forget, _) | (Lesson::Merge | Lesson::AddMissed, None) => {
            return Ok(Made::Nothing);
        }
    };
    profile.write(staging.reach(PROFILE))?;
    // The identity of the image says whether it is the same, so digests are not needed. For a digest, a
    // large file would be read completely, even if little of it is in the pack.
    HotPackWriter::new().threads(1).digests(false).write(
        &profile,
        &Origin::image(image),
        staging.reach(HOT),
    )?;
    Ok(Made::Pack)
}

/// `earlier`, with the image's place at this launch, because it may be mounted elsewhere each time.
fn moved(earlier: Profile, launch: &Profile) -> brisk_image::Result<Profile> {
    match launch.roots().first() {
        Some(root) => earlier.moved(0, root.path.clone()),
        None => Ok(earlier),
    }
}

/// Keeps the pack of one image.
pub(crate) struct PackKeeper<'a> {
    pub(crate) packs: &'a LearnedPacks,
    pub(crate) key: &'a str,
    /// How many bytes all packs may take.
    pub(crate) limit: u64,
    /// The image's name.
    pub(crate) image: &'a Path,
}

/// What became of a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// What was made is kept, or removed as it should be.
    AsMade,
    /// The pack has so many bytes, more than all packs may have, and was not kept.
    TooLarge(u64),
    /// Nothing has changed, because the process that made it has failed. It has said why, unless it was killed.
    Failed,
}

impl PackKeeper<'_> {
    /// Has another process make a pack with `make`, and keeps it. That process can read `readable`, and write nothing but
    /// what it makes. The calling process must have one thread.
    ///
    /// # Errors
    ///
    /// If the directory cannot be written, or no process can be started.
    pub(crate) fn keep(
        &self,
        readable: BorrowedFd<'_>,
        make: impl FnOnce(&Staging<'_>, Option<Profile>) -> Result<Made, ()>,
    ) -> io::Result<Kept> {
        let staging = Staging::make(self.packs.fd())?;
        let earlier = self.packs.open_record(self.key);
        let maker = start_child(|| {
            // Only for people, so a failure does not matter.
            rustix::thread::set_name(c"brisk-maker").ok();
            // What a process makes whose pack nobody keeps is work for nothing.
            set_parent_process_death_signal(Some(Signal::KILL)).ok();
            make_confined(&staging, readable, earlier, make)
        })?;
        let status = loop {
            match waitpid(Some(maker), WaitOptions::empty()) {
                Ok(Some((_, status))) => break status.exit_status(),
                Ok(None) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        };
        self.keep_made(&staging, status)
    }

    /// Does what the exit status of the other process says.
    fn keep_made(&self, staging: &Staging<'_>, status: Option<i32>) -> io::Result<Kept> {
        let made = Made::ALL.into_iter().find(|m| status == Some(m.status()));
        match made {
            None => Ok(Kept::Failed),
            Some(Made::NoPack) => self.packs.remove_pack(self.key).map(|()| Kept::AsMade),
            Some(Made::Nothing) => self.packs.remove(self.key).map(|()| Kept::AsMade),
            Some(Made::Pack) => self.keep_pack(staging),
        }
    }

    fn keep_pack(&self, staging: &Staging<'_>) -> io::Result<Kept> {
        let bytes = staging.len(HOT)?;
        if bytes > self.limit {
            // Otherwise it would be the last of all to be deleted.
            self.packs.remove(self.key)?;
            return Ok(Kept::TooLarge(bytes));
        }
        // The pack comes last, because the record means nothing without it.
        let profile = staging.open(PROFILE)?;
        self.packs.write_of_image(self.key, self.image, profile)?;
        staging.keep(HOT, &format!("{}.{HOT}", self.key))?;
        self.packs.keep_within(self.limit)?;
        Ok(Kept::AsMade)
    }
}

/// In the process that makes a pack: limits it for ever, and makes the pack. Returns its exit status.
fn make_confined(
    staging: &Staging<'_>,
    readable: BorrowedFd<'_>,
    earlier: Option<LearnedLaunch>,
    make: impl FnOnce(&Staging<'_>, Option<Profile>) -> Result<Made, ()>,
) -> i32 {
    let files = Files {
        read: vec![readable],
        write: Some(staging.fd()),
    };
    confine(Role::Learner, &files);
    make(staging, earlier.and_then(|earlier| earlier.profile().ok())).map_or(1, Made::status)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsFd;
    use std::thread;

    use super::*;

    fn packs() -> (tempfile::TempDir, LearnedPacks) {
        let dir = tempfile::tempdir().expect("a directory");
        let packs = LearnedPacks::open(&dir.path().join("a/hot")).expect("room");
        (dir, packs)
    }

    fn keeper(packs: &LearnedPacks) -> PackKeeper<'_> {
        PackKeeper {
            packs,
            key: "own",
            limit: 1000,
            image: Path::new("/app.img"),
        }
    }

    fn names(packs: &LearnedPacks) -> Vec<String> {
        let entries = fs::read_dir(packs.reach("")).expect("a directory");
        let mut names: Vec<_> = entries
            .map(|entry| entry.expect("read").file_name().display().to_string())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn who_makes_a_pack_can_change_no_other() {
        let landlock = crate::confinement::landlock_version();
        assert!(landlock.is_some(), "this needs Landlock");
        let (dir, packs) = packs();
        let outside = dir.path().join("secret");
        fs::write(&outside, "").expect("room");
        fs::write(packs.reach("other.hot"), "other").expect("room");
        let staging = Staging::make(packs.fd()).expect("room");
        let image = File::open("/dev/null").expect("it is there");
        let tries = |staging: &Staging<'_>, _| {
            let other = packs.reach("other.hot");
            let done = [
                File::create(staging.reach(HOT)).is_ok(),
                File::create(&other).is_ok(),
                fs::rename(staging.reach(HOT), &other).is_ok(),
                fs::remove_file(&other).is_ok(),
                File::create(packs.reach("third.hot")).is_ok(),
                File::open(&outside).is_ok(),
            ];
            fs::write(staging.reach(PROFILE), format!("{done:?}")).map_err(drop)?;
            Ok(Made::Pack)
        };
        // The kernel limits threads, so a thread stands for the process.
        let status = thread::scope(|scope| {
            let maker = scope.spawn(|| make_confined(&staging, image.as_fd(), None, tries));
            maker.join().expect("no panic")
        });
        let kept = keeper(&packs).keep_made(&staging, Some(status));
        assert_eq!(kept.expect("room"), Kept::AsMade);
        drop(staging);
        let done = fs::read(packs.reach("own.record")).expect("kept");
        let expected = b"[true, false, false, false, false, false]";
        assert!(done.ends_with(expected), "{}", done.escape_ascii());
        assert_eq!(fs::read(packs.reach("other.hot")).expect("kept"), b"other");
        let expected = ["other.hot", "own.hot", "own.record"];
        assert_eq!(names(&packs), expected);
    }

    #[test]
    fn a_maker_that_fails_is_killed_or_makes_too_much_changes_nothing() {
        let (_dir, packs) = packs();
        fs::write(packs.reach("own.hot"), "old").expect("room");
        let staging = Staging::make(packs.fd()).expect("room");
        fs::write(staging.reach(HOT), [0; 1001]).expect("room");
        for status in [Some(1), Some(101), None] {
            let kept = keeper(&packs)
                .keep_made(&staging, status)
                .expect("nothing to do");
            assert_eq!(kept, Kept::Failed, "{status:?}");
        }
        assert_eq!(fs::read(packs.reach("own.hot")).expect("kept"), b"old");
        let kept = keeper(&packs).keep_made(&staging, Some(Made::Pack.status()));
        assert_eq!(kept.expect("room"), Kept::TooLarge(1001));
        drop(staging);
        assert_eq!(names(&packs), [""; 0]);
    }
}
