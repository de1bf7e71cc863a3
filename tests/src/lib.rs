//! End-to-end tests of enginetap, and what they share.

pub mod captures;
pub mod certificate;
pub mod collector;
pub mod daemon;
pub mod engine;
pub mod heap;
pub mod live;
pub mod messages;
pub mod nvml;
pub mod replayed;
pub mod sglang;
pub mod trees;
