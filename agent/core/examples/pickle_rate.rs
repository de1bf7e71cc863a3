//! How fast pickles are read: `pickle_rate FILE`, a file of messages, each after its length in four bytes, little-endian.
//! Prints megabytes a second, one line a round. `cargo xtask bench --engine sglang` runs it beside CPython's own unpickler.

use std::hint::black_box;
use std::time::{Duration, Instant};

use enginetap_core::wire::pickle::{Limits, Reader};

/// Rounds, and how long each lasts.
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(500);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("name a file of messages")?;
    let file = std::fs::read(path)?;
    let messages = messages(&file);
    let mut reader = Reader::new(Limits::default());
    for _ in 0..ROUNDS {
        println!("{:.1}", round(&mut reader, &messages));
    }
    Ok(())
}

fn messages(mut file: &[u8]) -> Vec<&[u8]> {
    let mut messages = Vec::new();
    while let Some((length, rest)) = file.split_first_chunk::<4>() {
        let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
        let Some((message, rest)) = rest.split_at_checked(length) else { break };
        messages.push(message);
        file = rest;
    }
    messages
}

fn round(reader: &mut Reader, messages: &[&[u8]]) -> f64 {
    let bytes: usize = messages.iter().map(|message| message.len()).sum();
    let (begun, mut times) = (Instant::now(), 0_u32);
    while begun.elapsed() < ROUND {
        for message in messages {
            black_box(reader.read(black_box(message)).root());
        }
        times += 1;
    }
    let megabytes = f64::from(u32::try_from(bytes).unwrap_or(u32::MAX)) / 1e6;
    megabytes * f64::from(times) / begun.elapsed().as_secs_f64()
}
