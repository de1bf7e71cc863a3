//! One installation at a time: tests, demonstrations and people share the cache folder.

use std::fs::{File, TryLockError};

use anyhow::{Context, Result};

use crate::{repo, say};

/// Held while something is put into the cache folder; freed when dropped, or when the process ends.
#[derive(Debug)]
pub struct Lock(#[allow(dead_code, reason = "held for its drop")] File);

/// Waits for its turn.
///
/// # Errors
/// When the cache folder cannot be written.
pub fn take() -> Result<Lock> {
    let folder = repo::engines()?;
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let path = folder.join("lock");
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            say::detail(format!("another command installs into {}: waiting for it", folder.display()));
            file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
        }
        Err(TryLockError::Error(error)) => {
            return Err(error).with_context(|| format!("cannot lock {}", path.display()));
        }
    }
    Ok(Lock(file))
}
