/*!
Copies bytes that another process may be writing at the same time.

Rust's memory model has no such copy of many bytes. A plain read that races with a write is undefined behaviour, and
`ptr::copy` is a plain read: an optimiser may read the source twice and get two answers. A volatile read is not allowed
to race either. Two things are allowed:

* A relaxed atomic load. It must not race with a write of another size that is not atomic, but the writer is another
  process, outside of this program's memory model. What such a writer does looks like atomic stores of single bytes.
* Inline assembly. The compiler knows only that a block may read and write memory, so it neither repeats a load nor
  assumes what a load finds. A block is correct if it does nothing that Rust code could not do: each one here does what
  relaxed atomic loads of the source's bytes, and plain stores to the destination, would do.

On x86_64 and aarch64, this file uses the second, on other processors the first. So each byte of the destination has a
value that the source's byte had during the call. The destination as a whole may be a mix of older and newer bytes. The
program looks at the destination only, which nobody else writes, so it never gets two answers for one byte.
*/

/// How many bytes one turn of the loop copies.
const STEP: usize = 64;

/// Copies `len` bytes. A byte that is written meanwhile is copied as it was at some time during the call.
///
/// # Safety
///
/// 1. `len` bytes from `from` are mapped and readable for the whole call. Other processes may write them; nobody
///    holds a Rust reference through which this process writes them.
/// 2. `len` bytes from `to` are writable, do not overlap the source, and are accessed by nobody else meanwhile.
#[inline(always)]
pub(crate) unsafe fn racing_copy(from: *const u8, to: *mut u8, len: usize) {
    let mut done = 0;
    while len - done >= STEP {
        // SAFETY: `done + 64 <= len`, so both ranges are inside those of requirements 1 and 2.
        unsafe { machine::copy_64(from.wrapping_add(done), to.wrapping_add(done)) };
        done += STEP;
    }
    let left = len - done;
    // The last part is copied as two pieces of one size. They overlap unless the part is twice that size.
    macro_rules! twice {
        ($copy:path, $size:literal) => {{
            // SAFETY: `left >= size`, so the first `size` bytes left are inside the ranges of requirements 1 and 2.
            unsafe { $copy(from.wrapping_add(done), to.wrapping_add(done)) };
            let last = len - $size;
            // SAFETY: `len >= left >= size`, so the last `size` bytes of all are inside the ranges of requirements 1
            // and 2. Some of them may have been copied before: nobody else has the destination, so the second store
            // wins.
            unsafe { $copy(from.wrapping_add(last), to.wrapping_add(last)) };
        }};
    }
    if left >= 32 {
        twice!(machine::copy_32, 32);
    } else if left >= 16 {
        twice!(machine::copy_16, 16);
    } else if left >= 8 {
        twice!(machine::copy_8, 8);
    } else if left >= 4 {
        twice!(machine::copy_4, 4);
    } else if left >= 2 {
        twice!(machine::copy_2, 2);
    } else if left == 1 {
        // SAFETY: one byte is left of both ranges.
        unsafe { machine::copy_1(from.wrapping_add(done), to.wrapping_add(done)) };
    }
}

/// Makes functions that copy a fixed number of bytes with these instructions.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! copies {
    ($($name:ident: $class:ident $($register:ident)+ => $($line:literal),+;)+) => {
        $(
            /// # Safety
            ///
            /// As [`racing_copy`](super::racing_copy), for the number of bytes in the name.
            #[inline(always)]
            pub(super) unsafe fn $name(from: *const u8, to: *mut u8) {
                // SAFETY: the instructions load that many bytes from `from`, at any alignment, and store them to
                // `to`; they change no flags and no stack. The caller allows both accesses.
                unsafe {
                    asm!(
                        $($line,)+
                        from = in(reg) from,
                        to = in(reg) to,
                        $($register = out($class) _,)+
                        options(nostack, preserves_flags),
                    );
                }
            }
        )+
    };
}

#[cfg(target_arch = "x86_64")]
mod machine {
    use std::arch::asm;

    copies! {
        copy_64: xmm_reg a b c d =>
            "movdqu {a}, [{from}]", "movdqu {b}, [{from} + 16]",
            "movdqu {c}, [{from} + 32]", "movdqu {d}, [{from} + 48]",
            "movdqu [{to}], {a}", "movdqu [{to} + 16], {b}",
            "movdqu [{to} + 32], {c}", "movdqu [{to} + 48], {d}";
        copy_32: xmm_reg a b =>
            "movdqu {a}, [{from}]", "movdqu {b}, [{from} + 16]",
            "movdqu [{to}], {a}", "movdqu [{to} + 16], {b}";
        copy_16: xmm_reg a => "movdqu {a}, [{from}]", "movdqu [{to}], {a}";
        copy_8: reg a => "mov {a}, [{from}]", "mov [{to}], {a}";
        copy_4: reg a => "mov {a:e}, [{from}]", "mov [{to}], {a:e}";
        copy_2: reg a => "movzx {a:e}, word ptr [{from}]", "mov [{to}], {a:x}";
        copy_1: reg_byte a => "mov {a}, [{from}]", "mov [{to}], {a}";
    }
}

#[cfg(target_arch = "aarch64")]
mod machine {
    use std::arch::asm;

    copies! {
        copy_64: vreg a b c d =>
            "ldp {a:q}, {b:q}, [{from}]", "ldp {c:q}, {d:q}, [{from}, #32]",
            "stp {a:q}, {b:q}, [{to}]", "stp {c:q}, {d:q}, [{to}, #32]";
        copy_32: vreg a b => "ldp {a:q}, {b:q}, [{from}]", "stp {a:q}, {b:q}, [{to}]";
        copy_16: vreg a => "ldr {a:q}, [{from}]", "str {a:q}, [{to}]";
        copy_8: reg a => "ldr {a:x}, [{from}]", "str {a:x}, [{to}]";
        copy_4: reg a => "ldr {a:w}, [{from}]", "str {a:w}, [{to}]";
        copy_2: reg a => "ldrh {a:w}, [{from}]", "strh {a:w}, [{to}]";
        copy_1: reg a => "ldrb {a:w}, [{from}]", "strb {a:w}, [{to}]";
    }
}

/// One byte after the other: right everywhere, but slow.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod machine {
    use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

    /// # Safety
    ///
    /// As [`racing_copy`](super::racing_copy), for one byte.
    pub(super) unsafe fn copy_1(from: *const u8, to: *mut u8) {
        // SAFETY: the byte is readable, an `AtomicU8` has no alignment, and this process only loads it. A relaxed load
        // of one byte is allowed of memory that is read-only.
        let byte = unsafe { AtomicU8::from_ptr(from.cast_mut()) }.load(Relaxed);
        // SAFETY: the byte is writable, and nobody else accesses it.
        unsafe { to.write(byte) };
    }

    macro_rules! copies {
        ($($name:ident $len:literal)+) => {
            $(
                /// # Safety
                ///
                /// As [`racing_copy`](super::racing_copy), for the number of bytes in the name.
                pub(super) unsafe fn $name(from: *const u8, to: *mut u8) {
                    for at in 0..$len {
                        // SAFETY: `at` is less than the number of bytes that the caller allows.
                        unsafe { copy_1(from.wrapping_add(at), to.wrapping_add(at)) };
                    }
                }
            )+
        };
    }
    copies! { copy_64 64 copy_32 32 copy_16 16 copy_8 8 copy_4 4 copy_2 2 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_at_every_place_is_copied_and_nothing_beside_it() {
        let source: Vec<u8> = (0..400).map(|n| (n % 251) as u8).collect();
        for len in 0..300 {
            for at in [0, 1, 7, 8, 33, 63] {
                let mut to = [0xEE; 320];
                // SAFETY: `at + len` is less than 400 and `5 + len` less than 320; the two are apart, and nobody else
                // has them.
                unsafe { racing_copy(source[at..].as_ptr(), to[5..].as_mut_ptr(), len) };
                assert_eq!(to[5..5 + len], source[at..at + len], "{len} at {at}");
                assert!(to[..5].iter().chain(&to[5 + len..]).all(|&b| b == 0xEE));
            }
        }
    }
}
