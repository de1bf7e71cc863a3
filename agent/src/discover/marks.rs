//! Where the model's forwards begin: functions of the target's own libraries that run once a forward.
//!
//! A step that no message tells of (a chunk of a prefill, a step without output) is told by such a function. They are
//! found by symbol in the very files that the process has mapped, and attached to by file offset.

use std::io;
use std::path::{Path, PathBuf};

use enginetap_core::ids::Pid;
use object::ReadCache;

use super::package::MAPS_LIMIT;
use super::proc::Proc;
use super::symbols::{self, SymbolError};
use super::target::Root;

/// A function that marks forwards.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// How the file name of its library begins.
    pub library: &'static str,
    /// How its symbol begins.
    pub symbol: &'static str,
    /// What it is, and how far it was seen to work.
    pub what: &'static str,
}

/// Once a forward where the model runs operator by operator: the look-up of the tokens' embeddings. The dispatcher's entry
/// (`at::_ops::embedding::call`, `aten/src/ATen/Operators_*.cpp` of PyTorch 1.10 and later): its arguments, and so the rest of its
/// symbol, have changed over time.
const EAGER: [Function; 1] = [Function {
    library: "libtorch_cpu.so",
    symbol: "_ZN2at4_ops9embedding4call",
    what: "the look-up of embeddings, once a forward",
}];

/// Once a forward where a recorded CUDA graph is replayed: the runtime's launch, or where the runtime is linked into another
/// library, the driver's.
const GRAPHS: [Function; 2] = [
    Function {
        library: "libcudart.so",
        symbol: "cudaGraphLaunch",
        what: "the launch of a CUDA graph (not tested on a GPU)",
    },
    Function {
        library: "libcuda.so",
        symbol: "cuGraphLaunch",
        what: "the launch of a CUDA graph, the driver's (not tested on a GPU)",
    },
];

/// A function, found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its library, through the process's own root folder.
    pub file: PathBuf,
    /// Where in that file its code begins.
    pub offset: u64,
    /// Which it is.
    pub function: &'static Function,
}

/// Why forwards cannot be marked.
#[derive(Debug, thiserror::Error)]
pub enum MarkError {
    /// The library is not mapped (yet).
    #[error("process {} has not loaded {library}", pid.0)]
    NotLoaded {
        /// The process.
        pid: Pid,
        /// The library.
        library: &'static str,
    },
    /// It cannot be read.
    #[error("{}: {error}", file.display())]
    Unreadable {
        /// The library.
        file: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It lacks the function.
    #[error(transparent)]
    Symbol(#[from] SymbolError),
}

/// The functions of a process that mark its forwards: that of the eager path, and that of graphs where the process has
/// loaded CUDA.
///
/// # Errors
/// When the eager one is not there; a graph's is passed over where it is not.
pub fn find(proc: &Proc, pid: Pid) -> Result<Vec<Place>, MarkError> {
    let mapped = proc.mapped_files(pid, MAPS_LIMIT);
    let root =
        Root::of(proc, pid).map_err(|error| MarkError::Unreadable { file: proc.path(pid, "root"), error })?;
    let place = |function: &'static Function| {
        let path = mapped.iter().find(|path| is_of(path, function.library));
        let path = path.ok_or(MarkError::NotLoaded { pid, library: function.library })?;
        locate(proc, pid, &root, &root.inside(path), function)
    };
    let mut places = Vec::new();
    for function in &EAGER {
        places.push(place(function)?);
    }
    places.extend(GRAPHS.iter().find_map(|function| {
        place(function).inspect_err(|error| log::debug!("no marks of CUDA graphs: {error}")).ok()
    }));
    Ok(places)
}

/// `libcuda.so.1` is `libcuda.so`'s, `libcudart.so.12` is not.
fn is_of(path: &Path, library: &str) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(library))
}

fn locate(
    proc: &Proc,
    pid: Pid,
    root: &Root,
    path: &Path,
    function: &'static Function,
) -> Result<Place, MarkError> {
    // As the agent and the kernel open it; the target's own links cannot lead out of it, since the kernel printed
    // the path without any.
    let file = proc.path(pid, "root").join(path.strip_prefix("/").unwrap_or(path));
    let library = root.file(path).map_err(|error| MarkError::Unreadable { file: file.clone(), error })?;
    let symbol = function.symbol;
    match symbols::function(&ReadCache::new(library), symbol.as_bytes()) {
        Ok(Some(offset)) => Ok(Place { file, offset, function }),
        Ok(None) => Err(SymbolError::Absent { file, symbol }.into()),
        Err(error) => Err(SymbolError::NoElf { file, error }.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_told_by_their_names() {
        let of = |path: &str, library: &str| is_of(Path::new(path), library);
        assert!(of("/usr/lib/libcuda.so.1", "libcuda.so"));
        assert!(!of("/usr/lib/libcudart.so.12", "libcuda.so"));
        assert!(of("/opt/venv/lib/torch/lib/libtorch_cpu.so", EAGER[0].library));
    }

    #[test]
    fn a_process_without_the_library_says_so_and_names_it() {
        let error = find(&Proc::system(), Pid(std::process::id())).unwrap_err();
        assert!(matches!(error, MarkError::NotLoaded { library: "libtorch_cpu.so", .. }), "{error}");
    }
}
