//! Any records: pieces come in stream order, what is lost is counted, nothing is kept for ever.
#![no_main]

use arbitrary::Arbitrary;
use enginetap_common::record::Call;
use enginetap_core::capture::record::Data;
use enginetap_core::ids::{ConnId, Direction, Fd};
use enginetap_core::loss::{Loss, Losses};
use enginetap_core::stream::{Assembler, Content};
use enginetap_core::time::{MonoTime, Nanos};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    midstream: bool,
    /// Offsets near each other make overlaps and swaps likely.
    near: bool,
    records: Vec<Record<'a>>,
}

#[derive(Arbitrary, Debug)]
struct Record<'a> {
    offset: u64,
    total: u32,
    at: u32,
    bytes: &'a [u8],
    last: bool,
    flush: bool,
}

fuzz_target!(|input: Input<'_>| {
    let mut assembler = if input.midstream { Assembler::midstream() } else { Assembler::from_start() };
    let mut gaps = 0_u64;
    let mut sink = |piece: enginetap_core::stream::Piece<'_>| match piece.content {
        Content::Bytes(bytes) => assert!(!bytes.is_empty()),
        Content::Gap { len } => {
            let len = len.expect("an assembler knows");
            assert!(len > 0);
            gaps = gaps.saturating_add(len);
        }
        Content::End => {}
    };
    for (record, time) in input.records.iter().zip(0..) {
        let near = |value: u64| if input.near { value % 256 } else { value };
        let data = Data {
            conn: ConnId(1),
            fd: Fd(3),
            direction: Direction::Rx,
            call: Call::Read,
            spent: Nanos(0),
            offset: near(record.offset),
            total: near(u64::from(record.total)) as u32,
            at: near(u64::from(record.at)) as u32,
            bytes: record.bytes,
            last: record.last,
        };
        assembler.push(&data, MonoTime(time), &mut sink);
        if record.flush {
            assembler.flush(&mut sink);
            assert_eq!(assembler.held_since(), None);
        }
    }
    assembler.flush(&mut sink);
    assert_eq!(assembler.held_since(), None);
    let mut losses = Losses::default();
    assembler.drain_losses(&mut losses);
    assert!(losses.get(Loss::GapBytes) >= gaps);
});
