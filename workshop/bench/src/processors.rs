//! Limits what is measured to some processors.

use anyhow::{Context, Result, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Limits this process, and everything that it starts, to `wanted` processors (`None`: to those that it may
/// use), and returns how many these are.
///
/// A number of threads as an option limits only the threads that compress. `mksquashfs -processors 1` keeps
/// two processors busy, because it reads and writes in other threads.
pub fn give_processors(wanted: Option<usize>) -> Result<usize> {
    let allowed = sched_getaffinity(None).context("cannot ask for the processors")?;
    let Some(wanted) = wanted else {
        return Ok(allowed.count() as usize);
    };
    let mut given = CpuSet::new();
    for cpu in (0..CpuSet::MAX_CPU)
        .filter(|&cpu| allowed.is_set(cpu))
        .take(wanted)
    {
        given.set(cpu);
    }
    ensure!(
        given.count() as usize == wanted && wanted > 0,
        "--processors is {wanted}, allowed is 1 to {}",
        allowed.count()
    );
    sched_setaffinity(None, &given).context("cannot keep to some processors")?;
    Ok(wanted)
}
