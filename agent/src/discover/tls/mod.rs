//! Where the plain text of a server's TLS passes: the functions `SSL_read` and `SSL_write` in the library that it really
//! uses.

mod code;
pub(super) mod image;

use std::collections::BTreeSet;
use std::path::PathBuf;

use enginetap_common::record::Call;
use enginetap_core::ids::Pid;

use self::image::{Image, Site};
use super::proc::Proc;

/// Most bytes read of a process's map: a thousand libraries.
const MAPS_LIMIT: u64 = 4 * 1024 * 1024;

/// The functions looked for, and what they are in a record. CPython 3.10 and later calls the `_ex` forms only, earlier
/// ones the others (`Modules/_ssl.c`).
const FUNCTIONS: [(&str, Call); 5] = [
    ("SSL_read_ex", Call::SslReadEx),
    ("SSL_write_ex", Call::SslWriteEx),
    ("SSL_read", Call::SslRead),
    ("SSL_write", Call::SslWrite),
    (FREE, Call::SslFree),
];

const FREE: &str = "SSL_free";

/// A file that holds the functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// Its path, as the process sees it.
    pub path: PathBuf,
    /// Where this process finds the same file.
    pub file: PathBuf,
    /// The functions, with where to probe them.
    pub functions: Vec<Function>,
}

/// A function to be probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Which.
    pub call: Call,
    /// Where in the file its first instruction is.
    pub entry: u64,
    /// Where in the file it returns; of [`Call::SslFree`] nobody asks.
    pub returns: Vec<u64>,
}

/// A file mapped to be run.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mapped {
    path: PathBuf,
    file: PathBuf,
}

/// Looks for them in a process; more than one library where it cannot be told which is used.
///
/// # Errors
/// Why there is nothing to probe, in words.
pub fn find(proc: &Proc, pid: Pid) -> Result<Vec<Library>, String> {
    let maps = proc.read(pid, "maps", MAPS_LIMIT).unwrap_or_default();
    let mapped = mapped(proc, pid, &String::from_utf8_lossy(&maps));
    let mut reasons = BTreeSet::new();
    for Tier { files, takes } in tiers(&mapped) {
        let read: Vec<Library> = files
            .into_iter()
            .filter_map(|file| library(file, &takes).map_err(|reason| reasons.insert(reason)).ok())
            .collect();
        if !read.is_empty() {
            return Ok(read);
        }
    }
    if reasons.is_empty() {
        return Err("no TLS library is loaded".to_owned());
    }
    Err(reasons.into_iter().collect::<Vec<_>>().join("; "))
}

/// Files of which some may hold the functions, and those of them that are called (empty: not known).
struct Tier<'a> {
    files: Vec<&'a Mapped>,
    takes: BTreeSet<&'static str>,
}

/// Where to look, in this order: what Python's TLS module says that it needs, if it does not hold the functions itself;
/// whatever is called like OpenSSL's library; the interpreter, into which all may be built.
fn tiers(mapped: &[Mapped]) -> Vec<Tier<'_>> {
    let module = mapped.iter().find(|file| is_module(file.name()));
    let image = module.and_then(|file| file.image().ok()).unwrap_or_default();
    let all =
        |wanted: &dyn Fn(&Mapped) -> bool| mapped.iter().filter(|file| wanted(file)).collect::<Vec<_>>();
    let files = [
        if image.takes.is_empty() { module.into_iter().collect() } else { Vec::new() },
        all(&|file| is_library(file.name()) && image.needs.contains(file.name())),
        all(&|file| is_library(file.name())),
        // The program itself is mapped first.
        all(&|file| is_interpreter(file.name()) || Some(file) == mapped.first()),
    ];
    files.into_iter().map(|files| Tier { files, takes: image.takes.clone() }).collect()
}

/// What there is to probe in a file.
fn library(file: &Mapped, takes: &BTreeSet<&'static str>) -> Result<Library, String> {
    let shown = file.path.display();
    let image = file.image()?;
    let called = |name: &str| name == FREE || takes.is_empty() || takes.contains(name);
    let mut functions = Vec::new();
    for (name, call) in FUNCTIONS.into_iter().filter(|(name, _)| called(name)) {
        let Some(Site { entry, returns }) = image.defines.get(name) else { continue };
        let returns = match returns {
            _ if call == Call::SslFree => Vec::new(),
            Ok(returns) => returns.clone(),
            Err(error) => return Err(format!("{name} of {shown} cannot be probed: {error}")),
        };
        functions.push(Function { call, entry: *entry, returns });
    }
    let has = |of: [Call; 2]| functions.iter().any(|function| of.contains(&function.call));
    if !has([Call::SslRead, Call::SslReadEx]) || !has([Call::SslWrite, Call::SslWriteEx]) {
        return Err(format!(
            "{shown} names no SSL_read and SSL_write (it has none, or was stripped of its symbols)"
        ));
    }
    Ok(Library { path: file.path.clone(), file: file.file.clone(), functions })
}

impl Library {
    /// How many places are probed.
    #[must_use]
    pub fn probes(&self) -> usize {
        self.functions.iter().map(|function| 1 + function.returns.len()).sum()
    }

    /// The functions' names, for people.
    #[must_use]
    pub fn names(&self) -> String {
        let names =
            FUNCTIONS.iter().filter(|(_, call)| self.functions.iter().any(|function| function.call == *call));
        names.map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    }
}

impl Mapped {
    fn name(&self) -> &str {
        self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    fn image(&self) -> Result<Image, String> {
        Image::read(&self.file, &FUNCTIONS.map(|(name, _)| name)).map_err(|error| format!("{error:#}"))
    }
}

/// Python's module for TLS.
fn is_module(name: &str) -> bool {
    name.starts_with("_ssl.") && name.ends_with(".so")
}

fn is_library(name: &str) -> bool {
    name.starts_with("libssl")
}

fn is_interpreter(name: &str) -> bool {
    name.starts_with("libpython")
}

/// The files that a process has mapped to be run, each once, in the order of their addresses.
fn mapped(proc: &Proc, pid: Pid, maps: &str) -> Vec<Mapped> {
    let mut seen = BTreeSet::new();
    maps.lines()
        .filter_map(|line| {
            let (range, rest) = line.split_once(' ')?;
            let path = &rest[rest.find('/')?..];
            let gone = path.strip_suffix(" (deleted)");
            let path = gone.unwrap_or(path);
            if !rest.get(..4)?.contains('x') || !seen.insert(path.to_owned()) {
                return None;
            }
            // One that was replaced since is found by its mapping only.
            let file = match gone {
                Some(_) => proc.path(pid, "map_files").join(range),
                None => proc.path(pid, "root").join(path.trim_start_matches('/')),
            };
            Some(Mapped { path: PathBuf::from(path), file })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> Mapped {
        Mapped { path: path.into(), file: path.into() }
    }

    #[test]
    fn only_what_is_mapped_to_be_run_counts_and_a_replaced_file_is_found_by_its_mapping() {
        let maps = "\
            55d0-55d1 r--p 00000000 fe:00 12    /usr/bin/python3.11\n\
            55d1-55d2 r-xp 00001000 fe:00 12    /usr/bin/python3.11\n\
            7f00-7f01 r-xp 00000000 fe:00 13    /a b/libssl.so.3 (deleted)\n\
            7f01-7f02 r-xp 00001000 fe:00 12    /usr/bin/python3.11\n\
            7f03-7f04 r-xp 00000000 00:00 0     [vdso]\n";
        let proc = Proc::at("/p");
        assert_eq!(
            mapped(&proc, Pid(7), maps),
            [
                Mapped { path: "/usr/bin/python3.11".into(), file: "/p/7/root/usr/bin/python3.11".into() },
                Mapped { path: "/a b/libssl.so.3".into(), file: "/p/7/map_files/7f00-7f01".into() },
            ]
        );
    }

    #[test]
    fn a_process_without_tls_says_what_was_looked_at() {
        let files = [file("/nowhere/python3"), file("/nowhere/libc.so.6")];
        let tiers = tiers(&files);
        assert_eq!(tiers.last().unwrap().files, [&files[0]]);
        let error = library(&file("/proc/self/exe"), &BTreeSet::new()).unwrap_err();
        assert!(error.contains("names no SSL_read"), "{error}");
        assert!(library(&files[0], &BTreeSet::new()).unwrap_err().contains("cannot open /nowhere/python3"));
    }

    /// What is found in the Python that is installed here, while it is where the script ends.
    fn in_python(script: &str) -> Result<Vec<Library>, String> {
        let script = format!("import ssl, sys\n{script}\nprint('x', flush=True); sys.stdin.read()");
        let mut python = std::process::Command::new("python3")
            .args(["-c", &script])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0; 2];
        std::io::Read::read_exact(python.stdout.as_mut().unwrap(), &mut ready).unwrap();
        let found = find(&Proc::system(), Pid(python.id()));
        drop(python.stdin.take());
        python.wait().unwrap();
        found
    }

    #[test]
    fn this_machines_python_is_probed_at_the_functions_it_calls() {
        let found = in_python("");
        let [library] = found.as_deref().unwrap() else { panic!("{found:?}") };
        assert_eq!(library.names(), "SSL_read_ex, SSL_write_ex, SSL_free");
        for function in &library.functions {
            assert_eq!(function.returns.is_empty(), function.call == Call::SslFree, "{library:?}");
        }
    }

    /// Which of two of one name Python's module is bound to only its loader knows; one of another name it is not.
    #[test]
    fn of_several_libraries_in_a_process_those_of_the_name_that_python_needs_are_probed() {
        let folder = tempfile::tempdir().unwrap();
        let copies = ["libssl_other.so", "libssl.so.3"].map(|name| folder.path().join(name));
        let load = format!(
            "import ctypes, shutil\n\
             own = next(line.split()[-1] for line in open('/proc/self/maps') if '/libssl' in line)\n\
             for copy in {:?}, {:?}: ctypes.CDLL(shutil.copy(own, copy))",
            copies[0], copies[1]
        );
        let found = in_python(&load).unwrap();
        let paths: Vec<_> = found.iter().map(|library| library.path.as_path()).collect();
        assert_eq!(paths.len(), 2, "{paths:?}");
        assert!(paths.contains(&copies[1].as_path()) && !paths.contains(&copies[0].as_path()), "{paths:?}");
    }
}
