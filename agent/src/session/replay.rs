//! A replay: a capture file in front of the pipeline.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use enginetap_core::capture::file::{Entry, Reader};
use flate2::read::MultiGzDecoder;

use super::feed::Feed;
use crate::exit::Refusal;

/// What a replay did.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Replayed {
    /// Records.
    pub records: u64,
    /// Bytes of the capture, decompressed.
    pub bytes: u64,
    /// Seconds it took.
    pub seconds: f64,
    /// Records that the kernel lost while it was recorded.
    pub lost: u64,
}

/// Bytes read at once.
const CHUNK: usize = 1024 * 1024;

/// Runs a capture file through a feed.
///
/// # Errors
/// When the file cannot be read, is no capture, or is damaged; what came before the damage went through.
pub fn replay(path: &Path, feed: &mut Feed) -> Result<Replayed> {
    let begun = Instant::now();
    let mut input = open(path)?;
    let mut reader = Reader::default();
    let mut chunk = vec![0; CHUNK];
    let mut done = Replayed::default();
    let outcome = loop {
        let read = match input.read(&mut chunk) {
            Ok(0) => break reader.finish().map_err(anyhow::Error::from),
            Ok(read) => read,
            Err(error) => break Err(error.into()),
        };
        reader.push(chunk.get(..read).unwrap_or_default());
        done.bytes += u64::try_from(read).unwrap_or(0);
        if let Err(error) = entries(&mut reader, feed, &mut done) {
            break Err(error);
        }
    };
    feed.finish();
    done.seconds = begun.elapsed().as_secs_f64();
    outcome.with_context(|| match done.records {
        0 => path.display().to_string(),
        records => format!("{}: stopped after {records} records; what came before is shown", path.display()),
    })?;
    Ok(done)
}

fn entries(reader: &mut Reader, feed: &mut Feed, done: &mut Replayed) -> Result<()> {
    while let Some(entry) = reader.next()? {
        match entry {
            Entry::Record(record) => {
                feed.record(record);
                done.records += 1;
            }
            Entry::Fact(fact) => feed.fact(*fact),
            Entry::End(summary) => done.lost = summary.lost,
        }
        feed.deliver();
    }
    Ok(())
}

/// Opens a capture, compressed or not: its first bytes tell.
fn open(path: &Path) -> Result<Box<dyn Read>> {
    let file = |path: &Path| {
        File::open(path).map_err(|error| {
            let what = format!("cannot read the capture {}: {error}", path.display());
            Refusal::usage(what, "name a file that `enginetap record -o FILE` wrote")
        })
    };
    let mut magic = [0; 2];
    let compressed = file(path)?.read_exact(&mut magic).is_ok() && magic == [0x1f, 0x8b];
    let input = BufReader::with_capacity(CHUNK, file(path)?);
    Ok(if compressed { Box::new(MultiGzDecoder::new(input)) } else { Box::new(input) })
}
