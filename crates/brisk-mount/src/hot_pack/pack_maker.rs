//! Making a hot pack of what was recorded of a launch.

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

/// Where a pack is kept, and how.
pub(crate) struct PackMaker<'a> {
    pub(crate) packs: &'a LearnedPacks,
    pub(crate) key: &'a str,
    /// Bytes that all packs may take.
    pub(crate) limit: u64,
    /// The image, by its name.
    pub(crate) image: &'a Path,
}

impl PackMaker<'_> {
    /// Learns from a launch of `image`. Returns the bytes of the pack if that is larger than all packs may
    /// be, and so is not kept.
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
            // A launch is added only to what is known.
            (Lesson::Forget, _) | (Lesson::Merge | Lesson::AddMissed, None) => {
                self.packs.remove(self.key)?;
                return Ok(None);
            }
        };
        self.packs.name_image(self.key, self.image)?;
        // The pack is last: without it, the others are nothing.
        profile.write(self.packs.reach(&format!("{}.profile", self.key)))?;
        // The identity of the image tells whether it is the same, so no digests are needed: a large file of
        // which little is in the pack would be read whole for one.
        let summary = HotPackWriter::new().threads(1).digests(false).write(
            &profile,
            &Origin::image(image),
            self.packs.reach(&format!("{}.hot", self.key)),
        )?;
        let too_large = summary.file_bytes > self.limit;
        if too_large {
            // By itself, or it would be the last of all to go.
            self.packs.remove(self.key)?;
        }
        self.packs.keep_within(self.limit)?;
        Ok(too_large.then_some(summary.file_bytes))
    }
}

/// `earlier`, with the image where it was at this launch: it may be mounted elsewhere each time.
fn moved(earlier: Profile, launch: &Profile) -> brisk_image::Result<Profile> {
    match launch.roots().first() {
        Some(root) => earlier.moved(0, root.path.clone()),
        None => Ok(earlier),
    }
}
