//! SGLang: requests by their ids.

mod server;

pub(super) use server::Server;
