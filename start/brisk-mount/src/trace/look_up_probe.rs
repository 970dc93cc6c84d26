//! A program in the kernel that tells which names are looked up.
//!
//! It runs at the end of each system call of the whole system, because a path need not be in memory before. If the call looks
//! up a name, it copies the path and the result to a queue ([`BpfQueue`]). It also tells of `fchdir`, which has no path. It
//! says nothing of processes that it was told to ignore ([`BpfProcesses`]). Its instructions are those of bpf(2) and
//! [RFC 9669](https://www.rfc-editor.org/rfc/rfc9669).

use std::ffi::CStr;
use std::os::fd::AsRawFd;
use std::time::Duration;

use rustix::io::{Errno, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::observe::{LOOK_UPS, LOOK_UPS_IN_DIRECTORY};
use crate::sys::bpf::{BpfCounter, BpfProcesses, BpfQueue, Probe};

/// A look-up in the queue: when, by whom, in which directory, with which result, by which call, and the path, which ends with a
/// zero byte.
const LEN: usize = 472;
const PROCESS: usize = 8;
const DIRECTORY: usize = 16;
const RESULT: usize = 20;
const BY: usize = 24;
const PATH: usize = 32;

/// How many look-ups wait for the reader at most: 32 MB. What comes then is lost.
pub(super) const MOST_QUEUED: u32 = 64 << 10;

/// How many processes can be ignored. The others are told of.
const MOST_IGNORED: u32 = 16 << 10;

/// All system calls end here (include/trace/events/syscalls.h).
const TRACEPOINT: &CStr = c"sys_exit";

/// A name that was looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    /// On the clock of the kernel's events.
    pub(super) at: Duration,
    pub(super) process: i32,
    pub(super) thread: i32,
    /// The descriptor of the directory that the path counts from, or `AT_FDCWD`.
    pub(super) directory: i32,
    /// Whether there was something.
    pub(super) found: bool,
    /// Whether this is the process's working directory from now on.
    pub(super) moves: bool,
    /// Empty if the call was `fchdir`.
    pub(super) path: Vec<u8>,
}

/// The program, which runs until this is dropped, and what it has told.
pub(super) struct LookUpProbe {
    queue: BpfQueue<LEN>,
    /// How many look-ups had no room there.
    lost: BpfCounter,
    ignored: BpfProcesses,
    probe: Option<Probe>,
}

impl LookUpProbe {
    /// Tells of all look-ups from now on. An error if the kernel runs no such programs (`CONFIG_BPF_EVENTS`, Linux 5.5), if the
    /// system is locked down, or if nobody knows how this processor passes what a call is given.
    pub(super) fn start() -> Result<Self> {
        // Before Linux 5.11, what programs in the kernel keep counts as locked memory.
        let limit = getrlimit(Resource::Memlock);
        let no_limit = Rlimit {
            current: None,
            maximum: None,
        };
        setrlimit(Resource::Memlock, no_limit).ok();
        let started = Self::start_without_limit();
        // What is traced inherits it. It had this value before, so setting it cannot fail.
        setrlimit(Resource::Memlock, limit).ok();
        started
    }

    fn start_without_limit() -> Result<Self> {
        let queue = BpfQueue::new(MOST_QUEUED)?;
        let lost = BpfCounter::new()?;
        let ignored = BpfProcesses::new(MOST_IGNORED)?;
        let maps = Maps {
            queue: queue.descriptor().as_raw_fd(),
            lost: lost.descriptor().as_raw_fd(),
            ignored: ignored.descriptor().as_raw_fd(),
        };
        let program = program(&maps, REGISTER_PLACES);
        let probe = Probe::at_tracepoint(TRACEPOINT, &program.ok_or(Errno::OPNOTSUPP)?)?;
        Ok(Self {
            queue,
            lost,
            ignored,
            probe: Some(probe),
        })
    }

    /// Tells nothing of a process from now on. E2BIG if too many are ignored already.
    pub(super) fn ignore(&self, process: i32) -> Result<()> {
        self.ignored.insert(process)
    }

    /// Tells of a process again.
    pub(super) fn hear(&self, process: i32) -> Result<()> {
        match self.ignored.remove(process) {
            Err(Errno::NOENT) => Ok(()),
            removed => removed,
        }
    }

    /// Tells of nothing new any more.
    pub(super) fn stop(&mut self) {
        self.probe = None;
    }

    /// How many look-ups had no room.
    pub(super) fn lost(&self) -> Result<u64> {
        self.lost.get()
    }

    /// The next look-up. None if there is none at the moment.
    pub(super) fn next(&self) -> Result<Option<Seen>> {
        let mut value = [0; LEN];
        Ok(match self.queue.take(&mut value)? {
            true => Some(seen(&value)),
            false => None,
        })
    }
}

fn seen(value: &[u8; LEN]) -> Seen {
    let long = |at: usize| {
        let bytes = value.get(at..).and_then(<[u8]>::first_chunk);
        u64::from_ne_bytes(bytes.copied().unwrap_or_default())
    };
    let short = |at: usize| {
        let bytes = value.get(at..).and_then(<[u8]>::first_chunk);
        i32::from_ne_bytes(bytes.copied().unwrap_or_default())
    };
    let found = short(RESULT) >= 0;
    let path = value.get(PATH..).unwrap_or_default();
    let end = path.iter().position(|byte| *byte == 0);
    Seen {
        at: Duration::from_nanos(long(0)),
        process: short(PROCESS + 4),
        thread: short(PROCESS),
        directory: short(DIRECTORY),
        found,
        moves: found && [libc::SYS_chdir, libc::SYS_fchdir].contains(&short(BY).into()),
        path: path
            .get(..end.unwrap_or(path.len()))
            .unwrap_or_default()
            .to_owned(),
    }
}

/// Where the registers are that the program reads.
struct RegisterPlaces {
    /// Of the first register, in the kernel's structure.
    first: usize,
    /// How many bytes to read from there.
    len: usize,
    /// Of the number of the call, from the first one. So are the others.
    call: usize,
    arguments: [usize; 2],
    /// 16 bits, and what they are in a process whose calls are known.
    mode: (usize, i32),
}

/// Where the kernel keeps a process's registers during a call (`struct pt_regs`). The structure begins as that of ptrace does
/// (arch/x86/include/uapi/asm/ptrace.h).
#[cfg(target_arch = "x86_64")]
const REGISTER_PLACES: Option<RegisterPlaces> = {
    use std::mem::offset_of;

    use libc::user_regs_struct as Registers;

    const FIRST: usize = offset_of!(Registers, rsi);
    Some(RegisterPlaces {
        first: FIRST,
        len: offset_of!(Registers, cs) + 8 - FIRST,
        call: offset_of!(Registers, orig_rax) - FIRST,
        arguments: [offset_of!(Registers, rdi) - FIRST, 0],
        // `__USER_CS`. Calls of 32 bits have other numbers.
        mode: (offset_of!(Registers, cs) - FIRST, 0x33),
    })
};

/// For processors that nobody has tried.
#[cfg(not(target_arch = "x86_64"))]
const REGISTER_PLACES: Option<RegisterPlaces> = None;

/// Registers of the program. The first one has what it is given, and then the first argument of each function. The result of
/// a function is in register 0. Functions leave 6 to 9 alone.
const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;
const R3: u8 = 3;
const REGISTERS: u8 = 6;
const VALUE: u8 = 7;
const IN: u8 = 8;
const ADDRESS: u8 = 9;
/// The end of the program's memory, of 512 bytes.
const FRAME: u8 = 10;

/// Codes of instructions.
const LOAD: u8 = 0x79;
const LOAD_16: u8 = 0x69;
const STORE: u8 = 0x7b;
const STORE_32: u8 = 0x63;
const STORE_NUMBER: u8 = 0x7a;
const MOVE: u8 = 0xbf;
const SET: u8 = 0xb7;
const ADD: u8 = 0x07;
const JUMP: u8 = 0x05;
const JUMP_IF_EQUAL: u8 = 0x15;
const JUMP_IF_NOT_EQUAL: u8 = 0x55;
/// Of numbers with a sign.
const JUMP_IF_AT_LEAST: u8 = 0x75;
const JUMP_IF_AT_MOST: u8 = 0xd5;
const LOAD_NUMBER_64: u8 = 0x18;
const ADD_ATOMICALLY: u8 = 0xdb;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// Instead of a register: the number is the descriptor of a map.
const DESCRIPTOR_OF_MAP: u8 = 1;

/// Numbers of the kernel's functions (include/uapi/linux/bpf.h).
const FIND: i32 = 1;
const NANOSECONDS_SINCE_START: i32 = 5;
const THIS_PROCESS: i32 = 14;
const PUSH: i32 = 87;
const READ_KERNEL: i32 = 113;
const READ_TEXT_OF_PROCESS: i32 = 114;

/// Where a jump goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    /// The call has done something.
    Done,
    /// There is a path to read.
    Path,
    /// All that is told is known.
    Told,
    /// The end of the program.
    End,
}

#[derive(Default)]
struct Assembler {
    instructions: Vec<u64>,
    jumps: Vec<(usize, Target)>,
    places: Vec<(Target, usize)>,
}

impl Assembler {
    fn put(&mut self, code: u8, to: u8, from: u8, offset: i16, number: i32) {
        // Two registers share a byte. Which half has which one depends on the order of bytes.
        let registers = match cfg!(target_endian = "little") {
            true => from << 4 | to,
            false => to << 4 | from,
        };
        let [a, b] = offset.to_ne_bytes();
        let [c, d, e, f] = number.to_ne_bytes();
        let bytes = [code, registers, a, b, c, d, e, f];
        self.instructions.push(u64::from_ne_bytes(bytes));
    }

    fn jump(&mut self, code: u8, register: u8, number: i32, target: Target) {
        self.jumps.push((self.instructions.len(), target));
        self.put(code, register, 0, 0, number);
    }

    fn here(&mut self, target: Target) {
        self.places.push((target, self.instructions.len()));
    }

    /// Calls a function, whose first argument is an address in the program's memory.
    fn call_on(&mut self, frame: i16, len: usize, function: i32) -> Option<()> {
        self.put(MOVE, R1, FRAME, 0, 0);
        self.put(ADD, R1, 0, 0, frame.into());
        self.put(SET, R2, 0, 0, i32::try_from(len).ok()?);
        self.put(CALL, 0, 0, 0, function);
        Some(())
    }

    /// Makes a map the first argument of a function.
    fn load_map(&mut self, map: i32) {
        self.put(LOAD_NUMBER_64, R1, DESCRIPTOR_OF_MAP, 0, map);
        self.put(0, 0, 0, 0, 0);
    }

    /// Finds a key, which is in the program's memory, in a map: the address of its value, or 0.
    fn find(&mut self, map: i32, key: i16) {
        self.load_map(map);
        self.put(MOVE, R2, FRAME, 0, 0);
        self.put(ADD, R2, 0, 0, key.into());
        self.put(CALL, 0, 0, 0, FIND);
    }

    /// The instructions, with the distances of all jumps, which count from the next instruction.
    fn finish(mut self) -> Option<Vec<u64>> {
        for (at, target) in self.jumps {
            let (_, place) = self.places.iter().find(|(known, _)| *known == target)?;
            let distance = i16::try_from(place.checked_sub(at + 1)?).ok()?;
            let instruction = self.instructions.get_mut(at)?;
            let mut bytes = instruction.to_ne_bytes();
            bytes
                .get_mut(2..4)?
                .copy_from_slice(&distance.to_ne_bytes());
            *instruction = u64::from_ne_bytes(bytes);
        }
        Some(self.instructions)
    }
}

/// Descriptors of what the program fills and asks.
struct Maps {
    queue: i32,
    lost: i32,
    ignored: i32,
}

/// The program. None if nobody knows where the registers are, or if it does not fit into its memory.
fn program(maps: &Maps, places: Option<RegisterPlaces>) -> Option<Vec<u64>> {
    let places = places?;
    // Offsets from the end of the program's memory.
    let seen = -i16::try_from(LEN).ok()?;
    let registers = seen - i16::try_from(places.len).ok()?;
    let of_seen = |at: usize| Some(seen + i16::try_from(at).ok()?);
    let register = |at: usize| Some(registers + i16::try_from(at).ok()?);
    let [first, second] = places.arguments;
    let (mode, known_mode) = places.mode;
    let mut program = Assembler::default();

    // It is given the registers and the result. Results that say something are success and ENOENT.
    program.put(LOAD, REGISTERS, R1, 0, 0);
    program.put(LOAD, VALUE, R1, 8, 0);
    program.jump(JUMP_IF_AT_LEAST, VALUE, 0, Target::Done);
    program.jump(JUMP_IF_NOT_EQUAL, VALUE, -libc::ENOENT, Target::End);
    program.here(Target::Done);
    program.put(MOVE, R3, REGISTERS, 0, 0);
    program.put(ADD, R3, 0, 0, i32::try_from(places.first).ok()?);
    program.call_on(registers, places.len, READ_KERNEL)?;
    program.jump(JUMP_IF_NOT_EQUAL, R0, 0, Target::End);
    program.put(LOAD_16, R1, FRAME, register(mode)?, 0);
    program.jump(JUMP_IF_NOT_EQUAL, R1, known_mode, Target::End);

    program.put(LOAD, R1, FRAME, register(places.call)?, 0);
    program.put(SET, IN, 0, 0, libc::AT_FDCWD);
    program.put(LOAD, ADDRESS, FRAME, register(first)?, 0);
    // If `execve` succeeds, the registers are those of the new program.
    let fchdir = i32::try_from(libc::SYS_fchdir).ok()?;
    let others = [libc::SYS_execve, libc::SYS_chdir, libc::SYS_fchdir].map(i64::cast_unsigned);
    for call in LOOK_UPS.iter().chain(&others) {
        program.jump(JUMP_IF_EQUAL, R1, i32::try_from(*call).ok()?, Target::Path);
    }
    program.put(LOAD, IN, FRAME, register(first)?, 0);
    program.put(LOAD, ADDRESS, FRAME, register(second)?, 0);
    for call in LOOK_UPS_IN_DIRECTORY {
        program.jump(JUMP_IF_EQUAL, R1, i32::try_from(call).ok()?, Target::Path);
    }
    program.jump(JUMP, 0, 0, Target::End);

    program.here(Target::Path);
    program.put(CALL, 0, 0, 0, THIS_PROCESS);
    program.put(STORE, FRAME, R0, of_seen(PROCESS)?, 0);
    program.find(maps.ignored, of_seen(PROCESS + 4)?);
    program.jump(JUMP_IF_NOT_EQUAL, R0, 0, Target::End);
    // The kernel refuses to copy memory that nothing was written to.
    for at in (BY..LEN).step_by(8) {
        program.put(STORE_NUMBER, FRAME, 0, of_seen(at)?, 0);
    }
    program.put(MOVE, R3, ADDRESS, 0, 0);
    program.call_on(of_seen(PATH)?, LEN - PATH, READ_TEXT_OF_PROCESS)?;
    // The descriptor of `fchdir` is no address.
    program.put(LOAD, R1, FRAME, register(places.call)?, 0);
    program.jump(JUMP_IF_EQUAL, R1, fchdir, Target::Told);
    // The length, with the zero byte. Of a path that fills all, the rest may be missing.
    program.jump(JUMP_IF_AT_MOST, R0, 1, Target::End);
    program.jump(
        JUMP_IF_AT_LEAST,
        R0,
        i32::try_from(LEN - PATH).ok()?,
        Target::End,
    );
    program.here(Target::Told);
    program.put(CALL, 0, 0, 0, NANOSECONDS_SINCE_START);
    program.put(STORE, FRAME, R0, of_seen(0)?, 0);
    program.put(STORE_32, FRAME, IN, of_seen(DIRECTORY)?, 0);
    program.put(STORE_32, FRAME, VALUE, of_seen(RESULT)?, 0);
    program.put(LOAD, R1, FRAME, register(places.call)?, 0);
    program.put(STORE_32, FRAME, R1, of_seen(BY)?, 0);
    program.load_map(maps.queue);
    program.put(MOVE, R2, FRAME, 0, 0);
    program.put(ADD, R2, 0, 0, seen.into());
    program.put(SET, R3, 0, 0, 0);
    program.put(CALL, 0, 0, 0, PUSH);
    program.jump(JUMP_IF_EQUAL, R0, 0, Target::End);

    // The registers are not needed any more. The key of the counter takes their place.
    program.put(STORE_NUMBER, FRAME, 0, registers, 0);
    program.find(maps.lost, registers);
    program.jump(JUMP_IF_EQUAL, R0, 0, Target::End);
    program.put(SET, R1, 0, 0, 1);
    program.put(ADD_ATOMICALLY, R0, R1, 0, 0);
    program.here(Target::End);
    program.put(SET, R0, 0, 0, 0);
    program.put(EXIT, 0, 0, 0, 0);
    program.finish()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::{Mutex, PoisonError};

    use rustix::fs::{AtFlags, statat};
    use rustix::process::{fchdir, geteuid};

    use super::*;

    /// Each probe hears of what the other test looks up.
    static ONE: Mutex<()> = Mutex::new(());

    /// None if the system refuses all programs in the kernel, as some containers do.
    fn start() -> Option<LookUpProbe> {
        assert!(
            geteuid().is_root(),
            "only root may run programs in the kernel"
        );
        let started = LookUpProbe::start();
        match BpfCounter::new() {
            Err(refused @ (Errno::PERM | Errno::NOSYS)) => {
                assert_eq!(started.err(), Some(refused));
                None
            }
            _ => Some(started.expect("a kernel with CONFIG_BPF_EVENTS")),
        }
    }

    #[test]
    fn what_is_looked_up_is_told() {
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let home = tempfile::tempdir().expect("room");
        let directory = fs::File::open(home.path()).expect("there");
        let limit = getrlimit(Resource::Memlock);
        let started = start();
        assert_eq!(getrlimit(Resource::Memlock), limit);
        let Some(mut probe) = started else {
            return;
        };
        let here = std::env::current_dir().expect("there");
        fs::write(home.path().join("there"), "").expect("room");
        for name in ["there", "none"] {
            fs::metadata(home.path().join(name)).ok();
        }
        statat(&directory, "relative", AtFlags::empty()).ok();
        // The longest path that is told, and one that is longer.
        let room = LEN - PATH - 3 - home.path().as_os_str().len();
        for len in [room, room + 1] {
            let dots = "./".repeat(len / 2 - 50);
            let name = "n".repeat(len - dots.len());
            fs::metadata(format!("{}/{dots}{name}", home.path().display())).ok();
        }
        // To where it is already, for the other tests.
        std::env::set_current_dir(&here).expect("there");
        fchdir(fs::File::open(&here).expect("there")).expect("there");
        probe.stop();
        fs::metadata(home.path().join("late")).ok();
        assert_eq!(probe.lost(), Ok(0));

        let mut told = Vec::new();
        while let Some(seen) = probe.next().expect("a queue") {
            // Other tests of this process look up other names.
            if seen.process != std::process::id().cast_signed() {
                continue;
            }
            assert!(seen.at > Duration::ZERO && seen.thread > 0);
            let path = String::from_utf8(seen.path).expect("these paths");
            let name = path.strip_prefix(home.path().to_str().expect("text"));
            match name {
                Some(name) => told.push((name.to_owned(), seen.found)),
                None if seen.moves => told.push((format!("to {path}"), true)),
                None if seen.directory == directory.as_raw_fd() => told.push((path, seen.found)),
                None => {}
            }
        }
        let longest = told.iter().position(|(name, _)| name.starts_with("/./"));
        let (longest, _) = told.remove(longest.expect("one of the long ones"));
        assert_eq!(longest.len(), room + 1);
        let expected = [
            // The first look-up made it.
            ("/there", true),
            ("/there", true),
            ("/none", false),
            ("relative", false),
            (&format!("to {}", here.display()), true),
            ("to ", true),
        ];
        let expected = expected.map(|(name, found)| (name.to_owned(), found));
        assert_eq!(told, expected);
    }

    #[test]
    fn an_ignored_process_is_not_told_of() {
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mut probe) = start() else {
            return;
        };
        let own = std::process::id().cast_signed();
        fs::metadata("/before").ok();
        probe.ignore(own).expect("room");
        fs::metadata("/ignored").ok();
        // Another process is not.
        let ended = std::process::Command::new("cat")
            .arg("/of-another")
            .output();
        assert!(!ended.expect("cat").status.success());
        probe.hear(own).expect("a set");
        probe.hear(own).expect("a set");
        fs::metadata("/after").ok();
        probe.stop();

        let mut told = Vec::new();
        while let Some(seen) = probe.next().expect("a queue") {
            told.push((seen.process == own, seen.path));
        }
        let is_told = |is_own, path: &str| told.contains(&(is_own, path.as_bytes().to_owned()));
        assert!(is_told(true, "/before") && is_told(true, "/after"));
        assert!(is_told(false, "/of-another"), "{told:?}");
        assert!(!is_told(true, "/ignored"), "{told:?}");
    }

    #[test]
    fn what_has_no_room_is_counted() {
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mut probe) = start() else {
            return;
        };
        for _ in 0..=MOST_QUEUED {
            fs::metadata("/none").ok();
        }
        probe.stop();
        assert!(probe.lost().expect("a counter") > 0);
        let mut told = 0;
        while probe.next().expect("a queue").is_some() {
            told += 1;
        }
        assert_eq!(told, MOST_QUEUED);
    }
}
