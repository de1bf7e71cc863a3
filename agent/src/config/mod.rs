//! The configuration: every setting by name, where its value comes from, and how it changes while the agent runs.
//!
//! Lowest first: the default, the agent's environment, a server's own environment (for that server), the file, the
//! command line, and what `enginetap config set` pushed. So what is pushed at run time, the file included, wins over
//! environment variables, as the contract has it.

pub mod control;
pub mod file;
pub mod layers;
pub mod order;
pub mod own;
pub mod setting;
pub mod steering;
pub mod watched;

/// Where the file is where none is named.
pub const DEFAULT_FILE: &str = "/etc/enginetap/config.toml";
