//! Outputs that write: each on a thread of its own, behind a bounded queue, so that a slow disk or a full pipe holds
//! up nothing else.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;

use anyhow::{Context, Result};
use enginetap_core::model::log::Log;
use enginetap_core::model::span::Trace;
use tokio::sync::oneshot;

use super::counts::{Counts, count};
use super::resource::{Resource, Snapshot};

/// Traces and readings that wait for one output.
const QUEUE: usize = 1024;

/// Something that writes what it is given.
pub(super) trait Output: Send + 'static {
    /// A request is over.
    fn trace(&mut self, resource: &Arc<Resource>, trace: &Arc<Trace>) -> io::Result<()>;
    /// A line of a log.
    fn log(&mut self, resource: &Arc<Resource>, log: &Arc<Log>) -> io::Result<()>;
    /// A reading of all metrics.
    fn metrics(&mut self, snapshot: &Arc<Snapshot>) -> io::Result<()>;
    /// Nothing more comes: writes what was held back.
    fn finish(&mut self) -> io::Result<()>;
    /// Hands on what is buffered.
    fn flush(&mut self) -> io::Result<()>;
}

/// What to do where a queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// Drop and count: the source cannot wait (live).
    Drop,
    /// Wait for room: the source can (replay).
    Wait,
}

pub(super) enum Item {
    Trace(Arc<Resource>, Arc<Trace>),
    Log(Arc<Resource>, Arc<Log>),
    Metrics(Arc<Snapshot>),
}

impl Item {
    /// Spans, lines or points in it.
    fn len(&self) -> u64 {
        match self {
            Self::Trace(_, trace) => count(trace.spans.len()),
            Self::Log(..) => 1,
            Self::Metrics(snapshot) => count(snapshot.len()),
        }
    }
}

/// The way to an output's thread.
pub(super) struct Writer {
    items: SyncSender<Item>,
    closed: Arc<AtomicBool>,
    done: oneshot::Receiver<()>,
    counts: Arc<Counts>,
    overflow: Overflow,
}

impl Writer {
    /// Starts the thread.
    ///
    /// # Errors
    /// When there can be no more threads.
    pub(super) fn start(
        name: &'static str,
        output: impl Output,
        counts: Arc<Counts>,
        overflow: Overflow,
    ) -> Result<Self> {
        let (items, incoming) = sync_channel(QUEUE);
        let (over, done) = oneshot::channel();
        let closed = Arc::new(AtomicBool::new(false));
        let thread =
            Thread { name, output, counts: counts.clone(), closed: closed.clone(), complained: false };
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                thread.run(&incoming);
                // The front may have stopped waiting.
                let _ = over.send(());
            })
            .with_context(|| format!("cannot start the thread of {name}"))?;
        Ok(Self { items, closed, done, counts, overflow })
    }

    /// Whether whoever read the output is gone (a closed pipe).
    pub(super) fn closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(super) fn put(&self, item: Item) {
        let n = item.len();
        match self.overflow {
            // A closed output takes nothing, and nothing is lost by it: nobody reads.
            Overflow::Wait => drop(self.items.send(item)),
            Overflow::Drop => {
                if let Err(TrySendError::Full(_)) = self.items.try_send(item) {
                    self.counts.queue_full(n);
                }
            }
        }
    }

    /// Lets the thread end; what it returns becomes ready when everything is written.
    pub(super) fn end(self) -> oneshot::Receiver<()> {
        self.done
    }
}

struct Thread<O> {
    name: &'static str,
    output: O,
    counts: Arc<Counts>,
    closed: Arc<AtomicBool>,
    complained: bool,
}

impl<O: Output> Thread<O> {
    fn run(mut self, incoming: &Receiver<Item>) {
        while let Ok(first) = incoming.recv() {
            let mut next = Some(first);
            while let Some(item) = next {
                if self.take(&item).is_break() {
                    return;
                }
                next = incoming.try_recv().ok();
            }
            let flushed = self.output.flush();
            if self.judge(flushed, 0).is_break() {
                return;
            }
        }
        let last = self.output.finish().and_then(|()| self.output.flush());
        let _ = self.judge(last, 0);
    }

    fn take(&mut self, item: &Item) -> std::ops::ControlFlow<()> {
        let written = match item {
            Item::Trace(resource, trace) => self.output.trace(resource, trace),
            Item::Log(resource, log) => self.output.log(resource, log),
            Item::Metrics(snapshot) => self.output.metrics(snapshot),
        };
        self.judge(written, item.len())
    }

    /// A closed pipe ends the output quietly; any other error is counted, and said once.
    fn judge(&mut self, written: io::Result<()>, n: u64) -> std::ops::ControlFlow<()> {
        match written {
            Ok(()) => self.counts.delivered(n),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.closed.store(true, Ordering::Release);
                return std::ops::ControlFlow::Break(());
            }
            Err(error) => {
                self.counts.failed(n);
                if !self.complained {
                    self.complained = true;
                    log::warn!(
                        "cannot write to {}: {error}; what is not written is counted. Is there room and permission?",
                        self.name
                    );
                }
            }
        }
        std::ops::ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use enginetap_core::loss::Loss;

    use super::*;
    use crate::export::sample;

    /// Writes nothing: holds, fails or counts.
    struct Fake {
        gate: Arc<Mutex<()>>,
        error: Option<ErrorKind>,
        seen: Arc<Counts>,
    }

    impl Output for Fake {
        fn trace(&mut self, _: &Arc<Resource>, _: &Arc<Trace>) -> io::Result<()> {
            drop(self.gate.lock().unwrap());
            self.seen.delivered(1);
            self.error.map_or(Ok(()), |kind| Err(kind.into()))
        }

        fn log(&mut self, _: &Arc<Resource>, _: &Arc<Log>) -> io::Result<()> {
            Ok(())
        }

        fn metrics(&mut self, _: &Arc<Snapshot>) -> io::Result<()> {
            Ok(())
        }

        fn finish(&mut self) -> io::Result<()> {
            self.seen.failed(1);
            Ok(())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn fake(error: Option<ErrorKind>) -> (Fake, Arc<Mutex<()>>, Arc<Counts>) {
        let (gate, seen) = (Arc::new(Mutex::new(())), Arc::new(Counts::default()));
        (Fake { gate: gate.clone(), error, seen: seen.clone() }, gate, seen)
    }

    fn item() -> Item {
        Item::Trace(sample::resource(), Arc::new(sample::refused()))
    }

    #[tokio::test]
    async fn an_output_that_hangs_drops_what_does_not_fit_and_counts_it() {
        let (output, gate, seen) = fake(None);
        let counts = Arc::new(Counts::default());
        let writer = Writer::start("fake", output, counts.clone(), Overflow::Drop).unwrap();
        let held = gate.lock().unwrap();
        for _ in 0..QUEUE + 11 {
            writer.put(item());
        }
        let lost = counts.losses().get(Loss::QueueFull);
        assert!((10..=11).contains(&lost), "{lost}");
        drop(held);
        writer.end().await.unwrap();
        assert_eq!(seen.total_delivered() + lost, count(QUEUE + 11));
        assert_eq!(seen.losses().get(Loss::ExportFailed), 1, "finish is called once");
    }

    #[tokio::test]
    async fn a_source_that_can_wait_loses_nothing() {
        let (output, _, seen) = fake(None);
        let counts = Arc::new(Counts::default());
        let writer = Writer::start("fake", output, counts.clone(), Overflow::Wait).unwrap();
        (0..3 * QUEUE).for_each(|_| writer.put(item()));
        writer.end().await.unwrap();
        assert_eq!((seen.total_delivered(), counts.total_delivered()), (count(3 * QUEUE), count(3 * QUEUE)));
    }

    #[tokio::test]
    async fn a_closed_pipe_ends_the_output_quietly_and_a_full_disk_is_counted() {
        let counts = Arc::new(Counts::default());
        let writer =
            Writer::start("pipe", fake(Some(ErrorKind::BrokenPipe)).0, counts.clone(), Overflow::Drop)
                .unwrap();
        writer.put(item());
        while !writer.closed() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        writer.put(item());
        assert!(counts.losses().iter().all(|(_, n)| n == 0));

        let writer =
            Writer::start("disk", fake(Some(ErrorKind::StorageFull)).0, counts.clone(), Overflow::Drop)
                .unwrap();
        writer.put(item());
        writer.end().await.unwrap();
        assert_eq!(counts.losses().get(Loss::ExportFailed), 1);
    }
}
