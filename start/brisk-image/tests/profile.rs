//! Profiles: their text, what breaks it, and what a tree still has of them.

mod support;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use brisk_image::profile::{FileState, Named, Origin, PAGE, Profile, ProfileBuilder, RootKind};
use brisk_image::{ErrorKind, Image, ImageWriter, Limits, Tree, TreeRules, Work};
use proptest::prelude::*;

const TEXT: &str = r#"{
"brisk_profile": 1,
"brisk": "0.1.0",
"command": ["bin/app", {"hex": "61ff"}],
"runs": 3,
"ready": ["exit", 531000],
"roots": [
["/opt/app", "directory"],
["/usr", "system"]
],
"files": [
[0, "lib/a\"b.so", 20000, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"],
[0, {"hex": "6c69622fff"}, 4096, null],
[1, "lib/libc.so.6", 1048576, null]
],
"directories": [
[0, ""],
[1, "lib"]
],
"steps": [
["found", 0, "lib", 5, 3],
["absent", 0, {"hex": "ff"}, 6, 2],
["pages", 0, 0, 5, 10, 3],
["pages", 1, 0, 1, 12, 1],
["pages", 2, 16, 240, 20, 3]
]
}
"#;

fn parse(text: &str) -> brisk_image::Result<Profile> {
    Profile::from_text(text.as_bytes(), &Limits::default())
}

#[test]
fn text_is_read_and_written_again_the_same() {
    let profile = parse(TEXT).unwrap();
    assert_eq!(String::from_utf8(profile.to_text()).unwrap(), TEXT);
    assert_eq!(profile.command()[1], OsStr::from_bytes(b"a\xff"));
    assert_eq!(
        profile.files()[1].path,
        Path::new(OsStr::from_bytes(b"lib/\xff"))
    );
    let demand = profile.demand_by_root();
    let of =
        |d: &brisk_image::profile::Demand| (d.files, d.pages, d.bytes, d.ranges, d.found, d.absent);
    assert_eq!(of(&demand[0]), (2, 6, 24096, 2, 1, 1));
    assert_eq!(of(&demand[1]), (1, 240, 240 * PAGE, 1, 0, 0));
}

/// What is changed in the text, and what is then said.
#[test]
fn each_fault_is_said_with_field_place_found_and_allowed() {
    let table = [
        (
            "\"brisk_profile\": 1",
            "\"brisk_profile\": 2",
            "profile version 2 is not supported, only 1 is; record it again, or use the brisk that wrote it",
        ),
        (
            "\"brisk_profile\": 1,\n",
            "",
            "corrupt profile at line 26 column 1: missing field `brisk_profile`",
        ),
        (
            "\"runs\": 3",
            "\"rums\": 3",
            "corrupt profile at line 5 column 6: unknown field `rums`, expected one of `brisk_profile`, `brisk`, `command`, `runs`, `ready`, `roots`, `files`, `directories`, `steps`",
        ),
        (
            "\"runs\": 3",
            "\"runs\": 0",
            "corrupt profile at runs[0]: number of runs is 0, allowed is 1 to 4294967295",
        ),
        (
            "\"runs\": 3",
            "\"runs\": -3",
            "corrupt profile at line 5 column 10: invalid value: integer `-3`, expected u32",
        ),
        (
            "/opt/app",
            "opt/app",
            "corrupt profile at roots[0]: name \"opt/app\" is not an absolute path",
        ),
        (
            "/usr",
            "/opt/app",
            "corrupt profile at roots[1]: name \"/opt/app\" is there a second time, allowed is once",
        ),
        (
            "\"system\"",
            "\"sistem\"",
            "corrupt profile at line 9 column 18: kind of root is \"sistem\", allowed is directory, image or system",
        ),
        (
            "[1, \"lib/libc.so.6\"",
            "[2, \"lib/libc.so.6\"",
            "corrupt profile at files[2]: root is 2, allowed is at most 1",
        ),
        (
            "lib/libc.so.6",
            "/lib/libc.so.6",
            "corrupt profile at files[2]: name \"/lib/libc.so.6\" is not relative, or has an empty part",
        ),
        (
            "lib/libc.so.6",
            "lib/../libc",
            "corrupt profile at files[2]: name \"lib/../libc\" is or has \".\" or \"..\"",
        ),
        (
            "lib/libc.so.6",
            "lib/",
            "corrupt profile at files[2]: name \"lib/\" is not relative, or has an empty part",
        ),
        (
            "lib/libc.so.6",
            "a\\u0000b",
            "corrupt profile at files[2]: name \"a\\x00b\" has a zero byte",
        ),
        (
            "\"lib/libc.so.6\"",
            "\"\"",
            "corrupt profile at files[2]: name \"\" is empty, allowed is a path in the root",
        ),
        (
            "6c69622fff",
            "6c69622f6122622e736f",
            "corrupt profile at files[1]: name \"lib/a\\\"b.so\" is there a second time, allowed is once",
        ),
        (
            "6c69622fff",
            "6c69622ff",
            "corrupt profile at line 13 column 24: a name is another object, allowed is a string, or {\"hex\": \"…\"}",
        ),
        (
            "af1349",
            "ag1349",
            "corrupt profile at line 12 column 93: digest is \"ag1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262\", allowed is 64 hexadecimal digits",
        ),
        (
            "[1, \"lib\"]",
            "[0, \"\"]",
            "corrupt profile at directories[1]: name \"\" is there a second time, allowed is once",
        ),
        (
            "[\"pages\", 1, 0, 1,",
            "[\"pages\", 3, 0, 1,",
            "corrupt profile at steps[3]: file is 3, allowed is at most 2",
        ),
        (
            "[\"pages\", 1, 0, 1,",
            "[\"pages\", 1, 0, 2,",
            "corrupt profile at steps[3]: number of pages is 2, allowed is 1 to 1",
        ),
        (
            "[\"pages\", 1, 0, 1,",
            "[\"pages\", 1, 0, 0,",
            "corrupt profile at steps[3]: number of pages is 0, allowed is 1 to 1",
        ),
        (
            "[\"pages\", 1, 0, 1,",
            "[\"pages\", 1, 9, 1,",
            "corrupt profile at steps[3]: number of pages is 1, allowed is none, as the file has no page there",
        ),
        (
            "[\"pages\", 1, 0, 1,",
            "[\"pages\", 1, 18446744073709551615, 18446744073709551615,",
            "corrupt profile at steps[3]: number of pages is 18446744073709551615, allowed is none, as the file has no page there",
        ),
        (
            "[\"pages\", 1, 0, 1,",
            "[\"pages\", 0, 4, 1,",
            "corrupt profile at steps[3]: number of pages of earlier steps is 1, allowed is none, as each page is in one step",
        ),
        (
            "20, 3]\n",
            "20, 4]\n",
            "corrupt profile at steps[4]: number of runs is 4, allowed is 1 to 3",
        ),
        (
            "20, 3]\n",
            "20, 3, 1]\n",
            "corrupt profile at line 25 column 31: invalid length 7, expected a step: [\"pages\", file, first, count, time, runs], or [\"found\" or \"absent\", directory, name, time, runs]",
        ),
        (
            "20, 3]\n",
            "20]\n",
            "corrupt profile at line 25 column 25: invalid length 5, expected a step: [\"pages\", file, first, count, time, runs], or [\"found\" or \"absent\", directory, name, time, runs]",
        ),
        (
            "[\"found\", 0",
            "[\"maybe\", 0",
            "corrupt profile at line 21 column 8: kind of step is \"maybe\", allowed is pages, found or absent",
        ),
        (
            "[\"found\", 0",
            "[\"found\", 7",
            "corrupt profile at steps[0]: directory is 7, allowed is at most 1",
        ),
        (
            "0, \"lib\", 5",
            "0, \"a/b\", 5",
            "corrupt profile at steps[0]: name \"a/b\" has a slash",
        ),
        (
            "0, \"lib\", 5",
            "0, \"..\", 5",
            "corrupt profile at steps[0]: name \"..\" is or has \".\" or \"..\"",
        ),
        (
            "[\"found\", 0, \"lib\"",
            "[\"absent\", 0, {\"hex\": \"ff\"}",
            "corrupt profile at steps[1]: name \"\\xff\" is looked up a second time with this answer, allowed is once",
        ),
    ];
    let mut wrong = Vec::new();
    for (old, new, message) in table {
        assert_eq!(TEXT.matches(old).count(), 1, "{old}");
        let e = parse(&TEXT.replace(old, new)).unwrap_err();
        if e.to_string() != message {
            wrong.push(format!("{old} -> {new}\n{e}\n{message}\n"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let long = "x".repeat(256);
    let e = parse(&TEXT.replace("0, \"lib\", 5", &format!("0, \"{long}\", 5"))).unwrap_err();
    assert!(
        e.to_string().ends_with("has a part of more than 255 bytes"),
        "{e}"
    );
    let long = "x/".repeat(2048) + "x";
    let e = parse(&TEXT.replace("lib/libc.so.6", &long)).unwrap_err();
    assert!(e.to_string().ends_with("is longer than 4095 bytes"), "{e}");
}

#[test]
fn what_a_profile_may_take_is_bounded() {
    let limits = Limits::new().memory(1 << 10);
    let e = Profile::from_text(TEXT.as_bytes(), &limits).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Limit);
    let deep = format!(
        "{{\"brisk_profile\": {}1{}",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    assert_eq!(parse(&deep).unwrap_err().kind(), ErrorKind::Corrupt);
    let deep = format!(
        "{{\"brisk_profile\": 1, \"x\": {}1{}}}",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    assert_eq!(parse(&deep).unwrap_err().kind(), ErrorKind::Corrupt);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    fs::write(&path, vec![b' '; 100]).unwrap();
    let e = Profile::open(&path, &limits).unwrap_err();
    assert_eq!(
        e.to_string(),
        format!(
            "{}: a profile needs 1056, which passes the limit of 1024",
            path.display()
        )
    );
}

#[test]
fn what_is_written_can_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let of_command = |len: usize| {
        let command = vec!["x".repeat(len).into()];
        let built = ProfileBuilder::new().finish(command, None, |_, _| None);
        built.unwrap().profile
    };
    let large = of_command(31 << 20);
    large.write(&path).unwrap();
    let limits = Limits::of_profiles();
    assert!(Profile::open(&path, &limits).unwrap() == large);
    let e = of_command(32 << 20)
        .write(dir.path().join("none"))
        .unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Limit);
    assert!(!dir.path().join("none").exists());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    /// A changed text is a fault or another profile, whose text reads back.
    #[test]
    fn no_text_is_a_panic(at in 0..TEXT.len(), with in any::<u8>(), cut in any::<bool>()) {
        let mut bytes = TEXT.as_bytes().to_vec();
        match cut {
            true => bytes.truncate(at),
            false => bytes[at] = with,
        }
        if let Ok(profile) = Profile::from_text(&bytes, &Limits::default()) {
            let again = Profile::from_text(&profile.to_text(), &Limits::default());
            prop_assert_eq!(again.unwrap(), profile);
        }
    }
}

/// A tree of 100 files of 10 pages in ten packages, and a profile of all of them.
fn packages(dir: &Path) -> Profile {
    let builder = ProfileBuilder::new();
    let root = builder.add_root(dir, RootKind::Directory);
    let path = |n: u64| format!("package-{}/file-{n}", n / 10);
    for n in 0..100 {
        let file = dir.join(path(n));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, vec![n as u8; 10 * PAGE as usize]).unwrap();
        builder.range(root, n, 0, 10 * PAGE, Duration::ZERO);
    }
    builder.look_up(root, 1000, OsStr::new("package-0"), true, Duration::ZERO);
    builder.look_up(root, 1000, OsStr::new("absent"), false, Duration::ZERO);
    let name = |_, n: u64| {
        Some(match n {
            1000 => Named::new("", 0),
            n => Named::new(path(n), 10 * PAGE)
                .digest(*blake3::hash(&vec![n as u8; 10 * PAGE as usize]).as_bytes()),
        })
    };
    builder
        .finish(vec!["app".into()], None, name)
        .unwrap()
        .profile
}

#[test]
fn one_changed_package_leaves_nine_tenths_of_the_ranges() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    let profile = packages(&tree);
    let check = |origin: &Origin| profile.check(origin, &Work::new().threads(2)).unwrap();
    let pages = |s: &brisk_image::profile::Staleness| {
        (
            s.pages.same,
            s.pages.changed,
            s.pages.missing,
            s.pages.outside,
        )
    };
    let pack = |name: &str| {
        let tree = Tree::from_directory(&tree, &TreeRules::default()).unwrap();
        let path = dir.path().join(name);
        ImageWriter::new().write(&tree, &path).unwrap();
        Image::open(path).unwrap()
    };
    let same = check(&Origin::directory(&tree).unwrap());
    assert_eq!((pages(&same), same.is_stale()), ((1000, 0, 0, 0), false));
    assert_eq!(same.files, [FileState::Same; 100]);
    assert_eq!(same, check(&Origin::image(&pack("old.img"))));

    let file = |n: u32| tree.join(format!("package-3/file-{n}"));
    for n in 30..38 {
        fs::write(file(n), vec![0xff; 10 * PAGE as usize]).unwrap();
    }
    fs::write(file(38), "short").unwrap();
    fs::remove_file(file(39)).unwrap();
    fs::create_dir(file(39)).unwrap();
    fs::write(tree.join("absent"), "").unwrap();
    let stale = check(&Origin::directory(&tree).unwrap());
    assert_eq!((pages(&stale), stale.is_stale()), ((900, 90, 10, 0), true));
    assert_eq!(stale.files[30], FileState::Contents);
    assert_eq!(stale.files[38], FileState::Length(5));
    assert_eq!(stale.files[39], FileState::Missing);
    assert_eq!((stale.look_ups, stale.look_ups_changed), (2, 1));
    assert_eq!(stale, check(&Origin::image(&pack("new.img"))));
}

#[test]
fn links_lead_nowhere() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    let profile = packages(&tree);
    // The files are still there, by way of a link out of the tree.
    fs::rename(tree.join("package-0"), dir.path().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink("../elsewhere", tree.join("package-0")).unwrap();
    fs::remove_file(tree.join("package-1/file-10")).unwrap();
    std::os::unix::fs::symlink("file-11", tree.join("package-1/file-10")).unwrap();
    let stale = profile
        .check(&Origin::directory(&tree).unwrap(), &Work::new().threads(1))
        .unwrap();
    assert_eq!((stale.pages.same, stale.pages.missing), (890, 110));
    // The name itself is still found.
    assert_eq!(stale.look_ups_changed, 0);
}

#[test]
fn two_profiles_are_compared_page_by_page() {
    let of = |steps: &str| {
        parse(&format!(
            "{{\"brisk_profile\":1,\"brisk\":\"\",\"command\":[],\"runs\":1,\"roots\":[[\"/a\",\"image\"]],\
             \"files\":[[0,\"x\",40960,null],[0,\"y\",40960,null],[0,\"z\",40960,null]],\
             \"directories\":[],\"steps\":[{steps}]}}"
        ))
        .unwrap()
    };
    let a = of(r#"["pages",0,0,4,0,1],["pages",1,0,5,0,1]"#);
    let b = of(r#"["pages",0,2,4,0,1],["pages",2,0,1,0,1],["pages",1,0,5,0,1]"#);
    let difference = a.compare(&b);
    let of = |p: &brisk_image::profile::PagesOfBoth| (p.only_first, p.only_second, p.both);
    assert_eq!(of(&difference.total), (2, 3, 7));
    let files: Vec<_> = difference
        .files
        .iter()
        .map(|(_, path, p)| (path.to_str().unwrap(), of(p)))
        .collect();
    assert_eq!(files, [("x", (2, 2, 2)), ("z", (0, 1, 0))]);
    assert_eq!(a.compare(&a).files, []);
}

#[test]
fn the_example_of_the_page_is_a_profile() {
    let page = include_str!("../docs/profile-format.md");
    let (_, behind) = page.split_once("```json\n").unwrap();
    let (example, _) = behind.split_once("```").unwrap();
    let profile = parse(example).unwrap();
    assert_eq!(String::from_utf8(profile.to_text()).unwrap(), example);
}

#[test]
fn a_directory_of_the_system_gets_a_root_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().canonicalize().unwrap();
    fs::create_dir_all(place.join("app/lib")).unwrap();
    fs::write(place.join("app/lib/file"), vec![b'x'; 5]).unwrap();
    let inner = place.join("app").to_str().unwrap()[1..].to_owned();
    let outer = place.to_str().unwrap();
    let of = |kind: &str| {
        parse(&format!(
            "{{\"brisk_profile\":1,\"brisk\":\"\",\"command\":[],\"runs\":1,\
             \"roots\":[[\"/\",\"{kind}\"]],\
             \"files\":[[0,\"etc/passwd\",9,null],[0,\"{inner}/lib/file\",5,null],[0,\"{inner}\",5,null]],\
             \"directories\":[[0,\"{inner}\"],[0,\"etc\"]],\
             \"steps\":[[\"pages\",1,0,1,0,1],[\"pages\",0,0,1,0,1],[\"found\",0,\"lib\",0,1]]}}"
        ))
        .unwrap()
    };
    let system = of("system");
    let app = Origin::directory(place.join("app")).unwrap();
    let narrowed = app.narrow(&system).unwrap();
    assert_eq!(app.root_of(&narrowed).unwrap(), 1);
    let files: Vec<_> = narrowed
        .files()
        .iter()
        .map(|f| (f.root, f.path.to_str().unwrap()))
        .collect();
    assert_eq!(files, [(0, "etc/passwd"), (1, "lib/file"), (0, &*inner)]);
    let directories = narrowed.directories().iter();
    let directories: Vec<_> = directories
        .map(|d| (d.root, d.path.to_str().unwrap()))
        .collect();
    assert_eq!(directories, [(1, ""), (0, "etc")]);
    assert_eq!(
        parse(&String::from_utf8(narrowed.to_text()).unwrap()).unwrap(),
        *narrowed
    );
    let state = system.check(&app, &Work::new().threads(1)).unwrap();
    assert_eq!(
        (state.pages.same, state.pages.outside, state.look_ups),
        (1, 1, 1)
    );
    // A root itself, an outer directory that has nothing of it, and what a tree is.
    for (origin, profile) in [
        ("/", &system),
        (outer, &of("directory")),
        ("/proc", &system),
    ] {
        let origin = Origin::directory(origin).unwrap();
        assert_eq!(*origin.narrow(profile).unwrap(), *profile);
    }
}

#[test]
fn the_root_of_a_tree_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().canonicalize().unwrap();
    for (name, len) in [("app", 5), ("runtime", 6), ("elsewhere", 6)] {
        fs::create_dir(place.join(name)).unwrap();
        fs::write(place.join(name).join("file"), vec![b'x'; len]).unwrap();
    }
    let of = |roots: &[(&str, &str)]| {
        let (root, file): (Vec<_>, Vec<_>) = roots
            .iter()
            .zip(5..)
            .enumerate()
            .map(|(n, ((path, kind), len))| {
                (
                    format!("[\"{path}\",\"{kind}\"]"),
                    format!("[{n},\"file\",{len},null]"),
                )
            })
            .unzip();
        parse(&format!(
            "{{\"brisk_profile\":1,\"brisk\":\"\",\"command\":[],\"runs\":1,\"roots\":[{}],\"files\":[{}],\
             \"directories\":[],\"steps\":[]}}",
            root.join(","),
            file.join(",")
        ))
        .unwrap()
    };
    let root = |profile: &Profile, name: &str| {
        Origin::directory(place.join(name))
            .unwrap()
            .root_of(profile)
    };
    let app = place.join("app");
    let app = app.to_str().unwrap();
    let two = of(&[
        ("/opt/app", "directory"),
        ("/opt/runtime", "image"),
        ("/", "system"),
    ]);
    // By the length of their files.
    assert_eq!(root(&two, "app").unwrap(), 0);
    assert_eq!(root(&two, "elsewhere").unwrap(), 1);
    // By path, whatever the files are.
    let two = of(&[("/opt/app", "directory"), (app, "directory")]);
    assert_eq!(root(&two, "app").unwrap(), 1);
    // The only one.
    let one = of(&[("/", "system"), ("/opt/app", "directory")]);
    assert_eq!(root(&one, "runtime").unwrap(), 1);
    assert_eq!(root(&one, "/").unwrap(), 0);
    let none = of(&[("/", "system")]);
    assert_eq!(
        root(&none, "app").unwrap_err().to_string(),
        "the profile was recorded from neither a directory nor an image, so nothing in it can be \
         looked for here; record one with --tree or an image"
    );
}

/// Reads a text of the shortest entries of one list, as many as it may have, in a process of its own.
fn check_memory(name: &str, list: &str, entry: fn(usize) -> String) {
    const TEXT: usize = 8 << 20;
    support::in_own_process(name, || {
        let mut text = String::with_capacity(TEXT);
        text.push_str("{\"brisk_profile\":1,\"brisk\":\"\",\"runs\":1");
        for other in ["command", "roots", "files", "directories", "steps"] {
            let entries = match other {
                "roots" => "[\"/\",\"image\"]",
                "directories" => "[0,\"\"]",
                _ => "",
            };
            if other != list {
                text.push_str(&format!(",\"{other}\":[{entries}]"));
            }
        }
        text.push_str(&format!(",\"{list}\":[{}", entry(0)));
        for n in 1.. {
            let entry = entry(n);
            if text.len() + entry.len() + 3 > TEXT {
                break;
            }
            text.push(',');
            text.push_str(&entry);
        }
        text.push_str("]}");
        let before = support::vm_hwm();
        parse(&text).unwrap();
        let factor = ((support::vm_hwm() - before) << 10) as f64 / text.len() as f64;
        println!("peak memory for {list}: {factor:.1} bytes for each of the text");
        assert!(factor <= 32.0, "{list}: {factor:.1}");
    });
}

#[test]
fn the_memory_for_a_command_is_bounded() {
    let name = "the_memory_for_a_command_is_bounded";
    check_memory(name, "command", |_| "\"\"".to_owned());
}

#[test]
fn the_memory_for_roots_is_bounded() {
    let name = "the_memory_for_roots_is_bounded";
    check_memory(name, "roots", |n| format!("[\"/{n}\",\"image\"]"));
}

#[test]
fn the_memory_for_files_is_bounded() {
    let name = "the_memory_for_files_is_bounded";
    check_memory(name, "files", |n| format!("[0,\"{n}\",1,null]"));
}

#[test]
fn the_memory_for_directories_is_bounded() {
    let name = "the_memory_for_directories_is_bounded";
    check_memory(name, "directories", |n| format!("[0,\"{n}\"]"));
}

#[test]
fn the_memory_for_steps_is_bounded() {
    let name = "the_memory_for_steps_is_bounded";
    check_memory(name, "steps", |n| format!("[\"found\",0,\"{n}\",0,1]"));
}
