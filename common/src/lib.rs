//! The ABI between the kernel programs and the agent.
//!
//! Everything that crosses the ring buffer or a shared map is defined here, once. The crate has no
//! dependency and no allocation, so that both sides compile the very same types.
#![no_std]

pub mod config;
pub mod loss;
pub mod record;
pub mod sample;
pub mod watch;
