//! Records as the core sees them: parsed and checked, borrowing the payload.

use enginetap_common::record::{Call, HEADER_LEN, Header, Kind, flags, mark};

use crate::ids::{ConnId, Direction, Fd, Pid, Tid};
use crate::time::{MonoTime, Nanos};

/// What the kernel saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// When it happened; for a call, when it returned.
    pub time: MonoTime,
    /// The process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// What happened.
    pub body: Body<'a>,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// Bytes moved on a connection.
    Data(Data<'a>),
    /// A connection was accepted on `listener`.
    Accept {
        /// The new connection.
        conn: ConnId,
        /// Its descriptor.
        fd: Fd,
        /// The listening descriptor.
        listener: Fd,
    },
    /// A connection was opened.
    Connect {
        /// The new connection.
        conn: ConnId,
        /// Its descriptor.
        fd: Fd,
    },
    /// A descriptor of a connection was closed.
    Close {
        /// The connection.
        conn: ConnId,
        /// The descriptor.
        fd: Fd,
    },
    /// A descriptor of a connection was duplicated.
    Dup {
        /// The connection.
        conn: ConnId,
        /// The old descriptor.
        from: Fd,
        /// The new descriptor.
        to: Fd,
    },
    /// The process made a process or a thread.
    Fork {
        /// The new one's id.
        child: Pid,
    },
    /// The process replaced its program.
    Exec,
    /// The process ended.
    Exit,
    /// A probed function of the process was entered.
    Mark(Mark),
}

/// Which probed function was entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mark {
    /// One that fires once at the start of each forward of the model.
    Forward,
    /// The interpreter's collector, which has just returned.
    Collected {
        /// How long it took.
        took: Nanos,
        /// The generation that was collected, the youngest 0.
        generation: i32,
    },
    /// One that this build does not know, by its number.
    Other(u32),
}

/// A piece of what one call moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data<'a> {
    /// The connection.
    pub conn: ConnId,
    /// The descriptor the call was made on.
    pub fd: Fd,
    /// Received or sent.
    pub direction: Direction,
    /// The system call.
    pub call: Call,
    /// Time inside the call.
    pub spent: Nanos,
    /// Stream offset of the first byte of the call.
    pub offset: u64,
    /// Bytes the call moved. Zero on a receive: the peer closed.
    pub total: u32,
    /// Where in the call `bytes` start.
    pub at: u32,
    /// The payload copied.
    pub bytes: &'a [u8],
    /// Whether this is the last record of the call.
    pub last: bool,
}

/// Why a record does not parse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Shorter than a header.
    #[error("record of {0} bytes is shorter than its header")]
    Short(usize),
    /// The header's length runs past the record's end.
    #[error("record says {says} payload bytes and holds {holds}")]
    Length {
        /// Length in the header.
        says: u32,
        /// Bytes that follow the header.
        holds: usize,
    },
    /// A kind or call number nobody knows: agent and kernel programs of different builds.
    #[error("record of unknown kind {kind}, call {call}")]
    Unknown {
        /// Number of the kind.
        kind: u8,
        /// Number of the call.
        call: u8,
    },
    /// The payload lies outside what the call moved.
    #[error("payload at {at} of {len} bytes is outside a call of {total}")]
    Bounds {
        /// Position in the call.
        at: u32,
        /// Length of the payload.
        len: u32,
        /// Bytes the call moved.
        total: u32,
    },
}

impl Mark {
    fn of(header: &Header) -> Self {
        match header.aux {
            mark::FORWARD => Self::Forward,
            mark::COLLECTED => Self::Collected { took: Nanos(header.offset), generation: header.fd },
            other => Self::Other(other),
        }
    }
}

impl<'a> Record<'a> {
    /// Reads one record from the bytes of one ring entry.
    ///
    /// # Errors
    /// When the bytes are no record of this build: see [`RecordError`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, RecordError> {
        let header = Header::from_bytes(bytes).ok_or(RecordError::Short(bytes.len()))?;
        let rest = bytes.get(HEADER_LEN..).unwrap_or_default();
        let payload = usize::try_from(header.len)
            .ok()
            .and_then(|len| rest.get(..len))
            .ok_or(RecordError::Length { says: header.len, holds: rest.len() })?;
        Ok(Self {
            time: MonoTime(header.time),
            pid: Pid(header.pid),
            tid: Tid(header.tid),
            body: Body::parse(&header, payload)?,
        })
    }
}

impl<'a> Body<'a> {
    fn parse(header: &Header, payload: &'a [u8]) -> Result<Self, RecordError> {
        let unknown = RecordError::Unknown { kind: header.kind, call: header.call };
        let kind = Kind::from_u8(header.kind).ok_or(unknown)?;
        let (conn, fd) = (ConnId(header.conn), Fd(header.fd));
        let other = || Fd(i32::try_from(header.aux).unwrap_or(-1));
        Ok(match kind {
            Kind::Rx => Self::Data(Data::parse(header, payload, Direction::Rx)?),
            Kind::Tx => Self::Data(Data::parse(header, payload, Direction::Tx)?),
            Kind::Accept => Self::Accept { conn, fd, listener: other() },
            Kind::Connect => Self::Connect { conn, fd },
            Kind::Close => Self::Close { conn, fd },
            Kind::Dup => Self::Dup { conn, from: fd, to: other() },
            Kind::Fork => Self::Fork { child: Pid(header.aux) },
            Kind::Exec => Self::Exec,
            Kind::Exit => Self::Exit,
            Kind::Mark => Self::Mark(Mark::of(header)),
        })
    }
}

impl<'a> Data<'a> {
    fn parse(header: &Header, bytes: &'a [u8], direction: Direction) -> Result<Self, RecordError> {
        let Header { conn, offset, spent, fd, total, at, len, kind, call, flags: bits, .. } = *header;
        if at.checked_add(len).is_none_or(|end| end > total) {
            return Err(RecordError::Bounds { at, len, total });
        }
        Ok(Self {
            conn: ConnId(conn),
            fd: Fd(fd),
            direction,
            call: Call::from_u8(call).ok_or(RecordError::Unknown { kind, call })?,
            spent: Nanos(u64::from(spent)),
            offset,
            total,
            at,
            bytes,
            last: bits & flags::LAST != 0,
        })
    }
}
