//! Makes a hot pack from the recording of a launch.

use std::error::Error;
use std::path::Path;

use brisk_image::Image;
use brisk_image::hot_pack::HotPackWriter;
use brisk_image::profile::{Origin, Profile};

use super::learned_packs::LearnedPacks;
use super::learning::{Known, Lesson, Recorded};

/// The pages that a launch asked for.
pub(crate) fn pages(profile: &Profile) -> u64 {
    let demand = profile.demand_by_root();
    let pages = demand.iter().map(|demand| demand.pages);
    pages.fold(0, u64::saturating_add)
}

/// Where to keep a pack, and how.
pub(crate) struct PackMaker<'a> {
    pub(crate) packs: &'a LearnedPacks,
    pub(crate) key: &'a str,
    /// How many bytes all packs may take.
    pub(crate) limit: u64,
    /// The image's name.
    pub(crate) image: &'a Path,
}

impl PackMaker<'_> {
    /// Learns from a launch of `image`. If the pack is larger than all packs may be, it is not kept, and this
    /// returns its size.
    pub(crate) fn learn(
        &self,
        image: &Image,
        recorded: Recorded,
        launch: Profile,
    ) -> Result<Option<u64>, Box<dyn Error>> {
        let earlier = self.packs.profile(self.key);
        let known = earlier.as_ref().map(|earlier| Known {
            runs: earlier.runs(),
            pages: pages(earlier),
        });
        let lesson = Lesson::of(known, recorded, pages(&launch));
        let profile = match (lesson, earlier) {
            (Lesson::Make, _) => launch,
            (Lesson::Merge, Some(earlier)) => Profile::merge(&[moved(earlier, &launch)?, launch])?,
            (Lesson::AddMissed, Some(earlier)) => moved(earlier, &launch)?.with_missed(&launch)?,
            (Lesson::RecordAgain, _) => {
                self.packs.remove_pack(self.key)?;
                return Ok(None);
            }
            // A launch can only be added to what is known.
            (Lesson::Forget, _) | (Lesson::Merge | Lesson::AddMissed, None) => {
                self.packs.remove(self.key)?;
                return Ok(None);
            }
        };
        self.packs.name_image(self.key, self.image)?;
        // The pack is written last, because the other files mean nothing without it.
        profile.write(self.packs.reach(&format!("{}.profile", self.key)))?;
        // The identity of the image says whether it is the same, so digests are not needed. For a digest, a
        // large file would be read completely, even if little of it is in the pack.
        let summary = HotPackWriter::new().threads(1).digests(false).write(
            &profile,
            &Origin::image(image),
            self.packs.reach(&format!("{}.hot", self.key)),
        )?;
        let too_large = summary.file_bytes > self.limit;
        if too_large {
            // Removed here. Otherwise it would be the last of all to be deleted.
            self.packs.remove(self.key)?;
        }
        self.packs.keep_within(self.limit)?;
        Ok(too_large.then_some(summary.file_bytes))
    }
}

/// `earlier`, with the image's place at this launch, because it may be mounted elsewhere each time.
fn moved(earlier: Profile, launch: &Profile) -> brisk_image::Result<Profile> {
    match launch.roots().first() {
        Some(root) => earlier.moved(0, root.path.clone()),
        None => Ok(earlier),
    }
}
