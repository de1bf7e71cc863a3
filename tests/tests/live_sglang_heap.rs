//! SGLang's own objects, read while it serves.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use enginetap::discover::proc::Proc;
use enginetap::heap::Interpreter;
use enginetap::session::clock;
use enginetap_core::heap::sglang::{Frontend, Scheduler};
use enginetap_core::ids::Pid;

#[test]
#[ignore = "by hand"]
fn sample() -> Result<()> {
    let pid = |name: &str| anyhow::Ok(Pid(std::env::var(name)?.parse()?));
    let seconds: u64 = std::env::var("SECONDS")?.parse()?;
    let (scheduler, frontend) = (pid("SCHEDULER")?, pid("FRONTEND")?);
    let found = Interpreter::find(&Proc::system(), scheduler)?;
    let mut heap = found.open()?;
    let begun = Instant::now();
    let mut sched = Scheduler::find(&mut heap, scheduler)?.context("no scheduler")?;
    println!("{found}: {} found in {:?}", sched.function(), begun.elapsed());
    let mut fheap = Interpreter::find(&Proc::system(), frontend)?.open()?;
    let mut front = Frontend::find(&mut fheap, frontend)?.context("no frontend")?;
    let mut states = std::collections::BTreeMap::new();
    let mut fronts = std::collections::BTreeMap::new();
    let (mut samples, mut busy, mut spent, mut worst) = (0, 0, Duration::ZERO, Duration::ZERO);
    let before = heap.cost();
    let mut calls = 0;
    while begun.elapsed().as_secs() < seconds {
        let now = clock().mono;
        let cost = heap.cost();
        let start = Instant::now();
        let sampled = sched.sample(&mut heap, now, None);
        let took = start.elapsed();
        samples += 1;
        if sampled.requests > 0 {
            busy += 1;
            spent += took;
            worst = worst.max(took);
            calls += heap.cost().calls - cost.calls;
        }
        if let Some(snapshot) = sampled.snapshot {
            for state in snapshot.requests {
                states.insert(state.rid.clone(), state);
            }
            if let Some(load) = snapshot.load {
                println!("{:?} {load:?}", snapshot.batch);
            }
        }
        let (snapshot, _) = front.sample(&mut fheap, clock().mono);
        for (rid, times) in snapshot.into_iter().flat_map(|snapshot| snapshot.requests) {
            fronts.insert(rid, times);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    println!(
        "{samples} samples, {busy} busy, {:?} each, worst {worst:?}, {} calls each; {:?} {:?} before {before:?}",
        spent / busy.max(1),
        calls / u64::from(busy.max(1)),
        heap.cost(),
        heap.refused()
    );
    println!("frontend: {:?} {:?}", fheap.cost(), fheap.refused());
    std::fs::write("/tmp/heapwork/states.json", serde_json::to_vec(&(&states, &fronts))?)?;
    println!(
        "{} states {} fronts; {:#?} {:#?}",
        states.len(),
        fronts.len(),
        states.values().next(),
        fronts.values().next()
    );
    Ok(())
}
