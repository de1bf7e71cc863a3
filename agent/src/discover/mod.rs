//! Finds the inference servers of this machine, their processes and sockets.

pub mod adopt;
pub mod diag;
pub mod identity;
pub mod launch;
pub mod package;
pub mod place;
pub mod proc;
pub mod sockets;
pub mod target;
pub mod tokenizer;
pub mod tree;
