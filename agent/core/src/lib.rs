//! The pure middle of enginetap: bytes and time in, spans and metrics out.
//!
//! ```text
//! Record -> Frame -> Message -> Signal -> Span / Metric
//! ```
//!
//! Nothing here reads a clock, a file or an environment variable; time is an argument.
#![forbid(unsafe_code)]

pub mod capture;
pub mod dialect;
pub mod gpu;
pub mod hash;
pub mod heap;
pub mod ids;
pub mod journal;
pub mod lifecycle;
pub mod loss;
pub mod model;
pub mod pipeline;
pub mod profile;
pub mod sampling;
pub mod settings;
pub mod stream;
pub mod time;
pub mod why;
pub mod wire;
