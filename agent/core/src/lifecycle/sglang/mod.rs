//! SGLang: requests by their ids.

mod moment;
mod server;
mod stages;
mod timeline;

pub(super) use server::Server;
