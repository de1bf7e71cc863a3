//! What is read of SGLang's objects: the scheduler's requests and state, the frontend's requests.
//!
//! Which attributes there are differs by version; the tables of `plan` name all of them, and those that exist are
//! read. Seen on 0.4.9, 0.5.6, 0.5.10 and 0.5.23.

mod frontend;
mod kept;
mod load;
pub(super) mod parts;
pub(crate) mod plan;
mod requests;
mod scheduler;

pub use frontend::Frontend;
pub use scheduler::{Sampled, Scheduler};
