//! What a sampled stack needs: how the frames of a thread are walked, which thread of the system it is, and which function a
//! code object is.

use std::sync::Arc;

use enginetap_common::sample::{NO_CFRAME, Walk};

use super::kind::Kind;
use super::layout::{Field, Frames};
use super::memory::{Addr, Memory};
use super::reader::{Heap, Refusal};
use super::seen::word;

/// Bytes of a C library's thread in which its number is looked for: glibc has it at 720 on x86-64, at 208 on arm64.
const PTHREAD_BYTES: usize = 1024;

/// The file of the code that stands for a call from C in 3.12 (`Python/specialize.c`, `_Py_MakeShimCode`).
const SHIM: &str = "<shim>";

/// A function of Python.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Function {
    /// Its name, with its class's where the interpreter keeps that (3.11 on).
    pub name: Arc<str>,
    /// Its file, as the interpreter names it.
    pub file: Arc<str>,
    /// The line on which it begins.
    pub line: u32,
}

impl<M: Memory> Heap<M> {
    /// How the frames of a thread are walked while it stands still.
    #[must_use]
    pub fn walk(&self, thread: Addr) -> Walk {
        let layout = &self.layout;
        Walk {
            newest: thread.plus(layout.at(Field::ThreadFrame)).0,
            cframe: match layout.frames {
                Frames::Objects | Frames::Straight => NO_CFRAME,
                Frames::Cframe => layout.at(Field::CframeCurrent),
            },
            previous: layout.at(Field::FramePrevious),
            code: layout.at(Field::FrameCode),
        }
    }

    /// The number of a thread in its own PID namespace; `is_one` tells which numbers its process's threads have. `None` where
    /// it has none of those: it has ended, or not begun.
    ///
    /// # Errors
    /// When its state is refused.
    pub fn thread_number(
        &mut self,
        thread: Addr,
        is_one: impl Fn(u32) -> bool,
    ) -> Result<Option<u32>, Refusal> {
        if self.layout.has(Field::ThreadNative) {
            let number = u32::try_from(self.field(thread, Field::ThreadNative)?.0);
            return Ok(number.ok().filter(|number| is_one(*number)));
        }
        // Before 3.11 only the C library's thread is known, which knows its number.
        let pthread = self.field(thread, Field::ThreadPthread)?;
        let bytes = self.peek(pthread, PTHREAD_BYTES)?;
        let mut numbers =
            bytes.chunks_exact(4).filter_map(|word| Some(u32::from_le_bytes(word.try_into().ok()?)));
        Ok(numbers.find(|number| is_one(*number)))
    }

    /// The function of a code object that stood in a frame; `None` where no code stood there: a call from C.
    ///
    /// # Errors
    /// When the object is refused.
    pub fn function_of(&mut self, code: Addr) -> Result<Option<Function>, Refusal> {
        let code = Addr(code.0 & !self.layout.frame_tag);
        if !code.plausible(8) || self.type_of(code)?.kind != Kind::Code {
            return Ok(None);
        }
        let named = if self.layout.has(Field::CodeQualname) { Field::CodeQualname } else { Field::CodeName };
        let (name, file) = (self.field(code, named)?, self.field(code, Field::CodeFile)?);
        let (name, file) = (self.peek_name(name)?, self.peek_name(file)?);
        if &*file == SHIM {
            return Ok(None);
        }
        let line = word(&self.peek(code.plus(self.layout.at(Field::CodeFirstLine)), 8)?, 0);
        // The lower half of the word: little-endian, 32 bits.
        let line = u32::try_from(line & u64::from(u32::MAX)).unwrap_or(0);
        Ok(Some(Function { name, file, line }))
    }
}
