use std::fs::File;
use std::io;

/// Says that this build cannot.
pub(crate) fn transfer(_: &File, _: u64, _: &mut [u8], _: usize) -> io::Result<()> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "brisk-io was built without its feature io-uring",
    ))
}
