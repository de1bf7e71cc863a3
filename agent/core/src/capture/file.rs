//! The capture file (`.cap`): what entered the pipeline, in its order, so that it can enter again.
//!
//! ```text
//! file    = magic "ENGTAP\r\n", version u32, entry*
//! entry   = kind u8, length u32, body[length]
//! kind    = 1 record: the bytes of one ring entry, header and payload
//!         | 2 fact: JSON of a `Fact`
//!         | 3 end: records u64, facts u64, losses in the kernel u64; nothing follows
//! ```
//!
//! Numbers are little-endian. A file without its end was cut short, and what was read of it is still good.
//! Nothing here does input or output; a compressed file is unpacked before it comes here.

use crate::capture::fact::Fact;

/// The first bytes of every capture file. The line ends show whether a transfer in text mode broke it.
pub const MAGIC: [u8; 8] = *b"ENGTAP\r\n";

/// The version that this build writes, and the newest it reads.
pub const VERSION: u32 = 1;

/// Most bytes of one entry's body: a record is at most 16 KiB and a header, a fact a few kilobytes.
pub const ENTRY_LIMIT: usize = 1024 * 1024;

const HEADER_LEN: usize = MAGIC.len() + size_of::<u32>();
const ENTRY_HEAD: usize = 1 + size_of::<u32>();
const END_LEN: usize = 3 * size_of::<u64>();

const RECORD: u8 = 1;
const FACT: u8 = 2;
const END: u8 = 3;

/// One entry of a capture file.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry<'a> {
    /// The bytes of one record, for [`Record::parse`](crate::capture::record::Record::parse).
    Record(&'a [u8]),
    /// A fact.
    Fact(Box<Fact>),
    /// The file was ended in order.
    End(Summary),
}

/// What a file holds, written at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Records written.
    pub records: u64,
    /// Facts written.
    pub facts: u64,
    /// Events the kernel side lost while recording, of all reasons.
    pub lost: u64,
}

/// Why a capture file cannot be written or read on.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// Not a capture file at all.
    #[error(
        "this is no enginetap capture: it does not begin with the magic bytes (is it compressed twice, or another kind of file?)"
    )]
    NotACapture,
    /// Made by a newer build.
    #[error(
        "the capture is of format version {found}, this build reads up to {VERSION}: use a newer enginetap"
    )]
    Newer {
        /// The file's version.
        found: u32,
    },
    /// The file ends inside an entry, or without its end mark.
    #[error("the capture is cut short at byte {offset}: what came before is good, the rest is missing")]
    Truncated {
        /// Where the first missing byte would be.
        offset: u64,
    },
    /// An entry that this version does not have, or one of an impossible length.
    #[error("the capture is damaged at byte {offset}: entry of kind {kind} and {len} bytes")]
    Damaged {
        /// Where the entry starts.
        offset: u64,
        /// Its kind.
        kind: u8,
        /// Its length.
        len: u64,
    },
    /// A fact that does not parse.
    #[error("the capture is damaged at byte {offset}: its fact does not parse: {source}")]
    BadFact {
        /// Where the entry starts.
        offset: u64,
        /// What the JSON reader says.
        source: serde_json::Error,
    },
    /// A record or fact too long to write.
    #[error("an entry of {len} bytes is over the limit of {ENTRY_LIMIT}")]
    TooLong {
        /// Its length.
        len: usize,
    },
    /// A fact that cannot be written as JSON.
    #[error("a fact cannot be written: {0}")]
    Unwritable(serde_json::Error),
}

/// Writes the entries of a capture file, in order, into a buffer the caller empties as it likes.
#[derive(Debug)]
pub struct Writer {
    summary: Summary,
}

impl Writer {
    /// Begins a file: appends its header to `out`.
    #[must_use]
    pub fn new(out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        Self { summary: Summary::default() }
    }

    /// Appends the bytes of one record, header and payload, as the ring gave them.
    ///
    /// # Errors
    /// [`FileError::TooLong`]: nothing was written.
    pub fn record(&mut self, record: &[u8], out: &mut Vec<u8>) -> Result<(), FileError> {
        entry(RECORD, record, out)?;
        self.summary.records += 1;
        Ok(())
    }

    /// Appends a fact.
    ///
    /// # Errors
    /// [`FileError::TooLong`] or [`FileError::Unwritable`]: nothing was written.
    pub fn fact(&mut self, fact: &Fact, out: &mut Vec<u8>) -> Result<(), FileError> {
        let body = serde_json::to_vec(fact).map_err(FileError::Unwritable)?;
        entry(FACT, &body, out)?;
        self.summary.facts += 1;
        Ok(())
    }

    /// Ends the file. `lost`: events the kernel side lost while recording.
    pub fn end(self, lost: u64, out: &mut Vec<u8>) -> Summary {
        let summary = Summary { lost, ..self.summary };
        let Summary { records, facts, lost } = summary;
        let mut body = [0; END_LEN];
        for (to, number) in body.chunks_exact_mut(size_of::<u64>()).zip([records, facts, lost]) {
            to.copy_from_slice(&number.to_le_bytes());
        }
        // The body is shorter than any limit.
        let _ = entry(END, &body, out);
        summary
    }
}

fn entry(kind: u8, body: &[u8], out: &mut Vec<u8>) -> Result<(), FileError> {
    let too_long = FileError::TooLong { len: body.len() };
    let len = u32::try_from(body.len()).ok().filter(|_| body.len() <= ENTRY_LIMIT).ok_or(too_long)?;
    out.push(kind);
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(body);
    Ok(())
}

/// Reads a capture file from chunks of any size.
///
/// ```
/// # use enginetap_core::capture::file::{Reader, Writer, Entry};
/// let mut bytes = Vec::new();
/// let writer = Writer::new(&mut bytes);
/// writer.end(0, &mut bytes);
/// let mut reader = Reader::default();
/// for chunk in bytes.chunks(7) {
///     reader.push(chunk);
///     while let Some(entry) = reader.next()? {
///         assert!(matches!(entry, Entry::End(_)));
///     }
/// }
/// reader.finish()?;
/// # Ok::<(), enginetap_core::capture::file::FileError>(())
/// ```
#[derive(Debug, Default)]
pub struct Reader {
    /// Bytes pushed and not yet dropped.
    buffer: Vec<u8>,
    /// How many of them were read.
    read: usize,
    /// Where in the file the buffer begins.
    base: u64,
    begun: bool,
    ended: bool,
}

impl Reader {
    /// Takes the next chunk of the file.
    pub fn push(&mut self, chunk: &[u8]) {
        self.buffer.drain(..self.read);
        self.base = self.base.saturating_add(len64(self.read));
        self.read = 0;
        self.buffer.extend_from_slice(chunk);
    }

    /// The next whole entry; `None`: push more, or the file has ended.
    ///
    /// # Errors
    /// When the file is no capture, or damaged: see [`FileError`]. There is no way on after an error.
    #[allow(clippy::should_implement_trait, reason = "an entry borrows from the reader")]
    pub fn next(&mut self) -> Result<Option<Entry<'_>>, FileError> {
        if self.ended || !self.begin()? {
            return Ok(None);
        }
        let offset = self.offset();
        let Some((kind, len)) = self.entry_head() else { return Ok(None) };
        if !matches!(kind, RECORD | FACT | END) || len > ENTRY_LIMIT {
            return Err(FileError::Damaged { offset, kind, len: len64(len) });
        }
        let start = self.read + ENTRY_HEAD;
        if self.buffer.len() - start < len {
            return Ok(None);
        }
        self.read = start + len;
        let body = &self.buffer[start..self.read];
        match kind {
            RECORD => Ok(Some(Entry::Record(body))),
            FACT => match serde_json::from_slice(body) {
                Ok(fact) => Ok(Some(Entry::Fact(Box::new(fact)))),
                Err(source) => Err(FileError::BadFact { offset, source }),
            },
            _ => {
                self.ended = true;
                let summary = summary(body).ok_or(FileError::Damaged { offset, kind, len: len64(len) })?;
                Ok(Some(Entry::End(summary)))
            }
        }
    }

    /// Says whether the file ended in order, after its last chunk was pushed and its entries read.
    ///
    /// # Errors
    /// [`FileError::Truncated`] when it did not, [`FileError::NotACapture`] when it was shorter than its header.
    pub fn finish(&self) -> Result<(), FileError> {
        match (self.ended, self.begun) {
            (true, _) => Ok(()),
            (false, true) => {
                Err(FileError::Truncated { offset: self.base.saturating_add(len64(self.buffer.len())) })
            }
            (false, false) => Err(FileError::NotACapture),
        }
    }

    /// Where in the file the next entry starts.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.base.saturating_add(len64(self.read))
    }

    /// Reads the file's header; false while it is not whole.
    fn begin(&mut self) -> Result<bool, FileError> {
        if self.begun {
            return Ok(true);
        }
        let seen = self.buffer.len().min(MAGIC.len());
        if self.buffer[..seen] != MAGIC[..seen] {
            return Err(FileError::NotACapture);
        }
        let Some(version) = self.buffer.get(MAGIC.len()..).and_then(<[u8]>::first_chunk::<4>) else {
            return Ok(false);
        };
        let found = u32::from_le_bytes(*version);
        if found > VERSION {
            return Err(FileError::Newer { found });
        }
        self.read = HEADER_LEN;
        self.begun = true;
        Ok(true)
    }

    fn entry_head(&self) -> Option<(u8, usize)> {
        let (kind, rest) = self.buffer.get(self.read..)?.split_first()?;
        let len = u32::from_le_bytes(*rest.first_chunk::<4>()?);
        Some((*kind, usize::try_from(len).unwrap_or(usize::MAX)))
    }
}

fn summary(body: &[u8]) -> Option<Summary> {
    let number =
        |i: usize| body.get(i * 8..).and_then(<[u8]>::first_chunk::<8>).copied().map(u64::from_le_bytes);
    Some(Summary { records: number(0)?, facts: number(1)?, lost: number(2)? })
}

fn len64(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
