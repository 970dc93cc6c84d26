//! Makes a disk slower: the kernel limits what programs can read from it in a second.
//!
//! With cgroup v1, the controller blkio limits the processes of one group but not those in groups below it.
//! So the limits apply to the group that the lab is in, with everything that the lab starts and all else in
//! that group. With cgroup v2, the limits (`io.max`) apply to a group that the lab makes. The lab and
//! everything that it starts are in that group while launches are measured.

use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::undo::Undo;
use brisk::Rate;

/// The system's directory of control groups.
const GROUPS: &str = "/sys/fs/cgroup";

/// How the kernel can limit reads.
#[derive(Debug, PartialEq, Eq)]
pub enum Throttle {
    /// In the group of cgroup v1 that the lab is in.
    Shared { group: PathBuf },
    /// In a group of cgroup v2 that the lab makes.
    Own {
        /// The root group.
        root: PathBuf,
        /// The group that is made.
        group: PathBuf,
        /// The group that the lab is in.
        home: PathBuf,
    },
}

/// A step that limits reads.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Makes a group, if it does not exist.
    Make(PathBuf),
    /// Sets limits that stay until they are lifted or undone.
    Limit(Text),
    /// Sets limits in the group that is made. They go away with it.
    LimitOwn(Text),
    /// Turns something on, and leaves it on until the lab ends: others may use it by then.
    TurnOn(Text),
    /// Moves this process, and everything that it starts later, from one group into another.
    Enter { group: PathBuf, from: PathBuf },
}

/// A text for a file of the kernel, and the text that was there before.
#[derive(Debug, PartialEq, Eq)]
pub struct Text {
    path: PathBuf,
    text: String,
    before: String,
}

impl Throttle {
    /// What this system offers.
    pub fn find() -> Result<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self::find_in(Path::new(GROUPS), &own, std::process::id())
    }

    /// Like [`Throttle::find`], with control groups below `groups`, for the process with this number. `own`
    /// lists its groups.
    fn find_in(groups: &Path, own: &str, process: u32) -> Result<Self> {
        let blkio = groups.join("blkio");
        let group = group_within(&blkio, own, "blkio").unwrap_or_else(|| blkio.clone());
        if knob(&group, Rate::Bytes(0)).exists() {
            return Ok(Self::Shared { group });
        }
        // cgroup v2 is mounted beside the controllers of v1, or alone.
        let mut roots = [groups.to_owned(), groups.join("unified")].into_iter();
        let has_io = |root: &PathBuf| {
            let controllers = fs::read_to_string(root.join("cgroup.controllers"));
            controllers.is_ok_and(|names| names.split_whitespace().any(|name| name == "io"))
        };
        let root = roots.find(has_io).with_context(|| {
            format!(
                "cannot limit reads: found neither {} nor io in {}; --disk needs the \
                 controller blkio of cgroup v1 with its throttle, or io of cgroup v2",
                knob(&group, Rate::Bytes(0)).display(),
                groups.join("cgroup.controllers").display()
            )
        })?;
        let home = group_within(&root, own, "");
        Ok(Self::Own {
            group: root.join(format!("brisk-lab-{process}")),
            home: home.unwrap_or_else(|| root.clone()),
            root,
        })
    }

    /// Limits reads from the disk with this directory in `/sys`, and returns what lifts the limits.
    pub fn set(&self, limits: &[Rate], disk: &Path, undo: &mut Undo) -> Result<Vec<Lift>> {
        let number = fs::read_to_string(disk.join("dev"))
            .with_context(|| format!("cannot ask for the number of {}", disk.display()))?;
        let mut lifts = Vec::new();
        let mut steps = self.steps(limits, number.trim())?.into_iter();
        let set = steps.try_for_each(|step| {
            match &step {
                Step::Make(group) => undo.remove_group(group)?,
                Step::Limit(text) | Step::TurnOn(text) => undo.write(&text.path, &text.before)?,
                Step::Enter { from, .. } => undo.leave_for(from)?,
                Step::LimitOwn(_) => {}
            }
            step.work()?;
            lifts.extend(step.lift());
            Ok(())
        });
        keep_if(set, lifts).map(|(lifts, ())| lifts)
    }

    /// The steps that limit reads from the disk with this number.
    fn steps(&self, limits: &[Rate], number: &str) -> Result<Vec<Step>> {
        match self {
            Self::Shared { group } => {
                let steps = limits.iter().map(|limit| {
                    let path = knob(group, *limit);
                    // 0 means no limit.
                    let before = line_of(&path, number)?.unwrap_or_else(|| format!("{number} 0"));
                    let (Rate::Bytes(most) | Rate::Operations(most)) = limit;
                    Ok(Step::Limit(Text {
                        path,
                        text: format!("{number} {most}"),
                        before,
                    }))
                });
                steps.collect()
            }
            Self::Own { root, group, home } => {
                let mut steps = Vec::new();
                let shared = root.join("cgroup.subtree_control");
                let names = read(&shared)?;
                if !names.split_whitespace().any(|name| name == "io") {
                    steps.push(Step::TurnOn(Text {
                        path: shared,
                        text: "+io".to_owned(),
                        before: "-io".to_owned(),
                    }));
                }
                let words = limits.iter().map(|limit| match limit {
                    Rate::Bytes(bytes) => format!(" rbps={bytes}"),
                    Rate::Operations(number) => format!(" riops={number}"),
                });
                steps.extend([
                    Step::Make(group.clone()),
                    Step::LimitOwn(Text {
                        path: group.join("io.max"),
                        text: format!("{number}{}", words.collect::<String>()),
                        before: format!("{number} rbps=max riops=max"),
                    }),
                    Step::Enter {
                        group: group.clone(),
                        from: home.clone(),
                    },
                ]);
                Ok(steps)
            }
        }
    }
}

impl Step {
    fn work(&self) -> Result<()> {
        match self {
            Self::Make(group) if group.is_dir() => Ok(()),
            Self::Make(group) => fs::create_dir(group)
                .with_context(|| format!("cannot make the control group {}", group.display())),
            Self::Limit(text) | Self::LimitOwn(text) | Self::TurnOn(text) => {
                write(&text.path, &text.text)
            }
            Self::Enter { group, .. } => enter(group),
        }
    }

    /// What undoes the step after the launches have been measured.
    fn lift(self) -> Option<Lift> {
        match self {
            Self::Make(_) | Self::TurnOn(_) => None,
            Self::Limit(text) | Self::LimitOwn(text) => Some(Lift::Write(text)),
            Self::Enter { from, .. } => Some(Lift::Leave { to: from }),
        }
    }
}

/// The group that `own` names for this controller, in the hierarchy at `root`. For cgroup v2 the controller
/// is `""`. None if a container cannot see the group.
fn group_within(root: &Path, own: &str, controller: &str) -> Option<PathBuf> {
    // `hierarchy:controllers:/path`.
    let path = own.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(":/")?;
        let mut controllers = controllers.split(',');
        controllers.any(|name| name == controller).then_some(path)
    });
    let group = root.join(path?);
    let is_plain = !group.components().any(|part| part == Component::ParentDir);
    (is_plain && group.join("cgroup.procs").exists()).then_some(group)
}

fn knob(group: &Path, limit: Rate) -> PathBuf {
    group.join(match limit {
        Rate::Bytes(_) => "blkio.throttle.read_bps_device",
        Rate::Operations(_) => "blkio.throttle.read_iops_device",
    })
}

/// The line of a file for the disk with this number.
fn line_of(path: &Path, number: &str) -> Result<Option<String>> {
    let text = read(path)?;
    let mut lines = text.lines();
    let found = lines.find(|line| line.split(' ').next() == Some(number));
    Ok(found.map(str::to_owned))
}

/// Whether the kernel can have let through this many bytes in this time under `limit`. It lets more through
/// at first.
pub fn allows(limit: Rate, bytes: u64, seconds: f64) -> bool {
    match limit {
        Rate::Bytes(limit) => bytes as f64 <= limit as f64 * (seconds * 1.2 + 0.2),
        Rate::Operations(_) => true,
    }
}

/// Undoes a part of a [`Throttle`].
#[derive(Debug)]
pub enum Lift {
    Write(Text),
    Leave { to: PathBuf },
}

impl Lift {
    pub fn lift(self) -> Result<()> {
        match self {
            Self::Write(text) => write(&text.path, &text.before),
            Self::Leave { to } => enter(&to),
        }
    }
}

/// The limits with what was found under them. If that failed, lifts them first: who measures on without them must not
/// do so under them.
pub fn keep_if<T>(found: Result<T>, lifts: Vec<Lift>) -> Result<(Vec<Lift>, T)> {
    match found {
        Ok(found) => Ok((lifts, found)),
        Err(e) => {
            lift_all(lifts).with_context(|| format!("{e:#}; and the limits stay"))?;
            Err(e)
        }
    }
}

/// Lifts all of them, the last one first. An error keeps no other from being lifted.
pub fn lift_all(lifts: Vec<Lift>) -> Result<()> {
    let all = lifts.into_iter().rev().map(Lift::lift);
    all.fold(Ok(()), Result::and)
}

/// Moves this process into a group.
fn enter(group: &Path) -> Result<()> {
    let members = group.join("cgroup.procs");
    ensure!(
        members.exists(),
        "{} is not a control group: it has no cgroup.procs",
        group.display()
    );
    // 0 means the process that writes.
    write(&members, "0")
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {text} to {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that imitates that of the control groups, with these files.
    fn groups(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        directory
    }

    const LIMITS: [Rate; 2] = [Rate::Bytes(1000), Rate::Operations(20)];

    fn text(path: PathBuf, text: &str, before: &str) -> Text {
        Text {
            path,
            text: text.to_owned(),
            before: before.to_owned(),
        }
    }

    #[test]
    fn a_limit_binds() {
        assert!(allows(Rate::Bytes(1000), 1000, 1.0));
        assert!(!allows(Rate::Bytes(1000), 2000, 1.0));
    }

    #[test]
    fn of_v1_the_group_of_the_lab_is_bound_and_gets_back_what_it_had() {
        let knobs = LIMITS.map(|limit| knob(Path::new("blkio/lab"), limit));
        let all = knob(Path::new("blkio"), LIMITS[0]);
        let [bytes, operations] = knobs.each_ref().map(|path| path.to_str().unwrap());
        let found = groups(&[
            (bytes, "8:16 7\n8:0 5\n"),
            (operations, "8:1 9\n"),
            ("blkio/lab/cgroup.procs", "7\n"),
            (all.to_str().unwrap(), ""),
            ("unified/cgroup.controllers", "\n"),
        ]);
        let own = "4:memory:/a\n3:cpu,blkio:/lab\n0::/\n";
        let throttle = Throttle::find_in(found.path(), own, 7).unwrap();
        let at = |name: &str| found.path().join(name);
        assert_eq!(
            throttle.steps(&LIMITS, "8:0").unwrap(),
            [
                Step::Limit(text(at(bytes), "8:0 1000", "8:0 5")),
                Step::Limit(text(at(operations), "8:0 20", "8:0 0")),
            ]
        );
        // If the name is that of the host, the mount shows the group itself.
        for own in [
            "3:blkio:/docker/x\n",
            "3:blkio:/../lab\n",
            "3:blkio:/\n",
            "",
        ] {
            let throttle = Throttle::find_in(found.path(), own, 7).unwrap();
            let group = at("blkio");
            assert_eq!(throttle, Throttle::Shared { group }, "{own}");
        }
    }

    #[test]
    fn of_v2_a_group_of_its_own_is_entered_and_left() {
        for unified in ["", "unified/"] {
            let name = |name: &str| format!("{unified}{name}");
            let found = groups(&[
                (&name("cgroup.controllers"), "cpu io memory\n"),
                (&name("cgroup.subtree_control"), "cpu\n"),
                (&name("user.slice/cgroup.procs"), "7\n"),
            ]);
            let at = |path: &str| found.path().join(name(path));
            let own = "4:memory:/a\n0::/user.slice\n";
            let throttle = Throttle::find_in(found.path(), own, 7).unwrap();
            let steps = throttle.steps(&LIMITS, "8:0").unwrap();
            let limits = "8:0 rbps=1000 riops=20";
            assert_eq!(
                steps,
                [
                    Step::TurnOn(text(at("cgroup.subtree_control"), "+io", "-io")),
                    Step::Make(at("brisk-lab-7")),
                    Step::LimitOwn(text(
                        at("brisk-lab-7/io.max"),
                        limits,
                        "8:0 rbps=max riops=max"
                    )),
                    Step::Enter {
                        group: at("brisk-lab-7"),
                        from: at("user.slice"),
                    },
                ]
            );
            // The kernel makes the files of a group. Here the test does.
            let mut lifts = Vec::new();
            for step in steps {
                step.work().unwrap();
                if let Step::Make(group) = &step {
                    fs::write(group.join("cgroup.procs"), "").unwrap();
                    step.work().expect("an existing group is used again");
                }
                lifts.extend(step.lift());
            }
            let has = |path: &str| fs::read_to_string(at(path)).unwrap();
            assert_eq!(has("brisk-lab-7/io.max"), limits);
            assert_eq!(has("brisk-lab-7/cgroup.procs"), "0");
            lifts
                .into_iter()
                .rev()
                .for_each(|lift| lift.lift().unwrap());
            assert_eq!(has("brisk-lab-7/io.max"), "8:0 rbps=max riops=max");
            assert_eq!(has("user.slice/cgroup.procs"), "0");
            // Until the lab ends.
            assert_eq!(has("cgroup.subtree_control"), "+io");
        }
    }

    #[test]
    fn a_group_that_is_not_to_be_seen_is_not_gone_back_to() {
        let found = groups(&[("cgroup.controllers", "io"), ("cgroup.procs", "")]);
        for own in ["", "0::/docker/x\n", "0::/../x\n", "0::/..\n"] {
            let throttle = Throttle::find_in(found.path(), own, 7).unwrap();
            let expected = Throttle::Own {
                root: found.path().to_owned(),
                group: found.path().join("brisk-lab-7"),
                home: found.path().to_owned(),
            };
            assert_eq!(throttle, expected, "{own}");
        }
    }

    #[test]
    fn what_is_on_for_all_stays() {
        let found = groups(&[
            ("cgroup.controllers", "io"),
            ("cgroup.subtree_control", "cpu io"),
        ]);
        let throttle = Throttle::find_in(found.path(), "", 7).unwrap();
        let steps = throttle.steps(&LIMITS[..1], "8:0").unwrap();
        assert_eq!(steps.len(), 3);
        assert!(matches!(&steps[1], Step::LimitOwn(text) if text.text == "8:0 rbps=1000"));
        let e = steps[2].work().unwrap_err().to_string();
        assert!(e.ends_with("brisk-lab-7 is not a control group: it has no cgroup.procs"));
    }

    #[test]
    fn limits_that_do_not_hold_are_lifted() {
        let found = groups(&[("knob", "8:0 20")]);
        let knob = found.path().join("knob");
        let lifts = || vec![Lift::Write(text(knob.clone(), "8:0 20", "8:0 0"))];
        let has = || fs::read_to_string(&knob).unwrap();
        let (lifts_kept, proven) = keep_if(Ok(7), lifts()).unwrap();
        assert_eq!(
            (lifts_kept.len(), proven, has()),
            (1, 7, "8:0 20".to_owned())
        );
        let e = keep_if(Err::<(), _>(anyhow::anyhow!("too slow")), lifts()).unwrap_err();
        assert_eq!(
            (e.to_string(), has()),
            ("too slow".to_owned(), "8:0 0".to_owned())
        );
        // A limit that stays is said.
        fs::remove_file(&knob).unwrap();
        fs::create_dir(&knob).unwrap();
        let e = keep_if(Err::<(), _>(anyhow::anyhow!("too slow")), lifts()).unwrap_err();
        assert_eq!(e.to_string(), "too slow; and the limits stay");
    }

    #[test]
    fn what_is_missing_is_named() {
        let found = groups(&[("cgroup.controllers", "cpu memory")]);
        let e = Throttle::find_in(found.path(), "", 7).unwrap_err();
        let expected = format!(
            "cannot limit reads: found neither {0}/blkio/blkio.throttle.read_bps_device \
             nor io in {0}/cgroup.controllers; --disk needs the controller blkio of cgroup v1 with its \
             throttle, or io of cgroup v2",
            found.path().display()
        );
        assert_eq!(e.to_string(), expected);
    }
}
