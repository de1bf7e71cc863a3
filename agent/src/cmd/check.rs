//! `enginetap check`: a preflight. Changes nothing, attaches nothing.

mod findings;
mod report;
mod sglang;

use anyhow::{Context, Result};

use crate::cli::Check;
use crate::cmd::ps::View;
use crate::cmd::target;
use crate::discover::proc::Proc;
use crate::discover::server::Instance;
use crate::exit::Exit;
use findings::{Target, gpus, machine, of_target, probes, waits};
use report::Report;

/// Runs `enginetap check` to its end: [`Exit::Missing`] when attaching cannot work.
///
/// # Errors
/// When the pid is no server's, or the process table cannot be read.
pub fn run(args: &Check) -> Result<Exit> {
    let proc = Proc::system();
    let family = target::servers(&proc, &[args.pid])?.into_iter().next().context("no server")?;
    let server = Instance::of(&proc, family);
    let target = Target::read(&proc, &server);
    let mut findings = machine();
    findings.push(waits());
    findings.push(gpus(&args.gpus.nvml));
    findings.extend(of_target(&server, &target));
    let report = Report::new(server.family.engine, View::of(&proc, &server), findings, probes());
    print!("{}", if args.json { report.json()? } else { report.text() });
    Ok(if report.ok { Exit::Done } else { Exit::Missing })
}
