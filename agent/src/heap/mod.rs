//! CPython objects of running processes: their memory, and where the interpreter lies in it. What is made of the
//! objects is in [`enginetap_core::heap`].

mod interpreter;
mod process;

pub use interpreter::{How, Interpreter, Unreadable};
pub use process::ProcessMemory;
