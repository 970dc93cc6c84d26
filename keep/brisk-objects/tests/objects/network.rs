//! Files of other machines.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::thread;

use brisk_objects::Error;

use crate::ledger::{open_with, options};

/// A filesystem of FUSE that is one file, mounted where another one is.
struct OneFile<'p>(&'p Path);

impl<'p> OneFile<'p> {
    fn mount(place: &'p Path) -> Self {
        let mut options = OpenOptions::new();
        let device = options.read(true).write(true).open("/dev/fuse").unwrap();
        let what = format!(
            "fd={},rootmode=100600,user_id=0,group_id=0\0",
            device.as_raw_fd()
        );
        let target = std::ffi::CString::new(place.to_str().unwrap()).unwrap();
        // SAFETY: all texts end with a zero, and live through the call.
        let done = unsafe {
            let (source, kind) = (c"one-file".as_ptr(), c"fuse".as_ptr());
            libc::mount(source, target.as_ptr(), kind, 0, what.as_ptr().cast())
        };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        // It ends when the mount does.
        thread::spawn(move || answer(device));
        Self(place)
    }
}

impl Drop for OneFile<'_> {
    fn drop(&mut self) {
        let mut umount = std::process::Command::new("umount");
        let done = umount.arg("--lazy").arg(self.0).status();
        assert!(done.unwrap().success());
    }
}

/// Answers what the kernel asks of a file: that there is one.
fn answer(mut device: File) {
    let mut asked = vec![0; 1 << 20];
    while let Ok(len) = device.read(&mut asked) {
        let number = |at: usize| u32::from_le_bytes(asked[at..at + 4].try_into().unwrap());
        assert!(len >= 40);
        let (error, body): (i32, Vec<u8>) = match number(4) {
            // Attributes: a file of the owner, at byte 16.
            3 => {
                let mut body = vec![0; 104];
                body[16 + 60..16 + 64].copy_from_slice(&0o100_600_u32.to_le_bytes());
                body[16 + 64..16 + 68].copy_from_slice(&1_u32.to_le_bytes());
                (0, body)
            }
            // Opening.
            14 => (0, vec![0; 16]),
            // What the filesystem is.
            17 => (0, vec![0; 80]),
            // The first words: version 7.31, and no wish.
            26 => {
                let mut body = vec![0; 64];
                body[0] = 7;
                body[4] = 31;
                (0, body)
            }
            // What it does not know.
            _ => (-libc::ENOSYS, Vec::new()),
        };
        let whole = u32::try_from(16 + body.len()).unwrap();
        let head = [
            &whole.to_le_bytes()[..],
            &error.to_le_bytes(),
            &asked[8..16],
        ];
        // Nobody waits for an answer to what was interrupted.
        device.write_all(&[&head.concat()[..], &body].concat()).ok();
    }
}

#[test]
fn a_file_of_a_network_in_a_local_directory_is_refused() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = home.path().join("ledger.db");
    drop(open_with(options(), &path).unwrap());
    let mounted = OneFile::mount(&path);
    let e = open_with(options(), &path).unwrap_err();
    assert_eq!(
        e.to_string(),
        format!(
            "{} is on a network filesystem (0x65735546), where a database can be destroyed; move it to a local disk",
            path.display()
        )
    );
    assert!(matches!(e, Error::Network { .. }));
    drop(mounted);
    drop(open_with(options(), &path).unwrap());
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 2);
}

#[test]
fn a_place_where_no_file_can_be_is_named() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let home = home.path();
    std::fs::write(home.join("text"), "").unwrap();
    for (name, message) in [
        (
            "nosuch/x.db",
            format!(
                "the directory {}/nosuch: No such file or directory (os error 2)",
                home.display()
            ),
        ),
        ("text/x.db", "Not a directory (os error 20)".to_owned()),
    ] {
        let path = home.join(name);
        let e = open_with(options(), &path).unwrap_err();
        let expected = format!("cannot open {}: {message}", path.display());
        assert_eq!(e.to_string(), expected);
    }
}
