//! SGLang: requests by their ids.

mod batch;
mod entry;
mod forwards;
mod join;
mod load;
mod moment;
mod request;
mod server;
mod settle;
mod spans;
mod stages;
mod steps;
#[cfg(test)]
mod tests;
mod threads;
mod timeline;
mod totals;
mod why;

pub(super) use server::Server;
