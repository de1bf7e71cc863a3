//! Where a process's interpreter lies, and which one it is.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use enginetap_core::heap::check::Misfit;
use enginetap_core::heap::layout::{Field, HEAD_LEN, Layout, Told, Version};
use enginetap_core::heap::{Addr, Gone, Heap, Memory, Piece};
use enginetap_core::ids::Pid;
use object::read::{Object, ObjectSection, ObjectSegment, ObjectSymbol, ReadCache};
use procfs::FromRead;
use procfs::process::{MMapPath, MemoryMap, MemoryMaps};

use super::process::ProcessMemory;
use crate::discover::proc::Proc;

/// Most bytes of a memory map: a server has a few thousand lines.
const MAPS_LIMIT: u64 = 8 << 20;
/// Most bytes of a writable segment that is looked through.
const SEGMENT_LIMIT: u64 = 16 << 20;
/// Most bytes of a section that is looked through for a version.
const RODATA_LIMIT: u64 = 16 << 20;
/// Most places looked at in a segment.
const PLACES_LIMIT: usize = 1 << 18;

/// How the interpreter was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// By the symbol `_PyRuntime`.
    Symbol,
    /// By the section `.PyRuntime`.
    Section,
    /// By what stands in its writable memory.
    Scan,
}

/// Why the objects of a process are not read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// Nothing in the process is CPython.
    #[error("process {} runs no CPython that is known by its files", .0.0)]
    NoInterpreter(Pid),
    /// The kernel does not allow it.
    #[error("reading the memory of process {} is not permitted: enginetap needs CAP_SYS_PTRACE (and a seccomp profile that allows process_vm_readv)", .0.0)]
    Forbidden(Pid),
    /// The process ended.
    #[error("process {} has ended", .0.0)]
    Ended(Pid),
    /// A build without the GIL.
    #[error("process {} runs CPython {version} built without the GIL, whose objects are laid out in another way", .pid.0)]
    FreeThreaded {
        /// The process.
        pid: Pid,
        /// Its version.
        version: Version,
    },
    /// The layout is not the one that is known.
    #[error("the objects of process {} (CPython {version}) are not laid out as CPython {version}'s are known to be: {misfit}", .pid.0)]
    Layout {
        /// The process.
        pid: Pid,
        /// Its version.
        version: Version,
        /// What was not as it must be.
        misfit: Misfit,
    },
    /// A file could not be read.
    #[error("cannot read {}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// An interpreter that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpreter {
    /// The process.
    pub pid: Pid,
    /// The file it was loaded from, as the process names it.
    pub file: PathBuf,
    /// How it was found.
    pub how: How,
    /// Its layout.
    pub layout: Layout,
    /// Fields in which what it tells of itself is not what the table says.
    pub differed: Vec<Field>,
    /// Where `_PyRuntime` lies.
    pub runtime: Addr,
}

impl Interpreter {
    /// Finds the interpreter of a process, by each way there is.
    ///
    /// # Errors
    /// Says why its objects are not read.
    pub fn find(proc: &Proc, pid: Pid) -> Result<Self, Unreadable> {
        Self::find_by(proc, pid, &[How::Symbol, How::Section, How::Scan])
    }

    /// Finds the interpreter of a process, by these ways.
    ///
    /// # Errors
    /// Says why its objects are not read.
    pub fn find_by(proc: &Proc, pid: Pid, ways: &[How]) -> Result<Self, Unreadable> {
        let maps = maps(proc, pid)?;
        let exe = proc.link(pid, "exe");
        let files = candidates(&maps, exe.as_deref());
        for (path, map) in files {
            let Some(file) = open(proc, pid, &path, map) else { continue };
            let cache = ReadCache::new(file);
            let Ok(elf) = object::File::parse(&cache) else { continue };
            let Some(bias) = bias(&elf, map) else { continue };
            let image = Image { pid, path: &path, bias };
            if let Some(found) = image.find(&elf, ways)? {
                return Ok(found);
            }
        }
        Err(Unreadable::NoInterpreter(pid))
    }

    /// Its objects, after known ones were read and were what they must be.
    ///
    /// # Errors
    /// When they were not, or the process cannot be read.
    pub fn open(&self) -> Result<Heap<ProcessMemory>, Unreadable> {
        let mut heap = Heap::new(ProcessMemory::new(self.pid), self.layout.clone(), self.runtime);
        // A busy interpreter moves what is walked: one bad look is no proof.
        let checked = (0..3).map(|_| heap.check()).find_map(Result::ok);
        if checked.is_some() {
            return Ok(heap);
        }
        let misfit = heap.check();
        match (heap.gone(), misfit) {
            (Some(gone), _) => Err(cannot(self.pid, gone)),
            (None, Ok(())) => Ok(heap),
            (None, Err(misfit)) => {
                Err(Unreadable::Layout { pid: self.pid, version: self.layout.version, misfit })
            }
        }
    }
}

impl fmt::Display for Interpreter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CPython {} of process {} in {}", self.layout.version, self.pid.0, self.file.display())
    }
}

fn cannot(pid: Pid, gone: Gone) -> Unreadable {
    match gone {
        Gone::Ended => Unreadable::Ended(pid),
        Gone::Forbidden | Gone::Unsupported => Unreadable::Forbidden(pid),
    }
}

fn maps(proc: &Proc, pid: Pid) -> Result<MemoryMaps, Unreadable> {
    let path = proc.path(pid, "maps");
    let failed = |source: io::Error| {
        if source.kind() == io::ErrorKind::NotFound {
            Unreadable::Ended(pid)
        } else if source.kind() == io::ErrorKind::PermissionDenied {
            Unreadable::Forbidden(pid)
        } else {
            Unreadable::File { path: path.clone(), source }
        }
    };
    let bytes = proc.read(pid, "maps", MAPS_LIMIT).map_err(failed)?;
    MemoryMaps::from_read(bytes.as_slice()).map_err(|error| failed(io::Error::other(error)))
}

/// Mapped files that may be the interpreter, each with its first mapping: a shared library of it, else the program.
fn candidates<'a>(maps: &'a MemoryMaps, exe: Option<&Path>) -> Vec<(PathBuf, &'a MemoryMap)> {
    let mut found: Vec<(PathBuf, &MemoryMap)> = Vec::new();
    for map in maps {
        let MMapPath::Path(path) = &map.pathname else { continue };
        if !found.iter().any(|(known, _)| known == path) {
            found.push((path.clone(), map));
        }
    }
    let library =
        |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libpython3"));
    let program = |path: &Path| Some(path) == exe;
    found.retain(|(path, _)| library(path) || program(path));
    found.sort_by_key(|(path, _)| !library(path));
    found
}

/// Opens a file as the process has it mapped: in its own tree of files, or, where another lies there by now, by the
/// mapping itself.
fn open(proc: &Proc, pid: Pid, path: &Path, map: &MemoryMap) -> Option<File> {
    let shown = path.to_string_lossy();
    let named = shown.strip_suffix(" (deleted)").unwrap_or(&shown);
    let in_tree = proc.path(pid, "root").join(named.trim_start_matches('/'));
    let same = |file: &File| file.metadata().is_ok_and(|metadata| metadata.ino() == map.inode);
    if let Some(file) = File::open(in_tree).ok().filter(same) {
        return Some(file);
    }
    let (start, end) = map.address;
    let mapping = File::open(proc.path(pid, &format!("map_files/{start:x}-{end:x}"))).ok();
    mapping.or_else(|| File::open(proc.path(pid, "exe")).ok().filter(same))
}

/// What is to be added to the file's addresses: where its first mapping lies, less where it would.
fn bias(elf: &Elf<'_>, first: &MemoryMap) -> Option<u64> {
    const PAGE: u64 = !0xfff;
    elf.segments().find_map(|segment| {
        let (offset, len) = segment.file_range();
        let page = offset & PAGE;
        let holds = page <= first.offset && first.offset < offset + len.max(1);
        let linked = (segment.address() & PAGE).wrapping_add(first.offset.wrapping_sub(page));
        holds.then(|| first.address.0.wrapping_sub(linked))
    })
}

/// A file that is mapped, and by how much its addresses are moved.
struct Image<'a> {
    pid: Pid,
    path: &'a Path,
    bias: u64,
}

type Elf<'a> = object::File<'a, &'a ReadCache<File>>;

impl Image<'_> {
    fn find(&self, elf: &Elf<'_>, ways: &[How]) -> Result<Option<Interpreter>, Unreadable> {
        let Some(version) = self.version(elf)? else { return Ok(None) };
        let layout = Layout::of(version);
        for how in ways {
            let at = match how {
                How::Symbol => symbol(elf, "_PyRuntime").map(|at| self.at(at)),
                How::Section => elf.section_by_name(".PyRuntime").map(|section| self.at(section.address())),
                How::Scan => self.scan(elf, &layout)?,
            };
            if let Some(runtime) = at {
                return self.told(*how, layout, runtime).map(Some);
            }
        }
        Ok(None)
    }

    fn at(&self, linked: u64) -> Addr {
        Addr(linked.wrapping_add(self.bias))
    }

    /// The interpreter, with what it tells of itself from 3.13 on.
    fn told(&self, how: How, mut layout: Layout, runtime: Addr) -> Result<Interpreter, Unreadable> {
        let (pid, mut differed) = (self.pid, Vec::new());
        if layout.version.minor >= 13
            && let Some(told) = Told::read(&self.read(runtime, HEAD_LEN)?)
        {
            if told.free_threaded {
                return Err(Unreadable::FreeThreaded { pid, version: told.version });
            }
            differed = layout.overlay(&told);
        }
        Ok(Interpreter { pid, file: self.path.to_owned(), how, layout, differed, runtime })
    }

    /// From the symbol `Py_Version` (3.11 on), else the file's name, else a text in its read-only data.
    fn version(&self, elf: &Elf<'_>) -> Result<Option<Version>, Unreadable> {
        if let Some(at) = symbol(elf, "Py_Version") {
            let bytes = self.read(self.at(at), 8)?;
            return Ok(bytes.first_chunk::<8>().map(|bytes| Version::of_hex(u64::from_le_bytes(*bytes))));
        }
        let name = self.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if let Some(version) = name.split_once("python3.").and_then(|(_, rest)| minor(rest.as_bytes())) {
            return Ok(Some(version));
        }
        let section = elf.section_by_name(".rodata").filter(|section| section.size() <= RODATA_LIMIT);
        Ok(section.and_then(|section| version_in(section.data().ok()?)))
    }

    /// Looks through the writable segment.
    fn scan(&self, elf: &Elf<'_>, layout: &Layout) -> Result<Option<Addr>, Unreadable> {
        for segment in elf.segments() {
            if !writable(&segment) || segment.size() > SEGMENT_LIMIT {
                continue;
            }
            let len = usize::try_from(segment.size() & !7).unwrap_or(0);
            let start = self.at(segment.address());
            let Ok(bytes) = self.read(start, len) else { continue };
            let mut heap = Heap::new(ProcessMemory::new(self.pid), layout.clone(), start);
            if let Some(found) = heap.scan(start, &bytes, PLACES_LIMIT) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn read(&self, at: Addr, len: usize) -> Result<Vec<u8>, Unreadable> {
        let mut bytes = vec![0; len];
        let mut read = [false];
        let done = ProcessMemory::new(self.pid).read(&[Piece { at, len }], &mut bytes, &mut read);
        done.map_err(|gone| cannot(self.pid, gone))?;
        if read == [true] { Ok(bytes) } else { Ok(Vec::new()) }
    }
}

fn symbol(elf: &Elf<'_>, name: &str) -> Option<u64> {
    let mut symbols = elf.dynamic_symbols().chain(elf.symbols());
    let found = symbols.find(|symbol| symbol.address() != 0 && symbol.name_bytes() == Ok(name.as_bytes()));
    found.map(|symbol| symbol.address())
}

fn writable<'a>(segment: &object::Segment<'a, '_, &'a ReadCache<File>>) -> bool {
    matches!(segment.flags(), object::SegmentFlags::Elf { p_flags } if p_flags & object::elf::PF_W != 0)
}

/// `11...` is 3.11.
fn minor(digits: &[u8]) -> Option<Version> {
    let digits: Vec<u8> = digits.iter().copied().take_while(u8::is_ascii_digit).take(3).collect();
    let minor = std::str::from_utf8(&digits).ok()?.parse().ok()?;
    Some(Version { major: 3, minor })
}

/// The first text like `3.10.13` that stands alone.
fn version_in(bytes: &[u8]) -> Option<Version> {
    let texts = bytes.split(|byte| *byte == 0).filter(|text| text.len() <= 10);
    let mut versions = texts.filter_map(|text| {
        let rest = text.strip_prefix(b"3.")?;
        let dot = rest.iter().position(|byte| *byte == b'.')?;
        let numbers = rest[..dot].iter().chain(&rest[dot + 1..]).all(u8::is_ascii_digit);
        (numbers && dot > 0 && dot + 1 < rest.len()).then(|| minor(rest)).flatten()
    });
    versions.find(|version| version.minor >= 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_from_a_name_or_a_text() {
        assert_eq!(minor(b"11.so.1.0"), Some(Version { major: 3, minor: 11 }));
        assert_eq!(minor(b""), None);
        let bytes = b"\x00 3.10.13 \x003.1\x003.10.x\x003.10.13\x00";
        assert_eq!(version_in(bytes), Some(Version { major: 3, minor: 10 }));
        assert_eq!(version_in(b"\x00no version\x00"), None);
    }

    #[test]
    fn a_process_without_an_interpreter_is_told_so() {
        let error = Interpreter::find(&Proc::system(), Pid(std::process::id())).unwrap_err();
        assert!(matches!(error, Unreadable::NoInterpreter(_)), "{error}");
    }
}
