//! What the probe costs. On the running kernel; as root. Figures are printed, not asserted: machines differ.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use enginetap::probe::Options;
use enginetap_core::capture::record::Body;
use enginetap_tests::live::Live;

/// Resident memory of this process now and at its peak, in KiB.
fn resident() -> Result<(u64, u64)> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let field = |name: &str| -> Result<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).context("no such line")?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    };
    Ok((field("VmRSS:")?, field("VmHWM:")?))
}

#[test]
fn loading_and_detaching_take_what_is_printed_and_leave_nothing() -> Result<()> {
    let (small, _) = resident()?;
    let before = Instant::now();
    let live = Live::load(&Options::default())?;
    let loaded = before.elapsed();
    let (now, peak) = resident()?;
    println!("resident: {small} KiB before, {now} KiB loaded, {peak} KiB at the peak");
    let ids = live.probe.program_ids()?;
    // Those on functions of a process are loaded when the first process needs them; of the two on the end of processes the kernel
    // takes one.
    let lazy =
        ["forward", "tls_entered", "tls_returned", "tls_freed", "gc_entered", "gc_returned", "sampled"];
    ensure!(ids.len() == enginetap::probe::PROGRAMS.len() - lazy.len() - 1);
    let before = Instant::now();
    drop(live);
    println!("load and attach {loaded:?}, detach {:?}", before.elapsed());
    // The kernel frees them a little later, when no CPU can be running them any more.
    let left =
        || anyhow::Ok(enginetap::probe::programs_loaded()?.into_iter().filter(|id| ids.contains(id)).count());
    while left()? > 0 {
        ensure!(before.elapsed().as_secs() < 10, "{} programs are still in the kernel", left()?);
    }
    println!("gone after {:?}", before.elapsed());
    Ok(())
}

#[test]
fn at_a_hundred_thousand_records_a_second_every_record_is_seen_or_counted() -> Result<()> {
    let mut live = Live::load(&Options { measure: true, ..Options::default() })?;
    let mut script = live.script(
        "
ready()
client, server = pair()
data = pattern(350)
start = time.monotonic()
for _ in range(40000):
    client.send(data); server.recv(350)
print(time.monotonic() - start, flush=True)
ready()
",
    )?;
    script.go()?;
    let before = live.probe.run_time()?;
    while live.records.len() < 79_000 && live.lost()? == 0 {
        live.round()?;
    }
    let seconds: f64 = script.line()?.parse()?;
    script.go()?;
    live.finish(&mut script)?;
    let exit = |all: &[enginetap::probe::RunTime]| {
        all.iter()
            .find(|one| one.program == "sys_exit")
            .map(|one| (one.runs, one.time.0))
            .context("no sys_exit")
    };
    let (runs, nanos) = exit(&live.probe.run_time()?)?;
    let (runs, nanos) = (runs - exit(&before)?.0, nanos - exit(&before)?.1);
    let data = live.parsed().filter(|record| matches!(record.body, Body::Data(_))).count();
    println!(
        "80,000 records in {seconds:.2} s, {} lost; {} ns a run of sys_exit over {runs} runs of the machine, {} ns a record",
        live.lost()?,
        nanos / runs.max(1),
        nanos / 80_000
    );
    assert_eq!(u64::try_from(data)? + live.lost()?, 80_000);
    Ok(())
}
