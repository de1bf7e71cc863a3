//! Where results go: the terminal, OTLP receivers, files, Prometheus.

pub mod json;
pub mod message;
pub mod resource;
#[cfg(test)]
pub(crate) mod sample;
pub mod settings;
