//! A Debian 13 tree beside this machine's Debian 12, for engines built against newer C libraries.
//!
//! Entered by a private mount namespace and chroot: network, processes and /tmp stay the machine's own, so such a
//! server looks to an observer like any other, except that its libraries lie below another root, as in a container.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::lock;
use super::python::Python;
use crate::setup::debian::{self, Group};
use crate::{repo, say, shell};

const MIRROR: &str = "http://deb.debian.org/debian";
/// What torch, the engines and a Python of the host's load from the system.
const INCLUDE: &str = "ca-certificates,libgomp1,libnuma1,libstdc++6,libssl3t64,libffi8,libsqlite3-0,libbz2-1.0,\
                       liblzma5,zlib1g,libexpat1,libreadline8t64,libgl1,libglib2.0-0t64,gcc,libc6-dev";

/// Makes the tree when it is not there; gives its folder.
///
/// # Errors
/// When this is not root or debootstrap fails.
pub fn ensure() -> Result<PathBuf> {
    let tree = repo::engines()?.join("trixie");
    let _lock = lock::take()?;
    if tree.join("etc/enginetap-tree").is_file() {
        return Ok(tree);
    }
    if !repo::is_root() {
        bail!("this version needs a Debian 13 tree, which only root can make and enter");
    }
    debian::ensure(&[Group::OldEngines])?;
    say::step(
        "making a Debian 13 tree (0.5 GB, a minute): this version needs newer C libraries than the machine's",
    );
    let mut command = Command::new("debootstrap");
    command.args(["--variant=minbase", &format!("--include={INCLUDE}"), "trixie"]).arg(&tree).arg(MIRROR);
    shell::prepare(&mut command)
        .with_context(|| format!("debootstrap failed; its log is in {}/debootstrap", tree.display()))?;
    std::fs::write(tree.join("etc/enginetap-tree"), "made by cargo xtask engines\n")?;
    Ok(tree)
}

/// Wraps a command to run inside the tree, with the folders of the host that it needs.
///
/// # Errors
/// When the cache folder or the interpreter lies where it cannot be bound.
pub fn enter(tree: &Path, python: &Python) -> Result<Command> {
    let mut binds = vec!["dev".to_owned(), "proc".to_owned(), "sys".to_owned(), "tmp".to_owned()];
    for path in [&repo::engines()?, &repo::root(), &python.prefix] {
        let top = top_folder(path)
            .with_context(|| format!("{} cannot be seen from inside the tree", path.display()))?;
        if top == "usr" {
            bail!(
                "the Python at {} is the system's own: a Debian 13 tree needs one in a folder of its own (pyenv, uv)",
                path.display()
            );
        }
        if !binds.contains(&top) {
            binds.push(top);
        }
    }
    // Every argument after the script is data to it; nothing of ours is pasted into its text.
    let script = r#"set -e; tree=$1; shift; mount --make-rprivate /
        while [ "$1" != -- ]; do mkdir -p "$tree/$1"; mount --rbind "/$1" "$tree/$1"; shift; done; shift
        exec chroot "$tree" "$@""#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "bash", "-c", script, "enter"]).arg(tree).args(binds).arg("--");
    Ok(command)
}

fn top_folder(path: &Path) -> Option<String> {
    let real = path.canonicalize().ok()?;
    real.components().nth(1).map(|part| part.as_os_str().to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_top_folder_is_the_first_below_the_root() {
        assert_eq!(top_folder(Path::new("/proc/self/fd")).as_deref(), Some("proc"));
        assert_eq!(top_folder(Path::new("/")), None);
        assert_eq!(top_folder(Path::new("/no/such/folder")), None);
    }
}
