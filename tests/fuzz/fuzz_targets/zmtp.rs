//! Any pieces: what is kept stays within its limit, and splitting a stream does not change its messages.
#![no_main]

use arbitrary::Arbitrary;
use enginetap_core::loss::{Loss, Losses};
use enginetap_core::stream::{Content, Piece};
use enginetap_core::time::MonoTime;
use enginetap_core::wire::zmtp::{Decoder, FRAME_LIMIT, Start};
use libfuzzer_sys::fuzz_target;

/// Most bytes of one message.
const LIMIT: usize = 1000;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    midstream: bool,
    parts: Vec<Part<'a>>,
    /// Where the split copy of a part is cut.
    cut: u8,
}

#[derive(Arbitrary, Debug)]
enum Part<'a> {
    Bytes(&'a [u8]),
    Gap(Option<u16>),
    End,
}

type Messages = Vec<Vec<Vec<u8>>>;

fn run<'a>(start: Start, parts: impl Iterator<Item = Content<'a>>) -> (Messages, Losses) {
    let mut decoder = Decoder::new(start, LIMIT);
    let (mut messages, mut losses) = (Vec::new(), Losses::default());
    for content in parts {
        let piece = Piece { content, at: MonoTime(1), starts_call: true };
        decoder.push(&piece, &mut losses, &mut |message| {
            assert!(message.frames.iter().map(|frame| frame.len()).sum::<usize>() <= LIMIT);
            assert!(!message.frames.is_empty() && message.frames.len() <= FRAME_LIMIT);
            messages.push(message.frames.iter().map(|frame| frame.to_vec()).collect());
        });
    }
    (messages, losses)
}

fn content<'a>(part: &Part<'a>) -> Content<'a> {
    match part {
        Part::Bytes(bytes) => Content::Bytes(bytes),
        Part::Gap(len) => Content::Gap { len: len.map(u64::from) },
        Part::End => Content::End,
    }
}

fuzz_target!(|input: Input<'_>| {
    let Input { midstream, parts, cut } = input;
    let start = if midstream { Start::Midstream } else { Start::Beginning };
    run(start, parts.iter().map(content));

    let bytes: Vec<u8> = parts
        .iter()
        .filter_map(|part| if let Part::Bytes(bytes) = part { Some(*bytes) } else { None })
        .flatten()
        .copied()
        .collect();
    let (one, two) = bytes.split_at(usize::from(cut).min(bytes.len()));
    let (whole, lost) = run(Start::Beginning, [Content::Bytes(&bytes)].into_iter());
    let (split, lost_too) = run(Start::Beginning, [Content::Bytes(one), Content::Bytes(two)].into_iter());
    // Where the place is lost, what is found again depends on the calls.
    if lost.get(Loss::Resync) == 0 && lost_too.get(Loss::Resync) == 0 {
        assert_eq!(whole, split);
    }
});
