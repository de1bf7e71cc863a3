//! Files as a target process sees them: in its container or chroot, never outside of it.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use enginetap_core::ids::Pid;
use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags};

use super::proc::Proc;

/// Most entries listed of one folder.
const LIST_LIMIT: usize = 100_000;

/// The root folder of a process. Every path is looked up inside it, symbolic links too: one that points
/// to `/etc` means the target's `/etc`, whatever the target put there.
#[derive(Debug)]
pub struct Root {
    folder: OwnedFd,
    /// Where the folder lies as the kernel prints paths of the target; `/` in a container.
    prefix: PathBuf,
}

impl Root {
    /// The root folder of a process.
    ///
    /// # Errors
    /// When it may not be entered (`CAP_SYS_PTRACE`), or the process is gone.
    pub fn of(proc: &Proc, pid: Pid) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(proc.path(pid, "root"), flags, Mode::empty())?;
        let prefix = proc.link(pid, "root").unwrap_or_else(|| PathBuf::from("/"));
        Ok(Self { folder, prefix })
    }

    /// A path that the kernel printed (of a map, of `cwd` or `exe`) as the target itself names it.
    #[must_use]
    pub fn inside(&self, printed: &Path) -> PathBuf {
        match printed.strip_prefix(&self.prefix) {
            Ok(rest) => Path::new("/").join(rest),
            Err(_) => printed.to_path_buf(),
        }
    }

    /// At most `limit` bytes of a regular file.
    ///
    /// # Errors
    /// As opening and reading do; `InvalidInput` when it is no regular file.
    pub fn read(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.file(path)?.take(limit).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// A regular file, to be read.
    ///
    /// # Errors
    /// As opening does; `InvalidInput` when it is no regular file.
    pub fn file(&self, path: &Path) -> io::Result<File> {
        let file = self.open(path, OFlags::RDONLY | OFlags::NONBLOCK)?;
        if FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) != FileType::RegularFile {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(File::from(file))
    }

    /// The same as text, bad UTF-8 replaced; `None` when it cannot be read.
    #[must_use]
    pub fn text(&self, path: &Path, limit: u64) -> Option<String> {
        self.read(path, limit).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Names of a folder's entries in order; empty when there is no such folder.
    #[must_use]
    pub fn list(&self, path: &Path) -> Vec<String> {
        let Ok(folder) = self.open(path, OFlags::RDONLY | OFlags::DIRECTORY) else { return Vec::new() };
        let Ok(entries) = Dir::new(folder) else { return Vec::new() };
        let names = entries
            .take(LIST_LIMIT)
            .filter_map(|entry| Some(entry.ok()?.file_name().to_str().ok()?.to_owned()));
        let mut names: Vec<String> = names.filter(|name| name != "." && name != "..").collect();
        names.sort_unstable();
        names
    }

    /// Whether there is a regular file.
    #[must_use]
    pub fn has_file(&self, path: &Path) -> bool {
        self.kind(path) == Some(FileType::RegularFile)
    }

    /// Whether there is a folder.
    #[must_use]
    pub fn has_folder(&self, path: &Path) -> bool {
        self.kind(path) == Some(FileType::Directory)
    }

    fn kind(&self, path: &Path) -> Option<FileType> {
        let file = self.open(path, OFlags::PATH).ok()?;
        Some(FileType::from_raw_mode(rustix::fs::fstat(file).ok()?.st_mode))
    }

    fn open(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        Ok(rustix::fs::openat2(
            &self.folder,
            path,
            flags | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::IN_ROOT,
        )?)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A laid-out `/proc/7` whose root is a folder `tree`.
    fn laid_out() -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().join("tree");
        std::fs::create_dir_all(tree.join("etc")).unwrap();
        std::fs::create_dir_all(folder.path().join("7")).unwrap();
        symlink(&tree, folder.path().join("7/root")).unwrap();
        let root = Root::of(&Proc::at(folder.path()), Pid(7)).unwrap();
        (folder, root)
    }

    #[test]
    fn links_lead_nowhere_outside_the_root() {
        let (folder, root) = laid_out();
        std::fs::write(folder.path().join("tree/etc/name"), "inside").unwrap();
        std::fs::write(folder.path().join("secret"), "outside").unwrap();
        symlink("/etc/name", folder.path().join("tree/absolute")).unwrap();
        symlink("../../../secret", folder.path().join("tree/upward")).unwrap();
        assert_eq!(root.text(Path::new("/absolute"), 100).as_deref(), Some("inside"));
        assert_eq!(root.text(Path::new("/upward"), 100), None);
        assert_eq!(root.text(Path::new("/../secret"), 100), None);
    }

    #[test]
    fn only_regular_files_are_read_and_no_more_than_the_limit() {
        let (folder, root) = laid_out();
        std::fs::write(folder.path().join("tree/long"), "abcdef").unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            folder.path().join("tree/pipe"),
            FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .unwrap();
        assert_eq!(root.read(Path::new("/long"), 3).unwrap(), b"abc");
        assert_eq!(root.read(Path::new("/pipe"), 3).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert!(root.read(Path::new("/etc"), 3).is_err());
        assert!(root.has_file(Path::new("/long")) && root.has_folder(Path::new("etc")));
        assert!(!root.has_file(Path::new("/pipe")) && !root.has_file(Path::new("/none")));
        assert_eq!(root.list(Path::new("/")), ["etc", "long", "pipe"]);
    }

    #[test]
    fn printed_paths_of_a_chroot_lose_its_place() {
        let (folder, root) = laid_out();
        let printed = folder.path().join("tree/usr/lib/a.so");
        assert_eq!(root.inside(&printed), Path::new("/usr/lib/a.so"));
        assert_eq!(root.inside(Path::new("/opt/a.so")), Path::new("/opt/a.so"));
    }
}
