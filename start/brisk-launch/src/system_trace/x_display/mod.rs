//! Windows of an X display, for programs that are ready when they show one.
//!
//! This needs the cargo feature `window`. Without it, there is no display.

#[cfg(not(feature = "window"))]
mod disabled;
#[cfg(feature = "window")]
mod enabled;

#[cfg(not(feature = "window"))]
pub use self::disabled::XDisplay;
#[cfg(feature = "window")]
pub use self::enabled::XDisplay;
