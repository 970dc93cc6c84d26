/*!
The program `brisk-bundle`, which stands in front of an image and starts it, and what it shares with the command `brisk`.

`brisk bundle` writes one executable file: this program, and behind its section headers a SquashFS image with a hot pack and a
hash tree. Such a file needs neither brisk nor root, and is an AppImage of type 2 to all who know that format.

* [`Entry`](entry::Entry) says what an image starts if nobody names a program.
* [`Elf`](elf::Elf) makes the front of a bundle of this program.
* [`run`] is the program.

# Trust

Whoever made a bundle runs as the user who starts it. So this program believes what its own image records. It reads the image as
`brisk-serve` does.

# What this crate does not do

* Read images of codecs other than zstd and lz4.
* Learn, or get anything from a network.
*/
#![deny(missing_docs)]
#![deny(unsafe_code)]

mod arguments;
mod bundle_file;
pub mod desktop_file;
pub mod elf;
pub mod entry;
mod extraction;
mod pattern;
mod program;
#[expect(
    unsafe_code,
    reason = "names of sections; there is no other unsafe code"
)]
mod sections;

pub use program::run;
