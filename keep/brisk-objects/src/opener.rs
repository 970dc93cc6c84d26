use brisk_io::PerProcess;

use crate::error::Error;

/// The process that has opened a file. What it holds of LMDB, its children neither use nor end: the memory that says so is
/// shared with them.
pub(crate) struct Opener(PerProcess<()>);

impl Opener {
    pub(crate) fn this_process() -> Self {
        let this = PerProcess::new();
        let Ok(()) = this.get_or_try_make(|| Ok::<_, std::convert::Infallible>(()));
        Self(this)
    }

    /// An error in a forked child of the process.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.0.get() {
            Some(()) => Ok(()),
            None => Err(Error::Forked),
        }
    }
}
