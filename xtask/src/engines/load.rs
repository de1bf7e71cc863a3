//! The load generator (`xtask/engines/load.py`) in the foreground, or beside something else.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

use super::python;
use super::server::Server;
use crate::shell;

fn command(server: &Server, options: &[OsString]) -> Result<Command> {
    let mut command = python::script(&python::find()?.executable, "load.py");
    command.args(["--url", &server.url(), "--engine", &server.engine]).args(options);
    Ok(command)
}

/// Runs it with its output passed through.
///
/// # Errors
/// When a request got no answer or the server is not there.
pub fn foreground(server: &Server, options: &[OsString]) -> Result<()> {
    shell::run(&mut command(server, options)?)
}

/// Runs it to its end, quietly.
///
/// # Errors
/// As [`foreground`].
pub fn to_its_end(server: &Server, options: &[&str]) -> Result<()> {
    let options: Vec<OsString> =
        options.iter().map(OsString::from).chain([OsString::from("--quiet")]).collect();
    shell::capture(&mut command(server, &options)?).map(drop)
}

/// A generator beside something else; stopped when dropped.
#[derive(Debug)]
pub struct Background(Child);

impl Background {
    /// Starts it, its lines going to a file (or nowhere).
    ///
    /// # Errors
    /// When it cannot start.
    pub fn start(server: &Server, options: &[&str], lines: Option<&Path>) -> Result<Self> {
        let options: Vec<OsString> = options.iter().map(OsString::from).collect();
        let out = match lines {
            Some(path) => {
                File::create(path).with_context(|| format!("cannot write {}", path.display()))?.into()
            }
            None => Stdio::null(),
        };
        let child = command(server, &options)?.stdout(out).stderr(Stdio::null()).spawn();
        Ok(Self(child.context("cannot start the load generator")?))
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn wait(mut self) -> Result<()> {
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // It may have ended: both calls then do nothing.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
