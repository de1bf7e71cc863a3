//! The frontend's objects.

use std::collections::HashMap;

use super::parts::{moments, values};
use super::plan::{FRONTEND, FRONTEND_TIMES};
use crate::dialect::signal::sglang::{FrontendSnapshot, FrontendTimes};
use crate::heap::scalars::Cell;
use crate::heap::{Addr, Heap, Memory, Ref, Refusal, Verdicts};
use crate::ids::Pid;
use crate::time::MonoTime;

/// Pieces of one reading.
const PIECES: usize = 1 << 15;
/// Requests looked at in one reading.
const REQUESTS_LIMIT: usize = 2048;
/// Readings in one sample.
const TRIES: usize = 3;

/// A frontend that was found.
#[derive(Debug)]
pub struct Frontend {
    pid: Pid,
    /// The module whose global leads to the requests.
    module: Addr,
    known: HashMap<String, FrontendTimes>,
}

/// One reading.
struct Reading {
    rids: Vec<Cell>,
    times: Vec<super::parts::Values>,
    whole: bool,
}

impl Frontend {
    /// Finds the frontend's module in a process; `None` where it has none.
    ///
    /// # Errors
    /// When the table of modules could not be read.
    pub fn find<M: Memory>(heap: &mut Heap<M>, pid: Pid) -> Result<Option<Self>, Refusal> {
        heap.begin(PIECES);
        let module = heap.module(FRONTEND.0)?;
        Ok(module.map(|module| Self { pid, module: module.addr, known: HashMap::new() }))
    }

    /// Reads its requests; those that changed since the sample before, and how many there are. `at`: now.
    pub fn sample<M: Memory>(
        &mut self,
        heap: &mut Heap<M>,
        at: MonoTime,
    ) -> (Option<FrontendSnapshot>, usize) {
        let mut snapshot = FrontendSnapshot { pid: self.pid, at, requests: Vec::new() };
        let mut requests = 0;
        for _ in 0..TRIES {
            heap.begin(PIECES);
            let Ok(reading) = self.read(heap) else { continue };
            let verdicts = heap.verify();
            requests = reading.rids.len();
            if self.take(&reading, &verdicts, &mut snapshot) {
                break;
            }
        }
        ((!snapshot.requests.is_empty()).then_some(snapshot), requests)
    }

    fn read<M: Memory>(&self, heap: &mut Heap<M>) -> Result<Reading, Refusal> {
        let (_, path, stats) = FRONTEND;
        let end = heap.paths(Ref::root(self.module), &[path]).pop().unwrap_or(Ok(None))?;
        let Some(requests) = end else {
            return Ok(Reading { rids: Vec::new(), times: Vec::new(), whole: true });
        };
        let mut entries = heap.entries(requests)?;
        // The newest are last.
        let older = entries.len().saturating_sub(REQUESTS_LIMIT);
        entries.drain(..older);
        let keys: Vec<Ref> = entries.iter().map(|(key, _)| *key).collect();
        let wants: Vec<(Ref, &'static str)> = entries.iter().map(|(_, state)| (*state, stats)).collect();
        let rids = heap.scalars(&keys);
        let stats = heap.attributes(&wants);
        let found: Vec<(Cell, Ref)> =
            rids.into_iter().zip(stats).filter_map(|(rid, stats)| Some((rid.ok()?, stats.ok()??))).collect();
        let whole = found.len() == entries.len();
        let names: Vec<&'static str> = FRONTEND_TIMES.iter().map(|(name, _)| *name).collect();
        let times = values(heap, &found.iter().map(|(_, stats)| *stats).collect::<Vec<_>>(), &names);
        Ok(Reading { rids: found.into_iter().map(|(rid, _)| rid).collect(), times, whole })
    }

    /// Takes over what is to be believed; whether all of it was.
    fn take(&mut self, reading: &Reading, verdicts: &Verdicts, snapshot: &mut FrontendSnapshot) -> bool {
        let mut whole = reading.whole;
        let mut there = Vec::with_capacity(reading.rids.len());
        for (rid, values) in reading.rids.iter().zip(&reading.times) {
            if !rid.good(verdicts) {
                whole = false;
                continue;
            }
            let Some(rid) = rid.value.text() else { continue };
            let mut times = FrontendTimes::default();
            if moments(&mut times, FRONTEND_TIMES, values, verdicts, snapshot.at).is_err() {
                whole = false;
                continue;
            }
            there.push(rid);
            if times != FrontendTimes::default() && self.known.get(rid) != Some(&times) {
                self.known.insert(rid.to_owned(), times);
                snapshot.requests.retain(|(earlier, _)| earlier != rid);
                snapshot.requests.push((rid.to_owned(), times));
            }
        }
        if whole {
            self.known.retain(|rid, _| there.contains(&rid.as_str()));
        }
        whole
    }
}
