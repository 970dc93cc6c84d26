//! The jobs whose allocations and system calls are counted, in runs that are not timed.

use super::worker::{Job, Work};

/// How many operations are counted at most. Tracing makes each system call slow.
const GETS: u64 = 2000;
const UPDATES: u64 = 200;

/// The job that counts for one that is timed: a shorter one.
pub fn shorter(job: Job) -> Job {
    let work = match job.work {
        Work::Get { keys, .. } => Work::Get {
            keys: keys.min(GETS),
            rounds: 2,
        },
        Work::Update { times } => Work::Update {
            times: times.min(UPDATES),
        },
        Work::TablesAgain { .. } => Work::TablesAgain { rounds: 1 },
        work => work,
    };
    Job { work, ..job }
}
