//! The process table, read from a `/proc` (or from a folder made like one).

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use enginetap_core::ids::{Fd, Pid};
use procfs::FromRead;
use procfs::process::Stat;

/// Most bytes read of a command line: engines' titles and flags fit many times over.
const CMDLINE_LIMIT: u64 = 64 * 1024;

/// Most bytes read of an environment.
const ENVIRON_LIMIT: u64 = 256 * 1024;

/// Most bytes read of any other small file of a process.
const SMALL_LIMIT: u64 = 64 * 1024;

/// Most descriptors looked at in one process.
const FD_LIMIT: usize = 65_536;

/// A `/proc` file system.
#[derive(Clone, Debug)]
pub struct Proc {
    root: PathBuf,
}

/// One process of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its id.
    pub pid: Pid,
    /// Its parent's id; 0 where there is none.
    pub parent: Pid,
    /// When it started, in clock ticks since boot. With the pid it names a process for good.
    pub started: u64,
    /// Command name, cut to 15 bytes by the kernel.
    pub comm: String,
    /// Arguments, or the title that the process gave itself. Empty for kernel threads and zombies.
    pub argv: Vec<String>,
}

/// A socket's inode number: its identity for as long as it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Inode(pub u64);

impl Proc {
    /// The machine's own.
    #[must_use]
    pub fn system() -> Self {
        Self::at("/proc")
    }

    /// Whether it is the system's own.
    #[must_use]
    pub fn is_system(&self) -> bool {
        self.root == Path::new("/proc")
    }

    /// One that is mounted, or laid out, elsewhere.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Path of a file of a process.
    #[must_use]
    pub fn path(&self, pid: Pid, name: &str) -> PathBuf {
        self.root.join(pid.0.to_string()).join(name)
    }

    /// Path of a file of the system.
    #[must_use]
    pub fn system_path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Every process there is. One that has ended, or ends meanwhile, is left out: a zombie keeps its name
    /// until its parent asks for it.
    ///
    /// # Errors
    /// When the folder itself cannot be read.
    pub fn table(&self) -> io::Result<Vec<Entry>> {
        let mut entries: Vec<Entry> = std::fs::read_dir(&self.root)?
            .filter_map(|item| item.ok()?.file_name().to_str()?.parse().ok())
            .filter_map(|pid| self.stat(Pid(pid)).ok())
            .filter(|stat| !matches!(stat.state, 'Z' | 'X'))
            .filter_map(|stat| self.complete(stat))
            .collect();
        entries.sort_by_key(|entry| entry.pid);
        Ok(entries)
    }

    /// One process.
    ///
    /// # Errors
    /// When there is none of this pid (`NotFound`), or it ended meanwhile.
    pub fn entry(&self, pid: Pid) -> io::Result<Entry> {
        self.complete(self.stat(pid)?).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn stat(&self, pid: Pid) -> io::Result<Stat> {
        let stat = self.read(pid, "stat", SMALL_LIMIT)?;
        Stat::from_read(stat.as_slice()).map_err(io::Error::other)
    }

    fn complete(&self, stat: Stat) -> Option<Entry> {
        let pid = Pid(u32::try_from(stat.pid).ok()?);
        Some(Entry {
            pid,
            parent: Pid(u32::try_from(stat.ppid).unwrap_or(0)),
            started: stat.starttime,
            comm: stat.comm,
            argv: words(&self.read(pid, "cmdline", CMDLINE_LIMIT).unwrap_or_default()),
        })
    }

    /// At most `limit` bytes of a process's file.
    ///
    /// # Errors
    /// As opening and reading do.
    pub fn read(&self, pid: Pid, name: &str, limit: u64) -> io::Result<Vec<u8>> {
        read_at_most(&self.path(pid, name), limit)
    }

    /// A process's small file as text, bad UTF-8 replaced; `None` when it cannot be read.
    #[must_use]
    pub fn text(&self, pid: Pid, name: &str) -> Option<String> {
        let bytes = self.read(pid, name, SMALL_LIMIT).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Where a link of a process leads (`exe`, `cwd`, `root`, `ns/net`).
    #[must_use]
    pub fn link(&self, pid: Pid, name: &str) -> Option<PathBuf> {
        std::fs::read_link(self.path(pid, name)).ok()
    }

    /// The process's environment as it was when it started. Empty where it may not be read, and where the
    /// process wrote its title over it.
    #[must_use]
    pub fn environ(&self, pid: Pid) -> Environ {
        Environ(words(&self.read(pid, "environ", ENVIRON_LIMIT).unwrap_or_default()))
    }

    /// The process's id in its own PID namespace.
    #[must_use]
    pub fn namespace_pid(&self, pid: Pid) -> Option<Pid> {
        let status = self.text(pid, "status")?;
        let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        ids.split_whitespace().next_back()?.parse().ok().map(Pid)
    }

    /// A number of the process's status, by its key (`Seccomp:`).
    #[must_use]
    pub fn status_number(&self, pid: Pid, key: &str) -> Option<u32> {
        let status = self.text(pid, "status")?;
        status.lines().find_map(|line| line.strip_prefix(key))?.trim().parse().ok()
    }

    /// Whether the process has a descriptor that is a link to this.
    #[must_use]
    pub fn holds(&self, pid: Pid, target: &str) -> bool {
        let links = std::fs::read_dir(self.path(pid, "fd")).into_iter().flatten().take(FD_LIMIT).flatten();
        links.filter_map(|item| std::fs::read_link(item.path()).ok()).any(|link| link == Path::new(target))
    }

    /// The process's descriptors whose files' paths begin so, as paths that open those files, removed ones too.
    #[must_use]
    pub fn opened(&self, pid: Pid, prefix: &str) -> Vec<PathBuf> {
        let links = std::fs::read_dir(self.path(pid, "fd")).into_iter().flatten().take(FD_LIMIT).flatten();
        let begins = |path: &PathBuf| {
            std::fs::read_link(path)
                .is_ok_and(|link| link.as_os_str().as_encoded_bytes().starts_with(prefix.as_bytes()))
        };
        links.map(|item| item.path()).filter(begins).collect()
    }

    /// The process's open files that are called so, each with a path that opens it.
    #[must_use]
    pub fn opened_named(&self, pid: Pid, named: impl Fn(&str) -> bool) -> BTreeMap<PathBuf, PathBuf> {
        let links = std::fs::read_dir(self.path(pid, "fd")).into_iter().flatten().take(FD_LIMIT).flatten();
        let mut found = BTreeMap::new();
        for item in links.map(|item| item.path()) {
            let Ok(link) = std::fs::read_link(&item) else { continue };
            if link.file_name().and_then(OsStr::to_str).is_some_and(&named) {
                found.entry(link).or_insert(item);
            }
        }
        found
    }

    /// The process's sockets: descriptor and inode, in the order of descriptors.
    ///
    /// # Errors
    /// When its descriptors may not be listed (`PermissionDenied`), or it is gone.
    pub fn sockets(&self, pid: Pid) -> io::Result<Vec<(Fd, Inode)>> {
        let folder = self.path(pid, "fd");
        let mut sockets: Vec<_> = std::fs::read_dir(folder)?
            .take(FD_LIMIT)
            .filter_map(|item| {
                let item = item.ok()?;
                let fd = item.file_name().to_str()?.parse().ok()?;
                Some((Fd(fd), socket_inode(&std::fs::read_link(item.path()).ok()?)?))
            })
            .collect();
        sockets.sort_unstable();
        Ok(sockets)
    }

    /// The inode of one descriptor, if it is a socket.
    #[must_use]
    pub fn socket(&self, pid: Pid, fd: Fd) -> Option<Inode> {
        socket_inode(&self.link(pid, &format!("fd/{}", fd.0))?)
    }

    /// Files mapped into the process, each once, in order of path. At most `limit` bytes of the map are read.
    #[must_use]
    pub fn mapped_files(&self, pid: Pid, limit: u64) -> BTreeSet<PathBuf> {
        let bytes = self.read(pid, "maps", limit).unwrap_or_default();
        String::from_utf8_lossy(&bytes).lines().filter_map(mapped_file).map(PathBuf::from).collect()
    }
}

/// An environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environ(Vec<String>);

impl Environ {
    /// An environment of these lines (`NAME=value`).
    pub fn of<'a>(lines: impl IntoIterator<Item = &'a str>) -> Self {
        Self(lines.into_iter().map(str::to_owned).collect())
    }

    /// The value of a variable, if it is set and not empty.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        let value = self.0.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
        (!value.is_empty()).then_some(value)
    }
}

/// At most `limit` bytes of a file.
///
/// # Errors
/// As opening and reading do.
pub(crate) fn read_at_most(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The words of a NUL-separated list; the NULs that pad a title at its end are dropped.
fn words(bytes: &[u8]) -> Vec<String> {
    let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    match &bytes[..end] {
        [] => Vec::new(),
        text => {
            text.split(|&byte| byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
        }
    }
}

/// `socket:[123]` -> 123.
fn socket_inode(link: &Path) -> Option<Inode> {
    link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok().map(Inode)
}

/// The path of one line of `maps`, if a file is mapped there.
fn mapped_file(line: &str) -> Option<&str> {
    let path = &line[line.find('/')?..];
    Some(path.strip_suffix(" (deleted)").unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_split_and_its_padding_dropped() {
        assert_eq!(words(b"vllm\0serve\0--stop\0\0m\0\0\0"), ["vllm", "serve", "--stop", "", "m"]);
        assert_eq!(words(b"VLLM::EngineCore\0\0\0\0"), ["VLLM::EngineCore"]);
        assert!(words(b"").is_empty() && words(b"\0\0").is_empty());
    }

    #[test]
    fn only_sockets_have_inodes() {
        assert_eq!(socket_inode(Path::new("socket:[42]")), Some(Inode(42)));
        assert_eq!(socket_inode(Path::new("pipe:[42]")), None);
        assert_eq!(socket_inode(Path::new("/tmp/socket:[42]")), None);
    }

    #[test]
    fn a_mapped_file_is_taken_with_its_spaces_and_without_the_deleted_mark() {
        let line = "7f00-7f01 r-xp 00000000 fe:00 123    /a b/vllm/_C.abi3.so (deleted)";
        assert_eq!(mapped_file(line), Some("/a b/vllm/_C.abi3.so"));
        assert_eq!(mapped_file("7f00-7f01 rw-p 00000000 00:00 0    [heap]"), None);
    }

    #[test]
    fn an_environment_knows_only_whole_names() {
        let environ = Environ(words(b"HOMES=x\0HOME=/root\0EMPTY=\0"));
        assert_eq!(environ.get("HOME"), Some("/root"));
        assert_eq!((environ.get("HOM"), environ.get("EMPTY")), (None, None));
    }

    #[test]
    fn this_process_is_in_the_table() {
        let me = Pid(std::process::id());
        let table = Proc::system().table().unwrap();
        let entry = table.iter().find(|entry| entry.pid == me).unwrap();
        assert_eq!(Some(entry), Proc::system().entry(me).ok().as_ref());
        assert!(entry.started > 0 && !entry.argv.is_empty());
    }
}
