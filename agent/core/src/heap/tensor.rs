//! Lengths of torch's tensors.

use super::memory::{Addr, Memory};
use super::reader::{Heap, Refusal, Want};
use super::scalars::Cell;
use super::seen::Ref;
use super::value::Value;

/// Where a tensor's Python object points to its `TensorImpl`: first in torch from 2.10 on, behind a flag before.
const IMPL: [u64; 2] = [16, 24];
/// Bytes of a `TensorImpl` that are looked at, as words.
const WORDS: usize = 32;
/// Sizes from the pointer back to the Python object on: number of dimensions, then the sizes themselves.
const DIMENSIONS: usize = 1;
const SIZE: usize = 2;

impl<M: Memory> Heap<M> {
    /// The length of a tensor of one dimension (`torch.Tensor`, 2.9 to 2.14: the `TensorImpl` points back to its Python
    /// object, and number and sizes of its dimensions follow).
    ///
    /// # Errors
    /// When it is refused, or is no such tensor.
    pub fn tensor_length(&mut self, tensor: Ref) -> Result<Cell, Refusal> {
        let (_, typed) = self.types_of(&[tensor]).pop().unwrap_or(Err(Refusal::Unreadable))?;
        for offset in IMPL {
            let pointer = self.gather_one(tensor.addr.plus(offset), 8, typed)?;
            let body = self.pointer(pointer, 0);
            if !body.addr.plausible(8 * WORDS) {
                continue;
            }
            let seen = self.gather(&[Want::new(body.addr, 8 * WORDS, pointer)]).pop();
            let seen = seen.unwrap_or(Err(Refusal::Unreadable))?;
            let words: Vec<u64> = (0..WORDS).map(|number| self.seen.word(seen, 8 * number)).collect();
            // The lowest bits of the pointer back are flags.
            let Some(back) = words.iter().position(|word| Addr(word & !3) == tensor.addr) else { continue };
            return match (words.get(back + DIMENSIONS), words.get(back + SIZE)) {
                (Some(1), Some(size)) if *size < 1 << 40 => {
                    Ok(Cell { value: Value::Int((*size).into()), seen })
                }
                _ => Err(Refusal::Absurd),
            };
        }
        Err(Refusal::Absurd)
    }
}
