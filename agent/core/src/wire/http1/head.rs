//! Heads: start line and headers.

/// A request's head.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'a> {
    /// `GET`, `POST` and so on, as sent.
    pub method: &'a str,
    /// The target as sent: a path with its query, or an absolute URL; see [`path`](Self::path).
    pub target: &'a str,
    /// The headers.
    pub headers: Headers<'a>,
}

/// A response's head.
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'a> {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: Headers<'a>,
}

/// The headers of a head.
#[derive(Clone, Copy, Debug)]
pub struct Headers<'a>(pub(super) &'a [httparse::Header<'a>]);

impl<'a> RequestHead<'a> {
    /// The path of the target: no scheme, no authority, no query, no fragment.
    #[must_use]
    pub fn path(&self) -> &'a str {
        let path = match self.target.find("://") {
            Some(scheme) if !self.target.starts_with('/') => {
                let rest = self.target.get(scheme + 3..).unwrap_or_default();
                rest.find('/').and_then(|slash| rest.get(slash..)).unwrap_or("/")
            }
            Some(_) | None => self.target,
        };
        path.split(['?', '#']).next().unwrap_or(path)
    }
}

impl<'a> Headers<'a> {
    /// Value of the first header of this name, whatever its case, without the white space around it.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'a [u8]> {
        self.all(name).next()
    }

    /// The same as text; `None` too when it is not UTF-8.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&'a str> {
        self.get(name).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// Values of every header of this name, in order.
    pub fn all<'n>(&self, name: &'n str) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n> {
        self.0.iter().filter(move |header| header.name.eq_ignore_ascii_case(name)).map(|header| header.value)
    }

    /// Every header, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> + use<'a> {
        self.0.iter().map(|header| (header.name, header.value))
    }
}

/// Most headers of one head.
const HEADER_LIMIT: usize = 256;

/// Methods a request line may begin with.
const METHODS: [&[u8]; 9] =
    [b"GET", b"POST", b"PUT", b"DELETE", b"HEAD", b"OPTIONS", b"PATCH", b"CONNECT", b"TRACE"];

/// Which start line a direction carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartLine {
    /// `METHOD target HTTP/1.x`
    Request,
    /// `HTTP/1.x status reason`
    Status,
}

/// What the front of some bytes may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guess {
    /// A start line, whole.
    Yes,
    /// Too few bytes to tell.
    More,
    /// No start line.
    No,
}

impl StartLine {
    /// Whether `bytes` begin with a start line. What is no start line stays none when more bytes follow.
    pub(super) fn guess(self, bytes: &[u8]) -> Guess {
        let end = memchr::memchr(b'\n', bytes);
        let line = end.and_then(|end| bytes.get(..end)).unwrap_or(bytes);
        let fits = match self {
            Self::Request => is_request_line(line, end.is_some()),
            Self::Status => is_status_line(line, end.is_some()),
        };
        match (fits, end) {
            (false, _) => Guess::No,
            (true, None) => Guess::More,
            (true, Some(_)) => Guess::Yes,
        }
    }
}

fn is_request_line(line: &[u8], whole: bool) -> bool {
    let Some(space) = memchr::memchr(b' ', line) else {
        return !whole && METHODS.iter().any(|method| method.starts_with(line));
    };
    let method = line.get(..space).unwrap_or_default();
    if !METHODS.contains(&method) {
        return false;
    }
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    !whole || line.ends_with(b" HTTP/1.1") || line.ends_with(b" HTTP/1.0")
}

fn is_status_line(line: &[u8], whole: bool) -> bool {
    const SHAPE: &[u8] = b"HTTP/1.x 999";
    let fits = line.iter().zip(SHAPE).all(|(byte, shape)| match shape {
        b'x' | b'9' => byte.is_ascii_digit(),
        _ => byte == shape,
    });
    fits && (!whole || line.len() >= SHAPE.len())
}

/// Where the head at the front of `bytes` ends, after its blank line; looked for from `from` on.
pub(super) fn end_of_head(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    memchr::memchr_iter(b'\n', rest).find_map(|at| match rest.get(at + 1..) {
        Some([b'\n', ..]) => Some(from + at + 2),
        Some([b'\r', b'\n', ..]) => Some(from + at + 3),
        Some(_) | None => None,
    })
}

/// How a body is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// By a length; 0: there is none.
    Sized(u64),
    /// By chunks.
    Chunked,
    /// By the close of the connection.
    ToClose,
}

/// Parses a request's head and hands it to `then`; `None` when it is none.
pub(super) fn parse_request<T>(head: &[u8], then: impl FnOnce(RequestHead<'_>, Framing) -> T) -> Option<T> {
    let mut headers = [httparse::EMPTY_HEADER; HEADER_LIMIT];
    let mut request = httparse::Request::new(&mut headers);
    let mut config = httparse::ParserConfig::default();
    config.ignore_invalid_headers_in_requests(true).allow_multiple_spaces_in_request_line_delimiters(true);
    config.parse_request(&mut request, head).ok()?.is_complete().then_some(())?;
    let headers = Headers(request.headers);
    let framing = headers.framing()?.unwrap_or(Framing::Sized(0));
    Some(then(RequestHead { method: request.method?, target: request.path?, headers }, framing))
}

/// Parses a response's head and hands it to `then`, with its framing if it had a body; `None` when it is none.
pub(super) fn parse_response<T>(head: &[u8], then: impl FnOnce(ResponseHead<'_>, Framing) -> T) -> Option<T> {
    let mut headers = [httparse::EMPTY_HEADER; HEADER_LIMIT];
    let mut response = httparse::Response::new(&mut headers);
    let mut config = httparse::ParserConfig::default();
    config
        .ignore_invalid_headers_in_responses(true)
        .allow_spaces_after_header_name_in_responses(true)
        .allow_obsolete_multiline_headers_in_responses(true)
        .allow_multiple_spaces_in_response_status_delimiters(true);
    config.parse_response(&mut response, head).ok()?.is_complete().then_some(())?;
    let headers = Headers(response.headers);
    let framing = headers.framing()?.unwrap_or(Framing::ToClose);
    Some(then(ResponseHead { status: response.code?, headers }, framing))
}

impl Headers<'_> {
    /// `None`: the headers contradict themselves. `Some(None)`: they say nothing.
    fn framing(&self) -> Option<Option<Framing>> {
        if let Some(coding) = self.all("transfer-encoding").last() {
            let last = coding.rsplit(|byte| *byte == b',').next().unwrap_or_default();
            let chunked = last.trim_ascii().eq_ignore_ascii_case(b"chunked");
            return Some(Some(if chunked { Framing::Chunked } else { Framing::ToClose }));
        }
        let mut length = None;
        for value in self.all("content-length").flat_map(|value| value.split(|byte| *byte == b',')) {
            let value = decimal(value.trim_ascii())?;
            if length.is_some_and(|known| known != value) {
                return None;
            }
            length = Some(value);
        }
        Some(length.map(Framing::Sized))
    }
}

fn decimal(digits: &[u8]) -> Option<u64> {
    // `parse` alone would take a sign.
    let plain = digits.iter().all(u8::is_ascii_digit);
    plain.then(|| std::str::from_utf8(digits).ok()?.parse().ok()).flatten()
}
