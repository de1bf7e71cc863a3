//! Exchanges: which response belongs to which request.

use std::collections::VecDeque;

use super::body::{Body, Chunk};
use super::head::{Framing, Headers, RequestHead, ResponseHead, parse_request, parse_response};
use super::lane::{Handler, Lane, Next};
use super::{Event, EventKind, PIPELINE_LIMIT};
use crate::ids::{ConnId, ExchangeId};
use crate::loss::{Loss, Losses};
use crate::time::MonoTime;

/// The exchanges of a connection that are under way.
#[derive(Debug)]
pub(super) struct Exchanges {
    conn: ConnId,
    /// Number of the next exchange.
    next: u64,
    /// Requests whose response has not begun, oldest first.
    waiting: VecDeque<Waiting>,
    /// Whose request is being read.
    request: Option<ExchangeId>,
    /// Whose response is being read.
    response: Option<ExchangeId>,
    /// The last response that came with no request before it, and when it began.
    orphan: Option<(ExchangeId, MonoTime)>,
    /// Whether the request being read asked to be told to go on (`Expect: 100-continue`) and has not gone on.
    expecting: bool,
    losses: Losses,
}

/// A request whose response has not begun.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    exchange: ExchangeId,
    method: Method,
}

/// What of a method matters to the response's framing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Head,
    Connect,
    Other,
}

/// Handles the messages of the request lane.
pub(super) struct Requests<'a, S> {
    pub(super) exchanges: &'a mut Exchanges,
    pub(super) responses: &'a mut Lane,
    pub(super) at: MonoTime,
    pub(super) sink: &'a mut S,
}

/// Handles the messages of the response lane.
pub(super) struct Responses<'a, S> {
    pub(super) exchanges: &'a mut Exchanges,
    pub(super) requests: &'a mut Lane,
    pub(super) at: MonoTime,
    pub(super) sink: &'a mut S,
}

impl Exchanges {
    pub(super) fn new(conn: ConnId) -> Self {
        Self {
            conn,
            next: 0,
            waiting: VecDeque::new(),
            request: None,
            response: None,
            orphan: None,
            expecting: false,
            losses: Losses::default(),
        }
    }

    pub(super) fn drain_losses(&mut self, losses: &mut Losses) {
        losses.merge(&std::mem::take(&mut self.losses));
    }

    /// Ends every exchange whose response is not complete.
    pub(super) fn give_up(&mut self, at: MonoTime, sink: &mut impl FnMut(Event<'_>)) {
        if let Some(exchange) = self.response.take() {
            sink(Event { exchange, at, kind: EventKind::ResponseEnd { complete: false } });
        }
        self.give_up_waiting(0, at, sink);
    }

    /// Ends the oldest waiting exchanges until no more than `keep` are left.
    fn give_up_waiting(&mut self, keep: usize, at: MonoTime, sink: &mut impl FnMut(Event<'_>)) {
        while self.waiting.len() > keep {
            if let Some(Waiting { exchange, method: _ }) = self.waiting.pop_front() {
                sink(Event { exchange, at, kind: EventKind::ResponseEnd { complete: false } });
            }
        }
    }

    fn create(&mut self) -> ExchangeId {
        let number = self.next;
        self.next = self.next.saturating_add(1);
        ExchangeId { conn: self.conn, number }
    }

    /// The exchange of a request whose head was complete at `at`. Its response may have been told already, when
    /// the records of the two directions were delivered swapped: their times tell.
    fn of_request(&mut self, method: Method, at: MonoTime) -> ExchangeId {
        if let Some((exchange, _)) = self.orphan.take().filter(|(_, began)| at <= *began) {
            return exchange;
        }
        let exchange = self.create();
        self.waiting.push_back(Waiting { exchange, method });
        exchange
    }

    /// The exchange of a final response that began at `first`.
    fn of_response(&mut self, first: MonoTime) -> Waiting {
        self.waiting.pop_front().unwrap_or_else(|| {
            let exchange = self.create();
            self.orphan = Some((exchange, first));
            Waiting { exchange, method: Method::Other }
        })
    }
}

impl<S: FnMut(Event<'_>)> Requests<'_, S> {
    fn tell(&mut self, exchange: ExchangeId, kind: EventKind<'_>) {
        (self.sink)(Event { exchange, at: self.at, kind });
    }

    fn begin(&mut self, head: RequestHead<'_>, framing: Framing, first: MonoTime) -> Next {
        let body = match framing {
            Framing::Sized(len) => Body::Sized(len),
            Framing::Chunked => Body::Chunked(Chunk::START),
            // No request can be delimited so.
            Framing::ToClose => return Next::Lost,
        };
        if self.responses.is_lost() {
            self.exchanges.give_up(self.at, self.sink);
            self.responses.forget();
        }
        let exchange = self.exchanges.of_request(Method::of(head.method), self.at);
        if self.exchanges.waiting.len() > PIPELINE_LIMIT {
            self.exchanges.losses.add(Loss::RequestExpired, 1);
            self.exchanges.give_up_waiting(PIPELINE_LIMIT, self.at, self.sink);
        }
        self.exchanges.request = Some(exchange);
        self.exchanges.expecting = expects_continue(head.headers);
        self.tell(exchange, EventKind::RequestHead { head, first });
        Next::Body(body)
    }
}

impl<S: FnMut(Event<'_>)> Handler for Requests<'_, S> {
    fn head(&mut self, head: &[u8], first: MonoTime, _lost: bool) -> Next {
        parse_request(head, |head, framing| self.begin(head, framing, first)).unwrap_or(Next::Lost)
    }

    fn body(&mut self, bytes: &[u8]) {
        self.exchanges.expecting = false;
        if let Some(exchange) = self.exchanges.request {
            self.tell(exchange, EventKind::RequestBody(bytes));
        }
    }

    fn gap(&mut self, len: Option<u64>) {
        self.exchanges.expecting = false;
        if let Some(exchange) = self.exchanges.request {
            self.tell(exchange, EventKind::RequestGap(len));
        }
    }

    fn end(&mut self, complete: bool) {
        self.exchanges.expecting = false;
        if let Some(exchange) = self.exchanges.request.take() {
            self.tell(exchange, EventKind::RequestEnd { complete });
        }
    }

    fn is_alone(&self) -> bool {
        true
    }
}

impl<S: FnMut(Event<'_>)> Responses<'_, S> {
    fn tell(&mut self, exchange: ExchangeId, kind: EventKind<'_>) {
        (self.sink)(Event { exchange, at: self.at, kind });
    }

    fn begin(&mut self, head: ResponseHead<'_>, framing: Framing, first: MonoTime, lost: bool) -> Next {
        if lost {
            self.exchanges.give_up_waiting(1, self.at, self.sink);
        }
        let status = head.status;
        if (100..200).contains(&status) && status != 101 {
            self.exchanges.expecting = false;
            if let Some(Waiting { exchange, method: _ }) = self.exchanges.waiting.front().copied() {
                self.tell(exchange, EventKind::Interim { status });
            }
            return Next::Head;
        }
        let Waiting { exchange, method } = self.exchanges.of_response(first);
        self.exchanges.response = Some(exchange);
        self.tell(exchange, EventKind::ResponseHead { head, first });
        self.refuse(exchange);
        if status == 101 || method == Method::Connect && (200..300).contains(&status) {
            return self.upgrade(exchange);
        }
        Next::Body(method.body(status, framing))
    }

    /// A final response to a client that waits to be told to go on: its body will not come.
    fn refuse(&mut self, exchange: ExchangeId) {
        if self.exchanges.expecting && self.exchanges.request == Some(exchange) {
            self.exchanges.expecting = false;
            self.exchanges.request = None;
            self.tell(exchange, EventKind::RequestEnd { complete: false });
            self.requests.forget();
        }
    }

    fn upgrade(&mut self, exchange: ExchangeId) -> Next {
        if let Some(request) = self.exchanges.request.take() {
            self.tell(request, EventKind::RequestEnd { complete: false });
        }
        self.end(true);
        self.tell(exchange, EventKind::Upgraded);
        self.exchanges.give_up(self.at, self.sink);
        self.requests.tunnel();
        Next::Tunnel
    }
}

impl<S: FnMut(Event<'_>)> Handler for Responses<'_, S> {
    fn head(&mut self, head: &[u8], first: MonoTime, lost: bool) -> Next {
        parse_response(head, |head, framing| self.begin(head, framing, first, lost)).unwrap_or(Next::Lost)
    }

    fn body(&mut self, bytes: &[u8]) {
        if let Some(exchange) = self.exchanges.response {
            self.tell(exchange, EventKind::ResponseBody(bytes));
        }
    }

    fn gap(&mut self, len: Option<u64>) {
        if let Some(exchange) = self.exchanges.response {
            self.tell(exchange, EventKind::ResponseGap(len));
        }
    }

    fn end(&mut self, complete: bool) {
        if let Some(exchange) = self.exchanges.response.take() {
            self.tell(exchange, EventKind::ResponseEnd { complete });
        }
    }

    fn is_alone(&self) -> bool {
        self.exchanges.waiting.is_empty()
    }
}

impl Method {
    fn of(method: &str) -> Self {
        match method {
            "HEAD" => Self::Head,
            "CONNECT" => Self::Connect,
            _ => Self::Other,
        }
    }

    /// The body of the response of this status to this method.
    fn body(self, status: u16, framing: Framing) -> Body {
        let bodiless = self == Self::Head || matches!(status, 100..200 | 204 | 304);
        match framing {
            _ if bodiless => Body::Sized(0),
            Framing::Sized(len) => Body::Sized(len),
            Framing::Chunked => Body::Chunked(Chunk::START),
            Framing::ToClose => Body::ToClose,
        }
    }
}

fn expects_continue(headers: Headers<'_>) -> bool {
    headers.get("expect").is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"))
}
