//! The files that a fill reads while they arrive.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::remote::{Absent, Class, ParkingImage};

/// What brings an image and its pack, as far as they arrive.
#[derive(Debug, Default)]
pub(crate) struct FillSources {
    /// None if the image is a file.
    pub(super) image: Option<Arc<ParkingImage>>,
    /// The pack, if that is another file than the image.
    pack: Option<Arc<ParkingImage>>,
    /// Whether that pack does not come. The image has its pages, too.
    is_pack_lost: AtomicBool,
}

impl FillSources {
    /// `pack`: as in the field.
    pub(crate) fn new(image: Option<Arc<ParkingImage>>, pack: Option<Arc<ParkingImage>>) -> Self {
        Self {
            image,
            pack,
            is_pack_lost: AtomicBool::new(false),
        }
    }

    /// What brings a pack that arrives.
    pub(super) fn of_pack(&self) -> Option<&ParkingImage> {
        self.pack.as_deref().or(self.image.as_deref())
    }

    /// Nobody waits for a pack of its own any more.
    pub(super) fn lose_pack(&self) {
        self.is_pack_lost.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_pack_lost(&self) -> bool {
        self.is_pack_lost.load(Ordering::Relaxed)
    }

    /// Waits until what is absent is there, as [`ParkingImage::wait_for`] does. False if nobody brings it.
    pub(super) fn wait_for(
        &self,
        absent: &Absent,
        class: Class,
        is_over: &dyn Fn() -> bool,
    ) -> bool {
        let mut files = [&self.image, &self.pack].into_iter().flatten();
        let file = files.find(|file| file.arriving().lacks(absent));
        file.is_some_and(|file| file.wait_for(&absent.bytes, class, is_over))
    }
}
