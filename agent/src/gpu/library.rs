//! Where NVML is found.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

pub use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

/// By the loader's own search, then where containers and distributions keep it.
const PLACES: [&str; 8] = [
    "libnvidia-ml.so.1",
    "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
    "/usr/lib/aarch64-linux-gnu/libnvidia-ml.so.1",
    "/usr/lib64/libnvidia-ml.so.1",
    "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
    "/home/kubernetes/bin/nvidia/lib64/libnvidia-ml.so.1",
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
    "/usr/lib/wsl/lib/libnvidia-ml.so.1",
];

/// Where NVML is to be looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// Where it usually is.
    #[default]
    Auto,
    /// Nowhere: GPUs are not read.
    None,
    /// In this file.
    At(PathBuf),
}

impl FromStr for Source {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "auto" => Self::Auto,
            "none" => Self::None,
            path => Self::At(PathBuf::from(path)),
        })
    }
}

/// Why there is no NVML.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Absent {
    /// No library: no driver is installed, or it is not shown to this container.
    #[error(
        "no GPU driver here (no libnvidia-ml.so.1; in a container let NVIDIA's runtime show it, or name it with --nvml)"
    )]
    NoLibrary,
    /// The library, but no driver in the kernel.
    #[error("NVML is here, and no NVIDIA driver is loaded")]
    NoDriver,
    /// The library that was named cannot be loaded.
    #[error("NVML cannot be loaded from {}: {why}", path.display())]
    Unloadable {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// NVML does not do what it is asked.
    #[error("NVML refuses: {0}")]
    Refused(String),
}

/// Loads NVML and begins to use it.
///
/// # Errors
/// Why there is none.
pub fn open(source: &Source) -> Result<Nvml, Absent> {
    match source {
        Source::None => Err(Absent::NoLibrary),
        Source::At(path) => load(path.as_os_str()).map_err(|error| of(error, Some(path))),
        Source::Auto => {
            let mut last = Absent::NoLibrary;
            for place in PLACES {
                match load(OsStr::new(place)).map_err(|error| of(error, None)) {
                    Ok(nvml) => return Ok(nvml),
                    Err(Absent::NoLibrary) => {}
                    Err(absent) => last = absent,
                }
            }
            Err(last)
        }
    }
}

fn load(path: &OsStr) -> Result<Nvml, NvmlError> {
    Nvml::builder().lib_path(path).init()
}

fn of(error: NvmlError, path: Option<&Path>) -> Absent {
    match (error, path) {
        (NvmlError::LibloadingError(why), Some(path)) => {
            Absent::Unloadable { path: path.to_owned(), why: why.to_string() }
        }
        (NvmlError::LibloadingError(_), None) => Absent::NoLibrary,
        (NvmlError::DriverNotLoaded, _) => Absent::NoDriver,
        (error, _) => Absent::Refused(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_auto_none_or_a_file() {
        for (text, wanted) in [
            ("auto", Source::Auto),
            ("none", Source::None),
            ("/opt/libnvidia-ml.so.1", Source::At("/opt/libnvidia-ml.so.1".into())),
        ] {
            assert_eq!(text.parse::<Source>(), Ok(wanted));
        }
    }

    #[test]
    fn a_file_that_is_no_library_is_said_with_its_path() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let absent = open(&Source::At(file.path().to_owned())).err().unwrap();
        assert!(matches!(&absent, Absent::Unloadable { path, .. } if path == file.path()), "{absent:?}");
        assert!(absent.to_string().contains(&file.path().display().to_string()), "{absent}");
    }
}
