//! Programs that get more rights than their user has: setuid, setgid, file capabilities. The kernel gives none to a program
//! that is traced.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fstat, getxattr, openat, openat2};
use rustix::io::{Errno, Result};

use crate::interpreter::script_interpreter;
use crate::open::open_file;
use crate::sys::errno;

/// How many interpreters the kernel follows from a script to the next.
const MOST_SCRIPTS: usize = 5;

/// Whether the program at this path gets more rights than its user has, by itself or by the interpreter that its first line
/// names. A program that does not exist gives nothing.
pub fn gives_rights(program: &Path) -> bool {
    let find = |path: &Path| openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    match by_any(program, find) {
        Ok(gives) => gives,
        // It cannot be read, and is no script then.
        Err(_) => find(program).is_ok_and(|file| by_itself(&file)),
    }
}

/// The same of the program that a call of `process` names. `directory` is the descriptor that the path starts from. True if
/// nobody can say what it is.
pub(super) fn call_gives_rights(process: i32, directory: i32, path: &Path) -> bool {
    let at = |name: &str| format!("/proc/{process}/{name}");
    let open = |path: String| openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let base = || match directory {
        libc::AT_FDCWD => open(at("cwd")),
        _ => open(at(&format!("fd/{directory}"))),
    };
    let find = |path: &Path| {
        if path.as_os_str().is_empty() {
            return base();
        }
        // A link such as `/proc/self/fd/3` means another file to each process.
        let (from, within) = match path.is_absolute() {
            true => (open(at("root"))?, ResolveFlags::IN_ROOT),
            false => (base()?, ResolveFlags::empty()),
        };
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let within = within | ResolveFlags::NO_MAGICLINKS;
        openat2(from, path, flags, Mode::empty(), within)
    };
    match by_any(path, find) {
        Ok(gives) => gives,
        Err(Errno::NOENT) => false,
        Err(_) => true,
    }
}

fn by_any(path: &Path, find: impl Fn(&Path) -> Result<OwnedFd>) -> Result<bool> {
    let mut path = PathBuf::from(path);
    for _ in 0..=MOST_SCRIPTS {
        let file = find(&path)?;
        if by_itself(&file) {
            return Ok(true);
        }
        let opened = open_file(&name_of(&file)).map_err(errno)?;
        match script_interpreter(&opened) {
            Some(interpreter) => path = interpreter,
            None => return Ok(false),
        }
    }
    // The kernel starts none of these.
    Ok(false)
}

fn by_itself(file: &OwnedFd) -> bool {
    const SETS_IDS: u32 = 0o6000;
    let name = name_of(file);
    fstat(file).is_ok_and(|stat| stat.st_mode & SETS_IDS != 0)
        || getxattr(name, c"security.capability", &mut [0u8; 0]).is_ok()
}

/// The path of a file that was opened as a path only.
fn name_of(file: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::fs::File;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn every_way_to_name_a_program_with_rights_is_seen() {
        let home = tempfile::tempdir().expect("room");
        let path = |name: &str| home.path().join(name);
        fs::write(path("plain"), "ELF").expect("room");
        fs::write(path("rights"), "ELF").expect("room");
        let mode = PermissionsExt::from_mode(0o4755);
        fs::set_permissions(path("rights"), mode).expect("ours");
        for (script, interpreter) in [("of-rights", "rights"), ("of-script", "of-rights")] {
            let text = format!("#!{}\n", path(interpreter).display());
            fs::write(path(script), text).expect("room");
        }
        symlink("rights", path("link")).expect("room");
        let own = i32::try_from(std::process::id()).expect("small");
        let file = File::open(path("rights")).expect("there");
        let number = file.as_raw_fd();
        for (name, gives) in [
            ("plain", false),
            ("rights", true),
            ("link", true),
            ("of-rights", true),
            ("of-script", true),
            ("none", false),
        ] {
            assert_eq!(gives_rights(&path(name)), gives, "{name}");
            assert_eq!(
                call_gives_rights(own, libc::AT_FDCWD, &path(name)),
                gives,
                "{name}"
            );
        }
        let home = File::open(home.path()).expect("there");
        let directory = home.as_raw_fd();
        assert!(call_gives_rights(own, directory, Path::new("link")));
        assert!(!call_gives_rights(own, directory, Path::new("plain")));
        // As fexecve does, in both of its ways.
        assert!(call_gives_rights(own, number, Path::new("")));
        let by_link = format!("/proc/self/fd/{number}");
        assert!(call_gives_rights(own, libc::AT_FDCWD, Path::new(&by_link)));
    }
}
