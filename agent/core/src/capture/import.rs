//! Recordings made elsewhere, as lines of JSON a system call each, turned into capture files.
//!
//! Two forms are read. A recorder inside the processes writes
//! `{"t": 5645.9, "dt": 1e-05, "pid": .., "tid": .., "comm": .., "call": "sendto", "fd": .., "sock": "unix",
//! "local": path, "peer": path, "n": bytes, "hex": payload}`, `t` in seconds of `CLOCK_MONOTONIC` at the call's
//! return. From strace come `{"t": "15:07:41.490708", "tid": .., "call": .., "fd": .., "sock": "UNIX-STREAM:[..]",
//! "n": .., "hex": ..}`, all of one process, `t` the time of day at the call's start.
//!
//! What a recording does not say is made out from the traffic itself: who is API server and who engine, the
//! engine's version, and the clocks (how: `import/clocks.rs`).

mod clocks;
mod conns;
mod evidence;
mod line;

use std::collections::HashMap;

use enginetap_common::record::{Header, Kind, PIECE_LEN, flags};

use crate::capture::fact::{Conn, Engine, Fact, Process, Role, Server};
use crate::capture::file::{FileError, Writer};
use crate::ids::{ConnId, Pid, ServerId};
use conns::Conns;
use evidence::Evidence;
use line::{Moved, SocketCall};

/// Why a recording cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// A line that is no call.
    #[error("line {line} of the recording is no socket call: {source}")]
    BadLine {
        /// Its number, from 1.
        line: usize,
        /// What the JSON reader says.
        source: serde_json::Error,
    },
    /// A line whose time or payload cannot be read.
    #[error("line {line} of the recording has no usable {field}: {text:.40}")]
    BadField {
        /// Its number, from 1.
        line: usize,
        /// The field.
        field: &'static str,
        /// What stands there.
        text: String,
    },
    /// Nothing in the recording could be used.
    #[error("the recording holds no calls on sockets")]
    Empty,
    /// The capture cannot be written.
    #[error("the recording does not fit into a capture: {0}")]
    Write(#[from] FileError),
}

/// The one server of a recording.
const SERVER: ServerId = ServerId(1);

/// Turns the lines of a recording of an engine into a capture file. `version`: the engine's, where known; else the
/// one the engine tells, if it does.
///
/// # Errors
/// See [`ImportError`].
pub fn import<'a>(
    lines: impl Iterator<Item = &'a str>,
    engine: Engine,
    version: Option<&str>,
) -> Result<Vec<u8>, ImportError> {
    let mut recording = line::read(lines)?;
    if recording.calls.is_empty() {
        return Err(ImportError::Empty);
    }
    let conns = Conns::find(&recording.calls);
    let evidence = Evidence::gather(&recording.calls, &conns, engine, version);
    let clock = clocks::set(&mut recording, &evidence);
    let mut output = Output::new();
    output.fact(&Fact::Clock(clock))?;
    output.fact(&Fact::Server(server(&evidence, engine, version)))?;
    for (pid, role) in evidence.roles(&conns) {
        output.fact(&Fact::Process(process(pid, role, &recording.calls)))?;
    }
    for (call, conn) in recording.calls.iter().zip(conns.of_calls()) {
        output.call(call, conn)?;
    }
    output.fact(&Fact::Detached(SERVER))?;
    Ok(output.end())
}

fn server(evidence: &Evidence, engine: Engine, version: Option<&str>) -> Server {
    Server {
        sglang: None,
        v0: evidence.v0,
        id: SERVER,
        engine,
        version: version.or(evidence.version()).map(String::from),
        models: evidence.model().map(String::from).into_iter().collect(),
        schema: None,
        resource: Vec::new(),
    }
}

fn process(pid: Pid, role: Role, calls: &[SocketCall]) -> Process {
    let main = calls.iter().find(|call| call.pid == pid && call.tid.0 == pid.0);
    let title = main.map(|call| call.comm.clone()).filter(|comm| !comm.is_empty());
    Process { pid, server: SERVER, role, title: title.unwrap_or_else(|| format!("{role:?}")) }
}

/// The capture being written.
struct Output {
    file: Vec<u8>,
    writer: Writer,
    /// Bytes moved so far on each connection, received and sent.
    moved: HashMap<ConnId, [u64; 2]>,
}

impl Output {
    fn new() -> Self {
        let mut file = Vec::new();
        let writer = Writer::new(&mut file);
        Self { file, writer, moved: HashMap::new() }
    }

    fn fact(&mut self, fact: &Fact) -> Result<(), FileError> {
        self.writer.fact(fact, &mut self.file)
    }

    fn call(&mut self, call: &SocketCall, conn: &Conn) -> Result<(), FileError> {
        // The fact comes first, so that whoever reads on knows the connection when its bytes come.
        if !self.moved.contains_key(&conn.conn) {
            self.fact(&Fact::Conn(conn.clone()))?;
        }
        let [received, sent] = self.moved.entry(conn.conn).or_default();
        let (kind, offset) = match call.moved {
            Moved::Rx => (Kind::Rx, received),
            Moved::Tx => (Kind::Tx, sent),
            Moved::Accept => (Kind::Accept, &mut 0),
            Moved::Connect => (Kind::Connect, &mut 0),
            Moved::Close => (Kind::Close, &mut 0),
        };
        let header = header(call, conn, kind, *offset);
        *offset = offset.saturating_add(u64::from(call.total));
        self.records(header, &call.bytes)
    }

    /// Writes the records of one call, in pieces as the kernel programs would.
    fn records(&mut self, mut header: Header, bytes: &[u8]) -> Result<(), FileError> {
        let mut rest = bytes;
        loop {
            let (piece, after) = rest.split_at(rest.len().min(PIECE_LEN));
            header.len = u32::try_from(piece.len()).unwrap_or(u32::MAX);
            header.flags = if after.is_empty() { flags::LAST } else { 0 };
            let mut record = header.to_bytes().to_vec();
            record.extend_from_slice(piece);
            self.writer.record(&record, &mut self.file)?;
            if after.is_empty() {
                return Ok(());
            }
            header.at = header.at.saturating_add(header.len);
            rest = after;
        }
    }

    fn end(mut self) -> Vec<u8> {
        self.writer.end(0, &mut self.file);
        self.file
    }
}

fn header(call: &SocketCall, conn: &Conn, kind: Kind, offset: u64) -> Header {
    let SocketCall { time, spent, pid, tid, comm: _, call, moved: _, fd: _, ends: _, total, bytes: _ } = call;
    Header {
        time: time.0,
        conn: conn.conn.0,
        offset,
        spent: u32::try_from(spent.0).unwrap_or(u32::MAX),
        pid: pid.0,
        tid: tid.0,
        fd: conn.fd.0,
        total: *total,
        kind: kind as u8,
        call: *call as u8,
        // The listener of an accept is not recorded.
        aux: if kind == Kind::Accept { u32::MAX } else { 0 },
        ..Header::default()
    }
}

#[cfg(test)]
mod tests;
