//! A collector that takes whatever comes.

use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

use crate::engines::{client, python};

/// Takes the engine's spans and drops them; ended when dropped.
#[derive(Debug)]
pub struct Collector {
    child: Child,
    port: u16,
}

impl Collector {
    /// Starts it on a free port.
    ///
    /// # Errors
    /// When it cannot start.
    pub fn start() -> Result<Self> {
        let port = client::free_port()?;
        let mut command: Command = python::script(&python::find()?.executable, "null_collector.py");
        let child = command.arg(port.to_string()).stdout(Stdio::null()).spawn();
        Ok(Self { child: child.context("cannot start the collector")?, port })
    }

    /// Where an engine sends its spans.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}/v1/traces", self.port)
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        // It may have ended: both calls then do nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
