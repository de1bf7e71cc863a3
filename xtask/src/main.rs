//! Set-up, build, tests, engines and benchmarks of enginetap: `cargo xtask`.

mod agent;
mod bench;
mod captures;
mod ci;
mod demo;
mod docs;
mod ebpf;
mod engines;
mod interrupt;
mod repo;
mod say;
mod setup;
mod shell;
mod stamp;
mod test;
mod vm;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Everything that is done with this repository. Each command installs what it needs and says so.
#[derive(Parser, Debug)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Attach to running inference servers: sets up, builds, then runs `enginetap attach ARGS`.
    #[command(disable_help_flag = true)]
    Attach(Passed),
    /// List the inference servers on this machine: `enginetap ps ARGS`.
    #[command(disable_help_flag = true)]
    Ps(Passed),
    /// See whether a server can be attached to: `enginetap check ARGS`.
    #[command(disable_help_flag = true)]
    Check(Passed),
    /// Build, then run `enginetap ARGS`.
    #[command(disable_help_flag = true)]
    Run(Passed),
    /// Bring up a real vLLM with a tiny model, send it load, attach, and show what a user would see.
    Demo(demo::Options),
    /// Build everything and run all tests.
    Test(test::Options),
    /// Install what building and testing need.
    Setup {
        /// Also the toolchain that rebuilds the kernel programs.
        #[arg(long)]
        ebpf: bool,
    },
    /// Build the kernel programs (where they changed) and the agent.
    Build {
        /// Optimised, as it is shipped.
        #[arg(long)]
        release: bool,
    },
    /// Rebuild the kernel programs' committed object.
    Ebpf {
        /// Only see whether a rebuild gives the committed bytes.
        #[arg(long)]
        check: bool,
    },
    /// Install, serve, load and stop real engines on the CPU.
    Engines {
        #[command(subcommand)]
        command: engines::Command,
    },
    /// Import and record captures of real engines.
    Captures {
        #[command(subcommand)]
        command: captures::Command,
    },
    /// Measure what the agent costs a real vLLM, and print the figures.
    Bench(bench::Options),
    /// Write the documentation that is made from the code.
    Docs {
        /// Only see whether it is up to date.
        #[arg(long)]
        check: bool,
    },
    /// Run the live-kernel tests on other kernels, booted in qemu.
    VmTest(vm::Options),
    /// The whole check, as .ci/run does it on a fresh machine.
    Ci,
}

/// Arguments that go to the agent as they are.
#[derive(clap::Args, Debug)]
struct Passed {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

impl Passed {
    fn to(&self, subcommand: &str) -> Result<()> {
        let args: Vec<OsString> =
            std::iter::once(subcommand.into()).chain(self.args.iter().cloned()).collect();
        agent::become_agent(&args)
    }
}

fn run(command: &Command) -> Result<()> {
    match command {
        Command::Attach(passed) => passed.to("attach"),
        Command::Ps(passed) => passed.to("ps"),
        Command::Check(passed) => passed.to("check"),
        Command::Run(Passed { args }) => agent::become_agent(args),
        Command::Demo(options) => demo::run(options),
        Command::Test(options) => test::run(options),
        Command::Setup { ebpf } => setup::all(*ebpf),
        Command::Build { release } => agent::build(*release).map(|binary| println!("{}", binary.display())),
        Command::Ebpf { check: true } => ebpf::check(),
        Command::Ebpf { check: false } => ebpf::rebuild(),
        Command::Engines { command } => engines::run(command),
        Command::Captures { command } => captures::run(command),
        Command::Bench(options) => bench::run(options),
        Command::Docs { check: true } => docs::check(),
        Command::Docs { check: false } => docs::write(),
        Command::VmTest(options) => vm::run(options),
        Command::Ci => ci::run(),
    }
}

fn main() -> ExitCode {
    match run(&Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    fn parse(line: &str) -> Command {
        Cli::try_parse_from(line.split(' ')).unwrap().command
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_agents_arguments_pass_as_they_are() {
        let Command::Attach(passed) = parse("xtask attach --pid 7 -v --for 20s --help") else { panic!() };
        assert_eq!(passed.args, ["--pid", "7", "-v", "--for", "20s", "--help"]);
        let Command::Run(passed) = parse("xtask run -- replay a.cap") else { panic!() };
        assert_eq!(passed.args, ["replay", "a.cap"]);
    }

    #[test]
    fn the_engines_own_options_come_after_two_dashes() {
        let line = "xtask engines serve vllm --version 0.14.1 --port 0 -- --max-num-seqs 8";
        let Command::Engines { command: engines::Command::Serve(serve) } = parse(line) else { panic!() };
        assert_eq!((serve.which.version.as_deref(), serve.port), (Some("0.14.1"), 0));
        assert_eq!(serve.options, ["--max-num-seqs", "8"]);
    }

    #[test]
    fn layers_are_chosen_by_name() {
        let Command::Test(options) = parse("xtask test --only unit,replay") else { panic!() };
        assert_eq!(options.only, [test::Layer::Unit, test::Layer::Replay]);
        assert!(Cli::try_parse_from(["xtask", "test", "--only", "unit", "--skip", "lint"]).is_err());
    }
}
