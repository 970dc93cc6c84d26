//! A server as a process, with its children.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use serde::Serialize;

/// Private memory of processes, in bytes (`smaps_rollup`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// Pages that no other process has, and that were written to.
    pub private_dirty: u64,
    /// Pages that no other process has mapped, and that the kernel can drop: also those of mapped files.
    pub private_clean: u64,
    /// Pages that belong to no file.
    pub anonymous: u64,
}

impl Memory {
    pub fn private(&self) -> u64 {
        self.private_dirty + self.private_clean
    }
}

/// A server. It is ended when this is dropped.
pub struct Server {
    child: Child,
}

impl Server {
    /// Starts a program whose messages go to a file.
    pub fn start(command: &mut Command, messages: &Path) -> Result<Self> {
        let file = fs::File::create(messages)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start {:?}", command.get_program()))?;
        Ok(Self { child })
    }

    /// Whether it is still there.
    pub fn runs(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// The numbers of the process and of its children.
    fn processes(&self) -> Result<Vec<u32>> {
        let mut found = vec![self.child.id()];
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            // One that has just ended has none.
            let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
                continue;
            };
            if field(&stat, 1) == Some(u64::from(self.child.id())) {
                found.push(pid);
            }
        }
        Ok(found)
    }

    /// The processor time that all of them have used, in seconds.
    pub fn processor_seconds(&self) -> Result<f64> {
        let mut ticks = 0;
        for pid in self.processes()? {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
            // The parent also has the times of children that have ended.
            let fields = if pid == self.child.id() {
                11..15
            } else {
                11..13
            };
            for number in fields {
                let time = field(&stat, number);
                ticks += time.context("/proc/PID/stat is not as expected")?;
            }
        }
        Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
    }

    /// The private memory of all of them.
    pub fn memory(&self) -> Result<Memory> {
        let mut memory = Memory::default();
        for pid in self.processes()? {
            let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
            let bytes = |name: &str| -> Result<u64> {
                let line = text.lines().find_map(|line| line.strip_prefix(name));
                let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
                Ok(kib.with_context(|| format!("smaps_rollup has no {name}"))? * 1024)
            };
            memory.private_dirty += bytes("Private_Dirty:")?;
            memory.private_clean += bytes("Private_Clean:")?;
            memory.anonymous += bytes("Anonymous:")?;
        }
        Ok(memory)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).ok();
        self.child.wait().ok();
    }
}

/// A number of /proc/PID/stat. 0 is the state, behind the name.
fn field(stat: &str, number: usize) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(number)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_behind_the_name() {
        let stat = "7 (a) b) S 3 7 7 0 -1 4194304 1 2 3 4 55 66 0 0 20 0 1 0 9";
        assert_eq!(
            [1, 11, 12].map(|number| field(stat, number)),
            [Some(3), Some(55), Some(66)]
        );
    }
}
