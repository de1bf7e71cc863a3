//! `enginetap run`: the daemon.

use std::path::Path;
use std::thread;

use anyhow::{Context, Result};
use rustix::thread::{CapabilitySet, capabilities};
use tokio::sync::{mpsc, oneshot};

use super::attach::{runtime, seed};
use crate::cli::daemon::{Run, Source};
use crate::config::control::{Asked, Control};
use crate::config::layers::Layers;
use crate::config::order::Order;
use crate::config::own::OwnSettings;
use crate::config::steering::Steering;
use crate::config::watched::Watched;
use crate::discover::proc::Proc;
use crate::exit::{Exit, Refusal};
use crate::export::settings::{Environment, process_environment};
use crate::export::{Config, Overflow, Sinks};
use crate::probe;
use crate::session::{Feed, Follow, Live, Plan};

/// Orders that wait.
const ORDERS: usize = 16;

/// Runs `enginetap run` to its end.
///
/// # Errors
/// Whatever stopped it.
pub fn run(args: &Run) -> Result<Exit> {
    let Run { source, duration } = args;
    let steering = steering(source, seed()?)?;
    let own = OwnSettings::of(steering.layers());
    let mut config = Config::new(&own.output, &Environment(&process_environment), Overflow::Drop)?;
    config.terminal = config.terminal.filter(|_| own.terminal);
    let runtime = runtime()?;
    let _entered = runtime.enter();
    let (sender, orders) = mpsc::channel(ORDERS);
    let _control = Control::start(&own.socket, sender.clone())?;
    watch(&source.file().0, sender)?;
    let sinks = Sinks::start(config)?;
    let metrics = sinks.prometheus();
    let feed = Feed::new(steering.common(), Some(sinks), None);
    let plan = Plan {
        follow: Follow::new(Proc::system(), &[], true, steering.texts()),
        kernel: probe::Options {
            cap: own.cap,
            ring_bytes_total: own.ring,
            debug: false,
            measure: measurable(),
        },
        duration: *duration,
        until_exit: false,
        steering,
        orders: Some(orders),
        gpus: own.nvml.clone(),
        gc: own.gc,
    };
    let mut live = Live::attach(plan, feed)?;
    runtime.block_on(live.ready())?;
    eprintln!("enginetap: {live}; servers that start later are followed");
    if let Some(address) = metrics {
        eprintln!("enginetap: metrics and health at http://{address}");
    }
    runtime.block_on(live.run())?;
    Ok(Exit::Done)
}

/// Whether the kernel lets this process measure the run time of its programs, for the agent's own metrics.
fn measurable() -> bool {
    let may = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN));
    if !may {
        log::info!("without CAP_SYS_ADMIN there is no enginetap_kernel_seconds");
    }
    may
}

/// The settings: environment, command line, and the file, which must be right at the start.
pub(super) fn steering(source: &Source, seed: u64) -> Result<Steering> {
    let (file, named) = source.file();
    if named && !file.exists() {
        let what = format!("there is no file {}", file.display());
        return Err(Refusal::usage(what, "name one that is there, or none").into());
    }
    let mut steering = Steering::new(Layers::new(&process_environment, &source.set)?, seed).with_file(&file);
    steering.reload()?;
    Ok(steering)
}

/// Has the file read again whenever it may have changed.
fn watch(file: &Path, orders: mpsc::Sender<Asked>) -> Result<()> {
    let watched = match Watched::new(file) {
        Ok(watched) => watched,
        Err(error) => {
            log::warn!("{error:#}; changes of {} are read at SIGHUP only", file.display());
            return Ok(());
        }
    };
    let tell = move || {
        while watched.changed().is_ok() {
            // The session says what came of it.
            let (answer, _) = oneshot::channel();
            if orders.blocking_send(Asked { order: Order::Reload, answer }).is_err() {
                return;
            }
        }
    };
    let started = thread::Builder::new().name("configuration".to_owned()).spawn(tell);
    started.map(drop).context("cannot start the thread that watches the configuration")
}
