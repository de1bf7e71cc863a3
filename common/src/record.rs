//! Records: what the kernel saw, as it lies on the ring: one [`Header`] and `len` bytes of payload.

/// Bytes of one [`Header`].
pub const HEADER_LEN: usize = 64;

/// Most payload bytes in one record. A call that moved more is split into several records.
pub const PIECE_LEN: usize = 16 * 1024;

/// Most records one call may become: with [`PIECE_LEN`] this caps the payload copied at 1 MiB a call.
pub const MAX_PIECES: u32 = 64;

/// The head of every record. No padding, little-endian, one layout on both sides.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// When the event happened (for a call: when it returned), nanoseconds of `CLOCK_MONOTONIC`.
    pub time: u64,
    /// The connection's id, unique for the life of the kernel programs; 0 where there is none.
    pub conn: u64,
    /// Offset in the stream (per connection and direction) of the first byte this call moved.
    pub offset: u64,
    /// Nanoseconds spent inside the call, saturating; 0 where that is not measured (the socket calls are seen
    /// only when they return: half the cost).
    pub spent: u32,
    /// Process id (kernel's tgid), in the initial PID namespace.
    pub pid: u32,
    /// Thread id (kernel's pid), in the initial PID namespace.
    pub tid: u32,
    /// File descriptor the call was made on; -1 where there is none.
    pub fd: i32,
    /// Bytes the call moved in truth, whatever was copied of them.
    pub total: u32,
    /// Position, within those `total` bytes, of the first byte of this record's payload.
    pub at: u32,
    /// Payload bytes that follow this header.
    pub len: u32,
    /// The other number of the event: listener's fd of an accept, new fd of a dup, child of a fork.
    pub aux: u32,
    /// A [`Kind`].
    pub kind: u8,
    /// A [`Call`].
    pub call: u8,
    /// Bits of [`flags`].
    pub flags: u8,
    /// Zero.
    pub reserved: [u8; 5],
}

const _: () = assert!(size_of::<Header>() == HEADER_LEN);

/// Bits of [`Header::flags`].
pub mod flags {
    /// The last record of its call: nothing more of this call follows.
    pub const LAST: u8 = 1;
    /// The payload could not be read from the process's memory: the call is a gap.
    pub const FAULT: u8 = 2;
    /// The bytes never passed through user space (sendfile, splice): the call is a gap.
    pub const NO_PAYLOAD: u8 = 4;
}

/// What the function is that a [`Kind::Mark`] names in its `aux`.
pub mod mark {
    /// Fires once at the start of each forward of the model.
    pub const FORWARD: u32 = 1;
    /// The interpreter has collected garbage: `offset` is how many nanoseconds, `fd` which generation.
    pub const COLLECTED: u32 = 2;
}

/// What a record tells.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Bytes came in on a connection.
    Rx = 1,
    /// Bytes went out on a connection.
    Tx = 2,
    /// A connection was accepted; `aux` is the listener's fd.
    Accept = 3,
    /// A connection was opened by the process.
    Connect = 4,
    /// A file descriptor of a connection was closed.
    Close = 5,
    /// A file descriptor was duplicated; `aux` is the new fd.
    Dup = 6,
    /// A watched process made a process or a thread; `aux` is its pid.
    Fork = 7,
    /// A watched process replaced its program.
    Exec = 8,
    /// A watched process ended.
    Exit = 9,
    /// A probed function of a watched process was entered; `aux` says which: a [`mark`].
    Mark = 10,
}

impl Kind {
    /// Every kind, in the order of its number.
    pub const ALL: [Self; 10] = [
        Self::Rx,
        Self::Tx,
        Self::Accept,
        Self::Connect,
        Self::Close,
        Self::Dup,
        Self::Fork,
        Self::Exec,
        Self::Exit,
        Self::Mark,
    ];

    /// The kind of this number, if there is one.
    #[must_use]
    pub fn from_u8(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }
}

/// The system call, or the function of a TLS library, that moved the bytes or changed the descriptor.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each variant is the system call of that name")]
pub enum Call {
    Read = 1,
    Readv = 2,
    Recvfrom = 3,
    Recvmsg = 4,
    Recvmmsg = 5,
    Write = 6,
    Writev = 7,
    Sendto = 8,
    Sendmsg = 9,
    Sendmmsg = 10,
    Sendfile = 11,
    Splice = 12,
    Accept = 13,
    Accept4 = 14,
    Connect = 15,
    Close = 16,
    Dup = 17,
    Dup2 = 18,
    Dup3 = 19,
    Fcntl = 20,
    Shutdown = 21,
    /// OpenSSL's function of that name: the bytes are the plain text, not what is on a socket. The same below.
    SslRead = 22,
    SslReadEx = 23,
    SslWrite = 24,
    SslWriteEx = 25,
    /// OpenSSL's function of that name: the connection is no more.
    SslFree = 26,
}

impl Call {
    /// Every call, in the order of its number.
    pub const ALL: [Self; 26] = [
        Self::Read,
        Self::Readv,
        Self::Recvfrom,
        Self::Recvmsg,
        Self::Recvmmsg,
        Self::Write,
        Self::Writev,
        Self::Sendto,
        Self::Sendmsg,
        Self::Sendmmsg,
        Self::Sendfile,
        Self::Splice,
        Self::Accept,
        Self::Accept4,
        Self::Connect,
        Self::Close,
        Self::Dup,
        Self::Dup2,
        Self::Dup3,
        Self::Fcntl,
        Self::Shutdown,
        Self::SslRead,
        Self::SslReadEx,
        Self::SslWrite,
        Self::SslWriteEx,
        Self::SslFree,
    ];

    /// The call of this number, if there is one.
    #[must_use]
    pub fn from_u8(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// Whether it is a function of a TLS library, and what it moves is plain text.
    #[must_use]
    pub fn is_tls(self) -> bool {
        match self {
            Self::SslRead | Self::SslReadEx | Self::SslWrite | Self::SslWriteEx | Self::SslFree => true,
            Self::Read
            | Self::Readv
            | Self::Recvfrom
            | Self::Recvmsg
            | Self::Recvmmsg
            | Self::Write
            | Self::Writev
            | Self::Sendto
            | Self::Sendmsg
            | Self::Sendmmsg
            | Self::Sendfile
            | Self::Splice
            | Self::Accept
            | Self::Accept4
            | Self::Connect
            | Self::Close
            | Self::Dup
            | Self::Dup2
            | Self::Dup3
            | Self::Fcntl
            | Self::Shutdown => false,
        }
    }
}

impl Header {
    /// The header's bytes, as they lie on the ring and in a capture file.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        let Self {
            time,
            conn,
            offset,
            spent,
            pid,
            tid,
            fd,
            total,
            at,
            len,
            aux,
            kind,
            call,
            flags,
            reserved,
        } = *self;
        out[0..8].copy_from_slice(&time.to_le_bytes());
        out[8..16].copy_from_slice(&conn.to_le_bytes());
        out[16..24].copy_from_slice(&offset.to_le_bytes());
        out[24..28].copy_from_slice(&spent.to_le_bytes());
        out[28..32].copy_from_slice(&pid.to_le_bytes());
        out[32..36].copy_from_slice(&tid.to_le_bytes());
        out[36..40].copy_from_slice(&fd.to_le_bytes());
        out[40..44].copy_from_slice(&total.to_le_bytes());
        out[44..48].copy_from_slice(&at.to_le_bytes());
        out[48..52].copy_from_slice(&len.to_le_bytes());
        out[52..56].copy_from_slice(&aux.to_le_bytes());
        out[56] = kind;
        out[57] = call;
        out[58] = flags;
        out[59..64].copy_from_slice(&reserved);
        out
    }

    /// Reads a header from the front of `bytes`; `None` when they are too few.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (head, _) = bytes.split_first_chunk::<HEADER_LEN>()?;
        let u32_at = |i: usize| u32::from_le_bytes([head[i], head[i + 1], head[i + 2], head[i + 3]]);
        let u64_at = |i: usize| u64::from(u32_at(i)) | (u64::from(u32_at(i + 4)) << 32);
        Some(Self {
            time: u64_at(0),
            conn: u64_at(8),
            offset: u64_at(16),
            spent: u32_at(24),
            pid: u32_at(28),
            tid: u32_at(32),
            fd: i32::from_le_bytes([head[36], head[37], head[38], head[39]]),
            total: u32_at(40),
            at: u32_at(44),
            len: u32_at(48),
            aux: u32_at(52),
            kind: head[56],
            call: head[57],
            flags: head[58],
            reserved: [head[59], head[60], head[61], head[62], head[63]],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_its_bytes() {
        let header = Header {
            time: 0x0102_0304_0506_0708,
            conn: 9,
            offset: 10,
            spent: 11,
            pid: 12,
            tid: 13,
            fd: -1,
            total: 15,
            at: 16,
            len: 17,
            aux: 18,
            kind: 1,
            call: 2,
            flags: 3,
            reserved: [0; 5],
        };
        assert_eq!(Header::from_bytes(&header.to_bytes()), Some(header));
        assert_eq!(Header::from_bytes(&header.to_bytes()[..63]), None);
    }

    #[test]
    fn every_kind_and_call_comes_back_from_its_number() {
        for kind in Kind::ALL {
            assert_eq!(Kind::from_u8(kind as u8), Some(kind));
        }
        for call in Call::ALL {
            assert_eq!(Call::from_u8(call as u8), Some(call));
        }
        assert_eq!((Kind::from_u8(0), Kind::from_u8(99), Call::from_u8(0)), (None, None, None));
    }
}
