//! End-to-end tests of enginetap, and what they share.

pub mod captures;
pub mod live;
pub mod messages;
pub mod replayed;
