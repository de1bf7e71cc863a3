//! Interpreters, threads, frames and modules.

use super::kind::Kind;
use super::layout::{Field, Frames};
use super::memory::{Addr, Memory};
use super::reader::{Heap, Refusal};
use super::seen::{Ref, word};

/// Most interpreters, threads and frames looked at: more is a circle.
const INTERPRETERS: usize = 64;
const THREADS: usize = 4096;
const FRAMES: usize = 512;
/// Most locals of a frame.
const LOCALS: u64 = 4096;

/// A frame that is wanted: its function, and how the path of its file ends.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Names of functions, any of them.
    pub functions: &'a [&'a str],
    /// The end of the file's path; empty: any file.
    pub file: &'a str,
    /// The local variable that is wanted.
    pub local: &'a str,
}

/// A local variable of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The object.
    pub object: Addr,
    /// Its type.
    pub of_type: Addr,
    /// The function the frame is of.
    pub function: String,
    /// The thread's state.
    pub thread: Addr,
}

impl<M: Memory> Heap<M> {
    /// The interpreters, newest first.
    ///
    /// # Errors
    /// When the chain is refused.
    pub fn interpreters(&mut self) -> Result<Vec<Addr>, Refusal> {
        let first = self.field(self.runtime, Field::RuntimeInterpreters)?;
        self.chain(first, Field::InterpNext, INTERPRETERS)
    }

    /// The threads of an interpreter, newest first.
    ///
    /// # Errors
    /// When the chain is refused.
    pub fn threads(&mut self, interpreter: Addr) -> Result<Vec<Addr>, Refusal> {
        let first = self.field(interpreter, Field::InterpThreads)?;
        self.chain(first, Field::ThreadNext, THREADS)
    }

    fn chain(&mut self, first: Addr, next: Field, limit: usize) -> Result<Vec<Addr>, Refusal> {
        let mut chain = Vec::new();
        let mut at = first;
        while at.0 != 0 {
            if chain.len() == limit {
                return Err(Refusal::Absurd);
            }
            chain.push(at);
            at = self.field(at, next)?;
        }
        Ok(chain)
    }

    /// Looks through the frames of all threads for a local variable. Frames move while they are walked: a busy target may
    /// need several tries.
    ///
    /// # Errors
    /// When a chain is refused before it was found.
    pub fn find(&mut self, wanted: Wanted<'_>) -> Result<Option<Found>, Refusal> {
        let mut refused = None;
        for interpreter in self.interpreters()? {
            // The main thread is the oldest.
            for thread in self.threads(interpreter)?.into_iter().rev() {
                match self.find_in(thread, wanted) {
                    Ok(Some(found)) => return Ok(Some(found)),
                    Ok(None) => {}
                    Err(reason) => refused = Some(reason),
                }
            }
        }
        refused.map_or(Ok(None), Err)
    }

    fn find_in(&mut self, thread: Addr, wanted: Wanted<'_>) -> Result<Option<Found>, Refusal> {
        let mut frame = self.newest(thread)?;
        for _ in 0..FRAMES {
            if frame.0 == 0 {
                break;
            }
            if let Some(code) = self.code(frame)?
                && let Some(function) = self.is_of(code, wanted)?
                && let Some(object) = self.local(frame, code, wanted.local)?
            {
                let of_type = self.field(object, Field::ObType)?;
                return Ok(Some(Found { object, of_type, function, thread }));
            }
            frame = self.field(frame, Field::FramePrevious)?;
        }
        Ok(None)
    }

    fn newest(&mut self, thread: Addr) -> Result<Addr, Refusal> {
        let at = self.field(thread, Field::ThreadFrame)?;
        match self.layout.frames {
            Frames::Objects | Frames::Straight => Ok(at),
            Frames::Cframe if at.0 == 0 => Ok(at),
            Frames::Cframe => self.field(at, Field::CframeCurrent),
        }
    }

    /// The code a frame runs; `None` where it stands for a call from C.
    fn code(&mut self, frame: Addr) -> Result<Option<Addr>, Refusal> {
        let code = self.field(frame, Field::FrameCode)?;
        let code = self.untagged(code);
        let object = code.plausible(8) && self.type_of(code)?.kind == Kind::Code;
        Ok(object.then_some(code))
    }

    fn untagged(&self, reference: Addr) -> Addr {
        Addr(reference.0 & !self.layout.frame_tag)
    }

    /// The function's name, if the code is one that is wanted.
    fn is_of(&mut self, code: Addr, wanted: Wanted<'_>) -> Result<Option<String>, Refusal> {
        let name = self.field(code, Field::CodeName)?;
        let name = self.peek_name(name)?;
        if !wanted.functions.contains(&&*name) {
            return Ok(None);
        }
        let file = self.field(code, Field::CodeFile)?;
        Ok(self.peek_name(file)?.ends_with(wanted.file).then(|| name.as_ref().to_owned()))
    }

    fn local(&mut self, frame: Addr, code: Addr, name: &str) -> Result<Option<Addr>, Refusal> {
        let mut names = self.tuple_of_names(code, Field::CodeLocals)?;
        if !self.layout.one_list_of_locals {
            // An argument that is a cell has its value among the cells.
            let cells = self.tuple_of_names(code, Field::CodeCells)?;
            if let (Some(cell), Some(plain)) = (
                cells.iter().position(|cell| **cell == *name),
                names.iter().position(|local| **local == *name),
            ) {
                let slot = self.slot_of(frame, plain)?;
                if slot.0 != 0 {
                    return self.uncelled(slot).map(Some);
                }
                let slot = self.slot_of(frame, names.len() + cell)?;
                return if slot.0 == 0 { Ok(None) } else { self.uncelled(slot).map(Some) };
            }
            names.extend(cells);
        }
        let Some(place) = names.iter().position(|local| **local == *name) else { return Ok(None) };
        match self.slot_of(frame, place)? {
            Addr(0) => Ok(None),
            slot => self.uncelled(slot).map(Some),
        }
    }

    fn slot_of(&mut self, frame: Addr, place: usize) -> Result<Addr, Refusal> {
        let offset = 8 * u64::try_from(place).unwrap_or(0);
        let slot = self.peek_addr(frame.plus(self.layout.at(Field::FrameLocals)).plus(offset))?;
        Ok(self.untagged(slot))
    }

    /// What a cell holds; an object that is no cell, itself.
    fn uncelled(&mut self, object: Addr) -> Result<Addr, Refusal> {
        if self.type_of(object)?.kind == Kind::Cell { self.field(object, Field::CellRef) } else { Ok(object) }
    }

    fn tuple_of_names(&mut self, code: Addr, field: Field) -> Result<Vec<std::sync::Arc<str>>, Refusal> {
        let tuple = self.field(code, field)?;
        if tuple.0 == 0 {
            return Ok(Vec::new());
        }
        let len = self.field(tuple, Field::ObSize)?.0;
        if len > LOCALS {
            return Err(Refusal::Absurd);
        }
        let bytes = usize::try_from(8 * len).unwrap_or(usize::MAX);
        let items = self.peek(tuple.plus(self.layout.at(Field::TupleItems)), bytes)?;
        let items: Vec<Addr> = (0..bytes).step_by(8).map(|at| Addr(word(&items, at))).collect();
        self.peek_names(&items).into_iter().collect()
    }

    /// A module by its full name (`sys.modules[name]`).
    ///
    /// # Errors
    /// When the table of modules is refused.
    pub fn module(&mut self, name: &str) -> Result<Option<Ref>, Refusal> {
        for interpreter in self.interpreters()? {
            let modules = self.field(interpreter, Field::InterpModules)?;
            if modules.0 == 0 {
                continue;
            }
            for entry in self.peek_dict(modules)? {
                if self.peek_name(entry.key).as_deref() == Ok(name) {
                    return Ok(Some(Ref::root(entry.value)));
                }
            }
        }
        Ok(None)
    }
}
