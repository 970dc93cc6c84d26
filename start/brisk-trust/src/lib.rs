/*!
Opens images on the network as far as somebody vouches for them: by a root hash in the URL, by a key of minisign or cosign, or by the
server.

The central type is [`RemoteOptions`]: it leads from a URL to an image, which starts at once if it is here. [`TrustedKeys`] are the
keys of which one must have signed it, and [`login`] is what the user has for registries, object stores and web servers.

# Example

```no_run
use brisk_image::OpenOptions;
use brisk_remote::RemoteUrl;
use brisk_trust::{ArgumentNames, RemoteOptions, TrustedKeys};

# fn main() -> Result<(), Box<dyn std::error::Error>> {
let names = ArgumentNames {
    trust: "--trust",
    trust_key: "--trust KEY.pub",
    insecure: "--insecure",
    refresh: "--refresh",
    variant: "--variant",
};
let keys = TrustedKeys::named(&["app.pub".into()], names)?;
let options = RemoteOptions::new("/usr/local/bin/brisk-fetch".into(), names);
let url = RemoteUrl::of_user("https://example.org/app.img")?;
let opened = options.open(&url, Some(&keys), &OpenOptions::new())?;
println!("{} bytes", opened.image.bytes_used());
# Ok(())
# }
```

# Trust

What a server or a registry says is untrusted until a root hash, a key or the way to it vouches for it. Who does stands in `trust.rs`
as numbered rules. A key counts only if nobody but its user and root can change its file. Credentials go to `brisk-fetch` alone, for
the server that was named.

# What this crate does not do

* Send anything to a server: see `brisk-fetch`.
* Sign anything, or check the signature of a file.
*/
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod argument_names;
mod cosign;
mod registry_login;
mod remote_options;
mod trust;
mod trusted_keys;

pub use argument_names::ArgumentNames;
pub use registry_login::login;
pub use remote_options::{
    OpenError, OpenedRemote, RemoteOptions, compared, digest_of_manifest, open_entry, said_of_realm,
};
pub use trusted_keys::{MOST_BYTES, SignedText, TrustedKeys, read_short};
