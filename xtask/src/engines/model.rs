//! Tiny models with random weights, made once for each file format.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::{lock, python};
use crate::{repo, say, shell};

/// Which major version of transformers writes the model's files: an engine reads what its own version writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// transformers 4.
    Transformers4,
    /// transformers 5.
    Transformers5,
}

impl Format {
    fn folder(self) -> &'static str {
        match self {
            Self::Transformers4 => "tiny-4",
            Self::Transformers5 => "tiny-5",
        }
    }
}

/// The model's folder; made with an engine's own Python when it is not there.
///
/// # Errors
/// When it cannot be made.
pub fn ensure(format: Format, venv: &Path) -> Result<PathBuf> {
    let models = repo::engines()?.join("models");
    let folder = models.join(format.folder());
    if folder.join("config.json").is_file() {
        return Ok(folder);
    }
    let _lock = lock::take()?;
    if folder.join("config.json").is_file() {
        return Ok(folder);
    }
    say::step("making a tiny model with random weights (half a minute, once)");
    let unfinished = models.join(format!("{}.part", format.folder()));
    if unfinished.is_dir() {
        std::fs::remove_dir_all(&unfinished)?;
    }
    shell::prepare(python::script(&venv.join("bin/python"), "tiny_model.py").arg(&unfinished))?;
    std::fs::rename(&unfinished, &folder)?;
    Ok(folder)
}
