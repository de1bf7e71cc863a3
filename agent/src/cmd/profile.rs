//! `enginetap profile`: where servers spend their CPU time.

use std::fmt::Write;

use anyhow::{Context, Result};
use enginetap_core::capture::fact::Role;
use enginetap_core::ids::Pid;
use enginetap_core::profile::{Process, Profile, Table};
use serde::Serialize;

use super::attach::runtime;
use super::ps::role_name;
use super::target::servers;
use crate::cli::profile::Profile as Args;
use crate::discover::proc::Proc;
use crate::discover::tree::Member;
use crate::exit::Exit;
use crate::heap::Interpreter;
use crate::profile::Profiler;
use crate::profile::files::Output;
use crate::session::haste::Haste;

/// Runs `enginetap profile` to its end.
///
/// # Errors
/// Whatever stopped it.
pub fn run(args: &Args) -> Result<Exit> {
    let Args { pid, duration, hertz, output, top, json } = args;
    let proc = Proc::system();
    let processes = processes(&proc, pid)?;
    let outputs: Vec<Output> = output.iter().map(|path| Output::create(path)).collect::<Result<_>>()?;
    let runtime = runtime()?;
    let _entered = runtime.enter();
    let count = processes.len();
    let haste = Haste::begin();
    let profiler = Profiler::start(&proc, processes, *hertz)?;
    drop(haste);
    let length = humantime::format_duration(*duration);
    eprintln!("enginetap: sampling {count} processes for {length}; Ctrl-C ends it sooner");
    let profile = runtime.block_on(profiler.run(*duration))?;
    for output in outputs {
        output.write(&profile, "CPU time, by Python stack")?;
    }
    print!("{}", if *json { as_json(&profile)? } else { as_text(&profile, *top)? });
    Ok(Exit::Done)
}

/// The processes meant: those of the servers that the pids are of, and single processes with Python.
fn processes(proc: &Proc, pids: &[u32]) -> Result<Vec<Process>> {
    if pids.is_empty() {
        return Ok(servers(proc, &[])?.iter().flat_map(|family| &family.members).map(of_server).collect());
    }
    let mut processes: Vec<Process> = Vec::new();
    for pid in pids {
        let meant = match (servers(proc, &[*pid]), alone(proc, Pid(*pid))) {
            (Ok(families), _) => families.iter().flat_map(|family| &family.members).map(of_server).collect(),
            (Err(_), Some(process)) => vec![process],
            (Err(error), None) => return Err(error),
        };
        processes
            .extend(meant.into_iter().filter(|process| !processes.contains(process)).collect::<Vec<_>>());
    }
    Ok(processes)
}

fn of_server(member: &Member) -> Process {
    let Member { entry, role } = member;
    let title = if *role == Role::Other { entry.comm.clone() } else { role_name(*role).to_owned() };
    Process { pid: entry.pid, title }
}

/// A process that is no server's but runs Python.
fn alone(proc: &Proc, pid: Pid) -> Option<Process> {
    let entry = proc.entry(pid).ok()?;
    Interpreter::find(proc, pid).ok().map(|_| Process { pid, title: entry.comm })
}

/// The whole profile for scripts.
#[derive(Serialize)]
struct Report {
    hertz: u32,
    samples: u64,
    lost: u64,
    processes: Vec<Table>,
}

fn as_json(profile: &Profile) -> Result<String> {
    let report = Report {
        hertz: profile.hertz,
        samples: profile.samples(),
        lost: profile.lost,
        processes: Table::all(profile),
    };
    Ok(serde_json::to_string_pretty(&report).context("writing the profile as JSON")? + "\n")
}

fn as_text(profile: &Profile, top: usize) -> Result<String> {
    let mut text = String::new();
    let tables = Table::all(profile);
    if tables.is_empty() {
        writeln!(text, "no CPU time was used by these processes")?;
    }
    for table in &tables {
        let seconds = profile.seconds(table.samples);
        writeln!(text, "{}: {seconds:.2} s of CPU time, {} samples", table.process, table.samples)?;
        writeln!(text, "    self   total  function")?;
        for row in table.rows.iter().take(top) {
            let (own, total) = (percent(row.own, table.samples), percent(row.total, table.samples));
            writeln!(text, "  {own:>5.1}%  {total:>5.1}%  {}", row.place.escape_debug())?;
        }
        if table.rows.len() > top {
            writeln!(
                text,
                "                  and {} more (--top, --json, -o flame.svg)",
                table.rows.len() - top
            )?;
        }
        writeln!(text)?;
    }
    if profile.lost > 0 {
        writeln!(text, "{} samples were lost for lack of room: sample less often (--hertz)", profile.lost)?;
    }
    Ok(text)
}

fn percent(part: u64, whole: u64) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "a profile has far fewer samples than a float tells apart")]
    let percent = 100.0 * part as f64 / whole.max(1) as f64;
    percent
}
