//! Installing an SGLang version into its own environment: PyPI's wheels pinned line by line, without CUDA's.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::quirks::{self, Quirks, Vllm};
use crate::engines::{lock, python};
use crate::{repo, say, shell};

/// Changes when an environment made by an older version of this file must be made again.
const RECIPE: &str = "1";

/// The Python whose wheels the pinned lists name.
const PYTHON: (u32, u32) = (3, 11);

fn folder() -> Result<PathBuf> {
    Ok(repo::engines()?.join("sglang"))
}

/// The scripts, lists and stand-ins of this engine.
fn sources() -> PathBuf {
    repo::root().join("xtask/engines/sglang")
}

fn marker(venv: &Path) -> PathBuf {
    venv.join("enginetap-recipe")
}

/// An environment is ready if it was made by this recipe from these lines.
fn is_ready(venv: &Path, requirements: &str) -> bool {
    let recipe = std::fs::read_to_string(marker(venv)).unwrap_or_default();
    recipe == marked(requirements)
}

fn marked(requirements: &str) -> String {
    format!("{RECIPE}\n{requirements}")
}

/// Versions that are installed, with their environments.
///
/// # Errors
/// When the cache folder is not known.
pub fn installed() -> Result<Vec<(String, PathBuf)>> {
    let Ok(entries) = std::fs::read_dir(folder()?) else { return Ok(Vec::new()) };
    let venvs = entries.flatten().map(|entry| entry.path()).filter(|venv| marker(venv).is_file());
    let mut found: Vec<_> =
        venvs.filter_map(|venv| Some((venv.file_name()?.to_str()?.to_owned(), venv.clone()))).collect();
    found.sort();
    Ok(found)
}

/// Installs a version unless it is there; gives its environment.
///
/// # Errors
/// When PyPI has no such version or the installation fails.
pub fn ensure(version: &str) -> Result<PathBuf> {
    let quirks = quirks::of(version)?;
    let requirements = requirements(version, &quirks)?;
    let venv = folder()?.join(version);
    if is_ready(&venv, &requirements) {
        return Ok(venv);
    }
    let _lock = lock::take()?;
    // Another command may have installed it meanwhile.
    if !is_ready(&venv, &requirements) {
        install(version, &quirks, &venv, &requirements)
            .with_context(|| format!("SGLang {version} could not be installed"))?;
        std::fs::write(marker(&venv), marked(&requirements))?;
    }
    Ok(venv)
}

fn install(version: &str, quirks: &Quirks, venv: &Path, requirements: &str) -> Result<()> {
    let uv = python::uv()?;
    let python = python::find()?;
    if python.version != PYTHON {
        bail!("the pinned wheels are Python {}.{}'s: put `python3.11` on PATH", PYTHON.0, PYTHON.1);
    }
    say::step(format!(
        "installing SGLang {version} into {} (about 1 GB of downloads, 3.3 GB on disk, once)",
        venv.display()
    ));
    shell::prepare(
        Command::new(&uv).args(["venv", "-q", "--clear", "--python"]).arg(&python.executable).arg(venv),
    )?;
    let list = venv.join("requirements.txt");
    std::fs::write(&list, requirements)?;
    // No dependency is resolved: the list is whole, and CUDA's wheels are not on it.
    shell::prepare(
        Command::new(&uv)
            .args(["pip", "install", "-q", "--no-deps", "--only-binary", ":all:", "--python"])
            .arg(venv.join("bin/python"))
            .arg("-r")
            .arg(&list),
    )?;
    finish(quirks, venv)
}

/// Stand-ins for what only CUDA has, and compiled files: a start without them takes half a minute longer.
fn finish(quirks: &Quirks, venv: &Path) -> Result<()> {
    let packages = site_packages(venv)?;
    let interpreter = venv.join("bin/python");
    copy_tree(&sources().join("stand_ins"), &packages)?;
    if quirks.vllm == Vllm::StandIn {
        copy_tree(&sources().join("stand_ins_vllm"), &packages)?;
    }
    shell::prepare(python::script(&interpreter, "stub_cuda.py").arg(&packages))?;
    let mut compile = Command::new(&interpreter);
    compile.args(["-m", "compileall", "-q", "-q", "-j", "2"]).arg(&packages);
    // A few files of a package or two are templates and do not compile: that is no failure.
    let _ = compile.env_remove("PYTHONDONTWRITEBYTECODE").status();
    Ok(())
}

/// The pinned list of a version, with its quirks' lines in place.
fn requirements(version: &str, quirks: &Quirks) -> Result<String> {
    let path = sources().join("pins").join(format!("{}.txt", quirks.pins));
    let list =
        std::fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))?;
    Ok(with_others(&list, quirks.others, version))
}

fn with_others(list: &str, others: &[(&str, &str)], version: &str) -> String {
    let mut text = String::new();
    let lines = list.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    for line in lines {
        let name = line.split("==").next().unwrap_or_default();
        if !others.iter().any(|(other, _)| *other == name) {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{line}");
        }
    }
    for (name, version) in others.iter().chain(&[("sglang", version)]) {
        let _ = writeln!(text, "{name}=={version}");
    }
    text
}

fn site_packages(venv: &Path) -> Result<PathBuf> {
    let question = "import sysconfig; print(sysconfig.get_path('purelib'))";
    shell::capture(Command::new(venv.join("bin/python")).args(["-c", question])).map(PathBuf::from)
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    let entries = std::fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))?;
    for entry in entries {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), &target)
                .with_context(|| format!("cannot write {}", target.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_versions_own_lines_take_the_place_of_the_lists() {
        let list = "# seen\ntorch==2.9.1\ntriton==3.5.1\ntriton-x==1\n";
        assert_eq!(
            with_others(list, &[("triton", "3.3.1")], "0.4.9"),
            "torch==2.9.1\ntriton-x==1\ntriton==3.3.1\nsglang==0.4.9\n"
        );
    }

    #[test]
    fn every_row_has_a_list_without_cuda_wheels() {
        for version in
            ["0.4.3", "0.4.6.post5", "0.4.9", "0.5.3", "0.5.6", "0.5.10", "0.5.12", "0.5.16", "0.5.23"]
        {
            let text = requirements(version, &quirks::of(version).unwrap()).unwrap();
            assert!(
                text.contains("\ntorch==") && text.ends_with(&format!("\nsglang=={version}\n")),
                "{version}"
            );
            assert!(!text.contains("nvidia-c") && !text.contains("sgl-kernel"), "{version}");
            assert!(text.lines().all(|line| line.contains("==")), "{version}");
        }
    }
}
