//! A thread's time on a CPU and in the run queue: `/proc/PID/task/TID/schedstat`.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use enginetap_core::ids::Pid;
use enginetap_core::time::Nanos;

use crate::discover::proc::Proc;

/// Most threads looked at of a process.
const MAX_THREADS: usize = 4096;
/// Where `majflt` stands after the command's closing bracket in `/proc/PID/stat` (proc(5): field 12).
const MAJOR_FAULTS: usize = 9;

/// Times that the kernel adds up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Times {
    /// On a CPU.
    pub ran: Nanos,
    /// Ready to run, and not on one.
    pub waited: Nanos,
}

/// A thread that is read again and again.
#[derive(Debug)]
pub(super) struct Thread {
    file: File,
    last: Times,
}

impl Times {
    /// `930827 4734223 5`: time run, time waited, and how often.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(bytes).ok()?.split_whitespace().map(str::parse);
        Some(Self { ran: Nanos(words.next()?.ok()?), waited: Nanos(words.next()?.ok()?) })
    }

    /// What was added since.
    pub fn less(self, before: Self) -> Self {
        let less = |now: Nanos, before: Nanos| Nanos(now.0.saturating_sub(before.0));
        Self { ran: less(self.ran, before.ran), waited: less(self.waited, before.waited) }
    }

    /// How much it wanted to run.
    pub fn wanted(self) -> u64 {
        self.ran.0.saturating_add(self.waited.0)
    }
}

impl Thread {
    /// Reads a thread from now on.
    pub fn open(proc: &Proc, pid: Pid, tid: u32) -> Option<Self> {
        let file = File::open(proc.path(pid, &format!("task/{tid}/schedstat"))).ok()?;
        let last = read(&file)?;
        Some(Self { file, last })
    }

    /// What it did since it was read last; `None` when it is gone.
    pub fn since(&mut self) -> Option<Times> {
        let now = read(&self.file)?;
        Some(now.less(std::mem::replace(&mut self.last, now)))
    }
}

fn read(file: &File) -> Option<Times> {
    let mut bytes = [0; 96];
    let length = file.read_at(&mut bytes, 0).ok()?;
    Times::parse(bytes.get(..length)?)
}

/// All threads of a process.
pub(super) fn all(proc: &Proc, pid: Pid) -> BTreeMap<u32, Times> {
    let Ok(folder) = std::fs::read_dir(proc.path(pid, "task")) else { return BTreeMap::new() };
    let tids = folder.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let times = |tid| {
        let bytes = std::fs::read(proc.path(pid, &format!("task/{tid}/schedstat"))).ok()?;
        Some((tid, Times::parse(&bytes)?))
    };
    tids.take(MAX_THREADS).filter_map(times).collect()
}

/// Pages that a process had to wait for from a disk, all its threads together.
pub(super) fn major_faults(proc: &Proc, pid: Pid) -> Option<u64> {
    let stat = proc.text(pid, "stat")?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(MAJOR_FAULTS)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedstat_is_read_as_the_kernel_writes_it() {
        let times = Times { ran: Nanos(930_827), waited: Nanos(4_734_223) };
        assert_eq!(Times::parse(b"930827 4734223 5\n"), Some(times));
        assert_eq!(Times::parse(b"930827"), None);
        assert_eq!(Times::parse(b""), None);
        assert_eq!(times.wanted(), 5_665_050);
        assert_eq!(times.less(Times { ran: Nanos(27), waited: Nanos(9_999_999) }).ran, Nanos(930_800));
    }

    #[test]
    fn a_command_with_brackets_does_not_move_the_faults() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("7")).unwrap();
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 100 200 42 300 1 1";
        std::fs::write(folder.path().join("7/stat"), stat).unwrap();
        assert_eq!(major_faults(&Proc::at(folder.path()), Pid(7)), Some(42));
    }
}
