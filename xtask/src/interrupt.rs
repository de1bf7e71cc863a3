//! Ctrl-C and SIGTERM as a flag, so that what was started is stopped before the task ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};

/// Whether the user wants to stop. From the first `watch` on, the signals no longer end the process by themselves.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Begins to watch.
    ///
    /// # Errors
    /// When the handlers cannot be set.
    pub fn watch() -> Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&flag)).context("cannot watch for Ctrl-C")?;
        }
        Ok(Self(flag))
    }

    /// Whether a signal has come.
    pub fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
