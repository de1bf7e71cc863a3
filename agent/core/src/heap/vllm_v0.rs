//! What is read of vLLM V0's objects: its scheduler's queues and blocks, its requests' times, and the counters of its
//! own metrics. Where the engine runs in the API server's process there is nothing else to read.
//!
//! Seen on 0.8.5 and 0.9.2.

mod engine;
mod state;

pub use engine::{Engine, Sampled};
