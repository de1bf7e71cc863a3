//! What threads waited for, as the running kernel tells it: a process starved by a neighbour, and one by its own cgroup.
//! As root.

#![allow(clippy::unwrap_used, reason = "a test says by a panic what is wrong")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use enginetap::discover::proc::Proc;
use enginetap::session::clock;
use enginetap::waits::{PERIOD, Watch};
use enginetap_core::capture::fact::{Fact, Waits};
use enginetap_core::ids::Pid;
use enginetap_core::time::Nanos;
use enginetap_tests::live::Script;

/// Most time for what must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// Works without end on one CPU, the same for all of them, once it is told to go: in its main thread, or in another.
fn busy(threaded: bool) -> Result<Script> {
    let work = if threaded {
        "threading.Thread(target=work, daemon=True).start()\ntime.sleep(600)"
    } else {
        "work()"
    };
    let text = format!(
        "
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
def work():
    while True: pass
ready()
{work}
"
    );
    Script::start(&text)
}

/// Reads a process's waits until they come to something.
fn waits(pid: Pid, enough: impl Fn(&Waits) -> bool) -> Result<Waits> {
    let proc = Proc::system();
    let mut watch = Watch::default();
    watch.follow(&proc, [pid].into_iter(), clock().mono);
    let mut sum = Waits { pid, from: clock().mono, ..Waits::default() };
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        std::thread::sleep(PERIOD);
        for fact in watch.read(&proc, clock().mono) {
            let Fact::Waits(waits) = fact else { continue };
            ensure!(waits.waited <= waits.to.since(waits.from), "no longer than it was looked at: {waits:?}");
            sum.waited.0 += waits.waited.0;
            sum.throttled.0 += waits.throttled.0;
            sum.to = waits.to;
        }
        if enough(&sum) {
            return Ok(sum);
        }
    }
    anyhow::bail!("{sum:?}")
}

const ENOUGH: Nanos = Nanos::from_millis(400);

#[test]
fn a_process_that_a_neighbour_starves_is_told_whichever_of_its_threads_works() -> Result<()> {
    for threaded in [false, true] {
        let (mut starved, mut neighbour) = (busy(threaded)?, busy(false)?);
        neighbour.go()?;
        starved.go()?;
        let told = waits(starved.pid(), |sum| sum.waited >= ENOUGH)?;
        let share = told.waited.seconds().0 / told.to.since(told.from).seconds().0;
        // Both want all of one CPU.
        assert!(share > 0.2, "threaded {threaded}: {told:?}");
    }
    Ok(())
}

#[test]
fn a_process_that_sleeps_waits_for_nothing() -> Result<()> {
    let mut script = Script::start("ready()\ntime.sleep(600)")?;
    script.go()?;
    let proc = Proc::system();
    std::thread::sleep(PERIOD);
    let mut watch = Watch::default();
    watch.follow(&proc, [script.pid()].into_iter(), clock().mono);
    for _ in 0..5 {
        std::thread::sleep(PERIOD);
        assert_eq!(watch.read(&proc, clock().mono), []);
    }
    Ok(())
}

/// A cgroup of its own that may use a fifth of a CPU. It goes with the value, once it is empty.
struct Quota(PathBuf);

impl Quota {
    /// `None` where this machine has no CPU controller.
    fn make() -> Option<Self> {
        let name = format!("enginetap-test-{}", std::process::id());
        let (one, two) = (Path::new("/sys/fs/cgroup/cpu"), Path::new("/sys/fs/cgroup"));
        let made = |at: &Path, settings: &[(&str, &str)]| {
            let folder = at.join(&name);
            std::fs::create_dir_all(&folder).ok()?;
            let quota = Self(folder);
            let set = |(file, value): &(&str, &str)| std::fs::write(quota.0.join(file), value).is_ok();
            settings.iter().all(set).then_some(quota)
        };
        if one.join("cpu.stat").exists() || one.join("cpu.shares").exists() {
            return made(one, &[("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "20000")]);
        }
        // The root has it, its children once they are told.
        let _ = std::fs::write(two.join("cgroup.subtree_control"), "+cpu");
        two.join("cgroup.controllers").exists().then(|| made(two, &[("cpu.max", "20000 100000")]))?
    }

    fn take(&self, pid: Pid) -> Result<()> {
        Ok(std::fs::write(self.0.join("cgroup.procs"), pid.0.to_string())?)
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        for _ in 0..50 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn a_process_whose_cgroup_has_used_up_its_quota_is_told_with_how_long() -> Result<()> {
    let Some(quota) = Quota::make() else {
        eprintln!("skipped: no CPU controller of cgroups here");
        return Ok(());
    };
    let mut script = busy(false)?;
    quota.take(script.pid())?;
    script.go()?;
    let told = waits(script.pid(), |sum| sum.throttled >= ENOUGH)?;
    // What the quota took is in what it waited: the agent tells the two apart by that.
    assert!(told.waited.0 * 10 >= told.throttled.0 * 8, "{told:?}");
    drop(script);
    Ok(())
}
