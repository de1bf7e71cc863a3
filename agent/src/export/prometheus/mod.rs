//! `--prometheus`: the metrics for a Prometheus server to fetch, at `/metrics`; beside them `/healthz` and `/readyz`.

mod exposition;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};

use super::health::Health;
use super::otlp::Stop;
use super::resource::Snapshot;
use crate::exit::Refusal;

/// Connections served at once; more wait in the kernel's backlog.
const CONNECTIONS: usize = 16;
/// Most time for a request's head to come.
const HEAD: Duration = Duration::from_secs(10);
/// Most time one connection is kept, busy or not.
const LIFE: Duration = Duration::from_secs(120);

/// The content type of everything but the metrics.
const PLAIN: &str = "text/plain; charset=utf-8";

type Latest = watch::Receiver<Arc<Snapshot>>;

/// A bound address. Must be called in the context of the runtime that is to serve it.
///
/// # Errors
/// A [`Refusal`] when the address cannot be bound.
pub(super) fn bind(address: SocketAddr) -> Result<TcpListener> {
    let bound = std::net::TcpListener::bind(address)
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
        .and_then(TcpListener::from_std);
    bound.map_err(|error| {
        let next = "choose a free port and an address of this machine, as in --prometheus 127.0.0.1:9464";
        Refusal::usage(format!("cannot serve metrics at {address}: {error}"), next).into()
    })
}

/// Serves until everything must be over.
pub(super) async fn serve(listener: TcpListener, latest: Latest, health: Arc<Health>, mut stop: Stop) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let stopping = stop.wait_for(Option::<Instant>::is_some);
    tokio::pin!(stopping);
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &room) => accepted,
            _ = &mut stopping => return,
        };
        match accepted {
            Ok((stream, permit)) => {
                let (latest, health) = (latest.clone(), health.clone());
                tokio::spawn(async move {
                    connection(stream, latest, health).await;
                    drop(permit);
                });
            }
            Err(error) => {
                // Out of descriptors, say: it passes.
                log::debug!("the metrics endpoint cannot accept: {error}");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// The next connection, once there is room for it.
async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let permit = room.clone().acquire_owned().await.map_err(std::io::Error::other)?;
    Ok((listener.accept().await?.0, permit))
}

async fn connection(stream: TcpStream, latest: Latest, health: Arc<Health>) {
    let service = service_fn(move |request| {
        let response = answer(&request, &latest, &health);
        async move { Ok::<_, Infallible>(response) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(stream), service);
    // A client that breaks off is its own affair.
    let _ = timeout(LIFE, served).await;
}

fn answer(request: &Request<Incoming>, latest: &Latest, health: &Health) -> Response<Full<Bytes>> {
    let plain = PLAIN;
    let now = std::time::Instant::now();
    match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => {
            let snapshot = latest.borrow().clone();
            response(StatusCode::OK, exposition::CONTENT_TYPE, exposition::write(&snapshot))
        }
        (&Method::GET | &Method::HEAD, "/healthz") => verdict(health.alive(now)),
        (&Method::GET | &Method::HEAD, "/readyz") => verdict(health.ready(now)),
        (&Method::GET | &Method::HEAD, "/") => {
            response(StatusCode::OK, plain, "enginetap: the metrics are at /metrics\n".to_owned())
        }
        (&Method::GET | &Method::HEAD, _) => {
            response(StatusCode::NOT_FOUND, plain, "the metrics are at /metrics\n".to_owned())
        }
        _ => {
            let mut refused = response(StatusCode::METHOD_NOT_ALLOWED, plain, "GET it\n".to_owned());
            refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            refused
        }
    }
}

/// 200, or 503 with what is wrong.
fn verdict(outcome: Result<(), String>) -> Response<Full<Bytes>> {
    match outcome {
        Ok(()) => response(StatusCode::OK, PLAIN, "ok\n".to_owned()),
        Err(what) => response(StatusCode::SERVICE_UNAVAILABLE, PLAIN, what + "\n"),
    }
}

fn response(status: StatusCode, content: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content));
    response
}
