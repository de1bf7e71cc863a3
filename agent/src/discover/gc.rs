//! Where an interpreter collects garbage: its collector's first instruction and its `ret`s, by the symbol that its file names.

use std::path::{Path, PathBuf};

use enginetap_core::ids::Pid;

use super::package::MAPS_LIMIT;
use super::proc::Proc;
use super::tls::image::Image;

/// The collector, by the names that compilers leave it: a function of CPython's own (`Modules/gcmodule.c` of 3.9 to 3.12,
/// `Python/gc.c` of 3.13), so it is named only in files that were not stripped; exported since 3.13.
const NAMES: [&str; 5] = [
    "gc_collect_main",
    "gc_collect_main.lto_priv.0",
    "gc_collect_main.constprop.0",
    "gc_collect_main.isra.0",
    "_PyGC_Collect",
];

/// A collector to be timed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    /// Its file, as the process sees it.
    pub path: PathBuf,
    /// Where the agent finds the same file.
    pub file: PathBuf,
    /// What it is called there.
    pub name: &'static str,
    /// Where in the file its first instruction is.
    pub entry: u64,
    /// Where in the file it returns.
    pub returns: Vec<u64>,
}

impl Collector {
    /// How many places are probed.
    #[must_use]
    pub fn probes(&self) -> usize {
        1 + self.returns.len()
    }
}

/// Looks for it in a process: in its libpython, or else in the program itself.
///
/// # Errors
/// Why it cannot be timed, in words.
pub fn find(proc: &Proc, pid: Pid) -> Result<Collector, String> {
    let mapped = proc.mapped_files(pid, MAPS_LIMIT);
    let library = mapped.iter().find(|path| is_interpreter(path)).cloned();
    let path = library.or_else(|| proc.link(pid, "exe"));
    let path = path.ok_or_else(|| format!("the program of process {} cannot be found", pid.0))?;
    let file = proc.path(pid, "root").join(path.strip_prefix("/").unwrap_or(&path));
    let image = Image::read(&file, &NAMES).map_err(|error| format!("{error:#}"))?;
    let found = NAMES.iter().find_map(|name| Some((*name, image.defines.get(name)?)));
    let Some((name, site)) = found else {
        return Err(format!("{} names no collector: it was stripped of its symbols", path.display()));
    };
    let returns = site.returns.clone().map_err(|error| format!("{name} of {}: {error}", path.display()))?;
    Ok(Collector { entry: site.entry, returns, name, path, file })
}

/// `libpython3.11.so.1.0`.
fn is_interpreter(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("libpython3."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_no_python_names_no_collector() {
        let error = find(&Proc::system(), Pid(std::process::id())).unwrap_err();
        assert!(error.contains("names no collector"), "{error}");
        assert!(find(&Proc::system(), Pid(u32::MAX)).is_err());
    }
}
