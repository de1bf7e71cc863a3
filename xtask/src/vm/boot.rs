//! Booting a kernel, and reading what it says.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::report::{Line, Tests};
use crate::{repo, say};

/// Emulated, a boot takes some 15 seconds, and the tests some minutes.
const PATIENCE: Duration = Duration::from_secs(30 * 60);

/// Where the initramfs and the logs are.
pub fn folder() -> PathBuf {
    repo::target().join("vm")
}

/// Boots a kernel, runs the tests and gives their results.
///
/// # Errors
/// When qemu does not start or the machine's console cannot be read.
pub fn run(image: &Path, initramfs: &Path, name: &str) -> Result<Tests> {
    say::step(format!("booting Linux {name} (minutes: its processor is emulated)"));
    let log = folder().join(format!("{name}.log"));
    let mut log = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut machine = Machine(qemu(image, initramfs).spawn().context("cannot start qemu-system-x86_64")?);
    let console = machine.0.stdout.take().context("qemu has no console")?;
    let until = Instant::now() + PATIENCE;
    let mut tests = Tests::default();
    for line in BufReader::new(console).split(b'\n') {
        let line = line?;
        log.write_all(&line)?;
        log.write_all(b"\n")?;
        if let Some(line) = Line::parse(String::from_utf8_lossy(&line).trim_end()) {
            line.tell();
            tests.take(line);
        }
        if tests.over || Instant::now() > until {
            break;
        }
    }
    Ok(tests)
}

fn qemu(image: &Path, initramfs: &Path) -> Command {
    let mut command = Command::new("qemu-system-x86_64");
    // No KVM: nested in another virtual machine it is often there and does not work.
    command.args(["-accel", "tcg", "-cpu", "max", "-smp", "2", "-m", "2048"]);
    command.args(["-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot"]);
    command.arg("-kernel").arg(image).arg("-initrd").arg(initramfs);
    command.args(["-append", "console=ttyS0 quiet loglevel=3 panic=-1"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    command
}

/// Turned off when dropped.
struct Machine(Child);

impl Drop for Machine {
    fn drop(&mut self) {
        // It may be off already: both calls then do nothing.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
