//! Profiles of real Pythons that are busy in a known way. As root.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use enginetap::discover::proc::Proc;
use enginetap::profile::Profiler;
use enginetap_core::ids::Pid;
use enginetap_core::profile::{Process, Profile, Row, Table};
use enginetap_tests::heap::{pythons, script};

const HERTZ: u32 = 199;
const LENGTH: Duration = Duration::from_secs(2);

/// A Python that is busy, ended when it is dropped.
struct Busy(Child);

impl Busy {
    fn start(program: &str, arguments: &[&str]) -> Result<Self> {
        let mut child = Command::new(program)
            .args(arguments)
            .arg(script("busy.py"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context(program.to_owned())?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("no output")?).read_line(&mut line)?;
        ensure!(line == "go\n", "{program} said {line:?}");
        Ok(Self(child))
    }

    fn pid(&self) -> Pid {
        Pid(self.0.id())
    }

    /// Its only child.
    fn child(&self) -> Result<Pid> {
        let pid = self.0.id();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
        Ok(Pid(children.trim().parse().context(children)?))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Seconds of CPU time that a process has used: `utime` and `stime` of its `stat`, hundredths of a second.
fn used(pid: Pid) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.0))?;
    let (_, rest) = stat.rsplit_once(") ").context("stat")?;
    let ticks: Vec<f64> = rest.split(' ').skip(11).take(2).map(str::parse).collect::<Result<_, _>>()?;
    Ok(ticks.iter().sum::<f64>() / 100.0)
}

fn profile(pid: Pid) -> Result<Profile> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _entered = runtime.enter();
    let process = Process { pid, title: "busy".to_owned() };
    let profiler = Profiler::start(&Proc::system(), vec![process], HERTZ)?;
    let before = used(pid)?;
    let profile = runtime.block_on(profiler.run(LENGTH))?;
    let (told, used) = (profile.seconds(profile.samples()), used(pid)? - before);
    println!("    {used:.2} s of CPU time used, {told:.2} s told");
    ensure!((told - used).abs() < 0.2 + used / 5.0, "{used:.2} s of CPU time used, {told:.2} s told");
    Ok(profile)
}

fn row<'a>(table: &'a Table, name: &str) -> Result<&'a Row> {
    let named = |row: &&Row| row.place.starts_with(name) && row.place.contains("busy.py:");
    table.rows.iter().find(named).with_context(|| format!("no {name} in {table:#?}"))
}

/// Holds a profile against what the script does: three to one, everything below one step, and each function on its line.
fn check(profile: &Profile) -> Result<()> {
    let tables = Table::all(profile);
    let [table] = tables.as_slice() else { anyhow::bail!("{tables:#?}") };
    let (hot, cold) = (row(table, "hot")?, row(table, "cold")?);
    let step = row(table, "Engine.step").or_else(|_| row(table, "step"))?;
    println!("    hot {}, cold {}, step {} of {} samples", hot.own, cold.own, step.total, table.samples);
    ensure!(hot.place.ends_with("busy.py:8)") && cold.place.ends_with("busy.py:15)"), "{hot:?} {cold:?}");
    ensure!(hot.own > cold.own, "{table:#?}");
    // Of all but the first moments, in which the thread may not be known yet.
    ensure!(step.total * 10 >= table.samples * 9, "{table:#?}");
    ensure!(hot.own + cold.own + step.own <= step.total && profile.lost == 0, "{table:#?}");
    Ok(())
}

#[test]
fn where_a_python_of_each_version_is_busy_is_told_by_function_and_line() -> Result<()> {
    for program in pythons()? {
        println!("{program}");
        let busy = Busy::start(&program, &[])?;
        check(&profile(busy.pid())?).context(program)?;
    }
    Ok(())
}

#[test]
fn threads_of_a_pid_namespace_are_known_by_their_numbers_outside_it() -> Result<()> {
    let program = pythons()?.pop().context("no Python")?;
    let busy = Busy::start("unshare", &["--pid", "--fork", "--kill-child", &program])?;
    check(&profile(busy.child()?)?)
}

#[test]
fn a_process_without_python_is_told_by_the_names_of_its_threads() -> Result<()> {
    let mut child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn()?;
    let profile = profile(Pid(child.id()));
    child.kill()?;
    child.wait()?;
    let folded = profile?.folded();
    ensure!(folded.starts_with("busy (pid ") && folded.contains(";[native thread sh] "), "{folded}");
    Ok(())
}
