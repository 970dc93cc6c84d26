//! System calls of a job, and the bytes that it writes, from what strace says.

use std::collections::HashMap;
use std::path::Path;

/// The system call with which a worker begins and ends what it measures: it asks for its own processor time.
const MARK: &str = "getrusage(";

/// The lines between the first and the last mark of a trace. None if it has no two marks.
fn between_marks(trace: &str) -> Option<Vec<&str>> {
    let lines: Vec<_> = trace.lines().collect();
    let is_mark = |line: &&str| line.contains(MARK) && !line.contains("resumed>");
    let first = lines.iter().position(is_mark)?;
    let last = lines.iter().rposition(is_mark)?;
    lines.get(first + 1..last).map(<[_]>::to_vec)
}

/// How many system calls of all threads lie between the marks of a trace.
pub fn system_calls(trace: &str) -> Option<usize> {
    // A call that another thread interrupts has a second line.
    let lines = between_marks(trace)?.into_iter();
    Some(lines.filter(|line| !line.contains("resumed>")).count())
}

/// How many bytes all threads gave to write calls for files below a directory, between the marks of a trace.
pub fn written_below(directory: &Path, trace: &str) -> Option<u64> {
    const CALLS: [&str; 4] = ["write(", "pwrite64(", "writev(", "pwritev("];
    let below = format!("<{}/", directory.display());
    let returned = |line: &str| -> u64 {
        let value = line.rsplit_once(" = ").map(|(_, value)| value);
        let digits = value.and_then(|value| value.split_ascii_whitespace().next());
        // A call that failed has written nothing.
        digits
            .and_then(|digits| digits.parse().ok())
            .unwrap_or_default()
    };
    let mut bytes = 0;
    // Threads whose write call another one interrupts.
    let mut interrupted: HashMap<&str, bool> = HashMap::new();
    for line in between_marks(trace)? {
        let Some((thread, call)) = line.split_once(char::is_whitespace) else {
            continue;
        };
        let call = call.trim_start();
        if call.contains("resumed>") {
            if interrupted.remove(thread) == Some(true) {
                bytes += returned(call);
            }
            continue;
        }
        let is_write = CALLS.iter().any(|name| call.starts_with(name));
        // The first argument is the file. The others may name anything.
        let file = call.split([',', ')']).next().unwrap_or_default();
        let counts = is_write && file.contains(&below);
        match call.ends_with("<unfinished ...>") {
            true => {
                interrupted.insert(thread, counts);
            }
            false if counts => bytes += returned(call),
            false => {}
        }
    }
    Some(bytes)
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
        assert_eq!(system_calls(trace), Some(2));
        let lines: Vec<_> = trace.lines().collect();
        assert_eq!(system_calls(&[lines[1], lines[6]].join("\n")), Some(0));
        assert_eq!(system_calls(lines[1]), None);
        assert_eq!(system_calls(""), None);
    }

    #[test]
    fn written_bytes_are_those_of_files_below_the_directory() {
        let mark = "7 getrusage(RUSAGE_SELF, {...}) = 0\n";
        let trace = format!(
            "7 write(1</dir/early>, \"\"..., 9) = 9\n\
            {mark}\
            7 write(4</dir/a>, \"\"..., 100) = 100\n\
            7 pwrite64(5</dir/b/c>, \"\"..., 40, 7) = 30\n\
            7 write(6<socket:[8]>, \"</dir/\"..., 1000) = 1000\n\
            8 writev(4</dir/a>, [...], 2 <unfinished ...>\n\
            7 write(9</directory>, \"\"..., 5) = 5\n\
            7 write(4</dir/a>, \"\"..., 5) = -1 ENOSPC (No space left on device)\n\
            8 <... writev resumed>)             = 3\n\
            7 read(4</dir/a>, \"\"..., 8) = 8\n\
            {mark}"
        );
        assert_eq!(written_below(Path::new("/dir"), &trace), Some(133));
        assert_eq!(written_below(Path::new("/dir"), mark), None);
    }
}
