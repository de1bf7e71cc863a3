//! A server's processes, read from /proc.

use std::collections::BTreeSet;
use std::path::PathBuf;
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

/// All processes of a server whose root leads a session of its own: its descendants and, should it have died before
/// them, those of its session that began after it. A session's number is not given to another process while it has
/// members.
pub fn of_server(root: Process) -> Vec<Process> {
    let mut all = if root.is_alive() { root.tree() } else { Vec::new() };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    for process in pids.filter_map(|pid| in_session(pid, root)) {
        if !all.contains(&process) {
            all.push(process);
        }
    }
    all
}

fn in_session(pid: i32, root: Process) -> Option<Process> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let process = Process::now(pid)?;
    (session(&stat)? == root.pid && process.started >= root.started).then_some(process)
}

/// Ends a server: an interrupt to its root, then, after `patience`, a kill to what is left, also of processes that
/// lost their root. What they leave in shared memory and in the folder of temporary files goes with them.
pub fn end(root: Process, patience: Duration) {
    let all = of_server(root);
    let left = traces(&all);
    root.signal(Signal::INT);
    let until = Instant::now() + if root.is_alive() { patience } else { Duration::ZERO };
    while all.iter().any(|process| process.is_alive()) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(100));
    }
    // Again: some may have been started meanwhile.
    for process in all.iter().copied().chain(of_server(root)) {
        process.signal(Signal::KILL);
    }
    let until = Instant::now() + Duration::from_secs(5);
    while !of_server(root).is_empty() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
    }
    for path in left.iter().filter(|path| path.exists() && !is_held(path)) {
        let _ = std::fs::remove_file(path);
    }
}

/// Files in shared memory that processes have open or mapped, and the Unix sockets they bound below /tmp.
fn traces(processes: &[Process]) -> BTreeSet<PathBuf> {
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    processes.iter().flat_map(|process| traces_of(process.pid, &sockets)).collect()
}

fn traces_of(pid: i32, sockets: &str) -> Vec<PathBuf> {
    let opened = links(pid);
    let bound = opened.iter().filter_map(|link| socket_path(sockets, link.to_str()?));
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let mapped = maps.lines().filter_map(|line| Some(PathBuf::from(line.get(line.find('/')?..)?)));
    let shared = |path: &PathBuf| path.starts_with("/dev/shm/");
    opened.iter().cloned().chain(mapped).filter(shared).chain(bound).collect()
}

/// What a process's descriptors point to.
fn links(pid: i32) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    entries.filter_map(|entry| std::fs::read_link(entry.path()).ok()).collect()
}

/// The path below /tmp that the socket of a descriptor (`socket:[42]`) is bound to, by the kernel's table.
fn socket_path(table: &str, link: &str) -> Option<PathBuf> {
    let inode = link.strip_prefix("socket:[")?.strip_suffix(']')?;
    table.lines().find_map(|line| {
        let mut columns = line.split_ascii_whitespace().skip(6);
        (columns.next()? == inode).then_some(())?;
        columns.next().filter(|path| path.starts_with("/tmp/")).map(PathBuf::from)
    })
}

/// Whether any process has a file open or mapped still.
fn is_held(path: &std::path::Path) -> bool {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.any(|pid| {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        links(pid).iter().any(|link| link == path)
            || path.to_str().is_some_and(|path| maps.lines().any(|line| line.ends_with(path)))
    })
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

/// Field 6 of /proc/PID/stat.
fn session(stat: &str) -> Option<i32> {
    stat.rsplit_once(") ")?.1.split_ascii_whitespace().nth(3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_lost_its_root_is_found_by_its_session_and_ended_with_what_it_left() {
        let file = format!("/dev/shm/enginetap-test-{}", std::process::id());
        let script = format!("exec 9>{file}; sleep 60 & echo $!; exec 9>&-; exec sleep 60");
        let mut root = std::process::Command::new("setsid")
            .args(["sh", "-c", &script])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(root.stdout.take().unwrap()), &mut line)
            .unwrap();
        let orphan = Process::now(line.trim().parse().unwrap()).unwrap();
        let process = Process::now(i32::try_from(root.id()).unwrap()).unwrap();
        root.kill().unwrap();
        root.wait().unwrap();
        assert!(!process.is_alive() && orphan.is_alive());
        assert_eq!(of_server(process), [orphan]);
        end(process, Duration::from_secs(5));
        assert!(!orphan.is_alive() && !std::path::Path::new(&file).exists());
    }

    #[test]
    fn a_bound_socket_is_told_by_its_inode() {
        let table = "Num RefCount Protocol Flags Type St Inode Path\n\
                     0: 00000002 00000000 00010000 0001 01 77 /tmp/tmpab\n\
                     0: 00000002 00000000 00010000 0001 01 78 @/x\n0: 3 0 0 1 3 79\n";
        assert_eq!(socket_path(table, "socket:[77]"), Some(PathBuf::from("/tmp/tmpab")));
        assert_eq!(socket_path(table, "socket:[78]"), None);
        assert_eq!(socket_path(table, "socket:[79]"), None);
        assert_eq!(socket_path(table, "/dev/null"), None);
    }

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
