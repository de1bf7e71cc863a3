//! One attempt at handing a payload over, whatever the protocol.

use std::time::Duration;

use anyhow::Result;
use http::Uri;

use super::{Payload, grpc, http as http_client};
use crate::cli::OtlpProtocol;
use crate::export::settings::Endpoint;

/// The receiver took it, maybe not all of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Accepted {
    /// Spans or points it rejected (`partial_success`).
    pub(super) rejected: u64,
    /// Why, or a warning.
    pub(super) message: String,
}

impl Accepted {
    /// From the fields of a `partial_success`.
    pub(super) fn partial(rejected: i64, message: String) -> Self {
        Self { rejected: u64::try_from(rejected).unwrap_or(0), message }
    }
}

/// The receiver did not take it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// It may take it later.
    Passing {
        /// Why, for people.
        reason: String,
        /// When the receiver wants to be asked again, if it said.
        after: Option<Duration>,
    },
    /// It never will.
    Final(String),
}

/// A client of one receiver.
pub(super) enum Client {
    /// Over gRPC.
    Grpc(Box<grpc::Client>),
    /// Over HTTP.
    Http(Box<http_client::Client>),
}

/// A payload in the form its protocol sends.
pub(super) enum Prepared {
    /// As messages.
    Message(Payload),
    /// As a body, compressed where it is to be.
    Body(bytes::Bytes),
}

impl Client {
    /// Connects to nothing yet.
    pub(super) fn new(endpoint: &Endpoint) -> Result<Self> {
        Ok(match endpoint.protocol {
            OtlpProtocol::Grpc => Self::Grpc(Box::new(grpc::Client::new(endpoint)?)),
            OtlpProtocol::HttpProtobuf | OtlpProtocol::HttpJson => {
                Self::Http(Box::new(http_client::Client::new(endpoint)?))
            }
        })
    }

    /// The receiver's address for people, without what may be a password in it.
    pub(super) fn address(&self) -> String {
        match self {
            Self::Grpc(client) => shown(client.uri()),
            Self::Http(client) => shown(client.uri()),
        }
    }

    /// Encodes once for all attempts.
    pub(super) fn prepare(&self, payload: Payload) -> Prepared {
        match self {
            Self::Grpc(_) => Prepared::Message(payload),
            Self::Http(client) => Prepared::Body(client.encode(&payload)),
        }
    }

    /// Tries once.
    pub(super) async fn attempt(&self, prepared: &Prepared) -> Result<Accepted, Failure> {
        match (self, prepared) {
            (Self::Grpc(client), Prepared::Message(payload)) => client.send(payload).await,
            (Self::Http(client), Prepared::Body(body)) => client.send(body.clone()).await,
            (Self::Grpc(_), Prepared::Body(_)) | (Self::Http(_), Prepared::Message(_)) => {
                Err(Failure::Final("prepared for another protocol".to_owned()))
            }
        }
    }
}

fn shown(uri: &Uri) -> String {
    let port = uri.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}{}", uri.scheme_str().unwrap_or("?"), uri.host().unwrap_or("?"), uri.path())
}

/// An error with its causes, innermost last.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let said = cause.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        source = cause.source();
    }
    text
}
