//! The kernels that are booted, and where they come from.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::cache;
use crate::{say, shell};

/// A kernel to test on.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// Its series, which is its name here.
    pub series: &'static str,
    archive: Archive,
    /// A package with the image, or one that depends on the newest.
    package: &'static str,
}

/// Whose packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Archive {
    Debian,
    Ubuntu,
}

/// The oldest kernel that is supported first. Debian never released 5.15; Ubuntu 22.04 did.
pub const KERNELS: [Kernel; 3] = [
    Kernel { series: "5.15", archive: Archive::Ubuntu, package: "linux-image-5.15.0-25-generic" },
    Kernel { series: "6.1", archive: Archive::Debian, package: "linux-image-cloud-amd64" },
    Kernel { series: "6.12", archive: Archive::Debian, package: "linux-image-6.12-cloud-amd64" },
];

/// Ubuntu's archive keys, as Ubuntu packages them; no package of Debian 12 has them. Known by their hash.
const UBUNTU_KEYS: (&str, &str) = (
    "http://archive.ubuntu.com/ubuntu/pool/main/u/ubuntu-keyring/ubuntu-keyring_2021.03.26_all.deb",
    "0d0e7ed6b112f5d03eabf3c7eb01ebdacf9c57714b279e90495cfc58c8c4520f",
);

/// The kernel's image, downloaded the first time.
///
/// # Errors
/// When there is no apt, the archive cannot be reached, or has no such package.
pub fn fetch(kernel: &Kernel) -> Result<PathBuf> {
    let folder = cache()?.join(kernel.series);
    if let Some(image) = image_in(&folder) {
        return Ok(image);
    }
    say::step(format!("downloading Linux {} ({})", kernel.series, kernel.package));
    let apt =
        Apt::new(kernel.archive).with_context(|| format!("Linux {} cannot be downloaded", kernel.series))?;
    let unpacked = folder.join("unpacked");
    std::fs::create_dir_all(&unpacked)?;
    let package = apt.resolve(kernel.package)?;
    shell::prepare(apt.get("apt-get").args(["download", &package]).current_dir(&folder))?;
    let deb = find(&folder, |name| name.ends_with(".deb")).context("apt-get downloaded nothing")?;
    shell::prepare(Command::new("dpkg-deb").arg("-x").args([&deb, &unpacked]))?;
    std::fs::remove_file(&deb)?;
    image_in(&folder).with_context(|| format!("{package} holds no kernel image"))
}

fn image_in(folder: &Path) -> Option<PathBuf> {
    find(&folder.join("unpacked/boot"), |name| name.starts_with("vmlinuz"))
}

fn find(folder: &Path, wanted: impl Fn(&str) -> bool) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?;
    let mut paths = entries.flatten().filter(|entry| wanted(&entry.file_name().to_string_lossy()));
    paths.next().map(|entry| entry.path())
}

/// An apt with an archive and package lists of its own, so that the machine's are left alone.
struct Apt {
    folder: PathBuf,
}

impl Apt {
    fn new(archive: Archive) -> Result<Self> {
        if !shell::on_path("apt-get") {
            bail!("this machine has no apt-get: give a kernel image of yours with --image");
        }
        let (name, sources) = match archive {
            Archive::Debian => {
                let keys = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]";
                let of = |path, suite| format!("deb {keys} http://deb.debian.org/{path} {suite} main\n");
                ("debian", of("debian", "bookworm") + &of("debian-security", "bookworm-security"))
            }
            Archive::Ubuntu => {
                let keys = ubuntu_keys()?;
                let source = format!(
                    "deb [signed-by={}] http://archive.ubuntu.com/ubuntu jammy main\n",
                    keys.display()
                );
                ("ubuntu", source)
            }
        };
        let apt = Self { folder: cache()?.join("apt").join(name) };
        for folder in ["lists/partial", "cache/archives/partial"] {
            std::fs::create_dir_all(apt.folder.join(folder))?;
        }
        std::fs::write(apt.folder.join("status"), "")?;
        std::fs::write(apt.folder.join("sources.list"), sources)?;
        shell::prepare(apt.get("apt-get").args(["update", "-qq"]))?;
        Ok(apt)
    }

    fn get(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let settings = [
            ("Dir::Etc::sourcelist", "sources.list"),
            ("Dir::Etc::sourceparts", "none"),
            ("Dir::State::lists", "lists"),
            ("Dir::State::status", "status"),
            ("Dir::Cache", "cache"),
        ];
        for (name, path) in settings {
            command.arg("-o").arg(format!("{name}={}", self.folder.join(path).display()));
        }
        // The folder may be root's alone, and what is downloaded is checked by its signature all the same.
        command.args(["-o", "APT::Sandbox::User=root"]);
        command
    }

    /// The package with the image: the one that a package without depends on.
    fn resolve(&self, package: &str) -> Result<String> {
        let depends = shell::capture(self.get("apt-cache").args(["depends", package]))?;
        Ok(image_package(&depends).unwrap_or(package).to_owned())
    }
}

fn image_package(depends: &str) -> Option<&str> {
    let mut names = depends.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    names.find(|name| name.starts_with("linux-image-"))
}

fn ubuntu_keys() -> Result<PathBuf> {
    let folder = cache()?.join("ubuntu-keys");
    let keys = folder.join("usr/share/keyrings/ubuntu-archive-keyring.gpg");
    if !keys.is_file() {
        std::fs::create_dir_all(&folder)?;
        let (url, hash) = UBUNTU_KEYS;
        let deb = folder.join("keys.deb");
        let mut download = Command::new("/usr/lib/apt/apt-helper");
        download.args(["download-file", url]).arg(&deb).arg(format!("SHA256:{hash}"));
        shell::prepare(&mut download)?;
        shell::prepare(Command::new("dpkg-deb").arg("-x").args([&deb, &folder]))?;
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_without_an_image_leads_to_the_one_with_it() {
        let meta = "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-57-cloud-amd64\n";
        assert_eq!(image_package(meta), Some("linux-image-6.1.0-57-cloud-amd64"));
        let image =
            "linux-image-5.15.0-25-generic\n  Depends: kmod\n  Depends: linux-modules-5.15.0-25-generic\n";
        assert_eq!(image_package(image), None);
    }
}
