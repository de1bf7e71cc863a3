//! Writing a capture file: plain, or compressed when its name ends in `.gz`.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use enginetap_core::capture::fact::Fact;
use enginetap_core::capture::file::{Summary, Writer};
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::exit::Refusal;

/// A capture file being written.
pub struct CaptureFile {
    path: PathBuf,
    writer: Writer,
    out: Out,
    /// Bytes of the entry being written.
    buffer: Vec<u8>,
}

enum Out {
    Plain(BufWriter<File>),
    Gzip(Box<GzEncoder<BufWriter<File>>>),
}

impl CaptureFile {
    /// Makes the file, readable by its owner only: a capture holds prompts and outputs.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
        let file = file.map_err(|error| {
            let what = format!("cannot write the capture file {}: {error}", path.display());
            Refusal::usage(what, "name a file in a folder that exists and may be written")
        })?;
        let file = BufWriter::with_capacity(256 * 1024, file);
        let out = if path.extension().is_some_and(|extension| extension == "gz") {
            Out::Gzip(Box::new(GzEncoder::new(file, Compression::fast())))
        } else {
            Out::Plain(file)
        };
        let mut buffer = Vec::new();
        let writer = Writer::new(&mut buffer);
        let mut capture = Self { path: path.to_owned(), writer, out, buffer };
        capture.write_buffer()?;
        Ok(capture)
    }

    /// Writes a record.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn record(&mut self, record: &[u8]) -> Result<()> {
        self.writer.record(record, &mut self.buffer)?;
        self.write_buffer()
    }

    /// Writes a fact.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn fact(&mut self, fact: &Fact) -> Result<()> {
        self.writer.fact(fact, &mut self.buffer)?;
        self.write_buffer()
    }

    /// Ends the file; what it holds.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn end(mut self, lost: u64) -> Result<Summary> {
        let summary = self.writer.end(lost, &mut self.buffer);
        let written = match self.out {
            Out::Plain(mut out) => out.write_all(&self.buffer).and_then(|()| out.flush()),
            Out::Gzip(mut out) => out.write_all(&self.buffer).and_then(|()| out.finish()?.flush()),
        };
        written.with_context(|| format!("writing the capture file {}", self.path.display()))?;
        Ok(summary)
    }

    fn write_buffer(&mut self) -> Result<()> {
        let written: io::Result<()> = match &mut self.out {
            Out::Plain(out) => out.write_all(&self.buffer),
            Out::Gzip(out) => out.write_all(&self.buffer),
        };
        self.buffer.clear();
        written
            .with_context(|| format!("writing the capture file {}: is the disk full?", self.path.display()))
    }
}
