//! Finds the inference servers of this machine, their processes and sockets.

pub mod adopt;
pub mod diag;
pub mod identity;
pub mod launch;
pub mod proc;
pub mod sockets;
pub mod tree;
