//! What an image that was replaced has left beside the new one.

use std::io;
use std::path::Path;

use anyhow::Context;
use brisk_image::hot_pack::HotPack;
use brisk_image::profile::Origin;
use brisk_image::verity::{beside, root_hash_beside};
use brisk_image::{Image, Limits, Work};
use brisk_terminal::names::shown;

use crate::file_kind::FileKind;
use crate::manifest::{hot_pack_beside, manifest_beside, signature_beside};

/// What to say of the files beside the new image at `path` that were there before: its hash tree, and what a signature needs.
/// `has_tree`: the new image has a tree, whose root hash replaces the one that is there.
pub fn older_beside(path: &Path, has_tree: bool) -> Option<String> {
    let root_hash = (!has_tree).then(|| root_hash_beside(path));
    let all = [beside(path), manifest_beside(path), signature_beside(path)];
    let there = all.into_iter().chain(root_hash);
    let there = there.filter(|file| file.symlink_metadata().is_ok());
    let older: Vec<_> = there.map(shown).collect();
    (!older.is_empty()).then(|| {
        format!(
            "{} {} for the image that was replaced: make new ones with brisk verity and brisk sign, or remove them",
            older.join(", "),
            if older.len() == 1 { "was made" } else { "were made" }
        )
    })
}

/// Removes `IMAGE.hot` beside the new image at `path` if its pages are not those of the image. Returns a warning that says
/// so.
///
/// A launch would not use such a pack, but would compare it with the image each time. A file that is not a hot pack stays.
pub fn remove_stale_pack(path: &Path) -> anyhow::Result<Option<String>> {
    let beside = hot_pack_beside(path);
    let Ok(pack) = HotPack::open(&beside, &Limits::default()) else {
        return Ok(None);
    };
    let image = Image::open(path)?;
    let checked = pack.verify(&Origin::image(&image), &Work::new(), |_| {})?;
    if checked.faults == 0 {
        return Ok(None);
    }
    match std::fs::remove_file(&beside) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            return Err(e).with_context(|| format!("remove {}", shown(&beside)));
        }
        _ => {}
    }
    Ok(Some(format!(
        "{} was removed, because its pages are not those of the new image; `brisk hot {} --profile PROFILE` makes another",
        shown(&beside),
        shown(path)
    )))
}

/// Says that the hot pack behind an image is not behind the new one at `path`.
pub fn pack_left_behind(path: &Path) -> String {
    format!(
        "the hot pack behind the old image is not behind the new one; `brisk hot {} --profile PROFILE` makes one, and so does \
         repack --profile",
        shown(path)
    )
}

/// Says that the hot pack beside the image at `old` does not fit the image at `new`, which has the same tree. None if there
/// is no such pack.
pub fn pack_of_old_image(old: &Path, new: &Path) -> Option<String> {
    let beside = hot_pack_beside(old);
    (FileKind::of(&beside) == Some(FileKind::HotPack)).then(|| {
        format!(
            "{} fits only {}; `brisk hot {} --profile PROFILE` makes one for the new image",
            shown(&beside),
            shown(old),
            shown(new)
        )
    })
}
