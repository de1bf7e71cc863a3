//! Why a request took as long as it did.
//!
//! The lifecycle makes an [`account::Account`] of each request that ended: its moments in order. A [`book::Book`]
//! remembers what its scheduler did meanwhile and who else was there. From both comes a [`verdict::Verdict`]: where
//! the time went, why, and how sure that is. The causes are a table ([`cause::CAUSES`]).

pub mod account;
pub mod book;
pub mod cause;
mod explain;
pub mod pause;
mod put_on;
mod queue;
pub mod ring;
mod scene;
mod sentence;
mod steps;
pub mod verdict;

pub use sentence::seconds;

#[cfg(test)]
mod tests;
