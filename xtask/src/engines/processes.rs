//! A server's processes, read from /proc.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A process that cannot be mistaken for a later one of the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// When it started, in clock ticks since boot.
    pub started: u64,
}

impl Process {
    /// The process that has this number now.
    pub fn now(pid: i32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (state, started) = state_and_start(&stat)?;
        (state != 'Z').then_some(Self { pid, started })
    }

    /// Whether it still runs.
    pub fn is_alive(self) -> bool {
        Self::now(self.pid) == Some(self)
    }

    /// It and all its descendants.
    pub fn tree(self) -> Vec<Self> {
        let mut found = vec![self];
        let mut next = 0;
        while let Some(parent) = found.get(next).copied() {
            found.extend(children(parent.pid).into_iter().filter_map(Self::now));
            next += 1;
        }
        found
    }

    /// Sends a signal; one that is gone is no error.
    pub fn signal(self, signal: Signal) {
        if self.is_alive()
            && let Some(pid) = Pid::from_raw(self.pid)
        {
            // It may have ended since: nothing to do then.
            let _ = kill_process(pid, signal);
        }
    }
}

/// Ends a tree of processes: an interrupt to the root, then, after `patience`, a kill to what is left.
pub fn end(root: Process, patience: Duration) {
    let tree = root.tree();
    root.signal(Signal::INT);
    let until = Instant::now() + patience;
    while tree.iter().any(|process| process.is_alive()) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(100));
    }
    for process in tree {
        process.signal(Signal::KILL);
    }
}

fn children(pid: i32) -> Vec<i32> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    threads
        .flatten()
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|text| {
            text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>()
        })
        .collect()
}

/// Fields 3 and 22 of /proc/PID/stat. The name in field 2 may hold spaces and parentheses.
fn state_and_start(stat: &str) -> Option<(char, u64)> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 12345 0 0";
        assert_eq!(state_and_start(stat), Some(('S', 12345)));
        assert_eq!(state_and_start("7 (a"), None);
        assert_eq!(state_and_start("7 (a) S 1 2"), None);
    }

    #[test]
    fn a_child_is_in_the_tree_until_it_is_ended() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let process = Process::now(pid).unwrap();
        let me = Process::now(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(me.tree().contains(&process));
        end(process, Duration::from_secs(5));
        assert!(!process.is_alive());
        child.wait().unwrap();
        assert_eq!(Process::now(pid), None);
    }

    #[test]
    fn a_number_used_again_is_another_process() {
        let me = Process::now(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(me.is_alive());
        assert!(!Process { started: me.started + 1, ..me }.is_alive());
    }
}
