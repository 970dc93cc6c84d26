//! Allocations and system calls of one operation, in runs that are not timed.

use anyhow::Result;

use super::program::Program;
use super::worker::{Job, Work};

/// How many operations are counted at most. Tracing makes each system call slow.
const GETS: u64 = 2000;
const UPDATES: u64 = 200;

/// The system call with which a worker begins and ends what it measures: it asks for its own processor time.
const MARK: &str = "getrusage(";

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

/// System calls of one operation. None if strace cannot trace here.
pub fn system_calls(program: &Program, job: &Job) -> Result<Option<f64>> {
    let calls = program.traced(job)?.and_then(|trace| between_marks(&trace));
    Ok(calls.map(|calls| calls as f64 / job.operations().max(1) as f64))
}

/// How many system calls of all threads lie between the first and the last mark of a trace.
fn between_marks(trace: &str) -> Option<usize> {
    // A call that another thread interrupts has a second line.
    let calls = trace.lines().filter(|line| !line.contains("resumed>"));
    let marks: Vec<_> = calls
        .enumerate()
        .filter(|(_, line)| line.contains(MARK))
        .map(|(number, _)| number)
        .collect();
    let (first, last) = (marks.first()?, marks.last()?);
    (last > first).then(|| last - first - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_is_counted_and_nothing_around_it() {
        let trace = "\
            7 execve(\"/bin/worker\", [\"worker\"], 0x7ffd /* 20 vars */) = 0\n\
            7 getrusage(RUSAGE_SELF, {ru_utime={tv_sec=0, tv_usec=0}, ...}) = 0\n\
            7 openat(AT_FDCWD, \"file\", O_RDONLY <unfinished ...>\n\
            8 futex(0x7f, FUTEX_WAIT, 1, NULL <unfinished ...>\n\
            7 <... openat resumed>)             = 3\n\
            8 <... futex resumed>)              = 0\n\
            7 getrusage(RUSAGE_SELF, {ru_utime={tv_sec=0, tv_usec=9}, ...}) = 0\n\
            7 exit_group(0)                     = ?\n";
        assert_eq!(between_marks(trace), Some(2));
        let lines: Vec<_> = trace.lines().collect();
        assert_eq!(between_marks(&[lines[1], lines[6]].join("\n")), Some(0));
        assert_eq!(between_marks(lines[1]), None);
        assert_eq!(between_marks(""), None);
    }
}
