use enginetap_common::record::Call;
use proptest::prelude::*;

use super::*;
use crate::ids::{ConnId, Fd};

/// A record of a call at `offset` of `total` bytes that carries `bytes` from `at` on.
fn record(offset: u64, total: u32, at: u32, bytes: &[u8], last: bool) -> Data<'_> {
    Data {
        conn: ConnId(1),
        fd: Fd(3),
        direction: Direction::Rx,
        call: Call::Read,
        spent: Nanos(0),
        offset,
        total,
        at,
        bytes,
        last,
    }
}

/// A call whose bytes were all copied, in one record.
fn whole(offset: u64, bytes: &[u8]) -> Data<'_> {
    record(offset, u32::try_from(bytes.len()).unwrap(), 0, bytes, true)
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Got {
    Bytes(Vec<u8>),
    Gap(u64),
    End,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    got: Got,
    at: u64,
    starts_call: bool,
}

#[derive(Default)]
struct Log(Vec<Seen>);

impl Log {
    fn sink(&mut self) -> impl FnMut(Piece<'_>) + '_ {
        |piece| {
            let got = match piece.content {
                Content::Bytes(bytes) => Got::Bytes(bytes.to_vec()),
                Content::Gap { len } => Got::Gap(len.unwrap()),
                Content::End => Got::End,
            };
            self.0.push(Seen { got, at: piece.at.0, starts_call: piece.starts_call });
        }
    }

    fn take(&mut self) -> Vec<Seen> {
        std::mem::take(&mut self.0)
    }
}

fn bytes(bytes: &[u8], at: u64, starts_call: bool) -> Seen {
    Seen { got: Got::Bytes(bytes.to_vec()), at, starts_call }
}

fn gap(len: u64, at: u64) -> Seen {
    Seen { got: Got::Gap(len), at, starts_call: false }
}

fn lost(assembler: &mut Assembler) -> u64 {
    let mut losses = Losses::default();
    assembler.drain_losses(&mut losses);
    losses.get(Loss::GapBytes)
}

#[test]
fn records_in_order_are_lent_as_they_are() {
    let (mut assembler, mut log) = (Assembler::from_start(), Log::default());
    assembler.push(&record(0, 6, 0, b"abc", false), MonoTime(5), &mut log.sink());
    assembler.push(&record(0, 6, 3, b"def", true), MonoTime(5), &mut log.sink());
    assembler.push(&whole(6, b"gh"), MonoTime(9), &mut log.sink());
    assert_eq!(log.take(), [bytes(b"abc", 5, true), bytes(b"def", 5, false), bytes(b"gh", 9, true)]);
    assert_eq!(lost(&mut assembler), 0);
}

#[test]
fn in_order_bytes_are_not_copied() {
    let payload = *b"abc";
    let mut same = false;
    Assembler::from_start().push(&whole(0, &payload), MonoTime(1), &mut |piece| {
        same = matches!(piece.content, Content::Bytes(bytes) if bytes.as_ptr() == payload.as_ptr());
    });
    assert!(same);
}

#[test]
fn a_tail_over_the_cap_is_a_gap_at_the_time_of_its_call() {
    let (mut assembler, mut log) = (Assembler::from_start(), Log::default());
    assembler.push(&record(0, 100, 0, b"abc", true), MonoTime(5), &mut log.sink());
    assembler.push(&whole(100, b"d"), MonoTime(6), &mut log.sink());
    assert_eq!(log.take(), [bytes(b"abc", 5, true), gap(97, 5), bytes(b"d", 6, true)]);
    assert_eq!(lost(&mut assembler), 97);
}

#[test]
fn a_call_whose_payload_could_not_be_read_is_all_gap() {
    let (mut assembler, mut log) = (Assembler::from_start(), Log::default());
    assembler.push(&record(0, 7, 0, b"", true), MonoTime(5), &mut log.sink());
    assert_eq!(log.take(), [Seen { got: Got::Gap(7), at: 5, starts_call: true }]);
}

#[test]
fn swapped_calls_are_put_in_order() {
    let (mut assembler, mut log) = (Assembler::from_start(), Log::default());
    assembler.push(&whole(3, b"def"), MonoTime(6), &mut log.sink());
    assert_eq!((log.take(), assembler.held_since()), (vec![], Some(MonoTime(6))));
    assembler.push(&whole(0, b"abc"), MonoTime(5), &mut log.sink());
    assert_eq!(log.take(), [bytes(b"abc", 5, true), bytes(b"def", 6, true)]);
    assert_eq!((lost(&mut assembler), assembler.held_since()), (0, None));
}

#[test]
fn a_lost_record_is_a_gap_once_it_is_given_up() {
    let (mut assembler, mut log) = (Assembler::from_start(), Log::default());
    assembler.push(&whole(0, b"ab"), MonoTime(5), &mut log.sink());
    assembler.push(&whole(5, b"fg"), MonoTime(7), &mut log.sink());
    assert_eq!(log.take(), [bytes(b"ab", 5, true)]);
    assembler.flush(&mut log.sink());
    assert_eq!(log.take(), [gap(3, 7), bytes(b"fg", 7, true)]);
    assembler.push(&whole(2, b"cde"), MonoTime(6), &mut log.sink());
    assert_eq!((log.take(), lost(&mut assembler)), (vec![], 3));
}

#[test]
fn what_is_held_back_is_given_up_by_later_records_and_by_ticks() {
    let late = HOLD_TIME.0 + 2;
    let (mut assembler, mut log) = (Assembler::from_start(), Log::default());
    assembler.push(&whole(1, b"b"), MonoTime(1), &mut log.sink());
    assembler.expire(MonoTime(2), &mut log.sink());
    assert_eq!(log.take(), []);
    assembler.push(&whole(2, b"c"), MonoTime(late), &mut log.sink());
    assert_eq!(log.take(), [gap(1, 1), bytes(b"b", 1, true), bytes(b"c", late, true)]);
    assembler.push(&whole(4, b"e"), MonoTime(late), &mut log.sink());
    assembler.expire(MonoTime(2 * late), &mut log.sink());
    assert_eq!(log.take(), [gap(1, late), bytes(b"e", late, true)]);
}

#[test]
fn no_more_is_held_back_than_the_bounds_say() {
    let (mut assembler, mut log) = (Assembler::from_start(), Log::default());
    for n in 0..=HOLD_PIECES as u64 {
        assembler.push(&whole(1 + 2 * n, b"x"), MonoTime(1), &mut log.sink());
    }
    assert_eq!(log.take(), [gap(1, 1), bytes(b"x", 1, true)]);
    let big = vec![0; HOLD_BYTES + 1];
    let mut assembler = Assembler::from_start();
    assembler.push(&whole(9, &big), MonoTime(1), &mut log.sink());
    assert_eq!(log.take(), [gap(9, 1), bytes(&big, 1, true)]);
}

#[test]
fn repeated_and_overlapping_records_give_each_byte_once() {
    let (mut assembler, mut log) = (Assembler::from_start(), Log::default());
    assembler.push(&whole(0, b"abc"), MonoTime(1), &mut log.sink());
    assembler.push(&whole(0, b"abc"), MonoTime(2), &mut log.sink());
    assembler.push(&whole(1, b"bcd"), MonoTime(3), &mut log.sink());
    assert_eq!(log.take(), [bytes(b"abc", 1, true), bytes(b"d", 3, false)]);
}

#[test]
fn a_stream_joined_in_the_middle_starts_at_its_first_record() {
    let (mut assembler, mut log) = (Assembler::midstream(), Log::default());
    assembler.push(&record(1 << 40, 9, 4, b"abcde", true), MonoTime(1), &mut log.sink());
    assembler.push(&whole((1 << 40) - 2, b"zz"), MonoTime(1), &mut log.sink());
    assert_eq!(log.take(), [bytes(b"abcde", 1, false)]);
    assert_eq!(lost(&mut assembler), 2);
}

#[test]
fn the_peers_close_comes_after_the_bytes_before_it_and_once() {
    let (mut assembler, mut log) = (Assembler::from_start(), Log::default());
    assembler.push(&record(2, 0, 0, b"", true), MonoTime(3), &mut log.sink());
    assembler.push(&whole(0, b"ab"), MonoTime(1), &mut log.sink());
    assembler.push(&record(2, 0, 0, b"", true), MonoTime(4), &mut log.sink());
    assert_eq!(log.take(), [bytes(b"ab", 1, true), Seen { got: Got::End, at: 3, starts_call: false }]);
    assert!(assembler.ended());
    let sent = Data { direction: Direction::Tx, ..record(0, 0, 0, b"", true) };
    Assembler::from_start().push(&sent, MonoTime(1), &mut log.sink());
    assert_eq!(log.take(), []);
}

#[test]
fn offsets_at_the_end_of_the_number_range_do_no_harm() {
    let (mut assembler, mut log) = (Assembler::from_start(), Log::default());
    assembler.push(&whole(u64::MAX - 1, b"abc"), MonoTime(1), &mut log.sink());
    assembler.flush(&mut log.sink());
    assert_eq!(log.take(), [gap(u64::MAX - 1, 1), bytes(b"abc", 1, true)]);
}

/// A stream as calls: each cut into records, some lost, some swapped with a neighbour.
#[derive(Debug, Clone)]
struct Plan {
    calls: Vec<Vec<u8>>,
    piece: usize,
    lost: Vec<bool>,
    swapped: Vec<bool>,
}

fn plan() -> impl Strategy<Value = Plan> {
    let calls = prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 1..20);
    let flags = || prop::collection::vec(prop::bool::weighted(0.2), 64);
    (calls, 1..40usize, flags(), flags()).prop_map(|(calls, piece, lost, swapped)| Plan {
        calls,
        piece,
        lost,
        swapped,
    })
}

/// The plan's records as they would be delivered, each with its time (the number of its call).
fn delivered(plan: &Plan) -> Vec<(Data<'_>, MonoTime)> {
    let (mut records, mut offset) = (Vec::new(), 0);
    for (time, call) in plan.calls.iter().enumerate() {
        let total = u32::try_from(call.len()).unwrap();
        let pieces: Vec<_> = call.chunks(plan.piece).collect();
        for (n, piece) in pieces.iter().enumerate() {
            let at = u32::try_from(n * plan.piece).unwrap();
            let data = record(offset, total, at, piece, n + 1 == pieces.len());
            records.push((data, MonoTime(time as u64)));
        }
        offset += call.len() as u64;
    }
    for n in 1..records.len() {
        if plan.swapped[n % plan.swapped.len()] {
            records.swap(n - 1, n);
        }
    }
    let mut keep = plan.lost.iter().cycle().map(|lost| !lost);
    records.retain(|_| keep.next().unwrap_or(true));
    records
}

proptest! {
    #[test]
    fn every_delivered_byte_comes_once_at_its_place_and_time(plan in plan()) {
        let truth: Vec<(u8, u64)> = plan.calls.iter().enumerate()
            .flat_map(|(time, call)| call.iter().map(move |byte| (*byte, time as u64)))
            .collect();
        let records = delivered(&plan);
        let (mut assembler, mut log) = (Assembler::from_start(), Log::default());
        for (data, at) in &records {
            assembler.push(data, *at, &mut log.sink());
        }
        assembler.flush(&mut log.sink());
        let (mut offset, mut missing) = (0, 0);
        for seen in log.take() {
            match seen.got {
                Got::Bytes(bytes) => {
                    for byte in bytes {
                        prop_assert_eq!((byte, seen.at), truth[offset]);
                        offset += 1;
                    }
                }
                Got::Gap(len) => {
                    missing += len;
                    offset += usize::try_from(len).unwrap();
                }
                Got::End => prop_assert!(false, "nobody closed"),
            }
        }
        let carried: usize = records.iter().map(|(data, _)| data.bytes.len()).sum();
        prop_assert_eq!(offset as u64 - missing, carried as u64);
        prop_assert_eq!(lost(&mut assembler), missing);
    }

    #[test]
    fn no_record_can_make_it_panic_or_hold_too_much(
        records in prop::collection::vec(
            (any::<u64>(), any::<u32>(), any::<u32>(), prop::collection::vec(any::<u8>(), 0..9), any::<bool>(), 0..4u64),
            0..200,
        ),
        near in any::<bool>(),
    ) {
        let (mut assembler, mut log) = (Assembler::midstream(), Log::default());
        for (offset, total, at, bytes, last, time) in &records {
            let offset = if near { offset % 64 } else { *offset };
            let (total, at) = if near { (total % 64, at % 64) } else { (*total, *at) };
            assembler.push(&record(offset, total, at, bytes, *last), MonoTime(*time), &mut log.sink());
            prop_assert!(assembler.held.len() <= HOLD_PIECES);
        }
        assembler.flush(&mut log.sink());
        prop_assert_eq!((assembler.held.len(), assembler.held_bytes), (0, 0));
    }
}
