//! enginetap: an eBPF profiler for LLM inference servers.

use std::process::ExitCode;

use clap::Parser;
use enginetap::cli::Cli;
use enginetap::exit::Exit;
use enginetap::{cmd, diagnostics};

fn main() -> ExitCode {
    let cli = Cli::parse();
    diagnostics::start(cli.log);
    match cmd::run(cli.command) {
        Ok(exit) => exit.into(),
        Err(error) => {
            eprintln!("enginetap: {error:#}");
            Exit::of(&error).into()
        }
    }
}
