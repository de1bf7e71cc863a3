//! Bodies: how long they are, and where they end.

/// Most bytes of a chunk's extension, or of all trailers.
const LINE_LIMIT: u32 = 16 * 1024;

/// Most hexadecimal digits of a chunk's size.
const DIGIT_LIMIT: u8 = 16;

/// Most digits of a chunk's size that are believed where the place was lost: 4 GiB.
const PROBE_DIGITS: usize = 8;

/// The body of a message being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// So many bytes are left.
    Sized(u64),
    /// Chunks.
    Chunked(Chunk),
    /// Everything until the connection closes.
    ToClose,
}

/// Where in a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chunk {
    /// In the size.
    Size { value: u64, digits: u8 },
    /// In an extension, or in the white space after the size.
    Extension { value: u64, len: u32 },
    /// At the line feed after the size.
    SizeLf { value: u64 },
    /// In the data; so many bytes are left.
    Data(u64),
    /// At the line end after the data.
    DataEnd,
    /// At the line feed after the data.
    DataLf,
    /// In the trailers: bytes in this line, bytes in all.
    Trailer { line: u32, all: u32 },
}

impl Chunk {
    pub(super) const START: Self = Self::Size { value: 0, digits: 0 };

    /// After the line of a chunk of `size` bytes.
    pub(super) const fn after_size(size: u64) -> Self {
        if size == 0 { Self::Trailer { line: 0, all: 0 } } else { Self::Data(size) }
    }
}

/// What the front of some bytes is to a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step<'a> {
    /// Bytes of the body.
    Bytes(&'a [u8]),
    /// Framing.
    Framing,
    /// The body is complete.
    End,
    /// Nothing a body may hold.
    Bad,
}

/// What a gap is to a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GapStep {
    /// So many bytes of the body are missing (`None`: nobody knows how many); the place is known.
    Within(Option<u64>),
    /// The rest of the body is missing, so many bytes; the message is over, and the gap goes on.
    PastEnd(u64),
    /// The place is lost within the body.
    Lost,
}

impl Body {
    /// Whether nothing more belongs to it.
    pub(super) fn is_done(&self) -> bool {
        *self == Self::Sized(0)
    }

    /// Takes what belongs together from the front of `bytes` (not empty); gives it, and what is left.
    pub(super) fn take<'a>(&mut self, bytes: &'a [u8]) -> (Step<'a>, &'a [u8]) {
        match self {
            Self::ToClose => (Step::Bytes(bytes), &[]),
            Self::Sized(left) => {
                let (body, rest) = split(bytes, left);
                (Step::Bytes(body), rest)
            }
            Self::Chunked(chunk) => chunk.take(bytes),
        }
    }

    /// Takes a gap.
    pub(super) fn gap(&mut self, len: Option<u64>) -> GapStep {
        match (self, len) {
            (Self::ToClose, len) => GapStep::Within(len),
            (Self::Sized(left), Some(len)) if len <= *left => {
                *left -= len;
                GapStep::Within(Some(len))
            }
            (Self::Sized(left), Some(_)) => GapStep::PastEnd(*left),
            (Self::Sized(_), None) => GapStep::Lost,
            (Self::Chunked(Chunk::Trailer { .. }), _) => GapStep::PastEnd(0),
            (Self::Chunked(_), None) => GapStep::Lost,
            (Self::Chunked(chunk), Some(len)) => chunk.gap(len),
        }
    }
}

impl Chunk {
    /// Framing is short and comes between any two pieces of the body: taken at one go.
    fn take<'a>(&mut self, bytes: &'a [u8]) -> (Step<'a>, &'a [u8]) {
        let mut rest = bytes;
        loop {
            let (step, after) = self.step(rest);
            if step != Step::Framing || after.is_empty() {
                return (step, after);
            }
            rest = after;
        }
    }

    fn step<'a>(&mut self, bytes: &'a [u8]) -> (Step<'a>, &'a [u8]) {
        if let Self::Data(left) = self {
            let (body, rest) = split(bytes, left);
            if *left == 0 {
                *self = Self::DataEnd;
            }
            return (Step::Bytes(body), rest);
        }
        if let Self::Extension { value, len } = *self {
            return self.extension(bytes, value, len);
        }
        let Some((&byte, rest)) = bytes.split_first() else { return (Step::Framing, bytes) };
        let next = match *self {
            Self::Size { value, digits } => Self::size(value, digits, byte),
            Self::SizeLf { value } => (byte == b'\n').then(|| Self::after_size(value)),
            Self::DataEnd if byte == b'\r' => Some(Self::DataLf),
            Self::DataEnd | Self::DataLf => (byte == b'\n').then_some(Self::START),
            Self::Trailer { line: 0, .. } if byte == b'\n' => return (Step::End, rest),
            Self::Trailer { line, all } => Self::trailer(line, all, byte),
            Self::Data(_) | Self::Extension { .. } => Some(*self),
        };
        match next {
            Some(next) => *self = next,
            None => return (Step::Bad, rest),
        }
        (Step::Framing, rest)
    }

    fn size(value: u64, digits: u8, byte: u8) -> Option<Self> {
        match (char::from(byte).to_digit(16), byte) {
            (Some(digit), _) if digits < DIGIT_LIMIT => {
                Some(Self::Size { value: value << 4 | u64::from(digit), digits: digits + 1 })
            }
            (None, b'\r') if digits > 0 => Some(Self::SizeLf { value }),
            (None, b'\n') if digits > 0 => Some(Self::after_size(value)),
            (None, b';' | b' ' | b'\t') if digits > 0 => Some(Self::Extension { value, len: 0 }),
            (Some(_) | None, _) => None,
        }
    }

    fn extension<'a>(&mut self, bytes: &'a [u8], value: u64, len: u32) -> (Step<'a>, &'a [u8]) {
        let end = memchr::memchr(b'\n', bytes);
        let seen = end.unwrap_or(bytes.len());
        let len = len.saturating_add(u32::try_from(seen).unwrap_or(u32::MAX));
        if len > LINE_LIMIT {
            return (Step::Bad, &[]);
        }
        *self = match end {
            Some(_) => Self::after_size(value),
            None => Self::Extension { value, len },
        };
        (Step::Framing, bytes.get(seen.saturating_add(1)..).unwrap_or_default())
    }

    fn trailer(line: u32, all: u32, byte: u8) -> Option<Self> {
        let all = all.saturating_add(1);
        let line = match byte {
            b'\n' => 0,
            b'\r' => line,
            _ => line.saturating_add(1),
        };
        (all <= LINE_LIMIT).then_some(Self::Trailer { line, all })
    }

    /// The line end after a chunk's data is taken for two bytes, as every known server writes it.
    fn gap(&mut self, len: u64) -> GapStep {
        let data = match *self {
            Self::Data(left) => left,
            Self::DataEnd | Self::DataLf => 0,
            Self::Size { .. } | Self::SizeLf { .. } | Self::Extension { .. } | Self::Trailer { .. } => {
                return GapStep::Lost;
            }
        };
        if len < data {
            *self = Self::Data(data - len);
            return GapStep::Within(Some(len));
        }
        let seen = len - data + u64::from(*self == Self::DataLf);
        *self = match seen {
            0 => Self::DataEnd,
            1 => Self::DataLf,
            2 => Self::START,
            _ => return GapStep::Lost,
        };
        GapStep::Within(Some(data))
    }
}

/// Takes up to `left` bytes off the front.
fn split<'a>(bytes: &'a [u8], left: &mut u64) -> (&'a [u8], &'a [u8]) {
    let len = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
    *left -= len as u64;
    bytes.split_at(len)
}

/// What the front of a call may be to a decoder that looks for the next chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probe {
    /// The line of a chunk: its length, and the size it tells.
    Found { line: usize, size: u64 },
    /// Too few bytes to tell.
    More,
    /// No chunk.
    Nothing,
}

/// Looks for the line of a chunk at the front of `bytes`: digits and CRLF, nothing else.
pub(super) fn probe(bytes: &[u8]) -> Probe {
    let digits = bytes.iter().take(PROBE_DIGITS + 1).take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (number, rest) = bytes.split_at(digits);
    let fits = digits > 0 && digits <= PROBE_DIGITS;
    match rest {
        [b'\r', b'\n', ..] if fits => {
            let text = std::str::from_utf8(number).unwrap_or_default();
            u64::from_str_radix(text, 16)
                .map_or(Probe::Nothing, |size| Probe::Found { line: digits + 2, size })
        }
        [b'\r'] if fits => Probe::More,
        [] if digits <= PROBE_DIGITS => Probe::More,
        _ => Probe::Nothing,
    }
}
