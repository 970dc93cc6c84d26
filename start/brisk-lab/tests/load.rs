//! `brisk lab load`: what it measures, leaves out and refuses, and that it leaves nothing behind.
//!
//! No test depends on a time.

mod measuring;

#[path = "../../brisk/tests/staging/mod.rs"]
mod staging;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use brisk_io::Strategy;
use measuring::measuring;
use serde_json::Value;
use staging::Stage;
use staging::documented::assert_documented;

/// How long a test may take, on a slow and busy machine.
const LIMIT: Duration = Duration::from_secs(300);

/// Runs `test` for each user, in a place of their own.
fn for_each_user(test: impl Fn(&Stage) + Send + Clone + 'static) {
    for user in [0, 1000] {
        let test = test.clone();
        measuring(File::lock_shared, LIMIT, move || {
            let stage = Stage::on_disk(user);
            chown(stage.path(""), Some(user), Some(user)).unwrap();
            test(&stage);
        });
    }
}

fn lab(stage: &Stage, arguments: &[&str]) -> Output {
    let mut command = stage.brisk(&["lab", "load", "--out", "out", "--seed", "1"]);
    command
        .args(arguments)
        .env("XDG_CACHE_HOME", stage.path("cache"));
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn results(stage: &Stage) -> Value {
    let results = fs::read_to_string(stage.path("out/load.json")).unwrap();
    assert_documented("load.json", &results);
    serde_json::from_str(&results).unwrap()
}

#[track_caller]
fn measure(stage: &Stage, arguments: &[&str]) -> (Value, String) {
    let output = lab(stage, arguments);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    (results(stage), text(&output.stdout))
}

/// The last line of a refusal.
#[track_caller]
fn refusal(stage: &Stage, arguments: &[&str]) -> String {
    let output = lab(stage, arguments);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert_eq!(text(&output.stdout), "");
    text(&output.stderr)
        .lines()
        .last()
        .unwrap_or_default()
        .to_owned()
}

fn names_in(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

#[test]
fn every_way_is_measured_or_the_reason_said() {
    for_each_user(|stage| {
        let (raw, table) = measure(
            stage,
            &[
                "--size",
                "1M",
                "--runs",
                "2",
                "--processes",
                "1,2",
                "--touched",
                "100,25-random",
                "--form",
                "shared,patched",
                "--faulting",
                "0,2",
                "--release",
                "unmap,skip",
                "--strategies",
                "shared-map,private-map,populated-map,read,chosen,nothing",
            ],
        );
        let cases: Vec<_> = raw["cases"].as_array().unwrap().iter().collect();
        // The base; two processes; touched at random; touched by others; two threads; patched, in both
        // orders. Warm also: not given back before the end.
        assert_eq!(cases.len(), 7 + 8, "{cases:?}");
        let mut counts: BTreeMap<(u64, &str), Vec<u64>> = BTreeMap::new();
        for run in raw["runs"].as_array().unwrap() {
            let case = run["case"].as_u64().unwrap();
            let way = run["way"].as_str().unwrap();
            let repetition = run["repetition"].as_u64().unwrap();
            counts.entry((case, way)).or_default().push(repetition);
            let seconds = |name: &str| run[name].as_f64().unwrap();
            assert!(seconds("first_seconds") <= seconds("last_seconds"), "{run}");
            assert!(seconds("used_seconds") <= seconds("exit_seconds"), "{run}");
            let processes = cases[usize::try_from(case).unwrap()]["processes"].as_u64();
            assert_eq!(
                Some(run["each"].as_array().unwrap().len() as u64),
                processes
            );
            let taken = run["taken"].as_str();
            match way {
                "chosen" => assert!(taken.unwrap().parse::<Strategy>().is_ok()),
                "nothing" => assert_eq!(taken, None),
                way => assert_eq!(taken, Some(way)),
            }
        }
        let lost = raw["lost"].as_u64().unwrap();
        let made: usize = counts.values().map(Vec::len).sum();
        // Files to patch are not mapped shared: two cases, cold and warm.
        let asked = 2 * (15 * 6 - 4);
        assert_eq!(made as u64 + lost, asked);
        assert!(lost < asked / 4, "{lost} of {asked}");
        let left_out = raw["left_out"].as_array().unwrap();
        let refused = left_out.iter().filter(|left| {
            left["reason"] == "a shared mapping cannot be patched; map it private, or copy it"
        });
        assert_eq!(refused.count(), 4, "{left_out:?}");
        for expected in [
            "\n1.0 MB cold, 100 % in order\n",
            "\n1.0 MB warm, 2 processes, 100 % in order\n",
            "\nIs mapping faster when the file is cold?\n",
            "\nWhat does unmapping cost?\n",
            "\nThe strategies of the built-in table take ",
            "\nLeft out\n1.0 MB cold, 100 % in order, unmapping skipped: ",
            " 2 runs of each are too few to tell.\n",
            ": only --product measures what differs from the base in two ways\n",
        ] {
            assert!(table.contains(expected), "{expected}: {table}");
        }
        // There is memory for one process, and for both of two.
        let counted = raw["counted"].as_array().unwrap();
        assert!(
            counted
                .iter()
                .all(|row| row["memory"][0]["resident_kib"].as_u64().unwrap() > 100)
        );
        // The files that the lab made are gone.
        assert_eq!(names_in(&stage.path("out")), ["load.json", "report.html"]);
        let page = fs::read_to_string(stage.path("out/report.html")).unwrap();
        let again = stage.brisk(&["lab", "report", "out/load.json", "-o", "again.html"]);
        let again = { again }.output().unwrap();
        assert_eq!(again.status.code(), Some(0), "{again:?}");
        assert_eq!(fs::read_to_string(stage.path("again.html")).unwrap(), page);
        for expected in [
            "<h3>1.0 MB cold, 100 % in order</h3>",
            "download=\"load.json\"",
        ] {
            assert!(page.contains(expected), "{expected}");
        }
        assert!(
            !stage.path("cache").exists(),
            "nothing is kept that was not asked for"
        );
    });
}

#[test]
fn json_is_printed_as_it_is_kept() {
    for_each_user(|stage| {
        let arguments = [
            "--size",
            "1M",
            "--runs",
            "1",
            "--processes",
            "1",
            "--touched",
            "100",
            "--by",
            "caller",
            "--form",
            "shared",
            "--faulting",
            "0",
            "--release",
            "unmap",
            "--states",
            "warm",
            "--strategies",
            "shared-map",
            "--json",
        ];
        let (raw, printed) = measure(stage, &arguments);
        assert_eq!(serde_json::from_str::<Value>(&printed).unwrap(), raw);
    });
}

#[test]
fn whole_pages_are_summed_in_each_form() {
    measuring(File::lock_shared, LIMIT, || {
        let stage = Stage::on_disk(0);
        let (raw, _) = measure(
            &stage,
            &[
                "--size",
                "1M",
                "--runs",
                "1",
                "--states",
                "warm",
                "--processes",
                "1",
                "--touched",
                "25-random",
                "--by",
                "caller,others",
                "--faulting",
                "0",
                "--release",
                "unmap",
                "--strategies",
                "read,private-map",
                "--product",
                "--whole-pages",
            ],
        );
        let cases = raw["cases"].as_array().unwrap();
        let forms = cases.iter().map(|case| case["form"].as_str().unwrap());
        assert!(forms.into_iter().any(|form| form == "patched"), "{cases:?}");
        assert!(raw["runs"].as_array().unwrap().len() > cases.len());
    });
}

#[test]
fn a_file_in_memory_is_only_warm() {
    measuring(File::lock_shared, LIMIT, || {
        let stage = Stage::on_disk(0);
        let shm = tempfile::tempdir_in("/dev/shm").unwrap();
        let file = shm.path().join("file");
        fs::write(&file, vec![7; 100_001]).unwrap();
        let (raw, table) = measure(
            &stage,
            &[
                file.to_str().unwrap(),
                "--runs",
                "1",
                "--processes",
                "1",
                "--touched",
                "100",
                "--by",
                "caller",
                "--form",
                "copied",
                "--faulting",
                "0",
                "--release",
                "skip",
                "--strategies",
                "read,shared-map",
                "--whole-pages",
            ],
        );
        assert_eq!(raw["runs"].as_array().unwrap().len(), 2);
        let reason = format!(
            "{} is in memory (tmpfs), where no file is ever cold\n",
            file.display()
        );
        assert!(table.contains(&reason), "{table}");
        let said = refusal(
            &stage,
            &["--size", "1M", "--dir", shm.path().to_str().unwrap()],
        );
        assert_eq!(
            said,
            format!(
                "brisk: {} is in memory (tmpfs), where no file is ever cold; name a directory on a disk \
                 with --dir, or a file",
                shm.path().display()
            )
        );
    });
}

#[test]
fn what_cannot_be_loaded_is_said() {
    measuring(File::lock_shared, LIMIT, || {
        let stage = Stage::on_disk(0);
        fs::write(stage.path("empty"), "").unwrap();
        let path = |name: &str| stage.path(name).display().to_string();
        for (arguments, expected) in [
            (
                &["empty"][..],
                format!(
                    "brisk: {} is empty, so there is nothing to load",
                    path("empty")
                ),
            ),
            (&["tree"], format!("brisk: {} is not a file", path("tree"))),
            (
                &["--size", "1000000G"],
                format!(
                    "brisk: the files need 1073741824.0 MB, and {} has ",
                    path("out")
                ),
            ),
            (
                &["--size", "8589934592G,8589934592G"],
                format!(
                    "brisk: the files need 18446744073709.6 MB, and {} has ",
                    path("out")
                ),
            ),
        ] {
            let said = refusal(&stage, arguments);
            assert!(said.starts_with(&expected), "{said}");
        }
        assert_eq!(names_in(&stage.path("out")), [""; 0]);
    });
}
