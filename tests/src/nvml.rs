//! A library that stands in for NVML: the real symbols, answers by a script.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

/// The library's source.
const SOURCE: &str = include_str!("../stand_ins/nvml.c");

/// Two GPUs that tell everything there is.
pub const TWO: &str = "\
driver - 570.86.15
count - 2
uuid 0 GPU-11111111-aaaa-bbbb-cccc-000000000000
name 0 NVIDIA H100 80GB HBM3
busy 0 97
memory_busy 0 41
encoder 0 0
decoder 0 3
memory 0 85520809984 614203392 20000000000 64906606592
power 0 698500
power_limit 0 700000
energy 0 12345678
temperature 0 71
clock_graphics 0 1980
clock_sm 0 1965
clock_memory 0 2619
clock_video 0 1500
throttles 0 0x4
pcie_sent 0 250
pcie_received 0 1200
nvlink_sent 0 4096
nvlink_received 0 8192
ecc_corrected 0 3
ecc_uncorrected 0 0
mig 0 0
process 0 4242 60000000000
process 0 4243
mps 0 4244 1000
sample 0 4242 1000 20
sample 0 4242 2000 90
uuid 1 GPU-22222222-aaaa-bbbb-cccc-000000000000
name 1 NVIDIA H100 80GB HBM3
temperature 1 33
";

/// The library, and its script.
pub struct StandIn {
    folder: TempDir,
}

impl StandIn {
    /// Builds it, with this script.
    ///
    /// # Errors
    /// When there is no C compiler.
    pub fn build(script: &str) -> Result<Self> {
        let stand_in = Self { folder: tempfile::tempdir()? };
        stand_in.say(script)?;
        let source = stand_in.folder.path().join("nvml.c");
        std::fs::write(&source, SOURCE)?;
        let built = Command::new("cc")
            .args(["-O1", "-Wall", "-Werror", "-shared", "-fPIC"])
            .arg(format!("-DSCRIPT=\"{}\"", stand_in.script().display()))
            .arg("-o")
            .arg(stand_in.library())
            .arg(source)
            .output()
            .context("no C compiler (cc)")?;
        ensure!(built.status.success(), "cc: {}", String::from_utf8_lossy(&built.stderr));
        Ok(stand_in)
    }

    /// Where the library is.
    #[must_use]
    pub fn library(&self) -> PathBuf {
        self.folder.path().join("libnvidia-ml.so.1")
    }

    fn script(&self) -> PathBuf {
        self.folder.path().join("script")
    }

    /// What it answers from now on.
    ///
    /// # Errors
    /// When the script cannot be written.
    pub fn say(&self, script: &str) -> Result<()> {
        // At once: the library reads it at any moment.
        let new = self.folder.path().join("new");
        std::fs::write(&new, script)?;
        Ok(std::fs::rename(new, self.script())?)
    }
}
