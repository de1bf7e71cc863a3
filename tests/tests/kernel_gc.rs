//! How long a Python collects garbage, as the running kernel tells it. As root.

#![allow(clippy::unwrap_used, reason = "a test says by a panic what is wrong")]

use anyhow::{Context, Result, ensure};
use enginetap::discover::gc::{Collector, find};
use enginetap::discover::proc::Proc;
use enginetap::probe::Options;
use enginetap_common::config::GC_LEAST;
use enginetap_core::capture::record::Mark;
use enginetap_core::ids::Pid;
use enginetap_tests::live::{Live, Script};

/// Collects on cue, and says how long that took: a whole collection of many objects, then ones of nothing.
const COLLECTS: &str = "
import gc
gc.disable()
keep = [[n] for n in range(1_000_000)]
def collect(generation):
    begun = time.monotonic_ns(); gc.collect(generation)
    print(generation, begun, time.monotonic_ns(), flush=True)
ready()
collect(2)
ready()
for _ in range(100): gc.collect(0)
ready()
collect(2)
";

/// The interpreter's collector; `None` where its file really names none (Debian's own Python was stripped of its symbols):
/// then that it is said is all there is to test.
fn collector(pid: Pid) -> Result<Option<Collector>> {
    let why = match find(&Proc::system(), pid) {
        Ok(collector) => return Ok(Some(collector)),
        Err(why) => why,
    };
    let program = std::fs::read(format!("/proc/{}/exe", pid.0))?;
    let names_it = program.windows(NAME.len()).any(|bytes| bytes == NAME);
    ensure!(why.contains("stripped") && !names_it, "{why}");
    eprintln!("of this interpreter only that it cannot be timed: {why}");
    Ok(None)
}

/// The collector's name in a file that keeps its symbols.
const NAME: &[u8] = b"gc_collect_main";

/// The next collection that the script tells of: generation, begin and end.
fn told(script: &mut Script) -> Result<[u64; 3]> {
    script.go()?;
    let line = script.line()?;
    let words: Vec<u64> = line.split(' ').map(str::parse).collect::<Result<_, _>>()?;
    words.try_into().ok().context(line)
}

#[test]
fn a_long_collection_is_told_with_its_time_and_generation_and_short_ones_are_not() -> Result<()> {
    let mut live = Live::load(&Options::default())?;
    let mut script = live.script(COLLECTS)?;
    let Some(collector) = collector(script.pid())? else { return Ok(()) };
    live.probe.attach_gc(script.pid(), &collector)?;
    let [generation, begun, ended] = told(&mut script)?;
    script.expect_ready()?;
    // A hundred of nothing, each some microseconds.
    script.go()?;
    script.expect_ready()?;
    live.flush();
    let seen = live.marks();
    let first = seen.first().context("no collection was seen")?;
    let (at, Mark::Collected { took, generation: told_generation }) = *first else {
        anyhow::bail!("{seen:?}")
    };
    assert_eq!(u64::try_from(told_generation)?, generation);
    let from = at - took.0;
    assert!(begun <= from && at <= ended, "{begun} <= {from}, {at} <= {ended}");
    // Nearly all of what the script measured: the call around it is short, but the thread may lose its CPU there.
    assert!(took.0 >= GC_LEAST && took.0 <= ended - begun, "{took:?}");
    // One of nothing takes as long only where the thread lost its CPU in it.
    assert!(seen.len() < 50, "{}", seen.len());
    live.probe.detach_gc(script.pid())?;
    told(&mut script)?;
    let before = seen.len();
    live.finish(&mut script)?;
    assert_eq!(live.marks().len(), before, "nothing is told any more");
    Ok(())
}
