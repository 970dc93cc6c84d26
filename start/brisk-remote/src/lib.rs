/*!
Reads images that lie on a web server, in a registry or in an object store, while they arrive.

The central type is [`Arriving`], a file of which a part is there: a sparse file and a map. [`WaitingImage`] reads it and waits for
what is absent, [`ParkingImage`] reads it and says what is absent. [`RemoteCache`] is the directory of such files, and [`Fetcher`] is
the connection to `brisk-fetch`, the only process with sockets. [`Schedule`] decides what that asks for next, and is a plain value. [`Artifact`] is an image in a registry.

# Example

```no_run
use std::sync::Arc;

use brisk_remote::{Arriving, Fetcher, FetcherPlace, OpenOptions, RemoteCache, RemoteUrl, WAIT, WaitingImage};

# fn main() -> Result<(), Box<dyn std::error::Error>> {
let url = RemoteUrl::parse("https://example.org/app.img")?;
let cache = Arc::new(RemoteCache::of_user()?);
let place = FetcherPlace::new(Arc::clone(&cache), "/usr/local/bin/brisk-fetch".as_ref())
    .wait(WAIT, || eprintln!("waiting for the network"));
let mut fetcher = Fetcher::at(&place)?;
let resolved = fetcher.resolve(&url, false)?;
let opened = fetcher.open(&url, &resolved, &OpenOptions::default(), false)?;
let entry = cache.entry(&opened.key)?.ok_or("it was removed")?;
// A source of bytes, for `brisk_image::Image::from_source`.
let image = WaitingImage::new(Arc::new(Arriving::open(&entry)?), place);
# Ok(())
# }
```

# Trust

All bytes of a server are untrusted, and so is what a descriptor says. Nothing here panics on them. What is read is as good as what
vouches for it: compare it with a hash tree (`brisk_image::verity`).

# What this crate does not do

* Send anything to a server: see `brisk-fetch`.
* Decode anything, or verify anything.
*/
#![forbid(unsafe_code)]
#![deny(missing_docs)]

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod arriving;
mod artifact;
mod aws_settings;
mod cache;
mod choice;
mod descriptor;
mod error;
mod fetcher;
mod hex;
mod job;
mod login;
mod named_root;
mod netrc;
mod object_name;
mod parking_image;
mod presence;
mod protocol;
mod registry_name;
mod remote_url;
mod schedule;
mod settings_file;
mod surroundings;
mod waiting_image;

pub use arriving::{Absent, Arriving};
pub use artifact::{
    Artifact, Content, EMPTY_CONFIG, Index, MOST_MANIFEST, Manifest, Platform, media_type,
};
pub use aws_settings::store_key;
pub use cache::{About, Counts, Entry, RemoteCache, key_of_root, key_of_url, now, open_own};
pub use choice::{Choice, is_tag};
pub use descriptor::{Descriptor, MOST_DESCRIPTOR};
pub use error::{Error, ErrorKind, Result};
pub use fetcher::{Fetcher, FetcherPlace, Lines, SOCKET, attach, connect};
pub use hex::{digits, is_digest};
pub use job::{Done, JOB, Job};
pub use login::Login;
pub use netrc::netrc_login;
pub use object_name::{ObjectName, REGION, is_region};
pub use parking_image::{Arrival, Arrivals, ParkingImage};
pub use presence::{MOST_IMAGE, Presence, UNIT};
pub use protocol::{
    Ask, Background, Cosigned, Credential, Download, MOST_LINE, OpenOptions, Opened, Resolved,
    Tell, Upload, WAIT, parse_line, write_line,
};
pub use registry_name::{RegistryName, is_sha256};
pub use remote_url::RemoteUrl;
pub use schedule::{Class, Request, Schedule};
pub use surroundings::{Surroundings, certificates};
pub use waiting_image::WaitingImage;
