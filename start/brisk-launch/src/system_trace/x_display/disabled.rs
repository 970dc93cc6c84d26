//! The stand-in for an X display, without the feature `window`.

use std::convert::Infallible;
use std::ffi::OsStr;

use crate::error::{Action, Cause, Error, Result};

/// An X display, on which a program should show a window. None can exist, because this crate was built
/// without its feature `window`.
pub struct XDisplay(Infallible);

impl XDisplay {
    /// Connects to the display of this name, such as `:0`.
    ///
    /// # Errors
    ///
    /// `Unsupported`, always.
    pub fn connect(name: &str) -> Result<Self> {
        Self::open(Some(name)).map_err(|cause| Error::new(Action::Wait, cause))
    }

    /// As [`XDisplay::connect`].
    pub fn open(_: Option<&str>) -> Result<Self, Cause> {
        Err(Cause::unsupported(
            "this program was built without the feature window of brisk-launch; build it with that feature, or wait for something \
             else than a window",
        ))
    }

    /// Returns when a window is shown.
    pub fn wait_for_window(&mut self, _: Option<&OsStr>) {
        match self.0 {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn without_the_feature_an_error_says_what_to_do() {
        let refused = XDisplay::connect(":0").err().expect("refused");
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
        assert_eq!(
            refused.to_string(),
            "cannot wait for a window: this program was built without the feature window of brisk-launch; \
             build it with that feature, or wait for something else than a window"
        );
    }
}
