//! Where results go: the terminal, OTLP receivers, files, Prometheus. [`Sinks`] is the front.

mod counts;
mod file;
mod health;
mod json;
mod message;
mod otlp;
mod prometheus;
mod resource;
#[cfg(test)]
mod sample;
pub mod settings;
mod sinks;
mod terminal;
#[cfg(test)]
mod tests;
mod writer;

pub use otlp::{Backoff, Sampler};
pub use sinks::{Config, Sinks};
pub use terminal::{Look, Screen};
pub use writer::Overflow;
