//! The system calls that a process may make, limited by seccomp.
//!
//! Each role has a list. A call that is not on it fails with ENOSYS, as if the kernel did not have it, and the session's
//! log names it once. The C library then tries an older call, as it does on old kernels. So a newer C library or kernel
//! does not end a session, as it would if such a call killed the process. A call that is on the list but has arguments
//! that are not, such as opening a file for writing, fails with EPERM.
//!
//! The kernel ends the process instead if the thread blocks all signals at that moment. The C library does that while it
//! starts a thread, and makes only calls from the list then.
//!
//! Never on a list: `execve`, `ptrace`, `process_vm_readv`, `mount`, `setns`, `unshare`, `bpf`, `keyctl`,
//! `io_uring_setup` (its requests pass by a filter), `perf_event_open`, `userfaultfd`, modules, `open_by_handle_at`.
//! Only the guardian has `socket`, for local sockets: it asks whether another process listens before it removes the
//! session's files.

use std::collections::BTreeMap;
use std::env::consts::ARCH;

use libc::c_long;
use rustix::io::Errno;
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

use super::role::Role;
use crate::sys::refused_call::{can_report_refused_calls, report_refused_calls};

/// What all processes need: memory, threads, time, and descriptors that they have.
const ALL: &[c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_futex,
    libc::SYS_getcpu,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_getuid,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_ppoll,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    libc::SYS_statx,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_write,
    libc::SYS_writev,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_dup2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_time,
];

/// Looking at files and directories.
const LOOKING: &[c_long] = &[
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fstatfs,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_newfstatat,
    libc::SYS_readlinkat,
    libc::SYS_statfs,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_access,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
];

/// Messages over sockets that are open.
const MESSAGES: &[c_long] = &[
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
];

/// Linux 6.5, on all processors.
const CACHESTAT: c_long = 451;

/// Reading ahead, what was recorded, and letting the fetcher go.
const SERVER: &[c_long] = &[
    CACHESTAT,
    libc::SYS_fadvise64,
    libc::SYS_ftruncate,
    libc::SYS_memfd_create,
    libc::SYS_mincore,
    libc::SYS_readahead,
    libc::SYS_shutdown,
];

/// Writing a pack into its directory.
const LEARNER: &[c_long] = &[
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_fchmod,
    libc::SYS_fchown,
    libc::SYS_fdatasync,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_linkat,
    libc::SYS_mincore,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_readahead,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_symlinkat,
    libc::SYS_sync_file_range,
    libc::SYS_umask,
    libc::SYS_unlinkat,
    libc::SYS_utimensat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
];

/// Looking for programs, and unmounting.
const WATCHDOG: &[c_long] = &[libc::SYS_getsid, libc::SYS_pidfd_open, libc::SYS_umount2];

/// Starting a process that looks whether a program lives, where no descriptor tells that (before Linux 5.3).
const LOOKER: &[c_long] = &[
    libc::SYS_pipe2,
    libc::SYS_prctl,
    libc::SYS_wait4,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
];

/// Starting, watching and ending processes, letting runs join, and the files of a session.
const GUARDIAN: &[c_long] = &[
    libc::SYS_accept4,
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_connect,
    libc::SYS_fchmodat,
    libc::SYS_flock,
    libc::SYS_getpriority,
    libc::SYS_getsockopt,
    libc::SYS_kill,
    libc::SYS_landlock_add_rule,
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_restrict_self,
    libc::SYS_mkdirat,
    libc::SYS_pidfd_send_signal,
    libc::SYS_pipe2,
    libc::SYS_prctl,
    libc::SYS_seccomp,
    libc::SYS_setpriority,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_socketpair,
    libc::SYS_wait4,
    libc::SYS_waitid,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mkdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rmdir,
];

/// Calls that a process tries, and replaces by older ones if they are missing. Their arguments are in memory, so no
/// filter can judge them.
const MISSING: &[c_long] = &[libc::SYS_clone3];

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Whether the system lets a process limit its calls.
pub(crate) fn can_filter_calls() -> bool {
    can_report_refused_calls() && crate::sys::refused_call::has_seccomp_filters()
}

/// Limits the process to the calls of its role, for ever. `landlocked`: its files are limited. False if the kernel
/// cannot do it.
///
/// # Errors
///
/// Text: why the kernel refuses.
pub(super) fn limit(role: Role, landlocked: bool) -> Result<bool, String> {
    if !can_filter_calls() {
        return Ok(false);
    }
    let failed = |e: &dyn std::error::Error| e.to_string();
    let rules = rules(role, landlocked).map_err(|e| failed(&e))?;
    let listed: Vec<_> = rules.keys().copied().collect();
    let allowed = program(rules, SeccompAction::Trap, SeccompAction::Allow)?;
    let missing = MISSING.iter().map(|call| (*call, Vec::new())).collect();
    let enosys = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let missing = program(missing, SeccompAction::Allow, enosys)?;
    report_refused_calls(&listed);
    // The second is installed under the rules of the first.
    apply_filter(&missing).map_err(|e| failed(&e))?;
    apply_filter(&allowed).map_err(|e| failed(&e))?;
    Ok(true)
}

fn program(
    rules: Rules,
    otherwise: SeccompAction,
    listed: SeccompAction,
) -> Result<BpfProgram, String> {
    let arch = TargetArch::try_from(ARCH).map_err(|e| e.to_string())?;
    let filter = SeccompFilter::new(rules, otherwise, listed, arch).map_err(|e| e.to_string())?;
    filter
        .try_into()
        .map_err(|e: seccompiler::BackendError| e.to_string())
}

/// Whether the kernel has no descriptors of processes.
fn starts_lookers() -> bool {
    pidfd_open(getpid(), PidfdFlags::empty()).is_err_and(|e| e == Errno::NOSYS)
}

/// The calls of a role, each with the arguments that it may have. No rule: any arguments.
fn rules(role: Role, landlocked: bool) -> Result<Rules, seccompiler::BackendError> {
    let lists: &[&[c_long]] = match role {
        Role::Server => &[ALL, LOOKING, MESSAGES, SERVER],
        Role::Learner => &[ALL, LOOKING, LEARNER],
        Role::Watchdog { .. } if starts_lookers() => &[ALL, LOOKING, WATCHDOG, LOOKER],
        Role::Watchdog { .. } => &[ALL, LOOKING, WATCHDOG],
        // It starts the others, and they can only lose calls.
        Role::Guardian { .. } => &[ALL, LOOKING, MESSAGES, SERVER, LEARNER, WATCHDOG, GUARDIAN],
    };
    let calls = lists.iter().copied().flatten().chain(MISSING);
    let mut rules: Rules = calls.map(|call| (*call, Vec::new())).collect();
    // Memory is never executable.
    let executable = libc::PROT_EXEC.unsigned_abs();
    rules.insert(libc::SYS_mmap, vec![without(2, executable.into())?]);
    rules.insert(libc::SYS_mprotect, vec![without(2, executable.into())?]);
    // Threads and, in the guardian, processes, but no namespaces.
    let namespaces = libc::CLONE_NEWNS
        | libc::CLONE_NEWCGROUP
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUSER
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET;
    let namespaces = u64::from(namespaces.cast_unsigned());
    let thread = u64::from(libc::CLONE_THREAD.unsigned_abs());
    let clone = match role {
        Role::Guardian { .. } => without(0, namespaces)?,
        Role::Watchdog { .. } if starts_lookers() => without(0, namespaces)?,
        Role::Server | Role::Learner | Role::Watchdog { .. } => {
            masked(0, namespaces | thread, thread)?
        }
    };
    rules.insert(libc::SYS_clone, vec![clone]);
    let write = libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC | libc::O_APPEND;
    // `O_TMPFILE` contains `O_DIRECTORY`, which is allowed.
    let write =
        u64::from(write.unsigned_abs() | (libc::O_TMPFILE & !libc::O_DIRECTORY).unsigned_abs());
    match role {
        Role::Server | Role::Watchdog { .. } => {
            rules.insert(libc::SYS_openat, vec![without(2, write)?]);
            #[cfg(target_arch = "x86_64")]
            rules.insert(libc::SYS_open, vec![without(1, write)?]);
        }
        Role::Learner | Role::Guardian { .. } => {
            rules.insert(libc::SYS_openat, Vec::new());
            #[cfg(target_arch = "x86_64")]
            rules.insert(libc::SYS_open, Vec::new());
        }
    }
    // Its flags are in memory. Without Landlock, a server uses `openat`.
    let is_guardian = matches!(role, Role::Guardian { .. });
    if landlocked || is_guardian {
        rules.insert(libc::SYS_openat2, Vec::new());
    }
    if role == Role::Server {
        // Making its own threads wait for others.
        let own = vec![SeccompRule::new(vec![condition(0, 0)?, condition(1, 0)?])?];
        rules.insert(libc::SYS_setpriority, own.clone());
        rules.insert(libc::SYS_getpriority, own);
    }
    // Reading limits, but setting none.
    let limits = match role {
        Role::Guardian { .. } => Vec::new(),
        Role::Server | Role::Learner | Role::Watchdog { .. } => vec![is(2, 0)?],
    };
    rules.insert(libc::SYS_prlimit64, limits);
    // Ending itself, after a panic. The number of the process is known only now.
    if !is_guardian {
        let own = u64::from(std::process::id());
        rules.insert(libc::SYS_tgkill, vec![is_int(0, own)?]);
        let prctl = [
            libc::PR_SET_NAME,
            libc::PR_GET_NAME,
            libc::PR_SET_VMA,
            PR_GET_AUXV,
        ];
        let prctl = prctl.map(|what| is_int(0, u64::from(what.unsigned_abs())));
        let prctl: Result<Vec<_>, _> = prctl.into_iter().collect();
        rules.insert(libc::SYS_prctl, prctl?);
    } else {
        rules.insert(libc::SYS_tgkill, Vec::new());
        let unix = u64::from(libc::AF_UNIX.unsigned_abs());
        rules.insert(libc::SYS_socket, vec![is_int(0, unix)?]);
        // A clone of a channel of `/dev/fuse`, and nothing else.
        rules.insert(libc::SYS_ioctl, vec![is_int(1, FUSE_DEV_IOC_CLONE)?]);
    }
    Ok(rules)
}

/// What the kernel has told the process about the machine (Linux 6.4).
const PR_GET_AUXV: libc::c_int = 0x4155_5856;

const FUSE_DEV_IOC_CLONE: u64 = 0x8004_e500;

type Rule = Result<SeccompRule, seccompiler::BackendError>;

/// None of these bits is set in the argument.
fn without(argument: u8, bits: u64) -> Rule {
    masked(argument, bits, 0)
}

/// These bits of the argument have this value.
fn masked(argument: u8, bits: u64, value: u64) -> Rule {
    rule(
        argument,
        SeccompCmpArgLen::Qword,
        SeccompCmpOp::MaskedEq(bits),
        value,
    )
}

fn is(argument: u8, value: u64) -> Rule {
    rule(argument, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, value)
}

/// The argument is an `int`: its upper half means nothing.
fn is_int(argument: u8, value: u64) -> Rule {
    rule(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)
}

fn condition(argument: u8, value: u64) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)
}

fn rule(argument: u8, len: SeccompCmpArgLen, operator: SeccompCmpOp, value: u64) -> Rule {
    let condition = SeccompCondition::new(argument, len, operator, value)?;
    SeccompRule::new(vec![condition])
}
