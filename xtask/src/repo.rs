//! Where things are: the repository, the build folder, the cache.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

/// The repository's root: the parent of this package's folder.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// Cargo's build folder.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Where engines, models and their logs are kept, outside the repository: `$ENGINETAP_ENGINES`, else
/// `$XDG_CACHE_HOME/enginetap/engines`, else `~/.cache/enginetap/engines`.
///
/// # Errors
/// When none of the variables nor HOME is set.
pub fn engines() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os("ENGINETAP_ENGINES") {
        return Ok(PathBuf::from(folder));
    }
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")))
        .context("neither ENGINETAP_ENGINES nor HOME is set: say where engines may be kept")?;
    Ok(cache.join("enginetap/engines"))
}

/// Cargo of the workspace's toolchain, run at the root.
pub fn cargo() -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(root());
    command
}

/// Whether this runs as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The captures of a folder (`.cap`, `.cap.gz`), in no order; empty where there is none.
pub fn captures(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| capture_name(path).is_some()).collect()
}

/// A capture's name without its ending.
pub fn capture_name(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?;
    name.strip_suffix(".gz").unwrap_or(name).strip_suffix(".cap")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_is_known_by_its_ending_compressed_or_not() {
        assert_eq!(capture_name(Path::new("a/vllm-0.32.0.cap.gz")), Some("vllm-0.32.0"));
        assert_eq!(capture_name(Path::new("demo.cap")), Some("demo"));
        assert_eq!(capture_name(Path::new("vllm-0.32.0.metrics.txt")), None);
        assert!(captures(Path::new("/no/such/folder")).is_empty());
    }
}
