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
