//! `enginetap attach`.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;
use tokio::runtime::{Builder, Runtime};

use super::target::servers;
use crate::cli::{self, Attach};
use crate::config::steering::Steering;
use crate::discover::proc::Proc;
use crate::exit::Exit;
use crate::export::settings::{Environment, process_environment};
use crate::export::{Config, Overflow, Sinks};
use crate::probe;
use crate::session::{Feed, Figures, Follow, Live, Plan};
use crate::settings::layers;

/// Runs `enginetap attach` to its end.
///
/// # Errors
/// Whatever stopped it.
pub fn run(args: &Attach) -> Result<Exit> {
    let Attach { target, output, collect, kernel, gpus, self_stats } = args;
    let steering = Steering::new(layers(collect, &process_environment)?, seed()?);
    let sinks = Config::new(output, &Environment(&process_environment), Overflow::Drop)?;
    let settings = steering.common();
    let plan = plan(target, kernel, gpus, self_stats.is_some(), steering)?;
    let sinks = Sinks::start(sinks)?;
    if let Some(address) = sinks.prometheus() {
        log::info!("Prometheus finds the metrics at http://{address}/metrics");
    }
    let figures = session(plan, Feed::new(settings, Some(sinks), None))?;
    if let Some(path) = self_stats {
        write_json(path, &figures)?;
    }
    Ok(Exit::Done)
}

/// What a session is to do, by the command line. `measure`: whether the kernel programs' run time is wanted.
pub(super) fn plan(
    target: &cli::Target,
    kernel: &cli::Kernel,
    gpus: &cli::Gpus,
    measure: bool,
    steering: Steering,
) -> Result<Plan> {
    let cli::Target { pid, duration, until_exit } = target;
    let cli::Kernel { cap, ring, gc, debug_kernel } = kernel;
    let proc = Proc::system();
    let families = servers(&proc, pid)?;
    Ok(Plan {
        follow: Follow::new(proc, &families, pid.is_empty(), steering.texts()),
        kernel: probe::Options { cap: *cap, ring_bytes_total: *ring, debug: *debug_kernel, measure },
        duration: *duration,
        until_exit: *until_exit,
        steering,
        orders: None,
        gpus: gpus.nvml.clone(),
        gc: *gc,
    })
}

/// Runs a session on this thread to its end.
pub(super) fn session(plan: Plan, feed: Feed) -> Result<Figures> {
    let runtime = runtime()?;
    let _entered = runtime.enter();
    let mut live = Live::attach(plan, feed)?;
    runtime.block_on(live.ready())?;
    // On standard error: standard output is the results'.
    eprintln!("enginetap: {live}; Ctrl-C detaches");
    runtime.block_on(live.run())
}

pub(super) fn runtime() -> Result<Runtime> {
    Builder::new_current_thread().enable_all().build().context("cannot start the runtime")
}

/// A seed for trace and span ids.
pub(super) fn seed() -> Result<u64> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .context("the kernel gives no random numbers")?;
    Ok(u64::from_ne_bytes(bytes))
}

/// Writes figures to a file.
pub(super) fn write_json(path: &Path, figures: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(figures)?;
    std::fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))
}
