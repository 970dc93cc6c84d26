//! Filters of system calls.

/// A system call that is refused, always or if bits of an argument are set.
pub struct Refused {
    pub call: libc::c_long,
    /// The argument, from 0, and the bits.
    pub bits: Option<(usize, libc::c_int)>,
}

pub const fn always(call: libc::c_long) -> Refused {
    Refused { call, bits: None }
}

/// Makes the kernel answer `EPERM` to these system calls of this thread, from now on.
pub fn refuse(calls: &[Refused]) {
    let step = |code: u32, k: u32, skip: u8| libc::sock_filter {
        code: u16::try_from(code).unwrap(),
        jt: 0,
        jf: skip,
        k,
    };
    let load = |at: usize| {
        let at = u32::try_from(at).unwrap();
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at, 0)
    };
    let refusal = libc::SECCOMP_RET_ERRNO | u32::try_from(libc::EPERM).unwrap();
    let refusal = step(libc::BPF_RET | libc::BPF_K, refusal, 0);
    let mut program = Vec::new();
    for refused in calls {
        program.push(load(std::mem::offset_of!(libc::seccomp_data, nr)));
        let call = u32::try_from(refused.call).unwrap();
        let is_it = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        match refused.bits {
            None => program.push(step(is_it, call, 1)),
            Some((argument, bits)) => {
                program.push(step(is_it, call, 3));
                // Its lower half, which comes first in memory here.
                let at = std::mem::offset_of!(libc::seccomp_data, args) + 8 * argument;
                program.push(load(at + if cfg!(target_endian = "big") { 4 } else { 0 }));
                let has = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
                program.push(step(has, u32::try_from(bits).unwrap(), 1));
            }
        }
        program.push(refusal);
    }
    program.push(step(
        libc::BPF_RET | libc::BPF_K,
        libc::SECCOMP_RET_ALLOW,
        0,
    ));
    let filter = libc::sock_fprog {
        len: u16::try_from(program.len()).unwrap(),
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the call takes numbers only.
    let bound = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(bound, 0);
    // SAFETY: `filter` points to `len` instructions, which the kernel copies and checks.
    let installed = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const filter,
        )
    };
    assert_eq!(installed, 0, "{}", std::io::Error::last_os_error());
}
