//! `cargo xtask test`: everything that can be proven here, in layers from the quickest to the slowest.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};

use crate::engines::{Engine, sglang, vllm};
use crate::{agent, repo, say, setup, shell};

/// A layer of tests; `docs/CONTRIBUTING.md` says what belongs to which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Layer {
    /// rustfmt, clippy and rustdoc, warnings denied.
    Lint,
    /// Unit and property tests of every package.
    Unit,
    /// Captures replayed through the whole pipeline, against golden results and the engines' own figures.
    Replay,
    /// What is under `deploy/`, by the tools it is for (about 200 MB of downloads once).
    Deploy,
    /// The kernel programs on this kernel, with a small server on the real libraries (needs root).
    Kernel,
    /// A real vLLM on the CPU, compared with what it says of itself (needs root, about 1 GB of downloads once).
    Vllm,
    /// A real SGLang on the CPU, compared with its own tracing and metrics (needs root, about 1 GB of downloads once).
    Sglang,
}

/// Which layers, and what goes on to the tests.
#[derive(Args, Debug)]
pub struct Options {
    /// Run only these layers.
    #[arg(long, value_enum, value_delimiter = ',', conflicts_with = "skip")]
    pub only: Vec<Layer>,
    /// Leave these layers out.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub skip: Vec<Layer>,
    /// The vLLM to test against.
    #[arg(long, default_value = vllm::DEFAULT_VERSION)]
    pub vllm: String,
    /// The SGLang to test against.
    #[arg(long, default_value = sglang::DEFAULT_VERSION)]
    pub sglang: String,
    /// A filter on test names, and options for the test binaries after `--`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub filter: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            only: Vec::new(),
            skip: Vec::new(),
            vllm: vllm::DEFAULT_VERSION.to_owned(),
            sglang: sglang::DEFAULT_VERSION.to_owned(),
            filter: Vec::new(),
        }
    }
}

impl Options {
    fn wants(&self, layer: Layer) -> bool {
        if self.only.is_empty() { !self.skip.contains(&layer) } else { self.only.contains(&layer) }
    }
}

/// Runs the layers. A failing layer does not keep the next from running: one run shows all that is wrong.
///
/// # Errors
/// When a layer failed, naming each.
pub fn run(options: &Options) -> Result<()> {
    let mut failed = Vec::new();
    let mut check = |name: &str, result: Result<()>| {
        if let Err(error) = result {
            say::warn(format!("{name}: {error:#}"));
            failed.push(name.to_owned());
        }
    };
    if options.wants(Layer::Lint) {
        check("lint", lint());
    }
    if options.wants(Layer::Unit) {
        check("unit", unit(&options.filter));
    }
    if options.wants(Layer::Replay) {
        check("replay", end_to_end(Layer::Replay, &[], options));
    }
    if options.wants(Layer::Deploy) {
        let outcome =
            deploy_environment().and_then(|environment| end_to_end(Layer::Deploy, &environment, options));
        check("deploy", outcome);
    }
    let live = [Layer::Kernel, Layer::Vllm, Layer::Sglang];
    if live.into_iter().any(|layer| options.wants(layer)) {
        match live_environment(options) {
            Ok(Some(environment)) => {
                for layer in live.into_iter().filter(|&layer| options.wants(layer)) {
                    check(name(layer), end_to_end(layer, &environment, options));
                }
            }
            Ok(None) => {}
            Err(error) => check("preparing the live layers", Err(error)),
        }
    }
    if failed.is_empty() { Ok(()) } else { bail!("failed: {}", failed.join(", ")) }
}

fn name(layer: Layer) -> &'static str {
    match layer {
        Layer::Lint => "lint",
        Layer::Unit => "unit",
        Layer::Replay => "replay",
        Layer::Deploy => "deploy",
        Layer::Kernel => "kernel",
        Layer::Vllm => "vllm",
        Layer::Sglang => "sglang",
    }
}

fn lint() -> Result<()> {
    say::step("lint: formatting, clippy, documentation");
    shell::run(repo::cargo().args(["fmt", "--all", "--check"]))?;
    shell::run(repo::cargo().args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    let mut doc = repo::cargo();
    doc.args(["doc", "--workspace", "--no-deps"]);
    shell::run(doc.env("RUSTDOCFLAGS", "-D warnings"))
}

fn unit(filter: &[String]) -> Result<()> {
    say::step("unit: unit and property tests");
    let mut cargo = repo::cargo();
    cargo.args(["test", "--workspace", "--exclude", "enginetap-tests", "--no-fail-fast"]);
    shell::run(cargo.args(filter))?;
    shell::run(repo::cargo().args(["test", "--package", "enginetap-tests", "--lib"]).args(filter))
}

/// Where the tests of `deploy/` find their tools, and the agent.
fn deploy_environment() -> Result<Vec<(&'static str, PathBuf)>> {
    let tools = setup::deploy::ensure()?;
    Ok(vec![
        ("ENGINETAP_BIN", agent::build(false)?),
        ("ENGINETAP_TOOLS", tools.venv.join("bin")),
        ("ENGINETAP_PROMETHEUS", tools.prometheus),
    ])
}

/// Where the live layers find what they run: the agent, the engine, and this program to serve it with.
/// `None` where they cannot run here; the reason has been said.
fn live_environment(options: &Options) -> Result<Option<Vec<(&'static str, PathBuf)>>> {
    if !repo::is_root() {
        say::warn(
            "the kernel, vllm and sglang layers are skipped: they need root (`sudo -E cargo xtask test`)",
        );
        return Ok(None);
    }
    setup::for_attach()?;
    let mut environment = vec![
        ("ENGINETAP_BIN", agent::build(true)?),
        ("ENGINETAP_XTASK", std::env::current_exe().context("cannot find this program's own file")?),
    ];
    if options.wants(Layer::Vllm) {
        let venv = Engine::Vllm.install(&options.vllm)?;
        environment.push(("ENGINETAP_VLLM_VERSION", PathBuf::from(&options.vllm)));
        environment.push(("ENGINETAP_VLLM", venv));
    }
    if options.wants(Layer::Sglang) {
        Engine::Sglang.install(&options.sglang)?;
        environment.push(("ENGINETAP_SGLANG_VERSION", PathBuf::from(&options.sglang)));
    }
    environment.push(("ENGINETAP_PYTHON", crate::engines::python::find()?.executable));
    Ok(Some(environment))
}

/// Runs the test programs of `tests/tests/` that belong to a layer, one test at a time where they are live.
fn end_to_end(layer: Layer, environment: &[(&'static str, PathBuf)], options: &Options) -> Result<()> {
    let mut targets = targets(&repo::root().join("tests/tests"), layer)?;
    targets.retain(|target| match not_here(target, &options.vllm) {
        Some(reason) => {
            say::detail(format!("{target} is left out: {reason}"));
            false
        }
        None => true,
    });
    if targets.is_empty() {
        say::warn(format!("{}: there is no test of this layer", name(layer)));
        return Ok(());
    }
    say::step(format!("{}: {}", name(layer), targets.join(", ")));
    let mut cargo: Command = repo::cargo();
    cargo.args(["test", "--package", "enginetap-tests", "--no-fail-fast"]);
    cargo.args(targets.iter().flat_map(|target| ["--test", target]));
    cargo.envs(environment.iter().map(|(key, value)| (key, value)));
    let (names, mut binary_options) = split(&options.filter);
    if layer != Layer::Replay {
        binary_options.push("--test-threads=1".to_owned());
        binary_options.push("--nocapture".to_owned());
    }
    shell::run(cargo.args(names).arg("--").args(binary_options))
}

/// Why a test program cannot run with this vLLM: what is not run is not counted as passed.
fn not_here(target: &str, vllm: &str) -> Option<String> {
    let has_v0 = ["0.8", "0.9"].iter().any(|line| vllm == *line || vllm.starts_with(&format!("{line}.")));
    (target == "live_vllm_v0" && !has_v0)
        .then(|| format!("vLLM {vllm} has no V0 engine that runs on a CPU; `--vllm 0.9.2` has"))
}

/// The words before and after `--`.
fn split(words: &[String]) -> (&[String], Vec<String>) {
    match words.iter().position(|word| word == "--") {
        Some(at) => (words.get(..at).unwrap_or_default(), words.get(at + 1..).unwrap_or_default().to_vec()),
        None => (words, Vec::new()),
    }
}

fn targets(folder: &Path, layer: Layer) -> Result<Vec<String>> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(Vec::new()) };
    let mut names = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let is_target = path.extension().is_some_and(|e| e == "rs") || path.join("main.rs").is_file();
        if let Some(name) = path.file_stem().and_then(|stem| stem.to_str()).filter(|_| is_target)
            && layer_of(name) == layer
        {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// The layer of a test program, by its name: `kernel…`, `live_sglang…` and `live…` need root, all others but `deploy…`
/// replay.
fn layer_of(target: &str) -> Layer {
    if target.starts_with("kernel") {
        Layer::Kernel
    } else if target.starts_with("deploy") {
        Layer::Deploy
    } else if target.starts_with("live_sglang") {
        Layer::Sglang
    } else if target.starts_with("live") {
        Layer::Vllm
    } else {
        Layer::Replay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_program_is_put_into_its_layer_by_name() {
        assert_eq!(layer_of("kernel_sock"), Layer::Kernel);
        assert_eq!(layer_of("live_vllm"), Layer::Vllm);
        assert_eq!(layer_of("live_sglang_truth"), Layer::Sglang);
        assert_eq!(layer_of("deploy"), Layer::Deploy);
        assert_eq!(layer_of("vllm_captures"), Layer::Replay);
        assert_eq!(layer_of("conformance"), Layer::Replay);
    }

    #[test]
    fn tests_of_v0_run_on_versions_that_have_it() {
        assert!(not_here("live_vllm_v0", "0.32.0").unwrap().contains("0.32.0"));
        assert_eq!([not_here("live_vllm_v0", "0.9.2"), not_here("live_vllm", "0.32.0")], [None, None]);
    }

    #[test]
    fn layers_are_all_unless_chosen() {
        let all = Options::default();
        assert!(all.wants(Layer::Lint) && all.wants(Layer::Vllm));
        let only = Options { only: vec![Layer::Unit], ..Options::default() };
        assert!(only.wants(Layer::Unit) && !only.wants(Layer::Lint));
        let skip = Options { skip: vec![Layer::Vllm], ..Options::default() };
        assert!(skip.wants(Layer::Kernel) && !skip.wants(Layer::Vllm));
    }

    #[test]
    fn words_after_two_dashes_go_to_the_test_binaries() {
        let words: Vec<String> = ["abort", "--", "--ignored"].map(String::from).to_vec();
        let (names, binary) = split(&words);
        assert_eq!((names, binary), (&["abort".to_owned()][..], vec!["--ignored".to_owned()]));
        assert_eq!(split(&words[..1]), (&words[..1], Vec::new()));
    }

    #[test]
    fn a_folder_that_is_not_there_has_no_tests() {
        assert!(targets(Path::new("/no/such/folder"), Layer::Replay).unwrap().is_empty());
    }
}
