use std::fs;
use std::io;

use rustix::fs::{Mode, Stat};

/// Whom to trust with files of a cache: this user and root, and the members of a group if the cache is theirs.
///
/// All who can write there decide what this program reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Trust {
    user: u32,
    group: Option<u32>,
}

/// The user that a file seems to belong to if the namespace does not map its owner, unless somebody chose another.
const NOBODY: u32 = 65534;

/// The bits of a mode that let others than the owner write.
const OTHERS_WRITE: u32 = 0o022;

impl Trust {
    pub(crate) fn new(group: Option<u32>) -> Self {
        Self {
            user: rustix::process::geteuid().as_raw(),
            group,
        }
    }

    pub(crate) fn has_group(self) -> bool {
        self.group.is_some()
    }

    pub(crate) fn file_mode(self) -> Mode {
        match self.group {
            None => Mode::RUSR | Mode::WUSR,
            Some(_) => Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP,
        }
    }

    /// Refuses a file or a directory that somebody else can write.
    ///
    /// Each opening asks this three times. The usual case is decided where it is asked, so that no other page of code is
    /// mapped for it.
    #[inline]
    pub(crate) fn check(self, stat: &Stat) -> io::Result<()> {
        if self.is_own(stat.st_uid) && stat.st_mode & OTHERS_WRITE == 0 {
            return Ok(());
        }
        self.check_numbers(stat.st_uid, stat.st_gid, stat.st_mode, unmapped_user)
    }

    /// A user of this process's own number is itself, unless it may stand for all that are not mapped.
    #[inline]
    fn is_own(self, owner: u32) -> bool {
        owner == 0 || (owner == self.user && owner != NOBODY)
    }

    #[cold]
    fn check_numbers(
        self,
        owner: u32,
        gid: u32,
        mode: u32,
        unmapped: impl FnOnce() -> Option<u32>,
    ) -> io::Result<()> {
        let refuse = |field: &str, found: String, allowed: String| {
            Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!(
                    "{field} is {found}, allowed is {allowed}, because whoever writes there decides what this program \
                     reads; name another directory"
                ),
            ))
        };
        let shared = self.group == Some(gid);
        let mapped = self.is_own(owner) || unmapped() != Some(owner);
        if !shared && !(mapped && (owner == self.user || owner == 0)) {
            let found = match mapped {
                true => format!("user {owner}"),
                false => format!(
                    "user {owner}, who stands for all users that this namespace does not know"
                ),
            };
            return refuse("its owner", found, format!("user {} or root", self.user));
        }
        // The group may write if it is the one that shares the cache.
        let forbidden = if shared { 0o002 } else { OTHERS_WRITE };
        let mode = mode & 0o7777;
        if mode & forbidden != 0 {
            return refuse(
                "its mode",
                format!("{mode:o}"),
                format!("{:o}", mode & !forbidden),
            );
        }
        Ok(())
    }
}

fn unmapped_user() -> Option<u32> {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let mut numbers = map.split_whitespace().map(str::parse::<u32>);
    // The first namespace maps every user to itself.
    let all = [Some(Ok(0)), Some(Ok(0)), Some(Ok(u32::MAX))];
    if all == [numbers.next(), numbers.next(), numbers.next()] {
        return None;
    }
    let told = fs::read_to_string("/proc/sys/kernel/overflowuid").ok();
    Some(
        told.and_then(|text| text.trim().parse().ok())
            .unwrap_or(NOBODY),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_user_and_root_and_a_named_group_are_trusted() {
        let trust = Trust {
            user: 1000,
            group: None,
        };
        let message = |trust: Trust, owner, gid, mode| {
            trust
                .check_numbers(owner, gid, mode, || None)
                .map_err(|e| e.to_string())
        };
        for (owner, mode) in [(1000, 0o40700), (1000, 0o100644), (0, 0o40755)] {
            assert_eq!(message(trust, owner, 5, mode), Ok(()));
        }
        let rest =
            "because whoever writes there decides what this program reads; name another directory";
        let wrong = message(trust, 1001, 5, 0o40700);
        assert_eq!(
            wrong,
            Err(format!(
                "its owner is user 1001, allowed is user 1000 or root, {rest}"
            ))
        );
        let wrong = message(trust, 1000, 5, 0o40770);
        assert_eq!(
            wrong,
            Err(format!("its mode is 770, allowed is 750, {rest}"))
        );

        let shared = Trust {
            group: Some(5),
            ..trust
        };
        assert_eq!(message(shared, 1001, 5, 0o42770), Ok(()));
        assert!(message(shared, 1001, 6, 0o42770).is_err());
        assert!(message(shared, 1001, 5, 0o42777).is_err());

        // An owner that the namespace does not know is nobody's, also if this user has the same number.
        let inside = Trust {
            user: NOBODY,
            ..trust
        };
        let wrong = inside.check_numbers(NOBODY, 5, 0o40700, || Some(NOBODY));
        let wrong = wrong.unwrap_err().to_string();
        assert!(wrong.starts_with(
            "its owner is user 65534, who stands for all users that this namespace does not know, allowed is user 65534"
        ));
    }
}
