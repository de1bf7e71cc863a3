//! Newtypes of the numbers that name things.

use serde::{Deserialize, Serialize};

/// A process id (tgid) in the initial PID namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pid(pub u32);

/// A thread id in the initial PID namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tid(pub u32);

/// A file descriptor of some process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fd(pub i32);

/// A connection, unique for the life of one capture. Zero is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ConnId(pub u64);

/// An inference server (one engine instance: all its processes), unique for the life of one capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ServerId(pub u32);

/// One HTTP request and its response: the connection and the number of the exchange on it, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExchangeId {
    /// The connection.
    pub conn: ConnId,
    /// Which exchange on the connection, counted from when it was first seen.
    pub number: u64,
}

/// Direction of bytes, as the watched process sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Received by the watched process.
    Rx,
    /// Sent by the watched process.
    Tx,
}

/// A W3C trace id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TraceId(pub u128);

/// A W3C span id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpanId(pub u64);

impl std::fmt::Display for TraceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl std::fmt::Debug for TraceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TraceId({self})")
    }
}

impl std::fmt::Display for SpanId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl std::fmt::Debug for SpanId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SpanId({self})")
    }
}

/// Makes trace and span ids: a SplitMix64 sequence, so that a replay with the same seed gives the same ids.
#[derive(Clone, Debug)]
pub struct Mint(u64);

impl Mint {
    /// A sequence from a seed: random when live, fixed in a replay.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        // Zero is no valid id; it comes up once in 2^64.
        (z ^ (z >> 31)).max(1)
    }

    /// A new trace id.
    pub fn trace(&mut self) -> TraceId {
        TraceId((u128::from(self.next()) << 64) | u128::from(self.next()))
    }

    /// A new span id.
    pub fn span(&mut self) -> SpanId {
        SpanId(self.next())
    }
}
