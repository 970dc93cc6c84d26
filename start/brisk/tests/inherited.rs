//! A program inherits through brisk what it would inherit without: signals, descriptors and limits, however it is started.

mod staging;

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use brisk_io::measure::evict_and_prove;
use staging::{Stage, each_user};

/// What a parent leaves to the command behind it. The limit is none that a user may not set.
const GIVES: &str = "ulimit -S -n 300; ulimit -S -c 0; umask 027; exec 7< app.img; \
                     exec nice -n 3 env --ignore-signal=PIPE,HUP,USR2 \
                     --block-signal=CHLD,TERM,USR1 \"$@\"";

/// Descriptors that are closed, on top of that.
const CLOSED: [&str; 5] = ["", "<&-", ">&-", "2>&-", "<&- >&- 2>&-"];

/// Copies what the kernel says about the process that copies it. It also reads enough to be learned.
const LOOK: [&str; 6] = [
    "cp",
    "big",
    "/proc/self/status",
    "/proc/self/limits",
    "/proc/self/stat",
    "/proc/self/oom_score_adj",
];

/// What `cp` has seen, as text. `out` is where it has copied to.
fn seen(out: &Path) -> String {
    let read = |name: &str| {
        let text = fs::read_to_string(out.join(name));
        text.unwrap_or_else(|e| panic!("{name} in {}: {e}", out.display()))
    };
    let status = read("status");
    let wanted = ["Umask", "ShdPnd", "NoNewPrivs", "Seccomp", "Cpus_allowed"];
    let mut lines: Vec<_> = status
        .lines()
        .filter(|line| {
            let is_mask = line.starts_with("Sig") && !line.starts_with("SigQ");
            is_mask || wanted.iter().any(|name| line.starts_with(name))
        })
        .map(str::to_owned)
        .collect();
    let stat = read("stat");
    let fields = stat.rsplit_once(") ").unwrap().1.split(' ');
    lines.push(format!("nice {}", fields.clone().nth(16).unwrap()));
    lines.push(format!("score {}", read("oom_score_adj")));
    lines.extend(read("limits").lines().map(str::to_owned));
    let descriptors = read("descriptors");
    let mut descriptors: Vec<_> = descriptors
        .lines()
        // The number of the process differs.
        .map(|line| line.split("/proc/").next().unwrap().to_owned())
        .collect();
    descriptors.sort();
    lines.extend(descriptors);
    lines.join("\n")
}

/// Starts `before` with programs that look at themselves: one copies files, and one lists its descriptors.
fn look(stage: &Stage, before: &[&str], closed: &str) -> String {
    let out = stage.writable().join("out");
    if out.exists() {
        fs::remove_dir_all(&out).unwrap();
    }
    let made = stage.plainly(&["mkdir", out.to_str().unwrap()]);
    assert!(made.status.success(), "{made:?}");
    let here = stage.path("");
    let out_text = out.to_str().unwrap();
    let files = [&LOOK[..], &[out_text]].concat();
    let descriptors = out.join("descriptors");
    let descriptors = [
        "find",
        "/proc/self/fd/",
        "-fprintf",
        descriptors.to_str().unwrap(),
        "%f %l\n",
    ];
    for program in [&files[..], &descriptors] {
        let command = stage.brisk(&[]);
        let setpriv: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        let mut plain = Command::new(command.get_program());
        plain
            .args(&setpriv[..setpriv.len() - 1])
            .args(["sh", "-c", &format!("{GIVES} {closed}"), "sh"])
            .args(before)
            .args(program)
            .current_dir(&here)
            .env("XDG_CACHE_HOME", stage.cache())
            .env("XDG_RUNTIME_DIR", stage.runtime())
            .stdin(Stdio::null())
            .stdout(File::create(stage.path("stdout")).unwrap())
            .stderr(File::create(stage.path("stderr")).unwrap());
        let status = plain.status().unwrap();
        let said = fs::read_to_string(stage.path("stderr")).unwrap();
        // What `find` has open is gone when it looks at it, so it may fail.
        let is_done = status.success() || program[0] == "find" && status.code() == Some(1);
        assert!(is_done, "{before:?} {program:?} {closed}: {status}, {said}");
    }
    seen(&out)
}

fn assert_inherits(stage: &Stage, ways: &[Vec<&str>]) {
    for closed in CLOSED {
        let plain = look(stage, &[], closed);
        for way in ways {
            evict_and_prove(&File::open(stage.path("big")).unwrap()).unwrap();
            let through = look(stage, way, closed);
            assert_eq!(through, plain, "{way:?} {closed}");
        }
    }
}

/// Files that all ways need.
fn prepare(stage: &Stage) -> String {
    fs::write(stage.path("big"), vec![7; 3 << 20]).unwrap();
    stage.executable().to_str().unwrap().to_owned()
}

#[test]
fn a_program_inherits_the_same_when_an_image_starts_it() {
    each_user(|given| {
        let stage = Stage::on_disk(given.user());
        let brisk = prepare(&stage);
        let home = stage.writable();
        let [launcher, profile] = ["app", "traced"].map(|name| home.join(name));
        // What the launcher starts.
        fs::copy(stage.path("tree/bin/app"), stage.path("tree/AppRun")).unwrap();
        stage.pack("app.img");
        let wrapped = stage
            .brisk(&["wrap", "app.img", "-o"])
            .arg(&launcher)
            .output()
            .unwrap();
        assert!(wrapped.status.success(), "{wrapped:?}");
        let mut ways = vec![
            // Makes the session, and joins it.
            vec![&brisk, "run", "app.img", "--linger", "600", "--"],
            vec![&brisk, "run", "app.img", "--linger", "0", "--"],
            vec![
                &brisk, "run", "app.img", "--at", "at", "--linger", "0", "--",
            ],
            vec![&brisk, "run", "app.img", "--linger", "0", "--", "bin/app"],
            vec![launcher.to_str().unwrap()],
            vec![
                &brisk,
                "trace",
                "app.img",
                "-q",
                "-o",
                profile.to_str().unwrap(),
                "--",
            ],
        ];
        if stage.is_root() {
            ways.push(vec![&brisk, "run", "--kernel", "app.img", "--"]);
        }
        assert_inherits(&stage, &ways);
    });
}

#[test]
fn a_program_inherits_the_same_in_another_root_directory() {
    each_user(|stage| {
        let brisk = prepare(stage);
        stage.pack_root();
        let ways = [
            vec![&brisk, "run", "root.img", "--root", "--linger", "0", "--"],
            vec![&brisk, "run", "root", "--root", "--auto", "--"],
        ];
        assert_inherits(stage, &ways);
    });
}

#[test]
fn a_program_inherits_the_same_when_it_is_started_where_it_is() {
    each_user(|given| {
        let stage = Stage::on_disk(given.user());
        let brisk = prepare(&stage);
        let profile = stage.writable().join("profile");
        let profile = profile.to_str().unwrap();
        let traced = stage
            .brisk(&[
                "trace",
                "--tree",
                "tree",
                "-q",
                "-o",
                profile,
                "--",
                "cat",
                "tree/text",
            ])
            .output()
            .unwrap();
        assert!(traced.status.success(), "{traced:?}");
        let links = stage.path("links");
        fs::create_dir(&links).unwrap();
        for name in ["cp", "find"] {
            symlink(&brisk, links.join(name)).unwrap();
        }
        let path = format!("PATH={}:/usr/bin:/bin", links.display());
        let traced = stage.writable().join("traced");
        let auto = vec![&brisk, "run", "--auto", "--"];
        let ways = [
            // Observed, and later replayed.
            auto.clone(),
            auto.clone(),
            auto,
            vec![&brisk, "run", "--auto", "-v", "--"],
            vec!["env", &path],
            vec![&brisk, "run", "tree", "--auto", "--"],
            vec![&brisk, "run", "tree", "--profile", profile, "--"],
            vec![&brisk, "run", "tree", "--profile", profile, "-v", "--"],
            vec![&brisk, "replay", profile, "--"],
            vec![
                &brisk,
                "trace",
                "--tree",
                "tree",
                "-q",
                "-o",
                traced.to_str().unwrap(),
                "--",
            ],
        ];
        assert_inherits(&stage, &ways);
    });
}
