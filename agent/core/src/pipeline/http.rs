//! A connection of API clients: HTTP exchanges to API signals.

use std::collections::BTreeMap;

use super::connection::{Context, Signals};
use crate::dialect::openai::{self, Collect, Endpoint, Route, Said};
use crate::dialect::signal::ApiSignal;
use crate::ids::{ConnId, Direction, ExchangeId};
use crate::loss::{Loss, Losses};
use crate::settings::Settings;
use crate::stream::Piece;
use crate::time::MonoTime;
use crate::wire::http1::{self, EventKind, RequestHead, ResponseHead};
use crate::wire::sse;

/// Headers kept until the request is whole.
const KEPT_HEADERS: [&str; 4] = ["x-request-id", "traceparent", "tracestate", "content-type"];

/// A connection of API clients.
#[derive(Debug)]
pub(super) struct HttpConn {
    decoder: http1::Decoder,
    exchanges: Exchanges,
}

/// Exchanges of one connection that make spans, by number.
#[derive(Debug, Default)]
struct Exchanges(BTreeMap<ExchangeId, Exchange>);

#[derive(Debug)]
struct Exchange {
    endpoint: Endpoint,
    target: Vec<u8>,
    headers: Vec<(&'static str, Vec<u8>)>,
    first: MonoTime,
    request: Body,
    /// Whether the request signal was given.
    told: bool,
    response: Option<Response>,
}

/// What is known of a body from its first byte to its first gap.
#[derive(Debug, Default)]
struct Body {
    bytes: Vec<u8>,
    cut: bool,
}

#[derive(Debug)]
enum Response {
    Whole(Body),
    Stream(Box<Stream>),
}

/// A body of server-sent events.
#[derive(Debug)]
struct Stream {
    decoder: sse::Decoder,
    events: openai::Events,
}

impl HttpConn {
    pub fn new(conn: ConnId) -> Self {
        Self { decoder: http1::Decoder::new(conn, http1::Side::Server), exchanges: Exchanges::default() }
    }

    pub fn take(
        &mut self,
        direction: Direction,
        piece: Piece<'_>,
        context: &mut Context<'_>,
        signals: &mut Signals,
    ) {
        let Self { decoder, exchanges } = self;
        decoder.push(direction, piece, &mut |event| exchanges.event(&event, context, &mut signals.api));
    }

    /// The connection is closed.
    pub fn finish(&mut self, at: MonoTime, context: &mut Context<'_>, signals: &mut Signals) {
        let Self { decoder, exchanges } = self;
        decoder.finish(at, &mut |event| exchanges.event(&event, context, &mut signals.api));
    }

    pub fn drain_losses(&mut self, losses: &mut Losses) {
        self.decoder.drain_losses(losses);
    }
}

impl Exchanges {
    fn event(&mut self, event: &http1::Event<'_>, context: &mut Context<'_>, out: &mut Vec<ApiSignal>) {
        let http1::Event { exchange: id, at, kind } = *event;
        if let EventKind::RequestHead { head, first } = kind {
            if let Some(new) = Exchange::new(&head, first) {
                self.0.insert(id, new);
            }
            return;
        }
        let Some(exchange) = self.0.get_mut(&id) else { return };
        let limit = context.settings.body_limit;
        match kind {
            EventKind::RequestHead { .. } | EventKind::Interim { .. } => {}
            EventKind::RequestBody(bytes) => exchange.request.push(bytes, limit, context.losses),
            EventKind::RequestGap(_) => exchange.request.cut = true,
            EventKind::RequestEnd { complete: _ } => {
                exchange.tell(id, at, context.settings, out);
            }
            EventKind::ResponseHead { head, first: _ } => {
                exchange.tell(id, at, context.settings, out);
                exchange.response_head(id, &head, at, out);
            }
            EventKind::ResponseBody(bytes) => exchange.response_body(id, bytes, at, context, out),
            EventKind::ResponseGap(_) => exchange.response_gap(),
            EventKind::ResponseEnd { complete } => {
                exchange.tell(id, at, context.settings, out);
                exchange.end(id, at, complete, context, out);
                self.0.remove(&id);
            }
            EventKind::Upgraded => {
                self.0.remove(&id);
            }
        }
    }
}

impl Exchange {
    /// An exchange that makes spans; `None` for one that makes none.
    fn new(head: &RequestHead<'_>, first: MonoTime) -> Option<Self> {
        let endpoint = match openai::route(head.method, head.target) {
            Route::Span(endpoint) => endpoint,
            Route::PassedOver(_) | Route::Unknown => return None,
        };
        let headers = KEPT_HEADERS
            .into_iter()
            .filter_map(|name| Some((name, head.headers.get(name)?.to_vec())))
            .collect();
        Some(Self {
            endpoint,
            target: head.target.as_bytes().to_vec(),
            headers,
            first,
            request: Body::default(),
            told: false,
            response: None,
        })
    }

    /// Gives the request signal, once.
    fn tell(&mut self, id: ExchangeId, at: MonoTime, settings: &Settings, out: &mut Vec<ApiSignal>) {
        if self.told {
            return;
        }
        self.told = true;
        let Self { endpoint, target, headers, request, .. } = self;
        let header =
            |name: &str| headers.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_slice());
        let body = std::mem::take(request);
        let mut request =
            openai::request(*endpoint, target, header, &body.bytes, body.cut, Collect::from(settings));
        // What is no JSON, or ends early because the client hung up, was not lost.
        request.cut = body.cut;
        out.push(ApiSignal::Request {
            exchange: id,
            first_byte: self.first,
            last_byte: at,
            request: Box::new(request),
        });
    }

    fn response_head(
        &mut self,
        id: ExchangeId,
        head: &ResponseHead<'_>,
        at: MonoTime,
        out: &mut Vec<ApiSignal>,
    ) {
        let content_type = head.headers.text("content-type").unwrap_or_default();
        let streaming = content_type.trim_start().starts_with("text/event-stream");
        // Compressed bodies are not read; none of the engines' servers sends one by itself.
        let plain = head.headers.get("content-encoding").is_none_or(|coding| coding == b"identity");
        self.response = Some(match (plain, streaming) {
            (true, true) => Response::Stream(Box::new(Stream {
                decoder: sse::Decoder::new(sse::EVENT_LIMIT),
                events: openai::Events::new(self.endpoint),
            })),
            (plain, _) => Response::Whole(Body { bytes: Vec::new(), cut: !plain }),
        });
        out.push(ApiSignal::Head { exchange: id, at, status: head.status, streaming });
    }

    fn response_body(
        &mut self,
        id: ExchangeId,
        bytes: &[u8],
        at: MonoTime,
        context: &mut Context<'_>,
        out: &mut Vec<ApiSignal>,
    ) {
        match &mut self.response {
            Some(Response::Whole(body)) => body.push(bytes, context.settings.body_limit, context.losses),
            Some(Response::Stream(stream)) => {
                let Stream { decoder, events } = stream.as_mut();
                let collect = Collect::from(context.settings);
                decoder.push(bytes, at, &mut |event| {
                    let sse::Event { name, data, first: _, at, after_gap } = event;
                    out.push(match events.read(name, data, after_gap, collect) {
                        Said::Text(said) => ApiSignal::Text { exchange: id, at, said },
                        Said::Delta(delta) => ApiSignal::Delta { exchange: id, at, delta },
                    });
                });
            }
            None => {}
        }
    }

    fn response_gap(&mut self) {
        match &mut self.response {
            Some(Response::Whole(body)) => body.cut = true,
            Some(Response::Stream(stream)) => stream.decoder.gap(),
            None => {}
        }
    }

    fn end(
        &mut self,
        id: ExchangeId,
        at: MonoTime,
        complete: bool,
        context: &mut Context<'_>,
        out: &mut Vec<ApiSignal>,
    ) {
        match &mut self.response {
            Some(Response::Whole(body)) if complete || !body.bytes.is_empty() => {
                let collect = Collect::from(context.settings);
                let mut delta = openai::body(self.endpoint, &body.bytes, body.cut, collect);
                delta.cut = body.cut;
                out.push(ApiSignal::Delta { exchange: id, at, delta: Box::new(delta) });
            }
            Some(Response::Stream(stream)) => stream.decoder.drain_losses(context.losses),
            Some(Response::Whole(_)) | None => {}
        }
        out.push(ApiSignal::End { exchange: id, at, complete });
    }
}

impl Body {
    fn push(&mut self, bytes: &[u8], limit: usize, losses: &mut Losses) {
        if self.cut {
            return;
        }
        let room = limit.saturating_sub(self.bytes.len());
        self.bytes.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        if bytes.len() > room {
            self.cut = true;
            losses.add(Loss::OverSize, 1);
        }
    }
}
