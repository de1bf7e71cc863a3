//! Where values lie: flat arrays, one a kind, with numbers for pointers.

use super::{Place, Value};

/// No run, no chain.
pub(super) const NOTHING: u32 = u32::MAX;

/// Everything that values point to.
#[derive(Debug, Default)]
pub(super) struct Store {
    /// Items of all tuples, lists, sets and, key and value in turn, dicts.
    pub(super) items: Vec<Value>,
    /// Runs of items.
    pub(super) runs: Vec<Run>,
    /// Lists, dicts and sets.
    pub(super) chains: Vec<Chain>,
    /// Classes and functions.
    pub(super) names: Vec<Names>,
    /// Calls and constructors.
    pub(super) objects: Vec<Parts>,
    /// Buffers met so far.
    pub(super) buffers: u32,
}

/// Items of one container that lie together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) place: Place,
    /// The container's next run.
    pub(super) next: u32,
}

/// The runs of a container, and how many items they hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) len: u32,
}

/// A module and a name in it: texts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names {
    pub(super) module: Value,
    pub(super) name: Value,
}

/// How an object would be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// `callee(*args)` (`REDUCE`, and protocol 0's `OBJ` and `INST`).
    Called,
    /// `callee.__new__(callee, *args, **kwargs)` (`NEWOBJ`, `NEWOBJ_EX`).
    New,
    /// Known to the reading program by an id (`PERSID`, `BINPERSID`), which is `args`.
    Persistent,
    /// It stands itself as `callee`, and a state was set to it.
    Built,
}

/// What is known of an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    pub(super) made: Made,
    pub(super) callee: Value,
    pub(super) args: Value,
    pub(super) kwargs: Value,
    pub(super) state: Option<Value>,
    /// Chains of what was appended or added, and of what was set by key.
    pub(super) list: u32,
    pub(super) pairs: u32,
}

impl Parts {
    pub(super) fn new(made: Made, callee: Value, args: Value) -> Self {
        Self { made, callee, args, kwargs: Value::None, state: None, list: NOTHING, pairs: NOTHING }
    }
}

/// A number of 32 bits: there are never more values than bytes, and those are less.
pub(super) fn narrow(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(NOTHING)
}

/// The way back.
pub(super) fn wide(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

impl Place {
    pub(super) fn new(at: usize, len: usize) -> Self {
        Self { at: narrow(at), len: narrow(len) }
    }

    /// This part of an array; empty where it is none of it.
    pub(super) fn of<T>(self, all: &[T]) -> &[T] {
        let from = wide(self.at);
        all.get(from..from.saturating_add(wide(self.len))).unwrap_or_default()
    }
}

impl Store {
    /// Forgets everything; keeps memory for `kept` values at most.
    pub(super) fn clear(&mut self, kept: usize) {
        let Self { items, runs, chains, names, objects, buffers } = self;
        items.clear();
        items.shrink_to(kept);
        runs.clear();
        runs.shrink_to(kept);
        chains.clear();
        chains.shrink_to(kept);
        names.clear();
        names.shrink_to(kept);
        objects.clear();
        objects.shrink_to(kept);
        *buffers = 0;
    }

    /// A new empty container.
    pub(super) fn chain(&mut self) -> u32 {
        self.chains.push(Chain { first: NOTHING, last: NOTHING, len: 0 });
        narrow(self.chains.len() - 1)
    }

    /// Puts items where they stay.
    pub(super) fn keep(&mut self, items: &[Value]) -> Place {
        let place = Place::new(self.items.len(), items.len());
        self.items.extend_from_slice(items);
        place
    }

    /// Adds items to a container.
    pub(super) fn extend(&mut self, chain: u32, items: &[Value]) {
        let place = self.keep(items);
        let next_run = narrow(self.runs.len());
        let Some(chain) = self.chains.get_mut(wide(chain)) else { return };
        chain.len = chain.len.saturating_add(place.len);
        let last = self.runs.get_mut(wide(chain.last));
        match last {
            // Nothing was kept in between: the run goes on.
            Some(run) if run.place.at.saturating_add(run.place.len) == place.at => {
                run.place.len = run.place.len.saturating_add(place.len);
                return;
            }
            Some(run) => run.next = next_run,
            None => chain.first = next_run,
        }
        chain.last = next_run;
        self.runs.push(Run { place, next: NOTHING });
    }

    /// A class or function.
    pub(super) fn global(&mut self, module: Value, name: Value) -> Value {
        self.names.push(Names { module, name });
        Value::Global(narrow(self.names.len() - 1))
    }

    /// An object.
    pub(super) fn object(&mut self, parts: Parts) -> Value {
        self.objects.push(parts);
        Value::Object(narrow(self.objects.len() - 1))
    }

    /// The container that appended (`pairs`: set by key) items of a value go to; `None` where it takes none.
    pub(super) fn target(&mut self, value: Value, pairs: bool) -> Option<u32> {
        match (value, pairs) {
            (Value::List(chain), false) | (Value::Dict(chain), true) => Some(chain),
            (Value::Object(object), _) => self.of_object(object, pairs),
            _ => None,
        }
    }

    fn of_object(&mut self, object: u32, pairs: bool) -> Option<u32> {
        let parts = self.objects.get(wide(object))?;
        let known = if pairs { parts.pairs } else { parts.list };
        if known != NOTHING {
            return Some(known);
        }
        let chain = self.chain();
        let parts = self.objects.get_mut(wide(object))?;
        *(if pairs { &mut parts.pairs } else { &mut parts.list }) = chain;
        Some(chain)
    }
}
