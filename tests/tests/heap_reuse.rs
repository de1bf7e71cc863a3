//! Objects that are freed and whose places are used again while they are read.
//!
//! The memory of recorded Pythons changes here between any two pieces that are read: a reference is bound to another object
//! and back, and while it is, what it led to before is another's, or nobody's.

use std::cell::Cell;
use std::rc::Rc;

use anyhow::{Context, Result, ensure};
use enginetap_core::heap::{Addr, Gone, Heap, Memory, Piece, Ref, Refusal};
use enginetap_tests::heap::{LOOP, PIECES, Recorded, Recording};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// What the attribute holds as it was recorded, and when it is bound to the other object.
const HELD: [f64; 2] = [1234.5, 1235.25];
/// What stands where the first object was, while the attribute is bound to the other one.
const ANOTHERS: f64 = 999.0;
/// Pieces that are read at least between two bindings.
const LASTS: u64 = 8;

/// When memory is in which state: by the number of pieces read.
#[derive(Clone, Debug)]
enum When {
    /// Looked at where the reference stands: as recorded; where the object stands: as changed. As if it changed between
    /// any two looks, and back.
    Always,
    /// So many pieces in the one, so many in the other, and so on; then as recorded.
    Turns(Vec<u64>),
}

/// Memory with two states.
struct Turning {
    recorded: Recorded,
    changed: Recorded,
    when: When,
    /// The object whose place is another's in the changed state.
    object: Addr,
    /// Whether it changes yet.
    turns: Rc<Cell<bool>>,
    read: u64,
}

impl Turning {
    fn is_changed(&self, piece: Piece) -> bool {
        match &self.when {
            When::Always => (piece.at.0..piece.at.0 + 16).contains(&(self.object.0 + 8)),
            When::Turns(lengths) => {
                let mut end = 0;
                let turn = lengths.iter().position(|length| {
                    end += length;
                    self.read < end
                });
                turn.is_some_and(|turn| turn % 2 == 1)
            }
        }
    }
}

impl Memory for Turning {
    fn read(&mut self, pieces: &[Piece], into: &mut [u8], read: &mut [bool]) -> Result<(), Gone> {
        let mut rest = into;
        for (piece, read) in pieces.iter().zip(read) {
            let (part, behind) = rest.split_at_mut(piece.len);
            rest = behind;
            let changed = self.turns.get() && self.is_changed(*piece);
            let state = if changed { &mut self.changed } else { &mut self.recorded };
            state.read(&[*piece], part, std::slice::from_mut(read))?;
            self.read += u64::from(self.turns.get());
        }
        Ok(())
    }
}

/// A recording, with the attribute that is read and the objects that it is bound to.
struct Bound<'a> {
    recording: &'a Recording,
    holder: Ref,
    objects: [Addr; 2],
}

/// Other values that are read with it.
const AMONG: usize = 6;
const NAMES: [&str; 2] = ["wait_queue_entry_time", "forward_entry_time"];

impl<'a> Bound<'a> {
    fn of(recording: &'a Recording) -> Result<Self> {
        let mut heap = recording.heap(recording.layout()?);
        heap.begin(PIECES);
        let object = heap.find(LOOP)?.context("no loop")?.object;
        let holder = heap.attribute(Ref::root(object), "times")?.context("no times")?;
        let mut of = |name| Ok::<_, anyhow::Error>(heap.attribute(holder, name)?.context(name)?.addr);
        let objects = [of(NAMES[0])?, of(NAMES[1])?];
        Ok(Self { recording, holder: Ref::root(holder.addr), objects })
    }

    /// The memory when the attribute is bound to the other object, and what was the first has so many references.
    fn changed(&self, references: u64) -> Recorded {
        let [first, other] = self.objects.map(|object| object.0.to_le_bytes());
        let mut memory = self.recording.memory.clone();
        for (at, block) in memory.blocks_mut() {
            for word in block.chunks_exact_mut(8).filter(|word| **word == first) {
                word.copy_from_slice(&other);
            }
            let base = self.objects[0].0;
            for (field, bytes) in [(base, references.to_le_bytes()), (base + 16, ANOTHERS.to_le_bytes())] {
                if (*at..*at + 64).contains(&field) {
                    let from = usize::try_from(field - *at).unwrap_or(0);
                    block[from..from + 8].copy_from_slice(&bytes);
                }
            }
        }
        memory
    }

    /// Reads the attribute once, while memory changes so.
    fn read(&self, references: u64, when: When) -> Result<Option<f64>> {
        let turns = Rc::new(Cell::new(false));
        let memory = Turning {
            recorded: self.recording.memory.clone(),
            changed: self.changed(references),
            when,
            object: self.objects[0],
            turns: Rc::clone(&turns),
            read: 0,
        };
        let mut heap = Heap::new(memory, self.recording.layout()?, self.recording.runtime);
        // Types and places are known from readings before.
        heap.begin(PIECES);
        ensure!(value(&mut heap, self.holder).ok() == Some(HELD[0]), "{}", self.recording.version);
        heap.begin(PIECES);
        turns.set(true);
        let read = value(&mut heap, self.holder);
        let verdicts = heap.verify();
        Ok(read.ok().filter(|_| verdicts.all_good()))
    }
}

/// The attribute's value, read between others: looks at its reference are far from those at its object.
fn value<M: Memory>(heap: &mut Heap<M>, holder: Ref) -> Result<f64, Refusal> {
    let object = heap.attribute(holder, NAMES[0])?.ok_or(Refusal::Absurd)?;
    for _ in 0..AMONG {
        let other = heap.attribute(holder, NAMES[1])?.ok_or(Refusal::Absurd)?;
        heap.value(other, 0)?;
    }
    heap.value(object, 0)?.number().ok_or(Refusal::Absurd)
}

/// Freed objects keep their bytes for a while. Their memory is the same at each look, and so is the reference, whenever it is
/// looked at.
#[test]
fn a_freed_object_is_refused_though_all_looks_the_same_each_time() -> Result<()> {
    for recording in &Recording::all()? {
        let bound = Bound::of(recording)?;
        // In a list of free places: none, or the address of the next one stands where the number of references was.
        for references in [0, bound.objects[1].0] {
            let read = bound.read(references, When::Always)?;
            ensure!(read.is_none(), "{}: {read:?} of {references:x}", recording.version);
        }
        // The control: of an object in use nothing tells the difference, if it is never seen otherwise.
        ensure!(bound.read(1, When::Always)? == Some(ANOTHERS), "{}", recording.version);
    }
    Ok(())
}

/// The interleaving that was seen on real Pythons: reference, object, reference, object; bound elsewhere at each object.
#[test]
fn an_object_used_again_at_both_looks_is_refused() -> Result<()> {
    for recording in &Recording::all()? {
        let bound = Bound::of(recording)?;
        let quiet = bound.read(1, When::Turns(Vec::new()))?;
        ensure!(quiet == Some(HELD[0]), "{}: {quiet:?}", recording.version);
        // Bound elsewhere when the reading comes to the object, back, and so again when the verdict does.
        for first in (1..60).step_by(2) {
            for back in (1..60).step_by(11) {
                let when = When::Turns(vec![first, LASTS, back, LASTS]);
                let read = bound.read(1, when.clone())?;
                ensure!(read != Some(ANOTHERS), "{}: {when:?}", recording.version);
            }
        }
    }
    Ok(())
}

/// Whenever it is bound anew: as long as each binding lasts for the pieces between two looks, nothing is taken that it was
/// not bound to.
#[test]
fn no_value_is_taken_that_was_not_bound() -> Result<()> {
    let recordings = Recording::all()?;
    let bound: Vec<Bound<'_>> = recordings.iter().map(Bound::of).collect::<Result<_>>()?;
    let taken = Cell::new(0);
    let strategy = (0..bound.len(), proptest::collection::vec(LASTS..60, 0..20), any::<bool>());
    let mut runner = TestRunner::new(Config { cases: 300, failure_persistence: None, ..Config::default() });
    runner
        .run(&strategy, |(number, turns, freed)| {
            let read = bound[number].read(u64::from(!freed), When::Turns(turns));
            let read = read.map_err(|error| TestCaseError::fail(error.to_string()))?;
            taken.set(taken.get() + u32::from(read.is_some()));
            prop_assert!(read.is_none_or(|read| HELD.contains(&read)), "{read:?}");
            Ok(())
        })
        .map_err(|error| anyhow::anyhow!("{error}"))?;
    ensure!(taken.get() > 5, "{} readings taken", taken.get());
    Ok(())
}
