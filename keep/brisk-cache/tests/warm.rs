//! A warm hit takes no allocation and no system call. A program of its own, because it counts those of the process.

use std::alloc::System;

use brisk_cache::{About, Cache, CacheOptions};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Gets every key, and returns whether all was right.
fn get_all(cache: &Cache, buf: &mut Vec<u8>) -> bool {
    let long = cache.get(b"long");
    let part = long.is_ok_and(|hit| {
        hit.is_some_and(|hit| {
            hit.part(50_000..70_000)
                .is_ok_and(|part| part == [8; 20_000])
        })
    });
    part && (0..100u32).all(|n| {
        let key = n.to_le_bytes();
        let hit = cache.get(&key);
        let borrowed = hit.is_ok_and(|hit| {
            hit.is_some_and(|hit| {
                hit.is_mapped() && hit.bytes().is_ok_and(|bytes| bytes.len() == 1024)
            })
        });
        let copied = cache.get_into(&key, buf);
        let missed = cache.get(&(n + 1_000).to_le_bytes());
        borrowed
            && copied.is_ok_and(|copied| copied.is_some())
            && missed.is_ok_and(|hit| hit.is_none())
    })
}

#[test]
fn a_warm_hit_takes_no_allocation_and_no_system_call() {
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    // SAFETY: only brisk writes to the directory.
    let cache = unsafe { Cache::open_mapped(home.path(), CacheOptions::new()) }.unwrap();
    for n in 0..100u32 {
        cache
            .insert(&n.to_le_bytes(), &[7; 1024], About::default())
            .unwrap();
    }
    // It is checked in 62 chunks.
    cache
        .insert(b"long", &[8; 1_000_000], About::default())
        .unwrap();
    let mut buf = Vec::new();
    assert!(get_all(&cache, &mut buf));
    let region = Region::new(ALLOCATOR);
    assert!(get_all(&cache, &mut buf));
    let change = region.change();
    assert_eq!((change.allocations, change.reallocations), (0, 0));

    // SAFETY: the child allocates, which the C library allows it, and ends by `exit`.
    let child = match unsafe { libc::fork() } {
        0 => {
            // It opens its own files.
            let mut right = get_all(&cache, &mut buf);
            // SAFETY: it takes two numbers. From here on, the kernel kills the process at any call but read, write and
            // exit.
            right &= unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT) } == 0;
            right &= get_all(&cache, &mut buf);
            // SAFETY: it takes a number and does not return. `_exit` would make another call, which is not allowed.
            unsafe { libc::syscall(libc::SYS_exit, i32::from(!right)) };
            unreachable!("the process has ended")
        }
        child => child,
    };
    let mut status = 0;
    // SAFETY: it writes a number to where one is.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
}
