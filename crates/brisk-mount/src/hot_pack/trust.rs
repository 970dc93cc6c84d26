//! Whose hot packs may be used.
//!
//! The pages of a pack get into the memory of programs. So a pack that the user did not name is used only if
//! everybody who can have written it could also have written the image.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::geteuid;

/// Bits of a mode that let the group and all others write.
const GROUP_WRITES: u32 = 0o020;
const ALL_WRITE: u32 = 0o002;

/// What decides who can write a file.
#[derive(Debug, Clone, Copy)]
struct Ownership {
    user: u32,
    group: u32,
    mode: u32,
}

impl Ownership {
    fn of(metadata: &Metadata) -> Self {
        Self {
            user: metadata.uid(),
            group: metadata.gid(),
            mode: metadata.mode(),
        }
    }
}

/// Why not to use the pack in `file` beside the image at `image`. None if it may be used.
pub(super) fn distrust(file: &File, image: &Path) -> Option<String> {
    let metadata = || Ok::<_, std::io::Error>((file.metadata()?, image.metadata()?));
    let Ok((pack, image)) = metadata() else {
        return Some("it cannot be examined".to_owned());
    };
    let (pack, image) = (Ownership::of(&pack), Ownership::of(&image));
    distrust_of(pack, image, geteuid().as_raw())
}

fn distrust_of(pack: Ownership, image: Ownership, caller: u32) -> Option<String> {
    if ![0, caller, image.user].contains(&pack.user) {
        return Some(format!(
            "its owner is user {}, allowed are root, you, and the owner of the image",
            pack.user
        ));
    }
    // Whoever may write the image needs no pack to change what programs read.
    let mut writers = image.mode & (GROUP_WRITES | ALL_WRITE);
    if pack.group != image.group {
        writers &= !GROUP_WRITES;
    }
    let others = pack.mode & (GROUP_WRITES | ALL_WRITE) & !writers;
    let mode = pack.mode & 0o7777;
    (others != 0).then(|| {
        format!(
            "its mode is {mode:o}, so somebody may write it who may not write the image; allowed is {:o}",
            mode & !others
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pack_is_used_if_only_makers_of_the_image_can_have_made_it() {
        const OWNER: &str =
            "its owner is user 7, allowed are root, you, and the owner of the image";
        let mode = |is, allowed| {
            Some(format!(
                "its mode is {is}, so somebody may write it who may not write the image; allowed is {allowed}"
            ))
        };
        // Owner, group and mode of the pack, then of the image, and the reason against it. The caller is user
        // 5.
        for (pack, image, why) in [
            ((5, 50, 0o100_644), (9, 90, 0o100_644), None),
            ((0, 50, 0o100_644), (9, 90, 0o100_644), None),
            ((9, 50, 0o100_644), (9, 90, 0o100_644), None),
            (
                (7, 50, 0o100_644),
                (9, 90, 0o100_644),
                Some(OWNER.to_owned()),
            ),
            // Another owner is worse than another writer.
            (
                (7, 50, 0o100_666),
                (9, 90, 0o100_644),
                Some(OWNER.to_owned()),
            ),
            ((5, 50, 0o100_666), (9, 90, 0o100_644), mode("666", "644")),
            ((5, 50, 0o100_664), (9, 50, 0o100_644), mode("664", "644")),
            // The same people may write both.
            ((5, 50, 0o100_664), (9, 50, 0o100_664), None),
            ((5, 50, 0o100_666), (9, 90, 0o100_666), mode("666", "646")),
            ((5, 50, 0o100_646), (9, 90, 0o100_646), None),
            ((5, 50, 0o100_666), (9, 50, 0o100_666), None),
            // The pack and the image belong to different groups.
            ((5, 50, 0o100_664), (9, 90, 0o100_664), mode("664", "644")),
            ((5, 50, 0o100_666), (9, 50, 0o100_664), mode("666", "664")),
            ((5, 50, 0o104_602), (9, 50, 0o100_600), mode("4602", "4600")),
            // Its owner may always change it.
            ((9, 50, 0o100_000), (9, 90, 0o100_444), None),
        ] {
            let of = |(user, group, mode)| Ownership { user, group, mode };
            let found = distrust_of(of(pack), of(image), 5);
            assert_eq!(found, why, "{pack:?} beside {image:?}");
        }
    }
}
