//! Finds `_PyRuntime` where neither a symbol nor a section names it.

use super::layout::{Field, Frames};
use super::memory::{Addr, Memory};
use super::reader::Heap;
use super::seen::word;

/// What `_PyRuntime` begins with from 3.13 on.
const COOKIE: &[u8; 8] = b"xdebugpy";
/// An interpreter's state lies above this.
const LOWEST: u64 = 0x1_0000;

impl<M: Memory> Heap<M> {
    /// Looks for `_PyRuntime` in the bytes of a writable segment that lies at `start`: from 3.13 on by how it begins;
    /// before, by the ring from the runtime to its interpreter and back. Looks at no more than `places` places.
    pub fn scan(&mut self, start: Addr, bytes: &[u8], places: usize) -> Option<Addr> {
        self.begin(4 * places);
        match self.layout.frames {
            Frames::Straight => {
                let at = bytes.chunks_exact(8).position(|chunk| chunk == COOKIE)?;
                Some(start.plus(8 * u64::try_from(at).ok()?))
            }
            Frames::Objects | Frames::Cframe => self.scan_ring(start, bytes, places),
        }
    }

    fn scan_ring(&mut self, start: Addr, bytes: &[u8], places: usize) -> Option<Addr> {
        let head = self.layout.at(Field::RuntimeInterpreters);
        let words = (0_u64..).zip((0..bytes.len() / 8).map(|number| word(bytes, 8 * number)));
        let pointers = words.filter(|(_, word)| *word >= LOWEST && word % 8 == 0 && Addr(*word).plausible(8));
        let found: Vec<(Addr, Addr)> = pointers
            .map(|(number, word)| (start.plus(8 * number).minus(head), Addr(word)))
            .take(places)
            .collect();
        let back = self.layout.at(Field::InterpRuntime);
        let read =
            self.peek_many(&found.iter().map(|(_, interp)| (interp.plus(back), 8)).collect::<Vec<_>>());
        let leads_back = |((runtime, _), back): &(&(Addr, Addr), &Result<Vec<u8>, _>)| {
            back.as_ref().is_ok_and(|back| word(back, 0) == runtime.0)
        };
        let near: Vec<(Addr, Addr)> =
            found.iter().zip(&read).filter(leads_back).map(|(pair, _)| *pair).collect();
        near.into_iter().find(|(_, interp)| self.has_thread(*interp)).map(|(runtime, _)| runtime)
    }

    fn has_thread(&mut self, interpreter: Addr) -> bool {
        let thread = self.field(interpreter, Field::InterpThreads);
        thread.and_then(|thread| self.field(thread, Field::ThreadInterp)) == Ok(interpreter)
    }
}
