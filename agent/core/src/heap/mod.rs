//! Objects of a running CPython, read from outside.
//!
//! Nothing is stopped, called or written in the target: it runs on while it is read, so that any read may be torn. What
//! makes the figures right all the same:
//!
//! - Each piece of memory that a value rests upon is noted ([`seen::Seen`]): the value itself, the pointer that led to
//!   it, the table that pointer stood in, and so on up to the root. At the end of a reading all of them are read again
//!   ([`Heap::verify`]), and a value counts only if every piece of its chain is unchanged.
//! - Every address, length, kind and type is checked before it is used; every loop is counted.
//! - What is kept between readings (types, names, places in tables) is checked each time it is used.
//! - What does not pass is refused and counted by its reason ([`Refusal`]).
//!
//! Reads go level by level, all objects of a level in one call of [`Memory::read`]: the number of calls does not grow
//! with the number of objects.

mod arrays;
mod attributes;
pub mod check;
mod containers;
mod dicts;
mod frames;
mod heads;
mod kind;
pub mod layout;
pub mod memory;
mod paths;
mod places;
mod reader;
mod scalars;
mod scan;
pub mod seen;
pub mod sglang;
mod sites;
pub mod stacks;
mod stores;
mod tables;
mod tensor;
mod text;
mod types;
pub mod value;
pub mod vllm_v0;

pub use frames::{Found, Wanted};
pub use kind::Kind;
pub use memory::{Addr, Gone, Memory, Piece};
pub use reader::{Heap, Refusal, Refusals};
pub use seen::{Ref, SeenId, Verdicts};
pub use types::Type;
pub use value::Value;
