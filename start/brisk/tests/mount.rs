//! `brisk mount --kernel`, `brisk umount` and `brisk run --kernel`, which need root.

mod looking;

use std::fs;
use std::path::Path;
use std::process::Command;

use brisk_image::ImageWriter;
use looking::{Place, Said, assert_help};

#[test]
fn help() {
    for verb in ["mount", "umount", "run", "stat"] {
        assert_help(verb);
    }
}

fn place() -> Place {
    assert!(
        rustix::process::geteuid().is_root(),
        "these tests mount through the kernel: run them as root"
    );
    let place = Place::new();
    place.tree("tree");
    place.pack(&ImageWriter::new(), "tree", "a.img");
    fs::create_dir(place.path("at")).unwrap();
    place
}

fn said(code: i32, out: &str, err: &str) -> Said {
    Said {
        code: Some(code),
        out: out.to_owned(),
        err: err.to_owned(),
    }
}

fn assert_same(place: &Place) {
    for name in ["noise", "text", "sub/inside", "bin/app", "link"] {
        assert!(
            place.read(&format!("tree/{name}")) == place.read(&format!("at/{name}")),
            "{name} differs"
        );
    }
}

#[test]
fn an_image_is_mounted_and_unmounted() {
    let place = place();
    assert_eq!(
        place.brisk(&["mount", "--kernel", "a.img", "at"]),
        said(0, "", "")
    );
    assert_same(&place);
    // A program whose working directory is in it.
    let mut user = Command::new("sleep")
        .arg("60")
        .current_dir(place.path("at/sub"))
        .spawn()
        .unwrap();
    let busy = place.brisk(&["umount", "at"]);
    let lazy = place.brisk(&["umount", "at", "--lazy"]);
    user.kill().unwrap();
    user.wait().unwrap();
    assert_eq!(
        busy,
        said(
            2,
            "",
            "brisk: cannot unmount at: a program still uses it (fuser -vm shows it); end what uses it, \
             or use --lazy to end it with the last program\n"
        )
    );
    assert_eq!(lazy, said(0, "", ""));
    assert_eq!(
        place.brisk(&["umount", "at"]),
        said(
            2,
            "",
            "brisk: cannot unmount at: it is not a mount point; brisk stat lists sessions and mounts\n"
        )
    );
}

#[test]
fn a_program_that_carries_an_image_is_mounted() {
    let place = place();
    // The smallest ELF header. Its section headers, of which there are none, are at its end.
    let mut program = vec![0u8; 4096];
    program[..6].copy_from_slice(b"\x7fELF\x02\x01");
    program[0x28..0x30].copy_from_slice(&4096u64.to_le_bytes());
    program.extend(place.read("a.img"));
    fs::write(place.path("app"), program).unwrap();
    let mounted = place.brisk(&["mount", "--kernel", "-v", "app", "at"]);
    assert_same(&place);
    assert_eq!(place.brisk(&["umount", "at"]), said(0, "", ""));
    let at = place.path("at").canonicalize().unwrap();
    let start = format!("app: mounted on {} through /dev/loop", at.display());
    assert_eq!((mounted.code, mounted.out.as_str()), (Some(0), ""));
    assert!(
        mounted.err.starts_with(&start)
            && (mounted.err.ends_with(", with direct I/O\n")
                || mounted
                    .err
                    .ends_with(", without direct I/O, through the page cache\n")),
        "{}",
        mounted.err
    );
}

#[test]
fn what_cannot_be_mounted_says_the_cure() {
    let place = place();
    assert_eq!(
        place.brisk(&["mount", "--kernel", "a.img", "none"]),
        said(
            2,
            "",
            "brisk: cannot mount a.img: none does not exist; make the directory first\n"
        )
    );
    let mut cut = place.read("a.img");
    cut.truncate(100);
    fs::write(place.path("cut.img"), cut).unwrap();
    let refused = place.brisk(&["mount", "cut.img", "at"]);
    assert_eq!(refused.code, Some(2));
    assert!(
        refused
            .err
            .starts_with("brisk: cut.img: corrupt image at byte 40: "),
        "{}",
        refused.err
    );
}

/// Runs brisk as nobody, from a copy that nobody may read.
#[test]
fn without_root_the_cure_is_said() {
    use std::os::unix::process::CommandExt;
    let place = place();
    place.copy_programs();
    let nobody = |arguments: &[&str]| -> Said {
        let output = Command::new(place.path("brisk"))
            .args(arguments)
            .current_dir(place.path("."))
            .uid(65_534)
            .gid(65_534)
            .output();
        output.unwrap().into()
    };
    let cure = "this needs root (CAP_SYS_ADMIN); run it as root, for example with sudo";
    let refused = format!("brisk: cannot mount a.img: {cure}\n");
    assert_eq!(
        nobody(&["mount", "--kernel", "a.img", "at"]),
        said(2, "", &refused)
    );
    assert_eq!(
        nobody(&["run", "a.img", "--kernel", "--at", "at", "--", "bin/app"]),
        said(125, "", &refused)
    );
    let doctor = nobody(&["doctor"]);
    assert_eq!(doctor.err, "");
    assert!(
        doctor.out.contains(
            "no      root (CAP_SYS_ADMIN)\n        -> brisk mount --kernel and brisk run --kernel \
             need it: use sudo\n"
        ),
        "{}",
        doctor.out
    );
}

fn run(place: &Place, arguments: &[&str]) -> Said {
    let mut all = vec!["run", "a.img", "--kernel", "--at", "at", "--"];
    all.extend(arguments);
    place.brisk(&all)
}

#[test]
fn a_program_is_started_and_its_status_passes() {
    let place = place();
    let program = [
        "bin/app",
        "sh",
        "-c",
        "echo \"$BRISK_TREE\"; echo e >&2; exit 7",
    ];
    let at = place.path("at").canonicalize().unwrap();
    assert_eq!(
        run(&place, &program),
        said(7, &format!("{}\n", at.display()), "e\n")
    );
    assert_eq!(run(&place, &["sh", "-c", "exit 0"]), said(0, "", ""));
    // No other process saw the mount.
    assert_eq!(fs::read_dir(place.path("at")).unwrap().count(), 0);
    assert_eq!(
        run(&place, &["bin/none"]),
        said(127, "", "brisk: cannot run bin/none: no such file\n")
    );
    assert_eq!(
        run(&place, &["noise"]),
        said(
            127,
            "",
            "brisk: cannot run noise: not found in PATH; to name a program of the image, use its \
             path in the image, with a slash\n"
        )
    );
    assert_eq!(
        run(&place, &["./noise"]),
        said(
            126,
            "",
            "brisk: cannot run ./noise: it may not be executed; give it the x permission, in an image before \
             packing\n"
        )
    );
}

#[test]
fn failures_of_brisk_are_125() {
    let place = place();
    let failed = place.brisk(&["run", "none.img", "--", "bin/app"]);
    assert_eq!(
        failed,
        said(
            125,
            "",
            "brisk: none.img: cannot open the image: \
             No such file or directory (os error 2)\n"
        )
    );
    assert_eq!(
        place.brisk(&["run", "a.img", "--kernel", "--at", "none", "--", "bin/app"]),
        said(
            125,
            "",
            "brisk: cannot mount a.img: none does not exist; make the directory first\n"
        )
    );
}

#[test]
fn the_recorded_place_is_where_it_runs() {
    let place = place();
    let at = place.path("at").canonicalize().unwrap();
    let writer = ImageWriter::new().place(at.clone());
    place.pack(&writer, "tree", "a.img");
    let where_it_is = [
        "run",
        "a.img",
        "--kernel",
        "--",
        "bin/app",
        "sh",
        "-c",
        "echo $BRISK_TREE",
    ];
    assert_eq!(
        place.brisk(&where_it_is),
        said(0, &format!("{}\n", at.display()), "")
    );
    // Absolute names of files in the image work there.
    let absolute = at.join("bin/app");
    assert_eq!(
        place.brisk(&[
            "run",
            "a.img",
            "--kernel",
            "--",
            absolute.to_str().unwrap(),
            "true"
        ]),
        said(0, "", "")
    );
    fs::remove_dir(Path::new(&at)).unwrap();
    assert_eq!(
        place.brisk(&where_it_is),
        said(
            125,
            "",
            &format!(
                "brisk: at the place that the image records; --at DIR names another: cannot mount \
                 a.img: {} does not exist; make the directory first\n",
                at.display()
            )
        )
    );
}
