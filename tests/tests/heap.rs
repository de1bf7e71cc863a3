//! Objects of Pythons 3.9 to 3.14 as they lay in memory, recorded with what their own Python said of them.

use anyhow::{Context, Result, ensure};
use enginetap_core::heap::layout::{Field, Layout, Version};
use enginetap_core::heap::{Heap, Ref};
use enginetap_tests::heap::{LOOP, PIECES, Recorded, Recording, compare, fields};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

fn recordings() -> Vec<Recording> {
    Recording::all().expect("recordings")
}

#[test]
fn every_recorded_object_is_what_its_python_said() -> Result<()> {
    let mut versions = Vec::new();
    for recording in Recording::all()? {
        let layout = recording.layout()?;
        versions.push(layout.version.minor);
        let mut heap = recording.heap(layout);
        heap.check().with_context(|| recording.version.clone())?;
        let differences = compare(&mut heap, &recording.truth).with_context(|| recording.version.clone())?;
        ensure!(differences.none(), "{}: {differences:#?}", recording.version);
        ensure!(recording.truth.len() > 60);
    }
    versions.sort_unstable();
    assert_eq!(versions, [9, 10, 11, 12, 13, 14]);
    Ok(())
}

/// What no recorded object rests upon: a second interpreter; the size of C instances that are neither fixed in size nor
/// managed.
/// What only profiles ask for is tried on living Pythons (`kernel_profile.rs`).
const UNUSED: [(Field, &[u8]); 7] = [
    (Field::InterpNext, &[9, 10, 11, 12, 13, 14]),
    (Field::TypeBasicSize, &[12]),
    (Field::TypeItemSize, &[12, 14]),
    (Field::ThreadPthread, &[9, 10]),
    (Field::ThreadNative, &[11, 12, 13, 14]),
    (Field::CodeQualname, &[11, 12, 13, 14]),
    (Field::CodeFirstLine, &[9, 10, 11, 12, 13, 14]),
];

/// The negative control: a table in which one number is wrong is found out, whichever it is.
#[test]
fn a_layout_with_any_one_offset_spoiled_is_noticed() -> Result<()> {
    let mut unnoticed = Vec::new();
    for recording in Recording::all()? {
        let layout = recording.layout()?;
        for field in fields(&layout) {
            let mut spoiled = layout.clone();
            let offset = u32::try_from(layout.at(field))?;
            // Behind the newest interpreter and thread stand the main ones, which are the same or found as well.
            let back = matches!(field, Field::RuntimeInterpreters | Field::InterpThreads) && offset >= 8;
            spoiled.set(
                field,
                if back {
                    offset - 8
                } else if offset % 8 == 0 {
                    offset + 8
                } else {
                    offset + 1
                },
            );
            let mut heap = recording.heap(spoiled);
            let noticed = heap.check().is_err()
                || compare(&mut heap, &recording.truth).map_or(true, |differences| !differences.none());
            let unused = |(unused, minors): &(Field, &[u8])| {
                *unused == field && minors.contains(&layout.version.minor)
            };
            if !noticed && !UNUSED.iter().any(unused) {
                unnoticed.push(format!("{}: {field:?}", recording.version));
            }
        }
    }
    ensure!(unnoticed.is_empty(), "these may be anything: {unnoticed:?}");
    Ok(())
}

#[test]
fn another_versions_layout_does_not_pass_the_check() -> Result<()> {
    for recording in Recording::all()? {
        let own = recording.layout()?.version.minor;
        for minor in (9..=14).filter(|minor| *minor != own) {
            let mut heap = recording.heap(Layout::of(Version { major: 3, minor }));
            ensure!(heap.check().is_err(), "{} passes for 3.{minor}", recording.version);
        }
    }
    Ok(())
}

/// Whatever stands in memory: no panic, no endless walk, and no more read than is allowed.
#[test]
fn memory_with_bytes_flipped_never_breaks_the_reader() {
    let recordings = recordings();
    let strategy = (0..recordings.len(), any::<u64>(), 1_usize..400);
    let mut runner = TestRunner::new(Config { cases: 60, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&strategy, |(number, seed, flips)| {
        let recording = &recordings[number];
        let mut memory = recording.memory.clone();
        flip(&mut memory, seed, flips);
        let layout = recording.layout().map_err(|error| TestCaseError::fail(error.to_string()))?;
        let mut heap = Heap::new(memory, layout, recording.runtime);
        let _ = heap.check();
        heap.begin(PIECES);
        let before = heap.cost().pieces;
        let _ = compare(&mut heap, &recording.truth);
        // The verdicts read once more what was noted.
        let read = heap.cost().pieces - before;
        prop_assert!(read <= 4 * u64::try_from(PIECES).unwrap_or(u64::MAX), "{read} pieces");
        Ok(())
    });
    outcome.expect("no memory breaks the reader");
}

/// A value whose chain is unchanged when it is read again is the one that stood there.
#[test]
fn what_changes_before_the_verdict_is_not_believed() -> Result<()> {
    for recording in Recording::all()? {
        let mut memory = Changing { now: recording.memory.clone(), later: None };
        let mut heap = Heap::new(&mut memory, recording.layout()?, recording.runtime);
        heap.begin(PIECES);
        let object = heap.find(LOOP)?.context("no loop")?.object;
        let times = heap.attribute(Ref::root(object), "times")?.context("no times")?;
        let wanted = [(times, "wait_queue_entry_time"), (times, "forward_entry_time")];
        let found: Vec<Ref> = heap
            .attributes(&wanted)
            .into_iter()
            .map(|found| found?.ok_or(enginetap_core::heap::Refusal::Absurd))
            .collect::<Result<_, _>>()?;
        let cells: Vec<_> = heap.scalars(&found).into_iter().collect::<Result<_, _>>()?;
        let [queued, forward] = [cells[0].value.number(), cells[1].value.number()];
        assert_eq!((queued, forward), (Some(1234.5), Some(1235.25)));
        let verdicts = heap.verify();
        assert!(cells[0].good(&verdicts) && cells[1].good(&verdicts));
        drop(heap);
        // The same reading, and one value's object is used again before the verdict.
        memory.later = Some((found[0].addr.0 + 16, 999.0_f64.to_le_bytes().to_vec()));
        let mut heap = Heap::new(&mut memory, recording.layout()?, recording.runtime);
        heap.begin(PIECES);
        let times = heap.attribute(Ref::root(object), "times")?.context("no times")?;
        let wanted = [(times, "wait_queue_entry_time"), (times, "forward_entry_time")];
        let found: Vec<Ref> = heap.attributes(&wanted).into_iter().filter_map(|found| found.ok()?).collect();
        let cells: Vec<_> = heap.scalars(&found).into_iter().collect::<Result<_, _>>()?;
        let verdicts = heap.verify();
        assert!(!cells[0].good(&verdicts), "{}: the changed one", recording.version);
        assert!(cells[1].good(&verdicts), "{}: the other one", recording.version);
    }
    Ok(())
}

/// Memory in which something changes when it has been read once.
struct Changing {
    now: Recorded,
    later: Option<(u64, Vec<u8>)>,
}

impl enginetap_core::heap::Memory for Changing {
    fn read(
        &mut self,
        pieces: &[enginetap_core::heap::Piece],
        into: &mut [u8],
        read: &mut [bool],
    ) -> Result<(), enginetap_core::heap::Gone> {
        self.now.read(pieces, into, read)?;
        let touched = |at: u64| {
            pieces.iter().any(|piece| piece.len <= 56 && (piece.at.0..piece.at.0 + 32).contains(&at))
        };
        if let Some((at, bytes)) = self.later.take_if(|(at, _)| touched(*at)) {
            for (block, held) in self.now.blocks_mut() {
                if (*block..*block + 64).contains(&at) {
                    let from = usize::try_from(at - *block).unwrap_or(0);
                    held[from..from + bytes.len()].copy_from_slice(&bytes);
                }
            }
        }
        Ok(())
    }
}

fn flip(memory: &mut Recorded, seed: u64, flips: usize) {
    let mut state = seed | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let count = memory.len() / 64;
    let mut places: Vec<(usize, usize, u8)> = (0..flips)
        .map(|_| {
            let value = next();
            let block = usize::try_from(value).unwrap_or(0) % count.max(1);
            (block, usize::try_from(value >> 40).unwrap_or(0) % 64, value.to_le_bytes()[3])
        })
        .collect();
    places.sort_unstable();
    let mut places = places.into_iter().peekable();
    for (number, (_, bytes)) in memory.blocks_mut().enumerate() {
        while let Some((_, at, value)) = places.next_if(|(block, _, _)| *block == number) {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= value;
            }
        }
    }
}
