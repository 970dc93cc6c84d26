//! `brisk doctor`: what this system allows, and what to do about the rest.

use std::env;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use brisk_io::{Charge, measure_charge};
use brisk_launch::{LearnedOf, LearnedPack, LearnedPacks, LeftAlone};
use brisk_serve::{IoUring, KernelSupport, Reclaimer, Support, SystemState};
use brisk_terminal::answer::Answer;
use brisk_terminal::names::printable;
use indicatif::BinaryBytes;
use rustix::thread::CapabilitySet;
use serde::Serialize;

use crate::json;

/// How to show the findings.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each line has a state (ok, no or unknown), the thing, and more about it. Behind \"->\" stands what to do about a \
\"no\". Starting programs from images needs the lines with a star (*).\n\n\
Exits with 0 if all that is needed works, and with 1 if not.")]
pub struct Args {
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// Whether something works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
enum State {
    Ok,
    No,
    Unknown,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::No => "no",
            Self::Unknown => "unknown",
        }
    }

    fn of(support: Support) -> (Self, &'static str) {
        match support {
            Support::Yes => (Self::Ok, ""),
            Support::Module => (
                Self::Ok,
                "a module, which the kernel loads when it is needed",
            ),
            Support::No => (Self::No, "this kernel does not have it"),
            Support::Unknown => (
                Self::Unknown,
                "the kernel does not publish how it was built",
            ),
        }
    }

    fn when(yes: bool) -> Self {
        if yes { Self::Ok } else { Self::No }
    }
}

/// Something that brisk needs from the system, and whether it works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Finding {
    /// What brisk looked at: see below.
    name: String,
    /// Whether it works.
    state: State,
    /// Whether starting programs from images needs it.
    needed: bool,
    /// More about it.
    ///
    /// Absent if there is nothing to say.
    #[serde(skip_serializing_if = "String::is_empty")]
    detail: String,
    /// What to do.
    ///
    /// Absent except for `no`.
    #[serde(skip_serializing_if = "Option::is_none")]
    cure: Option<String>,
}

impl Finding {
    fn new(name: impl Into<String>, state: State, detail: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            state,
            needed: false,
            detail: detail.into(),
            cure: None,
        }
    }

    fn supported(name: impl Into<String>, support: Support) -> Self {
        let (state, detail) = State::of(support);
        Self::new(name, state, detail)
    }

    fn needed(mut self) -> Self {
        self.needed = true;
        self
    }

    /// Adds what to do, which is shown if the answer is no.
    fn cure(mut self, text: impl Into<String>) -> Self {
        self.cure = (self.state == State::No).then(|| text.into());
        self
    }
}

/// What `brisk doctor --json` prints.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DoctorJson {
    /// Whether no needed finding has the state `no`.
    usable: bool,
    /// Release of the kernel.
    kernel: String,
    /// A page of the system.
    page_bytes: usize,
    /// Read-ahead of the kernel where the working directory is.
    ///
    /// Null if the filesystem there has none, such as one in memory.
    read_ahead_bytes: Option<u64>,
    /// What brisk looked at, in the order below.
    findings: Vec<Finding>,
}

pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let support = KernelSupport::probe();
    let mut findings = findings(&support, may_mount());
    let system = SystemState::probe();
    findings.extend(limits_of_sessions(&system));
    findings.extend(speeds(&support, &system));
    let (rates, charge) = disk_rates();
    findings.push(rates);
    findings.extend(learned_starts(charge.as_ref()));
    let missing = |finding: &Finding| finding.needed && finding.state == State::No;
    let diagnosis = DoctorJson {
        usable: !findings.iter().any(missing),
        kernel: support.release,
        page_bytes: support.page_size,
        // Of a directory that may not be entered, nobody knows it.
        read_ahead_bytes: brisk_serve::read_ahead(Path::new(".")).unwrap_or_default(),
        findings,
    };
    if args.json {
        json::print(&diagnosis)?;
    } else {
        print(&diagnosis)?;
    }
    Ok(match diagnosis.usable {
        true => Answer::Yes,
        false => Answer::No,
    })
}

/// Whether this process may mount. Unknown if the system does not say.
fn may_mount() -> State {
    match rustix::thread::capabilities(None) {
        Ok(sets) => State::when(sets.effective.contains(CapabilitySet::SYS_ADMIN)),
        Err(_) => State::Unknown,
    }
}

fn findings(support: &KernelSupport, may_mount: State) -> Vec<Finding> {
    let mut findings = vec![
        fuse_device(support),
        way_to_mount(support, may_mount),
        Finding::new("root (CAP_SYS_ADMIN)", may_mount, "")
            .cure("brisk mount --kernel and brisk run --kernel need it: use sudo"),
        user_namespaces(support),
        fusermount(support),
        Finding::supported("fuse resend", support.fuse_resend).cure(
            "use Linux 6.9 or later: with older kernels, programs get errors if the server of their image dies",
        ),
        Finding::supported("squashfs", support.squashfs)
            .cure("load it with modprobe squashfs (only --kernel needs it)"),
        loop_devices(support),
    ];
    for &(codec, found) in &support.codecs {
        findings.push(
            Finding::supported(format!("codec {codec}"), found)
                .cure("mount without --kernel, or pack with another codec"),
        );
    }
    findings.push(xz_filters(&support.xz_filters));
    findings.push(
        Finding::supported("erofs", support.erofs)
            .cure("nothing, because brisk's images are squashfs; for erofs images, load it with modprobe erofs"),
    );
    findings.push(
        Finding::supported("page cache events", support.page_cache_events).cure(
            "name an image, or directories with --tree: only brisk trace of the whole system needs \
             these events (CONFIG_EVENT_TRACING and CONFIG_FANOTIFY)",
        ),
    );
    findings
}

/// What keeps the processes of a session from doing more than they need.
fn limits_of_sessions(system: &SystemState) -> [Finding; 2] {
    let landlock = match system.landlock {
        Some(version) => format!("Landlock, version {version}"),
        None => "no Landlock".to_owned(),
    };
    [
        Finding::new("servers limit their calls", State::when(system.call_filters), "seccomp").cure(
            "use a kernel with CONFIG_SECCOMP_FILTER, and in a container a profile that allows seccomp: without it, a \
             server that a hostile image has taken over can make any system call",
        ),
        Finding::new("servers limit their files", State::when(system.landlock.is_some()), landlock).cure(
            "use Linux 5.13 or later with landlock among the security modules (lsm=), and in a container a profile \
             that allows it: without it, a server that a hostile image has taken over can read its user's files",
        ),
    ]
}

/// Findings that change how fast programs start, but not whether they start.
fn speeds(support: &KernelSupport, system: &SystemState) -> Vec<Finding> {
    vec![
        io_uring(support.io_uring, &system.io_uring),
        called("reads that do not wait", &system.nowait, "RWF_NOWAIT").cure(
            "use Linux 4.14 or later (not 5.9 or 5.10), and a file system such as ext4, xfs or btrfs: \
             without this, small reads go through other threads, which is slower",
        ),
        called("what is in memory", &system.cachestat, "cachestat").cure(
            "use Linux 6.5 or later, or allow the call: without it, a replay also asks for pages that are in memory",
        ),
        match system.seccomp {
            Some(false) => Finding::new("no seccomp filter", State::Ok, ""),
            Some(true) => Finding::new(
                "no seccomp filter",
                State::No,
                "a filter decides which calls are allowed, as in containers",
            )
            .cure(
                "nothing, unless the filter refuses something above: then start the container with \
                 --security-opt seccomp=unconfined, or with a profile that allows it",
            ),
            None => Finding::new("no seccomp filter", State::Unknown, ""),
        },
        pages_stay(system.reclaimers.as_deref()),
        read_ahead(&system.read_aheads),
        decoding(support),
        memory(system),
        match system.tracefs {
            Some(yes) => Finding::new("tracefs", State::when(yes), "").cure(
                "only brisk trace of the whole system needs it; it mounts it itself as root, or use mount -t tracefs \
                 nodev /sys/kernel/tracing",
            ),
            None => Finding::new("tracefs", State::Unknown, ""),
        },
    ]
}

/// How fast the kernel decodes images that it mounts. brisk itself decodes those that it serves.
fn decoding(support: &KernelSupport) -> Finding {
    let name = "squashfs decoding";
    match support.squashfs_decoding {
        Some(decoding) => Finding::new(name, State::Ok, decoding.to_string()),
        None => Finding::new(
            name,
            State::Unknown,
            "the kernel does not publish how it was built",
        ),
    }
}

/// How long to measure the disk.
const MEASURING: Duration = Duration::from_millis(200);

/// The rates of the disk that brisk is installed on.
fn disk_rates() -> (Finding, Option<Charge>) {
    let name = "rates of the disk";
    let measured = env::current_exe()
        .and_then(File::open)
        .and_then(|own| measure_charge(&[&own], MEASURING));
    match measured {
        Ok(charge) => {
            let detail = format!(
                "{:.0} MB/s in reads of 1 MiB, {} reads/s of 4 KiB, where brisk is installed",
                charge.bytes_per_second.get() as f64 / 1e6,
                charge.operations_per_second
            );
            (Finding::new(name, State::Ok, detail), Some(charge))
        }
        Err(e) => {
            let e = e.to_string();
            let detail = format!("cannot measure it: {}", printable(&e));
            (Finding::new(name, State::Unknown, detail), None)
        }
    }
}

/// How many learned starts are told, those that were used last.
const MOST_STARTS: usize = 8;

/// What brisk can do here for programs that it has learned.
fn learned_starts(charge: Option<&Charge>) -> Vec<Finding> {
    let packs = LearnedPacks::path_of_user().and_then(|path| LearnedPacks::open(&path));
    let Ok(packs) = packs.and_then(|packs| packs.list()) else {
        return Vec::new();
    };
    let programs = packs.iter().filter(|pack| pack.of == LearnedOf::Program);
    let told = programs.filter_map(|pack| learned_start(pack, charge));
    told.take(MOST_STARTS).collect()
}

/// In one sentence, what brisk does for a start, or why it cannot help. None if the program did not start since it was learned.
fn learned_start(pack: &LearnedPack, charge: Option<&Charge>) -> Option<Finding> {
    let program = pack.image.as_deref()?.file_name()?;
    let name = format!("start of {}", printable(&program.to_string_lossy()));
    if let Some(why) = pack.left_alone {
        let detail = match why {
            LeftAlone::Short => "what it reads takes this disk less time than brisk itself does",
            _ => "it reads less than 2 MiB, so brisk cannot make it faster",
        };
        let finding = Finding::new(name, State::No, detail);
        return Some(finding.cure("nothing: brisk starts it plainly"));
    }
    let start = pack.last_start.filter(|start| start.all() > 0)?;
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    let mut detail = format!(
        "its last start read {:.1} MB from the disk, of which brisk asked for {:.1} MB first",
        megabytes(start.all()),
        megabytes(start.ahead)
    );
    if let Some(charge) = charge {
        let seconds = start.ahead as f64 / charge.bytes_per_second.get() as f64;
        detail += &format!(
            "; at the rate of this disk, that alone takes {:.0} ms",
            seconds * 1e3
        );
    }
    Some(Finding::new(name, State::Ok, detail))
}

/// Whether a system call worked when brisk tried it.
fn called(name: &str, tried: &io::Result<()>, call: &str) -> Finding {
    match tried {
        Ok(()) => Finding::new(name, State::Ok, call),
        Err(e) => {
            let e = e.to_string();
            Finding::new(name, State::No, format!("{call}: {}", printable(&e)))
        }
    }
}

fn io_uring(allowed: IoUring, tried: &io::Result<()>) -> Finding {
    let name = "io_uring";
    match (tried, allowed) {
        (Ok(()), IoUring::Everybody) => Finding::new(name, State::Ok, "for everybody"),
        (Ok(()), _) => Finding::new(name, State::Ok, "for this user"),
        (Err(_), IoUring::Group) => Finding::new(name, State::No, "for root and one group only")
            .cure("sysctl kernel.io_uring_disabled=0, or join kernel.io_uring_group"),
        (Err(_), IoUring::Nobody) => Finding::new(name, State::No, "for nobody")
            .cure("sysctl kernel.io_uring_disabled=0, if the kernel was built with it"),
        (Err(e), IoUring::Everybody | IoUring::Unknown) => {
            let e = e.to_string();
            Finding::new(name, State::No, format!("refused: {}", printable(&e))).cure(
                "use a kernel with CONFIG_IO_URING, and in a container a seccomp profile that allows \
                 io_uring_setup",
            )
        }
    }
}

fn pages_stay(reclaimers: Option<&[Reclaimer]>) -> Finding {
    let name = "files stay in memory";
    let Some(reclaimers) = reclaimers else {
        return Finding::new(
            name,
            State::Unknown,
            "only root sees whether DAMON frees pages",
        );
    };
    if reclaimers.is_empty() {
        return Finding::new(name, State::Ok, "as long as there is free memory");
    }
    let who: Vec<_> = reclaimers.iter().map(|found| &*found.name).collect();
    let who = who.join(", ");
    let detail = format!("{} frees pages that were not used lately", printable(&who));
    Finding::new(name, State::No, detail).cure(
        "files may leave memory before the next start, or before they are used: to prevent that, as root write \
         off to the state file of that thread, or N to /sys/module/damon_reclaim/parameters/enabled",
    )
}

/// With less read-ahead than this, programs wait more often.
const READ_AHEAD: u64 = 128 << 10;

fn read_ahead(disks: &[(String, u64)]) -> Finding {
    let name = "read-ahead of disks";
    let Some(least) = disks.iter().map(|(_, bytes)| *bytes).min() else {
        return Finding::new(name, State::Unknown, "the system shows no disk");
    };
    let all: Vec<_> = disks
        .iter()
        .map(|(disk, bytes)| format!("{} {} KiB", printable(disk), bytes >> 10))
        .collect();
    Finding::new(name, State::when(least >= READ_AHEAD), all.join(", ")).cure(
        "blockdev --setra 256 /dev/DISK: with less than 128 KiB, programs wait for the disk more often",
    )
}

/// With less free memory than this, fill and replay can do next to nothing.
const MEMORY: u64 = 256 << 20;

fn memory(system: &SystemState) -> Finding {
    let name = "memory for files";
    match &system.memory {
        Err(e) => {
            let e = e.to_string();
            let detail = format!("the system does not say: {}", printable(&e));
            Finding::new(name, State::Unknown, detail)
        }
        Ok(None) => Finding::new(name, State::Ok, "no control group limits it"),
        Ok(Some(limit)) => {
            let group = limit.group.to_string_lossy();
            Finding::new(
                name,
                State::when(limit.free >= MEMORY),
                format!(
                    "{} of {} are free in {}",
                    BinaryBytes(limit.free),
                    BinaryBytes(limit.limit),
                    printable(&group)
                ),
            )
            .cure(format!(
                "raise {} of that group: fill and replay use at most half of what is free",
                limit.file
            ))
        }
    }
}

fn fuse_device(support: &KernelSupport) -> Finding {
    match support.fuse {
        None => Finding::new(
            "/dev/fuse",
            State::No,
            "there is none, or it is another device",
        )
        .cure("load it with modprobe fuse, or give a container the host's /dev/fuse"),
        Some(node) => Finding::new(
            "/dev/fuse",
            State::when(node.allowed),
            format!("mode {:04o}", node.mode),
        )
        .cure("let everybody open it, as udev does: chmod 666 /dev/fuse"),
    }
    .needed()
}

/// Root mounts itself. Other users mount with fusermount3, or in a user namespace.
fn way_to_mount(support: &KernelSupport, may_mount: State) -> Finding {
    let (state, detail) = if may_mount == State::Ok {
        (State::Ok, "as root")
    } else if support.fusermount.is_some() {
        (State::Ok, "by fusermount3, seen by all your programs")
    } else if support.user_namespaces.unprivileged() {
        (
            State::Ok,
            "in a user namespace, where ssh and setuid programs fail",
        )
    } else {
        (
            State::No,
            "neither root, nor user namespaces, nor fusermount3",
        )
    };
    Finding::new("a way to mount", state, detail)
        .needed()
        .cure("allow user namespaces (see below), or install the package fuse3")
}

fn fusermount(support: &KernelSupport) -> Finding {
    let name = "fusermount3";
    match &support.fusermount {
        Some(path) => Finding::new(name, State::Ok, printable(&path.to_string_lossy())),
        None => Finding::new(name, State::No, "not in PATH").cure(
            "install the package fuse3: brisk mount needs it for users other than root, and brisk run to start programs \
             without a user namespace",
        ),
    }
}

fn loop_devices(support: &KernelSupport) -> Finding {
    let name = "loop devices";
    match support.loop_control {
        None => Finding::new(name, State::No, "there is no /dev/loop-control")
            .cure("load them with modprobe loop, or give a container the host's /dev"),
        Some(node) => {
            let detail = format!("/dev/loop-control has mode {:04o}", node.mode);
            Finding::new(name, State::when(node.allowed), detail)
                .cure("brisk mount --kernel and brisk run --kernel need them: use sudo")
        }
    }
}

fn xz_filters(filters: &[(&'static str, Support)]) -> Finding {
    let names = |wanted: &[Support]| {
        let found = filters.iter().filter(|(_, found)| wanted.contains(found));
        found.map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    };
    let name = "xz branch filters";
    let there = names(&[Support::Yes, Support::Module]);
    if names(&[Support::Unknown]).is_empty() {
        let none = there.is_empty();
        let detail = if none { "none".to_owned() } else { there };
        return Finding::new(name, State::when(!none), detail)
            .cure("pack xz images without branch filters");
    }
    Finding::supported(name, Support::Unknown)
}

fn user_namespaces(support: &KernelSupport) -> Finding {
    let limits = &support.user_namespaces;
    let (detail, cure) = if limits.max.is_none_or(|max| max == 0) {
        ("switched off", "sysctl user.max_user_namespaces=16384")
    } else if limits.unprivileged_clone == Some(false) {
        ("for root only", "sysctl kernel.unprivileged_userns_clone=1")
    } else if limits.apparmor_restricts == Some(true) && !limits.apparmor_profile {
        (
            "only for programs with an AppArmor profile that allows them",
            "install brisk's with make install-system and apparmor_parser -r /etc/apparmor.d/brisk, \
             or sysctl kernel.apparmor_restrict_unprivileged_userns=0",
        )
    } else {
        ("", "")
    };
    Finding::new(
        "user namespaces",
        State::when(limits.unprivileged()),
        detail,
    )
    .cure(cure)
}

fn print(diagnosis: &DoctorJson) -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    writeln!(
        out,
        "Linux {}, pages of {} bytes",
        printable(&diagnosis.kernel),
        diagnosis.page_bytes
    )?;
    match diagnosis.read_ahead_bytes {
        Some(bytes) => writeln!(out, "read-ahead of {} KiB in this directory", bytes >> 10)?,
        None => writeln!(out, "no read-ahead in this directory")?,
    }
    writeln!(out)?;
    for finding in &diagnosis.findings {
        let star = if finding.needed { "*" } else { "" };
        let line = format!(
            "{:<8}{:<26}{}",
            finding.state.word(),
            format!("{}{star}", finding.name),
            finding.detail
        );
        writeln!(out, "{}", line.trim_end())?;
        if let Some(cure) = &finding.cure {
            writeln!(out, "        -> {cure}")?;
        }
    }
    let answer = match diagnosis.usable {
        true => "All that is needed (*) to start programs from images is there.",
        false => "Something that is needed (*) to start programs from images is missing.",
    };
    writeln!(out, "\n{answer}")?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use brisk_serve::DeviceNode;

    fn rich() -> KernelSupport {
        let mut support = KernelSupport::probe();
        support.squashfs = Support::Yes;
        support.erofs = Support::Module;
        for (_, found) in support.codecs.iter_mut().chain(&mut support.xz_filters) {
            *found = Support::Yes;
        }
        let node = DeviceNode {
            mode: 0o666,
            allowed: true,
        };
        (support.loop_control, support.fuse) = (Some(node), Some(node));
        support.user_namespaces.max = Some(1000);
        support.user_namespaces.unprivileged_clone = None;
        support.user_namespaces.apparmor_restricts = None;
        support.fusermount = Some("/usr/bin/fusermount3".into());
        support.fuse_resend = Support::Yes;
        support.page_cache_events = Support::Yes;
        support
    }

    fn fast() -> SystemState {
        let mut system = SystemState::probe();
        (system.nowait, system.cachestat) = (Ok(()), Ok(()));
        (system.io_uring, system.seccomp) = (Ok(()), Some(false));
        system.reclaimers = Some(Vec::new());
        system.read_aheads = vec![("vda".to_owned(), READ_AHEAD), ("vdb".to_owned(), 1 << 20)];
        (system.memory, system.tracefs) = (Ok(None), Some(true));
        system
    }

    #[test]
    fn what_makes_starts_slow_is_said_with_a_cure() {
        let support = rich();
        let states = |system: &SystemState| -> Vec<State> {
            let found = speeds(&support, system);
            found.iter().map(|finding| finding.state).collect()
        };
        assert!(states(&fast()).iter().all(|state| *state == State::Ok));
        let refused = || Err(io::ErrorKind::PermissionDenied.into());
        let mut slow = fast();
        (slow.nowait, slow.cachestat, slow.io_uring) = (refused(), refused(), refused());
        (slow.seccomp, slow.tracefs) = (Some(true), Some(false));
        let reclaimer = Reclaimer {
            name: "DAMON\u{1b}".to_owned(),
            switch: "state".into(),
            on: "on",
            off: "off",
        };
        slow.reclaimers = Some(vec![reclaimer]);
        slow.read_aheads[1].1 = 64 << 10;
        slow.memory = Ok(brisk_launch::MemoryLimit::in_force());
        for finding in speeds(&support, &slow) {
            // These have no cure.
            if ["memory for files", "squashfs decoding"].contains(&finding.name.as_str()) {
                continue;
            }
            assert_eq!(finding.state, State::No, "{}", finding.name);
            assert!(
                finding.cure.is_some() && !finding.needed,
                "{}",
                finding.name
            );
            assert!(!finding.detail.contains('\u{1b}'), "{}", finding.detail);
        }
        let detail = |at: usize| speeds(&support, &slow)[at].detail.clone();
        assert_eq!(detail(5), "vda 128 KiB, vdb 64 KiB");
        (slow.seccomp, slow.tracefs) = (None, None);
        slow.read_aheads = Vec::new();
        slow.reclaimers = None;
        slow.memory = Err(io::ErrorKind::PermissionDenied.into());
        let unknown = [3, 4, 5, 7, 8].map(|at| states(&slow)[at]);
        assert_eq!(unknown, [State::Unknown; 5]);
    }

    #[test]
    fn who_is_refused_io_uring_is_told_by_whom() {
        let refused = Err(io::ErrorKind::PermissionDenied.into());
        let detail = |allowed, tried| io_uring(allowed, tried).detail;
        assert_eq!(detail(IoUring::Everybody, &Ok(())), "for everybody");
        assert_eq!(detail(IoUring::Group, &Ok(())), "for this user");
        assert_eq!(
            detail(IoUring::Group, &refused),
            "for root and one group only"
        );
        assert_eq!(detail(IoUring::Nobody, &refused), "for nobody");
        assert_eq!(
            detail(IoUring::Everybody, &refused),
            "refused: permission denied"
        );
    }

    /// What is not "ok": name, state, detail, cure.
    fn faults(support: &KernelSupport, root: State) -> Vec<(String, State, String, String)> {
        let findings = findings(support, root).into_iter();
        findings
            .filter(|f| f.state != State::Ok)
            .map(|f| (f.name, f.state, f.detail, f.cure.unwrap_or_default()))
            .collect()
    }

    #[test]
    fn every_no_has_a_cure() {
        assert_eq!(faults(&rich(), State::Ok), []);
        let mut poor = rich();
        (poor.squashfs, poor.erofs) = (Support::No, Support::No);
        for (_, found) in poor.codecs.iter_mut().chain(&mut poor.xz_filters) {
            *found = Support::No;
        }
        (poor.loop_control, poor.fuse) = (None, None);
        poor.user_namespaces.max = None;
        (poor.fusermount, poor.fuse_resend) = (None, Support::No);
        poor.page_cache_events = Support::No;
        let faults = faults(&poor, State::No);
        assert_eq!(faults.len(), findings(&poor, State::No).len());
        for (name, state, _, cure) in faults {
            assert_eq!(state, State::No, "{name}");
            assert!(!cure.is_empty(), "{name}");
        }
    }

    #[test]
    fn each_limit_has_a_cure_of_its_own() {
        let row = |name: &str, detail: &str, cure: &str| {
            (
                name.to_owned(),
                State::No,
                detail.to_owned(),
                cure.to_owned(),
            )
        };
        let mut support = rich();
        support.user_namespaces.apparmor_restricts = Some(true);
        let apparmor = row(
            "user namespaces",
            "only for programs with an AppArmor profile that allows them",
            "install brisk's with make install-system and apparmor_parser -r /etc/apparmor.d/brisk, \
             or sysctl kernel.apparmor_restrict_unprivileged_userns=0",
        );
        assert_eq!(faults(&support, State::Ok), [apparmor]);
        let mut support = rich();
        support.loop_control = Some(DeviceNode {
            mode: 0o660,
            allowed: false,
        });
        assert_eq!(
            faults(&support, State::No),
            [
                row(
                    "root (CAP_SYS_ADMIN)",
                    "",
                    "brisk mount --kernel and brisk run --kernel need it: use sudo"
                ),
                row(
                    "loop devices",
                    "/dev/loop-control has mode 0660",
                    "brisk mount --kernel and brisk run --kernel need them: use sudo"
                ),
            ]
        );
    }

    #[test]
    fn one_way_to_mount_suffices() {
        let way = |support: &KernelSupport, root| {
            let finding = way_to_mount(support, root);
            (finding.state, finding.detail)
        };
        let mut support = rich();
        assert_eq!(way(&support, State::Ok), (State::Ok, "as root".into()));
        assert_eq!(
            way(&support, State::Unknown),
            (
                State::Ok,
                "by fusermount3, seen by all your programs".into()
            )
        );
        support.fusermount = None;
        assert_eq!(
            way(&support, State::No),
            (
                State::Ok,
                "in a user namespace, where ssh and setuid programs fail".into()
            )
        );
        support.user_namespaces.max = Some(0);
        assert_eq!(way(&support, State::No).0, State::No);
    }

    #[test]
    fn what_is_not_known_is_not_no() {
        let mut support = rich();
        support.xz_filters[0].1 = Support::Unknown;
        let detail = "the kernel does not publish how it was built".to_owned();
        let expected = (
            "xz branch filters".to_owned(),
            State::Unknown,
            detail,
            String::new(),
        );
        assert_eq!(faults(&support, State::Ok), [expected]);
    }
}
