use std::mem::MaybeUninit;

/// The seconds since 1970, as of the kernel's last tick.
///
/// It takes no system call, and a third of the time of [`SystemTime::now`](std::time::SystemTime::now). A first call
/// has nothing to set up, because the C library does that when the program starts.
#[inline]
pub fn coarse_seconds() -> i64 {
    // On some machines it has fewer bits.
    #[allow(clippy::unnecessary_cast)]
    let seconds = read(libc::CLOCK_REALTIME_COARSE).tv_sec as i64;
    seconds
}

/// The milliseconds since the machine has started, as of the kernel's last tick, which is at most 10 ms ago.
///
/// It takes no system call, and a fraction of the time of [`Instant::now`](std::time::Instant::now).
#[inline]
pub fn coarse_milliseconds() -> u64 {
    let time = read(libc::CLOCK_MONOTONIC_COARSE);
    // Neither is negative.
    #[allow(clippy::unnecessary_cast)]
    let (seconds, nanos) = (time.tv_sec as u64, time.tv_nsec as u64);
    seconds * 1000 + nanos / 1_000_000
}

#[inline]
fn read(clock: libc::clockid_t) -> libc::timespec {
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the call writes one `timespec` to where there is room for one.
    let answer = unsafe { libc::clock_gettime(clock, time.as_mut_ptr()) };
    debug_assert_eq!(answer, 0, "every kernel has these clocks");
    // SAFETY: numbers may have any bits, and the memory was zeroed.
    unsafe { time.assume_init() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_time_of_the_system() {
        let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
        assert!(now.abs_diff(coarse_seconds().try_into().unwrap()) <= 1);
    }

    #[test]
    fn it_goes_on_by_milliseconds() {
        let before = coarse_milliseconds();
        std::thread::sleep(std::time::Duration::from_millis(120));
        assert!(coarse_milliseconds() - before >= 100);
    }
}
