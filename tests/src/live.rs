//! Tests on the running kernel: processes that move bytes, watched by a real probe. They need root.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use enginetap::probe::{Options, Probe};
use enginetap_core::capture::record::{Body, Data, Mark, Record};
use enginetap_core::ids::{ConnId, Direction, Fd, Pid};

/// A Python process that waits where its script says `ready()` until told to go on.
///
/// The scripts get `ready()`, a connected TCP pair by `pair()`, and `pattern(n, seed)`: bytes anyone can make again.
pub struct Script {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

const PRELUDE: &str = r"
import array, ctypes, mmap, os, socket, struct, sys, threading, time
def ready():
    sys.stdout.write('ready\n'); sys.stdout.flush(); sys.stdin.readline()
def pattern(n, seed=0):
    return bytes((i * 7 + i // 251 + seed) & 255 for i in range(n))
def exactly(sock, n):
    out = b''
    while len(out) < n:
        part = sock.recv(n - len(out))
        if not part: raise EOFError
        out += part
    return out
def pair():
    listener = socket.create_server(('127.0.0.1', 0))
    client = socket.create_connection(listener.getsockname())
    server, _ = listener.accept()
    return client, server
libc = ctypes.CDLL(None, use_errno=True)
";

/// The bytes that `pattern(n, seed)` makes in a script.
#[must_use]
pub fn pattern(n: usize, seed: usize) -> Vec<u8> {
    (0..n).map(|i| u8::try_from((i * 7 + i / 251 + seed) & 255).unwrap_or_default()).collect()
}

impl Script {
    /// Starts a script and waits for its first `ready()`.
    ///
    /// # Errors
    /// When there is no Python, or the script ends before it is ready.
    pub fn start(text: &str) -> Result<Self> {
        let mut child = Command::new("python3")
            .args(["-c", &format!("{PRELUDE}\n{text}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting python3")?;
        let input = child.stdin.take().context("no standard input")?;
        let output = BufReader::new(child.stdout.take().context("no standard output")?);
        let mut script = Self { child, input, output };
        script.expect_ready()?;
        Ok(script)
    }

    /// Waits for the next `ready()`.
    ///
    /// # Errors
    /// When the script says something else or ends.
    pub fn expect_ready(&mut self) -> Result<()> {
        let line = self.line()?;
        ensure!(line == "ready", "the script said {line:?} instead of being ready");
        Ok(())
    }

    /// The next line the script prints.
    ///
    /// # Errors
    /// When it ends.
    pub fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    /// The process.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid(self.child.id())
    }

    /// Lets the script go on from its `ready()`.
    ///
    /// # Errors
    /// When it has ended.
    pub fn go(&mut self) -> Result<()> {
        writeln!(self.input)?;
        Ok(())
    }

    fn ended(&mut self) -> Result<bool> {
        let Some(status) = self.child.try_wait()? else { return Ok(false) };
        ensure!(status.success(), "the script failed: {status}");
        Ok(true)
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A probe, and what it has seen.
pub struct Live {
    /// The probe.
    pub probe: Probe,
    /// Every record, in the order it came.
    pub records: Vec<Vec<u8>>,
    runtime: tokio::runtime::Runtime,
}

impl Live {
    /// Loads the probe.
    ///
    /// # Errors
    /// When this machine or user cannot (the tests need root).
    pub fn load(options: &Options) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { probe: Probe::load(options)?, records: Vec::new(), runtime })
    }

    /// Starts a script, watched from its first `ready()` on.
    ///
    /// # Errors
    /// As [`Script::start`].
    pub fn script(&mut self, text: &str) -> Result<Script> {
        let script = Script::start(text)?;
        self.probe.watch(script.pid())?;
        Ok(script)
    }

    /// One round: waits for the probe and takes what there is.
    ///
    /// # Errors
    /// When the probe cannot wait.
    pub fn round(&mut self) -> Result<()> {
        self.runtime.block_on(self.probe.ready())?;
        self.probe.drain(|record| self.records.push(record.to_vec()));
        Ok(())
    }

    /// Takes records until the script has ended, and then all that are left.
    ///
    /// # Errors
    /// When the script fails or does not end within 60 s.
    pub fn finish(&mut self, script: &mut Script) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !script.ended()? {
            ensure!(Instant::now() < deadline, "the script did not end");
            self.round()?;
        }
        self.flush();
        Ok(())
    }

    /// Takes all records there are.
    pub fn flush(&mut self) {
        self.probe.flush(|record| self.records.push(record.to_vec()));
    }

    /// The records, parsed.
    ///
    /// # Panics
    /// On a record that does not parse: that is what the tests are for.
    pub fn parsed(&self) -> impl Iterator<Item = Record<'_>> {
        self.records.iter().map(|bytes| match Record::parse(bytes) {
            Ok(record) => record,
            Err(error) => panic!("a record that does not parse: {error}"),
        })
    }

    /// What moved, by connection and direction.
    #[must_use]
    pub fn streams(&self) -> BTreeMap<(ConnId, bool), Stream> {
        let mut streams = BTreeMap::<_, Stream>::new();
        for record in self.parsed() {
            if let Body::Data(data) = record.body {
                let sent = data.direction == Direction::Tx;
                streams.entry((data.conn, sent)).or_default().push(&data);
            }
        }
        streams
    }

    /// The marks that were told, with their times, in nanoseconds.
    #[must_use]
    pub fn marks(&self) -> Vec<(u64, Mark)> {
        let mark = |record: Record<'_>| {
            if let Body::Mark(mark) = record.body { Some((record.time.0, mark)) } else { None }
        };
        self.parsed().filter_map(mark).collect()
    }

    /// The connection of an accepted (or else an opened) socket, in the order they came.
    #[must_use]
    pub fn conns(&self, accepted: bool) -> Vec<(ConnId, Fd)> {
        self.parsed()
            .filter_map(|record| match record.body {
                Body::Accept { conn, fd, .. } if accepted => Some((conn, fd)),
                Body::Connect { conn, fd } if !accepted => Some((conn, fd)),
                Body::Data(_)
                | Body::Accept { .. }
                | Body::Connect { .. }
                | Body::Close { .. }
                | Body::Dup { .. }
                | Body::Fork { .. }
                | Body::Exec
                | Body::Exit
                | Body::Mark(_) => None,
            })
            .collect()
    }

    /// What the kernel counted as lost, for all reasons.
    ///
    /// # Errors
    /// When the counters cannot be read.
    pub fn lost(&self) -> Result<u64> {
        Ok(self.probe.losses()?.iter().map(|(_, count)| count).sum())
    }
}

/// One direction of a connection, put together; a byte that was not seen is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stream {
    /// The bytes.
    pub bytes: Vec<Option<u8>>,
    /// Calls, by their first offset: their length.
    pub calls: BTreeMap<u64, u32>,
    /// Whether the end of the stream was seen.
    pub ended: bool,
    /// Whether a record came before one with an earlier offset.
    pub disorder: bool,
    last: u64,
}

impl Stream {
    fn push(&mut self, data: &Data<'_>) {
        let at = data.offset + u64::from(data.at);
        self.disorder |= at < self.last;
        self.last = at;
        if data.total == 0 {
            self.ended = true;
            return;
        }
        self.calls.insert(data.offset, data.total);
        let end = usize::try_from(data.offset + u64::from(data.total)).unwrap_or_default();
        if self.bytes.len() < end {
            self.bytes.resize(end, None);
        }
        let start = usize::try_from(at).unwrap_or_default();
        for (place, byte) in self.bytes.iter_mut().skip(start).zip(data.bytes) {
            assert!(place.is_none(), "byte {at} came twice: {data:?}");
            *place = Some(*byte);
        }
    }

    /// The bytes, when none is missing.
    #[must_use]
    pub fn whole(&self) -> Option<Vec<u8>> {
        self.bytes.iter().copied().collect()
    }

    /// How many bytes are missing.
    #[must_use]
    pub fn missing(&self) -> usize {
        self.bytes.iter().filter(|byte| byte.is_none()).count()
    }
}
