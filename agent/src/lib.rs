//! The edges of enginetap: everything that touches the world. The pure middle is `enginetap-core`.

pub mod cli;
pub mod cmd;
pub mod config;
pub mod diagnostics;
pub mod discover;
pub mod exit;
pub mod export;
pub mod gpu;
pub mod heap;
pub mod probe;
pub mod profile;
pub mod session;
pub mod settings;
pub mod waits;
