//! Tells when a file may have changed. Its folder is watched, not the file: editors and Kubernetes put a new file (or a
//! new link) in the old one's place.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;

/// Changes closer together than this are one: a file is written in several calls.
const SETTLE: Duration = Duration::from_millis(100);

/// A folder that is watched.
#[derive(Debug)]
pub struct Watched {
    events: OwnedFd,
}

impl Watched {
    /// Watches the folder of a file.
    ///
    /// # Errors
    /// When the folder is not there, or may not be watched.
    pub fn new(file: &Path) -> Result<Self> {
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let events = inotify::init(CreateFlags::CLOEXEC).context("cannot watch files")?;
        let what = WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE
            | WatchFlags::CREATE
            | WatchFlags::ONLYDIR;
        inotify::add_watch(&events, folder, what)
            .with_context(|| format!("cannot watch {}", folder.display()))?;
        Ok(Self { events })
    }

    /// Waits, blocking the thread, until something in the folder changed, and a moment longer. Changes in that moment
    /// are told by the next call.
    ///
    /// # Errors
    /// When events cannot be read.
    pub fn changed(&self) -> Result<()> {
        let mut room = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.events, &mut room);
        loop {
            match reader.next().map(drop) {
                Ok(()) if reader.is_buffer_empty() => break,
                Ok(()) | Err(Errno::INTR) => {}
                Err(error) => return Err(error).context("cannot read what changed"),
            }
        }
        sleep(SETTLE);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_file_written_replaced_or_linked_anew_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        let watched = Watched::new(&file).unwrap();
        let (told, tellings) = channel();
        std::thread::spawn(move || while watched.changed().is_ok() && told.send(()).is_ok() {});
        // One change may be told several times, and the last one always is.
        let told = || {
            tellings.recv_timeout(Duration::from_secs(20)).unwrap();
            while tellings.recv_timeout(3 * SETTLE).is_ok() {}
        };
        std::fs::write(&file, "a").unwrap();
        told();
        std::fs::write(folder.path().join("new"), "b").unwrap();
        told();
        std::fs::rename(folder.path().join("new"), &file).unwrap();
        told();
        std::os::unix::fs::symlink("elsewhere", folder.path().join("..data")).unwrap();
        told();
    }

    #[test]
    fn a_folder_that_is_not_there_cannot_be_watched() {
        let error = Watched::new(Path::new("/no/such/folder/config.toml")).unwrap_err();
        assert!(error.to_string().contains("/no/such/folder"), "{error}");
    }
}
