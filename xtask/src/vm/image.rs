//! The initramfs: busybox, Python, a C compiler, the agent and the test programs, and the libraries they load.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use flate2::Compression;
use flate2::write::GzEncoder;

use super::archive::Archive;
use super::boot;
use crate::engines::python::{self, Python};
use crate::{agent, ebpf, repo, say, shell};

const INIT: &str = include_str!("init.sh");

/// Parts of Python's library that no script of ours imports, by far the larger half.
const NOT_NEEDED: [&str; 9] = [
    "__pycache__",
    "dist-packages",
    "ensurepip",
    "idlelib",
    "lib2to3",
    "pydoc_data",
    "site-packages",
    "test",
    "turtledemo",
];

/// Programs that tests run besides; busybox's own of these names know less.
const TOOLS: [&str; 2] = ["setpriv", "unshare"];

/// What `gcc` runs to make a library.
const COMPILER: [&str; 4] = ["cc1", "collect2", "as", "ld"];

/// What it links into one.
const LINKED: [&str; 9] = [
    "crti.o",
    "crtbeginS.o",
    "crtendS.o",
    "crtn.o",
    "libc.so",
    "libc_nonshared.a",
    "libgcc.a",
    "libgcc_s.so",
    "libgcc_s.so.1",
];

/// The stand-in that a test builds there; its headers go with the compiler.
const STAND_IN: &str = "tests/stand_ins/nvml.c";

/// Folders of the repository of which a test reads a file where it stands.
const READ: [&str; 2] = ["deploy/systemd", "tests/heap"];

type Out = GzEncoder<BufWriter<File>>;

/// Builds the test programs and the archive; its path. `filter`: on test names.
///
/// # Errors
/// When something does not build, or is not there.
pub fn build(filter: Option<&str>) -> Result<PathBuf> {
    ebpf::ensure()?;
    let (programs, agent) = (programs()?, agent::build(true)?);
    let python = python::find()?;
    say::step("packing the test programs, the agent, Python and a compiler into an initramfs");
    let path = boot::folder().join("initramfs.gz");
    std::fs::create_dir_all(boot::folder())?;
    let file = BufWriter::new(File::create(&path)?);
    let mut archive = Archive::new(GzEncoder::new(file, Compression::fast()));
    for folder in ["proc", "sys", "dev", "tmp"] {
        archive.folder(folder)?;
    }
    archive.file("init", 0o755, INIT.as_bytes())?;
    archive.file("filter", 0o644, filter.unwrap_or_default().as_bytes())?;
    archive.copy(Path::new("/bin/busybox"), "bin/busybox")?;
    for folder in READ {
        add_files(&mut archive, &repo::root().join(folder))?;
    }
    let mut loaded = add_programs(&mut archive, "tests", &programs)?;
    loaded.extend(add_programs(&mut archive, "bin", &[agent])?);
    loaded.extend(add_python(&mut archive, &python)?);
    loaded.extend(add_tools(&mut archive)?);
    for library in libraries(&loaded)? {
        archive.copy(&library, &library.to_string_lossy())?;
    }
    archive.end()?.finish()?.flush()?;
    Ok(path)
}

/// The test programs of the kernel layer, built.
fn programs() -> Result<Vec<PathBuf>> {
    say::step("building the kernel tests");
    let mut cargo = repo::cargo();
    cargo.args([
        "test",
        "--package",
        "enginetap-tests",
        "--no-run",
        "--message-format=json-render-diagnostics",
    ]);
    cargo.args(["--test", "kernel_*"]);
    let output = cargo.stderr(Stdio::inherit()).output().context("cannot start cargo")?;
    if !output.status.success() {
        bail!("the kernel tests do not build");
    }
    let programs = executables(&String::from_utf8_lossy(&output.stdout));
    if programs.is_empty() {
        bail!("cargo named no test program");
    }
    Ok(programs)
}

/// The programs that cargo's messages name.
fn executables(messages: &str) -> Vec<PathBuf> {
    let of = |line: &str| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        Some(PathBuf::from(message.get("executable")?.as_str()?))
    };
    messages.lines().filter_map(of).collect()
}

/// Adds the programs without what debuggers need, which is most of them.
fn add_programs(archive: &mut Archive<Out>, folder: &str, programs: &[PathBuf]) -> Result<Vec<PathBuf>> {
    for program in programs {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let stripped = boot::folder().join("stripped");
        shell::prepare(Command::new("strip").args(["--strip-debug", "-o"]).arg(&stripped).arg(program))?;
        archive.copy(&stripped, &format!("{folder}/{name}"))?;
        std::fs::remove_file(&stripped)?;
    }
    Ok(programs.to_vec())
}

/// Adds the files of a folder, not those of folders in it.
fn add_files(archive: &mut Archive<Out>, folder: &Path) -> Result<()> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    for path in entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()) {
        archive.copy(&path, &path.to_string_lossy())?;
    }
    Ok(())
}

/// Adds the tools and the compiler, each where it stands on this machine.
fn add_tools(archive: &mut Archive<Out>) -> Result<Vec<PathBuf>> {
    let mut loaded = Vec::new();
    for name in TOOLS.into_iter().chain(["gcc"]) {
        let path = PathBuf::from(shell::capture(Command::new("which").arg(name))?.trim());
        archive.copy(&path, &path.to_string_lossy())?;
        loaded.push(path);
    }
    archive.link("bin/cc", &loaded.last().context("no gcc")?.to_string_lossy())?;
    let asked = COMPILER.map(|name| format!("-print-prog-name={name}"));
    for question in asked.iter().map(String::as_str).chain(["-print-file-name=liblto_plugin.so"]) {
        let said = shell::capture(Command::new("gcc").arg(question))?;
        let mut path = PathBuf::from(said.trim());
        if path.is_relative() {
            path = PathBuf::from(shell::capture(Command::new("which").arg(&path))?.trim());
        }
        archive.copy(&path, &path.to_string_lossy())?;
        loaded.push(path);
    }
    add_to_link(archive)?;
    Ok(loaded)
}

/// Adds what the compiler reads to make the stand-in, and what it links into it.
fn add_to_link(archive: &mut Archive<Out>) -> Result<()> {
    let source = repo::root().join(STAND_IN);
    let rule = shell::capture(Command::new("gcc").args(["-M", "-O2", "-DSCRIPT=\"\""]).arg(&source))?;
    let mut files: BTreeSet<PathBuf> = headers(&rule);
    files.remove(&source);
    for name in LINKED {
        let said = shell::capture(Command::new("gcc").arg(format!("-print-file-name={name}")))?;
        files.insert(PathBuf::from(said.trim()));
    }
    for file in files.iter().filter(|file| file.is_absolute()) {
        archive.copy(file, &file.to_string_lossy())?;
    }
    Ok(())
}

/// The files in a rule that a compiler writes for `make`.
fn headers(rule: &str) -> BTreeSet<PathBuf> {
    rule.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect()
}

/// Adds an interpreter where it stands on this machine, with a link on the machine's PATH.
fn add_python(archive: &mut Archive<Out>, python: &Python) -> Result<Vec<PathBuf>> {
    let executable = python.executable.canonicalize()?;
    archive.copy(&executable, &executable.to_string_lossy())?;
    archive.link("bin/python3", &executable.to_string_lossy())?;
    let mut loaded = vec![executable];
    let (major, minor) = python.version;
    add_library(archive, &python.prefix.join(format!("lib/python{major}.{minor}")), &mut loaded)?;
    Ok(loaded)
}

fn add_library(archive: &mut Archive<Out>, folder: &Path, loaded: &mut Vec<PathBuf>) -> Result<()> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    for entry in entries {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        let name = name.to_string_lossy();
        if path.is_dir() {
            if !NOT_NEEDED.contains(&name.as_ref()) && !name.starts_with("config-") {
                add_library(archive, &path, loaded)?;
            }
        } else if name.ends_with(".py") || name.contains(".so") {
            archive.copy(&path, &path.to_string_lossy())?;
            loaded.extend(name.contains(".so").then_some(path));
        }
    }
    Ok(())
}

/// The libraries that programs and libraries load, the loader too.
fn libraries(of: &[PathBuf]) -> Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    for path in of {
        let said = shell::capture(Command::new("ldd").arg(path))?;
        found.extend(said.lines().filter_map(library));
    }
    Ok(found)
}

/// The path in a line of `ldd`.
fn library(line: &str) -> Option<PathBuf> {
    let path = line.split_whitespace().find(|word| word.starts_with('/'))?;
    Some(PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_read_from_a_line_of_ldd() {
        let path = |line| library(line).map(|path| path.to_string_lossy().into_owned());
        assert_eq!(path("\tlibc.so.6 => /lib/libc.so.6 (0x00007f)").as_deref(), Some("/lib/libc.so.6"));
        assert_eq!(
            path("\t/lib64/ld-linux-x86-64.so.2 (0x1)").as_deref(),
            Some("/lib64/ld-linux-x86-64.so.2")
        );
        assert_eq!(path("\tlinux-vdso.so.1 (0x1)"), None);
        assert_eq!(path("\tstatically linked"), None);
    }

    #[test]
    fn headers_are_read_from_a_rule() {
        let rule = "nvml.o: /r/nvml.c /usr/include/stdio.h \\\n /usr/include/string.h\n";
        let expected = ["/r/nvml.c", "/usr/include/stdio.h", "/usr/include/string.h"].map(PathBuf::from);
        assert!(headers(rule).into_iter().eq(expected));
    }

    #[test]
    fn test_programs_are_read_from_what_cargo_says() {
        let said = "{\"reason\":\"compiler-artifact\",\"executable\":null}\n{\"executable\":\"/t/kernel_life\"}\nx\n";
        assert_eq!(executables(said), [PathBuf::from("/t/kernel_life")]);
    }
}
