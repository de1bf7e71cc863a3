//! vLLM: requests inside its EngineCores, by the messages between them and the frontend.

mod engine;
mod join;
mod points;
mod request;
mod server;
mod settle;
mod spans;
mod stages;
#[cfg(test)]
mod tests;
mod totals;
mod transfer;
mod v0;
mod why;

pub(super) use server::Server;
