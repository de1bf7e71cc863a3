//! A process that is sampled: its threads, and what its code objects are.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use enginetap_common::sample::{Sample, Walk, bits};
use enginetap_core::heap::stacks::Function;
use enginetap_core::heap::{Addr, Heap, Refusal};
use enginetap_core::ids::Tid;
use enginetap_core::profile::{Place, Process};

use crate::discover::proc::Proc;
use crate::heap::{Interpreter, ProcessMemory, Unreadable};
use crate::probe::Sampler;

/// Pieces that one look for threads, or for one function, may read.
const PIECES: usize = 1 << 14;
/// Most functions and names of threads kept of a process.
const KEPT: usize = 1 << 16;

/// A process that is sampled.
pub(super) struct Sampled {
    process: Arc<Process>,
    /// Where its processes' files are.
    tasks: PathBuf,
    /// `None` where no Python runs in it.
    heap: Option<Heap<ProcessMemory>>,
    threads: BTreeMap<u32, Walk>,
    functions: HashMap<u64, Option<Arc<Function>>>,
    names: HashMap<u32, Arc<str>>,
}

impl Sampled {
    /// A process. One without Python is sampled by the names of its threads.
    ///
    /// # Errors
    /// When it has a Python that cannot be read.
    pub(super) fn find(proc: &Proc, process: Process) -> Result<Self> {
        let pid = process.pid;
        let heap = match Interpreter::find(proc, pid).and_then(|interpreter| interpreter.open()) {
            Ok(heap) => Some(heap),
            Err(Unreadable::NoInterpreter(_) | Unreadable::Ended(_)) => None,
            Err(
                error @ (Unreadable::Forbidden(_)
                | Unreadable::FreeThreaded { .. }
                | Unreadable::Layout { .. }
                | Unreadable::File { .. }),
            ) => return Err(error).with_context(|| format!("reading the Python stacks of {process}")),
        };
        Ok(Self {
            process: Arc::new(process),
            tasks: proc.path(pid, "task"),
            heap,
            threads: BTreeMap::new(),
            functions: HashMap::new(),
            names: HashMap::new(),
        })
    }

    /// Its name.
    pub(super) fn named(&self) -> &Arc<Process> {
        &self.process
    }

    /// Looks for its Python threads, and tells the sampler which have come and gone. A look that is refused changes nothing.
    ///
    /// # Errors
    /// When the sampler's table is full.
    pub(super) fn look_for_threads(&mut self, sampler: &mut Sampler) -> Result<()> {
        let Some(heap) = &mut self.heap else { return Ok(()) };
        let numbers = thread_numbers(&self.tasks);
        let now = match walks(heap, &numbers) {
            Ok(now) => now,
            Err(refusal) => {
                log::debug!("looking for the threads of {}: {refusal}", self.process);
                return Ok(());
            }
        };
        for gone in self.threads.keys().filter(|tid| !now.contains_key(tid)) {
            sampler.forget(Tid(*gone))?;
        }
        for (tid, walk) in now.iter().filter(|(tid, walk)| self.threads.get(tid) != Some(walk)) {
            sampler.thread(Tid(*tid), *walk)?;
        }
        self.threads = now;
        Ok(())
    }

    /// The stack of a sample, the outermost place first.
    pub(super) fn stack(&mut self, sample: &Sample) -> Vec<Place> {
        if sample.bits & bits::PYTHON == 0 {
            return vec![Place::Native(self.name(sample.tid))];
        }
        let mut places: Vec<Place> = Vec::with_capacity(sample.stack().len() + 1);
        if sample.bits & (bits::CUT | bits::BROKEN) != 0 {
            places.push(Place::Unread);
        }
        for code in sample.stack().iter().rev() {
            match self.function(*code) {
                Ok(Some(function)) => places.push(Place::Function(function)),
                Ok(None) => {}
                Err(refusal) => {
                    log::debug!("a code object of {} at {code:#x}: {refusal}", self.process);
                    places.push(Place::Unread);
                }
            }
        }
        if places.is_empty() {
            places.push(Place::Interpreter);
        }
        places
    }

    fn function(&mut self, code: u64) -> Result<Option<Arc<Function>>, Refusal> {
        if let Some(function) = self.functions.get(&code) {
            return Ok(function.clone());
        }
        let Some(heap) = &mut self.heap else { return Ok(None) };
        heap.begin(PIECES);
        let function = heap.function_of(Addr(code))?.map(Arc::new);
        if self.functions.len() < KEPT {
            self.functions.insert(code, function.clone());
        }
        Ok(function)
    }

    fn name(&mut self, tid: u32) -> Arc<str> {
        if let Some(name) = self.names.get(&tid) {
            return Arc::clone(name);
        }
        let comm = std::fs::read_to_string(self.tasks.join(tid.to_string()).join("comm"));
        let name: Arc<str> = comm.as_deref().unwrap_or("that has ended").trim_end().into();
        if self.names.len() < KEPT {
            self.names.insert(tid, Arc::clone(&name));
        }
        name
    }
}

/// The threads of a process by their number in its own PID namespace: what its Python knows them by.
fn thread_numbers(tasks: &std::path::Path) -> HashMap<u32, u32> {
    let entries = std::fs::read_dir(tasks).into_iter().flatten().flatten();
    let tids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    tids.map(|tid: u32| (number_of(&tasks.join(tid.to_string())).unwrap_or(tid), tid)).collect()
}

fn number_of(task: &std::path::Path) -> Option<u32> {
    let status = std::fs::read_to_string(task.join("status")).ok()?;
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_whitespace().next_back()?.parse().ok()
}

/// The Python threads, by number in the initial PID namespace.
fn walks(
    heap: &mut Heap<ProcessMemory>,
    numbers: &HashMap<u32, u32>,
) -> Result<BTreeMap<u32, Walk>, Refusal> {
    heap.begin(PIECES);
    let mut walks = BTreeMap::new();
    for interpreter in heap.interpreters()? {
        for thread in heap.threads(interpreter)? {
            let number = heap.thread_number(thread, |number| numbers.contains_key(&number))?;
            if let Some(tid) = number.and_then(|number| numbers.get(&number)) {
                walks.insert(*tid, heap.walk(thread));
            }
        }
    }
    Ok(walks)
}
