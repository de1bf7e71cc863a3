//! `cargo xtask ci`: what `.ci/run` calls on a fresh machine.

use std::process::Command;

use anyhow::{Result, bail};

use crate::{docs, ebpf, repo, say, setup, shell, test};

/// The cargo-deny that `deny.toml` is written for.
const DENY: &str = "0.20.2";

/// Dependencies' terms, the generated documentation, the committed kernel object, then every test.
///
/// # Errors
/// When one of them fails, naming each; the tests run in any case.
pub fn run() -> Result<()> {
    setup::all(true)?;
    let mut failed = Vec::new();
    for (name, check) in
        [("ebpf --check", ebpf::check as fn() -> Result<()>), ("deny", deny), ("docs --check", docs::check)]
    {
        if let Err(error) = check() {
            say::warn(format!("{name}: {error:#}"));
            failed.push(name);
        }
    }
    let tests = test::run(&test::Options::default());
    if !failed.is_empty() {
        bail!(
            "failed: {}{}",
            failed.join(", "),
            tests.err().map(|e| format!("; tests {e:#}")).unwrap_or_default()
        );
    }
    tests
}

/// Licences, sources and duplicates of the dependencies; advisories where their database can be reached.
fn deny() -> Result<()> {
    say::step("dependencies: licences, sources, advisories");
    if !shell::succeeds(Command::new("cargo").args(["deny", "--version"])) {
        say::detail(format!(
            "installing cargo-deny {DENY}: checks what the dependencies bring in (some minutes, once)"
        ));
        let mut install = Command::new("cargo");
        install.args(["install", "--locked", "cargo-deny", "--version", DENY, "--no-default-features"]);
        if let Err(error) = shell::run(install.env_remove("CARGO_TARGET_DIR")) {
            say::warn(format!("dependencies are not checked: {error:#}"));
            return Ok(());
        }
    }
    shell::run(repo::cargo().args([
        "deny",
        "check",
        "--hide-inclusion-graph",
        "bans",
        "licenses",
        "sources",
    ]))?;
    if !shell::succeeds(repo::cargo().args(["deny", "fetch", "db"])) {
        say::warn(
            "advisories are not checked: their database (github.com/RustSec/advisory-db) cannot be reached",
        );
        return Ok(());
    }
    shell::run(repo::cargo().args(["deny", "check", "--disable-fetch", "advisories"]))
}
