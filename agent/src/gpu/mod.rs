//! The machine's GPUs, read by NVML on a thread of its own: a call of the driver may take long, or never end.
//!
//! The library is loaded when the agent runs, so that one binary serves machines with and without a GPU. No library, no
//! driver or no GPU is an ordinary state, said once. NVML that is lost while the agent runs (the driver is replaced) is
//! said, and looked for again.

mod library;
mod links;
mod machine;
mod owners;

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use enginetap_core::gpu::reading::Reading;
use tokio::sync::mpsc;

use crate::session::clock;

pub use library::{Absent, Nvml, Source, open};
use machine::Machine;
pub use owners::Owners;

/// How often the GPUs are read. NVML's own figures change once to six times a second.
const PERIOD: Duration = Duration::from_secs(1);
/// How long until NVML is looked for again where it is not, or was lost: at first, and after many times in vain.
const SOON: Duration = Duration::from_secs(1);
const LATE: Duration = Duration::from_secs(64);
/// Readings that may wait for the session.
const WAITING: usize = 4;

/// The reading of GPUs.
#[derive(Debug)]
pub struct Gpus {
    readings: mpsc::Receiver<Reading>,
    /// The thread ends when this is dropped. Nobody waits for it: the driver may never answer.
    _stop: Option<Sender<()>>,
}

impl Gpus {
    /// Starts the thread, unless GPUs are not to be read.
    ///
    /// # Errors
    /// When there can be no other thread.
    pub fn start(source: Source) -> std::io::Result<Self> {
        let (sender, readings) = mpsc::channel(WAITING);
        if source == Source::None {
            return Ok(Self { readings, _stop: None });
        }
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new().name("enginetap-gpus".to_owned());
        thread.spawn(move || Reader { source, sender, stopped, said: None }.run())?;
        Ok(Self { readings, _stop: Some(stop) })
    }

    /// The next reading. Never comes where there is no GPU.
    pub async fn next(&mut self) -> Reading {
        match self.readings.recv().await {
            Some(reading) => reading,
            None => std::future::pending().await,
        }
    }
}

/// What a machine has, for a preflight: its driver's version and the models of its GPUs.
///
/// # Errors
/// Why nothing of GPUs will be told.
pub fn look(source: &Source) -> Result<(Option<String>, Vec<String>), Absent> {
    let nvml = open(source)?;
    let reading =
        Machine::new(&nvml).read(clock().mono).map_err(|error| Absent::Refused(error.to_string()))?;
    let whole = reading.devices.into_iter().filter(|device| device.parent.is_none());
    Ok((reading.driver, whole.map(|device| device.model).collect()))
}

/// The thread.
struct Reader {
    source: Source,
    sender: mpsc::Sender<Reading>,
    stopped: Receiver<()>,
    /// Why there was no NVML, as it was said last.
    said: Option<String>,
}

/// Why reading ended.
enum End {
    /// Nobody wants readings any more.
    Unwanted,
    /// NVML does not answer any more.
    Lost(String),
}

impl Reader {
    fn run(mut self) {
        let mut again = SOON;
        loop {
            match open(&self.source) {
                Ok(nvml) => match self.read(&nvml) {
                    End::Unwanted => return,
                    End::Lost(why) => {
                        self.lost(why);
                        again = SOON;
                    }
                },
                Err(absent) => self.say(&absent),
            }
            if !self.pause(again) {
                return;
            }
            again = (again * 2).min(LATE);
        }
    }

    fn read(&mut self, nvml: &Nvml) -> End {
        self.said = None;
        let mut machine = Machine::new(nvml);
        let mut told = false;
        loop {
            let begun = Instant::now();
            let reading = match machine.read(clock().mono) {
                Ok(reading) => reading,
                Err(error) => return End::Lost(error.to_string()),
            };
            if !std::mem::replace(&mut told, true) {
                log::info!("{} GPUs are read by NVML", reading.devices.len());
            }
            // A session that is behind gets the next one.
            if let Err(mpsc::error::TrySendError::Closed(_)) = self.sender.try_send(reading) {
                return End::Unwanted;
            }
            if !self.pause(PERIOD.saturating_sub(begun.elapsed())) {
                return End::Unwanted;
            }
        }
    }

    fn lost(&mut self, why: String) {
        log::warn!("NVML is lost: {why}; GPUs are not told of until it answers again");
        let reading = Reading { at: clock().mono, lost: Some(why), ..Reading::default() };
        // The session ends: it needs none.
        let _ = self.sender.blocking_send(reading);
    }

    /// Says why there is no NVML, once a reason.
    fn say(&mut self, absent: &Absent) {
        let text = absent.to_string();
        if self.said.as_ref() == Some(&text) {
            return;
        }
        match absent {
            Absent::NoLibrary | Absent::NoDriver => log::info!("{text}; nothing is told of GPUs"),
            Absent::Unloadable { .. } | Absent::Refused(_) => {
                log::warn!("{text}; nothing is told of GPUs until it answers");
            }
        }
        self.said = Some(text);
    }

    /// Waits; whether readings are still wanted then.
    fn pause(&self, length: Duration) -> bool {
        matches!(self.stopped.recv_timeout(length), Err(RecvTimeoutError::Timeout))
    }
}
