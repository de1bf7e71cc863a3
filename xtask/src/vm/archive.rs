//! The archive a kernel boots from: cpio in the "newc" format (see the kernel's `buffer-format.rst`).

use std::collections::BTreeSet;
use std::io::{Result, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

const FOLDER: u32 = 0o040_755;
const LINK: u32 = 0o120_777;
const FILE: u32 = 0o100_000;

/// Writes an archive. Folders come by themselves.
pub struct Archive<W> {
    out: W,
    known: BTreeSet<String>,
    next: u32,
}

impl<W: Write> Archive<W> {
    /// An empty one.
    pub fn new(out: W) -> Self {
        Self { out, known: BTreeSet::new(), next: 1 }
    }

    /// Adds a folder; nothing when it is there.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn folder(&mut self, path: &str) -> Result<()> {
        let path = path.trim_matches('/');
        if path.is_empty() || self.known.contains(path) {
            return Ok(());
        }
        self.parent(path)?;
        self.entry(path, FOLDER, b"")
    }

    /// Adds a file; nothing when it is there. `mode`: its permissions.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn file(&mut self, path: &str, mode: u32, content: &[u8]) -> Result<()> {
        self.leaf(path, FILE | mode & 0o777, content)
    }

    /// Adds a symbolic link.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn link(&mut self, path: &str, to: &str) -> Result<()> {
        self.leaf(path, LINK, to.as_bytes())
    }

    /// Adds a file of this machine, at the same path or another; links are followed.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub fn copy(&mut self, from: &Path, path: &str) -> Result<()> {
        self.file(path, std::fs::metadata(from)?.mode(), &std::fs::read(from)?)
    }

    /// Ends the archive and gives back what it was written to.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn end(mut self) -> Result<W> {
        self.entry("TRAILER!!!", 0, b"")?;
        Ok(self.out)
    }

    fn leaf(&mut self, path: &str, mode: u32, content: &[u8]) -> Result<()> {
        let path = path.trim_matches('/');
        if self.known.contains(path) {
            return Ok(());
        }
        self.parent(path)?;
        self.entry(path, mode, content)
    }

    fn parent(&mut self, path: &str) -> Result<()> {
        path.rsplit_once('/').map_or(Ok(()), |(parent, _)| self.folder(parent))
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) -> Result<()> {
        self.known.insert(path.to_owned());
        let (number, links) = (self.next, 1 + u32::from(mode == FOLDER));
        self.next += 1;
        let fields = [number, mode, 0, 0, links, 0, len(content.len())?, 0, 0, 0, 0, len(path.len() + 1)?, 0];
        write!(self.out, "070701")?;
        for field in fields {
            write!(self.out, "{field:08x}")?;
        }
        self.out.write_all(path.as_bytes())?;
        self.out.write_all(&[0])?;
        // Names and contents begin at multiples of four; a head is 110 bytes.
        self.pad(110 + path.len() + 1)?;
        self.out.write_all(content)?;
        self.pad(content.len())
    }

    fn pad(&mut self, after: usize) -> Result<()> {
        self.out.write_all(&[0; 3][..after.next_multiple_of(4) - after])
    }
}

fn len(len: usize) -> Result<u32> {
    u32::try_from(len).map_err(std::io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_its_head_name_and_content_each_at_a_multiple_of_four() {
        let mut archive = Archive::new(Vec::new());
        archive.file("a/b", 0o755, b"hello").unwrap();
        let bytes = archive.end().unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let file = text.find("a/b\0").unwrap() - 110;
        assert!(text[file..].starts_with("07070100000002000081ed"));
        assert_eq!(file % 4, 0);
        assert_eq!((text.find("hello").unwrap() - file) % 4, 0);
        assert!(text.starts_with("07070100000001000041ed") && text.contains("TRAILER!!!\0"));
    }

    #[test]
    fn a_folder_stands_once_and_before_what_is_in_it() {
        let mut archive = Archive::new(Vec::new());
        archive.link("/x/y/l", "z").unwrap();
        archive.folder("x/y").unwrap();
        archive.file("x/y/f", 0o644, b"").unwrap();
        assert_eq!(archive.known.iter().collect::<Vec<_>>(), ["x", "x/y", "x/y/f", "x/y/l"]);
        assert_eq!(archive.next, 5);
    }
}
