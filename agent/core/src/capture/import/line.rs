//! Lines of a recording.

use enginetap_common::record::Call;
use serde::Deserialize;

use super::ImportError;
use crate::ids::{Fd, Pid, Tid};
use crate::time::{EngineTime, MonoTime, Nanos, Seconds};

/// A recording: its calls by time.
pub(super) struct Recording {
    pub(super) calls: Vec<SocketCall>,
    /// Whether the calls' times are times of day, not `CLOCK_MONOTONIC`.
    pub(super) time_of_day: bool,
}

/// A system call on a socket.
pub(super) struct SocketCall {
    /// When it returned.
    pub(super) time: MonoTime,
    pub(super) spent: Nanos,
    pub(super) pid: Pid,
    pub(super) tid: Tid,
    /// Name of the thread; empty where it is not recorded.
    pub(super) comm: String,
    pub(super) call: Call,
    pub(super) moved: Moved,
    pub(super) fd: Fd,
    pub(super) ends: Ends,
    pub(super) total: u32,
    pub(super) bytes: Vec<u8>,
}

/// What a call did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moved {
    Rx,
    Tx,
    Accept,
    Connect,
    Close,
}

/// The two ends of a socket. A path or address that is not known is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) tcp: bool,
    /// No socket: the process's standard error.
    pub(super) log: bool,
    pub(super) local: Option<String>,
    pub(super) peer: Option<String>,
}

/// A line as it is written, in either form.
#[derive(Deserialize)]
struct Line {
    t: Stamp,
    #[serde(default)]
    dt: f64,
    pid: Option<u32>,
    tid: u32,
    #[serde(default)]
    comm: String,
    call: String,
    fd: i32,
    sock: String,
    #[serde(default)]
    local: String,
    #[serde(default)]
    peer: String,
    #[serde(default)]
    n: u32,
    #[serde(default)]
    hex: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Stamp {
    Seconds(f64),
    TimeOfDay(String),
}

const CALLS: [(&str, Call, Moved); 14] = [
    ("read", Call::Read, Moved::Rx),
    ("readv", Call::Readv, Moved::Rx),
    ("recvfrom", Call::Recvfrom, Moved::Rx),
    ("recvmsg", Call::Recvmsg, Moved::Rx),
    ("recvmmsg", Call::Recvmmsg, Moved::Rx),
    ("write", Call::Write, Moved::Tx),
    ("writev", Call::Writev, Moved::Tx),
    ("sendto", Call::Sendto, Moved::Tx),
    ("sendmsg", Call::Sendmsg, Moved::Tx),
    ("sendmmsg", Call::Sendmmsg, Moved::Tx),
    ("accept", Call::Accept, Moved::Accept),
    ("accept4", Call::Accept4, Moved::Accept),
    ("connect", Call::Connect, Moved::Connect),
    ("close", Call::Close, Moved::Close),
];

/// Reads the lines of a recording; calls of other names are passed over.
pub(super) fn read<'a>(lines: impl Iterator<Item = &'a str>) -> Result<Recording, ImportError> {
    let mut recording = Recording { calls: Vec::new(), time_of_day: false };
    for (text, line) in lines.zip(1..).filter(|(text, _)| !text.trim().is_empty()) {
        let parsed = serde_json::from_str(text).map_err(|source| ImportError::BadLine { line, source })?;
        recording.add(parsed, line)?;
    }
    if recording.time_of_day {
        recording.one_process();
    }
    recording.calls.sort_by_key(|call| call.time);
    Ok(recording)
}

impl Recording {
    fn add(&mut self, line: Line, number: usize) -> Result<(), ImportError> {
        let Line { t, dt, pid, tid, comm, call, fd, sock, local, peer, n, hex } = line;
        let Some((_, call, moved)) = CALLS.iter().find(|(name, ..)| *name == call) else { return Ok(()) };
        let time = match t {
            Stamp::Seconds(at) => EngineTime(at).mono(),
            // strace shows an accept by its listener: of the connection it says nothing.
            Stamp::TimeOfDay(_) if *moved == Moved::Accept => return Ok(()),
            Stamp::TimeOfDay(text) => {
                self.time_of_day = true;
                let field = "t";
                time_of_day(&text).ok_or(ImportError::BadField { line: number, field, text })?
            }
        };
        let bytes = unhex(&hex).ok_or(ImportError::BadField { line: number, field: "hex", text: hex })?;
        // Only data counts: strace shows an address where a call has one.
        let total = if matches!(moved, Moved::Rx | Moved::Tx) { n.max(len32(&bytes)) } else { 0 };
        self.calls.push(SocketCall {
            time,
            spent: Seconds(dt).nanos(),
            pid: Pid(pid.unwrap_or(tid)),
            tid: Tid(tid),
            comm,
            call: *call,
            moved: *moved,
            fd: Fd(fd),
            ends: Ends::read(&sock, &local, &peer),
            total,
            bytes: if total > 0 { bytes } else { Vec::new() },
        });
        Ok(())
    }

    /// A recording without pids is of one process; its oldest thread is the process.
    fn one_process(&mut self) {
        let pid = self.calls.iter().map(|call| call.tid.0).min().unwrap_or_default();
        for call in &mut self.calls {
            call.pid = Pid(pid);
        }
    }
}

impl Ends {
    fn read(sock: &str, local: &str, peer: &str) -> Self {
        let named = |end: &str| (!matches!(end, "" | "-")).then(|| end.to_owned());
        match sock {
            "log" => Self { tcp: false, log: true, local: None, peer: None },
            "tcp" | "unix" => Self { tcp: sock == "tcp", log: false, local: named(local), peer: named(peer) },
            // `TCP:[ip:port->ip:port]`, `UNIX-STREAM:[inode->inode,"path"]`
            _ => {
                let (kind, ends) = sock.split_once(":[").unwrap_or((sock, ""));
                let ends = ends.trim_end_matches(']');
                let (local, rest) = ends.split_once("->").unwrap_or((ends, ""));
                let (peer, path) = rest.split_once(',').unwrap_or((rest, ""));
                let path = path.trim_matches('"');
                let tcp = kind.starts_with("TCP");
                // An inode is as good a name as any: it tells connections apart and pairs their ends.
                let local = if path.is_empty() { local } else { path };
                Self { tcp, log: false, local: named(local), peer: named(peer) }
            }
        }
    }
}

/// Nanoseconds since midnight of `15:07:41.490708`.
fn time_of_day(text: &str) -> Option<MonoTime> {
    let mut parts = text.split(':');
    let (hours, minutes, seconds) = (parts.next()?, parts.next()?, parts.next()?);
    let whole =
        hours.parse::<u64>().ok()?.checked_mul(3600)? + minutes.parse::<u64>().ok()?.checked_mul(60)?;
    let part = Seconds(seconds.parse().ok()?).nanos();
    Some(MonoTime(Nanos(whole.checked_mul(1_000_000_000)?).0.checked_add(part.0)?))
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pair = |pair: &[u8]| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?);
    text.as_bytes().chunks(2).map(pair).collect()
}

fn len32(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}
