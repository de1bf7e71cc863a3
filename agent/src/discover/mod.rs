//! Finds the inference servers of this machine, their processes and sockets.
//!
//! ```text
//! /proc -> Entry (a process) -> Family (a server's processes and roles) -> Instance (all that is known of it)
//!       -> Socket -> Adoption (a connection to capture)
//! ```

pub mod adopt;
pub mod diag;
pub mod find;
pub mod gc;
pub mod identity;
pub mod launch;
mod lender;
pub mod marks;
pub mod package;
pub mod place;
pub mod proc;
pub mod server;
pub mod sockets;
pub mod symbols;
pub mod target;
pub mod tls;
pub mod tokenizer;
pub mod tree;
pub mod watch;

/// This machine's name, as it calls itself.
#[must_use]
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
