//! What comes before the messages: the greeting and the READY command.

const LEN: usize = 64;
const SIGNATURE: usize = 10;
const MECHANISM: std::ops::Range<usize> = 12..32;
const NULL: &[u8; 20] = b"NULL\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

/// The socket type a peer names in its READY command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each variant is the socket type of that name")]
pub enum SocketType {
    Req,
    Rep,
    Dealer,
    Router,
    Pub,
    Xpub,
    Sub,
    Xsub,
    Push,
    Pull,
    Pair,
    /// One that this table does not have.
    Other,
}

impl SocketType {
    const NAMES: [(&'static [u8], Self); 11] = [
        (b"REQ", Self::Req),
        (b"REP", Self::Rep),
        (b"DEALER", Self::Dealer),
        (b"ROUTER", Self::Router),
        (b"PUB", Self::Pub),
        (b"XPUB", Self::Xpub),
        (b"SUB", Self::Sub),
        (b"XSUB", Self::Xsub),
        (b"PUSH", Self::Push),
        (b"PULL", Self::Pull),
        (b"PAIR", Self::Pair),
    ];

    fn named(name: &[u8]) -> Self {
        Self::NAMES.iter().find(|(known, _)| *known == name).map_or(Self::Other, |(_, kind)| *kind)
    }
}

/// The greeting, as far as it has come.
#[derive(Debug)]
pub(super) struct Greeting {
    bytes: [u8; LEN],
    have: usize,
}

impl Default for Greeting {
    fn default() -> Self {
        Self { bytes: [0; LEN], have: 0 }
    }
}

/// What a greeting is, so far.
pub(super) enum Verdict<'a> {
    /// It may be one.
    More,
    /// It was one; frames follow.
    Done(&'a [u8]),
    /// No ZMTP 3, or a mechanism other than NULL.
    Foreign,
}

impl Greeting {
    /// Takes the next bytes.
    pub(super) fn push<'a>(&mut self, bytes: &'a [u8]) -> Verdict<'a> {
        let (more, rest) = bytes.split_at(bytes.len().min(LEN - self.have));
        self.bytes[self.have..self.have + more.len()].copy_from_slice(more);
        self.have += more.len();
        match (self.is_possible(), self.have) {
            (false, _) => Verdict::Foreign,
            (true, LEN) => Verdict::Done(rest),
            (true, _) => Verdict::More,
        }
    }

    fn is_possible(&self) -> bool {
        let seen = |range: std::ops::Range<usize>| self.bytes.get(range.start..range.end.min(self.have));
        let mechanism = seen(MECHANISM).unwrap_or_default();
        // Bytes 1 to 8 are padding, and libzmq puts a ZMTP 1 length there.
        let first = self.have < 1 || self.bytes[0] == 0xff;
        let last = self.have < SIGNATURE || self.bytes[SIGNATURE - 1] == 0x7f;
        let major = self.have <= SIGNATURE || self.bytes[SIGNATURE] >= 3;
        first && last && major && NULL.starts_with(mechanism)
    }
}

/// Whether these bytes begin a connection, as far as they can tell.
pub(super) fn begins(bytes: &[u8]) -> bool {
    matches!(bytes, [0xff, 0, 0, 0, 0, 0, ..])
}

/// The socket type in a READY command; `None` for any other command.
pub(super) fn ready(body: &[u8]) -> Option<SocketType> {
    let mut rest = body.strip_prefix(b"\x05READY")?;
    while let Some((name, after)) = short(rest) {
        let (len, after) = after.split_first_chunk::<4>()?;
        let (value, after) = after.split_at_checked(usize::try_from(u32::from_be_bytes(*len)).ok()?)?;
        if name.eq_ignore_ascii_case(b"Socket-Type") {
            return Some(SocketType::named(value));
        }
        rest = after;
    }
    None
}

/// A name with its length before it, and what follows.
fn short(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*len))
}
