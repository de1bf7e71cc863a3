//! `cargo xtask vm-test`: the live-kernel tests on other kernels than this machine's, each booted in qemu.
//!
//! Nothing of the machine is changed but for the packages that the task names: kernels are downloaded and unpacked into
//! the cache folder, never installed. What boots is the kernel and an initramfs with busybox, Python and the test
//! programs; there is no disk and no network.

mod archive;
mod boot;
mod image;
mod kernels;
mod report;

use anyhow::{Result, bail};
use clap::Args;

use crate::setup::debian::{self, Group};
use crate::{repo, say};
use kernels::{KERNELS, Kernel};
use report::Outcome;

/// Options of `vm-test`.
#[derive(Args, Debug)]
pub struct Options {
    /// Only these kernels (`5.15`, `6.1`, `6.12`).
    #[arg(long, value_delimiter = ',')]
    pub kernel: Vec<String>,
    /// A kernel image of your own to boot besides (a bzImage with BPF, tracepoints and the serial console built in).
    #[arg(long, value_name = "FILE")]
    pub image: Option<std::path::PathBuf>,
    /// A filter on test names.
    pub filter: Option<String>,
}

/// Boots every kernel asked for, runs the tests on it and prints a table on stdout.
///
/// # Errors
/// When something cannot be set up, a kernel does not boot, or a test fails; the table is printed in any case.
pub fn run(options: &Options) -> Result<()> {
    let wanted = chosen(&options.kernel)?;
    debian::ensure(&[Group::Base, Group::Vm])?;
    let initramfs = image::build(options.filter.as_deref())?;
    let mut outcomes = Vec::new();
    for kernel in wanted {
        let image = kernels::fetch(kernel);
        outcomes.push(Outcome::of(
            kernel.series,
            image.and_then(|image| boot::run(&image, &initramfs, kernel.series)),
        ));
    }
    if let Some(image) = &options.image {
        outcomes.push(Outcome::of("own image", boot::run(image, &initramfs, "own-image")));
    }
    print!("{}", report::table(&outcomes));
    say::detail(format!("what each kernel said is in {}", boot::folder().display()));
    if outcomes.iter().all(Outcome::passed) { Ok(()) } else { bail!("not every test passed on every kernel") }
}

fn chosen(names: &[String]) -> Result<Vec<&'static Kernel>> {
    if names.is_empty() {
        return Ok(KERNELS.iter().collect());
    }
    let find = |name: &String| KERNELS.iter().find(|kernel| kernel.series == name);
    match names.iter().find(|name| find(name).is_none()) {
        Some(unknown) => {
            let known: Vec<&str> = KERNELS.iter().map(|kernel| kernel.series).collect();
            bail!(
                "there is no kernel {unknown} in the table: name one of {}, or an --image",
                known.join(", ")
            )
        }
        None => Ok(names.iter().filter_map(find).collect()),
    }
}

/// Where kernels and package lists are kept.
fn cache() -> Result<std::path::PathBuf> {
    Ok(repo::engines()?.join("kernels"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_chosen_by_their_series_and_unknown_ones_are_named() {
        assert_eq!(chosen(&[]).unwrap().len(), KERNELS.len());
        assert_eq!(chosen(&["6.1".to_owned()]).unwrap()[0].series, "6.1");
        assert!(chosen(&["2.4".to_owned()]).unwrap_err().to_string().contains("2.4"));
    }
}
