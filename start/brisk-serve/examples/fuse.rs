//! Serves an image through FUSE: `fuse IMAGE DIR` mounts it and serves it until it is unmounted.
//! Without root, in a user namespace: `unshare --user --map-root-user --mount fuse IMAGE DIR`.
//! `fuse --serve IMAGE AGREED` serves it on a connection whose two channels are standard input and
//! output, as one who took over from a server that died does.
//!
//! `BRISK_THREADS=N` and `BRISK_READ_AHEAD=0` are for measurements.
use std::error::Error;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use brisk_image::Image;
use brisk_serve::{FuseConnection, Owners, ServeOptions, mount_data, serve};
use rustix::fs::{Mode, OFlags, open};
use rustix::mount::{MountFlags, mount};
use rustix::process::{getegid, geteuid};

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let result = match arguments.as_slice() {
        [image, dir] => mount_and_serve(image.as_ref(), dir.as_ref()),
        [serve, image, agreed] if serve == "--serve" => {
            take_over(image.as_ref(), &agreed.to_string_lossy())
        }
        _ => Err("usage: fuse IMAGE DIR, or fuse --serve IMAGE AGREED".into()),
    };
    let Err(error) = result else {
        return ExitCode::SUCCESS;
    };
    eprintln!("{error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        eprintln!("  {error}");
        cause = error.source();
    }
    ExitCode::FAILURE
}

fn options() -> Result<ServeOptions, Box<dyn Error>> {
    let mut options = ServeOptions::default();
    if let Ok(threads) = std::env::var("BRISK_THREADS") {
        options.threads = threads.parse()?;
    }
    options.read_ahead = std::env::var_os("BRISK_READ_AHEAD").is_none_or(|v| v != "0");
    let namespace = std::fs::read_to_string("/proc/self/uid_map")?;
    let initial = namespace.split_whitespace().eq(["0", "0", "4294967295"]);
    if !initial {
        options.owners = Owners::Everything { uid: 0, gid: 0 };
    }
    Ok(options)
}

fn mount_and_serve(image: &Path, dir: &Path) -> Result<(), Box<dyn Error>> {
    let options = options()?;
    let image = Image::open(image)?;
    let dir: PathBuf = dir.canonicalize()?;
    let channel = open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let data = mount_data(channel.as_fd(), geteuid().as_raw(), getegid().as_raw());
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    mount(
        "brisk",
        &dir,
        "fuse.brisk",
        flags,
        CString::new(data)?.as_c_str(),
    )?;
    let connection = FuseConnection::establish(channel, &options)?;
    serve(&connection, &image, &options)?;
    if std::env::var_os("BRISK_COUNTS").is_some() {
        eprintln!("{:?}", options.counters.counts());
    }
    Ok(())
}

fn take_over(image: &Path, agreed: &str) -> Result<(), Box<dyn Error>> {
    let options = options()?;
    let image = Image::open(image)?;
    let channels: Vec<OwnedFd> = vec![
        std::io::stdin().as_fd().try_clone_to_owned()?,
        std::io::stdout().as_fd().try_clone_to_owned()?,
    ];
    let connection = FuseConnection::from_parts(channels, agreed.parse()?)?;
    Ok(serve(&connection, &image, &options)?)
}
