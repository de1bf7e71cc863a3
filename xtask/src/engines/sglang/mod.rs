//! SGLang, from PyPI: the real server, its CUDA kernels replaced for the CPU.

pub mod install;
pub mod quirks;
pub mod serve;

/// The newest version that was seen to install and run.
pub const DEFAULT_VERSION: &str = "0.5.23";
