//! The subcommands, one file each.

pub mod attach;
pub mod check;
pub mod config;
pub mod profile;
pub mod ps;
pub mod record;
pub mod replay;
pub mod run;
pub mod target;
pub mod why;

use anyhow::Result;

use crate::cli::Command;
use crate::exit::Exit;

/// Runs a subcommand to its end.
///
/// # Errors
/// Whatever stopped it; [`Exit::of`] gives the exit code of an error.
pub fn run(command: Command) -> Result<Exit> {
    match command {
        Command::Attach(args) => attach::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Config(args) => config::run(&args),
        Command::Ps(args) => ps::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Record(args) => record::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Why(args) => why::run(&args),
        Command::Profile(args) => profile::run(&args),
    }
}
