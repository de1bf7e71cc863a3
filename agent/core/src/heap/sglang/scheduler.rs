//! The scheduler's objects.

use std::collections::{HashMap, HashSet};

use super::kept;
use super::load::LoadReading;
use super::parts::moment;
use super::plan::{BATCHES, CHUNKED, FORWARDS, LAUNCHES, LOOPS, Path, REQUESTS, mode};
use super::requests::{Listed, Requests};
use crate::dialect::signal::sglang::{BatchState, Place, ReqState, SglangLoad, Snapshot};
use crate::heap::scalars::Cell;
use crate::heap::{Addr, Found, Heap, Memory, Ref, Refusal, Verdicts, Wanted};
use crate::ids::Pid;
use crate::time::{MonoTime, Nanos};

/// Pieces of one reading.
const PIECES: usize = 1 << 16;
/// Requests looked at in one reading: the others of a longer queue are seen when their turn comes.
const REQUESTS_LIMIT: usize = 2048;
/// Readings in one sample: one that met a change is done again.
const TRIES: usize = 3;
/// Walks through frames that move, until the loop is found.
const WALKS: usize = 50;
/// How often the scheduler's state is told.
const LOAD_PERIOD: Nanos = Nanos::from_millis(500);
/// A request that is in no list for longer is not being moved.
const MOVING: Nanos = Nanos::from_millis(50);
/// What one sample gave.
#[derive(Clone, Debug, Default)]
pub struct Sampled {
    /// What changed; `None`: nothing.
    pub snapshot: Option<Snapshot>,
    /// Requests the scheduler has.
    pub requests: usize,
    /// Whether the scheduler is not where it was: it is to be found again.
    pub lost: bool,
}

/// A scheduler that was found.
#[derive(Debug)]
pub struct Scheduler {
    pid: Pid,
    object: Addr,
    of_type: Addr,
    /// The function whose `self` it is.
    function: String,
    places: Vec<(Place, Path)>,
    /// Whether each step is wanted: the moments that change with every step.
    steps: bool,
    known: HashMap<String, ReqState>,
    /// Ids by address, as the reading before saw them.
    by_object: HashMap<Addr, String>,
    /// Since when requests are in no list. One that is moved from list to list is in none for a moment.
    missing: HashMap<String, MonoTime>,
    load: Option<SglangLoad>,
    load_at: MonoTime,
    batch: Option<BatchState>,
}

/// One reading, before it is known what of it is to be believed.
#[derive(Default)]
struct Reading {
    listed: Vec<Listed>,
    /// An item of each list, with the piece it was read from.
    lists: Vec<Ref>,
    /// Whether all lists could be read.
    whole: bool,
    requests: Requests,
    batch: Batch,
    load: Option<LoadReading>,
}

/// The batch last put together.
#[derive(Default)]
struct Batch {
    mode: Option<Cell>,
    forwards: Option<Cell>,
    launched: Option<Cell>,
    members: Vec<Ref>,
}

impl Scheduler {
    /// Finds the scheduler of a process: the `self` of its event loop.
    ///
    /// # Errors
    /// When its frames could not be walked, however often it was tried.
    pub fn find<M: Memory>(heap: &mut Heap<M>, pid: Pid) -> Result<Option<Self>, Refusal> {
        let wanted = Wanted { functions: LOOPS, file: "", local: "self" };
        let mut refused = None;
        for _ in 0..WALKS {
            heap.begin(PIECES);
            match heap.find(wanted) {
                Ok(Some(found)) => return Self::of(heap, pid, found).map(Some),
                Ok(None) => refused = None,
                Err(reason) => refused = Some(reason),
            }
            if heap.gone().is_some() {
                break;
            }
        }
        refused.map_or(Ok(None), Err)
    }

    fn of<M: Memory>(heap: &mut Heap<M>, pid: Pid, found: Found) -> Result<Self, Refusal> {
        let Found { object, of_type, function, thread: _ } = found;
        let mut scheduler = Self {
            pid,
            object,
            of_type,
            function,
            places: Vec::new(),
            steps: true,
            known: HashMap::new(),
            by_object: HashMap::new(),
            missing: HashMap::new(),
            load: None,
            load_at: MonoTime(0),
            batch: None,
        };
        // Twice: an attribute that one look misses is not there for good.
        for _ in 0..2 {
            heap.begin(PIECES);
            let names: Vec<&[&'static str]> = REQUESTS.iter().map(|(_, path)| &path[..1]).collect();
            for ((place, path), first) in REQUESTS.iter().zip(heap.paths(Ref::root(object), &names)) {
                if matches!(first, Ok(Some(_))) && !scheduler.places.contains(&(*place, *path)) {
                    scheduler.places.push((*place, path));
                }
            }
        }
        if scheduler.places.is_empty() { Err(Refusal::Absurd) } else { Ok(scheduler) }
    }

    /// The function whose `self` the scheduler is.
    #[must_use]
    pub fn function(&self) -> &str {
        &self.function
    }

    /// Whether each step is wanted: the moments that change with every step, and the tokens so far. Without, a running
    /// request is told when it enters a stage only.
    pub fn steps(&mut self, wanted: bool) {
        self.steps = wanted;
    }

    /// Reads its objects; what changed since the sample before. `at`: now. `mark`: the forward's start that is the reason
    /// to look.
    pub fn sample<M: Memory>(&mut self, heap: &mut Heap<M>, at: MonoTime, mark: Option<MonoTime>) -> Sampled {
        let mut snapshot = Snapshot {
            pid: self.pid,
            at,
            mark,
            requests: Vec::new(),
            batch: None,
            members: Vec::new(),
            launched: None,
            load: None,
        };
        let mut requests = 0;
        for _ in 0..TRIES {
            heap.begin(PIECES);
            let Ok(reading) = self.read(heap, at) else {
                return Sampled { lost: true, ..Sampled::default() };
            };
            let verdicts = heap.verify();
            requests = reading.listed.iter().filter(|listed| listed.place != Place::Kept).count();
            if self.take(heap, &reading, &verdicts, &mut snapshot) {
                break;
            }
        }
        let empty = snapshot.requests.is_empty()
            && snapshot.batch.is_none()
            && snapshot.members.is_empty()
            && snapshot.load.is_none();
        Sampled { snapshot: (!empty).then_some(snapshot), requests, lost: false }
    }

    /// One reading. Fails where the scheduler is not where it was.
    fn read<M: Memory>(&self, heap: &mut Heap<M>, at: MonoTime) -> Result<Reading, Refusal> {
        if heap.type_of(self.object)?.addr != self.of_type {
            return Err(Refusal::Torn);
        }
        let root = Ref::root(self.object);
        let mut reading = Reading { whole: true, ..Reading::default() };
        self.read_lists(heap, root, &mut reading);
        reading.load = self.load_due(at).then(|| LoadReading::read(heap, root));
        let known = |object| self.known.get(self.by_object.get(&object)?);
        reading.requests = Requests::read(heap, &mut reading.listed, self.steps, known);
        Ok(reading)
    }

    /// The lists with the requests in them, and the batch: all paths at once.
    fn read_lists<M: Memory>(&self, heap: &mut Heap<M>, root: Ref, reading: &mut Reading) {
        let mut paths: Vec<Path> = self.places.iter().map(|(_, path)| *path).collect();
        let modes = BATCHES.iter().filter(|(_, reqs)| self.places.iter().any(|(_, path)| path == reqs));
        paths.extend(modes.map(|(mode, _)| *mode));
        paths.extend([CHUNKED, FORWARDS].into_iter().chain(LAUNCHES).chain(kept::PATHS));
        let mut ends = heap.paths(root, &paths);
        let kept = ends.split_off(ends.len().saturating_sub(kept::PATHS.len()));
        let launches = ends.split_off(ends.len().saturating_sub(LAUNCHES.len()));
        let forwards = ends.pop().unwrap_or(Ok(None));
        let chunked = ends.pop().unwrap_or(Ok(None));
        let modes = ends.split_off(self.places.len().min(ends.len()));
        reading.whole &= ends.iter().all(Result::is_ok);
        let lists: Vec<(Place, Path, Ref)> = self
            .places
            .iter()
            .zip(ends)
            .filter_map(|((place, path), end)| Some((*place, *path, end.ok()??)))
            .collect();
        let items = heap.items(&lists.iter().map(|(_, _, list)| *list).collect::<Vec<_>>());
        let mut seen: HashMap<Addr, usize> = HashMap::new();
        for ((place, path, _), items) in lists.into_iter().zip(items) {
            match items {
                Ok(items) => reading.list(place, path, items, &mut seen),
                Err(_) => reading.whole = false,
            }
        }
        if let Ok(Some(object)) = chunked {
            reading.chunked(object, &mut seen);
        }
        let kept = kept::lists(heap, kept);
        for items in heap.items(&kept).into_iter().flatten() {
            reading.kept(items, &mut seen);
        }
        let first = |ends: Vec<Result<Option<Ref>, Refusal>>| ends.into_iter().find_map(|end| end.ok()?);
        let (mode, launched) = (first(modes), first(launches));
        let wanted = [mode, forwards.ok().flatten(), launched];
        let mut cells = heap.scalars(&wanted.into_iter().flatten().collect::<Vec<_>>()).into_iter();
        let [mode, forwards, launched] = wanted.map(|wanted| wanted.and_then(|_| cells.next()?.ok()));
        let members = std::mem::take(&mut reading.batch.members);
        reading.batch = Batch { mode, forwards, launched, members };
    }

    /// Takes over what is to be believed; whether all of it was.
    fn take<M: Memory>(
        &mut self,
        heap: &mut Heap<M>,
        reading: &Reading,
        verdicts: &Verdicts,
        snapshot: &mut Snapshot,
    ) -> bool {
        let lists = reading.whole && reading.lists.iter().all(|list| verdicts.good(list.seen));
        let (mut whole, mut named) = (lists, true);
        let mut by_object = HashMap::with_capacity(reading.listed.len());
        for (number, listed) in reading.listed.iter().enumerate() {
            let addr = listed.object.addr;
            let known = |rid: &str| self.known.get(rid);
            match reading.requests.state(number, listed.place, verdicts, snapshot.at, known) {
                Ok(Some(state)) => {
                    by_object.insert(addr, state.rid.clone());
                    self.changed(state, snapshot);
                }
                Ok(None) => {}
                Err(reason) => {
                    if reason == Refusal::Absurd {
                        heap.refuse(reason, 1);
                    }
                    // It is the one that was there before, most likely; its moments wait for the next reading.
                    let before = self.by_object.get(&addr).cloned();
                    named &= before.is_some();
                    // What is known of it is not built upon.
                    before.as_ref().map(|rid| self.known.remove(rid));
                    by_object.extend(before.map(|rid| (addr, rid)));
                    whole = false;
                }
            }
        }
        if lists && named && reading.listed.len() < REQUESTS_LIMIT {
            let there: HashSet<String> = by_object.values().cloned().collect();
            self.forget(&there, snapshot.at);
        }
        self.take_batch(reading, verdicts, &by_object, snapshot);
        self.take_load(reading, verdicts, snapshot);
        self.by_object = by_object;
        whole
    }

    /// Forgets requests that are in no list any more. That is no sign of their end: one may wait where no list is, as
    /// between prefill and decode nodes. The end is told by the message that carries it.
    fn forget(&mut self, there: &HashSet<String>, at: MonoTime) {
        self.missing.retain(|rid, _| !there.contains(rid));
        for rid in self.known.keys().filter(|rid| !there.contains(*rid)) {
            self.missing.entry(rid.clone()).or_insert(at);
        }
        let long = |since: &MonoTime| at.since(*since) >= MOVING;
        let gone: Vec<String> =
            self.missing.iter().filter(|(_, since)| long(since)).map(|(rid, _)| rid.clone()).collect();
        for rid in &gone {
            self.missing.remove(rid);
            self.known.remove(rid);
        }
    }

    fn changed(&mut self, state: ReqState, snapshot: &mut Snapshot) {
        if self.known.get(&state.rid) != Some(&state) {
            snapshot.requests.retain(|earlier| earlier.rid != state.rid);
            self.known.insert(state.rid.clone(), state.clone());
            snapshot.requests.push(state);
        }
    }

    fn take_batch(
        &mut self,
        reading: &Reading,
        verdicts: &Verdicts,
        by_object: &HashMap<Addr, String>,
        snapshot: &mut Snapshot,
    ) {
        let Batch { mode: name, forwards, launched, members } = &reading.batch;
        let Some(cell) = name.as_ref().filter(|cell| cell.good(verdicts)) else { return };
        let Some(mode) = cell.value.text().and_then(mode) else { return };
        if members.first().is_some_and(|first| !verdicts.good(first.seen)) {
            return;
        }
        let good = |cell: &&Cell| cell.good(verdicts);
        let forward_count = forwards.as_ref().filter(good).and_then(|cell| cell.value.count());
        let size = u32::try_from(members.len()).unwrap_or(u32::MAX);
        let batch = BatchState { mode, size, forward_count };
        if snapshot.mark.is_some() {
            let launched = launched.as_ref().filter(good);
            snapshot.launched = launched.and_then(|cell| moment(&cell.value, snapshot.at).ok()?);
            snapshot.members =
                members.iter().filter_map(|member| by_object.get(&member.addr).cloned()).collect();
        }
        if self.batch != Some(batch) || snapshot.mark.is_some() {
            snapshot.batch = Some(batch);
            self.batch = Some(batch);
        }
    }

    fn load_due(&self, at: MonoTime) -> bool {
        self.load.is_none() || at.since(self.load_at) >= LOAD_PERIOD
    }

    fn take_load(&mut self, reading: &Reading, verdicts: &Verdicts, snapshot: &mut Snapshot) {
        let Some(load) = reading.load.as_ref().map(|load| load.load(verdicts)) else { return };
        self.load_at = snapshot.at;
        if self.load.as_ref() != Some(&load) {
            snapshot.load = Some(load.clone());
            self.load = Some(load);
        }
    }
}

impl Reading {
    /// Takes a list's items in.
    fn list(&mut self, place: Place, path: Path, items: Vec<Ref>, seen: &mut HashMap<Addr, usize>) {
        self.lists.extend(items.first());
        for object in &items {
            if !seen.contains_key(&object.addr) && self.listed.len() < REQUESTS_LIMIT {
                seen.insert(object.addr, self.listed.len());
                self.listed.push(Listed { place, object: *object });
            }
        }
        if self.batch.members.is_empty() && BATCHES.iter().any(|(_, reqs)| *reqs == path) {
            self.batch.members = items;
        }
    }

    /// Takes in what is in no list, of a batch that is kept.
    fn kept(&mut self, items: Vec<Ref>, seen: &mut HashMap<Addr, usize>) {
        for object in items {
            if !seen.contains_key(&object.addr) && self.listed.len() < REQUESTS_LIMIT {
                seen.insert(object.addr, self.listed.len());
                self.listed.push(Listed { place: Place::Kept, object });
            }
        }
    }

    /// The request whose prefill goes on stands in a batch, too, or nowhere else.
    fn chunked(&mut self, object: Ref, seen: &mut HashMap<Addr, usize>) {
        let number = *seen.entry(object.addr).or_insert(self.listed.len());
        match self.listed.get_mut(number) {
            Some(listed) => listed.place = Place::Chunked,
            None => self.listed.push(Listed { place: Place::Chunked, object }),
        }
    }
}
