//! Every strategy of brisk-io on the filesystems that brisk itself makes: served by brisk, mounted by the
//! kernel, and in memory. Needs root.

mod looking;

use std::fs::File;
use std::path::Path;

use brisk_image::ImageWriter;
use brisk_io::measure::load_as;
use brisk_io::{Form, ImmutableFile, Need, Strategy, load};
use looking::Place;

/// Loads parts of `copy` with every strategy, and compares them with `original`. Returns the strategies that
/// were refused.
fn compare(original: &Path, copy: &Path) -> Vec<Strategy> {
    let bytes = std::fs::read(original).unwrap();
    // SAFETY: the file is on a read-only mount of this test's own.
    let file = unsafe { ImmutableFile::new(File::open(copy).unwrap()) };
    let len = bytes.len() as u64;
    let parts = [0..len, 1..len / 2, len / 3..len, len..len];
    let mut refused = Vec::new();
    for range in parts {
        let expected = &bytes[range.start as usize..range.end as usize];
        for form in [Form::Shared, Form::Patched] {
            let need = Need::new().form(form);
            for strategy in Strategy::ALL {
                if (strategy, form) == (Strategy::SharedMap, Form::Patched) {
                    continue;
                }
                match load_as(strategy, &file, range.clone(), need) {
                    Ok(loaded) => assert!(loaded.as_slice() == expected, "{strategy} {range:?}"),
                    Err(_) if refused.contains(&strategy) => {}
                    Err(e) => {
                        let told = matches!(
                            e.kind(),
                            std::io::ErrorKind::InvalidInput | std::io::ErrorKind::Unsupported
                        );
                        assert!(told, "{strategy} {range:?}: {e}");
                        refused.push(strategy);
                    }
                }
            }
            let loaded = load(&file, range.clone(), need).unwrap();
            assert!(loaded.as_slice() == expected, "{range:?}");
            assert!(!refused.contains(&loaded.strategy()));
        }
    }
    refused
}

fn place() -> Place {
    assert!(
        rustix::process::geteuid().is_root(),
        "these tests mount images: run them as root"
    );
    let place = Place::new();
    place.tree("tree");
    place.pack(&ImageWriter::new(), "tree", "a.img");
    std::fs::create_dir(place.path("at")).unwrap();
    place
}

/// Neither filesystem supports these.
const DIRECT: [Strategy; 2] = [Strategy::Direct, Strategy::UringDirect];

#[test]
fn files_of_a_served_image_are_loaded_in_every_way() {
    let place = place();
    let mounted = place.brisk(&["mount", "a.img", "at"]);
    assert_eq!((mounted.code, mounted.err.as_str()), (Some(0), ""));
    for name in ["noise", "text"] {
        let original = place.path("tree").join(name);
        let refused = compare(&original, &place.path("at").join(name));
        // FUSE has direct reads if the kernel allows them.
        assert!(
            refused.iter().all(|way| DIRECT.contains(way)),
            "{refused:?}"
        );
    }
    assert_eq!(place.brisk(&["umount", "at"]).code, Some(0));
}

#[test]
fn files_of_a_squashfs_are_loaded_but_not_past_the_page_cache() {
    let place = place();
    assert_eq!(
        place.brisk(&["mount", "--kernel", "a.img", "at"]).code,
        Some(0)
    );
    let refused = compare(&place.path("tree/noise"), &place.path("at/noise"));
    assert_eq!(refused, DIRECT);
    assert_eq!(place.brisk(&["umount", "at"]).code, Some(0));
}

#[test]
fn files_in_memory_are_loaded_in_every_way() {
    let place = place();
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let copy = directory.path().join("noise");
    std::fs::copy(place.path("tree/noise"), &copy).unwrap();
    let refused = compare(&place.path("tree/noise"), &copy);
    // tmpfs has direct reads since Linux 6.6.
    assert!(
        refused.iter().all(|way| DIRECT.contains(way)),
        "{refused:?}"
    );
}
