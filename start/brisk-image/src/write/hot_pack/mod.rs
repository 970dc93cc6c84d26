//! A hot pack behind the image that is written. Without the feature `profile` there is none.

mod read_back;
pub(super) use read_back::ReadBack;

#[cfg(feature = "profile")]
mod enabled;
#[cfg(feature = "profile")]
pub(super) use enabled::HotPackBehind;

#[cfg(not(feature = "profile"))]
mod disabled;
#[cfg(not(feature = "profile"))]
pub(super) use disabled::HotPackBehind;
