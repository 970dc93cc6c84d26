//! A program in the kernel that tells which names are looked up.
//!
//! It runs at the end of each system call of the whole system, because a path need not be in memory before. If the call looks
//! up a name, it copies the path and the result to a queue ([`BpfQueue`]). Its instructions are those of bpf(2) and
//! [RFC 9669](https://www.rfc-editor.org/rfc/rfc9669).

use std::ffi::CStr;
use std::os::fd::AsRawFd;
use std::time::Duration;

use rustix::io::{Errno, Result};

use crate::observe::{LOOK_UPS, LOOK_UPS_IN_DIRECTORY};
use crate::syscalls::{BpfQueue, Probe};

/// A look-up in the queue: when, by whom, in which directory, with which result, by which call, and the path, which ends with a
/// zero byte.
const LEN: usize = 472;
const PROCESS: usize = 8;
const DIRECTORY: usize = 16;
const RESULT: usize = 20;
const BY: usize = 24;
const PATH: usize = 32;

/// How many look-ups wait for the reader at most: 8 MB.
const MOST_WAITING: u32 = 16 << 10;

/// All system calls end here (include/trace/events/syscalls.h).
const TRACEPOINT: &CStr = c"sys_exit";

/// A name that was looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    /// On the clock of the kernel's events.
    pub(super) at: Duration,
    pub(super) process: i32,
    /// The descriptor of the directory that the path counts from, or `AT_FDCWD`.
    pub(super) directory: i32,
    /// Whether there was something.
    pub(super) found: bool,
    /// Whether this is the process's working directory from now on.
    pub(super) moves: bool,
    pub(super) path: Vec<u8>,
}

/// The program, which runs until this is dropped, and what it has told.
pub(super) struct LookUpProbe {
    queue: BpfQueue<LEN>,
    _probe: Probe,
}

impl LookUpProbe {
    /// Tells of all look-ups from now on. An error if the kernel runs no such programs (`CONFIG_BPF_EVENTS`, Linux 5.5), if the
    /// system is locked down, or if nobody knows how this processor passes what a call is given.
    pub(super) fn start() -> Result<Self> {
        let queue = BpfQueue::new(MOST_WAITING)?;
        let program = program(queue.descriptor().as_raw_fd()).ok_or(Errno::OPNOTSUPP)?;
        let probe = Probe::at_tracepoint(TRACEPOINT, &program)?;
        Ok(Self {
            queue,
            _probe: probe,
        })
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
        // The process is in the upper half, the thread in the lower one.
        process: i32::try_from(long(PROCESS) >> 32).unwrap_or(0),
        directory: short(DIRECTORY),
        found,
        moves: found && i64::from(short(BY)) == libc::SYS_chdir,
        path: path
            .get(..end.unwrap_or(path.len()))
            .unwrap_or_default()
            .to_owned(),
    }
}

/// Where the kernel keeps a process's registers during a call (`struct pt_regs`). None for processors that nobody has tried.
#[cfg(target_arch = "x86_64")]
fn program(queue: i32) -> Option<Vec<u64>> {
    use std::mem::offset_of;

    use libc::user_regs_struct as Registers;

    // The kernel's structure begins as this one does (arch/x86/include/uapi/asm/ptrace.h).
    const FIRST: usize = offset_of!(Registers, rsi);
    let at = |register: usize| register - FIRST;
    assemble(
        queue,
        &Places {
            first: FIRST,
            len: at(offset_of!(Registers, cs)) + 8,
            call: at(offset_of!(Registers, orig_rax)),
            arguments: [
                at(offset_of!(Registers, rdi)),
                at(offset_of!(Registers, rsi)),
            ],
            // Calls of 32 bits have other numbers. These are `__USER_CS`.
            mode: (at(offset_of!(Registers, cs)), 0x33),
        },
    )
}

#[cfg(not(target_arch = "x86_64"))]
fn program(_queue: i32) -> Option<Vec<u64>> {
    None
}

/// Where the registers are that the program reads.
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "for x86-64"))]
struct Places {
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
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// Instead of a register: the number is the descriptor of a map.
const DESCRIPTOR_OF_MAP: u8 = 1;

/// Numbers of the kernel's functions (include/uapi/linux/bpf.h).
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

/// The program. None if it does not fit into its memory.
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "for x86-64"))]
fn assemble(queue: i32, places: &Places) -> Option<Vec<u64>> {
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
    let others = [libc::SYS_execve, libc::SYS_chdir].map(i64::cast_unsigned);
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
    // The kernel refuses to copy memory that nothing was written to.
    for at in (BY..LEN).step_by(8) {
        program.put(STORE_NUMBER, FRAME, 0, of_seen(at)?, 0);
    }
    program.put(MOVE, R3, ADDRESS, 0, 0);
    program.call_on(of_seen(PATH)?, LEN - PATH, READ_TEXT_OF_PROCESS)?;
    // The length, with the zero byte. Of a path that fills all, the rest may be missing.
    program.jump(JUMP_IF_AT_MOST, R0, 1, Target::End);
    program.jump(
        JUMP_IF_AT_LEAST,
        R0,
        i32::try_from(LEN - PATH).ok()?,
        Target::End,
    );
    program.put(CALL, 0, 0, 0, NANOSECONDS_SINCE_START);
    program.put(STORE, FRAME, R0, of_seen(0)?, 0);
    program.put(CALL, 0, 0, 0, THIS_PROCESS);
    program.put(STORE, FRAME, R0, of_seen(PROCESS)?, 0);
    program.put(STORE_32, FRAME, IN, of_seen(DIRECTORY)?, 0);
    program.put(STORE_32, FRAME, VALUE, of_seen(RESULT)?, 0);
    program.put(LOAD, R1, FRAME, register(places.call)?, 0);
    program.put(STORE_32, FRAME, R1, of_seen(BY)?, 0);
    program.put(LOAD_NUMBER_64, R1, DESCRIPTOR_OF_MAP, 0, queue);
    program.put(0, 0, 0, 0, 0);
    program.put(MOVE, R2, FRAME, 0, 0);
    program.put(ADD, R2, 0, 0, seen.into());
    program.put(SET, R3, 0, 0, 0);
    program.put(CALL, 0, 0, 0, PUSH);
    program.here(Target::End);
    program.put(SET, R0, 0, 0, 0);
    program.put(EXIT, 0, 0, 0, 0);
    program.finish()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::process::geteuid;

    use super::*;

    #[test]
    fn what_is_looked_up_is_told() {
        if !geteuid().is_root() {
            return;
        }
        let home = tempfile::tempdir().expect("room");
        let probe = LookUpProbe::start().expect("a kernel with CONFIG_BPF_EVENTS");
        fs::write(home.path().join("there"), "").expect("room");
        let long = home.path().join("a".repeat(255)).join("b".repeat(255));
        for name in ["there", "none"] {
            fs::metadata(home.path().join(name)).ok();
        }
        fs::metadata(long).ok();
        let mut told = Vec::new();
        while let Some(seen) = probe.next().expect("a queue") {
            let own = seen.process == std::process::id().cast_signed();
            let path = String::from_utf8(seen.path).expect("these paths");
            if own && let Some(name) = path.strip_prefix(home.path().to_str().expect("text")) {
                assert!(seen.at > Duration::ZERO);
                assert_eq!(seen.directory, libc::AT_FDCWD);
                told.push((name.to_owned(), seen.found));
            }
        }
        // The first look-up made it.
        let expected = [("/there", true), ("/there", true), ("/none", false)];
        let expected = expected.map(|(name, found)| (name.to_owned(), found));
        assert_eq!(told, expected);
    }
}
