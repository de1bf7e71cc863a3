//! The state that SGLang's schedulers publish in shared memory (0.5.13 on), read as facts.
//!
//! The files are opened through the scheduler's own descriptors, read-only; no lock is taken, so the scheduler never
//! waits for the agent. A reading that a write cut across is given up until the next time.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use enginetap_core::capture::fact::{Fact, Shared};
use enginetap_core::ids::Pid;
use enginetap_core::time::MonoTime;

use crate::discover::proc::Proc;

/// What the files are called; mirrors `sglang/srt/managers/load_snapshot.py` (0.5.23).
const PREFIX: &str = "/dev/shm/sglang_loads_";

/// Most bytes of one file: 64 data-parallel ranks' slots of 16 KiB.
const LIMIT: u64 = 12 + 64 * 16_384;

/// The states that are read.
#[derive(Debug, Default)]
pub(super) struct SharedStates {
    /// By device and inode: all ranks of a server share one file.
    files: BTreeMap<(u64, u64), State>,
}

#[derive(Debug)]
struct State {
    pid: Pid,
    file: File,
    /// What was told last.
    told: Vec<u8>,
}

impl SharedStates {
    /// Takes up the files that these schedulers have open, and lets go of those that none of them has any more.
    pub fn follow(&mut self, proc: &Proc, schedulers: &[Pid]) {
        let mut open = BTreeMap::new();
        for &pid in schedulers {
            for path in proc.opened(pid, PREFIX) {
                if let Some((key, file)) = open_file(path) {
                    open.entry(key).or_insert((pid, file));
                }
            }
        }
        self.files.retain(|key, _| open.contains_key(key));
        for (key, (pid, file)) in open {
            let state = self.files.entry(key).or_insert_with(|| State { pid, file, told: Vec::new() });
            // The rank that told so far may have ended before the others.
            state.pid = pid;
        }
    }

    /// What changed since the last reading.
    pub fn read(&mut self, at: MonoTime) -> Vec<Fact> {
        self.files.values_mut().filter_map(|state| state.read(at)).map(Fact::Shared).collect()
    }
}

impl State {
    fn read(&mut self, at: MonoTime) -> Option<Shared> {
        let bytes = whole(&self.file).ok()?;
        if bytes == self.told || whole(&self.file).ok()? != bytes {
            return None;
        }
        self.told.clone_from(&bytes);
        Some(Shared { pid: self.pid, at, bytes })
    }
}

fn open_file(path: PathBuf) -> Option<((u64, u64), File)> {
    let file = File::open(path).ok()?;
    let about = file.metadata().ok()?;
    about.is_file().then_some(((about.dev(), about.ino()), file))
}

/// A file's bytes less the zeros at its end: most of a slot is never written.
fn whole(file: &File) -> io::Result<Vec<u8>> {
    let length = file.metadata()?.len().min(LIMIT);
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    file.read_exact_at(&mut bytes, 0)?;
    let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    bytes.truncate(end);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Two processes with one file open, as two ranks have.
    fn ranks(state: &std::path::Path) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for pid in ["7", "8"] {
            std::fs::create_dir_all(folder.path().join(pid).join("fd")).unwrap();
            symlink(state, folder.path().join(pid).join("fd/5")).unwrap();
            symlink("/dev/null", folder.path().join(pid).join("fd/1")).unwrap();
        }
        folder
    }

    #[test]
    fn a_state_is_told_once_for_all_ranks_and_again_only_when_it_changed() {
        let path = PathBuf::from(format!("{PREFIX}enginetap_test_{}.shm", std::process::id()));
        std::fs::write(&path, [b"SLNS".as_slice(), &[0; 64]].concat()).unwrap();
        let folder = ranks(&path);
        let proc = Proc::at(folder.path());
        let mut states = SharedStates::default();
        states.follow(&proc, &[Pid(7), Pid(8)]);
        let told = states.read(MonoTime(5));
        let first = Shared { pid: Pid(7), at: MonoTime(5), bytes: b"SLNS".to_vec() };
        assert_eq!(told, [Fact::Shared(first)]);
        assert!(states.read(MonoTime(6)).is_empty());
        std::fs::write(&path, b"SLNSx").unwrap();
        states.follow(&proc, &[Pid(8)]);
        let second = Shared { pid: Pid(8), at: MonoTime(7), bytes: b"SLNSx".to_vec() };
        assert_eq!(states.read(MonoTime(7)), [Fact::Shared(second)]);
        states.follow(&proc, &[]);
        std::fs::write(&path, b"SLNSy").unwrap();
        assert!(states.read(MonoTime(8)).is_empty());
        std::fs::remove_file(&path).unwrap();
    }
}
